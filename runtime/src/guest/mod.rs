//! Parts of JIT'd code's environment. A natively linked program gets thread-local storage, `atexit`
//! and related functions from the static part of its executable. Functions that the runtime must
//! observe are replaced: `makecontext`, those of signals, those that copy the process, those that
//! register handlers for the end of a thread or of the process, those that forbid it system calls,
//! and `dlopen` and `dlsym`, which know the program's own symbols. Libraries get the program's
//! names, as those of an executable ([`preempt`]).
//!
//! Everything here may be called by guest code on any thread at any time, from
//! signal handlers too where the native counterpart allows it.

mod context;
pub(crate) mod dl;
mod keys;
mod locked;
mod phdr;
pub(crate) mod preempt;
pub(crate) mod stacks;
pub(crate) mod unwinding;

use crate::fork::signals;
use crate::host::{processes, sandbox, tls};

unsafe extern "C" {
    static __cpu_model: u8;
    static __cpu_features2: u8;
    fn __cpu_indicator_init() -> i32;
}

/// Symbols that a static link takes from `libgcc.a` and the shared library lacks: the CPU features
/// behind `__builtin_cpu_supports` and function multi-versioning.
fn libgcc() -> [(&'static str, u64); 3] {
    [
        ("__cpu_model", &raw const __cpu_model as u64),
        ("__cpu_features2", &raw const __cpu_features2 as u64),
        (
            "__cpu_indicator_init",
            __cpu_indicator_init as *const () as u64,
        ),
    ]
}

/// Symbols that the session answers before it asks the process.
pub(crate) fn overrides() -> Vec<(&'static str, u64)> {
    let mut symbols: Vec<(&'static str, u64)> = vec![
        ("__tls_get_addr", tls::tls_get_addr as *const () as u64),
        ("dlsym", dl::guest_dlsym as *const () as u64),
        ("dlopen", preempt::guest_dlopen as *const () as u64),
        ("dlmopen", preempt::guest_dlmopen as *const () as u64),
        (
            "dl_iterate_phdr",
            phdr::guest_dl_iterate_phdr as *const () as u64,
        ),
        ("dladdr", dl::guest_dladdr as *const () as u64),
    ];
    symbols.extend(context::makecontext().map(|address| ("makecontext", address)));
    symbols.extend(crate::exits::overrides());
    symbols.extend(keys::overrides());
    symbols.extend(locked::overrides());
    symbols.extend(processes::overrides());
    symbols.extend(sandbox::overrides());
    symbols.extend(signals::overrides());
    symbols.extend(libgcc());
    symbols
}
