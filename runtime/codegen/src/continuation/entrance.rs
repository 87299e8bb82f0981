//! A continuation that a frame of *another* body enters, as its function was replaced while it
//! loops. The frame passes the values that live across the old head. Comparing the two bodies
//! showed which passed value is which value here ([`uruk_leaving::matching`]).
//!
//! Such a continuation may be made at tier 1. Then it has OSR exits at its own loops, for better
//! code, and for the next body that replaces this one. The exits are put into the copy of the body
//! before the continuation is made of it, which copies them like all else. They pass the same
//! values as the exits of the function's own tier 1 version. The entrance is found first, as its
//! numbers are those of a body without exits.
//!
//! A value passed from another body may be of another kind here:
//!
//! | passed as | is here |
//! |---|---|
//! | a value | that value |
//! | contents of a scalar `alloca` | an `alloca` of our own that holds it, for any use of its address here |
//! | the address of an `alloca` to be copied | a copy of our own |
//! | the address of an `alloca` that stays | that address; others may have it, if they may there or here |

use inkwell::llvm_sys::core::{
    LLVMDoubleTypeInContext, LLVMFloatTypeInContext, LLVMFunctionType, LLVMGetReturnType,
    LLVMGlobalGetValueType, LLVMIntTypeInContext, LLVMPointerTypeInContext,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use uruk_leaving::{Form, Kind, Passed, Reason, Simple};

use super::anatomy::{DescribedBody, LlvmBody};
use super::build::{EntryPlace, finish, place_of};
use super::frame::Frame;
use super::making::Given;
use super::offer::Counting;
use super::start::Start;
use crate::attributes::AttributeKinds;
use crate::context::{LlvmContext, OwnedModule};
use crate::handles::{BlockRef, FunctionRef, ValueRef};
use crate::shape::BodyShape;

/// Where a continuation of another body's loop starts, by LLVM's values.
pub(crate) struct Entrance<'m> {
    head: BlockRef<'m>,
    taken: Vec<Taken<'m>>,
}

/// Something that is passed.
struct Taken<'m> {
    kind: Kind,
    simple: Option<Simple>,
    /// The value here; `None` if it is not needed.
    into: Option<ValueRef<'m>>,
}

impl<'m> Entrance<'m> {
    /// Finds it in `body`, a complete copy that was not changed yet.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn find(
        module: &OwnedModule,
        kinds: &AttributeKinds,
        body: FunctionRef<'m>,
        shape: &BodyShape<'m>,
        start: &Start,
        passed: &[Passed],
    ) -> Result<Entrance<'m>, Reason> {
        let told = DescribedBody::of(LlvmBody::copied(module, body), kinds, &shape.flow);
        let EntryPlace { frame, what, .. } = place_of(told, shape, start.block)?;
        if what.fingerprint != start.fingerprint {
            return Err(Reason::Changed);
        }
        let taken = passed.iter().map(|it| {
            let into = match it.into {
                Some(place) => Some(frame.variables.get(place as usize)?.value),
                None => None,
            };
            Some(Taken {
                kind: it.kind,
                simple: it.simple,
                into,
            })
        });
        Ok(Entrance {
            head: shape.flow.blocks[start.block as usize],
            taken: taken.collect::<Option<_>>().ok_or(Reason::Changed)?,
        })
    }

    /// Like [`super::build::replace`], of a body that got OSR exits at the heads of `counting`.
    ///
    /// # Errors
    /// Why there is no continuation; the module is as it was.
    pub(crate) fn replace(
        &self,
        context: &LlvmContext,
        module: &OwnedModule,
        kinds: &AttributeKinds,
        body: FunctionRef<'m>,
        counting: &Counting<'m>,
        own: &str,
    ) -> Result<(), Reason> {
        let shape = crate::shape::measure(body);
        let moved = counting.iter().find(|(head, _)| *head == self.head);
        let head = moved.map_or(self.head, |&(_, counting)| counting);
        let block = shape.flow.blocks.iter().position(|it| *it == head);
        let block = block.ok_or(Reason::Changed)? as u32;
        let told = DescribedBody::of(LlvmBody::copied(module, body), kinds, &shape.flow);
        let place = place_of(told, &shape, block)?;
        let given = self.given(&place.frame)?;
        let covers = |it: &u32| given.iter().any(|given| given.into == Some(*it));
        if !place.what.variables.iter().all(covers) {
            return Err(Reason::Changed);
        }
        // SAFETY: a function of the context.
        let ty = unsafe { self.function_type(context, body) };
        finish(context, module, kinds, body, &shape, place, ty, &given, own)
    }

    /// The source of each parameter's value. A passed value that does not live here is not needed.
    fn given(&self, frame: &Frame<'m>) -> Result<Vec<Given>, Reason> {
        let given = self.taken.iter().map(|it| {
            let into = it.into.and_then(|value| frame.place(value));
            if let Some(place) = into {
                let is_room = !matches!(it.kind, Kind::Value | Kind::Stored);
                if is_room == frame.is_value(place) {
                    return Err(Reason::Changed);
                }
            }
            let kept = |place: u32| frame.variables[place as usize].kind;
            let kind = match (it.kind, into.map(kept)) {
                // Others may have the address in one of the bodies.
                (Kind::Kept { bytes, .. }, Some(Kind::Kept { alone: false, .. })) => Kind::Kept {
                    bytes,
                    alone: false,
                },
                (kind, _) => kind,
            };
            Ok(Given {
                kind,
                into,
                promised: false,
            })
        });
        given.collect()
    }

    /// # Safety
    /// A function of the context.
    unsafe fn function_type(&self, context: &LlvmContext, of: FunctionRef<'_>) -> LLVMTypeRef {
        // SAFETY: by the caller's promise.
        unsafe {
            let types = self.taken.iter();
            let mut types: Vec<_> = types.map(|it| type_of(context, it.simple)).collect();
            let returns = LLVMGetReturnType(LLVMGlobalGetValueType(of.raw()));
            LLVMFunctionType(returns, types.as_mut_ptr(), types.len() as u32, 0)
        }
    }
}

/// The type of a parameter: that of the value itself, or an address.
///
/// # Safety
/// A live context.
unsafe fn type_of(context: &LlvmContext, simple: Option<Simple>) -> LLVMTypeRef {
    let context = context.raw();
    // SAFETY: by the caller's promise.
    unsafe {
        match simple.map(Simple::form) {
            Some(Form::Integer(bits)) => LLVMIntTypeInContext(context, bits),
            Some(Form::Float) => LLVMFloatTypeInContext(context),
            Some(Form::Double) => LLVMDoubleTypeInContext(context),
            Some(Form::Pointer(space)) => LLVMPointerTypeInContext(context, space),
            None => LLVMPointerTypeInContext(context, 0),
        }
    }
}
