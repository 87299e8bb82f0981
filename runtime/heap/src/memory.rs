//! The system calls of the heap: the reservation, its views and its alias.
//!
//! # Invariants
//! - [`Memory`] owns `layout.base..+size` and, with [`Backing::Dual`], the
//!   alias `alias..+shared` outside it with a closed page before and after it, from
//!   creation to drop. Nothing is ever unmapped in between, only mapped over, so no
//!   foreign mapping can land inside.
//! - Byte `a` of the shared part is written at `a - shared.start + alias`. With
//!   [`Backing::Flip`] the alias is the address itself.
//! - Rust never has a `&mut` to this memory, and a `&` only to sealed code or
//!   read-only bytes.
//! - memfd descriptors are closed once mapped: a guest sees the descriptor
//!   numbers it would see natively.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{MembarrierCommand, membarrier};
use uruk_files::OwnFile;

use crate::config::{Backing, HeapConfig, Place};
use crate::layout::{Layout, PAGE, page_up};
use crate::opening::{Opening, Writer};
use crate::place;
use crate::spans::{Kind, Spans};

/// Kernel mappings of a heap with [`Backing::Dual`] that was not inherited
/// through `fork`: guard, slots, stubs with code, read-only, read-write, guard; and
/// guard, alias, guard.
pub const DUAL_MAPPINGS: usize = 9;

/// From this size on, dirty private memory is given to the kernel and comes
/// back as zero pages on demand instead of being overwritten with zeros. A
/// `madvise` with the page faults that follow costs more than clearing below
/// about 64 KiB.
const DISCARD_MIN: usize = 64 << 10;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Why memory was refused, which decides the next attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// No address space: a smaller reservation may do.
    Space(Errno),
    /// Executable memory of that backing is not allowed.
    Executable(Errno),
}

/// Protections that a range can be flipped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Closed,
    Writable,
    Executable,
    Constant,
}

/// The mapped memory of one heap.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) layout: Layout,
    pub(crate) backing: Backing,
    alias: usize,
    opening: Opening,
    /// Whether `membarrier` can serialise all cores that run this process. Written
    /// before other threads exist, in [`Memory::new`] and in the child of a fork.
    sync_core: AtomicBool,
}

impl Memory {
    /// Reserves `size` bytes and maps the regions.
    pub(crate) fn new(
        size: usize,
        config: &HeapConfig,
        backing: Backing,
    ) -> Result<(Memory, Spans), Refusal> {
        let base = place::reserve(size, config.place).map_err(Refusal::Space)?;
        let layout = Layout::new(base, size, config.data);
        let alias = layout.shared().start;
        // From here on drop unmaps the reservation.
        let mut memory = Memory {
            layout,
            backing,
            alias,
            opening: Opening::new(backing != Backing::Dual),
            sync_core: AtomicBool::new(false),
        };
        memory.register_sync_core();
        let mut spans = Spans::default();
        let whole = memory.layout.base..memory.layout.base + size;
        spans.set(whole, Kind::Closed);
        for range in [&memory.layout.slots, &memory.layout.read_write] {
            memory.open_private(range).map_err(Refusal::Space)?;
            spans.set(range.clone(), Kind::Private);
        }
        match backing {
            Backing::Dual => memory.map_dual(&mut spans)?,
            Backing::Flip => probe_executable().map_err(Refusal::Executable)?,
        }
        Ok((memory, spans))
    }

    fn map_dual(&mut self, spans: &mut Spans) -> Result<(), Refusal> {
        let shared = self.layout.shared();
        let file = code_file(shared.len()).map_err(Refusal::Executable)?;
        for (view, kind) in self.views(0) {
            self.map_view(&file, view.clone(), kind).map_err(refusal)?;
            spans.set(view, kind);
        }
        let hole =
            place::reserve(shared.len() + 2 * PAGE, Place::Random).map_err(Refusal::Space)?;
        self.alias = hole + PAGE;
        spans.set(hole..hole + shared.len() + 2 * PAGE, Kind::Closed);
        self.map_view(&file, shared.clone(), Kind::Alias(0))
            .map_err(refusal)?;
        spans.set(self.alias_of(&shared), Kind::Alias(0));
        Ok(())
    }

    /// The two views of the shared part.
    fn views(&self, generation: u64) -> [(Range<usize>, Kind); 2] {
        [
            (self.layout.executable(), Kind::Executable(generation)),
            (self.layout.read_only.clone(), Kind::Constant(generation)),
        ]
    }

    /// Makes a part of the reservation private and writable.
    fn open_private(&self, range: &Range<usize>) -> Result<(), Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, len) = self.own(range);
        // SAFETY: `own` checked that the range is part of our reservation, which
        // is being set up: nothing points into it.
        unsafe { rustix::mm::mmap_anonymous(start, len, READ_WRITE, flags) }.map(drop)
    }

    /// Maps `range` of the shared part to the same offsets of `file`.
    fn map_view(&self, file: &OwnFile, range: Range<usize>, kind: Kind) -> Result<(), Errno> {
        // The program may have closed the descriptor and opened another file.
        if !file.is_ours() {
            return Err(Errno::BADF);
        }
        let protection = match kind {
            Kind::Executable(_) => ProtFlags::READ | ProtFlags::EXEC,
            Kind::Alias(_) => READ_WRITE,
            Kind::Constant(_) | Kind::Closed | Kind::Private => ProtFlags::READ,
        };
        let offset = range.start - self.layout.shared().start;
        let place = match kind {
            Kind::Alias(_) => self.alias_of(&range),
            _ => range,
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, len) = self.own(&place);
        // SAFETY: `own` checked that the place is ours; callers replace only
        // ranges in which nothing is allocated.
        unsafe { rustix::mm::mmap(start, len, protection, flags, file, offset as u64) }.map(drop)
    }

    /// In the child of a fork: maps pages of a new memfd to the unused ranges of the shared part
    /// (`unused`, ascending, page aligned), and closes the alias of everything else, which is the
    /// parent's.
    pub(crate) fn detach(
        &self,
        unused: &[Range<usize>],
        generation: u64,
        spans: &mut Spans,
    ) -> Result<(), Errno> {
        let shared = self.layout.shared();
        let alias = self.alias_of(&shared);
        // The alias consists of pieces from here on, most of which must never be opened.
        self.opening.keep();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, len) = self.own(&alias);
        // First of all, so that a failure below cannot leave a way to write into
        // the parent's code.
        // SAFETY: `own` checked that the alias is ours. Drafts that could still
        // write through it are refused (they are of an older generation).
        unsafe { rustix::mm::mmap_anonymous(start, len, ProtFlags::empty(), flags) }?;
        spans.set(alias, Kind::Closed);
        let file = code_file(shared.len())?;
        for range in unused {
            for (view, kind) in self.views(generation) {
                let part = range.start.max(view.start)..range.end.min(view.end);
                if part.is_empty() {
                    continue;
                }
                self.map_view(&file, part.clone(), kind)?;
                spans.set(part.clone(), kind);
                let alias = Kind::Alias(generation);
                self.map_view(&file, part.clone(), alias)?;
                spans.set(self.alias_of(&part), alias);
            }
        }
        Ok(())
    }

    /// Changes the protection of whole pages of the shared part, as they run.
    ///
    /// # Safety
    /// 1. Writable only with [`Backing::Flip`].
    /// 2. The range belongs to one allocation of the caller (or to stub pages
    ///    under the heap's lock), so no other access can start to fault.
    pub(crate) unsafe fn protect(
        &self,
        range: Range<usize>,
        protection: Protection,
    ) -> Result<(), Errno> {
        debug_assert!(self.backing == Backing::Flip || protection != Protection::Writable);
        let flags = match protection {
            Protection::Closed => MprotectFlags::empty(),
            Protection::Writable => MprotectFlags::READ | MprotectFlags::WRITE,
            Protection::Executable => MprotectFlags::READ | MprotectFlags::EXEC,
            Protection::Constant => MprotectFlags::READ,
        };
        let (start, len) = self.own(&range);
        // SAFETY: `own` checked that the range is ours; duty 2 for its users.
        unsafe { rustix::mm::mprotect(start, len, flags) }
    }

    /// Copies `bytes` to the run address `start` through the writable side.
    ///
    /// # Safety
    /// 1. The bytes at `start` belong to an unsealed allocation of the caller,
    ///    writable (flipped, or of this generation), and no other thread
    ///    accesses them.
    pub(crate) unsafe fn write(&self, start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        let _writer = self.writer(&range);
        let target = ptr::with_exposed_provenance_mut::<u8>(self.alias_of(&range).start);
        // SAFETY: duty 1; `bytes` cannot overlap memory that has no `&`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Makes a range read as zero, without touching the pages of a large one in
    /// private memory.
    ///
    /// # Safety
    /// As for [`Memory::write`].
    pub(crate) unsafe fn clear(&self, range: Range<usize>) {
        let shared = self.layout.shared();
        let private = !(shared.start..shared.end).contains(&range.start);
        let pages = page_up(range.start)..range.end & !(PAGE - 1);
        if private && range.len() >= DISCARD_MIN {
            let (start, len) = self.own(&pages);
            // SAFETY: whole pages inside a range that is the caller's alone
            // (duty 1), private and anonymous: they come back as zero.
            let discarded = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontNeed) };
            if discarded.is_ok() {
                // SAFETY: the two ends of the caller's range.
                unsafe {
                    self.fill_zero(range.start..pages.start);
                    self.fill_zero(pages.end..range.end);
                }
                return;
            }
        }
        // SAFETY: passed on.
        unsafe { self.fill_zero(range) };
    }

    /// # Safety
    /// As for [`Memory::write`].
    unsafe fn fill_zero(&self, range: Range<usize>) {
        let _writer = self.writer(&range);
        let place = self.alias_of(&range);
        let target = ptr::with_exposed_provenance_mut::<u8>(place.start);
        // SAFETY: the caller's duty.
        unsafe { ptr::write_bytes(target, 0, place.len()) };
    }

    /// Gives the pages of a large released block back to the kernel.
    ///
    /// # Safety
    /// 1. The range is private memory that the caller is giving back and that no thread
    ///    accesses.
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        if range.len() >= DISCARD_MIN {
            // SAFETY: duty 1. Contents do not matter: reuse clears.
            unsafe { self.clear(range) };
        }
    }

    /// Populates the pages of a range that is about to be written, if the kernel can (Linux 5.14);
    /// their contents stay.
    pub(crate) fn populate(&self, range: Range<usize>) {
        if self.backing == Backing::Dual {
            let _writer = self.writer(&range);
            let (start, len) = self.own(&self.alias_of(&range));
            // Refused after a fork, where the pages are another process's, and by old
            // kernels: writes fault then, or are refused themselves.
            // SAFETY: part of our alias; whether a page is there changes no contents.
            let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxPopulateWrite) };
        }
    }

    /// Fills a range with `int3`.
    ///
    /// # Safety
    /// As for [`Memory::write`], for retired code that no thread executes; with
    /// [`Backing::Dual`].
    pub(crate) unsafe fn trap(&self, range: Range<usize>) {
        let _writer = self.writer(&range);
        let place = self.alias_of(&range);
        let target = ptr::with_exposed_provenance_mut::<u8>(place.start);
        // SAFETY: the caller's duty.
        unsafe { ptr::write_bytes(target, 0xcc, place.len()) };
    }

    /// Makes whole code pages read as zero and gives their memory to the kernel.
    /// With [`Backing::Flip`] they are closed already, and stay so.
    ///
    /// # Safety
    /// 1. The pages belong to the caller alone, and no thread accesses them.
    pub(crate) unsafe fn empty(&self, range: Range<usize>) {
        let dual = self.backing == Backing::Dual;
        let advice = match dual {
            // Punches a hole into the memfd, without its descriptor.
            true => Advice::LinuxRemove,
            false => Advice::LinuxDontNeed,
        };
        let _writer = self.writer(&range);
        let (start, len) = self.own(&self.alias_of(&range));
        // SAFETY: duty 1; whole pages, which read as zero afterwards.
        if unsafe { rustix::mm::madvise(start, len, advice) }.is_ok() {
            return;
        }
        if !dual {
            // SAFETY: duty 1.
            let opened = unsafe { self.protect(range.clone(), Protection::Writable) };
            assert!(opened.is_ok(), "memory of the heap cannot be emptied");
        }
        // SAFETY: duty 1; writable through the alias, or opened.
        unsafe { self.fill_zero(range.clone()) };
        if !dual {
            // SAFETY: duty 1. Refused only when mappings run out: no harm.
            let _ = unsafe { self.protect(range, Protection::Closed) };
        }
    }

    /// Announces to the kernel that cores will be serialised, in each process once.
    pub(crate) fn register_sync_core(&self) {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore).is_ok();
        self.sync_core.store(registered, Ordering::Relaxed);
    }

    /// Whether [`Memory::sync_core`] works here.
    pub(crate) fn can_sync_core(&self) -> bool {
        self.sync_core.load(Ordering::Relaxed)
    }

    /// Serialises every core that runs a thread of this process: none continues with instructions
    /// fetched before. `false` if the kernel cannot.
    pub(crate) fn sync_core(&self) -> bool {
        self.can_sync_core() && membarrier(MembarrierCommand::PrivateExpeditedSyncCore).is_ok()
    }

    /// Opens the alias, if `range` is written through it, until the returned value is dropped.
    fn writer(&self, range: &Range<usize>) -> Writer<'_> {
        if !self.layout.shared().contains(&range.start) || self.backing != Backing::Dual {
            return Writer::of_private();
        }
        self.opening.write(|| {
            let opened = self.protect_alias(MprotectFlags::READ | MprotectFlags::WRITE);
            // It was writable before, and is one mapping, which no call splits.
            assert!(opened.is_ok(), "the alias cannot be opened: {opened:?}");
        })
    }

    /// Closes the alias if it was not written through since the last call. Returns true if further
    /// calls before a write have nothing to do.
    pub(crate) fn rest(&self) -> bool {
        self.opening.rest(|| {
            let (start, len) = self.own(&self.alias_of(&self.layout.shared()));
            // Only so that opening finds no pages to walk over; the pages stay in the memfd.
            // SAFETY: ours, and `Opening` makes sure that no thread is writing.
            let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontNeed) };
            self.protect_alias(MprotectFlags::empty()).is_ok()
        })
    }

    fn protect_alias(&self, protection: MprotectFlags) -> Result<(), Errno> {
        let (start, len) = self.own(&self.alias_of(&self.layout.shared()));
        // SAFETY: ours; `Opening` admits one thread at a time here, and closes the alias only
        // without writers.
        unsafe { rustix::mm::mprotect(start, len, protection) }
    }

    /// The addresses through which a range is written.
    fn alias_of(&self, range: &Range<usize>) -> Range<usize> {
        let shared = self.layout.shared();
        if range.start < shared.start || range.start >= shared.end {
            return range.clone();
        }
        let place = range.start - shared.start + self.alias;
        place..place + range.len()
    }

    /// A range for a system call, after a check that it is part of the
    /// reservation or of the alias.
    fn own(&self, range: &Range<usize>) -> (*mut c_void, usize) {
        let inside = |start: usize, len: usize| range.start >= start && range.end <= start + len;
        assert!(
            range.start <= range.end
                && (inside(self.layout.base, self.layout.size)
                    || inside(self.alias, self.layout.shared().len())),
            "range {range:x?} is not the heap's"
        );
        (ptr::with_exposed_provenance_mut(range.start), range.len())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let shared = self.layout.shared();
        if self.alias != shared.start {
            let hole = ptr::with_exposed_provenance_mut(self.alias - PAGE);
            // SAFETY: the alias and its guards are ours, mapped since creation without holes; every
            // draft keeps the memory alive, so no thread writes through it.
            let unmapped = unsafe { rustix::mm::munmap(hole, shared.len() + 2 * PAGE) };
            debug_assert!(unmapped.is_ok());
        }
        let base = ptr::with_exposed_provenance_mut(self.layout.base);
        // SAFETY: the reservation is ours, mapped since creation without holes; code that runs in
        // it must keep the heap alive.
        let unmapped = unsafe { rustix::mm::munmap(base, self.layout.size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A sparse file of `len` bytes in memory that may be mapped executable.
fn code_file(len: usize) -> Result<OwnFile, Errno> {
    // Growing a file over RLIMIT_FSIZE raises SIGXFSZ, which kills.
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < len as u64) {
        return Err(Errno::FBIG);
    }
    let errno = |refused: std::io::Error| Errno::from_io_error(&refused).unwrap_or(Errno::BADF);
    let file = OwnFile::in_memory(c"uruk", true).map_err(errno)?;
    file.set_len(len as u64).map_err(errno)?;
    Ok(file)
}

/// Whether anonymous memory may become executable (SELinux and PaX refuse).
fn probe_executable() -> Result<(), Errno> {
    // SAFETY: a new page of our own, protected and unmapped again; nothing
    // points to it.
    unsafe {
        let page =
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, READ_WRITE, MapFlags::PRIVATE)?;
        let flipped = rustix::mm::mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::EXEC);
        rustix::mm::munmap(page, PAGE)?;
        flipped
    }
}

/// An error of mapping a view: out of memory, or not allowed.
fn refusal(errno: Errno) -> Refusal {
    match errno {
        Errno::NOMEM => Refusal::Space(errno),
        _ => Refusal::Executable(errno),
    }
}
