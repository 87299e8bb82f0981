//! The rest of a limited address space (`ulimit -v`, `ulimit -d`), and the share that a heap takes.
//!
//! A reservation is no memory, but counts towards these limits. It reduces the room for stacks of
//! threads and for every allocation, the program's included.

use rustix::process::{Resource, getrlimit};

use crate::layout::PAGE;

/// Bytes that a heap leaves to other users, if at least as much is left.
const LEAVE: usize = 96 << 20;

/// A limit, and the part of it in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that the process may have mapped.
    pub limit: usize,
    /// Bytes that it has mapped. Half of the limit if `/proc` is not available.
    pub used: usize,
}

impl Room {
    /// The nearer of the two limits, of address space and of writable memory; `None` if neither is
    /// set.
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

    /// The reservation that a heap may make. With its alias it takes half of the rest, or less to
    /// leave [`LEAVE`] bytes, but at least a quarter.
    pub(crate) fn reservation(&self) -> usize {
        let left = self.left();
        let share = left.saturating_sub(LEAVE).clamp(left / 4, left / 2);
        // The shared part, 15 of 32 parts, is mapped twice.
        share / 47 * 32
    }
}

/// Bytes of all mappings, and of private writable ones.
fn used() -> Option<[usize; 2]> {
    let text = uruk_files::read_to_string("/proc/thread-self/statm").ok()?;
    let mut pages = text
        .split(' ')
        .map(|word| word.trim().parse::<usize>().ok());
    let all = pages.next()??;
    // Resident, shared, text, and a field that is always zero come between.
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
