//! The cases: families of functions, by instruction, width, and shape of the operands.

use std::rc::Rc;

use super::types::{APART, Ty, edges, mask, signed};

/// Tells whether operands make a case defined.
type IsFor = Box<dyn Fn(&[[u8; APART]]) -> bool>;

/// One function, `void NAME(ptr %in, ptr %out)`.
pub struct Case {
    pub name: String,
    pub text: String,
    pub declares: Vec<String>,
    pub operands: Vec<Ty>,
    pub is_for: IsFor,
}

/// Widths: those of registers, those just beside, and odd ones.
const WIDTHS: [u32; 14] = [1, 2, 7, 8, 9, 16, 24, 31, 32, 33, 48, 63, 64, 128];

/// How operands come to an instruction.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// From memory, which it may read itself.
    Memory,
    /// In registers.
    Register,
    /// The first one twice.
    Same,
    /// The second one is this number.
    Right(u128),
    /// The first one is.
    Left(u128),
}

/// The first 16 bytes of an operand, of so many bits.
pub fn number(operand: &[u8; APART], bits: u32) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&operand[..16]);
    u128::from_le_bytes(bytes) & mask(bits)
}

/// A double or float, as a double; no vectors.
fn float(operand: &[u8; APART], ty: Ty) -> f64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&operand[..8]);
    match ty {
        Ty::F32 => f32::from_bits(u64::from_le_bytes(bytes) as u32).into(),
        Ty::F64 => f64::from_bits(u64::from_le_bytes(bytes)),
        _ => {
            // Exact for what there are of these.
            let exponent = i32::from(operand[8]) | i32::from(operand[9] & 0x7f) << 8;
            if exponent == 0x7fff {
                return f64::INFINITY;
            }
            let size = u64::from_le_bytes(bytes) as f64 * 2f64.powi(exponent - 16383 - 63);
            if operand[9] & 0x80 != 0 { -size } else { size }
        }
    }
}

pub fn any() -> IsFor {
    Box::new(|_| true)
}

/// A function of `operands` (`%a`, `%b`, ...) whose body makes `%r`, of the type `result`.
pub fn case(name: String, operands: &[Ty], volatile: bool, body: &str, result: Ty) -> Case {
    // No name of LLVM's own.
    let name = format!("of {name}");
    let mut text = format!("define void @\"{name}\"(ptr %in, ptr %out) {{\n");
    for (at, (ty, operand)) in operands.iter().zip(["a", "b", "c", "d"]).enumerate() {
        text += &ty.load(operand, at, volatile);
    }
    text += body;
    text += &result.store("%r", 0);
    text += "  ret void\n}\n";
    Case {
        name,
        text,
        declares: Vec::new(),
        operands: operands.to_vec(),
        is_for: any(),
    }
}

impl Case {
    pub fn only(mut self, is_for: impl Fn(&[[u8; APART]]) -> bool + 'static) -> Case {
        self.is_for = Box::new(is_for);
        self
    }

    pub fn declare(mut self, text: String) -> Case {
        self.declares.push(text);
        self
    }
}

/// A case with an instruction of two equal operands; `is_for` is asked for both.
fn binary(
    op: &str,
    ty: Ty,
    shape: Shape,
    is_for: impl Fn(u128, u128) -> bool + 'static,
) -> Option<Case> {
    let Ty::Int(bits) = ty else { return None };
    let name = format!("{op}.{ty}.{shape:?}");
    let volatile = !matches!(shape, Shape::Memory);
    let decimal = |value: u128| signed(value, bits).to_string();
    let (operands, body) = match shape {
        Shape::Memory | Shape::Register => (2, format!("  %r = {op} {ty} %a, %b\n")),
        Shape::Same => (1, format!("  %r = {op} {ty} %a, %a\n")),
        Shape::Right(value) => (
            1,
            format!("  %r = {op} {ty} %a, {}\n", literal(bits, &decimal(value))),
        ),
        Shape::Left(value) => (
            1,
            format!("  %r = {op} {ty} {}, %a\n", literal(bits, &decimal(value))),
        ),
    };
    let case = case(name, &[ty, ty][..operands], volatile, &body, ty);
    let case = case.only(move |operands| {
        let value = |at: usize| number(&operands[at], bits);
        match shape {
            Shape::Memory | Shape::Register => is_for(value(0), value(1)),
            Shape::Same => is_for(value(0), value(0)),
            Shape::Right(right) => is_for(value(0), right),
            Shape::Left(left) => is_for(left, value(0)),
        }
    });
    Some(case)
}

/// A number as text; bits are words.
fn literal(bits: u32, decimal: &str) -> String {
    match bits {
        1 => (if decimal == "0" { "false" } else { "true" }).into(),
        _ => decimal.into(),
    }
}

fn shapes(bits: u32) -> Vec<Shape> {
    let mut shapes = vec![Shape::Memory, Shape::Register, Shape::Same];
    for value in edges(bits) {
        shapes.push(Shape::Right(value));
        if value % 3 != 1 {
            shapes.push(Shape::Left(value));
        }
    }
    shapes
}

/// Arithmetic and logic.
pub fn integers() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in WIDTHS {
        let ty = Ty::Int(bits);
        for shape in shapes(bits) {
            for op in ["add", "sub", "mul", "and", "or", "xor"] {
                all.extend(binary(op, ty, shape, |_, _| true));
            }
            for op in ["shl", "lshr", "ashr"] {
                if matches!(shape, Shape::Right(by) if by >= bits.into()) {
                    continue;
                }
                all.extend(binary(op, ty, shape, move |_, by| by < bits.into()));
            }
            for op in ["udiv", "urem", "sdiv", "srem"] {
                if matches!(shape, Shape::Right(0)) || bits == 1 && op.starts_with('s') {
                    continue;
                }
                let is_signed = op.starts_with('s');
                all.extend(binary(op, ty, shape, move |a, b| {
                    let overflows = is_signed && a == 1 << (bits - 1) && b == mask(bits);
                    b != 0 && !overflows
                }));
            }
        }
    }
    all
}

/// The ways in which the result of a comparison is used.
fn uses_of_bits(name: &str, operands: &[Ty], made: &str, choice: Ty) -> Vec<Case> {
    let mut all = Vec::new();
    for volatile in [false, true] {
        let name = format!("{name}.{volatile}");
        let bit = Ty::Int(1);
        all.push(case(format!("{name}.bit"), operands, volatile, made, bit));
        let wide = format!("{}  %r = sext i1 %x to i32\n", made.replace("%r", "%x"));
        all.push(case(
            format!("{name}.wide"),
            operands,
            volatile,
            &wide,
            Ty::Int(32),
        ));
        let branch = format!(
            "{}  br i1 %x, label %yes, label %no\nyes:\n  br label %end\nno:\n  br label %end\nend:\n  \
             %r = phi i32 [ 11, %yes ], [ 22, %no ]\n",
            made.replace("%r", "%x")
        );
        all.push(case(
            format!("{name}.branch"),
            operands,
            volatile,
            &branch,
            Ty::Int(32),
        ));
        let select = format!(
            "{}  %r = select i1 %x, {choice} %a, {choice} %b\n",
            made.replace("%r", "%x")
        );
        if operands == [choice, choice] {
            all.push(case(
                format!("{name}.select"),
                operands,
                volatile,
                &select,
                choice,
            ));
        }
    }
    all
}

/// Comparisons of numbers, pointers and floats, and what is done with their result.
pub fn comparisons() -> Vec<Case> {
    let mut all = Vec::new();
    let whole = [
        "eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle",
    ];
    let types = WIDTHS.iter().map(|&bits| Ty::Int(bits)).chain([Ty::Ptr]);
    for ty in types {
        for how in whole {
            let made = format!("  %r = icmp {how} {ty} %a, %b\n");
            all.extend(uses_of_bits(
                &format!("icmp.{how}.{ty}"),
                &[ty, ty],
                &made,
                ty,
            ));
            let Ty::Int(bits) = ty else { continue };
            for value in edges(bits) {
                let constant = literal(bits, &signed(value, bits).to_string());
                let made = format!("  %r = icmp {how} {ty} %a, {constant}\n");
                all.extend(uses_of_bits(
                    &format!("icmp.{how}.{ty}.{value}"),
                    &[ty],
                    &made,
                    ty,
                ));
            }
        }
    }
    let floating = [
        "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
        "ule", "une", "uno", "true",
    ];
    for ty in [Ty::F32, Ty::F64, Ty::F80] {
        for how in floating {
            let made = format!("  %r = fcmp {how} {ty} %a, %b\n");
            all.extend(uses_of_bits(
                &format!("fcmp.{how}.{ty}"),
                &[ty, ty],
                &made,
                ty,
            ));
        }
    }
    all.extend(switches());
    all
}

fn switches() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in [8, 16, 32, 64, 128] {
        let ty = Ty::Int(bits);
        let dense: Vec<i128> = (-2..12).collect();
        let mut sparse: Vec<i128> = edges(bits).into_iter().map(|it| signed(it, bits)).collect();
        sparse.sort_unstable();
        for (what, values) in [("dense", dense), ("sparse", sparse)] {
            let arms: String = values
                .iter()
                .enumerate()
                .map(|(at, value)| format!(" {ty} {value}, label %arm{}", at % 5))
                .collect();
            let mut body =
                format!("  switch {ty} %a, label %other [{arms} ]\nother:\n  br label %end\n");
            let mut phi = String::from("  %r = phi i32 [ 99, %other ]");
            for arm in 0..5 {
                body += &format!("arm{arm}:\n  br label %end\n");
                phi += &format!(", [ {arm}, %arm{arm} ]");
            }
            body += &format!("end:\n{phi}\n");
            all.push(case(
                format!("switch.{ty}.{what}"),
                &[ty],
                false,
                &body,
                Ty::Int(32),
            ));
        }
    }
    all
}

/// From one type to another.
pub fn conversions() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |op: &str, from: Ty, to: Ty, is_for: IsFor| {
        let is_for = Rc::new(is_for);
        for volatile in [false, true] {
            let name = format!("{op}.{from}.{to}.{volatile}");
            let body = format!("  %r = {op} {from} %a to {to}\n");
            let is_for = Rc::clone(&is_for);
            let case = case(name, &[from], volatile, &body, to);
            all.push(case.only(move |operands| is_for(operands)));
        }
    };
    for from in WIDTHS {
        for to in WIDTHS {
            let (a, b) = (Ty::Int(from), Ty::Int(to));
            if from > to {
                add("trunc", a, b, any());
            } else if from < to {
                add("zext", a, b, any());
                add("sext", a, b, any());
            }
        }
        for ty in [Ty::F32, Ty::F64, Ty::F80] {
            add("sitofp", Ty::Int(from), ty, any());
            add("uitofp", Ty::Int(from), ty, any());
            let most = 2f64.powi(from as i32);
            let fits = move |operands: &[[u8; APART]]| {
                let value = float(&operands[0], ty).trunc();
                value > -1.0 && value < most
            };
            add("fptoui", ty, Ty::Int(from), Box::new(fits));
            let fits = move |operands: &[[u8; APART]]| {
                let value = float(&operands[0], ty).trunc();
                value >= -most / 2.0 && value < most / 2.0
            };
            add("fptosi", ty, Ty::Int(from), Box::new(fits));
        }
    }
    for (op, from, to) in [
        ("fpext", Ty::F32, Ty::F64),
        ("fpext", Ty::F32, Ty::F80),
        ("fpext", Ty::F64, Ty::F80),
        ("fptrunc", Ty::F64, Ty::F32),
        ("fptrunc", Ty::F80, Ty::F32),
        ("fptrunc", Ty::F80, Ty::F64),
        ("bitcast", Ty::F32, Ty::Int(32)),
        ("bitcast", Ty::Int(32), Ty::F32),
        ("bitcast", Ty::F64, Ty::Int(64)),
        ("bitcast", Ty::Int(64), Ty::F64),
        ("ptrtoint", Ty::Ptr, Ty::Int(64)),
        ("ptrtoint", Ty::Ptr, Ty::Int(32)),
        ("ptrtoint", Ty::Ptr, Ty::Int(128)),
        ("inttoptr", Ty::Int(64), Ty::Ptr),
        ("inttoptr", Ty::Int(16), Ty::Ptr),
        ("inttoptr", Ty::Int(128), Ty::Ptr),
    ] {
        add(op, from, to, any());
    }
    all
}
