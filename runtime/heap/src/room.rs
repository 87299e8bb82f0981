//! What is left where address space is limited (`ulimit -v`, `ulimit -d`), and how much of
//! that a heap takes.
//!
//! A reservation is no memory, but counts towards these limits. What it takes is missing
//! for the stacks of threads and for every allocation, the program's included.

use rustix::process::{Resource, getrlimit};

use crate::layout::PAGE;

/// What a heap leaves to others if at least that much is left.
const LEAVE: usize = 96 << 20;

/// A limit, and what of it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that the process may have mapped.
    pub limit: usize,
    /// Bytes that it has mapped. Half of the limit where `/proc` does not tell.
    pub used: usize,
}

impl Room {
    /// The nearer of the two limits, of address space and of writable memory; `None` if
    /// there is neither.
    pub fn now() -> Option<Room> {
        let limits = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
        if limits == [None; 2] {
            return None;
        }
        let used = used();
        let rooms = limits.into_iter().enumerate().filter_map(|(index, limit)| {
            let limit = usize::try_from(limit?).unwrap_or(usize::MAX);
            let used = used.map_or(limit / 2, |used| used[index]);
            Some(Room { limit, used })
        });
        rooms.min_by_key(Room::left)
    }

    /// Bytes that may still be mapped.
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// The reservation that a heap may make: with its alias it takes half of what is left,
    /// less where [`LEAVE`] bytes would not be left, but a quarter at least.
    pub(crate) fn reservation(&self) -> usize {
        let left = self.left();
        let share = left.saturating_sub(LEAVE).clamp(left / 4, left / 2);
        // The shared part, 15 of 32 parts, is mapped twice.
        share / 47 * 32
    }
}

/// Bytes of all mappings, and of private writable ones.
fn used() -> Option<[usize; 2]> {
    let text = uruk_files::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text
        .split(' ')
        .map(|word| word.trim().parse::<usize>().ok());
    let all = pages.next()??;
    // Resident, shared, text, and one that is always zero come between.
    let data = pages.nth(4)??;
    Some([all * PAGE, data * PAGE])
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn a_heap_leaves_room() {
        const MIB: usize = 1 << 20;
        let reservation = |left: usize| {
            let room = Room {
                limit: left + 7,
                used: 7,
            };
            room.reservation() / MIB
        };
        let table = [0, 20, 100, 128, 160, 200, 500, 4000].map(|left| reservation(left * MIB));
        assert_eq!(table, [0, 3, 17, 21, 43, 68, 170, 1361]);
        let full = Room { limit: 1, used: 2 };
        assert_eq!((full.left(), full.reservation()), (0, 0));
    }
}
