//! `membarrier`: a fence, or a core serialization, on every running thread.
//!
//! `fence_all_threads` orders a store to a slot before a scan that follows it.
//! `serialize_cores` prevents cores from continuing with instructions fetched before it; it is required
//! before addresses of code are reused. Both cost about a microsecond on an idle process and 11 to 13 us
//! with another thread running.
//!
//! Where `membarrier` is refused, running on each processor in turn gives a fence. The thread that ran
//! there before was switched from, which orders its memory, and so was a thread that moves meanwhile.
//! (liburcu did so before `membarrier` existed.)

use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// A barrier the kernel does not offer (it needs Linux 4.16), or a filter forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("membarrier command {command} failed: {}", std::io::Error::from_raw_os_error(*.errno))]
#[non_exhaustive]
pub struct BarrierError {
    /// The command, as in `linux/membarrier.h`.
    pub command: u64,
    /// The error's number.
    pub errno: i32,
}

const PRIVATE_EXPEDITED: u64 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: u64 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: u64 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: u64 = 1 << 6;

/// Processes that registered: a child of `fork` inherits the registration with its
/// memory, and registering twice is harmless.
static FENCE_OF: AtomicI32 = AtomicI32::new(0);
static CORES_OF: AtomicI32 = AtomicI32::new(0);

fn barrier(command: u64, register: u64, of: &AtomicI32) -> Result<(), BarrierError> {
    let run = |command| {
        let failed = |errno| BarrierError { command, errno };
        sys::membarrier(command).map(|_| ()).map_err(failed)
    };
    let pid = sys::getpid();
    // Relaxed: a stale value costs one more registration.
    if of.load(Ordering::Relaxed) != pid {
        run(register)?;
        of.store(pid, Ordering::Relaxed);
    }
    run(command)
}

/// Makes every thread of the process run a full memory barrier between start and end of this.
///
/// # Errors
/// The kernel or a filter refuses `membarrier` and `sched_setaffinity`.
pub fn fence_all_threads() -> Result<(), BarrierError> {
    let fenced = barrier(PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED, &FENCE_OF);
    fenced.or_else(|error| visit_all_processors().map_err(|_| error))
}

/// Runs on each processor in turn; returns the error's number if that is refused.
fn visit_all_processors() -> Result<(), i32> {
    std::sync::atomic::fence(Ordering::SeqCst);
    let mut before = Processors::default();
    let count = sys::affinity(&mut before.0)? * 8;
    let mut visited = false;
    for number in 0..count {
        match sys::set_affinity(&Processors::only(number).0) {
            Ok(()) => visited = true,
            // Missing, or not available to this process.
            Err(libc::EINVAL) => {}
            Err(errno) => {
                let _ = sys::set_affinity(&before.0);
                return Err(errno);
            }
        }
    }
    let restored = sys::set_affinity(&before.0);
    if !visited {
        return Err(libc::EINVAL);
    }
    restored
}

/// A set of processors, in the kernel's format.
#[derive(Default)]
struct Processors([u64; 32]);

impl Processors {
    fn only(number: usize) -> Processors {
        let mut all = Processors::default();
        if let Some(word) = all.0.get_mut(number / 64) {
            *word = 1 << (number % 64);
        }
        all
    }
}

/// Makes every thread of the process run a core-serializing instruction between the start of this and
/// the next user instruction it executes.
///
/// # Errors
/// The kernel or a filter refuses.
pub fn serialize_cores() -> Result<(), BarrierError> {
    barrier(
        PRIVATE_EXPEDITED_SYNC_CORE,
        REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        &CORES_OF,
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_visit_of_all_processors_leaves_the_thread_where_it_may_run() {
        let mut before = super::Processors::default();
        super::sys::affinity(&mut before.0).expect("a set");
        super::visit_all_processors().expect("a visit");
        let mut after = super::Processors::default();
        super::sys::affinity(&mut after.0).expect("a set");
        assert_eq!(before.0, after.0);
    }

    #[test]
    fn both_barriers_work_and_repeat() {
        for _ in 0..3 {
            super::fence_all_threads().expect("a fence");
            super::serialize_cores().expect("a serialization");
        }
    }
}
