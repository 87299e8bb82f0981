//! The bookkeeping of one code space: runs of free pages, a window that is being
//! filled, and counts of dead bytes by page. Pure: addresses in, addresses out.
//!
//! # Policy Small blocks are bumped through a window of at most [`WINDOW`] bytes, cut from the free
//! run of the lowest address. So functions made together lie together, and the space stays dense at
//! its low end. Blocks of at least [`LARGE`] bytes take the best fitting run. The part of the space
//! that was never used is its last free run. Holes smaller than a page are never searched:
//! evacuation frees them. Each operation costs O(log n) in the number of runs, plus O(pages of the
//! block).
//!
//! # Invariants
//! - Runs are whole pages and read as zero. Everything else is frozen, or belongs to the
//!   window, to blocks, to dead bytes of a page that others still use, or to the limbo.
//! - Pages whose bytes are all dead go through the limbo ([`Space::take_whole`]) and
//!   come back as runs ([`Space::reuse`]) once the caller has emptied them.
//! - Frozen pages (the parent's, in a child of `fork`) never become a run.
//!
//! `used + retired + fragmented + frozen + limbo + window + runs == capacity`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::freelist::{FreeList, align_up};
use crate::layout::{PAGE, page_up};
use crate::pool::Grant;

/// Size of a window. Large enough that runs are searched rarely, small enough that
/// space given back below it is soon preferred again.
const WINDOW: usize = 64 << 10;

/// From this size on a block takes a run of its own.
const LARGE: usize = WINDOW / 4;

/// Counts of one code space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Bytes in drafts and sealed code that is not retired.
    pub used: usize,
    /// Bytes retired and not yet freed.
    pub retired: usize,
    /// Bytes given back and ready for reuse, and bytes never used.
    pub free: usize,
    /// Dead bytes in pages that also hold living code, and alignment gaps.
    pub fragmented: usize,
    /// Dead bytes in pages inherited through a `fork`: never reused.
    pub frozen: usize,
    /// Dead whole pages that are being given back, or are kept from reuse
    /// ([`Freed`](crate::Freed)).
    pub quarantined: usize,
    /// Pages that hold memory of the system: touched and not given back, inherited
    /// ones included.
    pub resident: usize,
    /// Bytes of the space.
    pub capacity: usize,
}

impl SpaceStats {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: SpaceStats) -> SpaceStats {
        SpaceStats {
            used: self.used + other.used,
            retired: self.retired + other.retired,
            free: self.free + other.free,
            fragmented: self.fragmented + other.fragmented,
            frozen: self.frozen + other.frozen,
            quarantined: self.quarantined + other.quarantined,
            resident: self.resident + other.resident,
            capacity: self.capacity + other.capacity,
        }
    }
}

/// The part in which small blocks are placed: `at <= limit`, and bytes from `clean` on are
/// untouched.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    at: usize,
    clean: usize,
    limit: usize,
}

/// Bookkeeping of one code space.
#[derive(Debug)]
pub(crate) struct Space {
    range: Range<usize>,
    runs: FreeList,
    window: Window,
    /// Dead bytes of pages that are neither run nor limbo nor frozen, by page.
    dead: BTreeMap<usize, usize>,
    /// Pages that became wholly dead and are not taken yet.
    whole: Vec<Range<usize>>,
    /// End of the parent's pages; the start of the space if it has none.
    frozen: usize,
    used: usize,
    retired: usize,
    fragmented: usize,
    frozen_bytes: usize,
    limbo: usize,
}

impl Space {
    pub(crate) fn new(range: Range<usize>) -> Space {
        let mut runs = FreeList::default();
        runs.insert(range.start, range.len());
        let window = Window {
            at: range.start,
            clean: range.start,
            limit: range.start,
        };
        Space {
            runs,
            window,
            dead: BTreeMap::new(),
            whole: Vec::new(),
            frozen: range.start,
            used: 0,
            retired: 0,
            fragmented: 0,
            frozen_bytes: 0,
            limbo: 0,
            range,
        }
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.range.contains(&address)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.range.len()
    }

    /// Hands out `len` bytes (a multiple of the granule, not zero) at a multiple of
    /// `align` (a power of two, at least the granule).
    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Option<Grant> {
        let start = match self.place(len, align) {
            Some(start) => start,
            None if len >= LARGE || align > PAGE => return self.allocate_large(len, align),
            None => {
                self.open(len)?;
                self.place(len, align)?
            }
        };
        self.leave_gap(self.window.at..start);
        let dirty = self.window.clean.saturating_sub(start).min(len);
        self.window.at = start + len;
        self.window.clean = self.window.clean.max(start + len);
        self.used += len;
        Some(Grant { start, dirty })
    }

    /// The address of a block in the window.
    fn place(&self, len: usize, align: usize) -> Option<usize> {
        let start = align_up(self.window.at, align)?;
        let end = start.checked_add(len)?;
        (end <= self.window.limit).then_some(start)
    }

    fn allocate_large(&mut self, len: usize, align: usize) -> Option<Grant> {
        let pages = len.checked_next_multiple_of(PAGE)?;
        let align = align.max(PAGE);
        let start = self.runs.take(pages, align).or_else(|| {
            // The window may hold the pages that are missing.
            self.close();
            self.runs.take(pages, align)
        })?;
        self.leave_gap(start + len..start + pages);
        self.used += len;
        Some(Grant { start, dirty: 0 })
    }

    /// Makes a window in which `len` bytes, at most [`LARGE`], fit at a page's start.
    fn open(&mut self, len: usize) -> Option<()> {
        let need = page_up(len);
        let start = match self.runs.first() {
            Some((start, run)) if run >= need => {
                let size = run.min(WINDOW);
                self.runs.take_front(start, size);
                start..start + size
            }
            Some(_) => {
                let start = self.runs.take(need, PAGE)?;
                start..start + need
            }
            None => return None,
        };
        self.close();
        self.window = Window {
            at: start.start,
            clean: start.start,
            limit: start.end,
        };
        Some(())
    }

    /// Ends the window: untouched pages become a run again.
    fn close(&mut self) {
        let Window { at, clean, limit } = self.window;
        let untouched = page_up(at.max(clean)).min(limit);
        self.runs.insert(untouched, limit - untouched);
        self.window = Window {
            at: untouched,
            clean: untouched,
            limit: untouched,
        };
        self.die(at..untouched);
    }

    /// Counts a gap between blocks that was never touched.
    fn leave_gap(&mut self, gap: Range<usize>) {
        let first = page_up(gap.start);
        let last = gap.end & !(PAGE - 1);
        if first < last {
            self.die(gap.start..first);
            self.runs.insert(first, last - first);
            self.die(last..gap.end);
        } else {
            self.die(gap);
        }
    }

    /// Counts retired code; it may still be executed.
    pub(crate) fn retire(&mut self, len: usize) {
        self.used -= len;
        self.retired += len;
    }

    /// Takes back a block that was never executed.
    pub(crate) fn give_back(&mut self, start: usize, len: usize) {
        self.used -= len;
        if start + len == self.window.at && !self.is_frozen(start) {
            self.window.at = start;
        } else {
            self.die(start..start + len);
        }
    }

    /// Takes back a retired block without references left.
    pub(crate) fn free(&mut self, start: usize, len: usize) {
        self.retired -= len;
        self.die(start..start + len);
    }

    /// Like [`Space::free`] for a block that must never be used again.
    pub(crate) fn poison(&mut self, start: usize, len: usize) {
        self.retired -= len;
        if self.is_frozen(start) {
            self.frozen_bytes += len;
        } else {
            self.limbo += len;
        }
    }

    /// Whether the page of `address` is the parent's.
    pub(crate) fn is_frozen(&self, address: usize) -> bool {
        address < self.frozen
    }

    /// Counts bytes as dead, page by page; pages that are wholly dead are listed.
    fn die(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if self.is_frozen(range.start) {
            self.frozen_bytes += range.len();
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let page = at & !(PAGE - 1);
            let next = if at == page && range.end - at >= PAGE {
                // Whole pages at once.
                let end = range.end & !(PAGE - 1);
                self.entomb(at..end);
                end
            } else {
                let end = range.end.min(page + PAGE);
                let dead = self.dead.entry(page).or_default();
                *dead += end - at;
                self.fragmented += end - at;
                debug_assert!(*dead <= PAGE, "bytes freed twice");
                if *dead == PAGE {
                    self.dead.remove(&page);
                    self.fragmented -= PAGE;
                    self.entomb(page..page + PAGE);
                }
                end
            };
            at = next;
        }
    }

    fn entomb(&mut self, pages: Range<usize>) {
        self.limbo += pages.len();
        self.whole.push(pages);
    }

    /// The pages that became wholly dead since the last call, ascending and merged.
    /// They are in the limbo until [`Space::reuse`].
    pub(crate) fn take_whole(&mut self) -> Vec<Range<usize>> {
        let mut whole = std::mem::take(&mut self.whole);
        whole.sort_unstable_by_key(|run| run.start);
        whole.dedup_by(|next, kept| {
            let touches = kept.end == next.start;
            if touches {
                kept.end = next.end;
            }
            touches
        });
        whole
    }

    /// Makes pages of the limbo free; they read as zero now.
    pub(crate) fn reuse(&mut self, run: Range<usize>) {
        self.limbo -= run.len();
        self.runs.insert(run.start, run.len());
    }

    /// Freezes the space in the child of a `fork`: all but the last free run is the parent's.
    /// Returns that run; it must be replaced by fresh zero pages.
    pub(crate) fn freeze_in_child(&mut self) -> Range<usize> {
        self.close();
        self.dead.clear();
        self.whole.clear();
        let end = self.range.end;
        let last = self.runs.take_ending_at(end).unwrap_or(end);
        // Pages that another thread of the parent was giving back stay the parent's.
        self.frozen_bytes += std::mem::take(&mut self.fragmented);
        self.frozen_bytes += self.runs.clear() + std::mem::take(&mut self.limbo);
        self.runs.insert(last, end - last);
        self.frozen = last;
        last..end
    }

    /// Bytes that cannot be handed out.
    pub(crate) fn held(&self) -> usize {
        self.used + self.retired + self.fragmented + self.frozen_bytes + self.limbo
    }

    /// Bytes that are retired and not yet freed.
    pub(crate) fn retired(&self) -> usize {
        self.retired
    }

    pub(crate) fn stats(&self) -> SpaceStats {
        let Window { at, clean, limit } = self.window;
        let untouched = limit - page_up(at.max(clean)).min(limit);
        SpaceStats {
            used: self.used,
            retired: self.retired,
            free: self.runs.bytes() + limit - at,
            fragmented: self.fragmented,
            frozen: self.frozen_bytes,
            quarantined: self.limbo,
            resident: self.capacity() - self.runs.bytes() - untouched,
            capacity: self.capacity(),
        }
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
