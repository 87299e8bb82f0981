//! Scans a sleeping thread from outside, without a signal.
//!
//! A look reads, in this order: how often the thread got a processor; its system call (number,
//! arguments, stack pointer, program counter); its stacks by copying; both again. If nothing changed,
//! the thread was off the processor from the first answer of the kernel to the last. Then the data are
//! its state when it wakes up.
//!
//! # Registers that cannot be seen
//! The kernel does not show rbx, rbp, r12 to r15 of a sleeping thread. Code does not return or jump
//! through them without being on the stack as well: a frame that made a call has its own return address
//! there, and the innermost code, which made the system call, is the program counter, which is shown.
//! Generated code has no other pointers into code (function addresses are stubs').
//!
//! That is an argument about code. A pointer kept as data may be in such a register and nowhere else:
//! `puts`, called last by a function that is then on no stack, waits for its stream's lock with the
//! address of the text in rbx. So a range must only hold data that its own code and unwinders through it
//! read: a thread that is about to read such data is found in the code. The requester ensures this (in a
//! session `uruk_codegen`'s `apart` and `constants` of the library).
//!
//! rdi, rsi, rdx, r10, r8 and r9 are shown and are scanned: `vfork` keeps its return
//! address in rdi while the child runs on the same stack and overwrites the word there.
//! The child itself is no thread of the process: its parent is not scanned until the child is gone
//! ([`Look::Vfork`]).
//!
//! A thread that sleeps in a page fault, or was stopped outside of a system call, may hold any value in
//! registers; it is asked by a signal. A thread that was stopped in a system call is in it for the
//! kernel: it is read like a sleeper. When the process is continued while a signal is on its way, the
//! call ends for that signal or is about to be restarted; the handler begins both anew (`rewind`).

use std::ops::Range;
use std::sync::Arc;

use crate::frames::return_addresses;
use crate::handler::BUFFER;
use crate::hits::Hits;
use crate::maps::Maps;
use crate::mask;
use crate::report::Why;
use crate::scratch::Scratch;
use crate::stacks::Stacks;
use crate::sys;
use crate::tables::{RowsOf, Tables};
use crate::task::{self, Outside, Unread};
use crate::walk::{Copied, Ground, Memory, Trouble, walk};

/// Looks at a thread that moves all the time before the attempt is given up.
const TRIES: u32 = 4;

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Scanned; the hits are in the looker.
    Scanned { tries: u32, bytes: u64 },
    /// Running, or in a fault: to be asked by a signal.
    Running,
    /// Waits for a child on the same memory.
    Vfork,
    /// It has ended.
    Gone,
    /// Cannot be scanned.
    Failed(Why),
}

/// State of the requester while it scans.
#[derive(Debug)]
pub(crate) struct Looker<'a> {
    pub(crate) pid: i32,
    pub(crate) limit: u64,
    /// Running threads measure their processor time.
    pub(crate) timed: bool,
    pub(crate) hits: Hits,
    pub(crate) maps: Arc<Maps>,
    range: Range<u64>,
    stacks: &'a Stacks,
    /// Counts only return addresses where tables identify them.
    rows: Option<RowsOf>,
    tables: Option<Tables>,
    buffer: Scratch,
}

impl<'a> Looker<'a> {
    pub(crate) fn new(range: Range<u64>, limit: u64, stacks: &'a Stacks) -> std::io::Result<Self> {
        mask::scan_begins();
        Ok(Self {
            pid: sys::getpid(),
            limit,
            timed: false,
            hits: Hits::new(&range, Hits::FIRST),
            maps: Arc::new(Maps::take(stacks.ranges())?),
            range,
            stacks,
            rows: None,
            tables: None,
            buffer: Scratch::new(BUFFER * 4),
        })
    }

    /// Counts only return addresses of sleeping threads.
    pub(crate) fn by_frames(&mut self, rows: RowsOf) {
        self.rows = Some(rows);
    }

    /// Takes a new snapshot of the mappings.
    pub(crate) fn refresh(&mut self) -> std::io::Result<()> {
        self.tables = None;
        self.maps = Arc::new(Maps::take(self.stacks.ranges())?);
        Ok(())
    }

    /// The range of hits.
    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// The buffer to which stacks are copied.
    pub(crate) fn buffer(&self) -> Range<u64> {
        let range = self.buffer.as_ptr_range();
        range.start as u64..range.end as u64
    }

    /// Looks at a thread.
    pub(crate) fn look(&mut self, tid: i32) -> Look {
        let mut tries = 0;
        let mut last = Look::Running;
        while tries < TRIES {
            tries += 1;
            match self.look_once(tid) {
                Ok(Some(bytes)) => return Look::Scanned { tries, bytes },
                Ok(None) => last = Look::Running,
                Err(LookStop::Look(look)) => return look,
                Err(LookStop::Trouble(trouble)) => match self.cure(trouble) {
                    Ok(()) => last = Look::Failed(why(trouble)),
                    Err(why) => return Look::Failed(why),
                },
            }
        }
        last
    }

    /// Scans once; `None`: the thread moved meanwhile.
    fn look_once(&mut self, tid: i32) -> Result<Option<u64>, LookStop> {
        let switches = task::switches(tid)?;
        let before = task::outside(tid)?;
        let (number, words) = match before {
            Outside::Running | Outside::InFault => return Err(LookStop::Look(Look::Running)),
            Outside::Ended => return Err(LookStop::Look(Look::Gone)),
            Outside::InCall { number, words } => (number, words),
        };
        mask::note_call(number);
        if self.has_child_on_this_memory(number, words[0]) {
            return Err(LookStop::Look(Look::Vfork));
        }
        self.hits.reset(&self.range);
        for word in words {
            self.hits.note(word);
        }
        let tcb = sys::robust_list(tid);
        let scanned = self.walk(tid, tcb, words[6]);
        if scanned.is_ok() && !self.hits.is_empty() {
            self.keep_return_addresses(tid, tcb, &words);
        }
        let same = task::outside(tid)? == before && task::switches(tid)? == switches;
        match scanned {
            Ok(bytes) => Ok(same.then_some(bytes)),
            Err(_) if !same => Ok(None),
            Err(trouble) => Err(LookStop::Trouble(trouble)),
        }
    }

    /// Replaces the hits of a thread by those of its return addresses, and of its system call, if these
    /// can be determined.
    fn keep_return_addresses(&mut self, tid: i32, tcb: u64, words: &[u64; 8]) {
        let Some(rows) = self.rows else {
            return;
        };
        let (sp, pc) = (words[6], words[7]);
        let own = self.maps.own(tcb, tid == self.pid);
        let mut own = own.into_iter().flatten();
        let Some((own, is_first)) = own.find(|(own, _)| own.contains(&sp)) else {
            return;
        };
        if self.tables.is_none() {
            self.tables = Tables::take(self.pid, rows).ok();
        }
        let Some(tables) = &mut self.tables else {
            return;
        };
        let found = return_addresses(tables, (pc, sp), &own, is_first);
        if let Some(found) = found {
            self.hits.reset(&self.range);
            let words = words.iter().copied();
            words.chain(found).for_each(|word| self.hits.note(word));
        }
    }

    /// Walks the stacks reachable from `sp`.
    pub(crate) fn walk(&mut self, tid: i32, tcb: u64, sp: u64) -> Result<u64, Trouble> {
        let ground = Ground {
            maps: &self.maps,
            tcb,
            first: tid == self.pid,
            alternate: (0, 0),
            limit: self.limit,
        };
        let mut memory = Copied {
            pid: self.pid,
            buffer: &mut self.buffer,
        };
        walk(&mut memory, &ground, sp, &mut self.hits)
    }

    /// Scans a registered stack as plain memory; false if it cannot be read.
    pub(crate) fn scan_memory(&mut self, range: &Range<u64>) -> Result<bool, Trouble> {
        loop {
            self.hits.reset(&self.range);
            let mut memory = Copied {
                pid: self.pid,
                buffer: &mut self.buffer,
            };
            let mut at = range.start;
            while at < range.end {
                let words = memory.words(at, range.end, false);
                if words.is_empty() {
                    return Ok(false);
                }
                at += words.len() as u64 * 8;
                words.iter().for_each(|&word| self.hits.note(word));
            }
            if !self.hits.overflowed() {
                return Ok(true);
            }
            self.hits = self.hits.larger().ok_or(Trouble::Overflow)?;
        }
    }

    /// Prepares another attempt.
    pub(crate) fn cure(&mut self, trouble: Trouble) -> Result<(), Why> {
        match trouble {
            Trouble::Stale(_) => self.refresh().map_err(|_| why(trouble)),
            Trouble::Overflow => {
                self.hits = self.hits.larger().ok_or(why(trouble))?;
                Ok(())
            }
            Trouble::ManySpans | Trouble::Large(_) => Err(why(trouble)),
        }
    }

    /// Whether the call is `vfork` or a `clone` like it.
    fn has_child_on_this_memory(&mut self, number: i64, first: u64) -> bool {
        let flags = match number {
            libc::SYS_vfork => return true,
            libc::SYS_clone => first,
            libc::SYS_clone3 => {
                let mut flags = [0];
                match sys::read_words(self.pid, first, &mut flags) {
                    1 => flags[0],
                    _ => return false,
                }
            }
            _ => return false,
        };
        let like = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        flags & like == like
    }
}

/// Reasons that end a look early.
enum LookStop {
    Look(Look),
    Trouble(Trouble),
}

impl From<Unread> for LookStop {
    fn from(unread: Unread) -> Self {
        Self::Look(match unread {
            Unread::Gone => Look::Gone,
            Unread::Forbidden(errno) => Look::Failed(Why::Hidden(errno)),
        })
    }
}

/// Converts a trouble to its public reason.
pub(crate) fn why(trouble: Trouble) -> Why {
    match trouble {
        Trouble::Stale(address) => Why::UnknownStack(address),
        Trouble::ManySpans => Why::ManyStacks,
        Trouble::Large(bytes) => Why::LargeStack(bytes),
        Trouble::Overflow => Why::ManyHits,
    }
}
