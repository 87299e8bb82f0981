//! Tracks the kernel mappings of the heap: a list that merges as the kernel does.
//!
//! Two neighbours are one mapping when they have the same protection and
//! backing; ours always continue the same file offset, because offset and
//! address advance together.

use std::ops::Range;

/// The mapping of a span of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No access, anonymous.
    Closed,
    /// Private, readable and writable.
    Private,
    /// `r-x` view of the memfd of a generation.
    Executable(u64),
    /// `r--` view of the memfd of a generation.
    Constant(u64),
    /// `rw-` alias of the memfd of a generation.
    Alias(u64),
}

/// Spans in address order, not overlapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    list: Vec<(Range<usize>, Kind)>,
}

impl Spans {
    /// Maps `range` to `kind`, replacing former mappings.
    pub(crate) fn set(&mut self, range: Range<usize>, kind: Kind) {
        if range.is_empty() {
            return;
        }
        let mut list = Vec::with_capacity(self.list.len() + 2);
        for (old, old_kind) in self.list.drain(..) {
            let before = old.start..old.end.min(range.start);
            let after = old.start.max(range.end)..old.end;
            for part in [before, after] {
                if !part.is_empty() {
                    list.push((part, old_kind));
                }
            }
        }
        list.push((range, kind));
        list.sort_by_key(|(range, _)| range.start);
        list.dedup_by(|next, kept| {
            let one = kept.0.end == next.0.start && kept.1 == next.1;
            if one {
                kept.0.end = next.0.end;
            }
            one
        });
        self.list = list;
    }

    /// The number of mappings.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_are_one_mapping() {
        let mut spans = Spans::default();
        spans.set(0..100, Kind::Closed);
        spans.set(10..20, Kind::Executable(0));
        spans.set(20..30, Kind::Executable(0));
        spans.set(30..40, Kind::Constant(0));
        assert_eq!(spans.count(), 4);
        spans.set(15..30, Kind::Executable(1));
        assert_eq!(spans.count(), 5);
        spans.set(0..100, Kind::Closed);
        assert_eq!(spans.count(), 1);
    }
}
