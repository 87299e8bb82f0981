//! Operations on integers and vectors of them: arithmetic, comparisons, casts, intrinsics.

use super::generate::{Generator, Value};
use super::types::{I1, Part, Ty, int, scalar};

const PREDICATES: [&str; 10] = [
    "eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle",
];

impl Generator {
    /// A type of integers.
    fn whole(&mut self) -> Ty {
        if self.random.one_in(4) {
            for _ in 0..8 {
                let ty = self.vector();
                if ty.is_int() {
                    return ty;
                }
            }
        }
        int(self.width())
    }

    pub fn arithmetic(&mut self) {
        let ty = self.whole();
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let op = self
            .random
            .one_of(&["add", "sub", "mul", "and", "or", "xor"]);
        if ty.bits() >= 8 && self.random.one_in(4) {
            return self.flagged(ty, op, &a, &b);
        }
        self.make(ty, &format!("{op} {ty} {a}, {b}"), true);
    }

    /// With flags that hold, as operands are small.
    fn flagged(&mut self, ty: Ty, op: &str, a: &str, b: &str) {
        let mask = ty.number(7);
        let a = self.step(&format!("and {ty} {a}, {mask}"));
        let b = self.step(&format!("and {ty} {b}, {mask}"));
        let high = ty.number(3);
        let text = match op {
            "sub" => format!("sub nsw {ty} {a}, {b}"),
            "or" => {
                let up = self.step(&format!("shl nuw nsw {ty} {a}, {high}"));
                format!("or disjoint {ty} {up}, {b}")
            }
            "and" => format!("lshr exact {ty} {}, {high}", {
                self.step(&format!("shl nuw nsw {ty} {a}, {high}"))
            }),
            "xor" => {
                let up = self.step(&format!("shl nuw nsw {ty} {a}, {high}"));
                format!("sdiv exact {ty} {up}, {}", ty.number(8))
            }
            _ => format!("{op} nuw nsw {ty} {a}, {b}"),
        };
        self.make(ty, &text, true);
    }

    /// Casts with flags that hold.
    pub fn flagged_cast(&mut self) {
        let (narrow, wide) = self
            .random
            .one_of(&[(8, 32), (13, 64), (32, 64), (16, 128)]);
        let (narrow, wide) = (int(narrow), int(wide));
        let value = self.value(wide).name;
        let low = self.step(&format!("and {wide} {value}, 127"));
        let cut = self.random.one_of(&["nuw", "nsw", "nuw nsw"]);
        let cut = self.make(
            narrow,
            &format!("trunc {cut} {wide} {low} to {narrow}"),
            true,
        );
        self.make(wide, &format!("zext nneg {narrow} {cut} to {wide}"), true);
        let float = scalar(self.random.one_of(&[Part::F32, Part::F64]));
        let one = self.make(float, &format!("uitofp nneg {wide} {low} to {float}"), true);
        // Neither NaN nor infinite.
        let op = self.random.one_of(&["fadd", "fsub", "fmul"]);
        let made = self.make(float, &format!("{op} nnan ninf {float} {one}, {one}"), true);
        let bit = self.step(&format!("fcmp nnan ninf olt {float} {made}, {one}"));
        let text = format!("select nnan ninf i1 {bit}, {float} {made}, {float} {one}");
        let chosen = self.make(float, &text, true);
        self.make(float, &format!("fneg nnan ninf {float} {chosen}"), true);
    }

    pub fn shift(&mut self) {
        let ty = self.whole();
        let a = self.value(ty).name;
        let by = self.amount(ty);
        let op = self.random.one_of(&["shl", "lshr", "ashr"]);
        self.make(ty, &format!("{op} {ty} {a}, {by}"), true);
    }

    /// A number of bits that is less than the width.
    fn amount(&mut self, ty: Ty) -> String {
        let bits = ty.bits();
        match self.random.below(3) {
            0 => ty.number(self.random.below(bits as usize) as u128),
            _ => {
                let by = self.value(ty).name;
                match bits.is_power_of_two() {
                    true => self.step(&format!("and {ty} {by}, {}", ty.number(bits as u128 - 1))),
                    false => self.step(&format!("urem {ty} {by}, {}", ty.number(bits.into()))),
                }
            }
        }
    }

    pub fn division(&mut self) {
        let ty = self.whole();
        if ty.bits() > 128 || ty.lanes > 8 {
            return;
        }
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let op = self.random.one_of(&["udiv", "urem", "sdiv", "srem"]);
        let one = ty.number(1);
        if op.starts_with('u') {
            let b = match self.random.one_in(3) {
                true => ty.number(1 | self.random.wide()),
                false => self.step(&format!("or {ty} {b}, {one}")),
            };
            self.make(ty, &format!("{op} {ty} {a}, {b}"), true);
            return;
        }
        if ty.bits() < 4 {
            return;
        }
        let bits = ty.of(Part::I1);
        let b = match self.random.below(4) {
            0 => ty.number(self.random.wide() | 2),
            1 => {
                let positive = ty.number(ty.greatest());
                let b = self.step(&format!("and {ty} {b}, {positive}"));
                self.step(&format!("or {ty} {b}, {one}"))
            }
            _ => {
                // Neither 0 nor -1.
                let next = self.step(&format!("add {ty} {b}, {one}"));
                let two = ty.number(2);
                let is_bad = self.step(&format!("icmp ult {ty} {next}, {two}"));
                let other = ty.number(3);
                self.step(&format!("select {bits} {is_bad}, {ty} {other}, {ty} {b}"))
            }
        };
        // -1 as a constant: the sum above has none.
        let b = match b == ty.number(u128::MAX) {
            true => ty.number(5),
            false => b,
        };
        self.make(ty, &format!("{op} {ty} {a}, {b}"), true);
    }

    pub fn comparison(&mut self) {
        let ty = match self.random.one_in(8) {
            true => super::types::PTR,
            false => self.whole(),
        };
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let how = self.random.one_of(&PREDICATES);
        let text = format!("icmp {how} {ty} {a}, {b}");
        self.make(ty.of(Part::I1), &text, true);
    }

    pub fn choice(&mut self) {
        let ty = self.ty();
        let (a, b) = (self.value(ty), self.value(ty));
        let text = match ty.is_vector() && self.random.one_in(2) {
            true => {
                let bits = ty.of(Part::I1);
                let bit = self.value(bits).name;
                format!("select {bits} {bit}, {ty} {}, {ty} {}", a.name, b.name)
            }
            false => {
                let bit = self.condition();
                format!("select i1 {bit}, {ty} {}, {ty} {}", a.name, b.name)
            }
        };
        self.make(ty, &text, a.exact && b.exact);
    }

    pub fn resize(&mut self) {
        let from = self.whole();
        let bits = match from.is_vector() {
            true => self.random.one_of(&[1, 8, 16, 32, 64]),
            false => self.width(),
        };
        let to = from.of(Part::Int(bits));
        let value = self.value(from).name;
        let cast = match from.bits().cmp(&bits) {
            std::cmp::Ordering::Less => self.random.one_of(&["zext", "sext"]),
            std::cmp::Ordering::Greater => "trunc",
            std::cmp::Ordering::Equal => return,
        };
        if to.bytes() <= 32 {
            self.make(to, &format!("{cast} {from} {value} to {to}"), true);
        }
    }

    /// The same bits as another type.
    pub fn reinterpretation(&mut self) {
        let from = self.ty();
        let kinds = [
            Part::Int(from.whole()),
            Part::Int(8),
            Part::Int(16),
            Part::Int(32),
            Part::Int(64),
            Part::F32,
            Part::F64,
            Part::I1,
        ];
        let part = self.random.one_of(&kinds);
        let whole = from.whole();
        if matches!(from.part, Part::Ptr | Part::F80) || !whole.is_multiple_of(part.bits()) {
            return;
        }
        let lanes = match (whole / part.bits(), self.random.one_in(2)) {
            (1, true) => 0,
            (lanes, _) => lanes,
        };
        // LLVM 22 mistakes lanes of bits that are no power of two.
        let mistaken = [from, Ty { part, lanes }]
            .iter()
            .any(|it| it.part == Part::I1 && !it.lanes.max(1).is_power_of_two());
        let large = lanes > 16 || whole > 256;
        if mistaken || lanes > 64 || large && !self.wild {
            return;
        }
        let to = Ty { part, lanes };
        let value = self.value(from);
        let value = self.exact(&value);
        self.make(to, &format!("bitcast {from} {value} to {to}"), true);
    }

    /// An intrinsic with one or two operands of a type, and its result of the same.
    pub fn integer_intrinsic(&mut self) {
        let ty = self.whole();
        let of = |value: String| (ty.to_string(), value);
        let flag = |it: &str| ("i1".to_owned(), it.to_owned());
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let mangled = ty.mangled();
        let name = self.random.one_of(&[
            "ctpop",
            "ctlz",
            "cttz",
            "bswap",
            "bitreverse",
            "abs",
            "smin",
            "smax",
            "umin",
            "umax",
            "sadd.sat",
            "uadd.sat",
            "ssub.sat",
            "usub.sat",
            "fshl",
            "fshr",
            "expect",
            "ssa.copy",
        ]);
        let full = format!("llvm.{name}.{mangled}");
        let arguments = match name {
            "bswap" if !ty.bits().is_multiple_of(16) => return,
            "ctpop" | "bswap" | "bitreverse" => vec![of(a)],
            "abs" => vec![of(a), flag("false")],
            "ctlz" | "cttz" if self.random.one_in(3) => {
                let some = self.step(&format!("or {ty} {a}, {}", ty.number(1)));
                vec![of(some), flag("true")]
            }
            "ctlz" | "cttz" => vec![of(a), flag("false")],
            "fshl" | "fshr" => {
                let by = match self.random.one_in(2) || !self.wild {
                    true => ty.number(self.random.below(2 * ty.bits() as usize) as u128),
                    false => self.value(ty).name,
                };
                vec![of(a), of(b), of(by)]
            }
            "expect" if !ty.is_vector() => vec![of(a), of(ty.number(1))],
            "ssa.copy" | "expect" => return,
            _ => vec![of(a), of(b)],
        };
        let is_refused = ty.bits() == 128 && (name.contains("sat") || name.starts_with("fsh"));
        if is_refused && !self.wild {
            return;
        }
        let text = self.call(&ty.to_string(), &full, &arguments);
        self.make(ty, &text, true);
    }

    pub fn overflow(&mut self) {
        let ty = self.whole();
        let (a, b) = (self.value(ty).name, self.value(ty).name);
        let name = self
            .random
            .one_of(&["sadd", "uadd", "ssub", "usub", "smul", "umul"]);
        if (ty.bits() >= 128 && name == "smul" || ty.is_vector()) && !self.wild {
            return;
        }
        let bits = ty.of(Part::I1);
        let both = format!("{{ {ty}, {bits} }}");
        let full = format!("llvm.{name}.with.overflow.{}", ty.mangled());
        let of = |value: &str| (ty.to_string(), value.to_owned());
        let text = self.call(&both, &full, &[of(&a), of(&b)]);
        let pair = self.step(&text);
        self.make(ty, &format!("extractvalue {both} {pair}, 0"), true);
        self.make(bits, &format!("extractvalue {both} {pair}, 1"), true);
    }

    /// `llvm.scmp` and `llvm.ucmp`.
    pub fn order(&mut self) {
        let from = self.whole();
        if from.is_vector() && !self.wild {
            return;
        }
        let to = from.of(Part::Int(self.random.one_of(&[2, 8, 13, 32, 64])));
        let (a, b) = (self.value(from).name, self.value(from).name);
        let how = self.random.one_of(&["scmp", "ucmp"]);
        let full = format!("llvm.{how}.{}.{}", to.mangled(), from.mangled());
        let of = |value: &str| (from.to_string(), value.to_owned());
        let text = self.call(&to.to_string(), &full, &[of(&a), of(&b)]);
        self.make(to, &text, true);
    }

    pub fn freeze(&mut self) {
        let ty = self.ty();
        if ty.is_int() && self.random.one_in(3) {
            // Its value is not known, but is the same twice.
            let any = self.step(&format!("freeze {ty} {}", self.any_undefined()));
            self.make(ty, &format!("xor {ty} {any}, {any}"), true);
            return;
        }
        let Value { name, exact, .. } = self.value(ty);
        self.make(ty, &format!("freeze {ty} {name}"), exact);
    }

    fn any_undefined(&self) -> &'static str {
        match self.fuel % 2 {
            0 => "undef",
            _ => "poison",
        }
    }

    /// Hints for the optimizer.
    pub fn assumption(&mut self) {
        let bits = self.random.one_of(&[8u32, 13, 32, 64]);
        let ty = int(bits);
        let value = self.value(ty).name;
        let low = self.step(&format!("and {ty} {value}, {}", ty.number(63)));
        let limit = ty.number(64);
        let is_less = self.step(&format!("icmp samesign ult {ty} {low}, {limit}"));
        let text = self.call("void", "llvm.assume", &[("i1".into(), is_less.clone())]);
        self.line(&text);
        self.keep(I1, &is_less, true);
        self.keep(ty, &low, true);
    }
}
