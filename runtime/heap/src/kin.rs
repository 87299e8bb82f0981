//! Which other processes still have a copy of the mappings, and what must not change under
//! them.
//!
//! A child of `fork` executes its parent's pages. It goes on with whatever was alive when
//! it was made, for as long as it lives, and so do its own children. What was free then, or
//! dead, it never touches (`fork`). So one block at a time is held back: it is given back
//! only when no process is left that was made while the block lived.
//!
//! Nobody has to tell of a child, whichever system call made it, or of its end. The kernel
//! counts: a System V shared memory segment that nobody uses, the *mark*, is attached; each
//! copy of the address space attaches it once more, and the end of the copy, or its `exec`,
//! detaches it. Processes that share the memory (`vfork`, threads) are not copies and are not
//! counted. Time is cut into *epochs*, each with a mark of its own:
//!
//! - A block is born in the epoch of its allocation and dies in that of [`Kin::free`]'s look.
//! - The look: if somebody else has the current mark, the epoch ends: a new mark is attached,
//!   then the old one detached. Also after a fork that was told of, before the next allocation,
//!   so that what is made from then on is nobody else's.
//! - So who was made in an epoch has its mark, and nobody else has: the epoch is over for good
//!   when its mark is gone, which the kernel destroys with the last who has it.
//! - A block may go when none of the epochs from its birth to its death has somebody left.
//!
//! A child that is just being made has the mark or will be made without it: the look comes
//! after the proof that no thread of this process can return into the block, and waits until
//! no copy of the mappings is under way (a call that changes the mappings waits for that, see
//! [`Mark::is_shared`]). So a copy that has no mark yet is begun after the proof, by a thread
//! for which it holds.
//!
//! Where the kernel has no such segments, or all are taken ([`Mark::Refused`]), only forks
//! that are told of are known, and nobody knows their ends: what lived then is kept for ever.
//!
//! # Why
//! Copies of the process are counted by the kernel: a System V segment that nobody uses is
//! attached (`heap::kin`). Descriptors would be seen, and lists of children miss orphans. The
//! child of a fork freezes what it inherited; the parent goes on, and single blocks wait.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use crate::layout::PAGE;
use crate::reclaim::Retired;

/// So many past epochs are told apart. With more of them the current one goes on: more than
/// need be is kept then, until one of them is over.
const MAX_EPOCHS: usize = 64;

/// Kept blocks, and for whom.
#[derive(Debug)]
pub(crate) struct Kin {
    /// Whether other processes see what is written here, see `Backing`.
    shares: bool,
    epoch: u32,
    mark: Mark,
    /// Others have the current mark, and the epoch could not be ended.
    crowded: bool,
    /// A fork was told of, and nothing was allocated since.
    forked: bool,
    /// Epochs that are over and of which somebody is left.
    past: Vec<Past>,
    /// The last epoch of whose processes nothing is known.
    lost: Option<u32>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Past {
    epoch: u32,
    segment: Segment,
}

/// A block that no thread of this process can return into, since an epoch.
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

    /// In the parent of a fork that was told of.
    pub(crate) fn note_fork(&mut self) {
        self.forked = true;
        if let Mark::Refused = self.mark {
            self.lose();
        }
    }

    /// In the child: who its parent's other children are is not its concern. Gives what
    /// waited for them. The parent's mark stays attached: this process is who it is there
    /// for.
    pub(crate) fn after_fork_child(&mut self) -> Vec<Retired> {
        self.mark = Mark::None;
        let fresh = Kin::new(self.shares);
        let mut old = mem::replace(self, fresh);
        let waiting = mem::take(&mut old.waiting);
        waiting.into_iter().map(|one| one.block).collect()
    }

    /// Of `batch`, and of what waited, the blocks that no other process can be in. The rest
    /// waits. No thread of this process is in any of them.
    pub(crate) fn free(&mut self, batch: Vec<Retired>) -> Vec<Retired> {
        if !self.shares || batch.is_empty() && self.waiting.is_empty() {
            return batch;
        }
        // Who is made from now on is in none of them.
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

    /// Drops the epochs of which nobody is left, and ends the current one if somebody was
    /// made in it. Whether somebody is gone.
    fn look(&mut self) -> bool {
        let was_crowded = mem::take(&mut self.crowded);
        match self.mark.is_shared() {
            Some(true) => self.crowded = !self.turn(),
            // The segments of another namespace, by now.
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

    /// Ends the epoch of a mark that others have, if there is another mark to be had.
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

    /// Ends the epoch; of who was made until now nothing is known any more.
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
    /// Nothing was allocated yet that others could see.
    None,
    /// There is none to be had.
    Refused,
    Attached {
        segment: Segment,
        address: usize,
    },
}

/// A segment of this process's making. The second that it was made in tells it from a later
/// one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    id: i32,
    made: i64,
}

impl Mark {
    /// Makes a segment that goes with the last who has it, and attaches it. Everybody may
    /// look at it: the program may change its user.
    fn attach() -> Mark {
        // SAFETY: a new segment.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o444) };
        if id < 0 {
            return Mark::Refused;
        }
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let place = unsafe { libc::shmat(id, ptr::null(), libc::SHM_RDONLY) };
        // SAFETY: the segment made above, of which nobody else knows.
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

    /// Gives the segment, which others may have.
    fn detach(self) -> Option<Segment> {
        let Mark::Attached { segment, address } = self else {
            return None;
        };
        // SAFETY: attached there by `attach`, and used by nobody.
        unsafe { libc::shmdt(ptr::with_exposed_provenance::<c_void>(address)) };
        Some(segment)
    }

    /// Whether another process has it; `None` without a mark, or if nobody can say. A copy
    /// of this process that is being made is waited for.
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
    /// Whether somebody has it, who is not this process: that has detached it.
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
