//! Places a table in its heap: the part that guests reach goes into writable data, the resolver
//! with its frame descriptions into code.

use std::ptr::{self, NonNull};

use uruk_heap::{Heap, Pool, Sealed, StubPage, StubRegion};

use crate::cell::Cells;
use crate::cfi::{self, EH_FRAME_BYTES};
use crate::error::StubError;
use crate::futex::Futex;
use crate::guest::{self, FailureHandler};
use crate::kept::Kept;
use crate::requests::{Requests, TaggedList};
use crate::resolver;
use crate::shared::Shared;
use crate::spots::Spots;
use crate::sync::{AtomicU32, AtomicU64};
use crate::vector::VectorState;
use crate::waits::Waits;

/// Puts the shared part into the heap's writable data.
pub(crate) fn shared(heap: &Heap, region: &StubRegion) -> Result<NonNull<Shared>, StubError> {
    let draft = heap.allocate(Pool::ReadWrite, size_of::<Shared>(), align_of::<Shared>())?;
    let sealed = draft.seal()?;
    let (slots, stubs) = (region.slots_base(), region.stubs_base());
    let count = u32::try_from(region.capacity()).expect("a region is smaller than 2 GiB");
    // SAFETY: the slot region of the heap, which is zero, readable and writable,
    // mapped as long as the heap is; whose only users are this table (one for
    // each heap) and machine code.
    let cells = unsafe { Cells::new(slots, stubs, count) };
    let handler = guest::default_failure_handler as FailureHandler;
    let shared = Shared {
        cells,
        requests: Requests::default(),
        waiting: Futex,
        kept: Kept::default(),
        spots: Spots::default(),
        gate: AtomicU32::new(0),
        looks_at_gate: looks_at_gate(),
        gates: AtomicU32::new(0),
        free: TaggedList::default(),
        failure_handler: AtomicU64::new(handler as *const () as usize as u64),
        failure_context: AtomicU64::new(0),
        attendance: AtomicU64::new(0),
        waits: Waits::default(),
        heap_base: heap.base(),
        heap_size: heap.size() as u64,
    };
    let place = ptr::with_exposed_provenance_mut::<Shared>(sealed.address() as usize);
    // SAFETY: fresh writable memory of that size and alignment, used only here; dropping `sealed`
    // leaves it allocated until the heap is dropped.
    unsafe { place.write(shared) };
    Ok(NonNull::new(place).expect("a heap is not at address zero"))
}

/// Polls of 25 ns (AMD) to 50 ns (Intel) each; in all about the time of a sleep and a wake.
const LOOKS_AT_GATE: u32 = 400;

fn looks_at_gate() -> u32 {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => LOOKS_AT_GATE,
        _ => 0,
    }
}

/// Addresses within the resolver's allocation.
pub(crate) struct Placed {
    /// Resolver code, then its `.eh_frame`.
    pub(crate) code: Sealed,
    /// Bytes of the code.
    pub(crate) len: u32,
    /// Address of the section.
    pub(crate) eh_frame: u64,
    /// Address of the entry for stubs.
    pub(crate) stubs_fde: u64,
    /// Address of the entry for the resolver.
    pub(crate) resolver_fde: u64,
}

/// Assembles the resolver and its frame descriptions into one allocation.
pub(crate) fn resolver(
    heap: &Heap,
    region: &StubRegion,
    shared: NonNull<Shared>,
) -> Result<Placed, StubError> {
    let resolve = guest::resolve as *const () as usize as u64;
    let shared = shared.as_ptr().expose_provenance() as u64;
    let resolver = resolver::assemble(&VectorState::detect(), shared, resolve);
    let text = resolver.code.len().next_multiple_of(16);
    let mut draft = heap.allocate(Pool::Code, text + EH_FRAME_BYTES, 64)?;
    let eh_frame = draft.address() + text as u64;
    let places = cfi::Places {
        eh_frame,
        stubs: region.stubs_base(),
        stubs_len: (region.pages() * size_of::<StubPage>()) as u32,
        resolver: draft.address(),
    };
    let section = cfi::eh_frame(&places, &resolver.frame);
    draft.write(0, &resolver.code)?;
    draft.write(text, &section.bytes)?;
    Ok(Placed {
        len: resolver.frame.end,
        eh_frame,
        stubs_fde: eh_frame + section.stubs_fde as u64,
        resolver_fde: eh_frame + section.resolver_fde as u64,
        code: draft.seal()?,
    })
}
