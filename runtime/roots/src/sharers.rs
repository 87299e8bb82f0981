//! Processes that run on this memory and are no threads of it.
//!
//! `clone` with `CLONE_VM` and without `CLONE_THREAD` makes one. It may run code of the region on a
//! stack of its own, is in no list of threads and cannot be asked: while one exists, nothing is proved.
//!
//! # How it is found
//! | step | cost | ends the search |
//! |---|---|---|
//! | `waitid` that waits for nothing and takes nothing | one system call | no children of any thread |
//! | `/proc/self/task/TID/children` | a file for each thread | all were asked |
//! | a number written here is read in the child's memory | one system call for each child | it is another one, or cannot be read |
//!
//! A child of `fork` has an older number at that place, or the same one if it was made between the store
//! and the read: so two numbers are tried. A process that runs another program has no such place, or
//! cannot be read if it runs as another user.
//!
//! # Why the search is at the end of a scan
//! Such a process comes from a thread that is scanned, or from another such process. One that exists at
//! the end is found; one that ended before returns nowhere.
//!
//! Not found: a process whose maker gave it another parent (`CLONE_PARENT`), or has ended and was a
//! process of this kind itself. Where `/proc` does not list children, any child counts as one.
//! taken for one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;
use crate::task::{self, Unread};

/// The number that is read in children. Relaxed: the kernel reads it, after a system call of the thread
/// that wrote it.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Times the children are listed, if threads end meanwhile.
const TRIES: usize = 8;

/// The process id of one that shares this memory; 0 for a child that cannot be checked.
pub(crate) fn find() -> Option<i32> {
    if !sys::has_children() {
        return None;
    }
    for _ in 0..TRIES {
        let Ok((tids, _)) = task::list() else {
            return Some(0);
        };
        let mut whole = true;
        for tid in tids {
            match task::children(tid) {
                Ok(children) => {
                    let mut children = children.into_iter();
                    if let Some(child) = children.find(|&child| shares(child)) {
                        return Some(child);
                    }
                }
                // Its children went to another thread, which may have been listed already.
                Err(Unread::Gone) => whole = false,
                Err(Unread::Forbidden(_)) => return Some(0),
            }
        }
        if whole {
            return None;
        }
    }
    Some(0)
}

/// Whether a number written here appears there, too.
fn shares(child: i32) -> bool {
    (0..2).all(|_| {
        let number = NUMBER.load(Ordering::Relaxed).wrapping_add(1) | 1 << 63;
        NUMBER.store(number, Ordering::Relaxed);
        let mut read = [0];
        let count = sys::read_words(child, NUMBER.as_ptr() as u64, &mut read);
        count == 1 && read[0] == number
    })
}

#[cfg(test)]
mod tests {
    use super::{find, shares};
    use crate::sys;

    #[test]
    fn a_child_of_fork_has_memory_of_its_own() {
        let own = sys::getpid();
        assert!(shares(own), "who asks does");
        // SAFETY: the child only waits to be ended.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: waits.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0 && sys::has_children());
        assert!(!shares(child));
        // Of this and of other tests; none of them shares.
        assert_eq!(find(), None);
        let mut status = 0;
        // SAFETY: a child of ours.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: the same.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(!shares(child), "nobody is there");
    }
}
