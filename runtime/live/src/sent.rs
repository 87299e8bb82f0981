//! A new version of a source, as sent to the program.
//!
//! The client reads the file and sends its bitcode: the program may have another root folder or fewer
//! rights, and must not run out of memory for a file that is not bitcode.

use std::ops::Range;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf::FileHeader64};

use crate::program::image::BITCODE;
use crate::program::stream;
use crate::refused::SwapError;

/// Bytes of the largest file: bitcode of programs of millions of lines is smaller.
pub(crate) const LARGEST: u64 = 256 << 20;

/// Bitcode of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVersion {
    /// The file that it was read from, for messages.
    pub file: PathBuf,
    /// The bitcode.
    pub bitcode: Vec<u8>,
}

impl NewVersion {
    /// Reads an object of `uruk cc`, or bitcode. Unless the file has a valid [`seal`], a child process
    /// reads the bitcode with LLVM first: LLVM's reader trusts its input, and ends the process for some
    /// damaged files.
    ///
    /// # Errors
    /// [`SwapError::File`], [`SwapError::NoModule`], the child's error.
    pub fn read(file: &Path) -> Result<NewVersion, SwapError> {
        let bytes = uruk_files::read_at_most(file, LARGEST).map_err(|cause| SwapError::File {
            file: file.to_owned(),
            cause,
        })?;
        let place = match bytes.starts_with(b"BC\xc0\xde") {
            true => Some(0..bytes.len()),
            false => module_of(&bytes),
        };
        let place = place.ok_or_else(|| SwapError::NoModule {
            file: file.to_owned(),
        })?;
        let bitcode = &bytes[place];
        if !bytes.ends_with(&seal_of(bitcode)) {
            uruk::live::read_apart(&file.display().to_string(), bitcode)?;
        }
        Ok(NewVersion {
            bitcode: bitcode.to_vec(),
            file: file.to_owned(),
        })
    }
}

const MAGIC: &[u8; 16] = b"uruk's bitcode: ";

/// The seal of an object of `uruk cc`, which is appended to the file: the hash of its bitcode, by which
/// damage is found. `None` if the object does not have the bitcode of exactly one source.
///
/// Linkers and archivers ignore bytes behind the sections; `strip` and `objcopy` drop them.
pub fn seal(object: &[u8]) -> Option<Vec<u8>> {
    module_of(object).map(|place| seal_of(&object[place]))
}

fn seal_of(bitcode: &[u8]) -> Vec<u8> {
    [MAGIC.as_slice(), blake3::hash(bitcode).as_bytes()].concat()
}

/// The place of the bitcode of one source in an object.
fn module_of(object: &[u8]) -> Option<Range<usize>> {
    let header = FileHeader64::<Endianness>::parse(object).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, object).ok()?;
    let named = |name: &&str| sections.section_by_name(endian, name.as_bytes());
    let (_, section) = BITCODE.iter().find_map(named)?;
    let data = section.data(endian, object).ok()?;
    let begin = usize::try_from(section.sh_offset(endian)).ok()?;
    let modules = stream::modules(data).unwrap_or_default();
    let [only] = modules.as_slice() else {
        return None;
    };
    Some(begin + only.start..begin + only.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_that_of_its_bitcode() {
        let seal = seal_of(b"BC one");
        assert_eq!(seal, seal_of(b"BC one"));
        assert_ne!(seal, seal_of(b"BC two"));
        assert_eq!(super::seal(b"no object"), None);
    }
}
