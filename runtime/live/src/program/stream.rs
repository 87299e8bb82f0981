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

/// Most zeros in front of a module.
const PADDING: usize = 64 << 10;

/// Bytes that tell a block's kind and length.
pub(super) const HEAD: usize = 12;

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
    walk(section.len(), |at| {
        let rest = &section[at..section.len().min(at + HEAD)];
        let mut head = [0; HEAD];
        head[..rest.len()].copy_from_slice(rest);
        head
    })
}

/// Ranges of the modules in a section of `length` bytes. `head` gives the bytes from a place, and zeros for
/// those behind the end of the section.
pub(super) fn walk(
    length: usize,
    mut head: impl FnMut(usize) -> [u8; HEAD],
) -> Result<Vec<Range<usize>>, Damaged> {
    let mut found = Vec::new();
    let (mut at, mut padding) = (0, 0);
    while at < length {
        let here = head(at);
        if let Some(count) = zeros(&here) {
            at += count;
            padding += count;
            if padding > PADDING {
                let what = "zeros where a module should begin";
                return Err(Damaged { at, what });
            }
            continue;
        }
        padding = 0;
        if !here.starts_with(&MAGIC) {
            let what = "no module begins here";
            return Err(Damaged { at, what });
        }
        let end = end_of(length, at, &mut head)?;
        found.push(at..end);
        at = end;
    }
    Ok(found)
}

/// The number of zeros that bytes begin with; `None` for none.
fn zeros(bytes: &[u8]) -> Option<usize> {
    let count = bytes.iter().take_while(|&&byte| byte == 0).count();
    (count > 0).then_some(count)
}

/// The end of the module that begins at `start`.
fn end_of(
    length: usize,
    start: usize,
    head: &mut impl FnMut(usize) -> [u8; HEAD],
) -> Result<usize, Damaged> {
    let damaged = |at, what| Damaged { at, what };
    let mut at = start + MAGIC.len();
    loop {
        let here = if at < length { head(at) } else { [0; HEAD] };
        // The next module, the linker's zeros, or the end.
        if at.saturating_add(8) > length || here.starts_with(&MAGIC) || here[0] == 0 {
            return Ok(at.min(length));
        }
        let first = word(&here, 0);
        if first & ((1 << OUTER) - 1) != ENTER {
            return Err(damaged(at, "no block begins here"));
        }
        // Its kind in chunks of eight bits, of abbreviations in chunks of four; then a word's
        // boundary.
        let both = u64::from(first) | u64::from(word(&here, 4)) << 32;
        let bits = skip(both, skip(both, OUTER, 8), 4);
        let bytes = bits.div_ceil(32) as usize * 4;
        let next = at + bytes + 4;
        if next > length {
            return Err(damaged(at, "a block ends in its head"));
        }
        let body = word(&here, bytes) as usize * 4;
        match next.checked_add(body) {
            Some(end) if end <= length => at = end,
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
    use super::{HEAD, MAGIC, modules, walk};

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

    /// A section whose reads fail behind a place is damaged there, and never read for ever.
    #[test]
    fn zeros_end_a_module() {
        let section = [MAGIC.to_vec(), block(9), vec![0; 100]].concat();
        let head = |at: usize| {
            let mut head = [0; HEAD];
            let here = &section[at..section.len().min(at + HEAD)];
            head[..here.len()].copy_from_slice(here);
            head
        };
        let one = 0..MAGIC.len() + 44;
        assert_eq!(walk(section.len(), head), Ok(vec![one.clone()]));
        assert_eq!(
            walk(1 << 15, |at| if at < one.end {
                head(at)
            } else {
                [0; HEAD]
            }),
            Ok(vec![one])
        );
    }

    /// A file may claim any number of bytes.
    #[test]
    fn zeros_have_a_limit() {
        let error = walk(1 << 46, |_| [0; HEAD]).unwrap_err();
        assert_eq!(error.what, "zeros where a module should begin");
        assert_eq!(modules(&[0; 4096]), Ok(Vec::new()));
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
