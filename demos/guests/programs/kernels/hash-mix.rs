//! Insertions, look-ups and removals of short names in std's hash map with a hasher
//! of our own: generic code of several layers that has to be inlined. SIZE is the
//! number of operations.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const NAMES: u32 = 1 << 14;

/// FNV-1a with a last mixing step, as the map takes bits from both ends.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(14_695_981_039_346_656_037)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    letters: [u8; 8],
}

impl Name {
    /// A name for a number.
    fn of(mut number: u32) -> Name {
        let mut letters = [0; 8];
        let (first, rest) = letters.split_at_mut(1);
        first[0] = b'a' + (number % 5) as u8;
        for letter in rest {
            *letter = b'a' + (number % 26) as u8;
            number /= 26;
            if number == 0 {
                break;
            }
        }
        Name { letters }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}

type Table = HashMap<Name, u32, BuildHasherDefault<Fnv>>;

#[inline(never)]
fn operate(table: &mut Table, random: u32) -> u64 {
    let name = Name::of(random % NAMES);
    match random >> 28 {
        0..=5 => {
            *table.entry(name).or_insert(0) += random & 255;
            0
        }
        6 => u64::from(table.remove(&name).is_some()) << 20,
        _ => u64::from(table.get(&name).copied().unwrap_or(0)),
    }
}

fn main() -> ExitCode {
    steady::kernel("hash-mix", |operations| {
        let mut table = Table::default();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let sum = (0..operations).map(|_| operate(&mut table, random.next())).sum::<u64>();
        sum.wrapping_mul(31).wrapping_add(table.len() as u64)
    })
}
