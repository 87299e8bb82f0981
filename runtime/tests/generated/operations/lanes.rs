//! Lanes of vectors, parts of aggregates, and what the processor does with vectors.

use super::generate::{Generator, Value};
use super::types::{I32, Part, Ty, int, scalar};

/// Intrinsics of the processor: name, result, operands.
const MACHINE: [(&str, &str, &str); 28] = [
    ("sse2.pmovmskb.128", "i32", "16 8"),
    ("sse.movmsk.ps", "i32", "4 float"),
    ("sse2.movmsk.pd", "i32", "2 double"),
    ("avx2.pmovmskb", "i32", "32 8"),
    ("avx.movmsk.ps.256", "i32", "8 float"),
    ("avx.movmsk.pd.256", "i32", "4 double"),
    ("sse2.packsswb.128", "16 8", "8 16,8 16"),
    ("sse2.packssdw.128", "8 16", "4 32,4 32"),
    ("sse2.packuswb.128", "16 8", "8 16,8 16"),
    ("sse41.packusdw", "8 16", "4 32,4 32"),
    ("avx2.packsswb", "32 8", "16 16,16 16"),
    ("avx2.packssdw", "16 16", "8 32,8 32"),
    ("avx2.packuswb", "32 8", "16 16,16 16"),
    ("avx2.packusdw", "16 16", "8 32,8 32"),
    ("sse2.pmulh.w", "8 16", "8 16,8 16"),
    ("sse2.pmulhu.w", "8 16", "8 16,8 16"),
    ("avx2.pmulh.w", "16 16", "16 16,16 16"),
    ("avx2.pmulhu.w", "16 16", "16 16,16 16"),
    ("avx2.pavg.b", "32 8", "32 8,32 8"),
    ("avx2.pavg.w", "16 16", "16 16,16 16"),
    ("sse2.pmadd.wd", "4 32", "8 16,8 16"),
    ("avx2.pmadd.wd", "8 32", "16 16,16 16"),
    ("sse2.pavg.b", "16 8", "16 8,16 8"),
    ("sse2.pavg.w", "8 16", "8 16,8 16"),
    ("sse2.psad.bw", "2 64", "16 8,16 8"),
    ("avx2.psad.bw", "4 64", "32 8,32 8"),
    ("ssse3.pshuf.b.128", "16 8", "16 8,16 8"),
    ("avx2.pshuf.b", "32 8", "32 8,32 8"),
];

/// A type of the table above.
fn machine_type(text: &str) -> Ty {
    match text.split_once(' ') {
        None => I32,
        Some((lanes, part)) => Ty {
            lanes: lanes.parse().expect("a number"),
            part: match part {
                "float" => Part::F32,
                "double" => Part::F64,
                bits => Part::Int(bits.parse().expect("a width")),
            },
        },
    }
}

/// An aggregate and its scalars.
const AGGREGATES: [(&str, &[(&str, Ty)]); 4] = [
    (
        "{ i8, i64, float }",
        &[("0", int(8)), ("1", int(64)), ("2", scalar(Part::F32))],
    ),
    (
        "{ i128, { i1, double }, [2 x i16] }",
        &[
            ("0", int(128)),
            ("1, 0", int(1)),
            ("1, 1", scalar(Part::F64)),
            ("2, 0", int(16)),
            ("2, 1", int(16)),
        ],
    ),
    (
        "<{ i8, i32, i13 }>",
        &[("0", int(8)), ("1", int(32)), ("2", int(13))],
    ),
    (
        "[3 x { i33, i8 }]",
        &[
            ("0, 0", int(33)),
            ("1, 0", int(33)),
            ("1, 1", int(8)),
            ("2, 1", int(8)),
        ],
    ),
];

impl Generator {
    /// A number of a lane, maybe none that is a constant.
    fn lane(&mut self, ty: Ty) -> (Ty, String) {
        let index = int(self.random.one_of(&[8, 32, 64, 64]));
        let lanes = ty.lanes;
        // The baseline compiler does not choose among bits.
        if self.random.one_in(2) || ty.bits() == 1 && !self.wild {
            return (index, self.random.below(lanes as usize).to_string());
        }
        let value = self.value(index).name;
        (index, self.step(&format!("urem {index} {value}, {lanes}")))
    }

    pub fn extract(&mut self) {
        let ty = self.vector();
        let value = self.value(ty);
        let (index, at) = self.lane(ty);
        let text = format!("extractelement {ty} {}, {index} {at}", value.name);
        self.make(ty.lane(), &text, value.exact);
    }

    pub fn insert(&mut self) {
        let ty = self.vector();
        let (value, one) = (self.value(ty), self.value(ty.lane()));
        let (index, at) = self.lane(ty);
        let text = format!(
            "insertelement {ty} {}, {} {}, {index} {at}",
            value.name, ty.part, one.name
        );
        self.make(ty, &text, value.exact && one.exact);
    }

    pub fn shuffle(&mut self) {
        let ty = self.vector();
        let (a, b) = (self.value(ty), self.value(ty));
        let lanes = match self.random.one_in(2) {
            true => ty.lanes,
            false => 1 + self.random.below(16.min(256 / ty.bits().max(8)) as usize) as u32,
        };
        let to = Ty { lanes, ..ty };
        let hole = self.random.below(lanes as usize * 2) as u32;
        let mask: Vec<_> = (0..lanes)
            .map(|at| match at == hole {
                true => "i32 poison".to_owned(),
                false => format!("i32 {}", self.random.below(2 * ty.lanes as usize)),
            })
            .collect();
        let text = format!(
            "shufflevector {ty} {}, {ty} {}, <{lanes} x i32> <{}>",
            a.name,
            b.name,
            mask.join(", ")
        );
        let exact = a.exact && b.exact;
        if hole >= lanes {
            self.make(to, &text, exact);
            return;
        }
        let made = self.step(&text);
        let one = self.value(ty.lane());
        let text = format!(
            "insertelement {to} {made}, {} {}, i64 {hole}",
            ty.part, one.name
        );
        self.make(to, &text, exact && one.exact);
    }

    /// `llvm.vector.reduce`.
    pub fn reduction(&mut self) {
        let ty = self.vector();
        if ty.bits() > 64 {
            return;
        }
        let value = self.value(ty);
        let of = |name: String| (ty.to_string(), name);
        if ty.is_int() {
            let op = self.random.one_of(&[
                "add", "mul", "and", "or", "xor", "smin", "smax", "umin", "umax",
            ]);
            let full = format!("llvm.vector.reduce.{op}.{}", ty.mangled());
            let text = self.call(&ty.part.to_string(), &full, &[of(value.name)]);
            self.make(ty.lane(), &text, true);
        } else if matches!(ty.part, Part::F32 | Part::F64) {
            let op = self.random.one_of(&["fadd", "fmul", "fmin", "fmax"]);
            let full = format!("llvm.vector.reduce.{op}.{}", ty.mangled());
            let part = ty.part.to_string();
            if matches!(op, "fadd" | "fmul") {
                let start = self.value(ty.lane()).name;
                let text = self.call(&part, &full, &[(part.clone(), start), of(value.name)]);
                self.make(ty.lane(), &text, false);
                return;
            }
            let exact = Value {
                exact: false,
                ..value
            };
            let exact = self.exact(&exact);
            let text = self.call(&part, &full, &[of(exact)]);
            let one = self.step(&text);
            self.make(ty.lane(), &format!("fadd {part} {one}, 0.0"), false);
        }
    }

    /// Intrinsics of the processor.
    pub fn machine(&mut self) {
        if !std::is_x86_feature_detected!("avx2") {
            return;
        }
        if self.random.one_in(3) {
            return self.machine_shift();
        }
        let (name, returns, operands) = self.random.one_of(&MACHINE);
        let mut list = Vec::new();
        for operand in operands.split(',') {
            let ty = machine_type(operand);
            let value = self.value(ty);
            list.push((ty.to_string(), self.exact(&value)));
        }
        let returns = machine_type(returns);
        let text = self.call(&returns.to_string(), &format!("llvm.x86.{name}"), &list);
        self.make(returns, &text, true);
    }

    /// Shifts of all lanes by the same number, which may be too large.
    fn machine_shift(&mut self) {
        let (set, bytes) = self.random.one_of(&[("sse2", 16), ("avx2", 32)]);
        let op = self.random.one_of(&["psll", "psrl", "psra"]);
        let (letter, bits) = self.random.one_of(&[("w", 16), ("d", 32), ("q", 64)]);
        if (op, bits) == ("psra", 64) {
            return;
        }
        let of = |bytes: u32| Ty {
            part: Part::Int(bits),
            lanes: bytes * 8 / bits,
        };
        let ty = of(bytes);
        let value = self.value(ty).name;
        let (form, by) = match self.random.one_in(2) {
            true => ("i", (I32.to_string(), self.index(I32, 128))),
            false => {
                let by = self.value(of(16)).name;
                let low = of(16).number(127);
                let by = self.step(&format!("and {} {by}, {low}", of(16)));
                ("", (of(16).to_string(), by))
            }
        };
        let full = format!("llvm.x86.{set}.{op}{form}.{letter}");
        let text = self.call(&ty.to_string(), &full, &[(ty.to_string(), value), by]);
        self.make(ty, &text, true);
    }

    /// Parts of an aggregate, which goes through memory, a choice, or neither.
    pub fn aggregate(&mut self) {
        let (ty, parts) = self.random.one_of(&AGGREGATES);
        let mut whole = "poison".to_owned();
        for (path, part) in parts {
            let value = self.value(*part);
            let value = self.exact(&value);
            whole = self.step(&format!("insertvalue {ty} {whole}, {part} {value}, {path}"));
        }
        match self.random.below(3) {
            0 => {
                let variable = self.variable(ty, 16);
                self.line(&format!("store {ty} {whole}, ptr {variable}"));
                whole = self.step(&format!("load {ty}, ptr {variable}"));
            }
            1 => {
                let (path, part) = self.random.one_of(parts);
                let value = self.value(part);
                let value = self.exact(&value);
                let other = self.step(&format!("insertvalue {ty} {whole}, {part} {value}, {path}"));
                let bit = self.condition();
                whole = self.step(&format!("select i1 {bit}, {ty} {whole}, {ty} {other}"));
            }
            _ => {}
        }
        // Of arrays and structs some parts are not set.
        for (path, part) in parts {
            self.make(*part, &format!("extractvalue {ty} {whole}, {path}"), true);
        }
    }
}
