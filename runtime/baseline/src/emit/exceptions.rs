//! Calls that an exception may come out of, and where it goes then.
//!
//! The unwinder enters a landing pad with the exception in `rax` and the selector in `rdx`
//! (`__builtin_eh_return_data_regno`), with registers that calls keep as they were, and with the
//! stack pointer as it was at the call. A landing pad whose phis need moves is entered through
//! code of its own behind the function, which leaves those two registers alone.

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
    /// A call that goes on at one of two blocks.
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

    /// What a landing pad is entered for.
    fn action_of(&mut self, pad: Block) -> Action {
        let function = self.function;
        for (_, instruction) in function.of_block(pad) {
            if let Op::LandingPad { cleanup, clauses } = &instruction.op {
                return self.exceptions.action(*cleanup, clauses);
            }
        }
        Action::default()
    }

    /// What the unwinder gives, at the beginning of a block.
    pub(super) fn landing_pad(&mut self, result: u32) {
        self.put(result, Gpr::RAX);
        self.put(result + 1, Gpr::RDX);
    }

    /// Behind the function: moves on the way to landing pads.
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

    /// On with the exception.
    pub(super) fn resume(&mut self, [exception, _]: [Operand; 2]) {
        self.call_library("_Unwind_Resume", &[(exception, Type::PTR)]);
        self.asm.ud2();
    }

    /// The number by which selectors name a type.
    pub(super) fn type_id(&mut self, ty: Symbol, result: u32) {
        let id = self.exceptions.type_id(Some(ty));
        let target = self.target(result, Gpr::RAX);
        self.asm.mov_imm(target, u64::from(id));
        self.put(result, target);
    }
}
