//! The stub table: construction, allocation, and the runtime's interface.
//!
//! The table has no lock. Allocation is a counter and a tagged free list. Changes of one function
//! exclude each other by a bit of its state word (`state`). The request list is lock-free
//! (`requests`). So a `fork` at any moment leaves nothing locked in the child.
//!
//! | field | written by | ordering | partner |
//! |---|---|---|---|
//! | `next` | `claim` | compare-exchange, relaxed | none: ids carry no data |
//! | `committed` | owner of `committing` | release | acquire in `ensure_committed` |
//! | `committing` | `ensure_committed` | acquire and release | itself |
//! | `quarantined`, `recycled` | release, recycle, revive, allocate | relaxed | none: counts |

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use uruk_base::{EntryAddress, FunctionId, SlotAddress, StubAddress};
use uruk_heap::{Heap, Sealed, StubPage, StubRegion};

use crate::cell::CELL_BYTES;
use crate::cfi::UnwindRow;
use crate::error::StubError;
use crate::function::{CELLS_PER_PAGE, FUNCTIONS_PER_PAGE, Functions, at_ordinal, ordinal_of};
use crate::guest::FailureHandler;
use crate::image;
use crate::place;
use crate::shared::Shared;
use crate::sync::{AtomicU32, Ordering, spin};

/// Stub pages committed at once: as many as are committed already, within these limits.
const COMMIT_PAGES: (u32, u32) = (4, 64);

/// Counts of a table at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StubStats {
    /// Functions in use.
    pub used: usize,
    /// Released functions, whose stubs are not reused.
    pub quarantined: usize,
    /// Recycled stubs, ready for reuse.
    pub free: usize,
    /// Functions that the region has room for.
    pub capacity: usize,
    /// Stub pages with their image.
    pub pages: usize,
}

type CommitHook = Box<dyn Fn(UnwindRow) + Send + Sync>;

/// The stub table of one heap: slots, stubs and the resolver.
///
/// Dropping it leaves the memory to the heap. First calls after that are not answered.
pub struct StubTable {
    shared: NonNull<Shared>,
    region: StubRegion,
    heap: Heap,
    page: Box<StubPage>,
    /// Resolver code, then its `.eh_frame`.
    code: Sealed,
    eh_frame: u64,
    resolver_row: UnwindRow,
    stubs_fde: u64,
    /// Ordinals handed out so far.
    next: AtomicU32,
    /// Pages that have their image and whose common slot is set.
    committed: AtomicU32,
    /// 1 while a thread commits pages.
    committing: AtomicU32,
    quarantined: AtomicU32,
    recycled: AtomicU32,
    hook: Option<CommitHook>,
}

// SAFETY: `shared` points to memory of the heap that `region` keeps mapped, made
// of atomics and constants; everything else is Send.
unsafe impl Send for StubTable {}
// SAFETY: as above; everything else is Sync.
unsafe impl Sync for StubTable {}

impl StubTable {
    /// Makes the table of a heap: one for each heap, because the table takes the
    /// whole stub region.
    ///
    /// # Errors
    /// [`StubError::Heap`] when there is no memory for the resolver.
    pub fn new(heap: &Heap) -> Result<Arc<StubTable>, StubError> {
        StubTable::make(heap, None)
    }

    /// Like [`StubTable::new`]; `hook` gets every [`UnwindRow`] once (in a forked child maybe once
    /// more). It gets the row of a stub page before the first of its stubs is allocated. It runs on
    /// the thread that allocates.
    ///
    /// # Errors
    /// As for [`StubTable::new`].
    pub fn with_hook(
        heap: &Heap,
        hook: impl Fn(UnwindRow) + Send + Sync + 'static,
    ) -> Result<Arc<StubTable>, StubError> {
        StubTable::make(heap, Some(Box::new(hook)))
    }

    fn make(heap: &Heap, hook: Option<CommitHook>) -> Result<Arc<StubTable>, StubError> {
        let region = heap.stub_region();
        let shared = place::shared(heap, &region)?;
        let placed = place::resolver(heap, &region, shared)?;
        let start = placed.code.address();
        let table = StubTable {
            shared,
            page: image::stub_page(region.distance()),
            eh_frame: placed.eh_frame,
            resolver_row: UnwindRow {
                start,
                end: start + u64::from(placed.len),
                fde: placed.resolver_fde,
            },
            stubs_fde: placed.stubs_fde,
            region,
            heap: heap.clone(),
            code: placed.code,
            next: AtomicU32::new(0),
            committed: AtomicU32::new(0),
            committing: AtomicU32::new(0),
            quarantined: AtomicU32::new(0),
            recycled: AtomicU32::new(0),
            hook,
        };
        table.tell(table.resolver_row);
        Ok(Arc::new(table))
    }

    /// Allocates a function: unbound, with a stub that requests code when it is called.
    ///
    /// # Errors
    /// [`StubError::Full`], [`StubError::Heap`].
    pub fn allocate(&self) -> Result<FunctionId, StubError> {
        let shared = self.shared();
        if let Some(function) = shared.free.pop(&shared.cells) {
            self.recycled.fetch_sub(1, Ordering::Relaxed);
            shared.allocate(function);
            return Ok(function);
        }
        let ordinal = self.claim(1)?;
        let function = at_ordinal(ordinal);
        shared.allocate(function);
        Ok(function)
    }

    /// Allocates `count` functions with ascending ids.
    ///
    /// # Errors
    /// As for [`StubTable::allocate`]; nothing is allocated then.
    pub fn allocate_many(&self, count: usize) -> Result<Functions, StubError> {
        let held = self.next.load(Ordering::Relaxed);
        let count = u32::try_from(count).map_err(|_| self.full(count, held))?;
        let first = self.claim(count)?;
        let functions = Functions::new(first..first + count);
        for function in functions.clone() {
            self.shared().allocate(function);
        }
        Ok(functions)
    }

    /// The function's address, for its whole life.
    pub fn stub_address(&self, function: FunctionId) -> StubAddress {
        StubAddress(self.shared().cells.stub(function))
    }

    /// The address of the 8-byte word that holds the target of the function's calls: for `call
    /// [slot]`.
    pub fn slot_address(&self, function: FunctionId) -> SlotAddress {
        SlotAddress(self.shared().cells.slot(function))
    }

    /// The allocated function whose stub is at an address.
    pub fn function_at(&self, address: u64) -> Option<FunctionId> {
        self.shared()
            .cells
            .by_stub(address)
            .filter(|function| self.handed_out(*function))
    }

    /// The allocated function whose stub contains an address.
    pub fn function_around(&self, address: u64) -> Option<FunctionId> {
        let start = address / CELL_BYTES * CELL_BYTES;
        self.function_at(start)
    }

    /// The allocated function of an [index](FunctionId::index).
    pub fn function(&self, index: u32) -> Option<FunctionId> {
        let function = FunctionId(index);
        self.handed_out(function).then_some(function)
    }

    /// Makes `entry` the function's code: stores it into the slot, which callers see at once; then
    /// sets the state and wakes waiting callers. It replaces code that is published already.
    /// `false` when the function was released meanwhile.
    ///
    /// `entry` must be the code of the function, ready to be called. (Safe, because the call is the
    /// unsafe step: the caller of a stub vouches for the code published behind it.)
    ///
    /// Must not run on a thread that may be interrupted by a signal handler which calls this very
    /// function.
    pub fn publish(&self, function: FunctionId, entry: EntryAddress) -> bool {
        self.shared().publish(function, entry.0)
    }

    /// Prepares code that is ready, without making it reachable: the first call stores it into the
    /// slot by itself, in well under a microsecond, with no service. If callers wait, other code is
    /// published already, or `entry` lies outside of the heap, it publishes. `false` when the
    /// function was released meanwhile.
    ///
    /// Restrictions as for [`StubTable::publish`].
    pub fn prepare(&self, function: FunctionId, entry: EntryAddress) -> bool {
        self.shared().prepare(function, entry.0)
    }

    /// Marks a function as failed: waiting and later callers continue at the address that the
    /// failure handler returns, until code is published. `false`, and no change, when the function
    /// has code or was released.
    pub fn fail(&self, function: FunctionId) -> bool {
        self.shared().fail(function)
    }

    /// Takes code or a failure back: the next call requests code again. `false`, and no change,
    /// when callers wait already or it was released.
    pub fn unpublish(&self, function: FunctionId) -> bool {
        self.shared().unpublish(function)
    }

    /// Removes a function. Its stub goes into quarantine: calls go to the failure
    /// handler. `false` when it was released before.
    pub fn release(&self, function: FunctionId) -> bool {
        let first = self.shared().quarantine(function);
        if first {
            self.quarantined.fetch_add(1, Ordering::Relaxed);
        }
        first
    }

    /// Makes the stub of a released function available for allocation. `false` when it was not
    /// released, or a request for it is still to be taken by [`StubTable::next_request`].
    ///
    /// # Safety
    /// 1. No reference to the stub's or the slot's address is left, and the id is not used any
    ///    more.
    pub unsafe fn recycle(&self, function: FunctionId) -> bool {
        let recycled = self.shared().recycle(function);
        if recycled {
            self.quarantined.fetch_sub(1, Ordering::Relaxed);
            self.recycled.fetch_add(1, Ordering::Relaxed);
        }
        recycled
    }

    /// Makes the next call of a function that failed ask again; `false` if it did not fail.
    pub fn retry(&self, function: FunctionId) -> bool {
        self.shared().retry(function)
    }

    /// Turns a released function into one without code, for a new definition of the same name.
    /// `false` when it was not released, or is behind a gate.
    pub fn revive(&self, function: FunctionId) -> bool {
        let revived = self.shared().revive(function);
        if revived {
            self.quarantined.fetch_sub(1, Ordering::Relaxed);
        }
        revived
    }

    /// The published or prepared code; `None` while there is none. Behind a closed
    /// [gate](StubTable::close_gate) it is the kept code.
    pub fn entry(&self, function: FunctionId) -> Option<EntryAddress> {
        self.shared().entry(function).map(EntryAddress)
    }

    /// Sets the handler for calls of failed and released functions. It runs on the guest thread and
    /// stack, maybe in a signal handler, with the call's arguments saved; control continues at the
    /// address it returns with those arguments. The default writes a line to standard error and
    /// ends the process with [`FAILURE_STATUS`](crate::FAILURE_STATUS). It gets `context`, or the
    /// context of an earlier call of this function.
    pub fn set_failure_handler(&self, handler: FailureHandler, context: u64) {
        let shared = self.shared();
        shared.failure_context.store(context, Ordering::Relaxed);
        let handler = handler as *const () as usize as u64;
        // Partner: the acquire in the guest's `resolve`.
        shared.failure_handler.store(handler, Ordering::Release);
    }

    /// Sets a function that a call runs before it waits: `ask` makes sure that the service exists,
    /// in a child of a `fork` that bypassed the fork handlers. It runs on the guest thread and
    /// stack, maybe in a signal handler, and may call [`StubTable::after_fork_child`].
    pub fn set_attendance(&self, ask: extern "C-unwind" fn()) {
        // Partner: the acquire in the guest's `attend`.
        let ask = ask as *const () as usize as u64;
        self.shared().attendance.store(ask, Ordering::Release);
    }

    /// Resets the table in the child of a `fork`, before any other use of the table and after the
    /// heap's `after_fork_child`. No other thread of the child may be past
    /// [`StubTable::set_attendance`]'s function. Requests without a service are queued again. The
    /// parent needs no call.
    ///
    /// At the moment of the `fork` no thread may be taking requests (waiting for them is fine), nor
    /// closing or opening a gate. A closed gate is fine: in the child it is open to the old set,
    /// without waiting threads.
    pub fn after_fork_child(&self) {
        let shared = self.shared();
        self.committing.store(0, Ordering::Relaxed);
        shared.requests.reset();
        shared.spots.clear();
        shared.gate.store(0, Ordering::Relaxed);
        self.all().for_each(|function| shared.inherit(function));
    }

    /// The functions handed out so far, vacant ones too.
    pub(crate) fn all(&self) -> impl Iterator<Item = FunctionId> {
        (0..self.next.load(Ordering::Relaxed)).map(at_ordinal)
    }

    /// The rows that an unwinder needs so far: the resolver, and the stub pages in use. Further
    /// rows come with [allocation](StubTable::with_hook).
    pub fn unwind_rows(&self) -> Vec<UnwindRow> {
        let mut rows = vec![self.resolver_row];
        // Partner: the release in `ensure_committed`.
        let pages = self.committed.load(Ordering::Acquire);
        if pages > 0 {
            rows.push(self.stub_row(0, pages));
        }
        rows
    }

    /// Address of the frame descriptions as a whole (CIE, FDEs, a zero length),
    /// for `__register_frame`.
    pub fn eh_frame(&self) -> u64 {
        self.eh_frame
    }

    /// The bytes of each page of stubs.
    pub fn page(&self) -> &StubPage {
        &self.page
    }

    /// The resolver's machine code, and its address.
    pub fn resolver(&self) -> (u64, &[u8]) {
        let len = self.resolver_row.end - self.resolver_row.start;
        let bytes = self.code.bytes().unwrap_or_default();
        (self.code.address(), &bytes[..len as usize])
    }

    /// The present counts.
    pub fn stats(&self) -> StubStats {
        let next = self.next.load(Ordering::Relaxed) as usize;
        let quarantined = self.quarantined.load(Ordering::Relaxed) as usize;
        let free = self.recycled.load(Ordering::Relaxed) as usize;
        StubStats {
            used: next.saturating_sub(quarantined + free),
            quarantined,
            free,
            capacity: self.capacity() as usize,
            pages: self.committed.load(Ordering::Relaxed) as usize,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: placed by `place::shared` in memory that the heap keeps mapped;
        // never accessed but by shared reference.
        unsafe { self.shared.as_ref() }
    }

    fn capacity(&self) -> u32 {
        self.region.pages() as u32 * FUNCTIONS_PER_PAGE
    }

    /// Makes the word in which a gate keeps the code of a function.
    pub(crate) fn ensure_kept(&self, function: FunctionId) -> Result<(), StubError> {
        let pages = self.region.pages();
        Ok(self.shared().kept.ensure(&self.heap, pages, function)?)
    }

    pub(crate) fn handed_out(&self, function: FunctionId) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        ordinal_of(function).is_some_and(|ordinal| ordinal < next)
    }

    fn full(&self, asked: usize, held: u32) -> StubError {
        StubError::Full {
            asked,
            held: held as usize,
            capacity: self.capacity() as usize,
        }
    }

    /// Takes `count` ordinals whose pages are committed; returns the first.
    fn claim(&self, count: u32) -> Result<u32, StubError> {
        let mut first = self.next.load(Ordering::Relaxed);
        loop {
            let end = first
                .checked_add(count)
                .filter(|end| *end <= self.capacity());
            let end = end.ok_or_else(|| self.full(count as usize, first))?;
            self.ensure_committed(end.div_ceil(FUNCTIONS_PER_PAGE))?;
            let claimed =
                self.next
                    .compare_exchange(first, end, Ordering::Relaxed, Ordering::Relaxed);
            match claimed {
                Ok(_) => return Ok(first),
                Err(now) => first = now,
            }
        }
    }

    fn ensure_committed(&self, pages: u32) -> Result<(), StubError> {
        let mut turn = 0;
        // Acquire; partner: the release in `commit`, so that the common slots are set before the
        // stubs are handed out.
        while self.committed.load(Ordering::Acquire) < pages {
            // Partner: the release below.
            let owned =
                self.committing
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            if owned.is_err() {
                spin(turn);
                turn += 1;
                continue;
            }
            let result = self.commit(pages);
            self.committing.store(0, Ordering::Release);
            result?;
        }
        Ok(())
    }

    /// Commits pages up to at least `pages`; for the owner of `committing`.
    fn commit(&self, pages: u32) -> Result<(), StubError> {
        let first = self.committed.load(Ordering::Relaxed);
        if first >= pages {
            return Ok(());
        }
        let (least, most) = COMMIT_PAGES;
        let end = pages.max(first + first.clamp(least, most));
        let end = end.min(self.region.pages() as u32);
        self.region
            .commit_stub_pages(first as usize, &self.page, (end - first) as usize)?;
        for page in first..end {
            let common = FunctionId(page * CELLS_PER_PAGE + FUNCTIONS_PER_PAGE);
            // Release; partner: the acquire load of `committed`.
            self.shared()
                .cells
                .get(common)
                .target
                .store(self.code.address(), Ordering::Release);
        }
        self.tell(self.stub_row(first, end));
        self.committed.store(end, Ordering::Release);
        Ok(())
    }

    fn stub_row(&self, first: u32, end: u32) -> UnwindRow {
        let base = self.region.stubs_base();
        UnwindRow {
            start: base + u64::from(first) * size_of::<StubPage>() as u64,
            end: base + u64::from(end) * size_of::<StubPage>() as u64,
            fde: self.stubs_fde,
        }
    }

    fn tell(&self, row: UnwindRow) {
        if let Some(hook) = &self.hook {
            hook(row);
        }
    }
}

impl fmt::Debug for StubTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubTable")
            .field("region", &self.region)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
