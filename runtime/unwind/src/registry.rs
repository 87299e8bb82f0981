//! The regions of the process, and the handle that owns one.
//!
//! Regions are few (one for each heap), so lookups walk a fixed array of
//! pointers. One mutex for the process serialises all changes; it is `std`'s,
//! because its state is one futex word and survives a `fork` while held
//! (`parking_lot` keeps waiters in a global table that may not).
//!
//! | field | written by | ordering | partner |
//! |---|---|---|---|
//! | `REGIONS[i]` | register, drop of the handle | release | acquire in `find` |

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use uruk_base::locks::{Leaf, Ordered, thread_mark};

use crate::index::{Index, Writer};
use crate::libgcc;
use crate::node::{Found, Node, Row, UnwindError};
use crate::readers::Readers;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Regions that can be registered at once.
pub const MAX_REGIONS: usize = 64;

static REGIONS: [AtomicPtr<Index>; MAX_REGIONS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_REGIONS];
static READERS: Readers = Readers::new();
static CHANGES: Mutex<Changes> = Mutex::new(Changes {
    writer: Writer::new(),
    regions: Vec::new(),
});

/// The state that the mutex guards.
struct Changes {
    writer: Writer,
    /// Regions that were dropped and wait to be freed.
    regions: Vec<NonNull<Index>>,
}

// SAFETY: the pointers own their indexes.
unsafe impl Send for Changes {}

/// A registered region. Dropping it removes all its objects.
pub struct RegionHandle {
    /// Made by [`register_region`] from a box; freed after drop.
    index: NonNull<Index>,
}

// SAFETY: the index is made for sharing: lookups are lock-free, changes take
// the process-wide mutex.
unsafe impl Send for RegionHandle {}
// SAFETY: as above.
unsafe impl Sync for RegionHandle {}

/// Registers the addresses `base..base + size` (whole pages) as JIT'd code.
///
/// # Errors
/// [`UnwindError::Shape`], [`UnwindError::Overlap`],
/// [`UnwindError::TooManyRegions`], [`UnwindError::Table`].
pub fn register_region(base: u64, size: usize) -> Result<RegionHandle, UnwindError> {
    libgcc::resolve_next();
    let index = Index::new(base, size)?;
    let changes = changes();
    let mut vacant = None;
    for slot in &REGIONS {
        // Relaxed: changed only under the mutex, which we hold.
        let region = slot.load(Ordering::Relaxed);
        if region.is_null() {
            vacant = vacant.or(Some(slot));
            continue;
        }
        // SAFETY: listed, so not freed: freeing takes the mutex.
        let other = unsafe { (*region).range() };
        if base < other.end && other.start < index.range().end {
            return Err(UnwindError::Overlap { base, size });
        }
    }
    let limit = MAX_REGIONS;
    let slot = vacant.ok_or(UnwindError::TooManyRegions { limit })?;
    let index = NonNull::from(Box::leak(Box::new(index)));
    // Partner: the acquire load of `with_index`.
    slot.store(index.as_ptr(), Ordering::Release);
    drop(changes);
    Ok(RegionHandle { index })
}

impl RegionHandle {
    /// Adds one object: its functions, and their names (one for each row, or none at all). Lookups
    /// find it when this returns. Call it before the code is published.
    ///
    /// # Errors
    /// [`UnwindError::BadRow`], [`UnwindError::RowsOverlap`],
    /// [`UnwindError::Names`]; nothing is inserted then.
    ///
    /// # Safety
    /// 1. Each `fde` is 0 or the address of a frame description entry, whose CIE
    ///    it points to, that covers the row and describes its code correctly.
    /// 2. They stay readable and unchanged until [`RegionHandle::remove`], and
    ///    no thread has a frame in the range when it is called.
    pub unsafe fn insert(&self, rows: &[Row], names: &[&str]) -> Result<(), UnwindError> {
        if let Some(node) = Node::new(self.range(), rows, names)? {
            self.index().insert(&mut changes().writer, node);
        }
        Ok(())
    }

    /// Adds several objects, each with one name for all of its functions. Like
    /// [`RegionHandle::insert`], but the lock is taken once and names are not copied.
    ///
    /// # Errors
    /// As for [`RegionHandle::insert`]; if one object is bad, none is inserted.
    ///
    /// # Safety
    /// As for [`RegionHandle::insert`], for each object.
    pub unsafe fn insert_all<'r>(
        &self,
        objects: impl IntoIterator<Item = (&'r [Row], &'static str)>,
    ) -> Result<(), UnwindError> {
        let range = self.range();
        let mut nodes = Vec::new();
        for (rows, name) in objects {
            nodes.extend(Node::named(&range, rows, name)?);
        }
        let mut changes = changes();
        for node in nodes {
            self.index().insert(&mut changes.writer, node);
        }
        Ok(())
    }

    /// Removes all objects that lie in `range`, and returns their number. Their memory is freed by
    /// this or a later change, once no lookup is in progress.
    pub fn remove(&self, range: Range<u64>) -> usize {
        self.remove_all(&[range])
    }

    /// Like [`RegionHandle::remove`], for several ranges.
    pub fn remove_all(&self, ranges: &[Range<u64>]) -> usize {
        let mut changes = changes();
        let remove = |range: &Range<u64>| self.index().remove(&mut changes.writer, range.clone());
        let removed = ranges.iter().map(remove).sum();
        changes.collect();
        removed
    }

    /// The function that covers `pc`, in this region. Lock-free,
    /// async-signal-safe.
    pub fn find(&self, pc: u64) -> Option<Found> {
        let reading = READERS.enter();
        self.index().find(&reading, pc, |found, _| found)
    }

    /// The addresses of the region.
    pub fn range(&self) -> Range<u64> {
        self.index().range()
    }

    fn index(&self) -> &Index {
        // SAFETY: freed only after the handle's drop.
        unsafe { self.index.as_ref() }
    }
}

impl Drop for RegionHandle {
    fn drop(&mut self) {
        let mut changes = changes();
        for slot in &REGIONS {
            // Relaxed: under the mutex.
            if slot.load(Ordering::Relaxed) == self.index.as_ptr() {
                // Partner: the acquire load of `with_index`.
                slot.store(ptr::null_mut(), Ordering::Release);
            }
        }
        let range = self.range();
        self.index().remove(&mut changes.writer, range);
        changes.regions.push(self.index);
        changes.collect();
    }
}

impl fmt::Debug for RegionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionHandle({:#x?})", self.range())
    }
}

impl Changes {
    /// Frees nodes and regions that no lookup can reach any more.
    fn collect(&mut self) {
        self.writer.collect(&READERS);
        // Regions go only when their nodes could go.
        if self.writer.waiting() == 0 && !self.regions.is_empty() && READERS.quiescent() {
            for region in self.regions.drain(..) {
                // SAFETY: made from a box, unlisted before this, and the readers
                // that could have found it in the list are gone.
                drop(unsafe { Box::from_raw(region.as_ptr()) });
            }
        }
    }
}

fn changes() -> ChangesGuard {
    let order = Ordered::wait::<Changes, Leaf>();
    ChangesGuard {
        changes: changes_for_fork(),
        _order: order,
    }
}

/// The mutex with its place in the order of locks.
struct ChangesGuard {
    changes: MutexGuard<'static, Changes>,
    _order: Ordered,
}

impl Deref for ChangesGuard {
    type Target = Changes;

    fn deref(&self) -> &Changes {
        &self.changes
    }
}

impl DerefMut for ChangesGuard {
    fn deref_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }
}

/// The mutex for a thread that forks: no other thread waits for a lock meanwhile, so the order of
/// locks does not matter.
fn changes_for_fork() -> MutexGuard<'static, Changes> {
    uruk_base::locks::check();
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `f` with the row of any region that covers `pc`.
fn with_row<R>(pc: u64, f: impl FnOnce(Found, &str) -> R) -> Option<R> {
    let reading = READERS.enter();
    for slot in &REGIONS {
        // Partner: the release store of `register_region`.
        let region = slot.load(Ordering::Acquire);
        // SAFETY: found in the list while `reading` lasts, so not freed.
        if let Some(index) = unsafe { region.as_ref() }
            && index.contains(pc)
        {
            return index.find(&reading, pc, f);
        }
    }
    None
}

/// Whether `pc` lies in any region, covered by a row or not. Lock-free, async-signal-safe.
pub fn covers(pc: u64) -> bool {
    let _reading = READERS.enter();
    // Partner: the release store of `register_region`.
    let mut regions = REGIONS.iter().map(|slot| slot.load(Ordering::Acquire));
    // SAFETY: found in the list while `_reading` lasts, so not freed.
    regions.any(|region| unsafe { region.as_ref() }.is_some_and(|index| index.contains(pc)))
}

/// The JIT'd function that covers `pc`, in any region. For a return address pass
/// the byte before it, which belongs to the call. Lock-free,
/// async-signal-safe.
pub fn find(pc: u64) -> Option<Found> {
    with_row(pc, |found, _| found)
}

/// The function that covers `pc` with its name, copied to `buffer` and cut to
/// its length (maybe inside a character): the second number says how many bytes
/// were written, zero for a function without a name. Lock-free,
/// async-signal-safe, for backtraces of crashes and samples.
pub fn name_at(pc: u64, buffer: &mut [u8]) -> Option<(Found, usize)> {
    with_row(pc, |found, name| {
        let len = name.len().min(buffer.len());
        buffer[..len].copy_from_slice(&name.as_bytes()[..len]);
        (found, len)
    })
}

/// The mutex held around a fork.
struct ForkCell {
    /// Mark of the thread that holds it; zero: none. Relaxed: a thread compares with its own mark
    /// only, which it stored itself.
    owner: AtomicUsize,
    guard: UnsafeCell<Option<ManuallyDrop<MutexGuard<'static, Changes>>>>,
}

// SAFETY: `guard` is accessed only by the thread whose mark is in `owner`, or
// that just took the mutex.
unsafe impl Sync for ForkCell {}

static FORK: ForkCell = ForkCell {
    owner: AtomicUsize::new(0),
    guard: UnsafeCell::new(None),
};

/// Takes the mutex for the calling thread, before a `fork`. A second call
/// without [`after_fork`] does nothing.
pub fn before_fork() {
    if FORK.owner.load(Ordering::Relaxed) == thread_mark() {
        return;
    }
    keep(changes_for_fork());
}

/// Like [`before_fork`], if the mutex is free. It is for a child of a `fork` without that call, in
/// which another holder does not exist. Returns whether the calling thread has the mutex.
pub fn try_before_fork() -> bool {
    if FORK.owner.load(Ordering::Relaxed) == thread_mark() {
        return true;
    }
    match CHANGES.try_lock() {
        Ok(changes) => keep(changes),
        Err(TryLockError::Poisoned(poisoned)) => keep(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => return false,
    }
    true
}

/// Stores the mutex until [`after_fork`].
fn keep(changes: MutexGuard<'static, Changes>) {
    let guard = ManuallyDrop::new(changes);
    // SAFETY: we hold the mutex, so no other thread is between the two calls.
    unsafe { *FORK.guard.get() = Some(guard) };
    FORK.owner.store(thread_mark(), Ordering::Relaxed);
}

/// Releases the mutex after a `fork`, in the parent and in the child. All
/// memory of the index is private, so there is nothing else to do. Does nothing
/// if this thread did not call [`before_fork`].
pub fn after_fork() {
    if FORK.owner.load(Ordering::Relaxed) != thread_mark() {
        return;
    }
    FORK.owner.store(0, Ordering::Relaxed);
    // SAFETY: this thread's mark was there, so it holds the mutex.
    let guard = unsafe { (*FORK.guard.get()).take() };
    drop(guard.map(ManuallyDrop::into_inner));
}
