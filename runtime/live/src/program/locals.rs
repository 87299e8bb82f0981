//! Local functions that are called by their types in native code, as the compiler recorded it.
//!
//! The plugin that `uruk cc` loads into clang writes a record for each object file (`../../locals/src/locals.cpp`
//! has the format, and the conditions), and linkers join the records of all objects. A record belongs to the
//! module whose bitcode has its length and hash. It counts only if this is certain:
//!
//! | the file has | then |
//! |---|---|
//! | a module without a record: another compiler, or damage | its functions are not known |
//! | a record without a module | it is ignored |
//! | several equal modules, and as many records | functions that all of them have |
//! | several equal modules, and another number of records | their functions are not known |
//! | a record that is no record | the rest of the section is ignored, as its end is not known |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The section.
pub const LOCALS: &str = ".uruk.locals";

/// Begins a record; the digit is the version.
const MAGIC: [u8; 8] = *b"URUKLOC1";

/// Bytes of a record in front of the names: the magic and four numbers.
const HEAD: usize = 40;

/// Names of functions.
pub type KeptNames = Arc<HashSet<String>>;

/// The recorded functions of each module, in their order.
///
/// ```
/// let known = uruk_live::program::locals::kept(&[b"no record"], &[b"no module".to_vec()]);
/// assert!(known[0].is_empty());
/// ```
pub fn kept(sections: &[&[u8]], modules: &[Vec<u8>]) -> Vec<KeptNames> {
    let mut all: HashMap<Key, Vec<KeptNames>> = HashMap::new();
    for record in sections.iter().flat_map(|section| Records(section)) {
        all.entry(record.key).or_default().push(record.names);
    }
    if all.is_empty() {
        return vec![KeptNames::default(); modules.len()];
    }
    let keys: Vec<Key> = modules.iter().map(|module| Key::of(module)).collect();
    let names = |key: &Key| {
        let records = all.get(key).map_or(&[][..], Vec::as_slice);
        let same = keys.iter().filter(|it| *it == key).count();
        match records {
            [only] if same == 1 => Arc::clone(only),
            [first, rest @ ..] if same == records.len() => {
                let mut common = HashSet::clone(first);
                common.retain(|name| rest.iter().all(|names| names.contains(name)));
                Arc::new(common)
            }
            _ => KeptNames::default(),
        }
    };
    keys.iter().map(names).collect()
}

/// Length and hash of a module's bitcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64, u64);

impl Key {
    fn of(module: &[u8]) -> Key {
        Key(module.len() as u64, hash(module))
    }
}

struct Record {
    key: Key,
    names: KeptNames,
}

/// The records of a section, up to the first damage.
struct Records<'s>(&'s [u8]);

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        // A linker may align.
        let start = self.0.iter().position(|&byte| byte != 0)?;
        let rest = &self.0[start..];
        self.0 = &[];
        let (head, rest) = rest.split_at_checked(HEAD)?;
        let (magic, numbers) = head.split_at(MAGIC.len());
        let (summed, sum) = numbers.split_at(24);
        let [length, hashed, size] = [0, 8, 16].map(|at| number(&summed[at..]));
        let size = usize::try_from(size).ok()?;
        let (names, rest) = rest.split_at_checked(size)?;
        let is_whole = magic == MAGIC && hash_on(hash(summed), names) == number(sum);
        let names = names.strip_suffix(&[0]).filter(|_| is_whole)?;
        self.0 = rest;
        let names = names.split(|&byte| byte == 0);
        // Names of bitcode are read as text, too.
        let names = names.filter_map(|name| String::from_utf8(name.to_vec()).ok());
        Some(Record {
            key: Key(length, hashed),
            names: Arc::new(names.collect()),
        })
    }
}

/// The little-endian number at the beginning of at least 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(number)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    hash_on(0xcbf2_9ce4_8422_2325, bytes)
}

/// FNV-1a of more bytes after those of `hash`.
fn hash_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(module: &[u8], names: &[&str]) -> Vec<u8> {
        let names: String = names.iter().flat_map(|name| [name, "\0"]).collect();
        let numbers = [module.len() as u64, hash(module), names.len() as u64];
        let head: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        let sum = hash_on(hash(&head), names.as_bytes());
        [&MAGIC[..], &head, &sum.to_le_bytes(), names.as_bytes()].concat()
    }

    fn known(section: &[u8], modules: &[&[u8]]) -> Vec<Vec<String>> {
        let modules: Vec<Vec<u8>> = modules.iter().map(|it| it.to_vec()).collect();
        let sorted = |names: &KeptNames| {
            let mut names: Vec<String> = names.iter().cloned().collect();
            names.sort();
            names
        };
        kept(&[section], &modules).iter().map(sorted).collect()
    }

    const NONE: [String; 0] = [];

    #[test]
    fn a_hash_is_that_of_the_plugin() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(hash_on(hash(b"foo"), b"bar"), hash(b"foobar"));
    }

    #[test]
    fn a_record_belongs_to_the_module_that_it_was_made_for() {
        let section = [
            record(b"two", &["f", "g"]),
            vec![0; 3],
            record(b"gone", &["h"]),
            record(b"one", &["f"]),
        ];
        let found = known(&section.concat(), &[b"one", b"two", b"other"]);
        assert_eq!(found[0], ["f"]);
        assert_eq!(found[1], ["f", "g"]);
        assert_eq!(found[2], NONE);
    }

    #[test]
    fn of_equal_modules_only_common_functions_count() {
        let (a, b) = (record(b"one", &["f", "g"]), record(b"one", &["f", "h"]));
        let both = [a.clone(), b].concat();
        assert_eq!(known(&both, &[b"one", b"one"]), [["f"], ["f"]]);
        // One of them has no record, or one record has no module.
        assert_eq!(known(&a, &[b"one", b"one"]), [NONE, NONE]);
        assert_eq!(known(&both, &[b"one"]), [NONE]);
    }

    #[test]
    fn damage_leaves_functions_unknown() {
        let module: &[u8] = b"one";
        let whole = record(module, &["first", "second"]);
        assert_eq!(known(&whole, &[module])[0].len(), 2);
        for at in 0..whole.len() {
            assert_eq!(known(&whole[..at], &[module]), [NONE], "cut at {at}");
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                assert_eq!(known(&other, &[module]), [NONE], "bit {bit} at {at}");
            }
        }
        let mut huge = whole.clone();
        huge[24..32].fill(0xff);
        assert_eq!(known(&huge, &[module]), [NONE]);
        // The end of a damaged record is not known, so that those after it do not count.
        let mut first = record(b"two", &["f"]);
        first[0] ^= 1;
        assert_eq!(known(&[first, whole].concat(), &[module]), [NONE]);
    }
}
