//! A new version of a source, as sent to the program.
//!
//! The client reads the file and sends its bitcode: the program may have another root folder or fewer
//! rights, and must not run out of memory for a file that is not bitcode.

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
    /// Reads an object of `uruk cc`, or bitcode.
    ///
    /// # Errors
    /// [`SwapError::File`], [`SwapError::NoModule`].
    pub fn read(file: &Path) -> Result<NewVersion, SwapError> {
        Ok(NewVersion {
            bitcode: module_of(file)?,
            file: file.to_owned(),
        })
    }
}

/// The bitcode of a file: its own, or that of an object's section.
fn module_of(file: &Path) -> Result<Vec<u8>, SwapError> {
    let bytes = uruk_files::read_at_most(file, LARGEST).map_err(|cause| SwapError::File {
        file: file.to_owned(),
        cause,
    })?;
    let none = || SwapError::NoModule {
        file: file.to_owned(),
    };
    if bytes.starts_with(b"BC\xc0\xde") {
        return Ok(bytes);
    }
    let read = || -> Result<Option<Vec<u8>>, object::read::Error> {
        let header = FileHeader64::<Endianness>::parse(&*bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &*bytes)?;
        let named = |name: &&str| sections.section_by_name(endian, name.as_bytes());
        let Some((_, section)) = BITCODE.iter().find_map(named) else {
            return Ok(None);
        };
        let data = section.data(endian, &*bytes)?;
        let modules = stream::modules(data).unwrap_or_default();
        let [only] = modules.as_slice() else {
            return Ok(None);
        };
        Ok(Some(data[only.clone()].to_vec()))
    };
    read().ok().flatten().ok_or_else(none)
}
