//! Redirects entries of native functions to their stubs, and back.
//!
//! The compiler left room in front of each entry and a two-byte instruction without effect at it
//! (`-fpatchable-function-entry=64,62`). A redirected entry is
//!
//! ```text
//! entry - 14:  ff 25 00 00 00 00    jmp [rip]
//! entry -  8:  the stub's address, 8 bytes
//! entry     :  eb f0                jmp entry - 14         (else 66 90, xchg ax, ax)
//! entry +  2:  the function, which is where the stub's slot leads natively
//! ```
//!
//! With `-fcf-protection` the entry begins with `endbr64`, and the two bytes come behind that, with a
//! jump that is as much longer (`eb ec`). The stub's target does not begin with `endbr64`: the kernel
//! enforces indirect-branch tracking for no process.
//!
//! # No thread executes half an instruction
//! The room is written first; nothing jumps there yet. Then all cores are serialized (`membarrier`,
//! SYNC_CORE), and the two bytes at the entry are written by one aligned store. Functions are aligned to
//! 16 bytes with their rooms; behind 14, 16 or 62 bytes the two of the entry lie within one aligned
//! eight bytes, thus within one cache line. AMD's manual allows this without a handshake (volume 2,
//! 7.6.1, asynchronous modification: a store within an aligned quadword). Intel's (volume 3,
//! cross-modifying code) does not promise it in writing, but its processors have been patched like this
//! since Windows' hot patching of 2003. An entry with another alignment is not redirected. Restoring is
//! the same store of the old bytes. The room keeps its jump, as a thread may be about to execute it; its
//! target is the stub, which is never freed.
//!
//! # Pages are never writable and executable at one address
//! The written pages of the text are copied into memory of a file without a name, which is mapped twice.
//! One mapping lies over the text, to be executed: one system call leaves every thread either the old or
//! the new pages, whose bytes are the same. The other one is for writing. Pages of functions that are
//! never redirected stay the file's. The child of a fork shares the copy, and so entries that its parent
//! redirects. They lead to stubs that the child has, too; its slots are its own, and lead to the native
//! code behind the entry until the child publishes a version.
//!
//! # Access
//! | what | written by | ordering |
//! |---|---|---|
//! | a room | the holder of the lock, while nothing jumps there | before the barrier |
//! | an entry | the holder of the lock | release; its partner is instruction fetch |
//!
//! No child of a fork finds the lock held ([`Locked`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use uruk_files::OwnFile;

use crate::choose::{HOP, ROOM};
use crate::locked::Locked;

/// `xchg ax, ax`.
const PLAIN: u16 = u16::from_le_bytes([0x66, 0x90]);

/// `endbr64`.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// `jmp [rip + 0]`, of six bytes.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// Text that is remapped at once: few mappings, and few bytes copied for one function.
const CHUNK: u64 = 64 << 10;

/// An entry cannot be redirected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The bytes at the entry are not those that the compiler emits.
    #[error("at {entry:#x}: {found:02x?} is no room for a jump")]
    Occupied {
        /// The entry.
        entry: u64,
        /// The room and the entry.
        found: [u8; ROOM as usize + 2],
    },
    /// The two bytes are not within an aligned quadword.
    #[error("at {entry:#x}: cannot be written by one store")]
    Unaligned {
        /// The entry.
        entry: u64,
    },
    /// It is not in the text of any file.
    #[error("at {entry:#x}: no text")]
    Elsewhere {
        /// The entry.
        entry: u64,
    },
    /// The kernel refuses memory, or its protection.
    #[error("{what}: {cause}")]
    Refused {
        /// The resource that was requested.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// The two bytes of an entry that are changed.
#[derive(Debug, Clone, Copy)]
struct Hop {
    /// Bytes of the entry before them.
    behind: u64,
    /// Their new value: a jump from behind them to the beginning of the room.
    jump: u16,
}

impl Hop {
    /// The two bytes of an entry that lies in one of these ranges of text.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn of(entry: u64, text: &[Range<u64>]) -> Hop {
        let size = LANDING.len() as u64;
        let inside = |range: &Range<u64>| range.start <= entry && entry + size <= range.end;
        let lands = text.iter().any(inside)
            // SAFETY: text, by the caller's promise.
            && unsafe { (entry as *const [u8; 4]).read_unaligned() } == LANDING;
        let behind = if lands { size } else { 0 };
        let back = (ROOM + behind + HOP) as u8;
        Hop {
            behind,
            jump: u16::from_le_bytes([0xeb, back.wrapping_neg()]),
        }
    }
}

/// Text that is mapped twice.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    end: u64,
    /// Offset from an address to its writable mapping.
    writable: i64,
}

#[derive(Debug, Default)]
struct State {
    chunks: BTreeMap<u64, Chunk>,
    /// Prepared entries, and the targets of their rooms.
    rooms: HashMap<u64, u64>,
}

/// The entries of a process that are, or were, redirected.
#[derive(Debug, Default)]
pub struct Entries {
    text: Vec<Range<u64>>,
    state: Locked<State>,
}

impl Entries {
    /// Entries of code that lies in these ranges.
    ///
    /// # Safety
    /// They are text of files that stay loaded; no other code writes to or remaps it.
    pub unsafe fn new(text: Vec<Range<u64>>) -> Entries {
        Entries {
            text,
            state: Locked::default(),
        }
    }

    fn hop(&self, entry: u64) -> Hop {
        // SAFETY: text that stays loaded, by the promise of `new`, can be read.
        unsafe { Hop::of(entry, &self.text) }
    }

    /// Address of the function behind the bytes that are changed.
    pub fn behind(&self, entry: u64) -> u64 {
        entry + self.hop(entry).behind + HOP
    }

    /// Whether an entry and the room before it hold the bytes that the compiler puts there.
    ///
    /// # Errors
    /// [`EntryError`]: the reason why it cannot be redirected.
    pub fn check(&self, entry: u64) -> Result<(), EntryError> {
        let (room, hop) = (entry.wrapping_sub(ROOM), self.hop(entry));
        let at = entry + hop.behind;
        let inside = |range: &Range<u64>| range.contains(&room) && at + HOP <= range.end;
        if !self.text.iter().any(inside) {
            return Err(EntryError::Elsewhere { entry });
        }
        if !at.is_multiple_of(2) || at / 8 != (at + 1) / 8 {
            return Err(EntryError::Unaligned { entry });
        }
        let mut found = [0; ROOM as usize + 2];
        let (before, two) = found.split_at_mut(ROOM as usize);
        // SAFETY: as in `hop`; both lie in it, as was looked at.
        unsafe {
            (room as *const u8).copy_to_nonoverlapping(before.as_mut_ptr(), before.len());
            (at as *const u8).copy_to_nonoverlapping(two.as_mut_ptr(), two.len());
        }
        let two = u16::from_le_bytes([two[0], two[1]]);
        let is_prepared = [PLAIN, hop.jump].contains(&two)
            && found.starts_with(&JUMP)
            && self.state.with(|state| state.rooms.contains_key(&entry));
        match is_prepared || two == PLAIN && is_padding(&found) {
            true => Ok(()),
            false => Err(EntryError::Occupied { entry, found }),
        }
    }

    /// Redirects calls of a native function to `target`, now or a little later. Does nothing if they are
    /// already redirected.
    ///
    /// # Safety
    /// All threads that run the function may run the code at `target`, which stays there.
    ///
    /// # Errors
    /// [`EntryError`]; the entry is unchanged.
    pub unsafe fn redirect(&self, entry: u64, target: u64) -> Result<(), EntryError> {
        self.check(entry)?;
        let hop = self.hop(entry);
        // SAFETY: by the caller's promise.
        self.state
            .with(|state| unsafe { state.redirect(entry, hop, target, &self.text) })
    }

    /// Lets calls of a native function reach its own code again. Does nothing if they do.
    pub fn restore(&self, entry: u64) {
        self.restore_unless(entry, || false);
    }

    /// Like [`restore`](Entries::restore), unless calls are to be redirected.
    ///
    /// `is_led` reads state that is set before [`redirect`](Entries::redirect): the later of the two
    /// calls decides.
    pub(crate) fn restore_unless(&self, entry: u64, is_led: impl FnOnce() -> bool) {
        let hop = self.hop(entry);
        self.state.with(|state| {
            if is_led() {
                return;
            }
            let writable = state.found(entry + hop.behind);
            if let Some(writable) = writable.filter(|_| state.rooms.contains_key(&entry)) {
                // SAFETY: as in `redirect`.
                let at = unsafe { AtomicU16::from_ptr(writable as *mut u16) };
                // A program may have written other bytes there; these are not changed.
                let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
                let _ = at.compare_exchange(hop.jump, PLAIN, release, relaxed);
            }
        });
    }

    /// Whether calls of a native function are redirected.
    pub fn is_redirected(&self, entry: u64) -> bool {
        let hop = self.hop(entry);
        let writable = self.state.with(|state| state.found(entry + hop.behind));
        let Some(writable) = writable else {
            return false;
        };
        // SAFETY: as in `redirect`.
        let at = unsafe { AtomicU16::from_ptr(writable as *mut u16) };
        at.load(Ordering::Relaxed) == hop.jump
    }
}

/// Whether a room holds nothing but instructions without effect.
fn is_padding(found: &[u8; ROOM as usize + 2]) -> bool {
    // Padding of compilers: `nop`, and `nop` of several bytes with prefixes.
    let mut rest = &found[..ROOM as usize];
    while let Some((&first, more)) = rest.split_first() {
        rest = match (first, more) {
            (0x90 | 0xcc, _) => more,
            (0x66 | 0x2e, _) => more,
            (0x0f, [0x1f, form, ..]) => {
                let length = match form {
                    0x00 => 2,
                    0x40 => 3,
                    0x44 => 4,
                    0x80 => 6,
                    0x84 => 7,
                    _ => return false,
                };
                match more.get(length..) {
                    Some(rest) => rest,
                    None => return false,
                }
            }
            _ => return false,
        };
    }
    true
}

impl State {
    /// Implements [`Entries::redirect`] for an entry that was checked.
    ///
    /// # Safety
    /// Those of [`Entries::redirect`].
    unsafe fn redirect(
        &mut self,
        entry: u64,
        hop: Hop,
        target: u64,
        text: &[Range<u64>],
    ) -> Result<(), EntryError> {
        let writable = self.writable(entry, hop, text)?;
        if self.rooms.insert(entry, target) != Some(target) {
            let room = (writable - hop.behind - ROOM) as *mut u8;
            // SAFETY: the copy of the room, which is mapped for writing, and to which no thread
            // jumps before the store below: an entry has one target for ever, its stub.
            unsafe {
                room.copy_from_nonoverlapping(JUMP.as_ptr(), JUMP.len());
                room.add(JUMP.len()).cast::<u64>().write_unaligned(target);
            }
            serialize();
        }
        // SAFETY: the copy of the entry, mapped for writing and aligned, as it was checked.
        let at = unsafe { AtomicU16::from_ptr(writable as *mut u16) };
        // Release: after the room; see the table. A program that wrote other bytes there meanwhile has
        // made it another function.
        match at.compare_exchange(PLAIN, hop.jump, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(other) if other == hop.jump => Ok(()),
            Err(other) => {
                let mut found = [0; ROOM as usize + 2];
                found[ROOM as usize..].copy_from_slice(&other.to_le_bytes());
                Err(EntryError::Occupied { entry, found })
            }
        }
    }

    /// The writable address of an address, if its page was copied.
    fn found(&self, address: u64) -> Option<u64> {
        let (_, chunk) = self.chunks.range(..=address).next_back()?;
        (address < chunk.end).then(|| address.wrapping_add_signed(chunk.writable))
    }

    /// Like [`State::found`], for the two bytes; copies pages where needed.
    fn writable(&mut self, entry: u64, hop: Hop, text: &[Range<u64>]) -> Result<u64, EntryError> {
        let missing = EntryError::Elsewhere { entry };
        let (room, at) = (entry - ROOM, entry + hop.behind);
        for address in [room, at] {
            if self.found(address).is_none() {
                let range = text.iter().find(|range| range.contains(&address));
                let range = range.ok_or(EntryError::Elsewhere { entry })?;
                self.copy(address, range)?;
            }
        }
        // A room that lies in two chunks has two distances.
        match (self.found(room), self.found(at)) {
            (Some(first), Some(last)) if last - first == at - room => Ok(last),
            (Some(_), Some(_)) => Err(EntryError::Unaligned { entry }),
            _ => Err(missing),
        }
    }

    /// Maps the pages around an address twice.
    fn copy(&mut self, address: u64, text: &Range<u64>) -> Result<(), EntryError> {
        let page = page_size();
        let first = (text.start / page * page).max(address / CHUNK * CHUNK);
        let last = text
            .end
            .next_multiple_of(page)
            .min(address / CHUNK * CHUNK + CHUNK);
        let size = (last - first) as usize;
        let refused = |what| EntryError::Refused {
            what,
            cause: io::Error::last_os_error(),
        };
        uruk::note_copied_text(first..last);
        let file = OwnFile::in_memory(c"uruk-text", true)
            .and_then(|file| file.set_len(size as u64).map(|()| file))
            .map_err(|cause| EntryError::Refused {
                what: "memory for text",
                cause,
            })?;
        let map = |at: u64, protection, flags, what| {
            // The program may have closed it and opened a file of its own.
            if !file.is_ours() {
                let cause = io::Error::from_raw_os_error(libc::EBADF);
                return Err(EntryError::Refused { what, cause });
            }
            // SAFETY: a new mapping, or one over pages whose bytes are the same.
            let mapped = unsafe {
                libc::mmap(
                    at as *mut libc::c_void,
                    size,
                    protection,
                    libc::MAP_SHARED | flags,
                    file.as_raw_fd(),
                    0,
                )
            };
            match mapped == libc::MAP_FAILED {
                true => Err(refused(what)),
                false => Ok(mapped as u64),
            }
        };
        let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
        let alias = map(0, read | write, 0, "text to write to")?;
        // SAFETY: whole pages of text that can be read, and a fresh mapping of that size.
        unsafe {
            (alias as *mut u8).copy_from_nonoverlapping(first as *const u8, size);
        }
        // Executability is tried elsewhere first: a refusal must leave the text unchanged.
        let trial = map(0, read | libc::PROT_EXEC, 0, "text to be executed");
        let placed = trial.and_then(|trial| {
            // SAFETY: mapped above, used by no other code.
            unsafe { libc::munmap(trial as *mut libc::c_void, size) };
            let executable = read | libc::PROT_EXEC;
            map(first, executable, libc::MAP_FIXED, "text in its place")
        });
        if let Err(cause) = placed {
            // SAFETY: as above.
            unsafe { libc::munmap(alias as *mut libc::c_void, size) };
            return Err(cause);
        }
        let chunk = Chunk {
            end: last,
            writable: alias.wrapping_sub(first) as i64,
        };
        self.chunks.insert(first, chunk);
        Ok(())
    }
}

fn page_size() -> u64 {
    static SIZE: AtomicU64 = AtomicU64::new(0);
    // Relaxed: all threads compute the same value.
    let mut size = SIZE.load(Ordering::Relaxed);
    if size == 0 {
        // SAFETY: no memory of ours is involved.
        size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as u64;
        SIZE.store(size, Ordering::Relaxed);
    }
    size
}

/// Serializes every core that runs a thread of ours before its next instruction.
fn serialize() {
    const REGISTER: libc::c_int = 64;
    const SYNC_CORE: libc::c_int = 32;
    // SAFETY: a system call without memory. If it is missing, no harm: before its entry leads there, a
    // core reads a room only speculatively, and speculation is checked against memory.
    unsafe {
        if libc::syscall(libc::SYS_membarrier, SYNC_CORE, 0, 0) != 0 {
            libc::syscall(libc::SYS_membarrier, REGISTER, 0, 0);
            libc::syscall(libc::SYS_membarrier, SYNC_CORE, 0, 0);
        }
    }
}
