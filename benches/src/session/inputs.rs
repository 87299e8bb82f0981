//! Files that both sides read, and the IR both make.

use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result};
use uruk_codegen::Bitcode;

use crate::bench::Bench;
use crate::tiny_object::{VALUE, VALUE_NAME, chain_object, value_object};

/// The name that input `n` defines: a function that returns `n`.
pub fn numbered(n: usize) -> String {
    format!("f{n:07}")
}

/// Objects that differ in a name and a number.
pub struct Template {
    bytes: Vec<u8>,
    name: usize,
    datum: usize,
}

impl Template {
    /// Of the bytes of [`value_object`].
    ///
    /// # Errors
    /// Name or datum are not there.
    pub fn new(bytes: Vec<u8>) -> Result<Template> {
        let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
        let name = find(VALUE_NAME.as_bytes()).context("no name in the template")?;
        let datum = find(&VALUE.to_le_bytes()).context("no datum in the template")?;
        Ok(Template { bytes, name, datum })
    }

    /// Object `n`.
    pub fn number(&mut self, n: usize) -> &[u8] {
        let name = numbered(n);
        self.bytes[self.name..self.name + name.len()].copy_from_slice(name.as_bytes());
        self.bytes[self.datum..self.datum + 4].copy_from_slice(&(n as u32).to_le_bytes());
        &self.bytes
    }
}

/// The IR of a function that returns a global of its own.
pub fn small_module(n: usize) -> String {
    let name = numbered(n);
    format!(
        "@g{n} = global i32 {n}\ndefine i32 @{name}() {{\n  %v = load i32, ptr @g{n}\n  \
         ret i32 %v\n}}\n"
    )
}

/// The IR of some functions of a chain of `count`, each of which calls the next and adds 1.
pub fn chain_module(range: Range<usize>, count: usize) -> String {
    let mut text = String::new();
    if range.end < count {
        let _ = writeln!(text, "declare i32 @f{}()", range.end);
    }
    for n in range {
        let _ = match n + 1 < count {
            true => writeln!(
                text,
                "define i32 @f{n}() {{\n  %n = call i32 @f{}()\n  %m = add i32 %n, 1\n  \
                 ret i32 %m\n}}",
                n + 1
            ),
            false => writeln!(text, "define i32 @f{n}() {{\n  ret i32 1\n}}"),
        };
    }
    text
}

/// A file in the benchmarks' directory.
fn written(bench: &Bench, name: &str, bytes: &[u8]) -> Result<String> {
    let path: PathBuf = bench.directory.join(name);
    std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The path of the template of objects.
///
/// # Errors
/// It cannot be written.
pub fn template_file(bench: &Bench) -> Result<String> {
    written(bench, "value.o", &value_object()?)
}

/// The path of an object of functions that call each other.
///
/// # Errors
/// It cannot be written.
pub fn chain_object_file(bench: &Bench, count: usize, ring: bool) -> Result<String> {
    let name = format!("{}-{count}.o", if ring { "ring" } else { "chain" });
    written(bench, &name, &chain_object(count, ring)?)
}

/// The path of a module of bitcode with a chain of functions.
///
/// # Errors
/// It cannot be written.
pub fn chain_bitcode_file(bench: &Bench, count: usize) -> Result<String> {
    let module = Bitcode::from_ir_text("chain", &chain_module(0..count, count))?;
    written(bench, &format!("chain-{count}.bc"), module.bytes())
}

/// The path of an archive of the objects of the numbers below `members`, with a symbol index.
///
/// # Errors
/// It cannot be written.
pub fn archive_file(bench: &Bench, members: usize) -> Result<String> {
    written(bench, &format!("members-{members}.a"), &archive(members)?)
}

/// In GNU's format: the index `/`, then the members, each with 60 bytes of header.
fn archive(members: usize) -> Result<Vec<u8>> {
    let mut template = Template::new(value_object()?)?;
    let size = template.number(0).len();
    let names = members * (VALUE_NAME.len() + 1);
    let index = 4 + 4 * members + names;
    let header = |name: &str, size: usize| {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644)
    };
    let mut bytes = b"!<arch>\n".to_vec();
    bytes.extend(header("/", index).bytes());
    bytes.extend(u32::try_from(members)?.to_be_bytes());
    let even = |size: usize| size.next_multiple_of(2);
    let first = bytes.len() + 4 * members + even(names);
    for n in 0..members {
        bytes.extend(u32::try_from(first + n * (60 + even(size)))?.to_be_bytes());
    }
    for n in 0..members {
        bytes.extend(numbered(n).bytes().chain([0]));
    }
    bytes.resize(first, b'\n');
    for n in 0..members {
        bytes.extend(header(&format!("{n}.o/"), size).bytes());
        bytes.extend(template.number(n));
        bytes.resize(first + (n + 1) * (60 + even(size)), b'\n');
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use object::read::archive::ArchiveFile;

    use super::{Template, archive, numbered, small_module};
    use crate::tiny_object::value_object;

    #[test]
    fn a_template_takes_numbers() {
        let mut template = Template::new(value_object().expect("an object")).expect("a template");
        let first = template.number(7).to_vec();
        assert_ne!(first, template.number(8));
        assert_eq!(first, template.number(7));
    }

    #[test]
    fn the_archive_has_its_members_where_its_index_says() {
        let bytes = archive(3).expect("an archive");
        let file = ArchiveFile::parse(&*bytes).expect("readable");
        let index = file.symbols().expect("readable").expect("an index");
        let symbols: Vec<_> = index.map(|symbol| symbol.expect("a symbol")).collect();
        let mut template = Template::new(value_object().expect("an object")).expect("a template");
        assert_eq!(symbols.len(), 3);
        for (n, symbol) in symbols.iter().enumerate() {
            assert_eq!(symbol.name(), numbered(n).as_bytes());
            let member = file.member(symbol.offset()).expect("a member");
            assert_eq!(member.data(&*bytes).expect("its bytes"), template.number(n));
        }
        assert_eq!(file.members().count(), 3);
    }

    #[test]
    fn the_ir_is_accepted() {
        for text in [
            small_module(3),
            super::chain_module(0..2, 4),
            super::chain_module(3..4, 4),
        ] {
            uruk_codegen::Bitcode::from_ir_text("m", &text).expect("valid IR");
        }
    }
}
