//! The heap: one lock, the pools under it, and allocation.
//!
//! # Locking
//! One mutex guards all bookkeeping; it is held for tens of nanoseconds and never across a
//! system call. The exceptions are stub pages, `fork`, and the search for child processes
//! (`kin`). It is `std`'s futex mutex on purpose, because its whole state is the futex word.
//! `parking_lot` keeps its waiters in a global table. Another thread may hold a bucket of it
//! locked at the moment of a `fork`, and the child could then never unlock.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::io::Errno;
use uruk_base::locks::{Ordered, ranks};

use crate::config::{Backing, BackingChoice, Freed, HeapConfig};
use crate::draft::Draft;
use crate::error::HeapError;
use crate::guard::StateGuard;
use crate::kin::Kin;
use crate::layout::{MIN_RESERVATION, PAGE, clamp_reservation, page_up};
use crate::memory::{Memory, Refusal};
use crate::pool::{GRANULE, Grant, PoolState, PoolStats};
use crate::reclaim::Quarantine;
use crate::room::Room;
use crate::space::{Space, SpaceStats};
use crate::spans::Spans;
use crate::stub_region::StubRegion;

/// Size in bytes from which on pages are populated with one system call.
const POPULATE_MIN: usize = 4 * PAGE;

/// The purpose of memory, which decides how it can be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Versions of functions: text with its private constants and unwind data.
    /// Readable and executable once sealed.
    Code,
    /// Constants of data units. Readable.
    ReadOnly,
    /// Data, bss and GOT. Private, readable and writable, zero until written.
    ReadWrite,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pool::Code => "code",
            Pool::ReadOnly => "read-only",
            Pool::ReadWrite => "read-write",
        })
    }
}

/// Counts of a heap at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// The two spaces of versions.
    pub code: CodeStats,
    /// Pool of constants.
    pub read_only: PoolStats,
    /// Pool of data.
    pub read_write: PoolStats,
    /// Stub pages that have their image.
    pub stub_pages: usize,
    /// Kernel mappings (`vm.max_map_count` counts them):
    /// [`DUAL_MAPPINGS`](crate::DUAL_MAPPINGS), plus a few for each generation
    /// of `fork`. `None` with [`Backing::Flip`] and [`Freed::Protect`], where they
    /// come and go.
    pub mappings: Option<usize>,
    /// Bytes of memfd pages that may have been touched and were not given back,
    /// inherited ones included; zero with [`Backing::Flip`].
    pub memfd_bytes: usize,
}

/// Counts of the code spaces at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeStats {
    /// The counts of both spaces.
    pub spaces: [SpaceStats; 2],
    /// The index of the space that takes allocations.
    pub current: usize,
    /// Number of changes of the current space.
    pub flips: u64,
    /// Bytes given back to the kernel so far.
    pub given_back: usize,
    /// Retired bytes that are kept only for other processes: children, and their children, that
    /// were made while the bytes were in use. Constants are counted, too.
    pub waiting: usize,
    /// Whether freed code is reused: not with [`Freed::Poison`], nor on kernels without
    /// `membarrier(PRIVATE_EXPEDITED_SYNC_CORE)`.
    pub reuses: bool,
}

impl CodeStats {
    /// The sum of both spaces.
    pub fn sum(&self) -> SpaceStats {
        self.spaces[0].plus(self.spaces[1])
    }
}

/// Code memory of one session. Cloning gives another handle to the same heap;
/// the memory is unmapped when the last handle, draft and sealed allocation are
/// gone. Addresses that were handed out are valid until then.
#[derive(Clone, Debug)]
pub struct Heap {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The lock while a thread is between `before_fork` and `after_fork_*`.
    /// Accessed only by the thread that `fork_owner` names.
    pub(crate) fork_guard: UnsafeCell<Option<ForkGuard>>,
    /// Mark of the thread that holds the lock around a fork; zero: none.
    /// Relaxed: a thread only ever finds its own mark if it stored it itself.
    pub(crate) fork_owner: AtomicUsize,
    /// Counts the forks between the first process and this one. Written only in
    /// a child that has no other thread yet, so relaxed is enough.
    pub(crate) generation: AtomicU64,
    pub(crate) memory: Memory,
    pub(crate) limit: Option<usize>,
    pub(crate) freed: Freed,
    state: Mutex<State>,
}

pub(crate) type ForkGuard = ManuallyDrop<MutexGuard<'static, State>>;

// SAFETY: all fields are Sync except the cell of the guard, which only the
// thread named by `fork_owner` accesses (see `fork`).
unsafe impl Sync for Inner {}
// SAFETY: all fields are Send except the guard, which is ManuallyDrop: dropping
// `Inner` on another thread does not touch it.
unsafe impl Send for Inner {}

/// Memory handed out by a pool, and the epoch of the allocation (`kin`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) start: usize,
    /// As in [`Grant`].
    pub(crate) dirty: usize,
    pub(crate) born: u32,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) code: [Space; 2],
    /// The index of the space that takes allocations.
    pub(crate) current: usize,
    pub(crate) flips: u64,
    pub(crate) given_back: usize,
    pub(crate) quarantine: Quarantine,
    pub(crate) kin: Kin,
    pub(crate) read_only: PoolState,
    pub(crate) read_write: PoolState,
    /// Stub pages that have their image are `0..stub_pages`.
    pub(crate) stub_pages: usize,
    pub(crate) spans: Spans,
    /// The error, once a child could not get memory of its own.
    pub(crate) detached: Option<Errno>,
}

impl Heap {
    /// Reserves address space and maps the regions.
    ///
    /// # Errors
    /// [`HeapError::Reserve`] when even [`MIN_RESERVATION`] is refused,
    /// [`HeapError::NoExecutable`] when the system allows no executable memory.
    pub fn new(config: HeapConfig) -> Result<Heap, HeapError> {
        let (memory, spans) = reserve(&config)?;
        let layout = &memory.layout;
        let state = State {
            code: layout.code.clone().map(Space::new),
            current: 0,
            flips: 0,
            given_back: 0,
            quarantine: Quarantine::default(),
            kin: Kin::new(memory.backing == Backing::Dual),
            read_only: PoolState::new(layout.read_only.clone()),
            read_write: PoolState::new(layout.read_write.clone()),
            stub_pages: 0,
            spans,
            detached: None,
        };
        Ok(Heap {
            inner: Arc::new(Inner {
                fork_guard: UnsafeCell::new(None),
                fork_owner: AtomicUsize::new(0),
                generation: AtomicU64::new(0),
                memory,
                limit: config.limit,
                freed: config.freed,
                state: Mutex::new(state),
            }),
        })
    }

    /// Allocates `size` bytes (zero is allowed) at a multiple of `align`, a
    /// power of two. The memory reads as zero. Sizes are rounded up to 16
    /// bytes; with [`Backing::Flip`] code and constants take whole pages.
    ///
    /// # Errors
    /// [`HeapError::Alignment`], [`HeapError::OutOfSpace`],
    /// [`HeapError::Limit`], [`HeapError::Detached`]; with [`Backing::Flip`]
    /// also [`HeapError::Map`].
    pub fn allocate(&self, pool: Pool, size: usize, align: usize) -> Result<Draft, HeapError> {
        if !align.is_power_of_two() {
            return Err(HeapError::Alignment { align });
        }
        let paged = self.inner.memory.backing == Backing::Flip && pool != Pool::ReadWrite;
        let unit = if paged { PAGE } else { GRANULE };
        // A size that no pool has is kept as it is, and refused below.
        let asked = size.max(1).checked_next_multiple_of(unit).unwrap_or(size);
        let align = align.max(unit);
        let attempt = || {
            let mut state = self.inner.lock();
            state.allocate(pool, asked, align, self.inner.limit)
        };
        let grant = match attempt() {
            Err(_) if self.inner.make_room() => attempt(),
            grant => grant,
        }?;
        let held = size.max(1).next_multiple_of(unit);
        Draft::new(self.inner.clone(), pool, grant, size, held)
    }

    /// Allocates several blocks, of these sizes and alignments and in this order, next to each
    /// other where there is room. It stops where [`Heap::allocate`] would have to empty pages. Call
    /// that for the next block, to get it or its error.
    pub fn allocate_all(&self, pool: Pool, asked: &[(usize, usize)]) -> Vec<Draft> {
        let paged = self.inner.memory.backing == Backing::Flip && pool != Pool::ReadWrite;
        let unit = if paged { PAGE } else { GRANULE };
        let mut grants = Vec::with_capacity(asked.len());
        {
            let mut state = self.inner.lock();
            for &(size, align) in asked {
                let Some(held) = size.max(1).checked_next_multiple_of(unit) else {
                    break;
                };
                if !align.is_power_of_two() {
                    break;
                }
                let grant = state.allocate(pool, held, align.max(unit), self.inner.limit);
                let Ok(grant) = grant else { break };
                grants.push((grant, size, held));
            }
        }
        self.inner.populate(&grants);
        let draft = |(grant, size, held)| Draft::new(self.inner.clone(), pool, grant, size, held);
        let drafts: Vec<_> = grants.into_iter().map(draft).collect();
        // Drafts after a failed one give their memory back.
        drafts.into_iter().map_while(Result::ok).collect()
    }

    /// Makes the other code space the current one, and returns its number. An evacuation then
    /// allocates living code there; code that it cannot move stays where it is.
    pub fn flip_spaces(&self) -> usize {
        let mut state = self.inner.lock();
        state.current = 1 - state.current;
        state.flips += 1;
        state.current
    }

    /// First address of the reservation.
    pub fn base(&self) -> u64 {
        self.inner.memory.layout.base as u64
    }

    /// Bytes of the reservation, guards included.
    pub fn size(&self) -> usize {
        self.inner.memory.layout.size
    }

    /// Whether an address lies in the reservation.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base()) < self.size() as u64
    }

    /// The addresses a pool allocates from; for code, both spaces.
    pub fn pool_range(&self, pool: Pool) -> Range<u64> {
        let layout = &self.inner.memory.layout;
        let range = match pool {
            Pool::Code => layout.code[0].start..layout.code[1].end,
            Pool::ReadOnly => layout.read_only.clone(),
            Pool::ReadWrite => layout.read_write.clone(),
        };
        range.start as u64..range.end as u64
    }

    /// The backing of the executable part.
    pub fn backing(&self) -> Backing {
        self.inner.memory.backing
    }

    /// The regions of stubs and slots.
    pub fn stub_region(&self) -> StubRegion {
        StubRegion::new(self.inner.clone())
    }

    /// Closes the alias, through which code is written, if it was not used since the last call; the
    /// next write opens it. Returns true if further calls before a write have nothing to do. Call
    /// it now and then when little is compiled. In a child of a fork, and with [`Backing::Flip`],
    /// it does nothing.
    pub fn rest(&self) -> bool {
        self.inner.memory.rest()
    }

    /// The present counts.
    pub fn stats(&self) -> HeapStats {
        let state = self.inner.lock();
        let dual = self.inner.memory.backing == Backing::Dual;
        let code = CodeStats {
            spaces: state.code.each_ref().map(Space::stats),
            current: state.current,
            flips: state.flips,
            given_back: state.given_back,
            waiting: state.kin.waiting(),
            reuses: self.inner.freed != Freed::Poison && self.inner.memory.can_sync_core(),
        };
        let memfd = code.sum().resident + page_up(state.read_only.touched());
        let memfd = memfd + state.stub_pages * PAGE;
        let counted = dual && !matches!(self.inner.freed, Freed::Protect { .. });
        HeapStats {
            code,
            read_only: state.read_only.stats(),
            read_write: state.read_write.stats(),
            stub_pages: state.stub_pages,
            mappings: counted.then(|| state.spans.count()),
            memfd_bytes: if dual { memfd } else { 0 },
        }
    }
}

impl Inner {
    /// Frees blocks whose other users are gone, and pages that only need to be emptied. Returns
    /// whether there were any.
    fn make_room(&self) -> bool {
        let freed = self.free_waiting();
        let whole = self.lock().take_whole();
        let any = freed || !whole.is_empty();
        // SAFETY: pages of the limbo, in which nothing lives.
        unsafe { self.recycle(whole) };
        any
    }

    /// Populates the pages of code about to be written, with one call for each contiguous run: a
    /// fault costs twice as much as a page of a call.
    fn populate(&self, grants: &[(Granted, usize, usize)]) {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (grant, _, held) in grants {
            let (start, end) = (grant.start & !(PAGE - 1), page_up(grant.start + held));
            match runs.last_mut() {
                Some(run) if (run.start..=run.end).contains(&start) => {
                    run.end = run.end.max(end);
                }
                _ => runs.push(start..end),
            }
        }
        for run in runs {
            if run.len() >= POPULATE_MIN {
                self.memory.populate(run);
            }
        }
    }

    /// The bookkeeping. A panic under the lock is a bug of ours; continuing with the state is
    /// better than ending the process.
    pub(crate) fn lock(&self) -> StateGuard<'_> {
        let order = Ordered::wait::<State, ranks::Heap>();
        StateGuard::new(self.lock_for_fork(), order)
    }

    /// Like [`Inner::lock`], for a thread that forks: no other thread waits for a lock meanwhile, so
    /// the order of locks does not matter.
    pub(crate) fn lock_for_fork(&self) -> MutexGuard<'_, State> {
        uruk_base::locks::check();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bookkeeping, unless another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// The pool of constants or of data.
    pub(crate) fn data(&mut self, pool: Pool) -> &mut PoolState {
        match pool {
            Pool::ReadOnly => &mut self.read_only,
            Pool::ReadWrite => &mut self.read_write,
            Pool::Code => unreachable!("code has spaces"),
        }
    }

    fn retired(&self) -> usize {
        let code = self.code[0].retired() + self.code[1].retired();
        code + self.read_only.retired() + self.read_write.retired()
    }

    fn held(&self) -> usize {
        self.code[0].held() + self.code[1].held() + self.read_only.held() + self.read_write.held()
    }

    fn allocate(
        &mut self,
        pool: Pool,
        len: usize,
        align: usize,
        limit: Option<usize>,
    ) -> Result<Granted, HeapError> {
        if let (Some(errno), true) = (self.detached, pool != Pool::ReadWrite) {
            return Err(HeapError::Detached { errno });
        }
        if let Some(limit) = limit {
            let held = self.held();
            if len > limit.saturating_sub(held) {
                return Err(HeapError::Limit {
                    asked: len,
                    held,
                    retired: self.retired(),
                    limit,
                });
            }
        }
        let (grant, held, retired, capacity) = match pool {
            Pool::Code => {
                let space = &mut self.code[self.current];
                let grant = space.allocate(len, align);
                (grant, space.held(), space.retired(), space.capacity())
            }
            Pool::ReadOnly | Pool::ReadWrite => {
                let state = self.data(pool);
                let grant = state.allocate(len, align);
                (grant, state.held(), state.retired(), state.capacity())
            }
        };
        let Grant { start, dirty } = grant.ok_or(HeapError::OutOfSpace {
            pool,
            asked: len,
            held,
            retired,
            capacity,
        })?;
        let born = match pool {
            Pool::Code | Pool::ReadOnly => self.kin.born(),
            Pool::ReadWrite => 0,
        };
        Ok(Granted { start, dirty, born })
    }
}

/// Reserves the largest size that the kernel and a limited address space allow, with the first
/// backing that works.
fn reserve(config: &HeapConfig) -> Result<(Memory, Spans), HeapError> {
    let backings: &[Backing] = match config.backing {
        BackingChoice::Auto => &[Backing::Dual, Backing::Flip],
        BackingChoice::Dual => &[Backing::Dual],
        BackingChoice::Flip => &[Backing::Flip],
    };
    let most = Room::now().map_or(usize::MAX, |room| room.reservation());
    let mut size = clamp_reservation(config.reservation.min(most), config.place);
    let mut refused = Errno::PERM;
    'backing: for &backing in backings {
        loop {
            match Memory::new(size, config, backing) {
                Ok(made) => return Ok(made),
                Err(Refusal::Executable(errno)) => {
                    refused = errno;
                    continue 'backing;
                }
                Err(Refusal::Space(_)) if size > MIN_RESERVATION => {
                    size = clamp_reservation(size / 2, config.place);
                }
                Err(Refusal::Space(errno)) => {
                    return Err(HeapError::Reserve {
                        asked: config.reservation,
                        smallest: size,
                        errno,
                    });
                }
            }
        }
    }
    Err(HeapError::NoExecutable { errno: refused })
}
