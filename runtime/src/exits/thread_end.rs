//! Destructors of threads' variables, as C++'s `thread_local` and Rust's `thread_local!`
//! register them.
//!
//! The C library runs them, in its order among those of libraries. Each thread also has a list of
//! its own here, latest first, so that the removal of an image can run them. The objects cannot be
//! used once the image is freed. Those of other threads run when these end, and hold the image
//! until then.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use super::Handler;
use super::record::{HandlerRecord, hold_all, images};
use crate::fork::gate;
use crate::fork::shield::{self, Shield};
use crate::fork::threads;

/// A destructor as the C library calls it at the end of the thread. It is on the thread's list
/// until it has run.
struct ThreadDestructor {
    record: HandlerRecord,
    /// Number of the owning image.
    owner: u64,
    /// Whether the removal of the image ran it; only the C library still lists it.
    ran: bool,
    next: *mut ThreadDestructor,
}

thread_local! {
    static FIRST: Cell<*mut ThreadDestructor> = const { Cell::new(std::ptr::null_mut()) };
}

unsafe extern "C" {
    fn __cxa_thread_atexit_impl(handler: Handler, object: *mut c_void, dso: *mut c_void) -> c_int;
}

/// `__cxa_thread_atexit_impl`; minus one if the image was removed.
///
/// # Safety
/// As that function: `handler` takes `object`, and stays callable until its image is removed.
pub(super) unsafe extern "C" fn at_thread_end(
    handler: Handler,
    object: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    let entry = {
        let _pass = gate::enter();
        let addresses = [handler as *const () as u64, object as u64];
        let found = images(dso, &addresses).and_then(|found| Ok((hold_all(&found)?, found)));
        let Ok((holds, images)) = found else {
            return -1;
        };
        images.first().map(|owner| {
            let entry = Box::into_raw(Box::new(ThreadDestructor {
                record: HandlerRecord {
                    handler,
                    argument: object,
                    holds,
                },
                owner: owner.number(),
                ran: false,
                next: FIRST.get(),
            }));
            // Under the pass, where no signal handler adds another one in between.
            FIRST.set(entry);
            entry
        })
    };
    let Some(entry) = entry else {
        // SAFETY: by the caller's promise; not JIT'd code, so it stays.
        return unsafe { __cxa_thread_atexit_impl(handler, object, dso) };
    };
    // SAFETY: the entry stays until it is run; the handle is that of the runtime's code.
    unsafe { __cxa_thread_atexit_impl(run_entry, entry.cast::<c_void>(), super::dso_handle()) }
}

/// Runs an entry; called by the C library, once, at the end of the thread.
///
/// # Safety
/// 1. `entry` is that of a box, which is freed here; on this thread's list, unless it ran.
unsafe extern "C-unwind" fn run_entry(entry: *mut c_void) {
    let entry = entry.cast::<ThreadDestructor>();
    // SAFETY: duty 1; the handler by the promise of the registering caller. No reference is kept
    // while it runs.
    unsafe {
        if !(*entry).ran {
            unlink(entry);
            let HandlerRecord {
                handler, argument, ..
            } = (*entry).record;
            handler(argument);
        }
        drop(Box::from_raw(entry));
    }
}

/// Takes an entry out of the calling thread's list.
///
/// # Safety
/// 1. It is on that list.
unsafe fn unlink(entry: *mut ThreadDestructor) {
    // No signal handler adds another one meanwhile.
    let _shield = Shield::raise();
    // SAFETY: duty 1; entries are freed after they were taken out.
    let next = unsafe { (*entry).next };
    if FIRST.get() == entry {
        FIRST.set(next);
        return;
    }
    let mut at = FIRST.get();
    while !at.is_null() {
        // SAFETY: as above.
        unsafe {
            if (*at).next == entry {
                (*at).next = next;
                return;
            }
            at = (*at).next;
        }
    }
}

/// Runs the destructors of the calling thread that `images` registered, latest first, including
/// those added meanwhile.
pub(super) fn run(images: &BTreeSet<u64>) {
    while let Some(entry) = latest(images) {
        // SAFETY: an entry of this thread's list, freed at the thread's end at the earliest.
        let (handler, object, holds) = unsafe {
            unlink(entry);
            (*entry).ran = true;
            let record = &mut (*entry).record;
            let holds = std::mem::take(&mut record.holds);
            (record.handler, record.argument, holds)
        };
        // SAFETY: a destructor of an image whose removal its caller allowed, and which exists.
        let call = || unsafe {
            uruk_stubs::call_with(handler as *const () as u64, object as u64);
        };
        threads::as_guest(|| shield::lowered(call));
        drop(holds);
    }
}

/// Whether [`run`] would run nothing.
pub(super) fn is_done(images: &BTreeSet<u64>) -> bool {
    latest(images).is_none()
}

fn latest(images: &BTreeSet<u64>) -> Option<*mut ThreadDestructor> {
    let mut at = FIRST.get();
    while !at.is_null() {
        // SAFETY: entries of this thread are freed after they were taken out.
        let entry = unsafe { &*at };
        if images.contains(&entry.owner) {
            return Some(at);
        }
        at = entry.next;
    }
    None
}
