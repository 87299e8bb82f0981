//! Writes memory accesses, calls and ends of blocks as LLVM IR.

use std::fmt::Write;

use uruk_baseline::ir::{
    Argument, Block, Call, Callee, Instruction, MemoryOp, Op, Operand, Ordering, Passing, RmwOp,
    Type, Value,
};

use super::{Body, passed, result, ty};

impl Body<'_> {
    pub(super) fn memory(&mut self, to: &str, second: &str, op: &Op) -> Option<()> {
        match op {
            Op::Load {
                ty: its,
                address,
                align,
                ordering,
                volatile,
            } => {
                let at = self.pointer(*address)?;
                let (atomic, rest) = match ordering {
                    Ordering::Plain => ("", ""),
                    Ordering::Weak => ("atomic ", " acquire"),
                    Ordering::Strong => ("atomic ", " seq_cst"),
                };
                let v = if *volatile { "volatile " } else { "" };
                let t = ty(*its)?;
                self.line(format!(
                    "{to} = load {atomic}{v}{t}, ptr {at}{rest}, align {align}"
                ));
            }
            Op::Store {
                ty: its,
                address,
                value,
                align,
                ordering,
                volatile,
            } => {
                let (at, value) = (self.pointer(*address)?, self.typed(*value, *its)?);
                let (atomic, rest) = match ordering {
                    Ordering::Plain => ("", ""),
                    Ordering::Weak => ("atomic ", " release"),
                    Ordering::Strong => ("atomic ", " seq_cst"),
                };
                let v = if *volatile { "volatile " } else { "" };
                self.line(format!(
                    "store {atomic}{v}{value}, ptr {at}{rest}, align {align}"
                ));
            }
            Op::Offset { base, terms, bytes } => {
                let mut at = self.pointer(*base)?;
                for term in terms {
                    let (index, next) = (
                        self.typed(term.operand, Type::Int(term.bits))?,
                        self.fresh(),
                    );
                    let scale = term.scale;
                    self.line(format!(
                        "{next} = getelementptr [{scale} x i8], ptr {at}, {index}"
                    ));
                    at = next;
                }
                let next = self.fresh();
                self.line(format!("{next} = getelementptr i8, ptr {at}, i64 {bytes}"));
                self.line(format!("{to} = ptrtoint ptr {next} to i64"));
            }
            Op::Alloca { size, align } => {
                let at = self.fresh();
                self.line(format!("{at} = alloca [{size} x i8], align {align}"));
                self.line(format!("{to} = ptrtoint ptr {at} to i64"));
            }
            Op::DynamicAlloca { count, size, align } => {
                let (at, count) = (self.fresh(), self.typed(*count, Type::PTR)?);
                self.line(format!(
                    "{at} = alloca [{size} x i8], {count}, align {align}"
                ));
                self.line(format!("{to} = ptrtoint ptr {at} to i64"));
            }
            Op::Memory(op, [into, from, length], volatile) => {
                let (name, what) = match op {
                    MemoryOp::Copy => ("memcpy.p0.p0.i64", "ptr"),
                    MemoryOp::Move => ("memmove.p0.p0.i64", "ptr"),
                    MemoryOp::Set => ("memset.p0.i64", "i8"),
                };
                self.declare(format!("void @llvm.{name}(ptr, {what}, i64, i1)"));
                let into = self.pointer(*into)?;
                let from = match op {
                    MemoryOp::Set => self.typed(*from, Type::Int(8))?,
                    _ => format!("ptr {}", self.pointer(*from)?),
                };
                let length = self.typed(*length, Type::PTR)?;
                self.line(format!(
                    "call void @llvm.{name}(ptr {into}, {from}, {length}, i1 {volatile})"
                ));
            }
            Op::Rmw {
                op,
                ty: its,
                address,
                value,
            } => {
                let (at, value) = (self.pointer(*address)?, self.typed(*value, *its)?);
                let word = match op {
                    RmwOp::Exchange => "xchg",
                    RmwOp::Add => "add",
                    RmwOp::Sub => "sub",
                    RmwOp::And => "and",
                    RmwOp::Nand => "nand",
                    RmwOp::Or => "or",
                    RmwOp::Xor => "xor",
                    RmwOp::Max => "max",
                    RmwOp::Min => "min",
                    RmwOp::UMax => "umax",
                    RmwOp::UMin => "umin",
                    RmwOp::FAdd => "fadd",
                    RmwOp::FSub => "fsub",
                };
                self.line(format!("{to} = atomicrmw {word} ptr {at}, {value} seq_cst"));
            }
            Op::CompareExchange {
                ty: its,
                address,
                expected,
                value,
            } => {
                let at = self.pointer(*address)?;
                let (a, b) = (self.typed(*expected, *its)?, self.typed(*value, *its)?);
                let (both, t) = (self.fresh(), ty(*its)?);
                self.line(format!(
                    "{both} = cmpxchg ptr {at}, {a}, {b} seq_cst seq_cst"
                ));
                self.line(format!("{to} = extractvalue {{ {t}, i1 }} {both}, 0"));
                self.line(format!("{second} = extractvalue {{ {t}, i1 }} {both}, 1"));
            }
            Op::Fence(ordering) => {
                let word = if *ordering == Ordering::Strong {
                    "seq_cst"
                } else {
                    "acq_rel"
                };
                self.line(format!("fence {word}"));
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn call(&mut self, instruction: &Instruction, call: &Call) -> Option<()> {
        let to = match call.callee {
            Callee::Symbol(symbol) => self.pointer(Operand::Address(symbol, 0))?,
            Callee::Operand(operand) => self.pointer(operand)?,
        };
        let mut arguments = Vec::new();
        for Argument {
            operand,
            ty: its,
            passing,
        } in &call.arguments
        {
            // LLVM assumes the alignment for the original too, which has none here.
            if matches!(passing, Passing::Memory { align, .. } if *align > 8) {
                return None;
            }
            let (text, is_pointer) = passed(*its, *passing)?;
            let operand = match is_pointer {
                true => self.pointer(*operand)?,
                false => self.operand(*operand, *its)?,
            };
            arguments.push(format!("{text} {operand}"));
        }
        let result = result(&call.returns)?;
        let shape = if call.is_variadic { " (...)" } else { "" };
        let text = format!("call {result}{shape} {to}({})", arguments.join(", "));
        let first = instruction.results.start;
        match instruction.results.len() {
            0 => self.line(text),
            1 => self.line(format!("%v{first} = {text}")),
            count => {
                let all = self.fresh();
                self.line(format!("{all} = {text}"));
                for nth in 0..count as u32 {
                    let value = Value(first + nth).0;
                    self.line(format!("%v{value} = extractvalue {result} {all}, {nth}"));
                }
            }
        }
        Some(())
    }

    pub(super) fn terminator(&mut self, block: Block, op: &Op) -> Option<()> {
        let to = &self.function.blocks[block.index()].successors;
        match op {
            Op::Jump => self.line(format!("br label %b{}", to[0].0)),
            Op::Branch(bit) => {
                let bit = self.operand(*bit, Type::Int(1))?;
                self.line(format!(
                    "br i1 {bit}, label %b{}, label %b{}",
                    to[0].0, to[1].0
                ));
            }
            Op::Switch(its, on, values) => {
                let mut text = format!("switch {}, label %b{} [", self.typed(*on, *its)?, to[0].0);
                for (value, block) in values.iter().zip(&to[1..]) {
                    let value = self.typed(Operand::Int(*value), *its)?;
                    let _ = write!(text, " {value}, label %b{}", block.0);
                }
                self.line(text + " ]");
            }
            Op::Dispatch(on, values) => {
                let word = Type::Int(64);
                let mut text = format!("switch {}, label %b{} [", self.typed(*on, word)?, to[0].0);
                for (value, block) in values.iter().zip(to) {
                    let _ = write!(text, " i64 {value}, label %b{}", block.0);
                }
                self.line(text + " ]");
            }
            Op::Return(list) => {
                let returns = &self.function.returns;
                match &list[..] {
                    [] => self.line("ret void"),
                    [one] => {
                        let one = self.typed(*one, returns[0].ty)?;
                        self.line(format!("ret {one}"));
                    }
                    many => {
                        let whole = result(returns)?;
                        let mut all = "undef".to_string();
                        for (nth, (one, its)) in many.iter().zip(returns).enumerate() {
                            let (one, next) = (self.typed(*one, its.ty)?, self.fresh());
                            self.line(format!("{next} = insertvalue {whole} {all}, {one}, {nth}"));
                            all = next;
                        }
                        self.line(format!("ret {whole} {all}"));
                    }
                }
            }
            Op::Unreachable => self.line("unreachable"),
            _ => return None,
        }
        Some(())
    }
}
