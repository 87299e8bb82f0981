//! Constants of a module, as needed by its summary.

use uruk_bitcode::ir::{Constant, Module, TypeId, ValueId};

/// Casts and offsets in each other.
const DEPTH: u32 = 64;

#[derive(Clone, Copy)]
pub(super) struct Constants<'m> {
    pub(super) module: &'m Module,
}

/// A global or a constant, by its value number.
pub(super) enum Found<'m> {
    Global(u32),
    Constant(&'m Constant),
}

impl<'m> Constants<'m> {
    pub(super) fn find(self, value: ValueId) -> Option<Found<'m>> {
        let globals = self.module.globals.len() as u32;
        match value.0.checked_sub(globals) {
            None => Some(Found::Global(value.0)),
            Some(at) => {
                let constant = self.module.constants.get(at as usize);
                constant.map(|(_, constant)| Found::Constant(constant))
            }
        }
    }

    pub(super) fn type_of(self, value: ValueId) -> Option<TypeId> {
        let globals = self.module.globals.len() as u32;
        match value.0.checked_sub(globals) {
            None => self.module.pointer,
            Some(at) => self.module.constants.get(at as usize).map(|&(ty, _)| ty),
        }
    }

    /// Whether a value is all zeros, and LLVM would write it so.
    pub(super) fn is_zero(self, value: ValueId) -> bool {
        match self.find(value) {
            Some(Found::Constant(Constant::Null)) => true,
            Some(Found::Constant(Constant::Integer(words) | Constant::Float(words))) => {
                words.iter().all(|&word| word == 0)
            }
            _ => false,
        }
    }

    /// The global an address is based on, through casts and offsets.
    pub(super) fn base(self, mut value: ValueId) -> Option<u32> {
        for _ in 0..DEPTH {
            value = match self.find(value)? {
                Found::Global(number) => return Some(number),
                Found::Constant(Constant::Cast(_, of)) => *of,
                Found::Constant(Constant::Offset(_, operands)) => *operands.first()?,
                Found::Constant(Constant::Binary(_, a, _)) => *a,
                Found::Constant(_) => return None,
            };
        }
        None
    }
}
