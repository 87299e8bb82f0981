//! A vector that grows without moving: chunks of doubling size, made on demand.
//!
//! Reading takes no lock and elements never move, so a reference stays good for
//! the life of the vector. Chunk `k` holds `2^(BASE_BITS + k)` elements; element
//! `i` lies in chunk `floor(log2(i + 2^BASE_BITS)) - BASE_BITS`.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `chunks[k]` | the thread that needs it first | once | `OnceLock`: release, read with acquire |

use std::sync::OnceLock;

/// Enough chunks for 2^32 elements with the smallest base used here.
const CHUNKS: usize = 31;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Chunked<T, const BASE_BITS: u32> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T: Default, const BASE_BITS: u32> Chunked<T, BASE_BITS> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    #[inline]
    pub(crate) fn place(index: u32) -> (usize, usize) {
        let shifted = u64::from(index) + (1 << BASE_BITS);
        let log = 63 - shifted.leading_zeros();
        ((log - BASE_BITS) as usize, (shifted - (1 << log)) as usize)
    }

    /// The element, if its chunk exists.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = Self::place(index);
        self.at(chunk, offset)
    }

    /// The element at a place.
    #[inline]
    pub(crate) fn at(&self, chunk: usize, offset: usize) -> Option<&T> {
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Bytes of all chunks, and of the memory that each element holds.
    pub(crate) fn bytes_of(&self, held: impl Fn(&T) -> usize) -> usize {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        let bytes = |chunk: &[T]| size_of_val(chunk) + chunk.iter().map(&held).sum::<usize>();
        chunks.map(|chunk| bytes(chunk)).sum()
    }

    /// The element; its chunk is created with default values if necessary.
    pub(crate) fn get_or_create(&self, index: u32) -> &T {
        let (chunk, offset) = Self::place(index);
        let length = 1usize << (BASE_BITS as usize + chunk);
        let chunk = self.chunks[chunk].get_or_init(|| (0..length).map(|_| T::default()).collect());
        &chunk[offset]
    }
}

/// Elements of a leaf.
const LEAF: u32 = 256;

/// A vector like [`Chunked`] that allocates space for few unused elements: leaves of 256.
#[derive(Debug)]
pub(crate) struct Leaves<T> {
    leaves: Chunked<OnceLock<Box<[T]>>, 2>,
}

impl<T: Default> Leaves<T> {
    pub(crate) fn new() -> Self {
        Self {
            leaves: Chunked::new(),
        }
    }

    /// The element, if its leaf exists.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let leaf = self.leaves.get(index / LEAF)?.get()?;
        leaf.get((index % LEAF) as usize)
    }

    /// The element; its leaf is created with default values if necessary.
    pub(crate) fn make(&self, index: u32) -> &T {
        let leaf = self.leaves.get_or_create(index / LEAF);
        let leaf = leaf.get_or_init(|| (0..LEAF).map(|_| T::default()).collect());
        &leaf[(index % LEAF) as usize]
    }

    /// Bytes of memory of the vector.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves
            .bytes_of(|leaf| leaf.get().map_or(0, |leaf| size_of_val(&**leaf)))
    }
}

#[cfg(test)]
mod tests {
    use super::Chunked;

    #[test]
    fn every_index_has_its_own_place() {
        let mut last = (0, 0);
        for index in 1..100_000 {
            let place = Chunked::<u8, 2>::place(index);
            assert!(place > last, "{index}: {place:?} after {last:?}");
            assert!(place.1 < 1 << (2 + place.0));
            last = place;
        }
        assert_eq!(Chunked::<u8, 2>::place(0), (0, 0));
        assert!(Chunked::<u8, 2>::place(u32::MAX).0 < super::CHUNKS);
    }
}
