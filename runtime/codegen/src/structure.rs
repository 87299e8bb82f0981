//! Checks of bitcode before LLVM reads it.
//!
//! LLVM's reader checks much, but trusts sizes in blocks and records: it believes any count of
//! basic blocks. Here the place of every bit is checked before it is read. Blocks end where they
//! claim to, abbreviations exist, and records end in their block. Counts by which LLVM allocates
//! (types, basic blocks, strings of metadata) are no larger than the rest of the stream allows.
//!
//! Loading reads no bodies, so neither does this. Function blocks are skipped by their lengths
//! ([`Structure::check`]) and checked when a body is read ([`Structure::check_body`]), by their
//! order, which is the order of definitions. If the symbol table places a body elsewhere than at
//! one of them, the module is refused.
//!
//! The *meaning* of records is not checked: LLVM's reader trusts numbers of types and values in
//! places, and ends the process for some damaged ones. Readers of untrusted input read it in
//! another process first.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use uruk_bitcode::stream::{Cursor, Malformed, Operand, Record, What};

/// Numbers of blocks.
mod block {
    pub(super) const INFO: u32 = 0;
    pub(super) const MODULE: u32 = 8;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const IDENTIFICATION: u32 = 13;
    pub(super) const VALUE_SYMBOLS: u32 = 14;
    pub(super) const METADATA: u32 = 15;
    pub(super) const TYPES: u32 = 17;
}

/// Codes of records.
mod code {
    /// In blocks of abbreviations for other blocks: the number of the block.
    pub(super) const SET_BLOCK: u64 = 1;
    /// The number of types.
    pub(super) const TYPE_COUNT: u64 = 1;
    /// The name of a struct.
    pub(super) const STRUCT_NAME: u64 = 19;
    /// The number of basic blocks of a function.
    pub(super) const BASIC_BLOCKS: u64 = 1;
    /// A function's name, or number, and where its body is.
    pub(super) const FUNCTION_ENTRY: u64 = 3;
    /// The number of strings, and the place of their characters.
    pub(super) const STRINGS: u64 = 35;
}

/// Blocks in blocks; LLVM writes four.
const DEPTH: u32 = 16;
const WRAPPER: [u8; 4] = [0xDE, 0xC0, 0x17, 0x0B];
const MAGIC: u64 = 0xDEC0_4342;
const PADDING: u64 = 8 * 8; // Fewer bytes than this at the end are padding.

/// The abbreviations of a block, in the order of their numbers, from [`FIRST`] on.
type Abbreviations = Vec<Box<[Operand]>>;

/// Abbreviations that blocks begin with, by block number.
type Standard = FxHashMap<u32, Arc<Abbreviations>>;

const FIRST: u64 = 4; // Numbers below this are the container's own.

/// The place of a block's content: in bits of the stream, and the width of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    begin: u64,
    end: u64,
    width: u32,
}

/// The shape of a module whose blocks were found sound, bodies excepted.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    /// Places of bodies, in the order of definitions.
    pub(crate) bodies: Vec<Extent>,
    standard: Standard,
    /// The place of the stream in the file, in bytes.
    stream: Range<usize>,
    /// True if some struct has a name.
    pub(crate) names_structs: bool,
}

impl Structure {
    /// Checks all of `bytes` except bodies.
    pub(crate) fn check(bytes: &[u8]) -> Result<Structure, Malformed> {
        let stream = unwrap(bytes)?;
        let mut cursor = Cursor::new(&bytes[stream.clone()]);
        if cursor.fixed(32)? != MAGIC {
            return Err(cursor.fail(What::Magic));
        }
        let mut walk = StreamWalk {
            cursor,
            standard: Cow::Owned(Standard::default()),
            bodies: Vec::new(),
            entries: Vec::new(),
            origin: 32,
            has_module: false,
            whole: false,
            names_structs: false,
        };
        while walk.cursor.left() > PADDING {
            match walk.cursor.fixed(2)? {
                1 => walk.block(2, 0, &[])?,
                _ => return Err(walk.cursor.fail(What::Place)),
            }
        }
        walk.check_entries()?;
        Ok(Structure {
            bodies: walk.bodies,
            names_structs: walk.names_structs,
            standard: walk.standard.into_owned(),
            stream,
        })
    }

    /// Checks the body of definition `index`, of the same `bytes`. If it is missing, LLVM reports
    /// that.
    pub(crate) fn check_body(&self, bytes: &[u8], index: usize) -> Result<(), Malformed> {
        let (Some(&extent), Some(stream)) =
            (self.bodies.get(index), bytes.get(self.stream.clone()))
        else {
            return Ok(());
        };
        let mut cursor = Cursor::new(stream);
        cursor.bit = extent.begin;
        cursor.end = extent.end;
        cursor.block = Some(block::FUNCTION);
        StreamWalk {
            cursor,
            standard: Cow::Borrowed(&self.standard),
            bodies: Vec::new(),
            entries: Vec::new(),
            origin: 32,
            has_module: false,
            whole: true,
            names_structs: false,
        }
        .content(extent.width, 1)
    }
}

/// The place of the stream in a file, which may be wrapped: magic, version, offset, size, CPU.
fn unwrap(bytes: &[u8]) -> Result<Range<usize>, Malformed> {
    if !bytes.starts_with(&WRAPPER) {
        return Ok(0..bytes.len());
    }
    let refused = Cursor::new(bytes).fail(What::Wrapper);
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word) as usize)
    };
    match (word(8), word(12), word(16)) {
        (Some(begin), Some(size), Some(_)) if begin + size <= bytes.len() => {
            Ok(begin..begin + size)
        }
        _ => Err(refused),
    }
}

/// A walk over blocks.
struct StreamWalk<'a> {
    cursor: Cursor<'a>,
    standard: Cow<'a, Standard>,
    bodies: Vec<Extent>,
    /// Places of bodies in the symbol table: in words, from `origin` on.
    entries: Vec<(u64, u64)>,
    /// The bit the identification, or without one the module, begins at.
    origin: u64,
    has_module: bool,
    /// True if bodies are checked, not skipped.
    whole: bool,
    names_structs: bool,
}

impl StreamWalk<'_> {
    /// Checks a block, after the number that begins a block was read. `above` are the blocks around
    /// it.
    fn block(&mut self, outer_width: u32, depth: u32, above: &[u32]) -> Result<(), Malformed> {
        let start = self.cursor.bit - u64::from(outer_width);
        let number = self.cursor.vbr(8)?;
        let width = self.cursor.vbr(4)?;
        self.cursor.align()?;
        let words = self.cursor.fixed(32)?;
        if !(2..=32).contains(&width) || words > self.cursor.left() / 32 {
            return Err(self.cursor.fail(What::Length));
        }
        if depth == DEPTH {
            return Err(self.cursor.fail(What::Depth));
        }
        let extent = Extent {
            begin: self.cursor.bit,
            end: self.cursor.bit + words * 32,
            width: width as u32,
        };
        let number = number.min(u64::from(u32::MAX)) as u32;
        if depth == 0 && number == block::IDENTIFICATION {
            self.origin = start;
        }
        let is_module = depth == 0 && number == block::MODULE;
        if is_module && std::mem::replace(&mut self.has_module, true) {
            return Err(self.cursor.fail(What::Place));
        }
        if number == block::FUNCTION && !self.whole && above == [block::MODULE] {
            self.bodies.push(extent);
            self.cursor.bit = extent.end;
            return Ok(());
        }
        let (end, outer) = (self.cursor.end, self.cursor.block);
        (self.cursor.end, self.cursor.block) = (extent.end, Some(number));
        self.content(extent.width, depth + 1)?;
        (self.cursor.end, self.cursor.block) = (end, outer);
        Ok(())
    }

    /// Checks the content of the cursor's block, to its end.
    fn content(&mut self, width: u32, depth: u32) -> Result<(), Malformed> {
        let number = self.cursor.block.unwrap_or(u32::MAX);
        let room = self.cursor.left();
        let standard = self.standard.get(&number).cloned().unwrap_or_default();
        let mut own = Abbreviations::new();
        // The block that abbreviations are defined for, in the block that has them for others.
        let mut set = None;
        loop {
            let kind = self.cursor.fixed(width)?;
            let record = match kind {
                0 => {
                    self.cursor.align()?;
                    return match self.cursor.left() {
                        0 => Ok(()),
                        _ => Err(self.cursor.fail(What::Length)),
                    };
                }
                1 => {
                    self.block(width, depth, &[number])?;
                    continue;
                }
                2 => {
                    let defined = self.cursor.definition()?;
                    match (number, set) {
                        (block::INFO, Some(of)) => {
                            let list = self.standard.to_mut().entry(of).or_default();
                            Arc::make_mut(list).push(defined);
                        }
                        (block::INFO, None) => return Err(self.cursor.fail(What::Place)),
                        _ => own.push(defined),
                    }
                    continue;
                }
                3 => self.cursor.plain()?,
                other => match standard.iter().chain(&own).nth((other - FIRST) as usize) {
                    Some(abbreviation) => self.cursor.record(abbreviation)?,
                    None => return Err(self.cursor.fail(What::Abbreviation(other))),
                },
            };
            if number == block::INFO && record.code == code::SET_BLOCK {
                set = Some(record.operands[0].min(u64::from(u32::MAX)) as u32);
            }
            self.meaning(number, room, depth, &record)?;
        }
    }

    /// Checks the claims of a record in block `number`, of `room` bits.
    fn meaning(
        &mut self,
        number: u32,
        room: u64,
        depth: u32,
        record: &Record,
    ) -> Result<(), Malformed> {
        let [first, second] = record.operands;
        match (number, record.code) {
            // Each takes a record, or a terminator, of some bits.
            (block::TYPES, code::TYPE_COUNT) | (block::FUNCTION, code::BASIC_BLOCKS)
                if first > room =>
            {
                Err(self.cursor.fail(What::Count(first)))
            }
            (block::METADATA, code::STRINGS) if first.max(second) > room => {
                Err(self.cursor.fail(What::Count(first.max(second))))
            }
            (block::TYPES, code::STRUCT_NAME) => {
                self.names_structs = true;
                Ok(())
            }
            (block::VALUE_SYMBOLS, code::FUNCTION_ENTRY) if depth == 2 => {
                self.entries.push((second, self.cursor.bit));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that bodies are at the places in the symbol table.
    fn check_entries(&self) -> Result<(), Malformed> {
        // A place is that of the block's second word, which holds its length; it counts from the
        // word before the identification.
        let place = |body: &Extent| (body.begin / 32 + 1).checked_sub(self.origin / 32 + 2);
        let places: FxHashSet<u64> = self.bodies.iter().filter_map(place).collect();
        for &(words, bit) in &self.entries {
            if !places.contains(&words) {
                return Err(Malformed {
                    bit,
                    block: Some(block::VALUE_SYMBOLS),
                    what: What::Body(words),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Structure, WRAPPER};
    use crate::bitcode::Bitcode;
    use uruk_bitcode::stream::{Malformed, What};

    const TEXT: &str = "@s = constant [4 x i8] c\"abc\\00\"
        declare i32 @puts(ptr)
        define i32 @one(i32 %x) { %y = add i32 %x, 1 ret i32 %y }
        define void @two(i1 %c) { br i1 %c, label %a, label %b
            a: %i = call i32 @puts(ptr @s) br label %b
            b: ret void }
        !llvm.module.flags = !{!0}
        !0 = !{i32 1, !\"wchar_size\", i32 4}";

    fn good() -> Vec<u8> {
        let bitcode = Bitcode::from_ir_text("m", TEXT).expect("valid");
        bitcode.bytes().to_vec()
    }

    /// Checks the module and all its bodies.
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let structure = Structure::check(bytes)?;
        let bodies = structure.bodies.len();
        (0..bodies).try_for_each(|index| structure.check_body(bytes, index))?;
        Ok(bodies)
    }

    fn what(bytes: &[u8]) -> Option<What> {
        check(bytes).err().map(|cause| cause.what)
    }

    #[test]
    fn what_llvm_writes_is_well_formed() {
        let bytes = good();
        assert_eq!(check(&bytes), Ok(2));
        // Behind a wrapper, with the padding that an archive adds.
        let mut wrapped = WRAPPER.to_vec();
        for word in [0, 20, bytes.len() as u32, 7] {
            wrapped.extend(u32::to_le_bytes(word));
        }
        wrapped.extend(&bytes);
        wrapped.extend([0; 12]);
        assert_eq!(check(&wrapped), Ok(2));
        wrapped[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(what(&wrapped), Some(What::Wrapper));
    }

    #[test]
    fn what_is_cut_off_is_refused_wherever_it_is_cut() {
        let bytes = good();
        // Except between top-level blocks, where words may be padding.
        let lengths = (0..bytes.len()).step_by(4);
        let accepted = lengths.filter(|&length| check(&bytes[..length]).is_ok());
        assert!(accepted.count() <= 4 * 3);
        assert_eq!(what(&bytes[..3]), Some(What::End));
        assert_eq!(
            what(b"BC\xC0\xDD____________".as_slice()),
            Some(What::Magic)
        );
    }

    #[test]
    fn a_block_ends_inside_of_the_one_around_it() {
        let mut bytes = good();
        // The identification: its length is the third word.
        let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four"));
        for wrong in [0, length - 1, length + 1, u32::MAX] {
            bytes[8..12].copy_from_slice(&wrong.to_le_bytes());
            assert!(check(&bytes).is_err(), "{wrong}");
        }
    }

    /// Little ends first, as a stream has it.
    struct Bits(Vec<bool>);

    impl Bits {
        fn put(&mut self, value: u64, width: u32) -> &mut Bits {
            self.0.extend((0..width).map(|bit| value >> bit & 1 == 1));
            self
        }

        /// Pieces of six bits.
        fn vbr(&mut self, mut value: u64) -> &mut Bits {
            while value >= 32 {
                self.put(value & 31 | 32, 6);
                value >>= 5;
            }
            self.put(value, 6)
        }

        fn align(&mut self) -> &mut Bits {
            self.0.resize(self.0.len().next_multiple_of(32), false);
            self
        }

        fn bytes(&self) -> Vec<u8> {
            let byte = |bits: &[bool]| bits.iter().rev().fold(0, |b, &bit| b << 1 | u8::from(bit));
            self.0.chunks(8).map(byte).collect()
        }
    }

    /// A module with a block of types, which `content` writes; numbers have three bits there.
    fn types(content: impl Fn(&mut Bits)) -> Vec<u8> {
        let mut inner = Bits(Vec::new());
        content(&mut inner);
        inner.put(0, 3).align();
        let mut outer = Bits(Vec::new());
        outer.put(1, 3).put(17, 8).put(3, 4).align();
        outer.put(inner.0.len() as u64 / 32, 32);
        outer.0.extend(&inner.0);
        outer.put(0, 3).align();
        let mut all = Bits(Vec::new());
        all.put(0xDEC0_4342, 32)
            .put(1, 2)
            .put(8, 8)
            .put(3, 4)
            .align();
        all.put(outer.0.len() as u64 / 32, 32);
        all.0.extend(&outer.0);
        all.bytes()
    }

    #[test]
    fn no_size_is_believed() {
        let count = |count: u64| {
            types(|bits| {
                bits.put(3, 3).vbr(1).vbr(1).vbr(count);
            })
        };
        assert_eq!(what(&count(3)), None);
        assert_eq!(what(&count(1 << 31)), Some(What::Count(1 << 31)));
        // A record of more operands than there are bits.
        let operands = types(|bits| {
            bits.put(3, 3).vbr(1).vbr(1 << 40);
        });
        assert_eq!(what(&operands), Some(What::Count(1 << 40)));
        let number = types(|bits| {
            bits.put(3, 3);
            for _ in 0..20 {
                bits.put(63, 6);
            }
        });
        assert_eq!(what(&number), Some(What::Number));
    }

    #[test]
    fn abbreviations_are_defined_and_describe_records() {
        let unknown = types(|bits| {
            bits.put(5, 3);
        });
        assert_eq!(what(&unknown), Some(What::Abbreviation(5)));
        // Operands by kind: a code of eight bits, and an array of the kind given.
        let array = |kind: u64, length: u64| {
            types(move |bits| {
                bits.put(2, 3).put(3, 5);
                bits.put(0, 1).put(1, 3).put(8, 5);
                bits.put(0, 1).put(3, 3);
                bits.put(0, 1).put(kind, 3);
                bits.put(4, 3).put(19, 8).vbr(length).put(0, 12);
            })
        };
        assert_eq!(what(&array(4, 2)), None);
        assert_eq!(what(&array(4, 1 << 50)), Some(What::Count(1 << 50)));
        for kind in [0, 3, 5, 6] {
            assert_eq!(what(&array(kind, 2)), Some(What::Definition), "{kind}");
        }
        // Elements without bits can be described, and there are none.
        let empty = |used: bool| {
            types(move |bits| {
                bits.put(2, 3).put(3, 5);
                bits.put(0, 1).put(1, 3).put(8, 5);
                bits.put(0, 1).put(3, 3);
                bits.put(0, 1).put(1, 3).put(0, 5);
                if used {
                    bits.put(4, 3).put(19, 8).vbr(2).put(0, 12);
                }
            })
        };
        assert_eq!(what(&empty(false)), None);
        assert_eq!(what(&empty(true)), Some(What::Definition));
    }
}
