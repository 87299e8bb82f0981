//! Checks whether the file of a library shows that it switches to unregistered stacks.
//!
//! Two things are checked. First the names in the table of dynamic symbols: a library that makes
//! contexts with the C library's functions has no switching instruction of its own. Second the
//! instructions ([`crate::stacks::switches`]), function by function where symbols say where these
//! begin.
//!
//! A file is read by parts, which are few for its names and all of its code for the instructions.
//! Nothing is mapped: a file that another process truncates must not end this one.

use object::elf::{DT_NEEDED, DT_SONAME, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, ElfSection64, FileHeader, SectionHeader, Sym};
use object::{LittleEndian, Object, ObjectSection, SectionKind};
use uruk_files::OwnFile;

use crate::stacks::switches;

/// Functions of widely used libraries that go to another stack, or make one for that.
pub(super) const FIBERS: [&str; 16] = [
    "aco_create",
    "aco_resume",
    "co_active",
    "co_create",
    "co_derive",
    "co_switch",
    "coro_create",
    "coro_transfer",
    "jump_fcontext",
    "make_fcontext",
    "mco_create",
    "mco_resume",
    "mco_yield",
    "ontop_fcontext",
    "pth_spawn",
    "st_thread_create",
];

/// Such functions of the C library. Program code is given a `makecontext` that registers the stack;
/// libraries have the C library's own.
pub(super) const CONTEXTS: [&str; 3] = ["makecontext", "setcontext", "swapcontext"];

/// Whether `name` is a function that goes to another stack.
pub(super) fn goes_elsewhere(name: &str) -> bool {
    CONTEXTS.contains(&name) || FIBERS.binary_search(&name).is_ok()
}

/// Parts of a pair: together they make a stack and go to it.
pub(super) const ALTERNATE: u8 = 1;
pub(super) const JUMP: u8 = 2;

/// Which part of the pair a name is.
pub(super) fn part_of_pair(name: &str) -> u8 {
    match name {
        "sigaltstack" => ALTERNATE,
        "longjmp" | "_longjmp" | "siglongjmp" | "__longjmp_chk" => JUMP,
        _ => 0,
    }
}

/// Signs of stack switches in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// The part of the file that goes to another stack, as words that follow the file's name.
    pub(super) switches: Option<String>,
    /// Parts of the pair that it names.
    pub(super) pair: u8,
}

/// The loader's name of a file, and the files that it needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) name: Option<String>,
    pub(super) needs: Vec<String>,
}

type Elf<'a> = ElfFile64<'a, LittleEndian, &'a ReadCache<OwnFile>>;

/// Runs `with` on a file; `None` if it cannot be read.
fn read<T>(path: &str, with: impl FnOnce(&Elf<'_>, &[u8]) -> Option<T>) -> Option<T> {
    let cache = ReadCache::new(OwnFile::open(path).ok()?);
    let elf = Elf::parse(&cache).ok()?;
    let symbols = elf.elf_dynamic_symbol_table();
    let strings = elf.elf_section_table().section(symbols.string_section());
    // Whole: a read for each name would be a system call each.
    let strings = strings.ok()?.data(LittleEndian, &cache).ok()?;
    with(&elf, strings)
}

fn string(strings: &[u8], at: u64) -> Option<&str> {
    let rest = strings.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// The loader's data of the file at `path`, if it is an ELF file with such data.
pub(super) fn links(path: &str) -> Option<Links> {
    let cache = ReadCache::new(OwnFile::open(path).ok()?);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let sections = header.sections(LittleEndian, &cache).ok()?;
    let table = sections.dynamic_table(LittleEndian, &cache).ok()?;
    let mut links = Links::default();
    for entry in table.iter() {
        let text = || {
            let bytes = table.string(entry).ok()?;
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        };
        match entry.tag {
            DT_SONAME => links.name = text(),
            DT_NEEDED => links.needs.extend(text()),
            _ => {}
        }
    }
    Some(links)
}

/// Checks the names of the file at `path`, and its `code` if requested; `None` if it cannot be
/// read.
pub(super) fn look(path: &str, code: bool) -> Option<Signs> {
    read(path, |elf, strings| {
        let mut signs = Signs::default();
        for symbol in elf.elf_dynamic_symbol_table().iter() {
            let Some(name) = string(strings, u64::from(symbol.st_name(LittleEndian))) else {
                continue;
            };
            signs.pair |= part_of_pair(name);
            if goes_elsewhere(name) {
                signs.switches = Some(format!("uses {name}"));
                return Some(signs);
            }
        }
        if code {
            signs.switches = find_switch(elf)?
                .map(|at| format!("loads its stack pointer from elsewhere, at {at:#x}"));
        }
        Some(signs)
    })
}

/// The place where the code of a file first goes to another stack.
fn find_switch(elf: &Elf<'_>) -> Option<Option<u64>> {
    let tables = [elf.elf_dynamic_symbol_table(), elf.elf_symbol_table()];
    let symbols = tables.iter().flat_map(|table| table.iter());
    let mut bounds: Vec<u64> = symbols
        .map(|symbol| symbol.st_value(LittleEndian))
        .collect();
    if let Some(index) = elf.section_by_name(".eh_frame_hdr") {
        bounds.extend(rows(index.data().ok()?, index.address()));
    }
    bounds.sort_unstable();
    bounds.dedup();
    let text =
        |section: &ElfSection64<'_, '_, LittleEndian, _>| section.kind() == SectionKind::Text;
    for section in elf.sections().filter(text) {
        let code = section.data().ok()?;
        let (start, end) = (section.address(), section.address() + section.size());
        let from = bounds.partition_point(|&bound| bound < start);
        let to = bounds.partition_point(|&bound| bound < end);
        if let Some(at) = switches::find(code, start, &bounds[from..to]) {
            return Some(Some(at));
        }
    }
    Some(None)
}

/// Starts of functions by the index of their unwind rows, which lies at `address`: also of
/// functions without symbols. Empty if it has another form than linkers write.
fn rows(index: &[u8], address: u64) -> impl Iterator<Item = u64> {
    // Version, encodings of the two words before the table, encoding of the table: relative to
    // the index, signed, four bytes.
    let known = matches!(index, [1, _, 3, 0x3b, ..]);
    let table = index.get(12..).filter(|_| known).unwrap_or_default();
    table.chunks_exact(8).map(move |row| {
        let start = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        address.wrapping_add_signed(i64::from(start))
    })
}

#[cfg(test)]
mod tests {
    use super::{ALTERNATE, CONTEXTS, FIBERS, JUMP, Signs, links, look, part_of_pair};
    use crate::stacks::foreign::foreign_code;

    fn path(name: &str) -> String {
        let found = foreign_code(|_| false).expect("proc").files;
        let found = found.into_iter().find(|file| file.path.contains(name));
        found.expect("mapped").path
    }

    #[test]
    fn names_are_sorted() {
        assert!(FIBERS.is_sorted() && CONTEXTS.is_sorted());
        assert_eq!(part_of_pair("sigaltstack"), ALTERNATE);
        assert_eq!(part_of_pair("siglongjmp"), JUMP);
        assert_eq!(part_of_pair("setjmp"), 0);
    }

    #[test]
    fn libraries_are_told_apart() {
        // A check of the C library would report it; it is trusted and not checked.
        let signs = look(&path("libc.so"), false).expect("readable");
        assert!(signs.switches.is_some_and(|sign| sign.ends_with("context")));
        let plain = Some(Signs::default());
        assert_eq!(look(&path("libm.so"), true), plain);
        assert_eq!(look("/no such file", true), None);
        assert_eq!(look("/dev/null", true), None);
        assert_eq!(look("/proc/self/maps", false), None);
    }

    #[test]
    fn files_say_what_they_need() {
        let links = links(&path("libm.so")).expect("readable");
        assert_eq!(links.name.as_deref(), Some("libm.so.6"));
        assert!(links.needs.contains(&String::from("libc.so.6")));
    }
}
