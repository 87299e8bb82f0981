//! An LLVM context that collects diagnostics instead of ending the process, and
//! the small owners of LLVM objects the package uses.
//!
//! LLVM's default for an error diagnostic is `exit(1)`; with a handler installed
//! emission still reports success, so [`LlvmContext::take_errors`] decides.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};

use inkwell::llvm_sys::core::{
    LLVMAddModuleFlag, LLVMConstInt, LLVMContextCreate, LLVMContextDispose,
    LLVMContextSetDiagnosticHandler, LLVMCreateBuilderInContext,
    LLVMCreateMemoryBufferWithMemoryRange, LLVMDisposeBuilder, LLVMDisposeMemoryBuffer,
    LLVMDisposeMessage, LLVMDisposeModule, LLVMGetBufferSize, LLVMGetBufferStart,
    LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity, LLVMGetFirstFunction, LLVMGetFirstGlobal,
    LLVMGetNamedFunction, LLVMGetNamedGlobal, LLVMGetNextFunction, LLVMGetNextGlobal,
    LLVMInt32TypeInContext, LLVMModuleCreateWithNameInContext, LLVMPrintModuleToString,
    LLVMValueAsMetadata,
};
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::prelude::{
    LLVMBuilderRef, LLVMContextRef, LLVMDiagnosticInfoRef, LLVMMemoryBufferRef, LLVMModuleRef,
};
use inkwell::llvm_sys::{LLVMDiagnosticSeverity, LLVMModuleFlagBehavior};

use uruk_base::parts::{self, Part};

use crate::error::CodegenError;
use crate::fatal;
use crate::gate::Gate;
use crate::handles::{FunctionRef, ValueRef, VariableRef, c_name};

/// Opens LLVM's library, unless it is open.
fn load() -> Result<(), CodegenError> {
    if !uruk_late::is_open() {
        let _loading = parts::enter(Part::Loading);
        uruk_late::open()?;
    }
    Ok(())
}

/// Owns a context and the error messages LLVM reported in it.
pub(crate) struct LlvmContext {
    raw: LLVMContextRef,
    errors: Box<RefCell<Vec<String>>>,
    gate: Box<Gate>,
}

// SAFETY: a context has no thread affinity; two threads must never use it at once, which
// `&mut`/ownership of the reader that holds it ensures.
unsafe impl Send for LlvmContext {}

impl LlvmContext {
    pub(crate) fn new() -> Result<LlvmContext, CodegenError> {
        fatal::admit()?;
        load()?;
        let errors: Box<RefCell<Vec<String>>> = Box::default();
        // SAFETY: plain constructor.
        let raw = unsafe { LLVMContextCreate() };
        let opaque = std::ptr::from_ref::<RefCell<Vec<String>>>(&errors)
            .cast_mut()
            .cast::<c_void>();
        // SAFETY: `opaque` points into the box, which lives until the context is
        // disposed in `drop`.
        unsafe { LLVMContextSetDiagnosticHandler(raw, Some(on_diagnostic), opaque) };
        let gate = Gate::new();
        // SAFETY: as above; the box is dropped after the context.
        unsafe { gate.attach(raw) };
        Ok(LlvmContext { raw, errors, gate })
    }

    pub(crate) fn raw(&self) -> LLVMContextRef {
        self.raw
    }

    /// The gate that decides which passes run.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The errors reported since the last call, joined; `None` if there were none.
    pub(crate) fn take_errors(&self) -> Option<String> {
        let errors = std::mem::take(&mut *self.errors.borrow_mut());
        (!errors.is_empty()).then(|| errors.join("; "))
    }
}

impl Drop for LlvmContext {
    fn drop(&mut self) {
        // SAFETY: created by `LLVMContextCreate`, disposed once; modules of the
        // context are dropped before it by their owners.
        unsafe { LLVMContextDispose(self.raw) };
    }
}

extern "C" fn on_diagnostic(info: LLVMDiagnosticInfoRef, opaque: *mut c_void) {
    // SAFETY: LLVM passes a live diagnostic.
    let severity = unsafe { LLVMGetDiagInfoSeverity(info) };
    // Remarks and warnings come here too; only errors are failures.
    if severity != LLVMDiagnosticSeverity::LLVMDSError {
        return;
    }
    // SAFETY: the description is a fresh C string that we own.
    let text = unsafe { take_message(LLVMGetDiagInfoDescription(info)) };
    // SAFETY: `opaque` is the box of the context that reports, see `new`.
    let errors = unsafe { &*opaque.cast::<RefCell<Vec<String>>>() };
    errors.borrow_mut().push(text);
}

/// Takes over a message LLVM allocated.
///
/// # Safety
/// `message` is null or a C string to be freed with `LLVMDisposeMessage`.
pub(crate) unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::from("no message");
    }
    // SAFETY: a C string by the caller's promise.
    let text = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .trim()
        .to_owned();
    // SAFETY: owned by us by the caller's promise, not used after this.
    unsafe { LLVMDisposeMessage(message) };
    text
}

/// The message of an error, if there is one. The error is consumed.
///
/// # Safety
/// `error` is null or an error that the caller owns.
pub(crate) unsafe fn take_error(error: LLVMErrorRef) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: ours by the caller's promise; the message is a C string, disposed with its
    // own function once it is copied.
    unsafe {
        let raw = LLVMGetErrorMessage(error);
        let message = CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(raw);
        Some(message)
    }
}

/// Owns a module; must be dropped before its context.
pub(crate) struct OwnedModule(LLVMModuleRef);

impl OwnedModule {
    /// # Safety
    /// `raw` is a live module that the caller owns.
    pub(crate) unsafe fn new(raw: LLVMModuleRef) -> OwnedModule {
        OwnedModule(raw)
    }

    /// An empty module.
    pub(crate) fn empty(context: &LlvmContext, name: &str) -> OwnedModule {
        let name = c_name(name);
        // SAFETY: a live context and a C string; the module is ours.
        unsafe {
            OwnedModule::new(LLVMModuleCreateWithNameInContext(
                name.as_ptr(),
                context.raw(),
            ))
        }
    }

    /// For calls of LLVM.
    pub(crate) fn raw(&self) -> LLVMModuleRef {
        self.0
    }

    /// Sets a flag, a number, of this module of `context`.
    pub(crate) fn set_flag(&self, context: &LlvmContext, name: &str, value: u64) {
        // SAFETY: live context and module; pointer and length describe `name`.
        unsafe {
            let constant = LLVMConstInt(LLVMInt32TypeInContext(context.raw()), value, 0);
            LLVMAddModuleFlag(
                self.0,
                LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning,
                name.as_ptr().cast(),
                name.len(),
                LLVMValueAsMetadata(constant),
            );
        }
    }

    /// The module as LLVM writes it.
    pub(crate) fn text(&self) -> String {
        // SAFETY: a live module; the string is ours.
        unsafe { take_message(LLVMPrintModuleToString(self.0)) }
    }

    /// The functions of the module.
    pub(crate) fn functions(&self) -> impl Iterator<Item = FunctionRef<'_>> {
        // SAFETY: walks a list of a live module to its null end, here and below.
        let mut next = unsafe { LLVMGetFirstFunction(self.0) };
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: a function of the module, which is borrowed.
            unsafe {
                let function = FunctionRef::of(next);
                next = LLVMGetNextFunction(next);
                Some(function)
            }
        })
    }

    /// The variables of the module.
    pub(crate) fn variables(&self) -> impl Iterator<Item = VariableRef<'_>> {
        // SAFETY: see above.
        let mut next = unsafe { LLVMGetFirstGlobal(self.0) };
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: a variable of the module, which is borrowed.
            unsafe {
                let variable = VariableRef::of(next);
                next = LLVMGetNextGlobal(next);
                Some(variable)
            }
        })
    }

    /// The functions and variables of the module.
    pub(crate) fn globals(&self) -> impl Iterator<Item = ValueRef<'_>> {
        let functions = self.functions().map(|function| *function);
        functions.chain(self.variables().map(|variable| *variable))
    }

    /// The function or variable of that name.
    pub(crate) fn global(&self, name: &str) -> Option<ValueRef<'_>> {
        let function = self.function(name).map(|function| *function);
        function.or_else(|| Some(*self.variable(name)?))
    }

    /// The function of that name.
    pub(crate) fn function(&self, name: &str) -> Option<FunctionRef<'_>> {
        spellings(name).find_map(|name| {
            // SAFETY: a live module and a C string; null if there is none.
            let raw = unsafe { LLVMGetNamedFunction(self.0, name.as_ptr()) };
            // SAFETY: a function of the module, which is borrowed.
            (!raw.is_null()).then(|| unsafe { FunctionRef::of(raw) })
        })
    }

    /// The variable of that name.
    pub(crate) fn variable(&self, name: &str) -> Option<VariableRef<'_>> {
        spellings(name).find_map(|name| {
            // SAFETY: a live module and a C string; null if there is none.
            let raw = unsafe { LLVMGetNamedGlobal(self.0, name.as_ptr()) };
            // SAFETY: a variable of the module, which is borrowed.
            (!raw.is_null()).then(|| unsafe { VariableRef::of(raw) })
        })
    }
}

/// A name as modules may have it: for some calling conventions they begin with LLVM's escape
/// byte.
fn spellings(name: &str) -> impl Iterator<Item = CString> {
    [c_name(name), c_name(&format!("\u{1}{name}"))].into_iter()
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: owned since `new`.
        unsafe { LLVMDisposeModule(self.0) };
    }
}

/// Owns a builder of instructions.
pub(crate) struct Builder(pub(crate) LLVMBuilderRef);

impl Builder {
    pub(crate) fn new(context: &LlvmContext) -> Builder {
        // SAFETY: a live context; the builder is ours.
        Builder(unsafe { LLVMCreateBuilderInContext(context.raw()) })
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        // SAFETY: made in `new`, disposed once.
        unsafe { LLVMDisposeBuilder(self.0) };
    }
}

/// Owns a memory buffer.
pub(crate) struct Buffer(LLVMMemoryBufferRef);

impl Buffer {
    /// A view of `bytes`, which must outlive every use LLVM makes of the buffer.
    ///
    /// # Safety
    /// The caller keeps `bytes` alive as long as the buffer, or the module that
    /// took it over.
    pub(crate) unsafe fn view(bytes: &[u8], name: &CStr) -> Buffer {
        // SAFETY: pointer and length describe `bytes`; no terminator is required.
        Buffer(unsafe {
            LLVMCreateMemoryBufferWithMemoryRange(
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
                name.as_ptr(),
                0,
            )
        })
    }

    /// # Safety
    /// `raw` is a live buffer that the caller owns.
    pub(crate) unsafe fn from_raw(raw: LLVMMemoryBufferRef) -> Buffer {
        Buffer(raw)
    }

    pub(crate) fn raw(&self) -> LLVMMemoryBufferRef {
        self.0
    }

    /// Gives the buffer up to an LLVM function that takes it over.
    pub(crate) fn into_raw(self) -> LLVMMemoryBufferRef {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: start and size describe one live allocation of the buffer.
        unsafe {
            std::slice::from_raw_parts(
                LLVMGetBufferStart(self.0).cast::<u8>(),
                LLVMGetBufferSize(self.0),
            )
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: owned, not given up.
        unsafe { LLVMDisposeMemoryBuffer(self.0) };
    }
}
