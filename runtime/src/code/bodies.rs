//! The map of bodies: name and extent by address.
//!
//! Bodies are kept by the page of 4 KiB they start in, and in a page by address. Code is copied and
//! freed by the hundred and side by side. So most of them are in the page of the previous one, and
//! a page whose code is freed completely is removed at once.
//!
//! Invariants:
//! - A page in the map has a body.
//! - Within a page starts ascend; of two bodies with one start the later stays.
//! - Sizes are kept instead of ends: the search of all memory could mistake an end for a return
//!   address.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ops::Range;

use uruk_base::allocated::of_vec;

const PAGE_SHIFT: u32 = 12;

/// A body: its first byte, the byte after its last, and its display name.
pub(super) type Extent = (u64, u64, &'static CStr);

/// Start, size and name.
#[derive(Clone, Copy, Debug)]
struct NamedBody {
    start: u64,
    size: u64,
    name: &'static CStr,
}

impl NamedBody {
    fn new((start, end, name): Extent) -> NamedBody {
        let size = end.saturating_sub(start);
        NamedBody { start, size, name }
    }

    fn extent(self) -> Extent {
        (self.start, self.start + self.size, self.name)
    }
}

/// All bodies of a session.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    pages: BTreeMap<u64, Vec<NamedBody>>,
}

impl Bodies {
    /// Bytes that the allocator took for them.
    pub(crate) fn bytes(&self) -> usize {
        // Nodes of the tree are half full if addresses ascend.
        let nodes = self.pages.len() * 2 * size_of::<(u64, Vec<NamedBody>)>();
        nodes + self.pages.values().map(of_vec).sum::<usize>()
    }

    /// Adds bodies; ascending order costs least.
    pub(crate) fn add(&mut self, some: impl IntoIterator<Item = Extent>) {
        let mut some = some.into_iter().map(NamedBody::new).peekable();
        while let Some(body) = some.next() {
            let here = page(body.start);
            let held = self.pages.entry(here).or_default();
            put(held, body);
            while let Some(body) = some.next_if(|body| page(body.start) == here) {
                put(held, body);
            }
        }
    }

    /// Removes the bodies that start in `range`.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (page(range.start), page(range.end - 1));
        // Bodies that start before the range, or behind it, stay in the pages at its ends.
        for edge in [first, last] {
            if let Some(held) = self.pages.get_mut(&edge) {
                held.retain(|body| !range.contains(&body.start));
                if held.is_empty() {
                    self.pages.remove(&edge);
                }
            }
        }
        while let Some((&page, _)) = self.pages.range(first + 1..last.max(first + 1)).next() {
            self.pages.remove(&page);
        }
    }

    /// The body that holds `pc`.
    pub(crate) fn at(&self, pc: u64) -> Option<Extent> {
        let pages = self.pages.range(..=page(pc)).rev();
        // The first page may only hold bodies behind `pc`.
        let before = |held: &Vec<NamedBody>| {
            let after = held.partition_point(|body| body.start <= pc);
            held[..after].last().copied()
        };
        let found = pages.take(2).find_map(|(_, held)| before(held));
        let found = found.filter(|body| pc - body.start < body.size);
        found.map(NamedBody::extent)
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.pages.values().flatten().map(|body| body.extent())
    }
}

fn page(address: u64) -> u64 {
    address >> PAGE_SHIFT
}

fn put(held: &mut Vec<NamedBody>, body: NamedBody) {
    if held.last().is_none_or(|last| last.start < body.start) {
        held.push(body);
        return;
    }
    match held.binary_search_by_key(&body.start, |held| held.start) {
        Ok(at) => held[at] = body,
        Err(at) => held.insert(at, body),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::CStr;

    use super::{Bodies, Extent};

    const NAMES: [&CStr; 3] = [c"a", c"b", c"c"];

    /// Compares random additions, removals and searches in five pages with one ordered map.
    #[test]
    fn agrees_with_one_ordered_map() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut bodies = Bodies::default();
        let mut map: BTreeMap<u64, (u64, &'static CStr)> = BTreeMap::new();
        for round in 0..20_000 {
            if random(3) > 0 {
                let start = random(1280) * 16;
                let some: Vec<Extent> = (0..random(6))
                    .map(|i| {
                        let start = start + i * 1500;
                        (start, start + random(6000), NAMES[random(3) as usize])
                    })
                    .collect();
                map.extend(some.iter().map(|&(start, end, name)| (start, (end, name))));
                bodies.add(some);
            } else {
                let start = random(20_480);
                let range = start..start + random(12_000);
                map.retain(|start, _| !range.contains(start));
                bodies.remove(range);
            }
            let pc = random(24_000);
            let found = map.range(..=pc).next_back();
            let found = found.map(|(&start, &(end, name))| (start, end, name));
            let right = found.filter(|&(_, end, _)| pc < end);
            assert_eq!(bodies.at(pc), right, "round {round}: {pc:#x}");
            if round % 64 == 0 {
                let all: Vec<Extent> = bodies.iter().collect();
                let right = map.iter().map(|(&start, &(end, name))| (start, end, name));
                assert_eq!(all, right.collect::<Vec<_>>(), "round {round}");
                assert!(bodies.pages.values().all(|held| !held.is_empty()));
            }
        }
    }
}
