//! The environment of functions under test: named memory, and hosts, which they call.
//!
//! Names have a fixed meaning: `@data`, `@far`, `@thread`, `@counters` and `@loops` are memory of
//! [`ROOM`] bytes each; `@host0`, `@host1` and so on are functions of any signature. So are
//! `@poke0` and so on, whose first argument is an address, at which they write 8 bytes.
//!
//! The results and writes of a host depend only on the number of earlier calls, so that the
//! interpreter decides them and native code gets the same.

use std::rc::Rc;

use uruk_baseline::ir::{Argument, Returned, Type};

use crate::chance::{Chance, mask};
use crate::eval::Word;

/// Bytes of a named piece of memory.
pub const ROOM: usize = 512;

/// Pieces of memory by name.
pub const PIECES: [&str; 5] = ["data", "far", "thread", "counters", "loops"];

/// Hosts of each kind.
pub const HOSTS: usize = 16;

/// Exits of loops.
pub const EXITS: usize = 16;

/// Bytes between the stubs of two hosts.
pub const STUB: u64 = 32;

/// Addresses in the process that runs native code.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Address of the first piece; pieces are contiguous.
    pub pieces: u64,
    /// Address of the first stub; stubs of hosts, then those of hosts that write, one for threads, and
    /// those of exits.
    pub stubs: u64,
}

impl Layout {
    /// The address of a name, if it is one of those above.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        if let Some(index) = PIECES.iter().position(|piece| *piece == name) {
            return Some(self.pieces + (index * ROOM) as u64);
        }
        let (first, digits) = match (name.strip_prefix("host"), name.strip_prefix("poke")) {
            (Some(digits), _) => (0, digits),
            (_, Some(digits)) => (HOSTS, digits),
            _ => return None,
        };
        let index: usize = digits.parse().ok()?;
        (index < HOSTS).then(|| self.stubs + (first + index) as u64 * STUB)
    }

    /// The stub that leads to the exit whose address is at an offset of `@loops`.
    pub fn exit(&self, offset: u32) -> u64 {
        self.stubs + (2 * HOSTS as u64 + 1 + u64::from(offset) / 24) * STUB
    }

    /// The host at an address, and whether it writes.
    pub fn host_at(&self, address: u64) -> Option<(usize, bool)> {
        let index = address.checked_sub(self.stubs)? / STUB;
        let is = address % STUB == self.stubs % STUB && index < 2 * HOSTS as u64;
        is.then_some((index as usize, index >= HOSTS as u64))
    }
}

/// An argument as a host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Its bits.
    Bits(Word),
    /// Bytes of a memory argument, or of memory that it points to.
    Memory(Vec<Option<u8>>),
}

/// A call of a host by the interpreter.
#[derive(Debug, Clone)]
pub struct HostCall {
    /// The number of the host.
    pub host: usize,
    pub arguments: Vec<Argument>,
    pub returns: Vec<Returned>,
    pub is_variadic: bool,
    pub seen: Vec<Seen>,
    /// Its results.
    pub results: Vec<u128>,
    /// The word that it writes at its first argument, if it writes.
    pub written: Option<u64>,
}

/// The contents of the pieces of memory, as bytes and in the interpreter's form.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    pub bytes: Vec<[u8; ROOM]>,
    pub defined: Vec<Rc<[Option<u8>]>>,
}

impl Pieces {
    pub fn new(bytes: Vec<[u8; ROOM]>) -> Pieces {
        let defined = bytes.iter().map(|piece| piece.map(Some).into());
        Pieces {
            defined: defined.collect(),
            bytes,
        }
    }
}

/// The results and the written word of the `nth` call.
pub fn answer(nth: usize, returns: &[Returned]) -> (Vec<u128>, u64) {
    let mut chance = Chance::new(0xda7a ^ nth as u64);
    let results = returns
        .iter()
        .map(|returned| match returned.ty {
            // No NaNs: they would make every later result NaN.
            Type::F32 => u128::from((chance.next() as i8 as f32 / 4.0).to_bits()),
            Type::F64 => u128::from((chance.next() as i16 as f64 / 8.0).to_bits()),
            Type::F80 => 0x3fff_8000_0000_0000_0000 | u128::from(chance.next() >> 1),
            ty => (u128::from(chance.next()) * 0x1_0000_0001_0000_0001) & mask(ty),
        })
        .collect();
    (results, chance.next())
}
