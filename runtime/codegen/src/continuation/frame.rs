//! Values that live across the heads of a body's loops, as LLVM's values. [`uruk_leaving`] finds
//! them.

use inkwell::llvm_sys::core::{LLVMGetAllocatedType, LLVMTypeOf};
use rustc_hash::FxHashMap;
use uruk_leaving::{Anatomy, Graph, Reason, is_alone};
pub(crate) use uruk_leaving::{Crossing, Kind};

use super::anatomy::DescribedBody;
use crate::handles::{TypeRef, ValueRef};

/// A value or `alloca` that may live across heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable<'m> {
    /// The argument, instruction or `alloca`.
    pub(crate) value: ValueRef<'m>,
    pub(crate) kind: Kind,
    /// The type of the value, or of the contents of the `alloca`.
    pub(crate) ty: TypeRef<'m>,
}

/// The variables of a body, and where each lives.
pub(crate) struct Frame<'m> {
    pub(crate) variables: Vec<Variable<'m>>,
    found: uruk_leaving::Frame,
    anatomy: Anatomy,
    numbers: FxHashMap<ValueRef<'m>, u32>,
}

impl<'m> Frame<'m> {
    /// Finds the variables of a described body, whose loops are in `graph`.
    ///
    /// # Errors
    /// Why no head of it can be left.
    pub(crate) fn of(told: DescribedBody<'m>, graph: &Graph) -> Result<Frame<'m>, Reason> {
        let found = uruk_leaving::Frame::of(&told.anatomy, graph)?;
        Ok(Frame::with(found, told))
    }

    /// Maps the variables found in the described body to LLVM's values.
    pub(crate) fn with(found: uruk_leaving::Frame, told: DescribedBody<'m>) -> Frame<'m> {
        let variables = found.variables.iter().map(|it| {
            let value = told.values[it.value as usize];
            // SAFETY: a live value, and an alloca where it is one.
            let ty = unsafe {
                TypeRef::of(match it.kind {
                    Kind::Value | Kind::Stored => LLVMTypeOf(value.raw()),
                    _ => LLVMGetAllocatedType(value.raw()),
                })
            };
            Variable {
                value,
                kind: it.kind,
                ty,
            }
        });
        Frame {
            variables: variables.collect(),
            found,
            anatomy: told.anatomy,
            numbers: told.numbers,
        }
    }

    /// The values that cross at the head `block`.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn crossing(&self, block: u32) -> Result<Crossing, Reason> {
        self.found.crossing(block)
    }

    fn number(&self, value: ValueRef<'m>) -> Option<u32> {
        self.numbers.get(&value).copied()
    }

    pub(crate) fn place(&self, value: ValueRef<'m>) -> Option<u32> {
        self.number(value).and_then(|it| self.found.place(it))
    }

    /// True if a pointer is derived from an `alloca` and constants only.
    pub(crate) fn is_derived(&self, value: ValueRef<'m>) -> bool {
        self.number(value)
            .is_some_and(|it| self.found.is_derived(it))
    }

    /// True for a variable that holds a pointer nothing else leads to.
    pub(crate) fn is_alone(&self, variable: u32) -> bool {
        is_alone(&self.anatomy, &self.found.variables[variable as usize])
    }

    /// True for an `alloca` that holds saved stack pointers.
    pub(crate) fn is_stack(&self, value: ValueRef<'m>) -> bool {
        self.number(value).is_some_and(|it| self.found.is_stack(it))
    }

    /// True for a variable that gets its value where it is defined, and is no `alloca` of the
    /// frame.
    pub(crate) fn is_value(&self, variable: u32) -> bool {
        self.found.is_value(variable)
    }
}
