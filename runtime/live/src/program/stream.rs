//! The modules of a section of bitcode.
//!
//! Each object file brings one; a linker puts them one after the other, with zeros between them if it
//! aligns. A module is the magic and a sequence of blocks. Each block gives its length, so the next one
//! is found without reading its contents.

use std::ops::Range;

/// `BC`, and the two bytes that mark LLVM's bitcode.
const MAGIC: [u8; 4] = [b'B', b'C', 0xc0, 0xde];

/// Bits of an abbreviation's number outside all blocks.
const OUTER: u32 = 2;

/// The number that enters a block.
const ENTER: u32 = 1;

/// The section is not a linker's sequence of modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at} of the bitcode: {what}")]
pub struct Damaged {
    /// The place, in bytes from the beginning of the section.
    pub at: usize,
    /// The defect there.
    pub what: &'static str,
}

/// Ranges of the modules in a section.
///
/// ```
/// assert_eq!(uruk_live::program::stream::modules(&[0, 0, 0, 0]), Ok(Vec::new()));
/// assert!(uruk_live::program::stream::modules(b"text").is_err());
/// ```
///
/// # Errors
/// [`Damaged`].
pub fn modules(section: &[u8]) -> Result<Vec<Range<usize>>, Damaged> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < section.len() {
        if section[at] == 0 {
            at += 1;
            continue;
        }
        let end = end_of(section, at)?;
        found.push(at..end);
        at = end;
    }
    Ok(found)
}

/// The end of the module that begins at `start`.
fn end_of(section: &[u8], start: usize) -> Result<usize, Damaged> {
    let damaged = |at, what| Damaged { at, what };
    if !section[start..].starts_with(&MAGIC) {
        return Err(damaged(start, "no module begins here"));
    }
    let mut at = start + MAGIC.len();
    loop {
        let rest = &section[at..];
        // The next module, the linker's zeros, or the end.
        if rest.len() < 8 || rest.starts_with(&MAGIC) || rest[0] == 0 {
            return Ok(at);
        }
        let head = word(rest, 0);
        if head & ((1 << OUTER) - 1) != ENTER {
            return Err(damaged(at, "no block begins here"));
        }
        // Its kind in chunks of eight bits, of abbreviations in chunks of four; then a word's
        // boundary.
        let bits = skip(u64::from(head) | u64::from(word(rest, 4)) << 32, OUTER, 8);
        let bits = skip(u64::from(head) | u64::from(word(rest, 4)) << 32, bits, 4);
        let words = bits.div_ceil(32) as usize;
        let Some(length) = rest.get(words * 4..words * 4 + 4) else {
            return Err(damaged(at, "a block ends in its head"));
        };
        let body = word(length, 0) as usize * 4;
        let next = at + words * 4 + 4;
        match next.checked_add(body) {
            Some(end) if end <= section.len() => at = end,
            _ => return Err(damaged(at, "a block is longer than the section")),
        }
    }
}

/// The position behind a number of chunks of `width` bits, whose highest bit tells whether another chunk
/// follows.
fn skip(bits: u64, from: u32, width: u32) -> u32 {
    let mut at = from;
    while at + width < 64 {
        let more = bits >> (at + width - 1) & 1;
        at += width;
        if more == 0 {
            break;
        }
    }
    at
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, modules};

    /// A block of kind 8 with abbreviations of 3 bits and `words` words.
    fn block(words: u32) -> Vec<u8> {
        let head: u32 = 1 | 8 << 2 | 3 << 10;
        let mut bytes = head.to_le_bytes().to_vec();
        bytes.extend(words.to_le_bytes());
        bytes.extend(std::iter::repeat_n(0xff, words as usize * 4));
        bytes
    }

    #[test]
    fn modules_are_told_apart() {
        let module = |words| [MAGIC.to_vec(), block(words), block(1)].concat();
        let (one, two) = (module(3), module(0));
        let section = [one.clone(), two.clone(), vec![0; 3], one.clone()].concat();
        let (a, b) = (one.len(), one.len() + two.len());
        let last = b + 3..b + 3 + one.len();
        assert_eq!(modules(&section), Ok(vec![0..a, a..b, last]));
    }

    #[test]
    fn damage_is_told() {
        let mut cut = [MAGIC.to_vec(), block(9)].concat();
        cut.truncate(20);
        assert_eq!(modules(&cut).unwrap_err().at, 4);
        let odd = [MAGIC.to_vec(), vec![0xfe; 16]].concat();
        assert_eq!(modules(&odd).unwrap_err().what, "no block begins here");
        for length in 0..cut.len() {
            // Any truncation gives an answer.
            let _ = modules(&cut[..length]);
        }
    }
}
