//! The container of bitcode: bits, blocks, records and abbreviations, read with bounds.
//!
//! LLVM's format, by its own description ("LLVM Bitcode File Format"): a stream of bits,
//! little end first. A block gives its number, the width of the abbreviation numbers in it and its
//! length in words. A record is a code and operands, written plainly (`vbr6` throughout) or by an
//! abbreviation, which the stream has defined before.
//!
//! Invariants:
//! - Nothing is read beyond the end of the innermost block.
//! - Nothing is allocated by a size that the stream claims: the elements of a length must fit in the
//!   bits that are left, at least one bit each.

use std::fmt;

/// The reason why bytes are not a well-formed stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Bit of the stream at which it was found.
    pub bit: u64,
    /// Number of the innermost block; `None` outside all blocks.
    pub block: Option<u32>,
    /// The defect.
    pub what: What,
}

/// The kind of defect of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It does not begin with bitcode's magic.
    Magic,
    /// The sizes in the wrapper do not fit the file.
    Wrapper,
    /// It ends within a record.
    End,
    /// A number of more than 64 bits.
    Number,
    /// A block that is longer than the one around it, or not as long as its head gives.
    Length,
    /// Blocks are nested too deep.
    Depth,
    /// An abbreviation number that nothing defines.
    Abbreviation(u64),
    /// A definition of an abbreviation that describes no record.
    Definition,
    /// A count that exceeds the remaining bits.
    Count(u64),
    /// A body at a word where none begins.
    Body(u64),
    /// A block or record where none is allowed.
    Place,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Magic => f.write_str("it does not begin as bitcode does"),
            What::Wrapper => f.write_str("the sizes in its wrapper do not fit it"),
            What::End => f.write_str("it ends in the middle of a record"),
            What::Number => f.write_str("a number has more than 64 bits"),
            What::Length => f.write_str("a block is not as long as it says"),
            What::Depth => f.write_str("blocks are nested too deep"),
            What::Abbreviation(number) => write!(f, "abbreviation {number} is not defined"),
            What::Definition => f.write_str("an abbreviation describes no record"),
            What::Count(count) => write!(f, "{count} items do not fit where they should be"),
            What::Body(place) => write!(f, "no body begins at word {place}"),
            What::Place => f.write_str("a block or record is out of place"),
        }
    }
}

/// One operand of an abbreviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// This value, for which nothing is written.
    Literal(u64),
    /// A number of this many bits.
    Fixed(u32),
    /// A number in pieces of this many bits.
    Vbr(u32),
    /// A letter, digit, dot or underscore, in six bits.
    Char6,
    /// A count, and as many elements of the next operand.
    Array,
    /// A count, and as many bytes.
    Blob,
}

/// Width of numbers in records without an abbreviation.
const PLAIN: u32 = 6;

/// Bits that one load yields, for any start within a byte.
const SEEN: u32 = 57;

/// Operands of a record that are kept: the checks need no more.
pub const KEPT: usize = 2;

/// A record, with the parts that the checks use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record {
    /// Its code, whose meaning depends on its block.
    pub code: u64,
    /// The first operands; zero if there are fewer.
    pub operands: [u64; KEPT],
    /// Number of operands, the bytes of a blob included.
    pub count: u64,
}

impl Record {
    fn take(&mut self, value: u64) {
        if let Some(place) = self.operands.get_mut(self.count as usize) {
            *place = value;
        }
        self.count += 1;
    }
}

/// A place in a stream, and the limit of reads there.
#[derive(Clone)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    /// The place, in bits.
    pub bit: u64,
    /// The end of the innermost block.
    pub end: u64,
    /// The number of that block.
    pub block: Option<u32>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor {
            bytes,
            bit: 0,
            end: bytes.len() as u64 * 8,
            block: None,
        }
    }

    /// An error of this kind at this place.
    #[cold]
    pub fn fail(&self, what: What) -> Malformed {
        Malformed {
            bit: self.bit,
            block: self.block,
            what,
        }
    }

    /// Bits that are left of the block.
    pub fn left(&self) -> u64 {
        self.end - self.bit
    }

    /// A number of `width` bits, 32 at most.
    #[inline]
    pub fn fixed(&mut self, width: u32) -> Result<u64, Malformed> {
        if self.left() < u64::from(width) {
            return Err(self.fail(What::End));
        }
        let value = self.peek() & ((1 << width) - 1);
        self.bit += u64::from(width);
        Ok(value)
    }

    /// The bits from here on, [`SEEN`] at least; zeros behind the end of the bytes.
    #[inline]
    fn peek(&self) -> u64 {
        let from = (self.bit / 8) as usize;
        let word = match self.bytes.get(from..from + 8) {
            Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
            None => {
                let mut word = [0; 8];
                let rest = self.bytes.get(from..).unwrap_or_default();
                word[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(word)
            }
        };
        word >> (self.bit % 8)
    }

    /// A number in pieces of `width` bits, 2 to 32, whose highest bit tells that another piece follows.
    #[inline]
    pub fn vbr(&mut self, width: u32) -> Result<u64, Malformed> {
        let more = 1 << (width - 1);
        let seen = self.peek();
        if seen & more == 0 && u64::from(width) <= self.left() {
            self.bit += u64::from(width);
            return Ok(seen & (more - 1));
        }
        self.vbr_of_many(seen, width)
    }

    /// Like [`Cursor::vbr`]; most numbers end within the bits that are `seen`.
    fn vbr_of_many(&mut self, seen: u64, width: u32) -> Result<u64, Malformed> {
        let more = 1 << (width - 1);
        let mut value = seen & (more - 1);
        let (mut bits, mut shift) = (width, width - 1);
        while bits + width <= SEEN && seen >> (bits - 1) & 1 == 1 {
            value |= (seen >> bits & (more - 1)) << shift;
            bits += width;
            shift += width - 1;
        }
        if seen >> (bits - 1) & 1 == 0 {
            if self.left() < u64::from(bits) {
                return Err(self.fail(What::End));
            }
            self.bit += u64::from(bits);
            return Ok(value);
        }
        self.vbr_by_piece(width)
    }

    /// Like [`Cursor::vbr`], a piece at a time.
    fn vbr_by_piece(&mut self, width: u32) -> Result<u64, Malformed> {
        let more = 1 << (width - 1);
        let (mut value, mut shift) = (0, 0);
        loop {
            let piece = self.fixed(width)?;
            let bits = piece & (more - 1);
            if shift >= 64 || (bits << shift) >> shift != bits {
                return Err(self.fail(What::Number));
            }
            value |= bits << shift;
            if piece & more == 0 {
                return Ok(value);
            }
            shift += width - 1;
        }
    }

    /// Moves to the next word.
    pub fn align(&mut self) -> Result<(), Malformed> {
        let to = self.bit.next_multiple_of(32);
        if to > self.end {
            return Err(self.fail(What::End));
        }
        self.bit = to;
        Ok(())
    }

    /// Skips `count` items of `width` bits.
    fn pass(&mut self, count: u64, width: u32) -> Result<(), Malformed> {
        match count.checked_mul(u64::from(width)) {
            Some(bits) if bits <= self.left() => self.bit += bits,
            _ => return Err(self.fail(What::Count(count))),
        }
        Ok(())
    }

    /// A count of items that take at least `least` bits each.
    pub fn count(&mut self, width: u32, least: u64) -> Result<u64, Malformed> {
        let count = self.vbr(width)?;
        match count > self.left() / least {
            true => Err(self.fail(What::Count(count))),
            false => Ok(count),
        }
    }

    /// The definition of an abbreviation.
    pub fn definition(&mut self) -> Result<Box<[Operand]>, Malformed> {
        let count = self.count(5, 2)?;
        let mut operands = Vec::with_capacity(count as usize);
        for _ in 0..count {
            operands.push(match self.fixed(1)? {
                1 => Operand::Literal(self.vbr(8)?),
                _ => self.encoding()?,
            });
        }
        let scalars = match operands[..] {
            [
                ..,
                Operand::Array,
                // The literal replaces elements of no bits: LLVM defines such arrays where it has
                // nothing to write.
                Operand::Fixed(_) | Operand::Vbr(_) | Operand::Char6 | Operand::Literal(_),
            ] => &operands[..operands.len() - 2],
            [.., Operand::Blob] => &operands[..operands.len() - 1],
            _ => &operands[..],
        };
        let scalar = |one: &Operand| !matches!(one, Operand::Array | Operand::Blob);
        // The code comes first.
        match !scalars.is_empty() && scalars.iter().all(scalar) {
            true => Ok(operands.into()),
            false => Err(self.fail(What::Definition)),
        }
    }

    fn encoding(&mut self) -> Result<Operand, Malformed> {
        match self.fixed(3)? {
            kind @ (1 | 2) => match (kind, self.vbr(5)?) {
                // Operands of no bits: nothing is written for them.
                (_, 0) => Ok(Operand::Literal(0)),
                (1, width @ 1..=32) => Ok(Operand::Fixed(width as u32)),
                (2, width @ 2..=32) => Ok(Operand::Vbr(width as u32)),
                _ => Err(self.fail(What::Definition)),
            },
            3 => Ok(Operand::Array),
            4 => Ok(Operand::Char6),
            5 => Ok(Operand::Blob),
            _ => Err(self.fail(What::Definition)),
        }
    }

    /// A record without an abbreviation.
    pub fn plain(&mut self) -> Result<Record, Malformed> {
        let mut record = Record {
            code: self.vbr(PLAIN)?,
            ..Record::default()
        };
        let count = self.count(PLAIN, PLAIN.into())?;
        for _ in 0..count.min(KEPT as u64) {
            record.take(self.vbr(PLAIN)?);
        }
        self.pass_plain(count.saturating_sub(KEPT as u64))?;
        record.count = count;
        Ok(record)
    }

    /// Skips `count` numbers of records without abbreviations, many of them per load.
    fn pass_plain(&mut self, count: u64) -> Result<(), Malformed> {
        /// Pieces that are examined together.
        const PIECES: u32 = 9;
        /// In each of them, the bit that tells that another piece follows.
        const MORE: u64 = {
            let (mut mask, mut piece) = (0, 1);
            while piece <= PIECES {
                mask |= 1 << (piece * PLAIN - 1);
                piece += 1;
            }
            mask
        };
        let mut rest = count;
        while rest > 0 {
            let mut ends = !self.peek() & MORE;
            // Numbers that end within this many pieces are not too large.
            if ends == 0 || self.left() < u64::from(PIECES * PLAIN) {
                self.vbr(PLAIN)?;
                rest -= 1;
                continue;
            }
            let mut surplus = u64::from(ends.count_ones()).saturating_sub(rest);
            rest -= u64::from(ends.count_ones()) - surplus;
            while surplus > 0 {
                ends &= !(1 << ends.ilog2());
                surplus -= 1;
            }
            self.bit += u64::from(ends.ilog2()) + 1;
        }
        Ok(())
    }

    /// Reads a record that `abbreviation` describes.
    pub fn record(&mut self, abbreviation: &[Operand]) -> Result<Record, Malformed> {
        let mut record = Record::default();
        let mut coded = false;
        for (index, operand) in abbreviation.iter().enumerate() {
            let value = match *operand {
                Operand::Array => {
                    let element = abbreviation.get(index + 1);
                    self.array(element.copied(), &mut record)?;
                    break;
                }
                Operand::Blob => {
                    let length = self.count(6, 1)?;
                    self.align()?;
                    self.pass(length, 8)?;
                    self.align()?;
                    record.count += length;
                    break;
                }
                Operand::Literal(value) => value,
                Operand::Fixed(width) => self.fixed(width)?,
                Operand::Vbr(width) => self.vbr(width)?,
                Operand::Char6 => self.fixed(6)?,
            };
            match coded {
                true => record.take(value),
                false => (record.code, coded) = (value, true),
            }
        }
        Ok(record)
    }

    fn array(&mut self, element: Option<Operand>, record: &mut Record) -> Result<(), Malformed> {
        let count = self.count(6, 1)?;
        let width = match element {
            Some(Operand::Vbr(width)) => {
                for _ in 0..count {
                    record.take(self.vbr(width)?);
                }
                return Ok(());
            }
            Some(Operand::Fixed(width)) => width,
            Some(Operand::Literal(_)) => return Err(self.fail(What::Definition)),
            _ => 6,
        };
        let mut rest = count;
        while rest > 0 && record.count < KEPT as u64 {
            record.take(self.fixed(width)?);
            rest -= 1;
        }
        self.pass(rest, width)?;
        record.count += rest;
        Ok(())
    }
}

impl Cursor<'_> {
    /// Reads a whole record without an abbreviation; returns its code, and appends its operands to
    /// `out`.
    ///
    /// # Errors
    /// It does not fit in its block.
    pub fn plain_into(&mut self, out: &mut Vec<u64>) -> Result<u64, Malformed> {
        let code = self.vbr(PLAIN)?;
        let count = self.count(PLAIN, PLAIN.into())?;
        out.reserve(count as usize);
        for _ in 0..count {
            out.push(self.vbr(PLAIN)?);
        }
        Ok(code)
    }

    /// Like [`Cursor::plain_into`], for a record that `abbreviation` describes. The bytes of a blob are
    /// operands, too.
    ///
    /// # Errors
    /// As [`Cursor::plain_into`].
    pub fn record_into(
        &mut self,
        abbreviation: &[Operand],
        out: &mut Vec<u64>,
    ) -> Result<u64, Malformed> {
        let mut code = None;
        for (index, operand) in abbreviation.iter().enumerate() {
            let value = match *operand {
                Operand::Array => {
                    let element = abbreviation.get(index + 1).copied();
                    self.array_into(element, out)?;
                    break;
                }
                Operand::Blob => {
                    let length = self.count(6, 8)?;
                    self.align()?;
                    for _ in 0..length {
                        out.push(self.fixed(8)?);
                    }
                    self.align()?;
                    break;
                }
                Operand::Literal(value) => value,
                Operand::Fixed(width) => self.fixed(width)?,
                Operand::Vbr(width) => self.vbr(width)?,
                Operand::Char6 => self.letter()?,
            };
            match code {
                Some(_) => out.push(value),
                None => code = Some(value),
            }
        }
        Ok(code.unwrap_or_default())
    }

    fn array_into(
        &mut self,
        element: Option<Operand>,
        out: &mut Vec<u64>,
    ) -> Result<(), Malformed> {
        let count = self.count(6, 1)?;
        for _ in 0..count {
            out.push(match element {
                Some(Operand::Fixed(width)) => self.fixed(width)?,
                Some(Operand::Vbr(width)) => self.vbr(width)?,
                Some(Operand::Literal(_)) => return Err(self.fail(What::Definition)),
                _ => self.letter()?,
            });
        }
        Ok(())
    }

    fn letter(&mut self) -> Result<u64, Malformed> {
        const LETTERS: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
        let number = self.fixed(6)?;
        Ok(u64::from(LETTERS[number as usize & 63]))
    }
}
