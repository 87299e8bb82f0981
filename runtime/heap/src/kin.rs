//! Detects other processes with a copy of the mappings, and keeps the memory that must not change
//! under them.
//!
//! A child of `fork` executes its parent's pages. It uses all blocks that were live when it was
//! made, for as long as it lives, and so do its own children. It never touches blocks that were
//! free or dead then (`fork`). So single blocks are held back: a block is given back only when no
//! process is left that was made while the block was live.
//!
//! No child has to register, whichever system call made it, nor its end. The kernel counts: a
//! System V shared memory segment without other use, the *mark*, is attached. Each copy of the
//! address space attaches it once more, and the end of the copy, or its `exec`, detaches it.
//! Processes that share the memory (`vfork`, threads) are not copies and are not counted. Time is
//! cut into *epochs*, each with a mark of its own:
//!
//! - A block is born in the epoch of its allocation and dies in that of [`Kin::free`]'s look.
//! - The look: if another process has the current mark, the epoch ends: a new mark is attached,
//!   then the old one detached. The epoch also ends after an announced fork, before the next
//!   allocation, so that no child has the blocks made from then on.
//! - So a process made in an epoch has its mark, and no other process does. An epoch is
//!   over when its mark is gone: the kernel destroys it with the last process that has it.
//! - A block may be freed when none of the epochs from its birth to its death has a process left.
//!
//! A child that is just being made has the mark or will be made without it. The look comes after
//! the proof that no thread of this process can return into the block. It waits until no copy of
//! the mappings is in progress (a call that changes the mappings waits for that, see
//! [`Mark::is_shared`]). So a copy without a mark began after the proof, by a thread for which the
//! proof holds.
//!
//! Where the kernel has no such segments, or all are taken ([`Mark::Refused`]), only announced
//! forks are known, and their ends are not: blocks live then are kept for ever.
//!
//! # Why
//! The kernel counts copies of the process: an unused System V segment is attached (`heap::kin`).
//! Descriptors would be visible to the program, and lists of children miss orphans. The child of a
//! fork freezes inherited memory; the parent continues, and single blocks wait.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use crate::layout::PAGE;
use crate::reclaim::Retired;

/// Most past epochs that are kept apart. Beyond them the current epoch continues: more blocks than
/// necessary are kept then, until a past epoch is over.
const MAX_EPOCHS: usize = 64;

/// Blocks that are kept for other processes, and the epochs of those.
#[derive(Debug)]
pub(crate) struct Kin {
    /// Whether other processes see writes to this memory, see `Backing`.
    shares: bool,
    epoch: u32,
    mark: Mark,
    /// Other processes have the current mark, and the epoch could not be ended.
    crowded: bool,
    /// A fork was announced, and no block was allocated since.
    forked: bool,
    /// Epochs that have ended and still have a process left.
    past: Vec<Past>,
    /// The last epoch whose processes are unknown.
    lost: Option<u32>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Past {
    epoch: u32,
    segment: Segment,
}

/// A block that no thread of this process can return into, and the epoch of its death.
#[derive(Debug)]
struct Waiting {
    block: Retired,
    died: u32,
}

impl Kin {
    pub(crate) fn new(shares: bool) -> Kin {
        Kin {
            shares,
            epoch: 0,
            mark: Mark::None,
            crowded: false,
            forked: false,
            past: Vec::new(),
            lost: None,
            waiting: Vec::new(),
        }
    }

    /// The epoch of a block that is being allocated.
    pub(crate) fn born(&mut self) -> u32 {
        if !self.shares {
            return 0;
        }
        if let Mark::None = self.mark {
            self.mark = Mark::attach();
        }
        if mem::take(&mut self.forked) {
            self.look();
        }
        self.epoch
    }

    /// In the parent: notes an announced fork.
    pub(crate) fn note_fork(&mut self) {
        self.forked = true;
        if let Mark::Refused = self.mark {
            self.lose();
        }
    }

    /// In the child: resets the state, and returns the blocks that waited for the parent's other
    /// children, which do not matter here. The parent's mark stays attached: it is there to count
    /// this process.
    pub(crate) fn after_fork_child(&mut self) -> Vec<Retired> {
        self.mark = Mark::None;
        let fresh = Kin::new(self.shares);
        let mut old = mem::replace(self, fresh);
        let waiting = mem::take(&mut old.waiting);
        waiting.into_iter().map(|one| one.block).collect()
    }

    /// The blocks of `batch`, and of those that waited, that no other process can be in. The rest
    /// waits. No thread of this process is in any of them.
    pub(crate) fn free(&mut self, batch: Vec<Retired>) -> Vec<Retired> {
        if !self.shares || batch.is_empty() && self.waiting.is_empty() {
            return batch;
        }
        // Processes made from now on are in none of them.
        let died = self.epoch;
        let mut all = Vec::new();
        if self.look() {
            all.append(&mut self.waiting);
        }
        all.extend(batch.into_iter().map(|block| Waiting { block, died }));
        let mut free = Vec::with_capacity(all.len());
        for one in all {
            match self.keeps(&one) {
                true => self.waiting.push(one),
                false => free.push(one.block),
            }
        }
        free
    }

    /// Bytes that wait for other processes.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(|one| one.block.held).sum()
    }

    fn keeps(&self, one: &Waiting) -> bool {
        let lived = one.block.born..=one.died;
        self.lost.is_some_and(|lost| one.block.born <= lost)
            || self.crowded && one.died == self.epoch
            || self.past.iter().any(|past| lived.contains(&past.epoch))
    }

    /// Drops past epochs without processes, and ends the current one if a process was made in it.
    /// Returns whether a process is gone.
    fn look(&mut self) -> bool {
        let was_crowded = mem::take(&mut self.crowded);
        match self.mark.is_shared() {
            Some(true) => self.crowded = !self.turn(),
            // The segment numbers are now those of another namespace.
            None if matches!(self.mark, Mark::Attached { .. }) => {
                self.lose();
                self.mark = Mark::Refused;
            }
            Some(false) | None => {}
        }
        let before = self.past.len();
        self.past.retain(|past| past.segment.is_attached());
        self.past.len() < before || was_crowded && !self.crowded
    }

    /// Ends the epoch of a mark that others have, if a new mark is available.
    fn turn(&mut self) -> bool {
        if self.past.len() >= MAX_EPOCHS {
            return false;
        }
        let next = Mark::attach();
        if let Mark::Refused = next {
            return false;
        }
        let epoch = self.epoch;
        if let Some(segment) = mem::replace(&mut self.mark, next).detach() {
            self.past.push(Past { epoch, segment });
        }
        self.epoch += 1;
        true
    }

    /// Ends the epoch; the processes made until now are unknown from here on.
    fn lose(&mut self) {
        self.lost = Some(self.epoch);
        self.past.clear();
        self.epoch += 1;
    }
}

impl Drop for Kin {
    fn drop(&mut self) {
        mem::replace(&mut self.mark, Mark::None).detach();
    }
}

/// The mark of the current epoch.
#[derive(Debug)]
enum Mark {
    /// No block that others could see was allocated yet.
    None,
    /// The kernel grants no segment.
    Refused,
    Attached {
        segment: Segment,
        address: usize,
    },
}

/// A segment made by this process. The second of its creation distinguishes it from a later one of
/// the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    id: i32,
    made: i64,
}

impl Mark {
    /// Makes a segment that is destroyed with its last user, and attaches it. All users may read
    /// it: the program may change its user.
    fn attach() -> Mark {
        // SAFETY: a new segment.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o444) };
        if id < 0 {
            return Mark::Refused;
        }
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let place = unsafe { libc::shmat(id, ptr::null(), libc::SHM_RDONLY) };
        // SAFETY: the segment made above, which no other code knows.
        unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
        if place.addr() == usize::MAX {
            return Mark::Refused;
        }
        let made = state(id).map_or(0, |state| state.shm_ctime);
        Mark::Attached {
            segment: Segment { id, made },
            address: place.expose_provenance(),
        }
    }

    /// Detaches the segment and returns it; other processes may have it.
    fn detach(self) -> Option<Segment> {
        let Mark::Attached { segment, address } = self else {
            return None;
        };
        // SAFETY: attached there by `attach`, and not accessed by any code.
        unsafe { libc::shmdt(ptr::with_exposed_provenance::<c_void>(address)) };
        Some(segment)
    }

    /// Whether another process has it; `None` without a mark, or if the kernel does not tell. It
    /// waits for a copy of this process in progress.
    fn is_shared(&self) -> Option<bool> {
        let Mark::Attached { segment, address } = *self else {
            return None;
        };
        let place = ptr::with_exposed_provenance_mut::<c_void>(address);
        // The kernel copies all mappings under the lock that this takes.
        // SAFETY: the protection that our mapping has already.
        unsafe { libc::mprotect(place, PAGE, libc::PROT_READ) };
        let state = state(segment.id).ok()?;
        (state.shm_ctime == segment.made).then_some(state.shm_nattch > 1)
    }
}

impl Segment {
    /// Whether a process has it. This process has detached it.
    fn is_attached(self) -> bool {
        match state(self.id) {
            Ok(state) => state.shm_ctime == self.made && state.shm_nattch > 0,
            Err(errno) => !matches!(errno, libc::EINVAL | libc::EIDRM),
        }
    }
}

fn state(id: i32) -> Result<libc::shmid_ds, i32> {
    let mut state = mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: room for the answer.
    match unsafe { libc::shmctl(id, libc::IPC_STAT, state.as_mut_ptr()) } {
        // SAFETY: plain numbers, filled in or zero.
        0 => Ok(unsafe { state.assume_init() }),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(test)]
#[path = "kin_tests.rs"]
mod tests;
