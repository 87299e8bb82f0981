//! Facts about a file that its headers tell, so that they cost the same for a large file as for a small one.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use uruk_files::OwnFile;

use super::image::{BITCODE, Header, ImageError, PATCHABLE};
use super::stream;

/// Bytes of a section that are read at once.
const PAGE: u64 = 4096;

/// Checks that functions of a file can be compiled again, as far as headers tell: those of the file, of its
/// sections and of the blocks of its bitcode. [`Image::read`](super::image::Image::read) reads the rest.
///
/// # Errors
/// [`ImageError`].
pub fn examine(file: &Path) -> Result<(), ImageError> {
    let opened = OwnFile::open(file).map_err(|cause| ImageError::Unreadable {
        file: file.to_owned(),
        message: cause.to_string(),
    })?;
    let not_elf = |message: String| ImageError::NotElf {
        file: file.to_owned(),
        message,
    };
    let broken = |cause: object::read::Error| not_elf(cause.to_string());
    let cache = ReadCache::new(opened);
    let header = Header::parse(&cache).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err(not_elf("it is for another machine".to_owned()));
    }
    if ![elf::ET_EXEC, elf::ET_DYN].contains(&header.e_type(endian)) {
        return Err(not_elf("it is no program or library".to_owned()));
    }
    let sections = header.sections(endian, &cache).map_err(broken)?;
    let (mut modules, mut symbols, mut entries) = (0, false, false);
    for section in sections.iter() {
        let name = sections.section_name(endian, section).map_err(broken)?;
        if BITCODE.iter().any(|known| name == known.as_bytes()) {
            modules += modules_in(file, section, endian, &cache)?;
        }
        symbols |= section.sh_type(endian) == elf::SHT_SYMTAB;
        entries |= name == PATCHABLE.as_bytes();
    }
    let file = || file.to_owned();
    if modules == 0 {
        Err(ImageError::NoBitcode { file: file() })
    } else if !symbols {
        Err(ImageError::Stripped { file: file() })
    } else if !entries {
        Err(ImageError::NoEntries { file: file() })
    } else {
        Ok(())
    }
}

/// The number of modules in a section of bitcode.
fn modules_in(
    file: &Path,
    section: &elf::SectionHeader64<Endianness>,
    endian: Endianness,
    bytes: &ReadCache<OwnFile>,
) -> Result<usize, ImageError> {
    let (from, size) = section.file_range(endian).unwrap_or_default();
    let end = from.checked_add(size);
    if end.is_none() || end > bytes.len().ok() {
        return Err(ImageError::NotElf {
            file: file.to_owned(),
            message: "a section ends behind the end of the file".to_owned(),
        });
    }
    // A read that fails is like zeros, which end a module.
    let head = |at: usize| {
        let mut head = [0; stream::HEAD];
        let at = at as u64;
        let page = at - at % PAGE;
        let count = size.saturating_sub(page).min(PAGE + stream::HEAD as u64);
        let read = bytes.read_bytes_at(from + page, count);
        let here = read
            .ok()
            .and_then(|page_of| page_of.get((at - page) as usize..));
        let here = here.unwrap_or_default();
        let count = here.len().min(stream::HEAD);
        head[..count].copy_from_slice(&here[..count]);
        head
    };
    let found = stream::walk(size as usize, head).map_err(|cause| ImageError::Bitcode {
        file: file.to_owned(),
        cause,
    })?;
    Ok(found.len())
}

/// Whether a file has a section of bitcode.
pub fn carries_bitcode(file: &Path) -> bool {
    bitcode_size(file).is_some()
}

/// Bytes of the sections of bitcode of a file; `None` if it has none.
pub fn bitcode_size(file: &Path) -> Option<u64> {
    let read = || -> Option<u64> {
        let cache = ReadCache::new(OwnFile::open(file).ok()?);
        let header = Header::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &cache).ok()?;
        let named = |name: &&str| sections.section_by_name(endian, name.as_bytes());
        let found = BITCODE.iter().filter_map(named);
        found
            .map(|(_, section)| section.sh_size(endian))
            .reduce(|all, size| all.saturating_add(size))
    };
    read()
}

/// Whether executing a file grants rights that the file system records (`setcap`): the loader then
/// loads nothing that the environment names, as for setuid programs.
pub fn has_capabilities(file: &Path) -> bool {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: C strings; without room, only the size is told.
    unsafe { libc::getxattr(file.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether a file is a program with a dynamic loader.
pub fn is_dynamic(file: &Path) -> bool {
    let read = || -> Option<bool> {
        let cache = ReadCache::new(OwnFile::open(file).ok()?);
        let header = Header::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let mut segments = header.program_headers(endian, &cache).ok()?.iter();
        Some(segments.any(|segment| segment.p_type(endian) == elf::PT_INTERP))
    };
    read().unwrap_or(false)
}

/// The libraries that a file asks the dynamic loader for; none if it is no such file.
pub fn needed(file: &Path) -> Vec<String> {
    let read = || -> Option<Vec<String>> {
        let cache = ReadCache::new(OwnFile::open(file).ok()?);
        let header = Header::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &cache).ok()?;
        let table = sections.dynamic_table(endian, &cache).ok()?;
        let named = table.iter().filter(|it| it.tag == elf::DT_NEEDED);
        let names = named.filter_map(|it| table.string(it).ok());
        Some(
            names
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect(),
        )
    };
    read().unwrap_or_default()
}
