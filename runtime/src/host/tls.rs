//! Thread-local storage of JIT'd modules, for any number of threads.
//!
//! JIT'd code uses the general-dynamic model: it passes a (module, offset) pair to
//! `__tls_get_addr`. The runtime's pairs carry [`OURS`] in the module word. All others belong to
//! libraries of the process and are passed to libc, so that `std::call_once` and others use the
//! very same variables as the library does.
//!
//! Objects compiled for an executable reach thread-locals at a fixed offset from the thread
//! pointer. The main program's template therefore is placed, if it fits, in a piece of this
//! executable's own static storage (`RESERVE`). It is copied into the main thread's copy, and in
//! the image from which the C library initializes new threads. So every thread has it from its
//! start, no matter which code makes the thread.
//!
//! The blocks of all other modules are made on demand. A thread's blocks are reached by one pointer
//! in native thread-local storage and come from `mmap`, never from `malloc`: a signal handler that
//! interrupted `malloc` may touch its first thread-local. A race with such a handler is resolved by
//! one compare-exchange: the loser unmaps its copy.
//!
//! A module is a *slot* and a generation. The slot of a removed module ([`OwnedSlot`]) is reused
//! with another generation, while threads may still have blocks of the old one. The generation in
//! the block's header identifies these, and they are replaced at the thread's next access. So a
//! thread has one block for each slot at most.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `TEMPLATES[i]` | `fill`, once a generation; `OwnedSlot::drop` | release; `allocate` acquires |
//! | `BLOCKS` and block words | the thread itself and its signal handlers | relaxed, same thread |
//! | `SLOTS` | `place`, `OwnedSlot::drop` | a lock, taken under a pass of the gate |
//!
//! A template is read without a lock only by code of its module, which is freed before the
//! template; lookups by name hold `SLOTS`.
//!
//! # Why
//! - Thread-locals of the program are static if they fit 3 KiB: they lie in a reserve of the
//!   executable's own, and the image of new threads is filled in. So objects compiled for an
//!   executable (local-exec) work and no thread needs a hook. Where objects need more, the command
//!   restarts itself with a library that has enough (`room`).
//! - A slot of thread-locals has a generation: a removed module frees its slot, and a thread's
//!   block records its module (`host::tls`).

mod libraries;
mod reserve;
mod room;

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::error::Error;

pub(crate) use libraries::offset_of;
pub(crate) use reserve::thread_pointer;
use reserve::{fill_static, take_static};
use uruk_base::locks::{Mutex, MutexGuard};

/// Marks a module word of the runtime; libc counts modules from one.
const OURS: u64 = 1 << 63;
/// Marks a module in static storage; the low half of the word is then the offset of
/// its template from the thread pointer.
const STATIC: u64 = 1 << 62;

/// Maximal number of modules with thread-locals in one process.
const MAX_MODULES: usize = 1 << 12;

/// Minimal rounds of key destructors that libc guarantees; the runtime's acts in the last one, as
/// destructors of the program may still use thread-locals.
const DESTRUCTOR_ROUNDS: u32 = 4;

struct Template {
    module: u64,
    image: Box<[u8]>,
    size: usize,
    align: usize,
}

static TEMPLATES: [AtomicPtr<Template>; MAX_MODULES] =
    [const { AtomicPtr::new(null_mut()) }; MAX_MODULES];

/// The slots in use.
struct Slots {
    /// Slots from here on were never used.
    top: usize,
    free: Vec<usize>,
    /// Generation of the next module.
    generation: u64,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots {
    top: 0,
    free: Vec::new(),
    generation: 0,
});

/// Bits of a module's slot in its word; the generation is above.
const SLOT_BITS: u32 = MAX_MODULES.trailing_zeros();
/// Number of generations before they repeat: more than a process can use up.
const GENERATIONS: u64 = 1 << (62 - SLOT_BITS);

fn slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock()
}

fn slot_of(module: u64) -> usize {
    module as usize & (MAX_MODULES - 1)
}

/// One thread's blocks: a word per slot, null until first use.
#[repr(C)]
struct ThreadBlocks {
    rounds: Cell<u32>,
    /// Slots from here on were never used.
    top: AtomicUsize,
    blocks: [AtomicPtr<u8>; MAX_MODULES],
}

/// The header in front of each block.
#[repr(C)]
struct Header {
    /// Start and length of its mapping.
    mapping: *mut u8,
    length: usize,
    /// The module word of its owner.
    module: u64,
}

impl Header {
    /// The header of a block.
    fn of(block: *mut u8) -> *mut Header {
        block.cast::<Header>().wrapping_sub(1)
    }
}

/// The slot of a removable module. Dropping it frees the slot, after the code that uses it.
#[derive(Debug)]
pub(crate) struct OwnedSlot(u64);

impl OwnedSlot {
    /// The slot of a place that was just taken; `None` if it is in static storage, which is never
    /// freed.
    pub(crate) fn new(place: TemplatePlace) -> Option<OwnedSlot> {
        place
            .static_offset
            .is_none()
            .then_some(OwnedSlot(place.module))
    }
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        let slot = slot_of(self.0);
        let mut slots = slots();
        // Acquire: pairs with the release in `fill`, which may have run on another thread.
        let template = TEMPLATES[slot].swap(null_mut(), Ordering::Acquire);
        slots.free.push(slot);
        drop(slots);
        if !template.is_null() {
            // SAFETY: `fill` made it of a box; it was taken out once, here, and no code of the
            // module is left that could read it.
            drop(unsafe { Box::from_raw(template) });
        }
    }
}

thread_local! {
    static BLOCKS: Cell<*mut ThreadBlocks> = const { Cell::new(null_mut()) };
}

/// The pair JIT'd code passes, as the ABI lays it out.
#[repr(C)]
pub(crate) struct TlsIndex {
    module: u64,
    offset: u64,
}

unsafe extern "C" {
    /// In the dynamic loader.
    pub(crate) fn __tls_get_addr(index: *const TlsIndex) -> *mut u8;
}

/// A place for a template: its module word and, in static storage, its offset from
/// the thread pointer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TemplatePlace {
    pub(crate) module: u64,
    pub(crate) static_offset: Option<i64>,
}

/// Takes a place for a template of `size` bytes, in static storage if asked and
/// possible.
///
/// # Errors
/// [`Error::TooManyTlsModules`].
pub(crate) fn place(size: usize, align: usize, in_static: bool) -> Result<TemplatePlace, Error> {
    let in_room = || room::search()?.take(size, align);
    if in_static && let Some(offset) = take_static(size, align).or_else(in_room) {
        let module = OURS | STATIC | u64::from(offset as i32 as u32);
        return Ok(TemplatePlace {
            module,
            static_offset: Some(offset),
        });
    }
    Ok(TemplatePlace {
        module: reserve()?,
        static_offset: None,
    })
}

/// The offset from the thread pointer of byte `offset` of a module of the runtime, if that is in
/// static storage.
pub(crate) fn fixed(module: u64, offset: u64) -> Option<i64> {
    let is_static = module & (OURS | STATIC) == OURS | STATIC;
    is_static.then(|| i64::from(module as u32 as i32).wrapping_add_unsigned(offset))
}

/// Takes a module word for blocks made on demand.
fn reserve() -> Result<u64, Error> {
    let mut slots = slots();
    let slot = match slots.free.pop() {
        Some(slot) => slot,
        None if slots.top == MAX_MODULES => {
            return Err(Error::TooManyTlsModules { limit: MAX_MODULES });
        }
        None => {
            slots.top += 1;
            slots.top - 1
        }
    };
    slots.generation = (slots.generation + 1) % GENERATIONS;
    Ok(OURS | slots.generation << SLOT_BITS | slot as u64)
}

/// Sets the template of a place, before any code that uses it runs.
pub(crate) fn fill(place: TemplatePlace, image: Vec<u8>, size: usize, align: usize) {
    if let Some(offset) = place.static_offset {
        match room::in_use().filter(|room| room.offset == offset) {
            Some(room) => room.fill(&image),
            None => fill_static(offset, &image, size),
        }
        return;
    }
    // Created before threads of the program need it: a child of fork would wait for the thread that
    // creates it.
    key();
    let module = place.module;
    let template = Box::new(Template {
        module,
        image: image.into(),
        size,
        align: align.max(1),
    });
    // Release: pairs with the acquire in `allocate`.
    TEMPLATES[slot_of(module)].store(Box::into_raw(template), Ordering::Release);
}

/// `__tls_get_addr` of JIT'd code.
///
/// # Safety
/// `index` points at a pair of a registered module or of a loaded library.
pub(crate) unsafe extern "C" fn tls_get_addr(index: *const TlsIndex) -> *mut u8 {
    // SAFETY: a pair by the caller's promise.
    let TlsIndex { module, offset } = unsafe { &*index };
    if module & OURS == 0 {
        // SAFETY: a library's pair, which libc knows.
        return unsafe { __tls_get_addr(index) };
    }
    if module & STATIC != 0 {
        let block = thread_pointer() + i64::from(*module as i32);
        return (block as *mut u8).wrapping_add(*offset as usize);
    }
    let block = match block_of(*module) {
        none if none.is_null() => allocate(*module),
        block => block,
    };
    block.wrapping_add(*offset as usize)
}

/// The current thread's address of a variable, for lookups by name; `None` if the module was
/// removed.
pub(crate) fn address(module: u64, offset: u64) -> Option<u64> {
    let index = TlsIndex { module, offset };
    let _there = slots();
    if module & OURS != 0 && module & STATIC == 0 {
        // Acquire: pairs with the release in `fill`.
        let template = TEMPLATES[slot_of(module)].load(Ordering::Acquire);
        // SAFETY: templates are freed after they were taken out under the lock.
        let held = unsafe { template.as_ref() };
        held.filter(|template| template.module == module)?;
    }
    // SAFETY: a pair of a module that exists, or of a library.
    Some(unsafe { tls_get_addr(&index) } as u64)
}

/// The calling thread's block of a module of the runtime; null if it has none yet. Takes no lock.
#[inline]
pub(crate) fn block_of(module: u64) -> *mut u8 {
    let blocks = BLOCKS.with(Cell::get);
    if blocks.is_null() {
        return null_mut();
    }
    // SAFETY: this thread's blocks, live until its last key destructor.
    let block = unsafe { (&(*blocks).blocks)[slot_of(module)].load(Ordering::Relaxed) };
    // SAFETY: a block has a header; this thread's, so no other thread unmaps it meanwhile.
    match !block.is_null() && unsafe { (*Header::of(block)).module } == module {
        true => block,
        false => null_mut(),
    }
}

/// The contents of `PT_TLS` for a filled place: the template's address, its bytes, those of a
/// block, and the alignment. For static storage they are the executable's.
pub(crate) fn template(place: TemplatePlace) -> Option<(u64, [u64; 3])> {
    if let Some(offset) = place.static_offset {
        return match room::in_use().filter(|room| room.offset == offset) {
            Some(room) => Some((room.image as u64, room.sizes)),
            None => reserve::of_executable(),
        };
    }
    // Acquire: pairs with the release in `fill`.
    let template = TEMPLATES[slot_of(place.module)].load(Ordering::Acquire);
    // SAFETY: the owner of the place keeps its template.
    let template = unsafe { template.as_ref() }?;
    let sizes = [template.image.len(), template.size, template.align];
    Some((
        template.image.as_ptr() as u64,
        sizes.map(|size| size as u64),
    ))
}

#[cold]
fn allocate(module: u64) -> *mut u8 {
    let slot = slot_of(module);
    let blocks = this_thread();
    // Acquire: pairs with the release in `fill`.
    let template = TEMPLATES[slot].load(Ordering::Acquire);
    // SAFETY: the user of a module's variable keeps the module, and its template.
    let template = unsafe { template.as_ref() };
    let Some(template) = template.filter(|template| template.module == module) else {
        die("thread-local of a module that is not loaded")
    };
    // SAFETY: this thread's blocks.
    let blocks = unsafe { &*blocks };
    let before = blocks.blocks[slot].load(Ordering::Relaxed);
    let header = size_of::<Header>().next_multiple_of(template.align.max(16));
    let length = header + template.size.max(1);
    // Mappings are page-aligned; larger alignments are obtained by over-allocating.
    let slack = if template.align > 4096 {
        template.align
    } else {
        0
    };
    let mapping = map(length + slack);
    let base = mapping as usize + header;
    let block = base.next_multiple_of(template.align) as *mut u8;
    // SAFETY: the mapping has room for header, alignment and image; it is fresh and zero, so the
    // bytes behind the image are already initialized.
    unsafe {
        *Header::of(block) = Header {
            mapping,
            length: length + slack,
            module,
        };
        std::ptr::copy_nonoverlapping(template.image.as_ptr(), block, template.image.len());
    }
    blocks.top.fetch_max(slot + 1, Ordering::Relaxed);
    let won =
        blocks.blocks[slot].compare_exchange(before, block, Ordering::Relaxed, Ordering::Relaxed);
    match won {
        Ok(old) => {
            // A block of the previous module of the slot, whose variables are not used any more.
            unmap(old);
            block
        }
        Err(other) => {
            // A handler was faster, for the same module: no other has the slot now.
            unmap(block);
            other
        }
    }
}

/// Unmaps an unused block of this thread; does nothing for null.
fn unmap(block: *mut u8) {
    if block.is_null() {
        return;
    }
    let header = Header::of(block);
    // SAFETY: a block has a header.
    let (mapping, length) = unsafe { ((*header).mapping, (*header).length) };
    // SAFETY: the block's own mapping, which is unused by the caller's promise.
    unsafe { libc::munmap(mapping.cast::<c_void>(), length) };
}

fn this_thread() -> *mut ThreadBlocks {
    let held = BLOCKS.with(Cell::get);
    if !held.is_null() {
        return held;
    }
    let fresh = map(size_of::<ThreadBlocks>()).cast::<ThreadBlocks>();
    // A handler that ran since the load has made its own: keep that one.
    let held = BLOCKS.with(Cell::get);
    if !held.is_null() {
        // SAFETY: our mapping, published nowhere.
        unsafe { libc::munmap(fresh.cast::<c_void>(), size_of::<ThreadBlocks>()) };
        return held;
    }
    BLOCKS.with(|cell| cell.set(fresh));
    // SAFETY: a key of the runtime; the value is read by its destructor only.
    unsafe { libc::pthread_setspecific(key(), fresh.cast::<c_void>()) };
    fresh
}

fn key() -> libc::pthread_key_t {
    static KEY: std::sync::OnceLock<libc::pthread_key_t> = std::sync::OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a valid out pointer and a destructor with the right signature.
        if unsafe { libc::pthread_key_create(&mut key, Some(on_thread_exit)) } != 0 {
            die("no key left for thread-local storage");
        }
        key
    })
}

/// Prepares the calling thread for guest code, before any runs: fills in static templates that were
/// loaded after it started, and creates the key, so that no signal handler does.
pub(crate) fn prepare() {
    key();
    reserve::refresh();
    if let Some(room) = room::in_use() {
        room.refresh();
    }
}

unsafe extern "C" fn on_thread_exit(value: *mut c_void) {
    let blocks = value.cast::<ThreadBlocks>();
    // SAFETY: the exiting thread's blocks, not yet freed: they are freed only below.
    let rounds = unsafe { (*blocks).rounds.get() } + 1;
    if rounds < DESTRUCTOR_ROUNDS {
        // SAFETY: as above; setting the value again makes libc call us again.
        unsafe {
            (*blocks).rounds.set(rounds);
            libc::pthread_setspecific(key(), value);
        }
        return;
    }
    // Natively a thread has its variables until the kernel ends it: one may be its alternate stack,
    // and handlers use them. No signal arrives any more; the C library blocks all a few steps
    // later.
    let _never_restored = crate::fork::block_signals();
    BLOCKS.with(|cell| cell.set(null_mut()));
    // SAFETY: only this thread knows these mappings; each is in one word, and unmapped once.
    unsafe {
        let top = (*blocks).top.load(Ordering::Relaxed);
        for block in &(&(*blocks).blocks)[..top] {
            unmap(block.load(Ordering::Relaxed));
        }
        libc::munmap(value, size_of::<ThreadBlocks>());
    }
}

fn map(length: usize) -> *mut u8 {
    // SAFETY: a fresh private mapping.
    let mapping = unsafe {
        libc::mmap(
            null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapping == libc::MAP_FAILED {
        die("no memory for thread-local storage");
    }
    mapping.cast::<u8>()
}

/// Ends the process where no error can be returned, as in libc's own `__tls_get_addr`.
fn die(message: &str) -> ! {
    let text = ["uruk: ", message, "\n"];
    for part in text {
        // SAFETY: writes a live string; `abort` follows whatever happens.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests;
