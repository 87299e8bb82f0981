//! One inserted object: its rows, its names, and its links.
//!
//! A node is immutable once it is published, except for `next` of its links,
//! which the writer changes when a neighbour is unlinked.

use std::ops::Range;
use std::ptr;

use thiserror::Error;
use uruk_base::allocated::of_block;

use crate::sync::AtomicPtr;

/// Page size of the index, log2 of bytes: a lookup searches one page's list.
pub(crate) const PAGE_SHIFT: u32 = 12;

/// One function's unwind data, with run addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// First byte of the function.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// Address of its frame description entry; 0 when it has none and is listed
    /// only for its name.
    pub fde: u64,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// First byte of the function.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// Address of its frame description entry, or 0.
    pub fde: u64,
}

/// An error of the unwind index.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnwindError {
    /// A region must start at a page and not be empty.
    #[error("bad region {base:#x}+{size:#x}: not whole pages")]
    Shape {
        /// Its base.
        base: u64,
        /// Its size.
        size: usize,
    },
    /// A region covers addresses of another one.
    #[error("region {base:#x}+{size:#x} overlaps a registered one")]
    Overlap {
        /// Its base.
        base: u64,
        /// Its size.
        size: usize,
    },
    /// Too many regions at once.
    #[error("more than {limit} regions")]
    TooManyRegions {
        /// The limit.
        limit: usize,
    },
    /// No memory for the table of a region.
    #[error("no memory for an unwind table of {bytes} bytes (os error {errno})")]
    Table {
        /// Bytes of address space asked.
        bytes: usize,
        /// The system's error number.
        errno: i32,
    },
    /// A row is empty, or leaves the region.
    #[error("bad unwind row {start:#x}..{end:#x}: empty or outside of the region")]
    BadRow {
        /// Its start.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// Two rows of one object overlap.
    #[error("unwind rows at {first:#x} and {second:#x} overlap")]
    RowsOverlap {
        /// Start of the first.
        first: u64,
        /// Start of the second.
        second: u64,
    },
    /// The number of names is neither zero nor that of the rows.
    #[error("{names} names for {rows} unwind rows")]
    Names {
        /// Names given.
        names: usize,
        /// Rows given.
        rows: usize,
    },
}

/// A place in the list of one page.
#[derive(Debug)]
pub(crate) struct Link {
    /// Written by the writer: before publication, and when the next link is
    /// unlinked (see `index`).
    pub(crate) next: AtomicPtr<Link>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: *const Node,
}

/// The rows of an object.
#[derive(Debug)]
enum Rows {
    /// A single one, whose name is all of `names`.
    One(Row),
    /// Sorted by start, not overlapping, with the end of each one's name in
    /// `names`; no ends when there are no names.
    Many(Box<[Row]>, Box<[u32]>),
}

/// The names of an object's rows.
#[derive(Debug)]
enum Names {
    /// End to end, by the ends in [`Rows::Many`].
    Own(Box<str>),
    /// One static name for all rows.
    Shared(&'static str),
}

/// Bytes that the allocator takes for an object of so many rows that have one name.
#[must_use]
pub const fn object_bytes(rows: usize) -> usize {
    of_block(size_of::<Node>())
        + match rows {
            0 | 1 => 0,
            _ => of_block(rows * size_of::<Row>()),
        }
}

/// One object.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) start: u64,
    pub(crate) end: u64,
    rows: Rows,
    names: Names,
    /// The links of the first page and of the pages after it up to `end`. The
    /// first is inline: an object of one function is one allocation.
    pub(crate) first: Link,
    pub(crate) more: Box<[Link]>,
    /// Lets loom see every read of a node, and its end.
    #[cfg(loom)]
    pub(crate) probe: loom::cell::UnsafeCell<()>,
}

impl Node {
    /// Sorts and checks the rows, which must lie in `region`; `names` is empty or has one name for
    /// each row. `None`: no rows, nothing to insert.
    pub(crate) fn new(
        region: Range<u64>,
        rows: &[Row],
        names: &[&str],
    ) -> Result<Option<Box<Node>>, UnwindError> {
        if !names.is_empty() && names.len() != rows.len() {
            return Err(UnwindError::Names {
                names: names.len(),
                rows: rows.len(),
            });
        }
        check(&region, rows)?;
        let (rows, names) = match *rows {
            [] => return Ok(None),
            [row] => (Rows::One(row), names.concat().into()),
            _ => sorted(rows, names)?,
        };
        Ok(Some(Node::of(rows, Names::Own(names))))
    }

    /// Like [`Node::new`], with one name for all rows.
    pub(crate) fn named(
        region: &Range<u64>,
        rows: &[Row],
        name: &'static str,
    ) -> Result<Option<Box<Node>>, UnwindError> {
        check(region, rows)?;
        let rows = match *rows {
            [] => return Ok(None),
            [row] => Rows::One(row),
            _ => sorted(rows, &[])?.0,
        };
        Ok(Some(Node::of(rows, Names::Shared(name))))
    }

    fn of(rows: Rows, names: Names) -> Box<Node> {
        let (start, end) = match &rows {
            Rows::One(row) => (row.start, row.end),
            Rows::Many(rows, _) => (rows[0].start, rows[rows.len() - 1].end),
        };
        let link = || Link {
            next: AtomicPtr::new(ptr::null_mut()),
            start,
            end,
            node: ptr::null(),
        };
        let after = ((end - 1) >> PAGE_SHIFT) - (start >> PAGE_SHIFT);
        Box::new(Node {
            start,
            end,
            rows,
            names,
            first: link(),
            more: (0..after).map(|_| link()).collect(),
            #[cfg(loom)]
            probe: loom::cell::UnsafeCell::new(()),
        })
    }

    /// The row that covers `pc`, with its name (empty when it has none).
    pub(crate) fn row_at(&self, pc: u64) -> Option<(Found, &str)> {
        #[cfg(loom)]
        self.probe.with(|_| ());
        let (i, row) = match &self.rows {
            Rows::One(row) => (0, row),
            Rows::Many(rows, _) => {
                let after = rows.partition_point(|row| row.start <= pc);
                let i = after.checked_sub(1)?;
                (i, &rows[i])
            }
        };
        let Row { start, end, fde } = *row;
        if !(start..end).contains(&pc) {
            return None;
        }
        Some((Found { start, end, fde }, self.name(i)))
    }

    fn name(&self, i: usize) -> &str {
        match (&self.names, &self.rows) {
            (Names::Shared(name), _) => name,
            (Names::Own(names), Rows::One(_)) => names,
            (Names::Own(names), Rows::Many(_, ends)) => ends.get(i).map_or("", |&end| {
                let start = i.checked_sub(1).map_or(0, |before| ends[before]);
                names.get(start as usize..end as usize).unwrap_or("")
            }),
        }
    }
}

/// Whether rows are not empty and lie in the region.
fn check(region: &Range<u64>, rows: &[Row]) -> Result<(), UnwindError> {
    let good =
        |row: &Row| row.start < row.end && row.start >= region.start && row.end <= region.end;
    match rows.iter().find(|row| !good(row)) {
        Some(&Row { start, end, .. }) => Err(UnwindError::BadRow { start, end }),
        None => Ok(()),
    }
}

/// Sorts several rows by start, with their names in the same order.
fn sorted(rows: &[Row], names: &[&str]) -> Result<(Rows, Box<str>), UnwindError> {
    let (rows, ends, names) = if rows.is_sorted_by_key(|row| row.start) {
        let (ends, names) = join(names.iter().copied());
        (Box::from(rows), ends, names)
    } else {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| rows[i].start);
        let (ends, names) = join(order.iter().filter_map(|&i| names.get(i).copied()));
        (order.iter().map(|&i| rows[i]).collect(), ends, names)
    };
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(UnwindError::RowsOverlap {
            first: pair[0].start,
            second: pair[1].start,
        });
    }
    Ok((Rows::Many(rows, ends), names))
}

/// Joins names end to end; returns the end of each, too. Text beyond 4 GiB is cut.
fn join<'n>(names: impl Iterator<Item = &'n str>) -> (Box<[u32]>, Box<str>) {
    let mut text = String::new();
    let mut ends = Vec::new();
    for name in names {
        if u32::try_from(text.len() + name.len()).is_ok() {
            text.push_str(name);
        }
        ends.push(text.len() as u32);
    }
    (ends.into(), text.into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: Range<u64> = 0..0x1000;

    fn row(start: u64, end: u64) -> Row {
        Row {
            start,
            end,
            fde: start + 1,
        }
    }

    #[test]
    fn rows_are_sorted_with_their_names() {
        let rows = [row(0x30, 0x40), row(0x10, 0x20), row(0x20, 0x28)];
        let node = Node::new(ALL, &rows, &["gamma", "alpha", "be"])
            .unwrap()
            .unwrap();
        let at = |pc| node.row_at(pc).map(|(found, name)| (found.fde, name));
        assert_eq!(at(0x0f), None);
        assert_eq!(at(0x10), Some((0x11, "alpha")));
        assert_eq!(at(0x1f), Some((0x11, "alpha")));
        assert_eq!(at(0x20), Some((0x21, "be")));
        assert_eq!(at(0x28), None);
        assert_eq!(at(0x3f), Some((0x31, "gamma")));
        assert_eq!(at(0x40), None);
    }

    #[test]
    fn one_name_serves_all_rows() {
        let rows = [row(0x30, 0x40), row(0x10, 0x20)];
        for rows in [&rows[..], &rows[..1]] {
            let node = Node::named(&ALL, rows, "alpha").unwrap().unwrap();
            let at = |pc| node.row_at(pc).map(|(found, name)| (found.fde, name));
            assert_eq!(at(0x3f), Some((0x31, "alpha")));
            assert_eq!(at(0x10), (rows.len() > 1).then_some((0x11, "alpha")));
            assert_eq!(at(0x20), None);
        }
        let bad = Node::named(&ALL, &[row(8, 12), row(4, 9)], "a").unwrap_err();
        let (first, second) = (4, 8);
        assert_eq!(bad, UnwindError::RowsOverlap { first, second });
        let bad = Node::named(&ALL, &[row(8, 8)], "a").unwrap_err();
        assert_eq!(bad, UnwindError::BadRow { start: 8, end: 8 });
        assert!(matches!(Node::named(&ALL, &[], "a"), Ok(None)));
    }

    #[test]
    fn bad_rows_are_refused() {
        assert!(matches!(Node::new(ALL, &[], &[]), Ok(None)));
        assert_eq!(
            Node::new(ALL, &[row(8, 8)], &[]).unwrap_err(),
            UnwindError::BadRow { start: 8, end: 8 }
        );
        assert_eq!(
            Node::new(ALL, &[row(8, u64::MAX)], &[]).unwrap_err(),
            UnwindError::BadRow {
                start: 8,
                end: u64::MAX
            }
        );
        assert_eq!(
            Node::new(ALL, &[row(8, 12), row(4, 9)], &[]).unwrap_err(),
            UnwindError::RowsOverlap {
                first: 4,
                second: 8
            }
        );
        assert_eq!(
            Node::new(ALL, &[row(8, 12)], &["a", "b"]).unwrap_err(),
            UnwindError::Names { names: 2, rows: 1 }
        );
    }
}
