//! Renames the section that holds the bitcode in objects, and seals them.
//!
//! `ar`, `nm` and `ranlib` ask the plugins of binutils about each object. LLVM's plugin, of any version,
//! treats an object with a section `.llvmbc` as one for link-time optimization. A plugin older than the
//! bitcode then reports no symbols: archives lose their index. The new name is as long as clang's, so
//! that it replaces it among the file's strings.
//!
//! The seal, behind the end of the object, tells `uruk swap` that the bitcode is undamaged.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uruk_live::program::image::BITCODE;
use uruk_live::swap::seal;

/// The objects that clang makes by a command line of these words: none if it makes other files.
pub(super) fn objects(words: &[String]) -> Vec<PathBuf> {
    let (mut compiles, mut joins, mut output) = (false, false, None);
    let mut sources = Vec::new();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "-c" | "--compile" => compiles = true,
            "-r" => joins = true,
            "-S" | "-E" | "-M" | "-MM" | "-fsyntax-only" => return Vec::new(),
            "-o" | "--output" => output = rest.next().map(PathBuf::from),
            _ if word.starts_with("--output=") => output = Some(word[9..].into()),
            _ if word.starts_with("-o") => output = Some(word[2..].into()),
            // Options whose value is a word of its own may look like a source: there is no such object
            // then.
            _ if !word.starts_with('-') => sources.push(Path::new(word)),
            _ => {}
        }
    }
    match output {
        Some(output) if compiles || joins => vec![output],
        None if compiles => {
            let names = sources.iter().filter_map(|source| source.file_name());
            names
                .map(|name| Path::new(name).with_extension("o"))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Renames the section in a file, and seals the file, if it is an object with one.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn rename(file: &Path) -> std::io::Result<()> {
    let is_file = fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
    let Some(at) = is_file.then(|| find(file)).transpose()?.flatten() else {
        return Ok(());
    };
    let own = OpenOptions::new().write(true).open(file)?;
    own.write_all_at(BITCODE[0].as_bytes(), at)?;
    let bytes = fs::read(file)?;
    match seal(&bytes) {
        Some(seal) => own.write_all_at(&seal, bytes.len() as u64),
        // Several sources, linked with `-r`.
        None => Ok(()),
    }
}

/// Offset of the name of clang's section in an object.
fn find(file: &Path) -> std::io::Result<Option<u64>> {
    const HEADER: usize = 64;
    let file = File::open(file)?;
    let size = file.metadata()?.len();
    let mut header = [0; HEADER];
    // ELF of 64 bits, little-endian, relocatable.
    let read = file.read_exact_at(&mut header, 0).is_ok();
    if !read || !header.starts_with(b"\x7fELF\x02\x01") || header[16..18] != [1, 0] {
        return Ok(None);
    }
    let entry = usize::from(number(&header[58..60]) as u16);
    let mut count = number(&header[60..62]);
    let mut names = number(&header[62..64]);
    let table = number(&header[40..48]);
    if table == 0 || entry < HEADER {
        return Ok(None);
    }
    let section = |index: u64| -> Option<[u8; HEADER]> {
        let mut section = [0; HEADER];
        let at = index.checked_mul(entry as u64)?.checked_add(table)?;
        file.read_exact_at(&mut section, at).ok().map(|()| section)
    };
    let Some(first) = section(0) else {
        return Ok(None);
    };
    // Numbers that are too large for the header are in the first section.
    count = if count == 0 {
        number(&first[32..40])
    } else {
        count
    };
    names = if names == 0xffff {
        number(&first[40..44])
    } else {
        names
    };
    let Some(strings) = section(names) else {
        return Ok(None);
    };
    let (strings, length) = (number(&strings[24..32]), number(&strings[32..40]));
    for index in 1..count.min(size / entry as u64) {
        let Some(header) = section(index) else { break };
        let name = number(&header[..4]);
        let wanted = BITCODE[1].as_bytes();
        let mut found = vec![0; wanted.len() + 1];
        let at = strings.saturating_add(name);
        if name < length
            && file.read_exact_at(&mut found, at).is_ok()
            && found[..wanted.len()] == *wanted
            && found.ends_with(&[0])
        {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_what_is_compiled_or_joined() {
        let objects = |line: &str| -> Vec<String> {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let objects = super::objects(&words);
            objects
                .iter()
                .map(|file| file.display().to_string())
                .collect()
        };
        assert_eq!(objects("-O2 -c dir/x.c -o y/z.o"), ["y/z.o"]);
        assert_eq!(
            objects("-c dir/x.c w.cpp -I include"),
            ["x.o", "w.o", "include.o"]
        );
        assert_eq!(objects("-r a.o b.o -oc.o"), ["c.o"]);
        for line in ["x.c -o x", "-S x.c -o x.s", "-E x.c", "x.o", ""] {
            assert!(objects(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn names_are_of_one_length() {
        assert_eq!(BITCODE[0].len(), BITCODE[1].len());
    }
}
