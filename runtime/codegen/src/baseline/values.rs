//! Which scalars stand for each value of LLVM's, in a table that is used again and again.
//!
//! Open addressing over addresses of LLVM's values. It is asked several times for each
//! instruction, so nothing general is in the way: no removal, no hasher, and one store clears it.

use uruk_baseline::ir::Operand;

/// Operands in a row, of [`Values::operands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scalars {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Scalars {
    /// Some of them.
    pub(super) fn part(self, first: u32, count: u32) -> Scalars {
        debug_assert!(first + count <= self.count);
        Scalars {
            first: self.first + first,
            count,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    /// An address; 0 is free.
    key: usize,
    /// Of another function, and so free, unless it is that of the table.
    round: u32,
    scalars: Scalars,
}

const FREE: Entry = Entry {
    key: 0,
    round: 0,
    scalars: Scalars { first: 0, count: 0 },
};

/// The table, and the operands that it names.
pub(super) struct Values {
    entries: Vec<Entry>,
    round: u32,
    used: usize,
    operands: Vec<Operand>,
}

/// Entries at first: a power of two.
const ENTRIES: usize = 1 << 10;

impl Values {
    pub(super) fn new() -> Values {
        Values {
            entries: vec![FREE; ENTRIES],
            round: 1,
            used: 0,
            operands: Vec::new(),
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.operands.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.entries.fill(FREE);
            self.round = 1;
        }
    }

    /// Where the search for a key begins: values lie at multiples of 16.
    fn start(&self, key: usize) -> usize {
        let mixed = (key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed >> (usize::BITS - self.entries.len().trailing_zeros())
    }

    /// What stands for a value.
    pub(super) fn get(&self, key: usize) -> Option<Scalars> {
        let mask = self.entries.len() - 1;
        let mut at = self.start(key);
        loop {
            let entry = &self.entries[at];
            if entry.round != self.round {
                return None;
            }
            if entry.key == key {
                return Some(entry.scalars);
            }
            at = (at + 1) & mask;
        }
    }

    /// Has scalars stand for a value that nothing stands for.
    pub(super) fn set(&mut self, key: usize, scalars: Scalars) {
        if self.used * 2 >= self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        let mut at = self.start(key);
        while self.entries[at].round == self.round {
            debug_assert!(self.entries[at].key != key, "a value that is there");
            at = (at + 1) & mask;
        }
        self.used += 1;
        self.entries[at] = Entry {
            key,
            round: self.round,
            scalars,
        };
    }

    fn grow(&mut self) {
        let room = vec![FREE; self.entries.len() * 2];
        let old = std::mem::replace(&mut self.entries, room);
        self.used = 0;
        let round = self.round;
        for entry in old.iter().filter(|entry| entry.round == round) {
            self.set(entry.key, entry.scalars);
        }
    }

    /// Operands in a row.
    pub(super) fn of(&self, scalars: Scalars) -> &[Operand] {
        let first = scalars.first as usize;
        &self.operands[first..first + scalars.count as usize]
    }

    /// Adds operands, in a row.
    pub(super) fn add(&mut self, operands: impl IntoIterator<Item = Operand>) -> Scalars {
        let first = self.operands.len();
        self.operands.extend(operands);
        Scalars {
            first: first as u32,
            count: (self.operands.len() - first) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_is_put_in_until_it_is_cleared() {
        let mut values = Values::new();
        for round in 1..4u64 {
            for key in 1..3000usize {
                let scalars = values.add([Operand::Int(key as u64 * round)]);
                values.set(key * 16, scalars);
            }
            for key in 1..3000usize {
                let scalars = values.get(key * 16).expect("there");
                assert_eq!(values.of(scalars), [Operand::Int(key as u64 * round)]);
            }
            assert_eq!(values.get(3000 * 16), None);
            values.clear();
            assert_eq!(values.get(16), None);
        }
    }
}
