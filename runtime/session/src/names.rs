//! Names by number, packed: short ones lie in slots of a fixed size, without a block of the allocator.
//!
//! | class | name | bytes of a slot |
//! |---|---|---|
//! | short | up to 11 bytes | 16 |
//! | middle | up to 27 bytes | 32 |
//! | long | longer | 24, and a block |
//!
//! A word maps a number to its slot: the class in the two highest bits, and the index below.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | slots | the thread that sets a name; one at a time | once, before the word | `OnceLock` |
//! | `places[id]` | the same | once, from 0 | release; pairs with the acquire load in `place` |

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::chunked::Leaves;

/// A length byte and the name's bytes.
type NameSlot<const SIZE: usize> = OnceLock<[u8; SIZE]>;

const SHORT: usize = 12;
const MIDDLE: usize = 28;

/// See the module.
#[derive(Debug)]
pub(crate) struct NameTable {
    places: Leaves<AtomicU32>,
    short: Leaves<NameSlot<SHORT>>,
    middle: Leaves<NameSlot<MIDDLE>>,
    long: Leaves<OnceLock<Box<str>>>,
    /// The number of names in each class.
    used: [AtomicU32; 3],
    /// Bytes of long names.
    blocks: std::sync::atomic::AtomicUsize,
}

fn pack<const SIZE: usize>(name: &str) -> [u8; SIZE] {
    let mut slot = [0; SIZE];
    slot[0] = name.len() as u8;
    slot[1..=name.len()].copy_from_slice(name.as_bytes());
    slot
}

fn unpack<const SIZE: usize>(slot: Option<&NameSlot<SIZE>>) -> &[u8] {
    let slot = slot.and_then(OnceLock::get);
    slot.map_or(&[], |slot| &slot[1..=usize::from(slot[0])])
}

impl NameTable {
    /// Maximal number of names.
    pub(crate) const LIMIT: u32 = 1 << 30;

    pub(crate) fn new() -> NameTable {
        NameTable {
            places: Leaves::new(),
            short: Leaves::new(),
            middle: Leaves::new(),
            long: Leaves::new(),
            used: [const { AtomicU32::new(0) }; 3],
            blocks: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Sets a name that was not set before, the next in number. By one thread at a time.
    pub(crate) fn set(&self, id: u32, name: &str) {
        let class = match name.len() {
            len if len < SHORT => 0,
            len if len < MIDDLE => 1,
            _ => 2,
        };
        let index = self.used[class].fetch_add(1, Ordering::Relaxed);
        // Each slot is set once.
        let _ = match class {
            0 => self.short.make(index).set(pack(name)).is_ok(),
            1 => self.middle.make(index).set(pack(name)).is_ok(),
            _ => self.long.make(index).set(name.into()).is_ok(),
        };
        if class == 2 {
            self.blocks.fetch_add(name.len(), Ordering::Relaxed);
        }
        let place = (class as u32 + 1) << 30 | index;
        // Release: a thread that sees the place also sees the name.
        self.places.make(id).store(place, Ordering::Release);
    }

    /// The bytes of a name; none if it was never set.
    #[inline]
    fn bytes_of(&self, id: u32) -> &[u8] {
        // Acquire: pairs with the release store in `set`.
        let place = self
            .places
            .get(id)
            .map_or(0, |it| it.load(Ordering::Acquire));
        let index = place & (Self::LIMIT - 1);
        match place >> 30 {
            0 => &[],
            1 => unpack(self.short.get(index)),
            2 => unpack(self.middle.get(index)),
            _ => {
                let name = self.long.get(index).and_then(OnceLock::get);
                name.map_or(&[], |name| name.as_bytes())
            }
        }
    }

    /// Whether a name is `name`.
    #[inline]
    pub(crate) fn is(&self, id: u32, name: &str) -> bool {
        self.bytes_of(id) == name.as_bytes()
    }

    /// A name; empty if it was never set.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &str {
        std::str::from_utf8(self.bytes_of(id)).unwrap_or_default()
    }

    /// Bytes of memory of the table.
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.places.bytes() + self.short.bytes() + self.middle.bytes();
        slots + self.long.bytes() + self.blocks.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::NameTable;

    #[test]
    fn names_of_all_lengths_come_back() {
        let table = NameTable::new();
        let name = |id: u32| "\u{fc}x".repeat(id as usize % 20) + &id.to_string();
        (0..3_000).for_each(|id| table.set(id, &name(id)));
        for id in 0..3_000 {
            assert_eq!(table.get(id), name(id));
            assert!(table.is(id, &name(id)) && !table.is(id, "x"));
        }
        assert_eq!(table.get(3_000), "");
        assert_eq!(table.get(u32::MAX), "");
        let names: usize = (0..3_000).map(|id| name(id).len()).sum();
        assert!(table.bytes() > names && table.bytes() < 3_000 * 200);
    }

    #[test]
    fn a_short_name_takes_little() {
        let table = NameTable::new();
        (0..100_000).for_each(|id| table.set(id, &format!("f{id}")));
        assert!(table.bytes() < 100_000 * 21, "{}", table.bytes());
    }
}
