//! A set of names that quickly rejects most others: one bit for each hash.

use std::ffi::CStr;

/// The bits of the names' hashes.
pub(super) struct NameFilter(Box<[u64; 1 << 10]>);

impl NameFilter {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a CStr>) -> NameFilter {
        let mut filter = NameFilter(Box::new([0; 1 << 10]));
        for name in names {
            let (word, bit) = NameFilter::place(name);
            filter.0[word] |= bit;
        }
        filter
    }

    /// True for all names of the set, and for few others.
    pub(super) fn may_hold(&self, name: &CStr) -> bool {
        let (word, bit) = NameFilter::place(name);
        self.0[word] & bit != 0
    }

    fn place(name: &CStr) -> (usize, u64) {
        let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33) ^ u32::from(byte);
        let hash = name.to_bytes().iter().fold(5381, step);
        let hash = (hash ^ hash >> 16) as usize;
        ((hash >> 6) % (1 << 10), 1 << (hash % 64))
    }
}
