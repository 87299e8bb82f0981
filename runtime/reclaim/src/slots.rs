//! A table of blocks: an array in pieces, indexed by the low bits of a [`BlockId`].
//!
//! [`Slots::add`] makes new numbers and takes the lowest free place; tables with the same numbers
//! use [`Slots::insert`]. Blocks that were made in sequence lie in sequence. So an iteration over
//! the copies of one evacuation reads memory from front to back, and a look-up costs an index
//! instead of a hash.
//!
//! ```text
//! id = serial << PLACE_BITS | place
//! ```
//!
//! Invariants:
//! - An entry is found only by the exact id it was put under: an id whose place was reused finds
//!   nothing.
//! - A piece without entries holds no memory.

use uruk_base::allocated::{of_slice, of_vec};

use crate::ids::BlockId;

/// Bits of a place: blocks of 16 bytes in 2 GiB.
const PLACE_BITS: u32 = 27;
/// Entries of one piece; a bit of a word each.
const PIECE: usize = u64::BITS as usize;

#[derive(Debug)]
struct Piece<T> {
    used: u64,
    /// Empty while no entry is used.
    entries: Box<[Option<(BlockId, T)>]>,
}

/// Entries by block; see the module.
#[derive(Debug)]
pub struct Slots<T> {
    pieces: Vec<Piece<T>>,
    len: usize,
    /// No piece before this one has a free place.
    open: usize,
    serial: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            pieces: Vec::new(),
            len: 0,
            open: 0,
            serial: 0,
        }
    }
}

fn place(id: BlockId) -> usize {
    (id.0 & ((1 << PLACE_BITS) - 1)) as usize
}

impl<T> Slots<T> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the allocator took for the table, without memory that entries point to.
    pub fn bytes(&self) -> usize {
        let pieces = self.pieces.iter();
        of_vec(&self.pieces) + pieces.map(|piece| of_slice(&piece.entries)).sum::<usize>()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an entry at the lowest free place, under a new number.
    ///
    /// # Panics
    /// If there are `2^27` entries: more than blocks that code memory can hold.
    pub fn add(&mut self, value: T) -> BlockId {
        while self.pieces.get(self.open).is_some_and(|p| p.used == !0) {
            self.open += 1;
        }
        let used = self.pieces.get(self.open).map_or(0, |piece| piece.used);
        let place = self.open * PIECE + (!used).trailing_zeros() as usize;
        assert!(place < 1 << PLACE_BITS, "{place} blocks");
        self.serial += 1;
        let id = BlockId(self.serial << PLACE_BITS | place as u64);
        let put = self.insert(id, value);
        debug_assert!(put.is_ok(), "the place was free");
        id
    }

    /// Puts an entry under a number that was made elsewhere.
    ///
    /// # Errors
    /// Its place is taken; the value is returned.
    pub fn insert(&mut self, id: BlockId, value: T) -> Result<(), T> {
        let (piece, at) = (place(id) / PIECE, place(id) % PIECE);
        if piece >= self.pieces.len() {
            self.pieces.resize_with(piece + 1, || Piece {
                used: 0,
                entries: Box::default(),
            });
        }
        let piece = &mut self.pieces[piece];
        if piece.used & 1 << at != 0 {
            return Err(value);
        }
        if piece.entries.is_empty() {
            piece.entries = (0..PIECE).map(|_| None).collect();
        }
        piece.entries[at] = Some((id, value));
        piece.used |= 1 << at;
        self.len += 1;
        Ok(())
    }

    /// The entry of a block.
    pub fn get(&self, id: BlockId) -> Option<&T> {
        let piece = self.pieces.get(place(id) / PIECE)?;
        match piece.entries.get(place(id) % PIECE)? {
            Some((found, value)) if *found == id => Some(value),
            _ => None,
        }
    }

    /// The entry of a block, to be changed.
    pub fn get_mut(&mut self, id: BlockId) -> Option<&mut T> {
        let piece = self.pieces.get_mut(place(id) / PIECE)?;
        match piece.entries.get_mut(place(id) % PIECE)? {
            Some((found, value)) if *found == id => Some(value),
            _ => None,
        }
    }

    /// Takes an entry out. Its place may be used again.
    pub fn remove(&mut self, id: BlockId) -> Option<T> {
        let number = place(id) / PIECE;
        let piece = self.pieces.get_mut(number)?;
        let entry = piece.entries.get_mut(place(id) % PIECE)?;
        let (_, value) = entry.take_if(|(found, _)| *found == id)?;
        piece.used &= !(1 << (place(id) % PIECE));
        self.len -= 1;
        self.open = self.open.min(number);
        if piece.used == 0 {
            piece.entries = Box::default();
            while self.pieces.last().is_some_and(|piece| piece.used == 0) {
                self.pieces.pop();
            }
            if self.pieces.len() < self.pieces.capacity() / 4 {
                self.pieces.shrink_to(2 * self.pieces.len());
            }
        }
        Some(value)
    }

    /// All entries, by place.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &T)> {
        let entries = self.pieces.iter().flat_map(|piece| &piece.entries);
        entries.flatten().map(|(id, value)| (*id, value))
    }

    /// All entries, by place, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let entries = self.pieces.iter_mut().flat_map(|p| &mut p.entries);
        entries.flatten().map(|(_, value)| value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use uruk_testing::Random;

    /// Random comparison with a map: entries found, their number, and reuse of places.
    #[test]
    fn a_table_is_a_map_whose_places_are_reused() {
        let mut made: Slots<u64> = Slots::default();
        let mut follower: Slots<u64> = Slots::default();
        let mut model: HashMap<BlockId, u64> = HashMap::new();
        let mut ids = Vec::new();
        let mut random = Random::new(7);
        let mut most = 0;
        for round in 0..20_000 {
            let grow = if (round / 2_000) % 2 == 0 { 6 } else { 3 };
            if random.below(9) < grow {
                let id = made.add(round);
                assert_eq!(model.insert(id, round), None);
                assert_eq!(follower.insert(id, round), Ok(()));
                assert_eq!(follower.insert(id, round), Err(round));
                ids.push(id);
            } else if !ids.is_empty() {
                let id = ids.swap_remove(random.below(ids.len()));
                let value = model.remove(&id);
                assert_eq!(made.remove(id), value);
                assert_eq!(follower.remove(id), value);
                assert_eq!(made.get(id), None);
                assert_eq!(made.remove(id), None);
            }
            most = most.max(model.len());
            assert_eq!((made.len(), follower.len()), (model.len(), model.len()));
        }
        for (&id, value) in &model {
            assert_eq!((made.get(id), follower.get(id)), (Some(value), Some(value)));
        }
        let mut all: Vec<_> = made.iter().map(|(id, value)| (id, *value)).collect();
        assert!(all.is_sorted_by_key(|(id, _)| place(*id)));
        all.sort_unstable();
        let mut expected: Vec<_> = model.into_iter().collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        assert!(made.pieces.len() <= most.div_ceil(PIECE), "{most}");
        for id in ids {
            made.remove(id);
        }
        assert!(made.is_empty() && made.pieces.capacity() <= 4);
    }

    #[test]
    fn a_number_whose_place_was_reused_finds_nothing() {
        let mut table = Slots::default();
        let first = table.add('a');
        table.remove(first);
        let second = table.add('b');
        assert_eq!(place(first), place(second));
        assert_eq!((table.get(first), table.get(second)), (None, Some(&'b')));
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.insert(first, 'c'), Err('c'));
        assert_eq!(table.len(), 1);
    }
}
