//! Operations on floats: arithmetic, comparisons, casts, intrinsics, functions of the C library.

use super::generate::{Generator, Value};
use super::types::{I32, Part, Ty, int, scalar};

const PREDICATES: [&str; 16] = [
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule",
    "une", "uno", "true",
];

impl Generator {
    fn float(&mut self) -> Ty {
        let part = self.float_part();
        match self.random.one_in(4) && matches!(part, Part::F32 | Part::F64) {
            true => Ty {
                part,
                lanes: 1 + self.random.below(if part == Part::F32 { 8 } else { 4 }) as u32,
            },
            false => scalar(part),
        }
    }

    pub fn float_arithmetic(&mut self) {
        let ty = self.float();
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let op = self
            .random
            .one_of(&["fadd", "fsub", "fmul", "fdiv", "frem"]);
        if op == "frem" && !matches!(ty.part, Part::F32 | Part::F64) {
            return;
        }
        self.make(ty, &format!("{op} {ty} {a}, {b}"), false);
    }

    pub fn float_comparison(&mut self) {
        let ty = self.float();
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let how = self.random.one_of(&PREDICATES);
        let text = format!("fcmp {how} {ty} {a}, {b}");
        self.make(ty.of(Part::I1), &text, true);
    }

    pub fn float_intrinsic(&mut self) {
        let ty = self.float();
        let (a, b, c) = (self.value(ty), self.value(ty), self.value(ty));
        let name = self.random.one_of(&[
            "fneg",
            "fabs",
            "copysign",
            "sqrt",
            "floor",
            "ceil",
            "trunc",
            "rint",
            "nearbyint",
            "round",
            "roundeven",
            "minnum",
            "maxnum",
            "fma",
            "canonical",
        ]);
        let is_long = !matches!(ty.part, Part::F32 | Part::F64);
        if is_long && matches!(name, "minnum" | "maxnum" | "fma" | "copysign" | "roundeven") {
            return;
        }
        let (a_name, b_name, c_name) = (a.name.clone(), b.name.clone(), c.name);
        if name == "fneg" {
            self.make(ty, &format!("fneg {ty} {a_name}"), a.exact);
            return;
        }
        let full = format!("llvm.{name}.{}", ty.mangled());
        let of = |value: String| (ty.to_string(), value);
        match name {
            "canonical" => {
                let made = self.exact(&a);
                self.keep(ty, &made, true);
            }
            "copysign" => {
                // The sign of a NaN is visible.
                let sign = self.exact(&b);
                let text = self.call(&ty.to_string(), &full, &[of(a_name), of(sign)]);
                self.make(ty, &text, a.exact);
            }
            "minnum" | "maxnum" => {
                // A signalling NaN, and zeros of both signs, have several results.
                let inexact = |it: &Value| Value {
                    exact: false,
                    ..it.clone()
                };
                let (a, b) = (self.exact(&inexact(&a)), self.exact(&inexact(&b)));
                let text = self.call(&ty.to_string(), &full, &[of(a), of(b)]);
                let one = self.step(&text);
                let zero = ty.zero();
                self.make(ty, &format!("fadd {ty} {one}, {zero}"), false);
            }
            "fma" => {
                let list = [of(a_name), of(b_name), of(c_name)];
                let text = self.call(&ty.to_string(), &full, &list);
                self.make(ty, &text, false);
            }
            _ => {
                let text = self.call(&ty.to_string(), &full, &[of(a_name)]);
                self.make(ty, &text, name == "fabs" && a.exact);
            }
        }
    }

    /// `llvm.fmuladd`, fused or not: of small whole numbers both are exact.
    pub fn multiply_add(&mut self) {
        let ty = scalar(self.random.one_of(&[Part::F32, Part::F64, Part::F80]));
        if ty.part == Part::F80 && !self.wild {
            return;
        }
        let mut list = Vec::new();
        for _ in 0..3 {
            let small = self.small(I32);
            list.push((
                ty.to_string(),
                self.step(&format!("sitofp i32 {small} to {ty}")),
            ));
        }
        let text = self.call(
            &ty.to_string(),
            &format!("llvm.fmuladd.{}", ty.mangled()),
            &list,
        );
        self.make(ty, &text, false);
    }

    /// `llvm.is.fpclass`.
    pub fn class(&mut self) {
        let ty = self.float();
        if ty.part == Part::F80 && !self.wild {
            return;
        }
        let value = self.value(ty);
        let value = Value {
            exact: false,
            ..value
        };
        let value = self.exact(&value);
        // NaN, infinite, finite, and what is not.
        let known = [0x003, 0x204, 0x1f8, 0x3fc, 0x1fb, 0x207];
        let mask = match self.wild {
            true => self.random.below(1024),
            false => self.random.one_of(&known),
        };
        let mask = mask.to_string();
        let to = ty.of(Part::I1);
        let full = format!("llvm.is.fpclass.{}", ty.mangled());
        let text = self.call(
            &to.to_string(),
            &full,
            &[(ty.to_string(), value), ("i32".into(), mask)],
        );
        self.make(to, &text, true);
    }

    /// Between floats, and between floats and integers.
    pub fn float_cast(&mut self) {
        let from = self.float();
        match self.random.below(5) {
            0 => {
                let to = from.of(self.float_part());
                let value = self.value(from);
                let cast = match from.bits().cmp(&to.bits()) {
                    std::cmp::Ordering::Less => "fpext",
                    std::cmp::Ordering::Greater => "fptrunc",
                    std::cmp::Ordering::Equal => return,
                };
                if to.is_vector() && !matches!(to.part, Part::F32 | Part::F64) {
                    return;
                }
                let text = format!("{cast} {from} {} to {to}", value.name);
                self.make(to, &text, false);
            }
            1 | 2 => {
                let whole = from.of(Part::Int(self.cast_width(from)));
                let value = self.value(whole).name;
                let cast = self.random.one_of(&["sitofp", "uitofp"]);
                self.make(from, &format!("{cast} {whole} {value} to {from}"), true);
            }
            3 => self.saturated(from),
            _ => self.truncated(from),
        }
    }

    fn cast_width(&mut self, beside: Ty) -> u32 {
        match beside.is_vector() {
            true => self.random.one_of(&[1, 8, 16, 32, 64]),
            false => loop {
                let bits = self.width();
                if bits <= 128 {
                    return bits;
                }
            },
        }
    }

    /// `fptosi` and `fptoui`, of what fits.
    fn truncated(&mut self, from: Ty) {
        let bits = self.cast_width(from).max(3);
        let to = from.of(Part::Int(bits));
        let signed = self.random.one_in(2);
        let value = self.value(from).name;
        // Powers of two that all the types have.
        let most = (bits - u32::from(signed)).min(match from.part {
            Part::Half => 15,
            Part::F32 => 126,
            _ => 127,
        });
        let limit = self.power(from, most);
        let least = match signed {
            true => self.step(&format!("fneg {from} {limit}")),
            false => from.zero(),
        };
        let bit = from.of(Part::I1);
        let below = self.step(&format!("fcmp olt {from} {value}, {limit}"));
        let above = self.step(&format!("fcmp oge {from} {value}, {least}"));
        let fits = self.step(&format!("and {bit} {below}, {above}"));
        let zero = from.zero();
        let value = self.step(&format!(
            "select {bit} {fits}, {from} {value}, {from} {zero}"
        ));
        let cast = if signed { "fptosi" } else { "fptoui" };
        self.make(to, &format!("{cast} {from} {value} to {to}"), true);
    }

    /// A power of two as a float.
    fn power(&mut self, ty: Ty, exponent: u32) -> String {
        let one = self.step(&format!("shl i128 1, {exponent}"));
        let one = self.step(&format!("uitofp i128 {one} to {}", ty.part));
        self.spread(ty.lane(), &one, ty)
    }

    fn saturated(&mut self, from: Ty) {
        if from.bits() > 64 && !self.wild {
            return;
        }
        let bits = match self.cast_width(from) {
            128 if !self.wild => 64,
            bits => bits,
        };
        let to = from.of(Part::Int(bits));
        let value = self.value(from).name;
        let how = self.random.one_of(&["fptosi", "fptoui"]);
        let full = format!("llvm.{how}.sat.{}.{}", to.mangled(), from.mangled());
        let text = self.call(&to.to_string(), &full, &[(from.to_string(), value)]);
        self.make(to, &text, true);
    }

    /// A function of the C library, of values that no pass may compute with.
    pub fn library(&mut self) {
        let part = self
            .random
            .one_of(&[Part::F32, Part::F64, Part::F64, Part::F80]);
        let ty = scalar(part);
        let a = self.value(ty).name;
        let a = self.opaque(ty, &a);
        let of = |value: String| (ty.to_string(), value);
        let mangled = ty.mangled();
        let name = self.random.one_of(&[
            "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2",
            "exp10", "log", "log2", "log10", "pow", "atan2", "ldexp", "powi", "modf", "lround",
            "llround", "lrint", "llrint",
        ]);
        match name {
            "pow" | "atan2" => {
                let b = self.value(ty).name;
                let b = self.opaque(ty, &b);
                let text = self.call(
                    &ty.to_string(),
                    &format!("llvm.{name}.{mangled}"),
                    &[of(a), of(b)],
                );
                self.make(ty, &text, false);
            }
            "ldexp" | "powi" => {
                // Products of few small whole numbers are exact in any order.
                let small = self.small(I32);
                let small = self.opaque(I32, &small);
                let (base, by) = match name {
                    "powi" => (
                        self.step(&format!("sitofp i32 {small} to {ty}")),
                        self.step(&format!("and i32 {small}, 3")),
                    ),
                    _ => (a, small),
                };
                let full = format!("llvm.{name}.{mangled}.i32");
                let text = self.call(&ty.to_string(), &full, &[of(base), ("i32".into(), by)]);
                self.make(ty, &text, false);
            }
            "modf" => {
                let both = format!("{{ {ty}, {ty} }}");
                let text = self.call(&both, &format!("llvm.modf.{mangled}"), &[of(a)]);
                let pair = self.step(&text);
                for at in 0..2 {
                    self.make(ty, &format!("extractvalue {both} {pair}, {at}"), false);
                }
            }
            "lround" | "llround" | "lrint" | "llrint" => {
                let to = int(64);
                let small = self.small(I32);
                let small = self.step(&format!("sitofp i32 {small} to {ty}"));
                let half = self.step(&format!("fdiv {ty} {small}, {}", ty.constant_of("2.5")));
                let full = format!("llvm.{name}.i64.{mangled}");
                let text = self.call("i64", &full, &[of(half)]);
                self.make(to, &text, true);
            }
            _ => {
                let text = self.call(&ty.to_string(), &format!("llvm.{name}.{mangled}"), &[of(a)]);
                self.make(ty, &text, false);
            }
        }
    }
}

impl Ty {
    /// A constant float; 2.5 in the type that has no decimal text.
    fn constant_of(self, text: &str) -> String {
        match self.part {
            Part::F80 => "0xK4000A000000000000000".into(),
            _ => text.into(),
        }
    }
}
