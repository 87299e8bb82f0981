//! Threads of the runtime that are about to end.
//!
//! On its way out a thread gives its memory back to the C library's allocator, under the
//! allocator's locks, and can hold no pass while it does. A thread that copies the process past
//! `fork` holds all passes and then waits here ([`wait`]): in the copy those locks are open, unless
//! a thread of the program holds one.
//!
//! A list of fixed size, since the waiting thread may have interrupted the allocator. Relaxed: a
//! thread enters itself under a pass, and passes are given and taken under a lock.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kernel ids; 0 in a free place.
static LEAVING: [AtomicI32; 32] = [const { AtomicI32::new(0) }; 32];

/// When the thread in the same place of [`LEAVING`] was noted, in milliseconds.
static NOTED: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// Time for which an id surely is that of the thread that was noted: the kernel gives an id again once
/// it has given all others, of which there are 32,768 or more.
const SURE: u64 = 200;

/// The longest wait: the rest of a thread's life takes microseconds of a processor.
const LIMIT: Duration = Duration::from_secs(1);

/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(20);

fn is_gone(id: i32) -> bool {
    // SAFETY: no signal is sent.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) };
    asked != 0
}

/// Notes that the calling thread does nothing more than end. Under its last pass.
pub(super) fn note() {
    // SAFETY: takes nothing, cannot fail.
    let me = unsafe { libc::gettid() };
    loop {
        for (slot, noted) in LEAVING.iter().zip(&NOTED) {
            let held = slot.load(Ordering::Relaxed);
            let free = held == 0 || is_gone(held);
            if free
                && slot
                    .compare_exchange(held, me, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                noted.store(now(), Ordering::Relaxed);
                return;
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Milliseconds of the monotonic clock.
fn now() -> u64 {
    uruk_profiler::now() / 1_000_000
}

/// Ids of threads that were noted a moment ago.
pub(in crate::fork) fn recent() -> impl Iterator<Item = i32> {
    let now = now();
    let slots = LEAVING.iter().zip(&NOTED);
    let recent =
        slots.filter(move |(_, noted)| now.saturating_sub(noted.load(Ordering::Relaxed)) < SURE);
    recent
        .map(|(slot, _)| slot.load(Ordering::Relaxed))
        .filter(|&id| id != 0 && has_name_of_ours(id))
}

/// Whether the kernel knows a thread of this id by a name that the runtime gives: threads of the program
/// have the program's.
fn has_name_of_ours(id: i32) -> bool {
    let name = uruk_files::read_to_string(format!("/proc/self/task/{id}/comm"));
    name.is_ok_and(|name| name.starts_with("uruk-"))
}

/// Whether the list has a thread, by its kernel id.
pub(crate) fn has(id: i32) -> bool {
    LEAVING
        .iter()
        .any(|slot| slot.load(Ordering::Relaxed) == id)
}

/// Waits until all listed threads are gone. Allocates nothing.
pub(crate) fn wait() {
    let start = Instant::now();
    for slot in &LEAVING {
        let id = slot.load(Ordering::Relaxed);
        if id == 0 {
            continue;
        }
        while !is_gone(id) && start.elapsed() < LIMIT {
            std::thread::sleep(PAUSE);
        }
        slot.store(0, Ordering::Relaxed);
    }
}

/// Waits until the kernel knows no thread of this id. Allocates nothing.
pub(crate) fn wait_for(id: i32) {
    let start = Instant::now();
    while !is_gone(id) && start.elapsed() < LIMIT {
        std::thread::sleep(PAUSE);
    }
}

/// In a child: none of these threads is there.
pub(crate) fn after_fork_child() {
    LEAVING
        .iter()
        .for_each(|slot| slot.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::{LEAVING, is_gone, note, wait};
    use std::sync::atomic::Ordering;

    #[test]
    fn nobody_is_left_after_a_wait() {
        let threads: Vec<_> = (0..100)
            .map(|_| {
                std::thread::spawn(|| {
                    let _pass = crate::fork::gate::enter();
                    note();
                    // SAFETY: takes nothing.
                    unsafe { libc::gettid() }
                })
            })
            .collect();
        let ids: Vec<i32> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        wait();
        assert!(ids.iter().all(|&id| is_gone(id)));
        assert!(LEAVING.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
    }
}
