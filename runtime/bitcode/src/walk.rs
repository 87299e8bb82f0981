//! Walks over blocks and records, with the abbreviations that are valid in each.

use std::collections::HashMap;

use crate::module::Refused;
use crate::stream::{Cursor, Malformed, Operand, What};

/// Abbreviations, in the order of their numbers.
pub(crate) type Abbreviations = Vec<Box<[Operand]>>;

/// Abbreviations that are defined for all blocks of a number.
pub(crate) type Standard = HashMap<u32, Abbreviations>;

/// The number of the first abbreviation.
const FIRST: u64 = 4;

/// The range of a block's content.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) number: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Bits of abbreviation numbers in it.
    pub(crate) width: u32,
}

/// The next entry of a block.
pub(crate) enum Entry {
    /// The block ends.
    End,
    /// A block begins; the caller enters or passes it.
    Block(Extent),
    /// A record with this code; its operands are in [`Walk::record`].
    Record(u64),
}

/// A walk.
pub(crate) struct Walk<'a> {
    pub(crate) cursor: Cursor<'a>,
    /// Operands of the last record.
    pub(crate) record: Vec<u64>,
}

/// The block that a walk is in.
pub(crate) struct Inside<'s> {
    width: u32,
    standard: &'s [Box<[Operand]>],
    own: Abbreviations,
    /// End and number of the block around it.
    outer: (u64, Option<u32>),
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Walk<'a> {
        Walk {
            cursor: Cursor::new(bytes),
            record: Vec::new(),
        }
    }

    /// Enters a block.
    pub(crate) fn enter<'s>(&mut self, extent: Extent, standard: &'s Standard) -> Inside<'s> {
        let outer = (self.cursor.end, self.cursor.block);
        self.cursor.bit = extent.begin;
        self.cursor.end = extent.end;
        self.cursor.block = Some(extent.number);
        Inside {
            width: extent.width,
            standard: standard.get(&extent.number).map_or(&[], Vec::as_slice),
            own: Abbreviations::new(),
            outer,
        }
    }

    /// Skips a block.
    pub(crate) fn pass(&mut self, extent: Extent) {
        self.cursor.bit = extent.end;
    }

    /// Reads the head of a block behind the number for "a block begins".
    pub(crate) fn head(&mut self) -> Result<Extent, Malformed> {
        let number = self.cursor.vbr(8)?;
        let width = self.cursor.vbr(4)?;
        self.cursor.align()?;
        let words = self.cursor.fixed(32)?;
        if !(2..=32).contains(&width) || words > self.cursor.left() / 32 {
            return Err(self.cursor.fail(What::Length));
        }
        Ok(Extent {
            number: number.min(u64::from(u32::MAX)) as u32,
            begin: self.cursor.bit,
            end: self.cursor.bit + words * 32,
            width: width as u32,
        })
    }

    /// The next entry of a block; definitions of abbreviations are stored.
    #[inline]
    pub(crate) fn next(&mut self, inside: &mut Inside<'_>) -> Result<Entry, Malformed> {
        loop {
            match self.cursor.fixed(inside.width)? {
                0 => {
                    self.cursor.align()?;
                    if self.cursor.left() != 0 {
                        return Err(self.cursor.fail(What::Length));
                    }
                    (self.cursor.end, self.cursor.block) = inside.outer;
                    return Ok(Entry::End);
                }
                1 => return self.head().map(Entry::Block),
                2 => {
                    let defined = self.cursor.definition()?;
                    inside.own.push(defined);
                }
                3 => {
                    self.record.clear();
                    return self.cursor.plain_into(&mut self.record).map(Entry::Record);
                }
                other => {
                    self.record.clear();
                    let at = (other - FIRST) as usize;
                    let standard = inside.standard.len();
                    let abbreviation = match at < standard {
                        true => Some(&inside.standard[at]),
                        false => inside.own.get(at - standard),
                    };
                    let Some(abbreviation) = abbreviation else {
                        return Err(self.cursor.fail(What::Abbreviation(other)));
                    };
                    let code = self.cursor.record_into(abbreviation, &mut self.record)?;
                    return Ok(Entry::Record(code));
                }
            }
        }
    }

    /// Gives `each` all records of a block, and passes the blocks in it.
    pub(crate) fn records(
        &mut self,
        extent: Extent,
        standard: &Standard,
        mut each: impl FnMut(u64, &[u64]) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let mut inside = self.enter(extent, standard);
        loop {
            match self.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => self.pass(extent),
                Entry::Record(code) => each(code, &self.record)?,
            }
        }
    }

    /// Reads the block that defines abbreviations for other blocks.
    pub(crate) fn standard(
        &mut self,
        extent: Extent,
        standard: &mut Standard,
    ) -> Result<(), Malformed> {
        const SET_BLOCK: u64 = 1;
        let none = Standard::new();
        let mut inside = self.enter(extent, &none);
        let mut of = None;
        loop {
            let entry = self.next(&mut inside)?;
            if let Some(of) = of {
                let list: &mut Abbreviations = standard.entry(of).or_default();
                list.append(&mut inside.own);
            } else if !inside.own.is_empty() {
                return Err(self.cursor.fail(What::Place));
            }
            match entry {
                Entry::End => return Ok(()),
                Entry::Block(extent) => self.pass(extent),
                Entry::Record(SET_BLOCK) => {
                    of = self
                        .record
                        .first()
                        .map(|&it| it.min(u64::from(u32::MAX)) as u32);
                }
                Entry::Record(_) => {}
            }
        }
    }
}
