//! LLVM's question before each pass: shall it run?
//!
//! `llvm::OptPassGate` belongs to a context. Both pass managers ask it before every pass
//! that can be left out, the one of IR passes and the one of code generation; LLVM's own
//! (`-opt-bisect-limit`) is a debugging tool that leaves out all passes after the n-th. This
//! one leaves out all *IR* passes once a compile is cancelled, so that `LLVMRunPasses`
//! returns soon, from wherever it is. Each of these passes takes valid IR and leaves valid
//! IR, so any of them can be left out; what is left is thrown away.
//!
//! Code generation asks the same question, and there the same answer would not do: once
//! instructions are selected, a pass that counts as optional may lower what a later one
//! cannot read. Left out behind others that did run, such passes made LLVM write through a
//! null pointer when it encoded instructions (`MCObjectStreamer::emitInstToData`), at one
//! in thirty of the places where it asks. So there a cancelled compile is ended otherwise:
//! the gate makes the module's functions `available_externally`. Of such a function there
//! is no code to be made, which `MachineFunctionPass::runOnFunction` looks at before each
//! pass on machine code, required ones (selection of instructions, allocation of
//! registers) and the writer of the object included; each pass on IR that is still to come
//! leaves valid IR as before. What was made of a function by then is therefore seen by
//! nobody but the pass that frees it. The pass that asked is told to run: it finds
//! what it would have found, and is the last. The object that comes out has no code, and is
//! thrown away.
//!
//! Tags of some instructions must not be believed ([`tags`]). Before passes that look back through
//! loops scopes are forgotten. A round of passes over a function's loops begins with two of its own,
//! asked about by the function's name; the second is `lcssa`. At the first `licm` that follows tags are put
//! aside, and at the next question about a pass that is over no loop they come back. So the gate is
//! enabled for all passes of tiers 2 and 3.
//!
//! Elsewhere asking costs the IR pass manager the names of pass and function, so there it is enabled for
//! units of [`LARGE`] instructions only; smaller ones are done within milliseconds.
//! LLVM-C has no setter: `LLVMContext::setOptPassGate` is C++. The gate is laid out by hand
//! as the Itanium ABI has it: a pointer to the table of virtual functions, which are both
//! destructors, `shouldRunPass` and `isEnabled` (`cplusplus`).
//!
//! Invariants:
//! - The gate outlives its context, and is used by the thread that uses the context.
//! - LLVM never destroys it.
//! - Asked by code generation it answers yes, always.
//! - It knows a module while passes run on it or code is generated for it, and no longer.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::null_mut;

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::core::{
    LLVMGetFirstFunction, LLVMGetModuleContext, LLVMGetNamedFunctionWithLength,
    LLVMGetNextFunction, LLVMIsDeclaration, LLVMSetLinkage,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMModuleRef};

use crate::cancel::Cancellation;
use crate::cplusplus::{GateTable, set_opt_pass_gate};
use crate::handles::FunctionRef;
use crate::tags::{self, Kinds};

/// Instructions of a unit from which on each pass is asked for.
pub(crate) const LARGE: u32 = 400;

/// The pass after which those over a function's loops come.
const LAST_BEFORE_LOOPS: &[u8] = b"lcssa";

/// Passes that, or what comes behind them, look back through loops.
const LOOKING_BACK: [&[u8]; 4] = [b"early-cse", b"gvn", b"memcpyopt", LAST_BEFORE_LOOPS];

/// The pass over a loop that moves stores out of it.
const MOVING: &[u8] = b"licm";

/// How the names of loops begin.
const LOOP: &[u8] = b"loop %";

/// A table with what comes before the address point.
#[repr(C)]
struct Whole {
    offset_to_top: isize,
    type_information: *const c_void,
    table: GateTable<Gate>,
}

// SAFETY: constant; its one pointer is null.
unsafe impl Sync for Whole {}

static TABLE: Whole = Whole {
    offset_to_top: 0,
    type_information: std::ptr::null(),
    table: GateTable {
        destroy: never,
        delete: never,
        should_run,
        is_enabled,
    },
};

/// `llvm::OptPassGate`, and the token it goes by.
#[repr(C)]
pub(crate) struct Gate {
    table: *const GateTable<Gate>,
    token: RefCell<Option<Cancellation>>,
    enabled: Cell<bool>,
    /// The module code is generated for; null at other times.
    emitted: Cell<LLVMModuleRef>,
    /// What IR passes run on, if tags are put aside for some of them.
    optimized: RefCell<Option<Optimized>>,
}

/// What passes run on whose belief in tags is limited.
struct Optimized {
    module: LLVMModuleRef,
    kinds: Kinds,
    looped: Option<Looped>,
}

/// The function over whose loops passes run.
struct Looped {
    name: Vec<u8>,
    tags: Tags,
}

/// Where the tags are of its stores that may not run.
#[derive(PartialEq)]
enum Tags {
    /// Nothing was moved yet.
    AtStores,
    /// There are some.
    Aside,
    /// There are none.
    None,
}

impl Optimized {
    /// A pass is about to run on what is called `unit`.
    ///
    /// # Safety
    /// The module is live, and passes are between two runs.
    unsafe fn before(&mut self, pass: &[u8], unit: &[u8]) {
        let (module, kinds) = (self.module, self.kinds);
        // SAFETY: by the caller's promise, here and below.
        let function = |name: &[u8]| unsafe { function_of(module, name) };
        if unit.starts_with(LOOP) {
            let looped = self.looped.as_mut().filter(|_| pass == MOVING);
            if let Some(looped) = looped.filter(|it| it.tags == Tags::AtStores) {
                let any = function(&looped.name).is_some_and(|it| tags::aside(it, kinds));
                looped.tags = if any { Tags::Aside } else { Tags::None };
            }
            return;
        }
        // SAFETY: see above.
        unsafe { self.put_back() };
        if LOOKING_BACK.contains(&pass)
            && let Some(function) = function(unit)
        {
            tags::forget(function, kinds);
        }
        if pass == LAST_BEFORE_LOOPS {
            self.looped = Some(Looped {
                name: unit.to_vec(),
                tags: Tags::AtStores,
            });
        }
    }

    /// # Safety
    /// As [`Optimized::before`].
    unsafe fn put_back(&mut self) {
        let looped = self.looped.take();
        let Some(looped) = looped.filter(|it| it.tags == Tags::Aside) else {
            return;
        };
        // SAFETY: by the caller's promise.
        if let Some(function) = unsafe { function_of(self.module, &looped.name) } {
            tags::back(function, self.kinds);
        }
    }
}

/// The function with that name.
///
/// # Safety
/// The module is live as long as the handle.
unsafe fn function_of<'m>(module: LLVMModuleRef, name: &[u8]) -> Option<FunctionRef<'m>> {
    // SAFETY: by the caller's promise; pointer and length describe the name.
    unsafe {
        let found = LLVMGetNamedFunctionWithLength(module, name.as_ptr().cast(), name.len());
        (!found.is_null()).then(|| FunctionRef::of(found))
    }
}

const _: () = assert!(std::mem::offset_of!(Gate, table) == 0);

impl Gate {
    /// One that leaves out nothing.
    pub(crate) fn new() -> Box<Gate> {
        Box::new(Gate {
            table: &raw const TABLE.table,
            token: RefCell::default(),
            enabled: Cell::new(false),
            emitted: Cell::new(null_mut()),
            optimized: RefCell::default(),
        })
    }

    /// Has LLVM ask it.
    ///
    /// # Safety
    /// `context` is live, and the gate outlives it where it is.
    pub(crate) unsafe fn attach(&self, context: LLVMContextRef) {
        // SAFETY: by the caller's promise; the layout is that of the class.
        unsafe { set_opt_pass_gate(context, std::ptr::from_ref(self).cast()) };
    }

    /// The token that counts from now on.
    pub(crate) fn watch(&self, token: Option<Cancellation>) {
        *self.token.borrow_mut() = token;
        self.enabled.set(false);
    }

    /// Says how large the unit is that passes run on next.
    pub(crate) fn expect(&self, instructions: u32) {
        let watched = self.token.borrow().is_some();
        self.enabled.set(watched && instructions >= LARGE);
    }

    /// Has `emit` generate code for `module`, or for none of its functions that are not
    /// done once the token is cancelled.
    ///
    /// # Safety
    /// `module` is live until this returns, and of the context whose gate this is. It is
    /// used for nothing else afterwards.
    pub(crate) unsafe fn emitting<R>(&self, module: LLVMModuleRef, emit: impl FnOnce() -> R) -> R {
        self.emitted.set(module);
        let result = emit();
        self.emitted.set(null_mut());
        result
    }

    /// Has `optimize` run passes on `module` that believe no tags of stores that may not run.
    ///
    /// # Safety
    /// `module` is live until this returns, and of the context whose gate this is.
    pub(crate) unsafe fn optimizing<R>(
        &self,
        module: LLVMModuleRef,
        optimize: impl FnOnce() -> R,
    ) -> R {
        // SAFETY: by the caller's promise.
        let kinds = unsafe { Kinds::of(LLVMGetModuleContext(module)) };
        *self.optimized.borrow_mut() = Some(Optimized {
            module,
            kinds,
            looped: None,
        });
        let result = optimize();
        if let Some(mut done) = self.optimized.take() {
            // SAFETY: by the caller's promise; no pass runs any more.
            unsafe { done.put_back() };
        }
        result
    }

    /// True if the compile is to end; a look at the token.
    pub(crate) fn look(&self) -> bool {
        let token = self.token.borrow();
        token.as_ref().is_some_and(Cancellation::look)
    }

    /// True if a look would end the compile, or has.
    pub(crate) fn is_cancelled(&self) -> bool {
        let token = self.token.borrow();
        token.as_ref().is_some_and(Cancellation::is_cancelled)
    }
}

extern "C" fn never(_: *const Gate) {}

/// # Safety
/// The gate is alive: LLVM passes that of the context, which is while its context is.
unsafe extern "C" fn should_run(
    gate: *const Gate,
    pass: *const u8,
    pass_length: usize,
    unit: *const u8,
    unit_length: usize,
) -> bool {
    // SAFETY: by the caller's promise.
    let gate = unsafe { &*gate };
    let emitted = gate.emitted.get();
    if let Some(optimized) = gate.optimized.borrow_mut().as_mut() {
        // SAFETY: strings of LLVM's, live for the call; the module is while it is noted, by
        // `optimizing`, and each question is asked before a pass.
        unsafe {
            let text = |start: *const u8, length| match length {
                0 => &[][..],
                length => std::slice::from_raw_parts(start, length),
            };
            optimized.before(text(pass, pass_length), text(unit, unit_length));
        }
    }
    if !gate.enabled.get() || !gate.look() {
        return true;
    }
    if !emitted.is_null() {
        // SAFETY: live while it is noted, by `emitting`.
        unsafe { withhold(emitted) };
    }
    !emitted.is_null()
}

/// Lets no more code be made for any function of a module.
///
/// # Safety
/// The module is live.
unsafe fn withhold(module: LLVMModuleRef) {
    // SAFETY: walks the list of functions to its null end. The list stays as it is, and
    // linkage is a field of each that the pass manager looks at only between two passes.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            if LLVMIsDeclaration(function) == 0 {
                LLVMSetLinkage(function, LLVMLinkage::LLVMAvailableExternallyLinkage);
            }
            function = LLVMGetNextFunction(function);
        }
    }
}

/// # Safety
/// As [`should_run`].
unsafe extern "C" fn is_enabled(gate: *const Gate) -> bool {
    // SAFETY: by the caller's promise.
    let gate = unsafe { &*gate };
    gate.enabled.get() || gate.optimized.borrow().is_some()
}
