//! The storage under [`AddressMap`](crate::AddressMap): arrays that grow in place, and
//! entries that can be reused while readers may still hold a link to them.
//!
//! A [`Link`] names an entry *and its generation*. A reader that follows a link reads
//! the entry between two looks at its generation; if either differs from the link's,
//! the entry was unlinked meanwhile and the reader starts over. All fields are
//! atomics, so no read is a data race.
//!
//! | field | written | ordering | partner |
//! |---|---|---|---|
//! | generation | unlink | release + release fence | acquire loads and fence in `read` |
//! | other fields | before publication | relaxed | release store of the link |
//! | death | retire | relaxed | none: old and new value are both right |
//! | next | unlink of the next | release | acquire fence in `read` |
//!
//! A generation has 32 bits: a reader would have to sleep through 2^32 uses of one
//! entry to mistake a later use for its own.

use std::sync::OnceLock;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, turn};

/// Elements of one chunk.
const CHUNK: usize = if cfg!(loom) { 4 } else { 512 };

/// An array whose chunks are allocated when they are first written.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Chunks<T> {
    pub(crate) fn new(len: usize) -> Chunks<T> {
        let chunks = (0..len.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Chunks { chunks }
    }

    /// The element; `None` if its chunk was never written.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// The element; allocates its chunk if needed. Panics if `index` is out of range.
    pub(crate) fn make(&self, index: usize) -> &T {
        let fresh = || (0..CHUNK).map(|_| T::default()).collect();
        &self.chunks[index / CHUNK].get_or_init(fresh)[index % CHUNK]
    }
}

/// Names one use of one entry, or none (zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(pub(crate) u64);

impl Link {
    fn new(index: usize, generation: u32) -> Link {
        Link(u64::from(generation) << 32 | (index as u64 + 1))
    }

    pub(crate) fn index(self) -> Option<usize> {
        (self.0 as u32 as usize).checked_sub(1)
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The values of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) birth: u64,
    pub(crate) death: u64,
    pub(crate) tag: u64,
    pub(crate) next: Link,
}

/// The atomics behind a [`Piece`].
#[derive(Debug, Default)]
pub(crate) struct Entry {
    generation: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    birth: AtomicU64,
    death: AtomicU64,
    tag: AtomicU64,
    next: AtomicU64,
}

impl Entry {
    /// The entry in the use that `link` names; `None` if that use is over.
    pub(crate) fn read(&self, link: Link) -> Option<Piece> {
        let generation = link.generation();
        turn();
        if self.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        turn();
        let piece = self.peek();
        turn();
        // Partner: the fence in `close` and the release stores to `next`.
        fence(Ordering::Acquire);
        (self.generation.load(Ordering::Acquire) == generation).then_some(piece)
    }

    /// The entry's present values. Only the one writer may rely on them.
    pub(crate) fn peek(&self) -> Piece {
        Piece {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            birth: self.birth.load(Ordering::Relaxed),
            death: self.death.load(Ordering::Relaxed),
            tag: self.tag.load(Ordering::Relaxed),
            next: Link(self.next.load(Ordering::Relaxed)),
        }
    }

    /// Fills an entry that is in no list; the caller publishes the link.
    pub(crate) fn fill(&self, index: usize, piece: Piece) -> Link {
        turn();
        self.start.store(piece.start, Ordering::Relaxed);
        self.end.store(piece.end, Ordering::Relaxed);
        self.birth.store(piece.birth, Ordering::Relaxed);
        self.death.store(piece.death, Ordering::Relaxed);
        self.tag.store(piece.tag, Ordering::Relaxed);
        turn();
        self.next.store(piece.next.0, Ordering::Relaxed);
        turn();
        Link::new(index, self.generation.load(Ordering::Relaxed))
    }

    /// Ends this use of an entry that was just unlinked.
    pub(crate) fn close(&self) {
        let generation = self.generation.load(Ordering::Relaxed);
        turn();
        self.generation
            .store(generation.wrapping_add(1), Ordering::Release);
        // Partner: the fence in `read`. A reader that sees a field of the next use also sees that
        // this one is over. (The release above is for readers that start over: they find the list
        // without this entry.)
        fence(Ordering::Release);
    }

    pub(crate) fn set_death(&self, time: u64) {
        turn();
        self.death.store(time, Ordering::Relaxed);
    }

    /// The field that holds the link to the next entry.
    pub(crate) fn next_place(&self) -> &AtomicU64 {
        &self.next
    }
}
