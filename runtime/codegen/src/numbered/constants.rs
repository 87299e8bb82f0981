//! Constants of a module as far as its summary needs them.

use std::collections::BTreeSet;

use uruk_bitcode::ir::{Constant, Module, TypeId, ValueId};

/// Casts and offsets in each other.
const DEPTH: u32 = 64;

#[derive(Clone, Copy)]
pub(super) struct Constants<'m> {
    pub(super) module: &'m Module,
}

/// What a value of a module is.
pub(super) enum Found<'m> {
    Global(u32),
    Constant(&'m Constant),
}

/// Whose labels a constant holds, by its place among all.
pub(super) struct Labels {
    first: u32,
    functions: Vec<BTreeSet<u32>>,
}

impl Labels {
    /// The functions whose labels a value holds, in the order of their numbers.
    pub(super) fn of(&self, value: ValueId) -> &BTreeSet<u32> {
        static NONE: BTreeSet<u32> = BTreeSet::new();
        let at = value.0.checked_sub(self.first);
        at.and_then(|at| self.functions.get(at as usize))
            .unwrap_or(&NONE)
    }
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

    /// Which constants hold labels; `None` if one is not known here, which may hold some. A
    /// constant may be made of later ones, so it is looked until nothing is new.
    pub(super) fn with_labels(self) -> Option<Labels> {
        let all = &self.module.constants;
        let first = self.module.globals.len() as u32;
        let mut functions = Vec::new();
        if all.iter().any(|(_, it)| matches!(it, Constant::Other)) {
            return None;
        }
        if !all.iter().any(|(_, it)| matches!(it, Constant::Label(..))) {
            return Some(Labels { first, functions });
        }
        functions.resize(all.len(), BTreeSet::new());
        for _ in 0..DEPTH {
            let mut changed = false;
            for (at, (_, constant)) in all.iter().enumerate() {
                let mut found = BTreeSet::new();
                let mut take = |value: &ValueId| {
                    let part = value.0.checked_sub(first);
                    found.extend(
                        part.and_then(|it| functions.get(it as usize))
                            .into_iter()
                            .flatten(),
                    );
                };
                match constant {
                    Constant::Label(function, _) => {
                        found.insert(function.0);
                    }
                    Constant::Aggregate(parts) | Constant::Offset(_, parts) => {
                        parts.iter().for_each(take);
                    }
                    Constant::Cast(_, of) => take(of),
                    Constant::Binary(_, a, b) => [a, b].into_iter().for_each(take),
                    _ => {}
                }
                if found.len() > functions[at].len() {
                    functions[at] = found;
                    changed = true;
                }
            }
            if !changed {
                return Some(Labels { first, functions });
            }
        }
        None
    }
}
