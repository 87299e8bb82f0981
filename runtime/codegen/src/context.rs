//! An LLVM context that collects diagnostics instead of ending the process, and
//! the small owners of LLVM objects the package uses.
//!
//! LLVM's default for an error diagnostic is `exit(1)`; with a handler installed
//! emission still reports success, so [`LlvmContext::take_errors`] decides.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};

use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextCreate, LLVMContextDispose, LLVMContextSetDiagnosticHandler,
    LLVMCreateMemoryBufferWithMemoryRange, LLVMDisposeMemoryBuffer, LLVMDisposeMessage,
    LLVMDisposeModule, LLVMGetBufferSize, LLVMGetBufferStart, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::prelude::{
    LLVMContextRef, LLVMDiagnosticInfoRef, LLVMMemoryBufferRef, LLVMModuleRef,
};

use crate::fatal;
use crate::gate::Gate;

/// Owns a context and the error messages LLVM reported in it.
pub(crate) struct LlvmContext {
    raw: LLVMContextRef,
    errors: Box<RefCell<Vec<String>>>,
    gate: Box<Gate>,
}

// SAFETY: a context has no thread affinity; it must only never be used by two
// threads at once, which `&mut`/ownership of the reader that holds it ensures.
unsafe impl Send for LlvmContext {}

impl LlvmContext {
    pub(crate) fn new() -> LlvmContext {
        fatal::enter();
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
        LlvmContext { raw, errors, gate }
    }

    pub(crate) fn raw(&self) -> LLVMContextRef {
        self.raw
    }

    /// What decides which passes run.
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

/// The message of an error, if there is one, which is given back.
///
/// # Safety
/// `error` is null or an error that nobody else takes.
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
    /// `raw` is a live module that nobody else disposes.
    pub(crate) unsafe fn new(raw: LLVMModuleRef) -> OwnedModule {
        OwnedModule(raw)
    }

    pub(crate) fn raw(&self) -> LLVMModuleRef {
        self.0
    }
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: owned since `new`.
        unsafe { LLVMDisposeModule(self.0) };
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
    /// `raw` is a live buffer that nobody else disposes.
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
