//! Writes a function as LLVM IR, so that LLVM's result can be compared too.
//!
//! Names become addresses, which are known when the text is made, so the module needs no linking.

mod outside;

use std::collections::BTreeSet;
use std::fmt::Write;

use uruk_baseline::ir::{
    BitOp, Block, Cast, Extension, FloatOp, FloatPredicate, FloatUnary, Function, Instruction,
    IntOp, IntPredicate, Op, Operand, OverflowOp, Passing, Returned, Type, WideOp,
};

use crate::world::Layout;

/// The parts of a module: definitions, and names of intrinsics.
#[derive(Debug, Default)]
pub struct Text {
    pub out: String,
    pub declared: BTreeSet<String>,
}

impl Text {
    /// The module.
    pub fn finish(&self) -> String {
        let mut all = "target triple = \"x86_64-unknown-linux-gnu\"\n".to_string();
        for line in &self.declared {
            let _ = writeln!(all, "declare {line}");
        }
        all + &self.out
    }

    /// Adds a function; `None` if a part of it has no equivalent in LLVM IR.
    pub fn add(&mut self, name: &str, function: &Function, layout: &Layout) -> Option<()> {
        let mut body = Body {
            function,
            layout,
            out: String::new(),
            declared: BTreeSet::new(),
            next: 0,
        };
        body.define(name)?;
        self.out += &body.out;
        self.declared.append(&mut body.declared);
        Some(())
    }
}

struct Body<'a> {
    function: &'a Function,
    layout: &'a Layout,
    out: String,
    declared: BTreeSet<String>,
    /// The number of the next temporary name.
    next: u32,
}

fn ty(ty: Type) -> Option<String> {
    Some(match ty {
        Type::Int(bits) => format!("i{bits}"),
        Type::F32 => "float".to_string(),
        Type::F64 => "double".to_string(),
        _ => return None,
    })
}

/// The type's name in names of intrinsics.
fn mangled(ty: Type) -> String {
    match ty {
        Type::F32 => "f32".to_string(),
        Type::F64 => "f64".to_string(),
        other => other.to_string(),
    }
}

/// The type of a result, and the attribute before it.
fn result(returns: &[Returned]) -> Option<String> {
    match returns {
        [] => Some("void".to_string()),
        [one] => {
            let before = match one.extension {
                Some(Extension::Sign) => "signext ",
                Some(Extension::Zero) => "zeroext ",
                None => "",
            };
            Some(format!("{before}{}", ty(one.ty)?))
        }
        many => {
            // Members of structures have no attributes.
            let types: Option<Vec<String>> = many
                .iter()
                .map(|one| ty(one.ty).filter(|_| one.extension.is_none()))
                .collect();
            Some(format!("{{ {} }}", types?.join(", ")))
        }
    }
}

/// Type and attributes of an argument; whether it is a pointer.
fn passed(its: Type, passing: Passing) -> Option<(String, bool)> {
    Some(match passing {
        Passing::Plain => (ty(its)?, false),
        Passing::SignExtended => (format!("{} signext", ty(its)?), false),
        Passing::ZeroExtended => (format!("{} zeroext", ty(its)?), false),
        Passing::Memory { size, align } => {
            (format!("ptr byval([{size} x i8]) align {align}"), true)
        }
        Passing::Result => ("ptr sret(i64)".to_string(), true),
        Passing::Nest => ("ptr nest".to_string(), true),
        Passing::Paired => return None,
    })
}

impl Body<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.out, "  {}", text.as_ref());
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("%t{}", self.next)
    }

    fn declare(&mut self, text: String) {
        self.declared.insert(text);
    }

    fn define(&mut self, name: &str) -> Option<()> {
        let function = self.function;
        let counting = &function.counting;
        if function.is_variadic || counting.counters.is_some() || !counting.heads.is_empty() {
            return None;
        }
        let mut parameters = Vec::new();
        let mut pointers = Vec::new();
        for (index, one) in function.parameters.iter().enumerate() {
            let (text, is_pointer) = passed(one.ty, one.passing)?;
            let word = if is_pointer { "p" } else { "v" };
            parameters.push(format!("{text} %{word}{index}"));
            if is_pointer {
                pointers.push(index);
            }
        }
        let result = result(&function.returns)?;
        let _ = writeln!(
            self.out,
            "define {result} @{name}({}) {{",
            parameters.join(", ")
        );
        for index in 0..function.blocks.len() as u32 {
            let _ = writeln!(self.out, "b{index}:");
            if index == 0 {
                for pointer in &pointers {
                    self.line(format!("%v{pointer} = ptrtoint ptr %p{pointer} to i64"));
                }
            }
            for (_, instruction) in function.of_block(Block(index)) {
                self.instruction(Block(index), instruction)?;
            }
        }
        self.out += "}\n";
        Some(())
    }

    fn operand(&self, operand: Operand, its: Type) -> Option<String> {
        Some(match (operand, its) {
            (Operand::Value(value), _) => format!("%v{}", value.0),
            (Operand::Int(bits), Type::Int(width)) => {
                crate::eval::signed(u128::from(bits), width.into()).to_string()
            }
            (Operand::Float(bits), Type::F64) => format!("0x{bits:016X}"),
            (Operand::Float(bits), Type::F32) => {
                let single = f32::from_bits(bits as u32);
                // A NaN as a double has the same upper bits.
                let double = match single.is_nan() {
                    true => (bits >> 31) << 63 | 0x7ff << 52 | (bits & 0x7f_ffff) << 29,
                    false => f64::from(single).to_bits(),
                };
                format!("0x{double:016X}")
            }
            (Operand::Address(symbol, offset), _) => {
                let name = &self.function.symbols[symbol.index()].name;
                let at = self.layout.address_of(name)?.wrapping_add_signed(offset);
                (at as i64).to_string()
            }
            (Operand::Undef, _) => "undef".to_string(),
            _ => return None,
        })
    }

    fn typed(&self, operand: Operand, its: Type) -> Option<String> {
        Some(format!("{} {}", ty(its)?, self.operand(operand, its)?))
    }

    /// An operand as a pointer.
    fn pointer(&mut self, operand: Operand) -> Option<String> {
        let from = self.typed(operand, Type::PTR)?;
        let name = self.fresh();
        self.line(format!("{name} = inttoptr {from} to ptr"));
        Some(name)
    }

    fn instruction(&mut self, block: Block, instruction: &Instruction) -> Option<()> {
        let v = |nth: u32| format!("%v{}", instruction.results.start + nth);
        let to = v(0);
        match &instruction.op {
            Op::Int(op, its, list) => self.int(&to, *op, *its, list)?,
            Op::Overflow(op, its, list) => {
                let name = match op {
                    OverflowOp::SAdd => "sadd",
                    OverflowOp::UAdd => "uadd",
                    OverflowOp::SSub => "ssub",
                    OverflowOp::USub => "usub",
                    OverflowOp::SMul => "smul",
                    OverflowOp::UMul => "umul",
                };
                let t = ty(*its)?;
                self.declare(format!(
                    "{{ {t}, i1 }} @llvm.{name}.with.overflow.{t}({t}, {t})"
                ));
                let (a, b) = (self.typed(list[0], *its)?, self.typed(list[1], *its)?);
                let both = self.fresh();
                self.line(format!(
                    "{both} = call {{ {t}, i1 }} @llvm.{name}.with.overflow.{t}({a}, {b})"
                ));
                self.line(format!("{to} = extractvalue {{ {t}, i1 }} {both}, 0"));
                self.line(format!("{} = extractvalue {{ {t}, i1 }} {both}, 1", v(1)));
            }
            Op::Bits(op, its, one) => {
                let (name, more) = match op {
                    BitOp::Count => ("ctpop", false),
                    BitOp::LeadingZeros => ("ctlz", true),
                    BitOp::TrailingZeros => ("cttz", true),
                    BitOp::SwapBytes => ("bswap", false),
                    BitOp::Reverse => ("bitreverse", false),
                    BitOp::Abs => ("abs", true),
                };
                let one = self.typed(*one, *its)?;
                let list = if more {
                    format!("{one}, i1 false")
                } else {
                    one
                };
                self.intrinsic(&to, name, *its, &list, if more { ", i1" } else { "" }, 1)?;
            }
            Op::Funnel(left, its, list) => {
                let name = if *left { "fshl" } else { "fshr" };
                let list = self.list(list, *its)?;
                self.intrinsic(&to, name, *its, &list, "", 3)?;
            }
            Op::Wide(op, list) => self.wide(&v(0), &v(1), *op, list)?,
            Op::WideCompare(predicate, [a, b, c, d]) => {
                let (a, c) = (self.whole(*a, *b)?, self.whole(*c, *d)?);
                self.line(format!(
                    "{to} = icmp {} i128 {a}, {c}",
                    int_predicate(*predicate)
                ));
            }
            Op::Float(op, its, list) => {
                let list = self.list(list, *its)?;
                let plain = match op {
                    FloatOp::Add => "fadd",
                    FloatOp::Sub => "fsub",
                    FloatOp::Mul => "fmul",
                    FloatOp::Div => "fdiv",
                    FloatOp::Rem => "frem",
                    FloatOp::MinNum => return self.intrinsic(&to, "minnum", *its, &list, "", 2),
                    FloatOp::MaxNum => return self.intrinsic(&to, "maxnum", *its, &list, "", 2),
                    FloatOp::CopySign => {
                        return self.intrinsic(&to, "copysign", *its, &list, "", 2);
                    }
                };
                let t = ty(*its)?;
                self.line(format!(
                    "{to} = {plain} {}",
                    list.replacen(&format!(", {t}"), ",", 1)
                ));
            }
            Op::FloatUnary(op, its, one) => {
                let one = self.typed(*one, *its)?;
                match op {
                    FloatUnary::Neg => self.line(format!("{to} = fneg {one}")),
                    FloatUnary::Abs => self.intrinsic(&to, "fabs", *its, &one, "", 1)?,
                    FloatUnary::Sqrt => self.intrinsic(&to, "sqrt", *its, &one, "", 1)?,
                }
            }
            Op::Fma(its, list) => {
                let list = self.list(list, *its)?;
                self.intrinsic(&to, "fma", *its, &list, "", 3)?;
            }
            Op::Cast(cast, from, its, one) => self.cast(&to, *cast, *from, *its, *one)?,
            Op::Compare(predicate, its, [a, b]) => {
                let (a, b) = (self.typed(*a, *its)?, self.operand(*b, *its)?);
                self.line(format!(
                    "{to} = icmp {} {a}, {b}",
                    int_predicate(*predicate)
                ));
            }
            Op::FloatCompare(predicate, its, [a, b]) => {
                let (a, b) = (self.typed(*a, *its)?, self.operand(*b, *its)?);
                self.line(format!(
                    "{to} = fcmp {} {a}, {b}",
                    float_predicate(*predicate)
                ));
            }
            Op::Select(its, [bit, a, b]) => {
                let bit = self.operand(*bit, Type::Int(1))?;
                let (a, b) = (self.typed(*a, *its)?, self.typed(*b, *its)?);
                self.line(format!("{to} = select i1 {bit}, {a}, {b}"));
            }
            Op::Phi(its, incoming) => {
                let edges: Option<Vec<String>> = incoming
                    .iter()
                    .map(|(from, one)| {
                        Some(format!("[{}, %b{}]", self.operand(*one, *its)?, from.0))
                    })
                    .collect();
                self.line(format!("{to} = phi {} {}", ty(*its)?, edges?.join(", ")));
            }
            Op::Call(call) => self.call(instruction, call)?,
            op if op.is_terminator() => self.terminator(block, op)?,
            op => self.memory(&to, &v(1), op)?,
        }
        Some(())
    }

    fn list(&self, list: &[Operand], its: Type) -> Option<String> {
        let all: Option<Vec<String>> = list.iter().map(|&one| self.typed(one, its)).collect();
        Some(all?.join(", "))
    }

    /// A call of `llvm.NAME.TYPE`, with some operands of the type and then others.
    fn intrinsic(
        &mut self,
        to: &str,
        name: &str,
        its: Type,
        list: &str,
        others: &str,
        count: usize,
    ) -> Option<()> {
        let (t, short) = (ty(its)?, mangled(its));
        let types = vec![t.clone(); count].join(", ");
        self.declare(format!("{t} @llvm.{name}.{short}({types}{others})"));
        self.line(format!("{to} = call {t} @llvm.{name}.{short}({list})"));
        Some(())
    }

    fn int(&mut self, to: &str, op: IntOp, its: Type, list: &[Operand; 2]) -> Option<()> {
        let plain = match op {
            IntOp::Add => "add",
            IntOp::Sub => "sub",
            IntOp::Mul => "mul",
            IntOp::SDiv => "sdiv",
            IntOp::UDiv => "udiv",
            IntOp::SRem => "srem",
            IntOp::URem => "urem",
            IntOp::Shl => "shl",
            IntOp::LShr => "lshr",
            IntOp::AShr => "ashr",
            IntOp::And => "and",
            IntOp::Or => "or",
            IntOp::Xor => "xor",
            other => {
                let name = match other {
                    IntOp::SMin => "smin",
                    IntOp::SMax => "smax",
                    IntOp::UMin => "umin",
                    IntOp::UMax => "umax",
                    IntOp::SAddSat => "sadd.sat",
                    IntOp::SSubSat => "ssub.sat",
                    IntOp::UAddSat => "uadd.sat",
                    _ => "usub.sat",
                };
                let list = self.list(list, its)?;
                return self.intrinsic(to, name, its, &list, "", 2);
            }
        };
        let (a, b) = (self.typed(list[0], its)?, self.operand(list[1], its)?);
        self.line(format!("{to} = {plain} {a}, {b}"));
        Some(())
    }

    /// Both halves as one integer.
    fn whole(&mut self, low: Operand, high: Operand) -> Option<String> {
        let (low, high) = (self.typed(low, Type::PTR)?, self.typed(high, Type::PTR)?);
        let [a, b, c, d] = [self.fresh(), self.fresh(), self.fresh(), self.fresh()];
        self.line(format!("{a} = zext {low} to i128"));
        self.line(format!("{b} = zext {high} to i128"));
        self.line(format!("{c} = shl i128 {b}, 64"));
        self.line(format!("{d} = or i128 {a}, {c}"));
        Some(d)
    }

    fn wide(&mut self, low: &str, high: &str, op: WideOp, list: &[Operand]) -> Option<()> {
        let a = self.whole(list[0], list[1])?;
        let b = match list.get(3) {
            Some(upper) => self.whole(list[2], *upper)?,
            None => {
                let (by, wide) = (self.typed(list[2], Type::PTR)?, self.fresh());
                self.line(format!("{wide} = zext {by} to i128"));
                wide
            }
        };
        let word = match op {
            WideOp::Add => "add",
            WideOp::Sub => "sub",
            WideOp::Mul => "mul",
            WideOp::SDiv => "sdiv",
            WideOp::UDiv => "udiv",
            WideOp::SRem => "srem",
            WideOp::URem => "urem",
            WideOp::Shl => "shl",
            WideOp::LShr => "lshr",
            WideOp::AShr => "ashr",
        };
        let (all, upper) = (self.fresh(), self.fresh());
        self.line(format!("{all} = {word} i128 {a}, {b}"));
        self.line(format!("{low} = trunc i128 {all} to i64"));
        self.line(format!("{upper} = lshr i128 {all}, 64"));
        self.line(format!("{high} = trunc i128 {upper} to i64"));
        Some(())
    }

    fn cast(&mut self, to: &str, cast: Cast, from: Type, its: Type, one: Operand) -> Option<()> {
        let word = match cast {
            Cast::Trunc => "trunc",
            Cast::ZExt => "zext",
            Cast::SExt => "sext",
            Cast::FpTrunc => "fptrunc",
            Cast::FpExt => "fpext",
            Cast::FpToUi => "fptoui",
            Cast::FpToSi => "fptosi",
            Cast::UiToFp => "uitofp",
            Cast::SiToFp => "sitofp",
            Cast::Bits => "bitcast",
            Cast::FpToSiSat | Cast::FpToUiSat => {
                let name = match cast {
                    Cast::FpToSiSat => "fptosi",
                    _ => "fptoui",
                };
                let (t, f) = (ty(its)?, ty(from)?);
                let full = format!("@llvm.{name}.sat.{}.{}", mangled(its), mangled(from));
                self.declare(format!("{t} {full}({f})"));
                let one = self.typed(one, from)?;
                self.line(format!("{to} = call {t} {full}({one})"));
                return Some(());
            }
        };
        let one = self.typed(one, from)?;
        self.line(format!("{to} = {word} {one} to {}", ty(its)?));
        Some(())
    }
}

fn int_predicate(predicate: IntPredicate) -> &'static str {
    match predicate {
        IntPredicate::Eq => "eq",
        IntPredicate::Ne => "ne",
        IntPredicate::UGt => "ugt",
        IntPredicate::UGe => "uge",
        IntPredicate::ULt => "ult",
        IntPredicate::ULe => "ule",
        IntPredicate::SGt => "sgt",
        IntPredicate::SGe => "sge",
        IntPredicate::SLt => "slt",
        IntPredicate::SLe => "sle",
    }
}

fn float_predicate(predicate: FloatPredicate) -> &'static str {
    match predicate {
        FloatPredicate::False => "false",
        FloatPredicate::OEq => "oeq",
        FloatPredicate::OGt => "ogt",
        FloatPredicate::OGe => "oge",
        FloatPredicate::OLt => "olt",
        FloatPredicate::OLe => "ole",
        FloatPredicate::ONe => "one",
        FloatPredicate::Ord => "ord",
        FloatPredicate::Uno => "uno",
        FloatPredicate::UEq => "ueq",
        FloatPredicate::UGt => "ugt",
        FloatPredicate::UGe => "uge",
        FloatPredicate::ULt => "ult",
        FloatPredicate::ULe => "ule",
        FloatPredicate::UNe => "une",
        FloatPredicate::True => "true",
    }
}
