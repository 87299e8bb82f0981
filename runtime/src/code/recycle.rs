//! Stubs of removed functions that nothing can call any more: they are handed out again.
//!
//! A caller of a function got its stub in one of these ways:
//!
//! | from | until |
//! |---|---|
//! | a call that goes on there from a placeholder ([`lazy`](crate::calls::lazy)) | for ever, as in the next row |
//! | code or data that was linked against it; an address that the host was given, unless the function is an object's ([`KnownFunctions`](super::known)) | for ever: the stub stays the function's, at 32 bytes |
//! | a handle ([`Func`](crate::Func), [`DynFunc`](crate::DynFunc)) | it and its clones are dropped ([`Lease`]) |
//! | a thread in the library that found the name before it was removed | no thread was under a pass ([`gate::idle`]) |
//! | the name, if it is defined again | the stub is handed out to another ([`Removed`](super::removed::Removed)) |
//!
//! Not handed out again: stubs of units' functions, of resolvers' and of continuations; any stub of
//! a process that is the program, whose exit handlers may look names up; any stub that a
//! replacement under way may name.
//!
//! # Why
//! A host that adds, calls and removes functions for months must not grow. The next look waits
//! until the number of waiting stubs has doubled since the last look. So the cost of a removal does
//! not depend on the number of handles.

use crate::code::names::Names;
use crate::fork::gate;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, ranks};
use uruk_session::DylibId;

/// Keeps the stub of a function for its handles.
#[derive(Debug)]
pub(crate) struct Lease;

/// Stubs that wait until nothing references them.
#[derive(Default)]
pub(crate) struct WaitingStubs {
    stubs: Mutex<StubsToRecycle, ranks::WaitingStubs>,
    leases: Mutex<HashMap<FunctionId, Weak<Lease>>>,
}

#[derive(Default)]
struct StubsToRecycle {
    by_function: HashMap<FunctionId, WaitingStub>,
    /// Number of stubs after the last look.
    left: usize,
}

struct WaitingStub {
    /// Where the function's name was filed, if it can be found there.
    name: Option<(DylibId, Box<str>)>,
    of_object: bool,
    /// Value of the idle count of the gate at the end of the removal.
    since: u64,
}

impl WaitingStubs {
    /// Leases a function for a handle. Under the pass under which the function was found.
    pub(crate) fn lease(&self, id: FunctionId) -> Arc<Lease> {
        let mut leases = self.leases.lock();
        let held = leases.entry(id).or_default();
        held.upgrade().unwrap_or_else(|| {
            let lease = Arc::new(Lease);
            *held = Arc::downgrade(&lease);
            lease
        })
    }

    /// Whether handles of a function are left.
    pub(crate) fn is_leased(&self, id: FunctionId) -> bool {
        self.leases
            .lock()
            .get(&id)
            .is_some_and(|lease| lease.strong_count() != 0)
    }

    /// Adds the stub of a removed function, which is handed out again when nothing references it.
    /// `name` is where it was filed, if it was.
    pub(crate) fn add(&self, id: FunctionId, name: Option<(DylibId, Box<str>)>, of_object: bool) {
        let since = gate::idle();
        let mut stubs = self.stubs.lock();
        let stub = WaitingStub {
            name,
            of_object,
            since,
        };
        stubs.by_function.insert(id, stub);
    }

    /// Frees, with `free`, the stubs that nothing references any more. `free` gets the place where
    /// the name was filed, if it was, and returns whether the stub is free.
    pub(crate) fn recycle(
        &self,
        names: &Names,
        free: impl Fn(FunctionId, Option<&(DylibId, Box<str>)>) -> bool,
    ) {
        let mut stubs = self.stubs.lock();
        if stubs.by_function.len() <= 2 * stubs.left {
            return;
        }
        let now = gate::idle();
        stubs.by_function.retain(|&id, stub| {
            // No address of a removed object's function may be kept (`Tracker::remove`).
            let knows = match stub.of_object {
                true => &names.linked,
                false => &names.known,
            };
            if knows.is_known(id) || names.passed.is_known(id) {
                return false;
            }
            if stub.since >= now || self.is_leased(id) {
                return true;
            }
            let mut leases = self.leases.lock();
            leases.remove(&id);
            drop(leases);
            !free(id, stub.name.as_ref())
        });
        stubs.left = stubs.by_function.len();
        if stubs.by_function.capacity() > 64 + 4 * stubs.left {
            stubs.by_function.shrink_to_fit();
        }
    }

    /// Notes that a stub is in use again.
    pub(super) fn revived(&self, id: FunctionId) {
        let mut stubs = self.stubs.lock();
        stubs.by_function.remove(&id);
    }
}
