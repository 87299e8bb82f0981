//! The gate that LLVM asks before each pass whether to run it.
//!
//! `llvm::OptPassGate` belongs to a context. Both pass managers, for IR and for code generation,
//! ask it before every optional pass. LLVM's own gate (`-opt-bisect-limit`) is a debugging tool
//! that skips all passes after the n-th. This one skips all *IR* passes once a compile is
//! cancelled, so that `LLVMRunPasses` returns soon from anywhere. Each of these passes takes valid
//! IR and leaves valid IR, so any of them can be skipped; the result is thrown away.
//!
//! Code generation asks the same question, but there skipping is not safe. Once instructions are
//! selected, a pass that counts as optional may lower instructions that a later one cannot read.
//! When such passes were skipped behind others that did run, LLVM wrote through a null pointer as
//! it encoded instructions (`MCObjectStreamer::emitInstToData`), at one in thirty of the places
//! where it asks. So a cancelled compile is ended in another way there: the gate makes the module's
//! functions `available_externally`. No code is made for such a function.
//! `MachineFunctionPass::runOnFunction` checks this before each pass on machine code, including
//! required ones (instruction selection, register allocation) and the object writer. Each remaining
//! pass on IR leaves valid IR as before. Machine code made of a function by then is seen only by
//! the pass that frees it. The pass that asked is allowed to run, in an unchanged state, and is the
//! last. The resulting object has no code, and is thrown away.
//!
//! Tags of some instructions must not be believed ([`tags`]). Before passes that look back through
//! loops, scopes are dropped. A round of passes over a function's loops begins with two of its own,
//! asked about by the function's name; the second is `lcssa`. At the first `licm` that follows,
//! tags are put aside. At the next question about a pass that is not over a loop, they are
//! restored. So the gate is enabled for all passes of tiers 2 and 3.
//!
//! Asking costs the IR pass manager the names of pass and function. So elsewhere the gate is
//! enabled only for units of [`LARGE`] instructions; smaller ones are done within milliseconds.
//! LLVM-C has no setter: `LLVMContext::setOptPassGate` is C++. The gate is laid out by hand as the
//! Itanium ABI has it: a pointer to the table of virtual functions, which are both destructors,
//! `shouldRunPass` and `isEnabled` (`cplusplus`).
//!
//! Invariants:
//! - The gate outlives its context, and is used by the thread that uses the context.
//! - LLVM never destroys it.
//! - It answers yes to every question of code generation.
//! - It holds a module only while passes run on it or code is generated for it.

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
use crate::tags::{self, TagKinds};

/// Size of a unit, in instructions, from which the gate is asked before each pass.
pub(crate) const LARGE: u32 = 400;

/// The last pass before those over a function's loops.
const LAST_BEFORE_LOOPS: &[u8] = b"lcssa";

/// Passes that look back through loops, or are followed by others that do.
const LOOKING_BACK: [&[u8]; 4] = [b"early-cse", b"gvn", b"memcpyopt", LAST_BEFORE_LOOPS];

/// The pass over a loop that moves stores out of it.
const MOVING: &[u8] = b"licm";

/// Prefix of the names of loops.
const LOOP: &[u8] = b"loop %";

/// A virtual table, with the entries before its address point.
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

/// `llvm::OptPassGate`, with the token it looks at.
#[repr(C)]
pub(crate) struct Gate {
    table: *const GateTable<Gate>,
    token: RefCell<Option<Cancellation>>,
    enabled: Cell<bool>,
    /// The module code is generated for; null at other times.
    emitted: Cell<LLVMModuleRef>,
    /// The module that IR passes run on, if tags are put aside for some of them.
    optimized: RefCell<Option<Optimized>>,
}

/// A module under IR passes that must not believe some tags.
struct Optimized {
    module: LLVMModuleRef,
    kinds: TagKinds,
    looped: Option<Looped>,
}

/// The function over whose loops passes run.
struct Looped {
    name: Vec<u8>,
    tags: Tags,
}

/// State of the tags of its stores that may not run.
#[derive(PartialEq)]
enum Tags {
    /// Not put aside yet.
    AtStores,
    /// Some were put aside.
    Aside,
    /// It has none.
    None,
}

impl Optimized {
    /// Adjusts scopes and tags before a pass runs on the unit named `unit`.
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
    /// A gate that skips nothing.
    pub(crate) fn new() -> Box<Gate> {
        Box::new(Gate {
            table: &raw const TABLE.table,
            token: RefCell::default(),
            enabled: Cell::new(false),
            emitted: Cell::new(null_mut()),
            optimized: RefCell::default(),
        })
    }

    /// Registers the gate with a context.
    ///
    /// # Safety
    /// `context` is live, and the gate outlives it where it is.
    pub(crate) unsafe fn attach(&self, context: LLVMContextRef) {
        // SAFETY: by the caller's promise; the layout is that of the class.
        unsafe { set_opt_pass_gate(context, std::ptr::from_ref(self).cast()) };
    }

    /// Sets the token to look at from now on.
    pub(crate) fn watch(&self, token: Option<Cancellation>) {
        *self.token.borrow_mut() = token;
        self.enabled.set(false);
    }

    /// Announces the size of the unit that passes run on next.
    pub(crate) fn expect(&self, instructions: u32) {
        let watched = self.token.borrow().is_some();
        self.enabled.set(watched && instructions >= LARGE);
    }

    /// Runs `emit`, which generates code for `module`. Once the token is cancelled, no code is made
    /// for its remaining functions.
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

    /// Runs `optimize`, whose passes on `module` do not believe the tags of stores that may not
    /// run.
    ///
    /// # Safety
    /// `module` is live until this returns, and of the context whose gate this is.
    pub(crate) unsafe fn optimizing<R>(
        &self,
        module: LLVMModuleRef,
        optimize: impl FnOnce() -> R,
    ) -> R {
        // SAFETY: by the caller's promise.
        let kinds = unsafe { TagKinds::of(LLVMGetModuleContext(module)) };
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

    /// Looks at the token; true if the compile is to end.
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
/// The gate is alive: LLVM passes the gate of the context, which outlives the context.
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

/// Stops code generation for all functions of a module.
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
