//! Limits the clients that a live program serves at a time.
//!
//! A client takes a thread of its own from the start. Clients that send nothing are disconnected when
//! later ones arrive, so that they cannot block others. Exchanges beyond a limit are refused.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use uruk_files::OwnFile;

use crate::locked::Locked;

/// Clients whose question is awaited at a time. With one more, the client that has waited longest is
/// disconnected.
const AWAITED: usize = 32;

/// Exchanges and rollbacks that are carried out, or wait for their turn, at a time.
const EXCHANGES: usize = 16;

/// Sockets of clients whose question has not arrived, the oldest first.
static READING: Locked<Vec<Weak<OwnFile>>> = Locked::new(Vec::new());

/// Exchanges and rollbacks that are under way.
static EXCHANGING: AtomicUsize = AtomicUsize::new(0);

/// Forgets all clients, in the child of a fork: they are the parent's.
pub(crate) fn clear() {
    READING.with(Vec::clear);
    EXCHANGING.store(0, Ordering::Relaxed);
}

/// A seat among the clients whose question is awaited.
pub(crate) struct Awaited(Arc<OwnFile>);

impl Awaited {
    pub(crate) fn new(stream: &Arc<OwnFile>) -> Awaited {
        let first = READING.with(|all| {
            let first = (all.len() >= AWAITED).then(|| all.remove(0));
            all.push(Arc::downgrade(stream));
            first
        });
        if let Some(first) = first.and_then(|it| it.upgrade())
            && first.is_ours()
        {
            // SAFETY: a socket of ours; the thread that reads from it sees its end.
            unsafe { libc::shutdown(first.as_raw_fd(), libc::SHUT_RDWR) };
        }
        Awaited(Arc::clone(stream))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.0);
        READING.with(|all| all.retain(|it| !it.ptr_eq(&own)));
    }
}

/// A place among the exchanges that are under way.
pub(crate) struct ExchangeSlot;

impl ExchangeSlot {
    pub(crate) fn take() -> Result<ExchangeSlot, String> {
        // Relaxed: a count, by which nothing is published.
        let before = EXCHANGING.fetch_add(1, Ordering::Relaxed);
        let place = ExchangeSlot;
        match before < EXCHANGES {
            true => Ok(place),
            false => Err(format!(
                "{EXCHANGES} exchanges are under way or wait for their turn: try again later"
            )),
        }
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        EXCHANGING.fetch_sub(1, Ordering::Relaxed);
    }
}
