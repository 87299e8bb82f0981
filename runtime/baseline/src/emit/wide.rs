//! Integers of 128 bits, as halves.

use crate::asm::{Alu, Condition, Gpr, Shift, Unary, Width};
use crate::ir::{IntPredicate, Operand, Operands, Type, WideOp};

use super::Emitter;

const W: Width = Width::W64;

impl Emitter<'_> {
    /// Emits an operation with a 128-bit result.
    pub(super) fn wide(&mut self, op: WideOp, operands: &Operands, result: u32) {
        match (op, operands.as_slice()) {
            (WideOp::Add, &[a, b, c, d]) => self.wide_sum(Alu::Add, Alu::Adc, [a, b, c, d]),
            (WideOp::Sub, &[a, b, c, d]) => self.wide_sum(Alu::Sub, Alu::Sbb, [a, b, c, d]),
            (WideOp::Mul, &[a, b, c, d]) => self.wide_product([a, b, c, d]),
            (WideOp::Shl, &[low, high, by]) => self.wide_shift(op, [low, high], by),
            (WideOp::LShr | WideOp::AShr, &[low, high, by]) => {
                self.wide_shift(op, [low, high], by);
            }
            (op, operands) => {
                let name = match op {
                    WideOp::SDiv => "__divti3",
                    WideOp::UDiv => "__udivti3",
                    WideOp::SRem => "__modti3",
                    _ => "__umodti3",
                };
                let arguments: Vec<_> = operands.iter().map(|&half| (half, Type::PTR)).collect();
                self.call_library(name, &arguments);
            }
        }
        self.put(result, Gpr::RAX);
        self.put(result + 1, Gpr::RDX);
    }

    /// A sum or difference, in `rdx:rax`.
    fn wide_sum(&mut self, low: Alu, high: Alu, operands: [Operand; 4]) {
        let [a_low, a_high, b_low, b_high] = operands;
        self.load_into(a_low, Type::PTR, Gpr::RAX);
        self.load_into(b_low, Type::PTR, Gpr::RCX);
        self.asm.alu(low, W, Gpr::RAX, Gpr::RCX);
        // Loads keep the carry.
        self.load_into(b_high, Type::PTR, Gpr::RCX);
        self.load_into(a_high, Type::PTR, Gpr::RDX);
        self.asm.alu(high, W, Gpr::RDX, Gpr::RCX);
    }

    /// A product, in `rdx:rax`: the product of the low halves; the low halves of the two cross
    /// products are added to its upper half.
    fn wide_product(&mut self, operands: [Operand; 4]) {
        let [a_low, a_high, b_low, b_high] = operands;
        let zero = Operand::Int(0);
        let mut has_more = false;
        if a_high != zero {
            self.load_into(b_low, Type::PTR, Gpr::RAX);
            self.load_into(a_high, Type::PTR, Gpr::RCX);
            self.asm.imul(W, Gpr::RCX, Gpr::RAX);
            has_more = true;
        }
        self.load_into(a_low, Type::PTR, Gpr::RAX);
        if b_high != zero {
            self.load_into(b_high, Type::PTR, Gpr::RDX);
            self.asm.imul(W, Gpr::RDX, Gpr::RAX);
            if has_more {
                self.asm.alu(Alu::Add, W, Gpr::RCX, Gpr::RDX);
            } else {
                self.asm.mov(W, Gpr::RCX, Gpr::RDX);
                has_more = true;
            }
        }
        self.load_into(b_low, Type::PTR, Gpr::RDX);
        self.asm.unary(Unary::Mul, W, Gpr::RDX);
        if has_more {
            self.asm.alu(Alu::Add, W, Gpr::RDX, Gpr::RCX);
        }
    }

    /// A shift, in `rdx:rax`.
    fn wide_shift(&mut self, op: WideOp, [low, high]: [Operand; 2], by: Operand) {
        self.load_into(low, Type::PTR, Gpr::RAX);
        if !matches!(by, Operand::Int(_)) {
            self.load_into(by, Type::PTR, Gpr::RCX);
        }
        self.load_into(high, Type::PTR, Gpr::RDX);
        let left = op == WideOp::Shl;
        // Bits are shifted from `from` to `to`; `from` is filled with zeros or the sign.
        let (from, to) = if left {
            (Gpr::RAX, Gpr::RDX)
        } else {
            (Gpr::RDX, Gpr::RAX)
        };
        let shift = match op {
            WideOp::Shl => Shift::Shl,
            WideOp::LShr => Shift::Shr,
            _ => Shift::Sar,
        };
        if let Operand::Int(by) = by {
            let by = (by & 127) as u8;
            if by >= 64 {
                self.wide_by_word(op, from, to);
                if by > 64 {
                    self.asm.shift_imm(shift, W, to, by - 64);
                }
            } else if by != 0 {
                self.asm.double_shift_imm(left, W, to, from, by);
                self.asm.shift_imm(shift, W, from, by);
            }
            return;
        }
        let end = self.asm.new_label();
        self.asm.double_shift_cl(left, W, to, from);
        self.asm.shift_cl(shift, W, from);
        self.asm.test_imm(Width::W8, Gpr::RCX, 64);
        self.asm.jump_if(Condition::Equal, end);
        self.wide_by_word(op, from, to);
        self.asm.bind(end);
    }

    /// A shift by 64.
    fn wide_by_word(&mut self, op: WideOp, from: Gpr, to: Gpr) {
        self.asm.mov(W, to, from);
        if op == WideOp::AShr {
            self.asm.shift_imm(Shift::Sar, W, from, 63);
        } else {
            self.asm.zero(from);
        }
    }

    /// A comparison: the operands are the halves of both, low before high.
    pub(super) fn wide_compare(
        &mut self,
        predicate: IntPredicate,
        operands: [Operand; 4],
        result: u32,
    ) {
        use IntPredicate as P;
        let [a_low, a_high, b_low, b_high] = operands;
        let condition = match predicate {
            P::Eq | P::Ne => {
                self.load_into(a_low, Type::PTR, Gpr::RAX);
                self.load_into(b_low, Type::PTR, Gpr::RCX);
                self.asm.alu(Alu::Xor, W, Gpr::RAX, Gpr::RCX);
                self.load_into(b_high, Type::PTR, Gpr::RCX);
                self.load_into(a_high, Type::PTR, Gpr::RDX);
                self.asm.alu(Alu::Xor, W, Gpr::RDX, Gpr::RCX);
                self.asm.alu(Alu::Or, W, Gpr::RAX, Gpr::RDX);
                match predicate {
                    P::Eq => Condition::Equal,
                    _ => Condition::NotEqual,
                }
            }
            // The borrow of the low halves' difference goes into that of the high ones. `b - a`
            // gives the greater-than conditions.
            P::UGt | P::ULe | P::SGt | P::SLe => {
                self.wide_difference([b_low, b_high, a_low, a_high]);
                match predicate {
                    P::UGt => Condition::Below,
                    P::ULe => Condition::AboveEqual,
                    P::SGt => Condition::Less,
                    _ => Condition::GreaterEqual,
                }
            }
            _ => {
                self.wide_difference([a_low, a_high, b_low, b_high]);
                match predicate {
                    P::ULt => Condition::Below,
                    P::UGe => Condition::AboveEqual,
                    P::SLt => Condition::Less,
                    _ => Condition::GreaterEqual,
                }
            }
        };
        self.asm.setcc(condition, Gpr::RAX);
        self.put(result, Gpr::RAX);
    }

    /// Flags of a difference.
    fn wide_difference(&mut self, [a_low, a_high, b_low, b_high]: [Operand; 4]) {
        self.load_into(a_low, Type::PTR, Gpr::RAX);
        self.load_into(b_low, Type::PTR, Gpr::RCX);
        self.asm.alu(Alu::Cmp, W, Gpr::RAX, Gpr::RCX);
        self.load_into(b_high, Type::PTR, Gpr::RCX);
        self.load_into(a_high, Type::PTR, Gpr::RDX);
        self.asm.alu(Alu::Sbb, W, Gpr::RDX, Gpr::RCX);
    }
}
