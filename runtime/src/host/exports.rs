//! Exports of loaded libraries, read from their own symbol tables.
//!
//! `dlsym` takes the dynamic loader's lock. A thread of the program holds that lock while it opens
//! or closes a library, and while constructors of one run. A constructor, or a handler at that
//! time, may call a function for the first time. The worker that compiles it must not wait for the
//! loader. So names are looked up here, in the library's `DT_GNU_HASH` table, which is never
//! written any more.
//!
//! The answer is that of `dlsym(handle, name)`:
//! - The library itself is searched, then its dependences (`DT_NEEDED`), breadth first.
//! - Of several versions of a name, the default one: not hidden (`DT_VERSYM`, bit 15).
//! - A function that is chosen by its resolver (`STT_GNU_IFUNC`) is the resolver's result.
//!
//! Only the loader can answer for two kinds of symbols: those that are unique in a process,
//! whichever library defines them (`STB_GNU_UNIQUE`), and thread-locals.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;

use crate::host::elf::{
    DT_GNU_HASH, DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_VERSYM, ElfSymbol, SHN_ABS, SHN_UNDEF,
    STB_GLOBAL, STB_GNU_UNIQUE, STB_WEAK, STT_COMMON, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
    STT_OBJECT, STT_TLS,
};

/// A library and its dependences, in the order of a search. They stay loaded.
#[derive(Debug)]
pub(super) struct Scope(Vec<Exports>);

/// The kind of an exported name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Export {
    /// At an address.
    At(u64),
    /// A symbol for which the dynamic loader must be asked.
    AskLoader,
}

/// A variable that a library exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportedVariable {
    pub(crate) address: u64,
    /// The largest size of its names.
    pub(crate) size: u64,
    /// All its names, including the one that was looked up.
    pub(crate) names: Vec<CString>,
}

/// The tables of one library, in its own memory.
#[derive(Debug)]
struct Exports {
    base: u64,
    symbols: *const ElfSymbol,
    strings: *const c_char,
    /// Null if there are no versions.
    versions: *const u16,
    hash: Hash,
}

/// `DT_GNU_HASH`.
#[derive(Debug, Clone, Copy)]
struct Hash {
    buckets: *const u32,
    bucket_count: u32,
    /// Symbols before this one are not in the table.
    first: u32,
    filter: *const u64,
    /// A power of two.
    filter_words: u32,
    filter_shift: u32,
}

// SAFETY: tables that are never written, of libraries that stay.
unsafe impl Send for Exports {}
// SAFETY: as above.
unsafe impl Sync for Exports {}

/// The public half of the loader's `struct link_map`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct LinkMap {
    base: u64,
    name: *const c_char,
    dynamic: *const [u64; 2],
}

impl Scope {
    /// The scope of a handle of `dlopen`; `None` if a library has no table of this kind: then the
    /// loader must be asked.
    ///
    /// # Safety
    /// 1. The handle is open and is never closed.
    pub(crate) unsafe fn of(handle: *mut c_void) -> Option<Scope> {
        let mut order: Vec<(LinkMap, Exports)> = Vec::new();
        // SAFETY: duty 1.
        let mut queue = VecDeque::from([unsafe { link_map(handle) }?]);
        while let Some(map) = queue.pop_front() {
            if order
                .iter()
                .any(|(known, _)| std::ptr::eq(known.dynamic, map.dynamic))
            {
                continue;
            }
            // SAFETY: the loader's description of a library that is loaded, and stays: by duty 1
            // the dependent library stays, or it was opened below.
            let (exports, needed) = unsafe { Exports::of(map) }?;
            for name in needed {
                // SAFETY: a string of the library's.
                queue.push_back(unsafe { open_again(name) }?);
            }
            order.push((map, exports));
        }
        Some(Scope(
            order.into_iter().map(|(_, exports)| exports).collect(),
        ))
    }

    /// The variable `name`, by the first library that exports the name.
    pub(crate) fn variable(&self, name: &CStr) -> Option<ExportedVariable> {
        let hash = hash(name);
        let found = |library: &&Exports| library.lookup(name, hash).is_some();
        self.0.iter().find(found)?.variable(name, hash)
    }

    /// Whether `name` is a thread-local, by the first library that exports the name.
    pub(super) fn is_thread_local(&self, name: &CStr) -> bool {
        let hash = hash(name);
        let mut found = self.0.iter().filter_map(|it| it.lookup(name, hash));
        found.next().is_some_and(|it| it.info & 15 == STT_TLS)
    }

    /// Looks `name` up. Takes no lock.
    pub(crate) fn find(&self, name: &CStr) -> Option<Export> {
        let hash = hash(name);
        self.0.iter().find_map(|library| library.find(name, hash))
    }
}

/// The description of a loaded library, which stays loaded from now on.
///
/// # Safety
/// 1. `name` is a C string.
unsafe fn open_again(name: *const c_char) -> Option<LinkMap> {
    // SAFETY: duty 1; it is loaded, and its constructors have run or are running.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: an open handle that is not closed.
    (!handle.is_null()).then(|| unsafe { link_map(handle) })?
}

/// # Safety
/// 1. The handle is open.
unsafe fn link_map(handle: *mut c_void) -> Option<LinkMap> {
    unsafe extern "C" {
        fn dlinfo(handle: *mut c_void, request: libc::c_int, info: *mut c_void) -> libc::c_int;
    }
    /// `RTLD_DI_LINKMAP`.
    const LINK_MAP: libc::c_int = 2;
    let mut map = MaybeUninit::<*const LinkMap>::uninit();
    // SAFETY: duty 1; this request writes one pointer.
    let failed = unsafe { dlinfo(handle, LINK_MAP, map.as_mut_ptr().cast()) };
    // SAFETY: written, as it did not fail; the loader's record of an open library.
    (failed == 0).then(|| unsafe { *map.assume_init() })
}

/// The load address of the library behind a handle.
///
/// # Safety
/// 1. The handle is open.
pub(super) unsafe fn base_of(handle: *mut c_void) -> Option<u64> {
    // SAFETY: duty 1.
    unsafe { link_map(handle) }.map(|map| map.base)
}

/// The address of its dynamic section, which identifies the library.
///
/// # Safety
/// 1. The handle is open.
pub(super) unsafe fn dynamic_of(handle: *mut c_void) -> Option<u64> {
    // SAFETY: duty 1.
    unsafe { link_map(handle) }.map(|map| map.dynamic as u64)
}

impl Exports {
    /// The tables, and the names of the library's dependences.
    ///
    /// # Safety
    /// 1. The library is loaded and stays.
    unsafe fn of(map: LinkMap) -> Option<(Exports, Vec<*const c_char>)> {
        // The loader has added the base to most libraries' entries, but not to those of the
        // vDSO, which it does not write.
        let place = |value: u64| match value < map.base {
            true => map.base + value,
            false => value,
        };
        let (mut symbols, mut strings, mut versions, mut table) = (0, 0, 0, 0);
        let mut needed = Vec::new();
        for index in 0.. {
            // SAFETY: the dynamic section ends with a null entry.
            let [tag, value] = unsafe { *map.dynamic.add(index) };
            match tag {
                0 => break,
                DT_NEEDED => needed.push(value as usize),
                DT_SYMTAB => symbols = place(value),
                DT_STRTAB => strings = place(value),
                DT_VERSYM => versions = place(value),
                DT_GNU_HASH => table = place(value),
                _ => {}
            }
        }
        if symbols == 0 || strings == 0 || table == 0 {
            return None;
        }
        let strings = strings as *const c_char;
        let exports = Exports {
            base: map.base,
            symbols: symbols as *const ElfSymbol,
            strings,
            versions: versions as *const u16,
            // SAFETY: duty 1.
            hash: unsafe { Hash::at(table) },
        };
        // SAFETY: offsets into the library's own strings.
        let needed = needed.into_iter().map(|at| unsafe { strings.add(at) });
        Some((exports, needed.collect()))
    }

    fn find(&self, name: &CStr, hash: u32) -> Option<Export> {
        self.export(self.lookup(name, hash)?)
    }

    /// The symbol of `name`, if the library exports it under its default version.
    fn lookup(&self, name: &CStr, hash: u32) -> Option<ElfSymbol> {
        let mut candidate = self.hash.first_of(hash);
        while let Some((index, value, last)) = candidate {
            if (value ^ hash) >> 1 == 0
                && let Some((symbol, true)) = self.symbol(index)
                && self.name(symbol) == name
            {
                return Some(symbol);
            }
            candidate = (!last).then(|| self.hash.entry(index + 1));
        }
        None
    }

    /// Symbol `index`, if it is exported, and whether its version is the default one.
    fn symbol(&self, index: u32) -> Option<(ElfSymbol, bool)> {
        // SAFETY: an index of the hash table is one of the symbol table, and of that of
        // versions.
        let (symbol, version) = unsafe {
            let symbol = *self.symbols.add(index as usize);
            let version = (!self.versions.is_null()).then(|| *self.versions.add(index as usize));
            (symbol, version.unwrap_or(1))
        };
        let nowhere = symbol.value == 0 && symbol.info & 15 != STT_TLS;
        // Version 0 is that of local symbols, bit 15 that of versions other than the default.
        let local = version & 0x7fff == 0;
        let defined = symbol.section != SHN_UNDEF && !nowhere && !local;
        defined.then_some((symbol, version & 0x8000 == 0))
    }

    fn name(&self, symbol: ElfSymbol) -> &CStr {
        // SAFETY: a name is an offset into the strings.
        unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize)) }
    }

    /// The variable of a name, with all names that the library has for it.
    fn variable(&self, name: &CStr, hash: u32) -> Option<ExportedVariable> {
        let is_variable = |symbol: &ElfSymbol| {
            matches!(symbol.info & 15, STT_OBJECT | STT_COMMON) && symbol.section != SHN_ABS
        };
        let symbol = self.lookup(name, hash).filter(is_variable)?;
        let mut found = ExportedVariable {
            address: self.base + symbol.value,
            size: symbol.size,
            names: Vec::new(),
        };
        for (alias, _) in self.indices().filter_map(|index| self.symbol(index)) {
            if is_variable(&alias) && alias.value == symbol.value {
                found.size = found.size.max(alias.size);
                found.names.push(self.name(alias).to_owned());
            }
        }
        found.names.sort();
        found.names.dedup();
        Some(found)
    }

    /// The symbols of the hash table.
    fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let hash = &self.hash;
        (0..hash.bucket_count as usize).flat_map(move |bucket| {
            // SAFETY: below the number of buckets.
            let start = unsafe { *hash.buckets.add(bucket) };
            let first = (start >= hash.first).then_some(start);
            std::iter::successors(first, |&index| (!hash.entry(index).2).then_some(index + 1))
        })
    }

    /// The kind of a symbol.
    fn export(&self, symbol: ElfSymbol) -> Option<Export> {
        let (binding, kind) = (symbol.info >> 4, symbol.info & 15);
        match (binding, kind) {
            (STB_GNU_UNIQUE, _) | (STB_GLOBAL | STB_WEAK, STT_TLS) => Some(Export::AskLoader),
            (STB_GLOBAL | STB_WEAK, STT_GNU_IFUNC) => {
                let resolver = self.base + symbol.value;
                // SAFETY: by the library's symbol type, a resolver without parameters as in the
                // x86-64 psABI; the loader has relocated the library.
                let resolve =
                    unsafe { std::mem::transmute::<u64, extern "C" fn() -> u64>(resolver) };
                Some(Export::At(resolve()))
            }
            (STB_GLOBAL | STB_WEAK, STT_NOTYPE | STT_OBJECT | STT_FUNC | STT_COMMON) => {
                let base = if symbol.section == SHN_ABS {
                    0
                } else {
                    self.base
                };
                Some(Export::At(base + symbol.value))
            }
            _ => None,
        }
    }
}

impl Hash {
    /// # Safety
    /// 1. The table of a library that stays is there.
    unsafe fn at(table: u64) -> Hash {
        let header = table as *const [u32; 4];
        // SAFETY: duty 1: four words, the filter, and the buckets.
        unsafe {
            let [bucket_count, first, filter_words, filter_shift] = *header;
            let filter = header.add(1).cast::<u64>();
            Hash {
                buckets: filter.add(filter_words as usize).cast(),
                bucket_count,
                first,
                filter,
                filter_words,
                filter_shift,
            }
        }
    }

    /// The first symbol that may have a name with this hash, as [`Hash::entry`].
    fn first_of(&self, hash: u32) -> Option<(u32, u32, bool)> {
        if self.bucket_count == 0 || self.filter_words == 0 {
            return None;
        }
        let word = (hash / u64::BITS) & (self.filter_words - 1);
        let bits = 1u64 << (hash % 64) | 1u64 << ((hash >> (self.filter_shift % 32)) % 64);
        // SAFETY: below the number of words, and of buckets.
        let (filter, start) = unsafe {
            let bucket = hash % self.bucket_count;
            let filter = *self.filter.add(word as usize);
            (filter, *self.buckets.add(bucket as usize))
        };
        (filter & bits == bits && start >= self.first).then(|| self.entry(start))
    }

    /// A symbol: its index, the hash of its name without bit 0, and whether it is the last of its
    /// bucket, which that bit says.
    fn entry(&self, index: u32) -> (u32, u32, bool) {
        // SAFETY: a word for each symbol from the first one on, behind the buckets; callers stop at
        // the last of a bucket.
        let value = unsafe {
            let chains = self.buckets.add(self.bucket_count as usize);
            *chains.add((index - self.first) as usize)
        };
        (index, value, value & 1 != 0)
    }
}

/// The hash function of the table (Bernstein's).
fn hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

/// The loader's answer, for comparison and for symbols that only it knows.
///
/// # Safety
/// 1. The handle is open.
pub(super) unsafe fn ask_loader(handle: *mut c_void, name: &CStr) -> Option<u64> {
    // SAFETY: duty 1, and a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}

#[cfg(test)]
mod tests {
    use super::{CString, Export, Exports, Scope, ask_loader};

    /// The names of all symbols of the table.
    fn names(exports: &Exports) -> Vec<CString> {
        let symbol = |index| {
            // SAFETY: an index of the table.
            unsafe { *exports.symbols.add(index as usize) }
        };
        let names = exports
            .indices()
            .map(|index| exports.name(symbol(index)).to_owned());
        names.collect()
    }

    #[test]
    fn a_variable_is_known_by_all_its_names() {
        // SAFETY: a name; it is not closed.
        let scope = unsafe { Scope::of(libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY)) };
        let scope = scope.expect("a table");
        let environ = scope.variable(c"environ").expect("a variable");
        assert_eq!(environ.size, 8);
        assert_eq!(
            environ.names,
            [c"__environ", c"_environ", c"environ"].map(CString::from)
        );
        assert_eq!(scope.find(c"_environ"), Some(Export::At(environ.address)));
        assert_eq!(scope.variable(c"printf"), None, "a function");
        assert_eq!(scope.variable(c"no such name anywhere"), None);
    }

    #[test]
    fn answers_are_the_loaders() {
        for (library, least) in [
            (c"libc.so.6", 2_000),
            (c"libm.so.6", 500),
            (c"libstdc++.so.6", 4_000),
        ] {
            // SAFETY: a name; its constructors are those of every program.
            let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY) };
            assert!(!handle.is_null());
            // SAFETY: not closed.
            let scope = unsafe { Scope::of(handle) }.expect("a table");
            let mut found = 0;
            for name in scope.0.iter().flat_map(names) {
                // SAFETY: open.
                let loaders = unsafe { ask_loader(handle, &name) };
                match scope.find(&name) {
                    Some(Export::At(address)) => {
                        assert_eq!(loaders, Some(address), "{name:?} in {library:?}");
                        found += 1;
                    }
                    Some(Export::AskLoader) => assert!(loaders.is_some(), "{name:?}"),
                    None => assert_eq!(loaders, None, "{name:?} in {library:?}"),
                }
            }
            assert!(found > least, "{found} names in {library:?}");
            assert_eq!(scope.find(c"no such name anywhere"), None);
        }
    }
}
