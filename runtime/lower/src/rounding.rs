//! Rounding of floating-point operations: `llvm.get.rounding`, and assembly that reads and writes
//! the x87's control word, as in C libraries and conversions of decimal numbers.

use uruk_baseline::ir::{Cast, IntOp, Op, Operand, Type};
use uruk_bitcode::ir::{Assembly, Instruction};

use crate::reading::{Covered, Reading, not};

/// Rounding in the control word: to nearest, down, up, to zero. `FLT_ROUNDS` counts them as 1, 3, 2
/// and 0, which are here two bits each.
const ROUNDING: u64 = 0b00_10_11_01;

/// One instruction of assembly, with its only operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// `fnstcw`.
    Store,
    /// `fldcw`.
    Load,
}

impl Control {
    /// The instruction of an assembly, if it is one of these.
    pub(crate) fn of(assembly: &Assembly) -> Option<Control> {
        let mut operands = assembly.constraints.split(',');
        let mut clobbers = operands.clone().skip(1);
        if assembly.is_special || !clobbers.all(|it| it.starts_with("~{")) {
            return None;
        }
        match (assembly.text.trim(), operands.next()) {
            ("fnstcw $0", Some("=*m")) => Some(Control::Store),
            ("fldcw $0", Some("*m")) => Some(Control::Load),
            _ => None,
        }
    }
}

impl Reading<'_> {
    /// A call of such assembly.
    pub(crate) fn control(&mut self, it: &Instruction, kind: Control) -> Covered<()> {
        let (None, &[_, address]) = (it.result, self.body.operands_of(it)) else {
            return not("assembly");
        };
        let address = self.address(address)?;
        self.end(match kind {
            Control::Store => Op::StoreControl(address),
            Control::Load => Op::LoadControl(address),
        })
    }

    /// `llvm.get.rounding`, which queries the x87 as LLVM does.
    pub(crate) fn rounding(&mut self, it: &Instruction) -> Covered<()> {
        let (half, int) = (Type::Int(16), Type::Int(32));
        let word = self.emit_one(Op::ControlWord);
        let word = self.emit_one(Op::Cast(Cast::ZExt, half, int, word));
        let mut step = |op, a, b| self.emit_one(Op::Int(op, int, [a, b]));
        // Two bits from bit 10, times two.
        let place = step(IntOp::LShr, word, Operand::Int(9));
        let place = step(IntOp::And, place, Operand::Int(6));
        let kind = step(IntOp::LShr, Operand::Int(ROUNDING), place);
        let kind = step(IntOp::And, kind, Operand::Int(3));
        self.stand(it, [kind])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_instructions_are_known() {
        let of = |text: &str, constraints: &str| {
            Control::of(&Assembly {
                text: text.into(),
                constraints: constraints.into(),
                is_special: false,
            })
        };
        let clobbers = ",~{dirflag},~{fpsr},~{flags}";
        let (out, into) = (format!("=*m{clobbers}"), format!("*m{clobbers}"));
        assert_eq!(of("fnstcw $0", &out), Some(Control::Store));
        assert_eq!(of("fldcw $0", &into), Some(Control::Load));
        assert_eq!(of("fldcw $0", "*m"), Some(Control::Load));
        assert_eq!(of("fldcw $0", &out), None);
        assert_eq!(of("fnstcw $0", "=*m,*m"), None);
        assert_eq!(of("fnstcw $0; nop", &out), None);
    }
}
