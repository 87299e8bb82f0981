//! Loaded files of the dynamic loader, and the words it has filled in by name.
//!
//! A word belongs to a relocation of one of three kinds, with `S` the address of the symbol and `A`
//! the addend (x86-64 psABI): `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT` hold `S`, `R_X86_64_64`
//! holds `S + A`. Words the library binds to itself have no such relocation, or one that is skipped
//! here: symbols that are local or protected, and all symbols of a library linked with
//! `-Bsymbolic`. `IRELATIVE` has no symbol; thread-locals have other kinds.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host::elf::{
    DF_SYMBOLIC, DT_FLAGS, DT_JMPREL, DT_NEEDED, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SONAME,
    DT_STRTAB, DT_SYMBOLIC, DT_SYMTAB, ElfSymbol, R_64, R_GLOB_DAT, R_JUMP_SLOT, SHN_UNDEF,
    STB_GNU_UNIQUE, STB_LOCAL, STT_TLS, STV_PROTECTED,
};

/// `Elf64_Rela`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    place: u64,
    info: u64,
    addend: i64,
}

const _: () = assert!(size_of::<Relocation>() == 24);

/// An executable or a library, as of the time of the search.
pub(crate) struct Loaded {
    /// Address of its dynamic section, which identifies it.
    pub(crate) dynamic: u64,
    /// Its own name, else that of its file.
    pub(crate) name: String,
    pub(crate) needed: Vec<String>,
    pub(crate) executable: Vec<Range<u64>>,
    writable: Vec<Range<u64>>,
    /// Whole pages that are made read-only once it is relocated.
    closed: Range<u64>,
    symbols: u64,
    strings: u64,
    relocations: Vec<Range<u64>>,
    symbolic: bool,
    base: u64,
}

/// A word that holds the address of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Word<'a> {
    pub(crate) address: u64,
    /// Its value, without the addend.
    pub(crate) holds: u64,
    pub(crate) addend: i64,
    pub(crate) name: &'a CStr,
    /// Whether it may hold the address of code that will look the name up.
    pub(crate) lazy: bool,
    /// Whether the library defines the name itself.
    pub(crate) own: bool,
    /// Whether only calls go through it.
    pub(crate) calls: bool,
    /// Whether the process has one definition of the name, in whichever library.
    pub(crate) unique: bool,
}

const PAGE: u64 = 4096;

/// All loaded files, the executable first, and the loader's count of unloads.
pub(crate) fn all() -> (Vec<Loaded>, u64) {
    unsafe extern "C" fn add(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record, and the pair below.
        let (info, found) = unsafe { (&*info, &mut *data.cast::<(Vec<Loaded>, u64)>()) };
        // SAFETY: it is loaded while the loader calls this.
        found.0.extend(unsafe { Loaded::of(info) });
        found.1 = info.dlpi_subs;
        0
    }
    let mut found: (Vec<Loaded>, u64) = Default::default();
    // SAFETY: the callback gets back the pointer to the pair, alive here.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found
}

/// The files loaded because of `roots`, themselves included: indexes into `loaded`.
pub(crate) fn closure(loaded: &[Loaded], roots: impl IntoIterator<Item = usize>) -> HashSet<usize> {
    let by_name: HashMap<&str, usize> = loaded
        .iter()
        .enumerate()
        .map(|(index, one)| (one.name.as_str(), index))
        .collect();
    let mut found = HashSet::new();
    let mut queue: Vec<usize> = roots.into_iter().collect();
    while let Some(index) = queue.pop() {
        if found.insert(index) {
            let needed = loaded[index].needed.iter();
            queue.extend(needed.filter_map(|name| by_name.get(name.as_str())));
        }
    }
    found
}

impl Loaded {
    /// `None` without a dynamic section.
    ///
    /// # Safety
    /// 1. It stays loaded during the call.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Loaded> {
        let base = info.dlpi_addr;
        // SAFETY: duty 1: headers and a name.
        let (headers, file) = unsafe {
            let count = usize::from(info.dlpi_phnum);
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, count);
            let file = (!info.dlpi_name.is_null()).then(|| CStr::from_ptr(info.dlpi_name));
            (headers, file.unwrap_or_default())
        };
        let range = |header: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr);
            start..start.wrapping_add(header.p_memsz)
        };
        let with = |kind: u32, flag: u32| {
            let of_kind = headers.iter().filter(move |header| header.p_type == kind);
            of_kind.filter(move |header| flag == 0 || header.p_flags & flag != 0)
        };
        let dynamic = range(with(libc::PT_DYNAMIC, 0).next()?).start;
        let closed = with(libc::PT_GNU_RELRO, 0).next().map_or(0..0, range);
        let mut loaded = Loaded {
            dynamic,
            name: file.to_string_lossy().into_owned(),
            needed: Vec::new(),
            executable: with(libc::PT_LOAD, libc::PF_X).map(range).collect(),
            writable: with(libc::PT_LOAD, libc::PF_W).map(range).collect(),
            closed: closed.start / PAGE * PAGE..closed.end / PAGE * PAGE,
            symbols: 0,
            strings: 0,
            relocations: Vec::new(),
            symbolic: false,
            base,
        };
        // SAFETY: duty 1.
        unsafe { loaded.read_dynamic() };
        Some(loaded)
    }

    /// # Safety
    /// 1. As for [`Loaded::of`].
    unsafe fn read_dynamic(&mut self) {
        let base = self.base;
        // The loader has added the base, except for the vDSO, which it does not write.
        let address = |value: u64| if value < base { base + value } else { value };
        let mut entries: HashMap<u64, u64> = HashMap::new();
        let mut needed = Vec::new();
        for index in 0.. {
            // SAFETY: the dynamic section ends with a null entry.
            let [tag, value] = unsafe { *(self.dynamic as *const [u64; 2]).add(index) };
            match tag {
                0 => break,
                DT_NEEDED => needed.push(value),
                _ => {
                    entries.insert(tag, value);
                }
            }
        }
        let pointer = |tag: u64| entries.get(&tag).copied().map_or(0, address);
        let size = |tag: u64| entries.get(&tag).copied().unwrap_or(0);
        (self.symbols, self.strings) = (pointer(DT_SYMTAB), pointer(DT_STRTAB));
        let tables = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)];
        self.relocations = tables
            .map(|(table, length)| pointer(table)..pointer(table) + size(length))
            .into_iter()
            .filter(|table| table.start != 0)
            .collect();
        self.symbolic = entries.contains_key(&DT_SYMBOLIC) || size(DT_FLAGS) & DF_SYMBOLIC != 0;
        if self.strings == 0 {
            return;
        }
        // SAFETY: offsets into the library's own strings.
        let text = |offset: u64| unsafe {
            let text = CStr::from_ptr((self.strings + offset) as *const c_char);
            text.to_string_lossy().into_owned()
        };
        self.needed = needed.into_iter().map(text).collect();
        if let Some(&name) = entries.get(&DT_SONAME) {
            self.name = text(name);
        }
    }

    /// Its load address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Its own name, else that of its file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether `address` is in its code.
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.executable.iter().any(|range| range.contains(&address))
    }

    /// Calls `each` with the words that are bound by name.
    ///
    /// # Safety
    /// 1. It is still loaded.
    pub(crate) unsafe fn each_word(&self, mut each: impl FnMut(Word<'_>)) {
        if self.symbols == 0 || self.strings == 0 {
            return;
        }
        for table in &self.relocations {
            let count = (table.end - table.start) as usize / size_of::<Relocation>();
            // SAFETY: duty 1: the table named by the dynamic section.
            let table =
                unsafe { std::slice::from_raw_parts(table.start as *const Relocation, count) };
            // SAFETY: duty 1.
            let words = table.iter().filter_map(|one| unsafe { self.word(one) });
            words.for_each(&mut each);
        }
    }

    /// # Safety
    /// 1. It is still loaded while the word is used; the relocation is the library's.
    unsafe fn word<'a>(&self, relocation: &Relocation) -> Option<Word<'a>> {
        let (kind, index) = (relocation.info as u32, relocation.info >> 32);
        let addend = match kind {
            R_64 => relocation.addend,
            R_GLOB_DAT | R_JUMP_SLOT => 0,
            _ => return None,
        };
        let address = self.base.wrapping_add(relocation.place);
        let inside = |ranges: &[Range<u64>], at| ranges.iter().any(|range| range.contains(&at));
        if index == 0 || !address.is_multiple_of(8) || !inside(&self.writable, address) {
            return None;
        }
        // SAFETY: duty 1: an index of the table.
        let symbol = unsafe { *(self.symbols as *const ElfSymbol).add(index as usize) };
        let (binding, own) = (symbol.info >> 4, symbol.section != SHN_UNDEF);
        let to_itself = own && (self.symbolic || symbol.other & 3 == STV_PROTECTED);
        if binding == STB_LOCAL || symbol.info & 15 == STT_TLS || to_itself {
            return None;
        }
        // SAFETY: duty 1: a name of its strings, and a word of a writable segment.
        let (name, holds) = unsafe {
            let name = CStr::from_ptr((self.strings + u64::from(symbol.name)) as *const c_char);
            (name, *(address as *const u64))
        };
        Some(Word {
            address,
            holds: holds.wrapping_sub(addend as u64),
            addend,
            name,
            lazy: kind == R_JUMP_SLOT && inside(&self.executable, holds),
            own,
            calls: kind == R_JUMP_SLOT,
            unique: binding == STB_GNU_UNIQUE,
        })
    }

    /// Redirects pointers in variables of this library that point into one of `moved` to the same
    /// place of its copy: pairs of a range and its copy's address.
    ///
    /// # Safety
    /// 1. It is still loaded.
    pub(crate) unsafe fn move_pointers(&self, moved: &[(Range<u64>, u64)]) {
        for range in &self.writable {
            // Read-only words were filled in by name, or by the library itself.
            let inside = self.closed.start >= range.start && self.closed.start < range.end;
            let start = if inside { self.closed.end } else { range.start };
            // SAFETY: duty 1: the rest of a writable segment.
            unsafe { move_pointers(start.next_multiple_of(8)..range.end, moved) };
        }
    }

    /// Writes words of this library: addresses and values. Read-only pages are writable meanwhile;
    /// false if they cannot be made so.
    ///
    /// # Safety
    /// 1. It is still loaded.
    /// 2. Each address is that of one of [`Loaded::each_word`], and its value is valid there.
    pub(crate) unsafe fn write(&self, values: &[(u64, u64)]) -> bool {
        let closed = values.iter().any(|(at, _)| self.closed.contains(at));
        let protect = |protection: c_int| {
            let length = (self.closed.end - self.closed.start) as usize;
            let start = self.closed.start as *mut c_void;
            // SAFETY: duty 1: pages of the library, which are data; no code relies on their being
            // read-only.
            !closed || unsafe { libc::mprotect(start, length, protection) } == 0
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        for &(address, value) in values {
            // SAFETY: duty 2: an aligned word; other threads see the old value or the new.
            let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
            // Release: the value's target was written before.
            word.store(value, Ordering::Release);
        }
        protect(libc::PROT_READ);
        true
    }
}

/// Redirects pointers in `range` that point into one of `moved` to the same place of its copy.
///
/// # Safety
/// 1. The range is writable memory, and begins at a multiple of 8.
pub(crate) unsafe fn move_pointers(range: Range<u64>, moved: &[(Range<u64>, u64)]) {
    let end = range.end;
    for address in range.step_by(8).filter(|at| at + 8 <= end) {
        // SAFETY: duty 1: an aligned word; other threads see the old value or the new.
        let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let value = word.load(Ordering::Relaxed);
        if let Some((old, new)) = moved.iter().find(|(old, _)| old.contains(&value)) {
            let new = value - old.start + new;
            // Release: the copy was made before. A word that another thread has just written keeps
            // that value.
            let _ = word.compare_exchange(value, new, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// The dynamic loader's record of libraries for debuggers (`struct r_debug`); 0 if it has none.
pub(crate) fn loader_debug() -> u64 {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()) as u64 }
}

#[cfg(test)]
mod tests {
    use super::{all, closure};

    #[test]
    fn the_executable_is_first_and_needs_the_c_library() {
        let (loaded, _) = all();
        let libc = loaded.iter().position(|one| one.name == "libc.so.6");
        let libc = libc.expect("loaded");
        assert!(closure(&loaded, [0]).contains(&libc));
        assert!(!closure(&loaded, [libc]).contains(&0));
        let mut calls = 0;
        let each = |word: super::Word<'_>| {
            if word.name == c"free" {
                assert!(word.own && word.addend == 0);
                calls += 1;
            }
        };
        // SAFETY: the C library stays.
        unsafe { loaded[libc].each_word(each) };
        assert_ne!(calls, 0, "libc calls free by name");
    }
}
