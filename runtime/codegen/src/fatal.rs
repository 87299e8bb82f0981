//! LLVM's fatal errors, which would end the process.
//!
//! `report_fatal_error` never returns to its caller: there is no state to go on from. Only the
//! thread can be given up. A compile that is prepared for it runs under [`guard`]. If LLVM reports
//! a fatal error there, the guard's handler is called, and the readers the thread had borrowed are
//! written off. The thread then sleeps for ever, with LLVM's objects on its stack. Elsewhere LLVM's
//! default applies: the process ends.
//!
//! LLVM reports such errors from anywhere. Even reading bitcode or text upgrades old forms of
//! attributes and metadata, and building a type may fail. So a process that must survive them
//! enters LLVM under a guard only, and declares this once ([`demand`]). From then on a build with
//! `debug_assertions` panics without a guard where a context is made, a reader is borrowed, or a
//! borrowed one is used. Every way into LLVM passes one of these. Only giving things back needs no
//! guard: it frees.
//!
//! Callers that expect to need no LLVM work without a guard. Within [`refused`] the same entries
//! return errors for which [`CodegenError::is_refusal`] is true. The caller then starts again under
//! a guard.
//!
//! # Why
//! Fatal errors of LLVM cost a thread, not the process. `report_fatal_error` does not return;
//! the worker it happens in is counted out, its function fails, another worker takes its place
//! (`codegen::fatal`, `version::calls`).

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, Weak};

use inkwell::llvm_sys::error_handling::LLVMInstallFatalErrorHandler;

use uruk_base::ThreadStack;

use crate::cplusplus::install_bad_alloc_error_handler;
use crate::error::CodegenError;
use crate::ledger::Ledger;

type Handler = Box<dyn FnOnce(&str)>;

thread_local! {
    // Never dropped: handlers of `atexit` and last destructors of threads may call LLVM, too. Both
    // are empty outside of a guard.
    static HANDLER: ManuallyDrop<RefCell<Option<Handler>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
    static BORROWED: ThreadStack<Weak<Ledger>> = const { ThreadStack::new() };
    /// Whether LLVM is refused to the calling thread.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Relaxed: set before the first entry it is about, and never taken back.
static DEMANDED: AtomicBool = AtomicBool::new(false);

/// Makes entries into LLVM without a [`guard`] panic where `debug_assertions` are on.
pub fn demand() {
    DEMANDED.store(true, Ordering::Relaxed);
}

/// True inside a [`guard`] of the calling thread.
#[must_use]
pub fn is_guarded() -> bool {
    HANDLER.with(|handler| handler.borrow().is_some())
}

/// Runs `work`, in which LLVM is refused except under a [`guard`] inside of it.
pub fn refused<R>(work: impl FnOnce() -> R) -> R {
    /// Also when `work` panics.
    struct Before(bool);

    impl Drop for Before {
        fn drop(&mut self) {
            REFUSED.set(self.0);
        }
    }

    let _before = Before(REFUSED.replace(true));
    work()
}

/// The check at each entry that can be refused.
pub(crate) fn admit() -> Result<(), CodegenError> {
    if REFUSED.get() {
        return Err(CodegenError::Refused);
    }
    enter();
    Ok(())
}

/// The check at each entry.
pub(crate) fn enter() {
    debug_assert!(
        is_guarded() || !DEMANDED.load(Ordering::Relaxed),
        "LLVM is entered where its fatal errors end the process"
    );
}

/// Runs `work`. If LLVM reports a fatal error in it, `on_fatal` is called with LLVM's
/// message, and the calling thread never returns.
///
/// `on_fatal` must release, or hand to another thread, everything that other threads wait for.
pub fn guard<R>(on_fatal: impl FnOnce(&str) + 'static, work: impl FnOnce() -> R) -> R {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| uruk_late::when_open(install));
    let outer = HANDLER.with(|handler| handler.borrow_mut().replace(Box::new(on_fatal)));
    let refused = REFUSED.replace(false);
    let result = work();
    REFUSED.set(refused);
    HANDLER.with(|handler| *handler.borrow_mut() = outer);
    result
}

/// Runs `work`, a part of the work of a [`guard`] of the calling thread. If LLVM reports a fatal
/// error in it, `on_fatal` is called before the guard's handler.
pub fn within<R>(on_fatal: impl FnOnce(&str) + 'static, work: impl FnOnce() -> R) -> R {
    let outer = HANDLER.with(|handler| handler.borrow_mut().take());
    let outer = Rc::new(Cell::new(outer));
    let handed = Rc::clone(&outer);
    let both = move |message: &str| {
        on_fatal(message);
        if let Some(outer) = handed.take() {
            outer(message);
        }
    };
    let result = guard(both, work);
    HANDLER.with(|handler| *handler.borrow_mut() = outer.take());
    result
}

fn install() {
    // SAFETY: handlers that live as long as the process.
    unsafe {
        LLVMInstallFatalErrorHandler(Some(on_fatal_error));
        install_bad_alloc_error_handler(on_bad_alloc, std::ptr::null_mut());
    }
}

/// Notes that this thread holds a reader of `ledger`'s pool.
pub(crate) fn borrowed(ledger: Weak<Ledger>) {
    BORROWED.with(|list| list.push(ledger));
}

/// Notes that this thread gave its latest reader back.
pub(crate) fn returned() {
    BORROWED.with(ThreadStack::pop);
}

extern "C" fn on_bad_alloc(_: *mut c_void, reason: *const c_char, _: bool) {
    on_fatal_error(reason);
}

extern "C" fn on_fatal_error(reason: *const c_char) {
    let Some(handler) = HANDLER.with(|handler| handler.borrow_mut().take()) else {
        return;
    };
    let lost: Vec<_> =
        BORROWED.with(|list| list.read(|all| all.iter().filter_map(Weak::upgrade).collect()));
    lost.iter().for_each(|ledger| ledger.write_off());
    drop(lost);
    // SAFETY: LLVM passes a C string.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    handler(&reason);
    loop {
        std::thread::park();
    }
}
