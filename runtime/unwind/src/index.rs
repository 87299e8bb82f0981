//! Insert, find and remove in one region.
//!
//! Each page of the region has a singly linked list of [`Link`]s, newest first;
//! an object that spans pages has one link in the list of each. Lookups walk
//! the list of one page. The writer (one at a time: `&mut Writer` is the
//! evidence) prepends and unlinks.
//!
//! | field | written | ordering | partner |
//! |---|---|---|---|
//! | head of a page | insert, remove | release | acquire load in `find` |
//! | `Link::next` | before publication | relaxed | the release of the head |
//! | `Link::next` | remove of the next | release, as for a head | none: relaxed load in `find`, of links older than this one |
//!
//! An unlinked link keeps its `next`, so a lookup that stands on it continues into the list. Links
//! that it may reach from there were linked when it began, and none of them is freed before it ends
//! (`readers`).

use std::ops::Range;
use std::ptr;

use crate::node::{Found, Link, Node, PAGE_SHIFT, UnwindError};
use crate::readers::{Readers, Reading};
use crate::sync::{Ordering, turn};
use crate::table::PageTable;

/// The index of one region.
#[derive(Debug)]
pub(crate) struct Index {
    base: u64,
    size: u64,
    table: PageTable,
}

/// The right to change lists, for one thread at a time, with the nodes that wait to be freed.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    unlinked: Vec<*mut Node>,
}

// SAFETY: the pointers own their nodes, which are plain data.
unsafe impl Send for Writer {}

impl Index {
    /// An index of `size` bytes at `base`, whole pages of 4 KiB.
    pub(crate) fn new(base: u64, size: usize) -> Result<Index, UnwindError> {
        let page = (1 << PAGE_SHIFT) - 1;
        let whole = base & page == 0 && size as u64 & page == 0;
        if size == 0 || !whole || base.checked_add(size as u64).is_none() {
            return Err(UnwindError::Shape { base, size });
        }
        let table = PageTable::new(size >> PAGE_SHIFT)?;
        let size = size as u64;
        Ok(Index { base, size, table })
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.base..self.base + self.size
    }

    pub(crate) fn contains(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.base) < self.size
    }

    /// Calls `f` with the row that covers `pc` and its name.
    pub(crate) fn find<R>(
        &self,
        _reading: &Reading<'_>,
        pc: u64,
        f: impl FnOnce(Found, &str) -> R,
    ) -> Option<R> {
        if !self.contains(pc) {
            return None;
        }
        turn();
        // Partner: the release stores of `insert` and `remove`.
        let mut next = self.table.head(self.page(pc)).load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: links reached from a head while `_reading` lasts are not
            // freed, and published whole by the release store.
            let link = unsafe { &*next };
            if link.start <= pc && pc < link.end {
                // SAFETY: the node lives as long as its links.
                let node = unsafe { &*link.node };
                if let Some((found, name)) = node.row_at(pc) {
                    return Some(f(found, name));
                }
            }
            turn();
            // Relaxed: links after this one are older. A lookup that sees a link whole saw its
            // head, and so all links made before it.
            next = link.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Publishes a node, newest first: its rows take precedence over older ones they overlap. The
    /// node was made for this region.
    pub(crate) fn insert(&self, _writer: &mut Writer, node: Box<Node>) {
        debug_assert!(node.start >= self.base && node.end <= self.base + self.size);
        let page = self.page(node.start);
        let node = Box::into_raw(node);
        // SAFETY: the node is not published yet, so it is ours alone.
        let own = unsafe { &mut *node };
        for link in std::iter::once(&mut own.first).chain(&mut own.more) {
            link.node = node;
        }
        // SAFETY: from here on the node is only shared, until it is freed, which
        // takes the writer.
        let shared = unsafe { &*node };
        for (i, link) in std::iter::once(&shared.first)
            .chain(&shared.more)
            .enumerate()
        {
            let head = self.table.head(page + i);
            // Relaxed: only writers change a head, one at a time.
            link.next
                .store(head.load(Ordering::Relaxed), Ordering::Relaxed);
            turn();
            // Partner: the acquire load of `find`.
            head.store(ptr::from_ref(link).cast_mut(), Ordering::Release);
        }
    }

    /// Unlinks all nodes that lie in `range`, and returns their number; they are freed by a later
    /// [`Writer::collect`].
    pub(crate) fn remove(&self, writer: &mut Writer, range: Range<u64>) -> usize {
        let start = range.start.max(self.base);
        let end = range.end.min(self.base + self.size);
        let before = writer.unlinked.len();
        if start < end {
            for page in self.page(start)..=self.page(end - 1) {
                self.unlink(writer, page, start..end);
            }
        }
        writer.unlinked.len() - before
    }

    fn unlink(&self, writer: &mut Writer, page: usize, range: Range<u64>) {
        let mut place = self.table.head(page);
        loop {
            // Relaxed: only writers change places, one at a time.
            let link = place.load(Ordering::Relaxed);
            if link.is_null() {
                return;
            }
            // SAFETY: linked, so not freed: freeing takes the writer, too.
            let Link {
                next,
                start,
                end,
                node,
            } = unsafe { &*link };
            if *start < range.start || *end > range.end {
                place = next;
                continue;
            }
            turn();
            // Partner: the acquire load of `find`, where the place is a head.
            place.store(next.load(Ordering::Relaxed), Ordering::Release);
            if self.page(*start) == page {
                writer.unlinked.push(node.cast_mut());
            }
        }
    }

    fn page(&self, pc: u64) -> usize {
        ((pc - self.base) >> PAGE_SHIFT) as usize
    }
}

impl Writer {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Writer {
        Writer {
            unlinked: Vec::new(),
        }
    }

    /// Number of nodes that wait to be freed.
    pub(crate) fn waiting(&self) -> usize {
        self.unlinked.len()
    }

    /// Frees the unlinked nodes, if no lookup is in progress.
    pub(crate) fn collect(&mut self, readers: &Readers) {
        if self.unlinked.is_empty() || !readers.quiescent() {
            return;
        }
        for node in self.unlinked.drain(..) {
            // SAFETY: `insert` made it from a box, `remove` unlinked it from all
            // its pages and listed it once; readers that could have reached it
            // are gone.
            let node = unsafe { Box::from_raw(node) };
            #[cfg(loom)]
            node.probe.with_mut(|_| ());
            drop(node);
        }
    }
}
