//! The version of a function that starts at the head of a loop.
//!
//! The body is a complete copy in a module of ours. The continuation is another function of that
//! module: an entry that takes over what crosses, then copies of the blocks that are reached.
//! What is used beyond its block goes through an `alloca` each, which the first pass makes
//! registers again: so that an entry in the middle of what dominates what is no concern here.

use inkwell::llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use inkwell::llvm_sys::core::{
    LLVMDeleteFunction, LLVMGetFirstUse, LLVMReplaceAllUsesWith, LLVMSetValueName2,
};
use inkwell::llvm_sys::debuginfo::{LLVMGetSubprogram, LLVMSetSubprogram};
use uruk_leaving::{Forbidden, Reason};

use super::anatomy::{Body, Told};
use super::frame::Frame;
use super::making::Making;
use super::regions::Regions;
use crate::context::{LlvmContext, OwnedModule};
use crate::flow::around;
use crate::handles::FunctionRef;
use crate::shape::Shape;
use crate::source::AttributeKinds;

/// Where a continuation starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Start {
    /// The number of the head's block.
    pub block: u32,
    /// What was found where it is offered.
    pub fingerprint: u64,
}

/// Instructions that peeling may add; beyond that the loops around are entered in the middle.
const MOST_PEELED: usize = 30_000;

/// Puts a continuation in the place of `body`, a complete copy in `module` of a function named
/// `own`: with its name, which is emitted instead.
///
/// # Errors
/// Why there is none; the module is as it was.
pub(crate) fn replace(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    shape: &Shape<'_>,
    start: Start,
    own: &str,
) -> Result<(), Reason> {
    let loops = shape.loops.as_deref().ok_or(Reason::TooLarge)?;
    let flow = &shape.flow;
    let index = loops.iter().position(|it| it.head == start.block);
    let index = index.ok_or(Reason::Changed)?;
    let told = Told::of(Body::copied(module, body), kinds, flow);
    let forbidden = Forbidden::of(&told.anatomy)?;
    if let Some(reason) = forbidden.at(&told.anatomy, &flow.graph, &loops[index]) {
        return Err(reason);
    }
    let frame = Frame::of(told, &flow.graph)?;
    let what = frame.crossing(start.block)?;
    if what.fingerprint != start.fingerprint {
        return Err(Reason::Changed);
    }
    let mut nest = vec![index];
    nest.extend(around(loops, index));
    let mut regions = Regions::new(flow, loops, nest);
    if regions.peeled() > MOST_PEELED {
        regions = Regions::new(flow, loops, vec![index]);
    }
    // SAFETY: all of one module of the context; the body is complete and was verified.
    unsafe {
        let mut made = Making::begin(context, module, body, &frame, &what, &regions);
        made.fill(&what);
        let made = made.function;
        let subprogram = LLVMGetSubprogram(body.raw());
        if !subprogram.is_null() {
            LLVMSetSubprogram(made.raw(), subprogram);
        }
        if !is_valid(made) {
            // Nothing that LLVM says of it is of use to anybody but us.
            debug_assert!(false, "a continuation that is no valid IR");
            LLVMDeleteFunction(made.raw());
            return Err(Reason::Other);
        }
        rename(context, module, kinds, body, made, own);
    }
    Ok(())
}

/// What LLVM's verifier says of a function that was made here.
pub(crate) fn is_valid(made: FunctionRef<'_>) -> bool {
    let action = match cfg!(debug_assertions) {
        true => LLVMVerifierFailureAction::LLVMPrintMessageAction,
        false => LLVMVerifierFailureAction::LLVMReturnStatusAction,
    };
    // SAFETY: a live function.
    unsafe { LLVMVerifyFunction(made.raw(), action) == 0 }
}

/// Takes the body out, and gives its name to what was made of it.
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
    // SAFETY: by the caller's promise; what still mentions the body means the function, from
    // its beginning.
    unsafe {
        if !LLVMGetFirstUse(body.raw()).is_null() {
            let whole = crate::instrument::declared(context, module, own, kinds.nonlazybind);
            LLVMReplaceAllUsesWith(body.raw(), whole.raw());
        }
        LLVMDeleteFunction(body.raw());
        LLVMSetValueName2(made.raw(), name.as_ptr().cast(), name.len());
    }
}
