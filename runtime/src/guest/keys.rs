//! Thread-specific keys whose destructor is JIT'd code.
//!
//! The owner of a key is unknown, and so is the number of threads that still have a value. So the
//! image that contains the destructor stays until the key is deleted; natively, the end of a thread
//! crashes once the library is closed. A process has 1,024 keys (`PTHREAD_KEYS_MAX`), so no more
//! images stay for this reason.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use uruk_base::locks::Mutex;

use crate::code::life::Hold;
use crate::exits;
use crate::fork::gate;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// The images held for each key.
static HELD: Mutex<BTreeMap<libc::pthread_key_t, Vec<Hold>>> = Mutex::new(BTreeMap::new());

/// `thrd_error` of C11's `threads.h`, as glibc has it.
const ERROR: c_int = 2;

unsafe extern "C" {
    fn tss_create(key: *mut libc::pthread_key_t, destructor: Option<Destructor>) -> c_int;
    fn tss_delete(key: libc::pthread_key_t);
}

/// Replaces the images held for a key.
fn set_held(key: libc::pthread_key_t, holds: Vec<Hold>) {
    let _pass = gate::enter();
    let mut held = HELD.lock();
    let before = match holds.is_empty() {
        true => held.remove(&key),
        false => held.insert(key, holds),
    };
    drop(held);
    // It may be the last hold; then code is retired, which takes locks.
    drop(before);
}

/// Creates a key by `create` and holds the image of its destructor.
///
/// # Safety
/// 1. `key` is writable.
unsafe fn create(
    key: *mut libc::pthread_key_t,
    destructor: Option<Destructor>,
    refused: c_int,
    create: unsafe extern "C" fn(*mut libc::pthread_key_t, Option<Destructor>) -> c_int,
) -> c_int {
    let address = destructor.map(|destructor| destructor as *const () as u64);
    let Ok(holds) = exits::hold_at(address.as_slice()) else {
        return refused;
    };
    // SAFETY: duty 1.
    let status = unsafe { create(key, destructor) };
    if status == 0 {
        // SAFETY: duty 1. Holds of an earlier key with this number are dropped, if its deletion was
        // not observed.
        set_held(unsafe { *key }, holds);
    }
    status
}

/// `pthread_key_create`.
///
/// # Safety
/// As `pthread_key_create`.
unsafe extern "C" fn guest_key_create(
    key: *mut libc::pthread_key_t,
    destructor: Option<Destructor>,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { create(key, destructor, libc::EAGAIN, libc::pthread_key_create) }
}

/// `tss_create`.
///
/// # Safety
/// As `tss_create`.
unsafe extern "C" fn guest_tss_create(
    key: *mut libc::pthread_key_t,
    destructor: Option<Destructor>,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { create(key, destructor, ERROR, tss_create) }
}

/// `pthread_key_delete`.
///
/// # Safety
/// As `pthread_key_delete`.
unsafe extern "C" fn guest_key_delete(key: libc::pthread_key_t) -> c_int {
    // Before another thread can be given the same key.
    set_held(key, Vec::new());
    // SAFETY: by the caller's promise.
    unsafe { libc::pthread_key_delete(key) }
}

/// `tss_delete`.
///
/// # Safety
/// As `tss_delete`.
unsafe extern "C" fn guest_tss_delete(key: libc::pthread_key_t) {
    set_held(key, Vec::new());
    // SAFETY: by the caller's promise.
    unsafe { tss_delete(key) }
}

/// Replacements of the functions above.
pub(super) fn overrides() -> [(&'static str, u64); 6] {
    let (create, delete) = (
        guest_key_create as *const () as u64,
        guest_key_delete as *const () as u64,
    );
    [
        ("pthread_key_create", create),
        // The name that headers of C++ libraries use.
        ("__pthread_key_create", create),
        ("pthread_key_delete", delete),
        ("__pthread_key_delete", delete),
        ("tss_create", guest_tss_create as *const () as u64),
        ("tss_delete", guest_tss_delete as *const () as u64),
    ]
}
