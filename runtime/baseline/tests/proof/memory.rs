//! Memory of the interpreter: pieces of bytes at addresses, each byte defined or not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use uruk_baseline::ir::Type;

use crate::eval::Word;

/// Copied on the first write.
type Bytes = Rc<[Option<u8>]>;

/// Mapped addresses, with their contents.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pieces: BTreeMap<u64, Bytes>,
    /// The address of the next piece of the frame.
    next: u64,
}

/// Start of the interpreter's frames: addresses that no other memory has.
const FRAMES: u64 = 0x6100_0000_0000;

const OUTSIDE: &str = "an access outside of memory";

impl Memory {
    pub fn new() -> Memory {
        Memory {
            pieces: BTreeMap::new(),
            next: FRAMES,
        }
    }

    /// Adds memory at an address.
    pub fn add(&mut self, at: u64, bytes: &[u8]) {
        self.pieces
            .insert(at, bytes.iter().copied().map(Some).collect());
    }

    /// Adds memory that is shared with other runs until it is written.
    pub fn share(&mut self, at: u64, bytes: &Bytes) {
        self.pieces.insert(at, Rc::clone(bytes));
    }

    /// Adds memory of the frame, which is undefined.
    pub fn allocate(&mut self, size: u64, align: u64) -> u64 {
        let at = self.next.next_multiple_of(align.max(1));
        // A gap of one page detects stray accesses.
        self.next = at + size + 4096;
        self.pieces.insert(at, vec![None; size as usize].into());
        at
    }

    /// The piece of an access, which must lie in one, and the range in it.
    fn find(&self, at: u64, count: usize) -> Result<(u64, Range<usize>), &'static str> {
        let found = self.pieces.range(..=at).next_back();
        let (&base, piece) = found.ok_or(OUTSIDE)?;
        let start = (at - base) as usize;
        let range = start..start.saturating_add(count);
        let is = range.end <= piece.len();
        is.then_some((base, range)).ok_or(OUTSIDE)
    }

    /// The bytes of an access.
    pub fn read(&self, at: u64, count: usize) -> Result<&[Option<u8>], &'static str> {
        let (base, range) = self.find(at, count)?;
        Ok(&self.pieces[&base][range])
    }

    /// The bytes of an access, for writing.
    pub fn write(&mut self, at: u64, count: usize) -> Result<&mut [Option<u8>], &'static str> {
        let (base, range) = self.find(at, count)?;
        let piece = self.pieces.get_mut(&base).ok_or(OUTSIDE)?;
        Ok(&mut Rc::make_mut(piece)[range])
    }

    pub fn load(&self, at: u64, ty: Type) -> Result<Word, &'static str> {
        let bytes = self.read(at, ty.bytes() as usize)?;
        let mut value = 0u128;
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                Some(byte) => value |= u128::from(*byte) << (8 * index),
                None => return Ok(None),
            }
        }
        // An integer whose bits do not fill its bytes is defined only if it was stored as such.
        let fits = value & !crate::chance::mask(ty) == 0;
        Ok(fits.then_some(value))
    }

    pub fn store(&mut self, at: u64, ty: Type, value: Word) -> Result<(), &'static str> {
        let bytes = self.write(at, ty.bytes() as usize)?;
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = value.map(|value| (value >> (8 * index)) as u8);
        }
        Ok(())
    }

    /// The present contents, for comparison.
    pub fn piece(&self, at: u64) -> &[Option<u8>] {
        self.pieces.get(&at).map_or(&[], |piece| piece)
    }
}
