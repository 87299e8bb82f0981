//! Blocks that the process's own allocator has handed out: one bit for every 16 bytes of address
//! space, the minimal distance of the C library's blocks.
//!
//! The bits lie in leaves that are mapped when the first block of their range is noted, and stay.
//! All operations are a few loads and one atomic step, take no lock and allocate by `mmap` only.
//! They run inside `malloc`, in signal handlers, and in the child of a fork.
//!
//! | word | written by | ordering |
//! |---|---|---|
//! | a leaf's bits | the thread that allocates a block, before it returns the block; the thread that frees it, before the allocator does | relaxed: the program orders a block's free after its allocation |
//! | pointers to middles and leaves | the first to need them | release, with the acquire of every read |

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Bytes that share a bit.
const GRANULE_BITS: u32 = 4;
/// A leaf covers 16 MiB.
const LEAF_BITS: u32 = 24;
/// A middle covers 64 GiB.
const MIDDLE_BITS: u32 = 36;
/// Address bits of user space on x86-64.
const ADDRESS_BITS: u32 = 47;

const LEAF_WORDS: usize = 1 << (LEAF_BITS - GRANULE_BITS - 6);
const MIDDLE_LEAVES: usize = 1 << (MIDDLE_BITS - LEAF_BITS);
const MIDDLES: usize = 1 << (ADDRESS_BITS - MIDDLE_BITS);

type BlockBits = [AtomicU64; LEAF_WORDS];
type Middle = [AtomicPtr<BlockBits>; MIDDLE_LEAVES];

/// A set of blocks by their addresses.
pub(crate) struct BlockSet([AtomicPtr<Middle>; MIDDLES]);

impl BlockSet {
    pub(crate) const fn new() -> BlockSet {
        BlockSet([const { AtomicPtr::new(ptr::null_mut()) }; MIDDLES])
    }

    /// Adds a block; false if no memory is left for the bits.
    pub(crate) fn note(&self, block: usize) -> bool {
        let Some(middle) = self.0.get(block >> MIDDLE_BITS) else {
            return false;
        };
        let Some(middle) = present(middle) else {
            return false;
        };
        let Some(leaf) = present(&middle[(block >> LEAF_BITS) % MIDDLE_LEAVES]) else {
            return false;
        };
        let (word, bit) = place(block);
        leaf[word].fetch_or(bit, Ordering::Relaxed);
        true
    }

    /// Whether the set contains a block.
    pub(crate) fn holds(&self, block: usize) -> bool {
        let (word, bit) = place(block);
        self.leaf(block)
            .is_some_and(|leaf| leaf[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// Removes a block; returns whether the set contained it.
    pub(crate) fn take(&self, block: usize) -> bool {
        let (word, bit) = place(block);
        self.holds(block)
            && self
                .leaf(block)
                .is_some_and(|leaf| leaf[word].fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }

    fn leaf(&self, block: usize) -> Option<&BlockBits> {
        if !block.is_multiple_of(1 << GRANULE_BITS) {
            return None;
        }
        let middle = self.0.get(block >> MIDDLE_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a middle that was made for this word and stays.
        let middle = unsafe { middle.as_ref() }?;
        let leaf = middle[(block >> LEAF_BITS) % MIDDLE_LEAVES].load(Ordering::Acquire);
        // SAFETY: null, or a leaf, as above.
        unsafe { leaf.as_ref() }
    }
}

/// Word and bit of a block in its leaf.
fn place(block: usize) -> (usize, u64) {
    let granule = block >> GRANULE_BITS;
    ((granule / 64) % LEAF_WORDS, 1 << (granule % 64))
}

/// The object that `word` points to, created with zeros if the word is null.
fn present<T>(word: &AtomicPtr<T>) -> Option<&T> {
    let mut there = word.load(Ordering::Acquire);
    if there.is_null() {
        let (length, protection) = (size_of::<T>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let made = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if made == libc::MAP_FAILED {
            return None;
        }
        let exchange = word.compare_exchange(
            ptr::null_mut(),
            made.cast::<T>(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        there = match exchange {
            Ok(_) => made.cast::<T>(),
            Err(other) => {
                // SAFETY: the mapping made above, which no other thread has seen.
                unsafe { libc::munmap(made, length) };
                other
            }
        };
    }
    // SAFETY: a mapping of that size that stays; zeros are valid for both types it is used
    // with, arrays of atomic words.
    unsafe { there.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::BlockSet;

    #[test]
    fn a_block_is_there_until_it_is_taken() {
        static BLOCKS: BlockSet = BlockSet::new();
        let blocks = [0x10, 0x7fff_ffff_fff0, 0x5555_1234_5670, 0x5555_1234_5680];
        for block in blocks {
            assert!(!BLOCKS.holds(block) && !BLOCKS.take(block));
            assert!(BLOCKS.note(block));
            assert!(BLOCKS.holds(block));
            assert!(!BLOCKS.holds(block + 8), "inside a block");
        }
        for block in blocks {
            assert!(BLOCKS.take(block));
            assert!(!BLOCKS.take(block));
        }
        assert!(!BLOCKS.note(1 << 47), "not an address of user space");
        assert!(!BLOCKS.holds(usize::MAX));
    }
}
