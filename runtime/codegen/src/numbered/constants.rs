//! Constants of a module, as needed by its summary.

use uruk_bitcode::ir::{Constant, Module, TypeId, ValueId};

/// Casts and offsets in each other.
const DEPTH: u32 = 64;

#[derive(Clone, Copy)]
pub(super) struct Constants<'m> {
    pub(super) module: &'m Module,
}

/// A global or a constant, by its value number.
pub(super) enum ConstantOrGlobal<'m> {
    Global(u32),
    Constant(&'m Constant),
}

impl<'m> Constants<'m> {
    pub(super) fn find(self, value: ValueId) -> Option<ConstantOrGlobal<'m>> {
        let globals = self.module.globals.len() as u32;
        match value.0.checked_sub(globals) {
            None => Some(ConstantOrGlobal::Global(value.0)),
            Some(at) => {
                let constant = self.module.constants.get(at as usize);
                constant.map(|(_, constant)| ConstantOrGlobal::Constant(constant))
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
            Some(ConstantOrGlobal::Constant(Constant::Null)) => true,
            Some(ConstantOrGlobal::Constant(Constant::Integer(words) | Constant::Float(words))) => {
                words.iter().all(|&word| word == 0)
            }
            _ => false,
        }
    }

    /// The global an address is based on, through casts and offsets.
    pub(super) fn base(self, mut value: ValueId) -> Option<u32> {
        for _ in 0..DEPTH {
            value = match self.find(value)? {
                ConstantOrGlobal::Global(number) => return Some(number),
                ConstantOrGlobal::Constant(Constant::Cast(_, of)) => *of,
                ConstantOrGlobal::Constant(Constant::Offset(_, operands)) => *operands.first()?,
                ConstantOrGlobal::Constant(Constant::Binary(_, a, _)) => *a,
                ConstantOrGlobal::Constant(_) => return None,
            };
        }
        None
    }
}
