//! Builds the version of a function that starts at the head of a loop (OSR).
//!
//! The body is a complete copy in a module of ours. The continuation is another function of that
//! module: an entry that takes over the live values, then copies of the reachable blocks. Each
//! value used beyond its block goes through an `alloca`, which the first pass makes a register
//! again. So an entry in the middle of a loop needs no care about dominance here.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{LLVMDeleteFunction, LLVMReplaceAllUsesWith, LLVMSetValueName2};
use inkwell::llvm_sys::debuginfo::{LLVMGetSubprogram, LLVMSetSubprogram};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use uruk_leaving::{Forbidden, Reason};

use super::anatomy::{DescribedBody, LlvmBody};
use super::frame::{Crossing, Frame};
use super::making::{Given, Making};
use super::offer::continuation_type;
use super::plain::OwnLabels;
use super::regions::Regions;
use super::start::Start;
use crate::attributes::AttributeKinds;
use crate::context::{LlvmContext, OwnedModule};
use crate::flow::{Flow, Loop, around};
use crate::handles::{FunctionRef, ValueRef};
use crate::shape::BodyShape;
use crate::verifying::is_valid;

/// Instructions that peeling may add; beyond that the loops around are entered in the middle.
const MOST_PEELED: usize = 30_000;

/// Instructions of a loop for whose sake the loops around it are peeled. Larger ones, such as the
/// loops of interpreters, gain nothing from passes over loops, and peeling compiles them twice.
const MOST_INSIDE: usize = 2_000;

/// A head of a body that can be left, and the values that cross there.
pub(super) struct EntryPlace<'m> {
    /// Among the loops.
    index: usize,
    pub(super) frame: Frame<'m>,
    pub(super) what: Crossing,
    /// Set if labels are to be addresses of the continuation's blocks.
    labels: Option<OwnLabels<'m>>,
}

/// The place at the head `block` of a described body.
///
/// # Errors
/// Why it cannot be left.
pub(super) fn place_of<'m>(
    told: DescribedBody<'m>,
    shape: &BodyShape<'m>,
    block: u32,
) -> Result<EntryPlace<'m>, Reason> {
    let loops = shape.loops.as_deref().ok_or(Reason::TooLarge)?;
    let index = loops.iter().position(|it| it.head == block);
    let index = index.ok_or(Reason::Changed)?;
    let forbidden = Forbidden::of(&told.anatomy)?;
    if let Some(reason) = forbidden.at(&told.anatomy, &shape.flow.graph, &loops[index]) {
        return Err(reason);
    }
    let frame = Frame::of(told, &shape.flow.graph)?;
    let what = frame.crossing(block)?;
    Ok(EntryPlace {
        index,
        frame,
        what,
        labels: None,
    })
}

/// Replaces `body`, a complete copy in `module` of a function named `own`, with a continuation. The
/// continuation gets the body's name and is emitted instead.
///
/// With a label space the body has plain addresses of its labels, and so has the continuation.
///
/// # Errors
/// Why there is none; the module is as it was, unless it has plain addresses.
#[expect(clippy::too_many_arguments, reason = "what a continuation is made of")]
pub(crate) fn replace<'m>(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'m>,
    shape: &BodyShape<'m>,
    start: &Start,
    own: &str,
    space: Option<ValueRef<'m>>,
) -> Result<(), Reason> {
    let told = DescribedBody::of(LlvmBody::copied(module, body), kinds, &shape.flow);
    let mut place = place_of(told, shape, start.block)?;
    if let Some(space) = space {
        let head = shape.flow.blocks[start.block as usize];
        let own = OwnLabels::find(space, body, &place.frame, &place.what, head)?;
        place.labels = Some(own);
    }
    let EntryPlace { frame, what, .. } = &place;
    if what.fingerprint != start.fingerprint {
        return Err(Reason::Changed);
    }
    let given = what.variables.iter().map(|&it| Given {
        kind: frame.variables[it as usize].kind,
        into: Some(it),
        promised: frame.is_alone(it),
    });
    let given: Vec<Given> = given.collect();
    // SAFETY: a function of the context, and a frame of its body.
    let ty = unsafe { continuation_type(context, body, frame, what) };
    finish(context, module, kinds, body, shape, place, ty, &given, own)
}

/// Makes the continuation that starts at `place`, of type `ty`, with a [`Given`] for each
/// parameter.
///
/// # Errors
/// The result is no valid IR; the module is as it was.
#[expect(clippy::too_many_arguments, reason = "what a continuation is made of")]
pub(super) fn finish(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    shape: &BodyShape<'_>,
    place: EntryPlace<'_>,
    ty: LLVMTypeRef,
    given: &[Given],
    own: &str,
) -> Result<(), Reason> {
    let loops = shape.loops.as_deref().ok_or(Reason::TooLarge)?;
    let flow = &shape.flow;
    let mut regions = Regions::new(flow, loops, nest_of(flow, loops, place.index));
    if regions.peeled() > MOST_PEELED {
        regions = Regions::new(flow, loops, vec![place.index]);
    }
    if place.labels.is_some() && regions.heads.len() > 1 {
        // A label would be several blocks.
        return Err(Reason::Labels);
    }
    // SAFETY: all of one module of the context; the body is complete and was verified, and the
    // entries of `given` have the types of the parameters.
    unsafe {
        let mut made = Making::begin(context, module, body, &place.frame, ty, &regions);
        made.labels = place.labels.as_ref();
        made.fill(given);
        if made.labels.is_some() {
            made.take_labels();
        }
        let made = made.function;
        let subprogram = LLVMGetSubprogram(body.raw());
        if !subprogram.is_null() {
            LLVMSetSubprogram(made.raw(), subprogram);
        }
        if !is_valid(made) {
            // LLVM's message concerns this package only, so the error does not carry it.
            debug_assert!(false, "a continuation that is no valid IR");
            LLVMDeleteFunction(made.raw());
            return Err(Reason::Other);
        }
        rename(context, module, kinds, body, made, own);
    }
    Ok(())
}

/// A loop, and those around it that are to stay whole when it is entered: no pass knows loops that
/// are entered beside their heads.
fn nest_of(flow: &Flow<'_>, loops: &[Loop], index: usize) -> Vec<usize> {
    let mut nest = vec![index];
    let blocks = flow.blocks.iter().zip(&loops[index].inside);
    let inside = blocks.filter(|(_, inside)| **inside);
    let instructions: usize = inside.map(|(it, _)| it.instructions().count()).sum();
    if instructions <= MOST_INSIDE {
        let all = around(loops, index).into_iter();
        nest.extend(all.filter(|&it| !loops[it].irreducible));
    }
    nest
}

/// Deletes the body, and gives its name to the function made of it.
///
/// # Safety
/// Both are functions of the module, and nothing refers to a block of the body.
unsafe fn rename(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    made: FunctionRef<'_>,
    own: &str,
) {
    let name = body.name();
    // SAFETY: by the caller's promise; remaining mentions of the body mean the function, from its
    // beginning.
    unsafe {
        // Addresses of its labels go with it.
        let is_label = |it: ValueRef<'_>| it.kind() == LLVMValueKind::LLVMBlockAddressValueKind;
        if !body.users().all(is_label) {
            let whole = crate::instrument::declared(context, module, own, kinds.nonlazybind);
            LLVMReplaceAllUsesWith(body.raw(), whole.raw());
        }
        LLVMDeleteFunction(body.raw());
        LLVMSetValueName2(made.raw(), name.as_ptr().cast(), name.len());
    }
}
