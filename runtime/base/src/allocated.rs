//! Bytes that the allocator takes for live values, for reports of memory.
//!
//! Blocks are counted as glibc's allocator hands them out. Hash tables are counted with all their
//! places. Vectors are counted by their capacity or, where their last pages may never have been
//! written, by their items. Memory that a value points to is counted by code that knows its type.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

/// Bytes that the allocator takes for a block of `bytes`.
#[must_use]
pub const fn of_block(bytes: usize) -> usize {
    match (bytes + 8).next_multiple_of(16) {
        _ if bytes == 0 => 0,
        taken if taken < 32 => 32,
        taken => taken,
    }
}

/// Bytes of the block of an `Arc<T>`: the value and two counts.
#[must_use]
pub const fn of_arc<T>() -> usize {
    of_block(size_of::<T>() + 16)
}

/// Bytes of the block of items stored one after the other, without spare capacity.
#[must_use]
pub const fn of_slice<T>(items: &[T]) -> usize {
    of_block(size_of_val(items))
}

/// Bytes of the block of a vector, with its spare capacity.
#[must_use]
pub const fn of_vec<T>(items: &Vec<T>) -> usize {
    of_block(items.capacity() * size_of::<T>())
}

fn places(capacity: usize) -> usize {
    match capacity {
        0 => 0,
        1..=7 => capacity + 1,
        _ => (capacity * 8 / 7).next_power_of_two(),
    }
}

/// Bytes of the block of a hash table.
#[must_use]
pub fn of_map<K, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> usize {
    of_block(places(map.capacity()) * (size_of::<(K, V)>() + 1))
}

/// Bytes of the block of a hash set.
#[must_use]
pub fn of_set<K, S: BuildHasher>(set: &HashSet<K, S>) -> usize {
    of_block(places(set.capacity()) * (size_of::<K>() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_allocator() {
        let known = [(0, 0), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64)];
        assert!(known.iter().all(|&(bytes, taken)| of_block(bytes) == taken));
        assert_eq!(of_arc::<u64>(), 32);
        assert_eq!(of_vec::<u64>(&Vec::with_capacity(8)), 80);
        assert_eq!(of_slice(&[0_u64; 3]), 32);
        let map: HashMap<u64, u64> = [(1, 2)].into();
        assert_eq!(of_map(&map), of_block(4 * 17));
    }
}
