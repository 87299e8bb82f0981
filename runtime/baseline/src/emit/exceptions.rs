//! Calls that may throw, and their landing pads.
//!
//! The unwinder enters a landing pad with the exception in `rax` and the selector in `rdx`
//! (`__builtin_eh_return_data_regno`), and with callee-saved registers and the stack pointer as at
//! the call. A landing pad whose phis need moves is entered through a stub behind the function,
//! which keeps those two registers.

use std::ops::Range;

use crate::asm::{Gpr, Label};
use crate::handlers::Action;
use crate::ir::{Block, Call, Op, Operand, Symbol, Type};

use super::Emitter;

/// An edge to a landing pad that needs moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pad {
    from: Block,
    to: Block,
    label: Label,
}

impl Emitter<'_> {
    /// Emits a call that continues at one of two blocks.
    pub(super) fn invoke(&mut self, block: Block, call: &Call, results: Range<u32>) {
        let successors = &self.function.blocks[block.index()].successors;
        let (normal, unwind) = (successors[0], successors[1]);
        let (from, to) = self.call_arguments(call);
        let pad = if self.edge(block, unwind) {
            let label = self.asm.new_label();
            self.pads.push(Pad {
                from: block,
                to: unwind,
                label,
            });
            label
        } else {
            self.label(unwind)
        };
        let action = self.action_of(unwind);
        self.exceptions.site(from, to, pad, action);
        self.call_results(&call.returns, &results);
        self.go(block, normal);
    }

    /// The action of a landing pad: its cleanup and clauses.
    fn action_of(&mut self, pad: Block) -> Action {
        let function = self.function;
        for (_, instruction) in function.of_block(pad) {
            if let Op::LandingPad { cleanup, clauses } = &instruction.op {
                return self.exceptions.action(*cleanup, clauses);
            }
        }
        Action::default()
    }

    /// Moves the exception and selector to their places, at the start of a landing pad.
    pub(super) fn landing_pad(&mut self, result: u32) {
        self.put(result, Gpr::RAX);
        self.put(result + 1, Gpr::RDX);
    }

    /// Writes the stubs of landing pads, behind the function.
    pub(super) fn enter_pads(&mut self) {
        for pad in std::mem::take(&mut self.pads) {
            self.asm.bind(pad.label);
            if self.edge(pad.from, pad.to) {
                self.do_moves(Gpr::RCX);
            }
            let to = self.label(pad.to);
            self.asm.jump(to);
        }
    }

    /// Resumes unwinding.
    pub(super) fn resume(&mut self, [exception, _]: [Operand; 2]) {
        self.call_library("_Unwind_Resume", &[(exception, Type::PTR)]);
        self.asm.ud2();
    }

    /// The number of a type in selectors.
    pub(super) fn type_id(&mut self, ty: Symbol, result: u32) {
        let id = self.exceptions.type_id(Some(ty));
        let target = self.target(result, Gpr::RAX);
        self.asm.mov_imm(target, u64::from(id));
        self.put(result, target);
    }
}
