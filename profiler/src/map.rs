//! Maps an address and a time to the tag of the code that was there then.
//!
//! The map covers one region. Each 4 KiB page has a list of pieces, newest first; a
//! range that spans pages is one piece in each of them. A range of addresses may be
//! used again: the time of the sample is compared with birth and death.
//!
//! # Invariants
//! - Readers take no lock, allocate nothing and write nothing; they start over only if
//!   a writer made progress meanwhile (`entries` has the access table). Writers take a
//!   lock, `std`'s, one word; no thread may be inside one at a `fork`.
//! - Of two pieces that cover the same address, the lives do not overlap: an insert
//!   ends covered pieces at its own birth.
//! - Memory is bounded by the limit: ended pieces are kept for samples that are still
//!   in a ring, until [`AddressMap::forget_before`] or until their place is needed,
//!   oldest first.

use std::collections::VecDeque;
use std::ops::Range;

use crate::entries::{Chunks, Entry, Link, Piece};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, turn};

/// Pages of the index, log2 of bytes. Not pages of the machine: a small page keeps
/// lists short.
const PAGE_SHIFT: u32 = 12;

/// Death of code that is still live.
const NEVER: u64 = u64::MAX;

/// Error of [`AddressMap::insert`]: the range was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The range is empty or not inside the region.
    #[error(
        "code at {start:#x}..{end:#x} is not inside {base:#x} and the {size:#x} bytes after it"
    )]
    Outside {
        /// First address of the range.
        start: u64,
        /// End of the range.
        end: u64,
        /// First address of the region.
        base: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// More live pieces than the limit allows. A piece is the part of a range that
    /// lies in one 4 KiB page.
    #[error("{wanted} more pieces of code do not fit the address map: {live} of {limit} are live")]
    Full {
        /// Pieces the range needs.
        wanted: usize,
        /// Pieces that live.
        live: usize,
        /// The limit.
        limit: usize,
    },
}

/// Result of [`AddressMap::find`]: the code at an address at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The code with this tag.
    Tag(u64),
    /// Known code covers the address, but not at that time: the sample is older than its birth, or
    /// not older than its death. Drop such a sample.
    Stale,
    /// No code known to the map.
    Unknown,
}

/// Pieces in the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapSize {
    /// Pieces of code that lives.
    pub live: usize,
    /// Pieces of ended code, kept for samples that are not attributed yet.
    pub ended: usize,
    /// Limit of the sum.
    pub limit: usize,
}

/// The map of one region.
#[derive(Debug)]
pub struct AddressMap {
    base: u64,
    size: u64,
    heads: Chunks<AtomicU64>,
    entries: Chunks<Entry>,
    writer: Mutex<Writer>,
}

/// State that only the writer reads.
#[derive(Debug)]
struct Writer {
    limit: usize,
    /// Index of the first entry that was never used.
    fresh: usize,
    free: Vec<usize>,
    live: usize,
    /// Ended entries, in the order of their ends.
    ended: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    page: usize,
    index: usize,
    death: u64,
}

impl AddressMap {
    /// A map of the `size` bytes at `base`, of at most `limit` pieces. A piece is the
    /// part of a range in one 4 KiB page and takes 56 bytes once used; the index
    /// itself takes 24 bytes for 2 MiB of region, and 8 for each page of a used 2 MiB.
    #[must_use]
    pub fn new(base: u64, size: u64, limit: usize) -> AddressMap {
        let limit = limit.min(u32::MAX as usize - 1);
        let size = size.min(u64::MAX - base);
        let first = base >> PAGE_SHIFT;
        let last = (base + size) >> PAGE_SHIFT;
        AddressMap {
            base,
            size,
            heads: Chunks::new((last - first + 1) as usize),
            entries: Chunks::new(limit),
            writer: Mutex::new(Writer {
                limit,
                fresh: 0,
                free: Vec::new(),
                live: 0,
                ended: VecDeque::new(),
            }),
        }
    }

    /// Adds code with `tag` at `range`, live from `birth` on (`CLOCK_MONOTONIC`, nanoseconds). Code
    /// that was at these addresses before ends at `birth`.
    ///
    /// # Errors
    /// The range is outside of the region, or the map is full of live code; the map
    /// is unchanged then.
    pub fn insert(&self, range: Range<u64>, tag: u64, birth: u64) -> Result<(), MapError> {
        self.insert_all([(range, tag)], birth)
    }

    /// [`AddressMap::insert`] for several ranges and their tags, under one lock.
    ///
    /// # Errors
    /// The error of the first range that fails; ranges after it are not inserted.
    pub fn insert_all(
        &self,
        ranges: impl IntoIterator<Item = (Range<u64>, u64)>,
        birth: u64,
    ) -> Result<(), MapError> {
        let mut writer = self.lock();
        ranges
            .into_iter()
            .try_for_each(|(range, tag)| self.put(&mut writer, range, tag, birth))
    }

    fn put(
        &self,
        writer: &mut Writer,
        range: Range<u64>,
        tag: u64,
        birth: u64,
    ) -> Result<(), MapError> {
        self.check(&range)?;
        let pages = self.page(range.start)..=self.page(range.end - 1);
        let wanted = pages.clone().count();
        if wanted > writer.limit - writer.live {
            return Err(MapError::Full {
                wanted,
                live: writer.live,
                limit: writer.limit,
            });
        }
        self.end(writer, &range, birth);
        for page in pages {
            let index = self.take(writer);
            let first = (self.base >> PAGE_SHIFT) + page as u64;
            let head = self.heads.make(page);
            let link = self.entries.make(index).fill(
                index,
                Piece {
                    start: range.start.max(first << PAGE_SHIFT),
                    end: range.end.min((first + 1) << PAGE_SHIFT),
                    birth,
                    death: NEVER,
                    tag,
                    next: Link(head.load(Ordering::Relaxed)),
                },
            );
            writer.live += 1;
            turn();
            // Partner: the acquire load in `find`.
            head.store(link.0, Ordering::Release);
        }
        Ok(())
    }

    /// Ends the code that overlaps a range at `death`: samples of that time or later are not
    /// attributed to it. Parts of the range outside of the region are ignored.
    pub fn retire(&self, range: Range<u64>, death: u64) {
        self.retire_all(&[range], death);
    }

    /// [`AddressMap::retire`] for several ranges, under one lock.
    pub fn retire_all(&self, ranges: &[Range<u64>], death: u64) {
        let mut writer = self.lock();
        for range in ranges {
            let start = range.start.max(self.base);
            let end = range.end.min(self.base + self.size);
            if start < end {
                self.end(&mut writer, &(start..end), death);
            }
        }
    }

    /// Forgets code that ended at or before `time`. All samples up to then must have been
    /// attributed.
    pub fn forget_before(&self, time: u64) {
        let mut writer = self.lock();
        while writer
            .ended
            .front()
            .is_some_and(|ended| ended.death <= time)
        {
            self.forget_one(&mut writer);
        }
    }

    /// The code that was at `pc` at `time`.
    #[must_use]
    pub fn find(&self, pc: u64, time: u64) -> Found {
        if pc < self.base || pc - self.base >= self.size {
            return Found::Unknown;
        }
        let Some(head) = self.heads.get(self.page(pc)) else {
            return Found::Unknown;
        };
        'again: loop {
            let mut found = Found::Unknown;
            turn();
            // Partner: the release stores of `insert` and `forget_one`.
            let mut link = Link(head.load(Ordering::Acquire));
            while let Some(index) = link.index() {
                let entry = self.entries.get(index);
                let Some(piece) = entry.and_then(|entry| entry.read(link)) else {
                    // The entry was unlinked while we read it: a writer made progress, so start
                    // over.
                    continue 'again;
                };
                if (piece.start..piece.end).contains(&pc) {
                    if (piece.birth..piece.death).contains(&time) {
                        return Found::Tag(piece.tag);
                    }
                    found = Found::Stale;
                }
                link = piece.next;
            }
            return found;
        }
    }

    /// The number of pieces in the map, and the limit.
    #[must_use]
    pub fn size(&self) -> MapSize {
        let writer = self.lock();
        MapSize {
            live: writer.live,
            ended: writer.ended.len(),
            limit: writer.limit,
        }
    }

    fn check(&self, range: &Range<u64>) -> Result<(), MapError> {
        let inside = range.start >= self.base && range.end <= self.base + self.size;
        if inside && range.start < range.end {
            return Ok(());
        }
        Err(MapError::Outside {
            start: range.start,
            end: range.end,
            base: self.base,
            size: self.size,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        // A panic inside leaves lists valid: each step is one store.
        #[cfg(not(loom))]
        return self.writer.lock();
        #[cfg(loom)]
        (self.writer.lock()).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn page(&self, pc: u64) -> usize {
        ((pc >> PAGE_SHIFT) - (self.base >> PAGE_SHIFT)) as usize
    }

    /// Ends the lives that overlap a range of the region.
    fn end(&self, writer: &mut Writer, range: &Range<u64>, death: u64) {
        for page in self.page(range.start)..=self.page(range.end - 1) {
            let Some(head) = self.heads.get(page) else {
                continue;
            };
            let mut link = Link(head.load(Ordering::Relaxed));
            while let Some(index) = link.index() {
                let entry = self.entries.make(index);
                let piece = entry.peek();
                let overlaps = piece.start < range.end && range.start < piece.end;
                if overlaps && piece.death == NEVER {
                    entry.set_death(death);
                    writer.live -= 1;
                    writer.ended.push_back(Ended { page, index, death });
                }
                link = piece.next;
            }
        }
    }

    /// An entry that is in no list. The caller made sure that there is room.
    fn take(&self, writer: &mut Writer) -> usize {
        if writer.free.is_empty() {
            if writer.fresh < writer.limit {
                writer.fresh += 1;
                return writer.fresh - 1;
            }
            self.forget_one(writer);
        }
        writer.free.pop().expect("live pieces are within the limit")
    }

    /// Unlinks the entry that ended first.
    fn forget_one(&self, writer: &mut Writer) {
        let Some(ended) = writer.ended.pop_front() else {
            return;
        };
        let entry = self.entries.make(ended.index);
        let mut place = self.heads.make(ended.page);
        while let Some(index) = Link(place.load(Ordering::Relaxed)).index() {
            if index == ended.index {
                turn();
                // Partner: the acquire load in `find`, or the fence in `read`.
                place.store(entry.peek().next.0, Ordering::Release);
                break;
            }
            place = self.entries.make(index).next_place();
        }
        entry.close();
        writer.free.push(ended.index);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
