//! Names that the program exports preempt those of shared libraries, as in a native executable.
//!
//! Natively the dynamic loader searches the executable first. Here the executable is the runtime,
//! so three mechanisms replace this:
//!
//! | lookup by | names | mechanism |
//! |---|---|---|
//! | any library, always | `malloc`, `operator new` and their families | the command exports them ([`gates`]) |
//! | libraries opened later, `dlsym(RTLD_DEFAULT)` | those no library loaded before defines | a library that stands for the program ([`stand_in`]) |
//! | libraries loaded at the start, and after each `dlopen` of the program's | all others | the words of their relocations are overwritten ([`loaded`]) |
//!
//! Exported are all functions and variables of the program's image with default visibility, as with
//! `-rdynamic`. The names a linker would have exported for the libraries on its command line are
//! known from that command line only. The words get the canonical address, so libraries also see
//! later compiles, moves and replacements of a function.
//!
//! Libraries differ by their other callers:
//! - The *runtime's*, which are the executable, LLVM and their exclusive dependences, and the
//!   dynamic loader: their words are not overwritten.
//! - *Shared* ones, such as the C and C++ library: functions are reached through thunks that lead
//!   threads of the runtime to the previous definition. A weak reference without one stays
//!   undefined for them.
//! - The *program's*, and all that are opened later.
//!
//! A definition of the program's that is equal to all others by the rules of C++ (templates, inline
//! functions) does not replace a library's own one. The library has already initialized its own
//! variable. Thread-locals are not exported.
//!
//! Versions of names do not matter, as natively: the program's names have none, and the loader
//! binds a versioned reference to a name without a version, if that comes first.
//!
//! Variables of libraries that the program has a copy of ([`copies`](crate::load::copies)) are
//! exported like its own. Entries that represent functions of libraries are exported, too; calls
//! need not use these entries.
//!
//! Differences from a native start: libraries loaded at the start have run their constructors with
//! their own definitions. So have those opened later, if another library had the name before and it
//! is not an allocation function. A function of the program's has another address in a shared
//! library that uses a thunk, and so has an allocation function that the program leaves out. The
//! words of a library that another library opens are overwritten when the program next opens one.
//! In a namespace made by `dlmopen` none are.

mod blocks;
pub(crate) mod gates;
mod name_filter;
mod opened;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::ptr;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, SymbolScope};
use tracing::{debug, warn};
use uruk_codegen::{Kind, Linkage, SymbolId};

use self::name_filter::NameFilter;
pub(crate) use self::opened::{guest_dlmopen, guest_dlopen};

use crate::code::directory::CodeDirectory;
use crate::code::names::Definition;
use crate::fork::{LAST_COMPILES, gate, shield};
use crate::host::loaded::{self, Loaded, Word, closure};
use crate::host::stand_in::{self, Marks, NameKind, StandIn, Thunk};
use crate::host::{listed, llvm};
use crate::load::image::Image;
use crate::load::input::function_base;
use crate::load::started::Content;
use crate::load::started::CopiedDefinition;

/// The dynamic loader's own name.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Functions by which libraries open others, or search all loaded ones.
const OPENERS: [&CStr; 4] = [c"dlopen", c"dlsym", c"dlvsym", c"dlmopen"];

/// Definitions that the program offers to libraries. Without any name its allocation functions are
/// those of its libraries.
#[derive(Default)]
pub(crate) struct Exported {
    /// By name; sorted, so that runs are reproducible.
    names: BTreeMap<CString, ProgramExport>,
    /// Variables of libraries, and the addresses of their copies.
    moved: Vec<(Range<u64>, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct ProgramExport {
    address: u64,
    function: bool,
    /// Whether it represents a library's own definition.
    copied: bool,
    /// Whether all definitions of it are equal.
    equal: bool,
}

/// Properties of a name that a file exports.
struct Meaning {
    function: bool,
    equal: bool,
}

/// The exports of an object file.
fn exported_by<'a>(object: &'a object::File<'a>) -> impl Iterator<Item = (&'a str, Meaning)> {
    object.symbols().filter_map(|symbol| {
        let exported = symbol.is_definition() && symbol.scope() == SymbolScope::Dynamic;
        let name = exported.then(|| symbol.name().ok())??;
        let section = symbol.section_index();
        let section = section.and_then(|index| object.section_by_index(index).ok());
        // C++ puts its equal definitions into groups; no other mark exists.
        let grouped = section.is_some_and(|section| match section.flags() {
            SectionFlags::Elf { sh_flags, .. } => {
                sh_flags & object::elf::SHF_GROUP == object::elf::SHF_GROUP
            }
            _ => false,
        });
        let meaning = Meaning {
            function: symbol.kind() == SymbolKind::Text,
            equal: symbol.is_weak() && grouped,
        };
        Some((name, meaning))
    })
}

/// The exports of the files of `image`.
fn defined_by(directory: &CodeDirectory, image: &Image) -> BTreeMap<CString, ProgramExport> {
    let mut found: HashMap<Box<str>, Meaning> = HashMap::new();
    for (_, module) in &image.modules {
        let plan = module.plan();
        let summary = module.readers.summary();
        for (index, info) in summary.symbols.iter().enumerate() {
            let id = SymbolId(index as u32);
            let import = plan.import(id);
            let local = info.hidden || info.linkage == Linkage::Local;
            if import.defined && !local && info.kind != Kind::ThreadLocal {
                let function = function_base(summary, id).is_some();
                let equal = info.odr;
                found.insert(import.name.clone(), Meaning { function, equal });
            }
        }
    }
    for (_, bytes) in &image.objects {
        // It was linked, so it can be read.
        if let Ok(object) = object::File::parse(&**bytes) {
            for (name, meaning) in exported_by(&object) {
                found.entry(name.into()).or_insert(meaning);
            }
        }
    }
    let names = found.into_iter().filter_map(|(name, meaning)| {
        let address = match directory.names.find_own(&directory.main, &name)? {
            Definition::Function { id } => directory.given_stub(id),
            Definition::Address(address) => address,
            Definition::Tls { .. } => return None,
        };
        let name = CString::new(&*name).ok()?;
        let Meaning { function, equal } = meaning;
        let export = ProgramExport {
            address,
            function,
            copied: false,
            equal,
        };
        Some((name, export))
    });
    names.collect()
}

impl Exported {
    /// The definitions of a program that libraries will use: the `copied` definitions of libraries,
    /// and the exports of `image`, if they preempt those of libraries.
    pub(crate) fn of(
        directory: &CodeDirectory,
        image: Option<&Image>,
        copied: &[CopiedDefinition],
    ) -> Exported {
        let mut names = image.map_or_else(BTreeMap::new, |image| defined_by(directory, image));
        let mut moved = Vec::new();
        let own = |name: &CStr| match directory
            .names
            .find_own(&directory.main, name.to_str().ok()?)?
        {
            Definition::Address(address) => Some(address),
            _ => None,
        };
        for CopiedDefinition { name, content } in copied {
            let Some(address) = own(name) else { continue };
            let export = ProgramExport {
                address,
                function: *content == Content::Function,
                copied: true,
                equal: false,
            };
            names.insert(name.clone(), export);
            if let Content::Variable {
                from,
                size,
                aliases,
            } = content
            {
                moved.push((*from..from + size, address));
                // The program may define one of them itself.
                let aliases = aliases.iter().filter(|alias| own(alias) == Some(address));
                names.extend(aliases.map(|alias| (alias.clone(), export)));
            }
        }
        Exported { names, moved }
    }

    /// Makes libraries call the program's exports from now on. Before the program runs, once in a
    /// process, under a pass.
    pub(crate) fn begin(self, directory: &CodeDirectory) {
        let (loaded, _) = loaded::all();
        let process = directory.process();
        let parts = LibraryRoles::of(&loaded, &process.dynamics());
        gates::find_own(|name| process.find(name));
        drop(process);
        let gates: Vec<_> = self
            .names
            .iter()
            .filter_map(|(name, export)| {
                let index = gates::index_of(name.to_str().ok()?)?;
                (export.function && !export.copied).then_some((index, export.address))
            })
            .collect();
        gates::open(&gates, parts.runtimes_text(&loaded));
        listed::hide(parts.runtimes_files(&loaded));
        // SAFETY: variables of libraries, which stay, and the copies that were linked for them,
        // of the same size.
        unsafe { self.make_copies() };
        let mut writes = Writes::default();
        let wanted = filter_of(&self.names);
        for (index, one) in loaded.iter().enumerate() {
            if !parts.runtimes.contains(&index) {
                let shared = !parts.programs.contains(&index);
                writes.collect(&self.names, &wanted, one, index, shared);
            }
        }
        // Else it is made when the program first opens a library.
        let at_once = writes.opens || !writes.thunks.is_empty();
        llvm::expect(loaded.iter().map(|one| one.dynamic));
        if at_once {
            llvm::before_loader();
        }
        let stand_in = at_once.then(|| stand_in_for(&self.names, &writes.thunks));
        let made = stand_in.as_ref().and_then(Option::as_ref);
        let thunks = made.map(|made| &made.thunks[..]);
        writes.write(&loaded, thunks);
        if writes.lazy {
            // The loader may have been about to write a name's address for a thread of the runtime,
            // which has now finished.
            gate::settle(LAST_COMPILES);
            writes.write(&loaded, thunks);
        }
        for (index, one) in loaded.iter().enumerate() {
            if !self.moved.is_empty() && !parts.runtimes.contains(&index) {
                // SAFETY: those loaded at the start stay.
                unsafe { one.move_pointers(&self.moved) };
            }
        }
        let handle = stand_in.map(|made| made.map(|made| made.handle));
        opened::begin(self.names, handle, &loaded);
    }
}

impl Exported {
    /// Gives copies the values of the variables that they replace.
    ///
    /// # Safety
    /// 1. The variables exist, and the copies may be written.
    unsafe fn make_copies(&self) {
        for (old, new) in &self.moved {
            let size = old.end - old.start;
            // SAFETY: duty 1; a copy is in the image's own memory, apart from all libraries.
            unsafe {
                ptr::copy_nonoverlapping(old.start as *const u8, *new as *mut u8, size as usize);
                loaded::move_pointers(new.next_multiple_of(8)..new + size, &self.moved);
            }
        }
    }
}

/// Opens the library that stands for the program.
fn stand_in_for(names: &BTreeMap<CString, ProgramExport>, thunks: &[Thunk]) -> Option<StandIn> {
    let bind = stand_in::ExportedName {
        name: opened::BIND,
        address: opened::bind_opened as *const () as u64,
        kind: NameKind::Resolver,
    };
    let names = names.iter().map(|(name, export)| stand_in::ExportedName {
        name,
        address: export.address,
        kind: match export.function {
            true => NameKind::Function,
            false => NameKind::Variable,
        },
    });
    let names: Vec<_> = names.chain([bind]).collect();
    // Without marks the runtime's threads cannot be recognized, and thunks are not possible.
    let marks = shield::marks();
    let thunks = if marks.is_some() { thunks } else { &[] };
    let (raised, never) = marks.unwrap_or_default();
    let made = stand_in::open(&names, thunks, Marks { raised, never });
    if made.is_none() {
        warn!("libraries opened later do not find the program's names: no library can be made");
    }
    made
}

/// The names that words of libraries may have to be bound to: the program's, and the runtime's.
fn filter_of(names: &BTreeMap<CString, ProgramExport>) -> NameFilter {
    let names = names.keys().map(CString::as_c_str);
    NameFilter::new(names.chain(OPENERS).chain(listed::NAMES))
}

/// Libraries by their callers, as indexes.
struct LibraryRoles {
    runtimes: HashSet<usize>,
    programs: HashSet<usize>,
}

impl LibraryRoles {
    /// `allowed` are the dynamic sections of libraries that the program was linked with.
    fn of(loaded: &[Loaded], allowed: &[u64]) -> LibraryRoles {
        let mut runtimes = closure(loaded, llvm::needed(loaded).chain([0]));
        let roots = loaded.iter().enumerate();
        let roots = roots.filter(|(_, one)| allowed.contains(&one.dynamic));
        let mut programs = closure(loaded, roots.map(|(index, _)| index));
        let is_loader = |&index: &usize| loaded[index].name == LOADER;
        let loader = (0..loaded.len()).find(is_loader);
        let shared: Vec<_> = runtimes.intersection(&programs).copied().collect();
        for index in shared {
            runtimes.remove(&index);
            programs.remove(&index);
        }
        if let Some(loader) = loader {
            programs.remove(&loader);
            runtimes.insert(loader);
        }
        LibraryRoles { runtimes, programs }
    }

    /// Load addresses of the files that only the runtime uses: its executable, and LLVM.
    fn runtimes_files(&self, loaded: &[Loaded]) -> Vec<u64> {
        let files = llvm::place(loaded).into_iter().chain([0]);
        let files = files.filter(|index| self.runtimes.contains(index));
        files.map(|index| loaded[index].base()).collect()
    }

    fn runtimes_text(&self, loaded: &[Loaded]) -> Vec<Range<u64>> {
        let text = |&index: &usize| loaded[index].executable.clone();
        self.runtimes.iter().flat_map(text).collect()
    }
}

/// The new value of a word.
enum NewValue {
    Address(u64),
    /// The thunk with this index.
    Thunk(usize),
}

/// Words to overwrite.
#[derive(Default)]
struct Writes {
    /// By library: address, value, and addend.
    words: BTreeMap<usize, Vec<(u64, NewValue, i64)>>,
    thunks: Vec<Thunk>,
    thunk_indexes: HashMap<Thunk, usize>,
    /// Whether the loader has yet to fill in one of them.
    lazy: bool,
    /// Whether a library may look up the program's names at run time.
    opens: bool,
}

impl Writes {
    /// Adds the words of a library that the program's names preempt.
    fn collect(
        &mut self,
        names: &BTreeMap<CString, ProgramExport>,
        wanted: &NameFilter,
        library: &Loaded,
        index: usize,
        shared: bool,
    ) {
        let mut lists = listed::OverwrittenWords::of(library);
        let each = |word: Word<'_>| {
            if !wanted.may_hold(word.name) {
                return;
            }
            lists.note(&word);
            self.opens |= OPENERS.contains(&word.name);
            let Some(export) = names.get(word.name) else {
                return;
            };
            let is_gate = || gates::index_of(word.name.to_str().unwrap_or_default()).is_some();
            let settled = export.equal && word.own || word.holds == export.address;
            // Natively calls do not go through the program, and a unique definition has one place.
            let settled = settled
                || if export.copied {
                    word.calls
                } else {
                    word.unique
                };
            if settled || is_gate() {
                return;
            }
            let value = match shared && export.function && !export.copied {
                false => NewValue::Address(export.address),
                true => match before(&word) {
                    0 => return,
                    old => NewValue::Thunk(self.thunk(Thunk {
                        new: export.address,
                        old,
                    })),
                },
            };
            self.lazy |= word.lazy;
            let words = self.words.entry(index).or_default();
            words.push((word.address, value, word.addend));
        };
        // SAFETY: those loaded at the start stay; no other is unloaded under the loader's lock.
        unsafe { library.each_word(each) };
        let listed = lists
            .values()
            .filter(|(word, ..)| !names.contains_key(*word));
        let listed = listed.map(|(_, address, value)| (address, NewValue::Address(value), 0));
        let mut listed = listed.peekable();
        if listed.peek().is_some() {
            self.words.entry(index).or_default().extend(listed);
        }
    }

    fn thunk(&mut self, thunk: Thunk) -> usize {
        *self.thunk_indexes.entry(thunk).or_insert_with(|| {
            self.thunks.push(thunk);
            self.thunks.len() - 1
        })
    }

    /// Writes the words; those of thunks only if thunks exist.
    fn write(&self, loaded: &[Loaded], thunks: Option<&[u64]>) {
        for (&index, words) in &self.words {
            let values = words.iter().filter_map(|(address, value, addend)| {
                let value = match value {
                    NewValue::Address(address) => *address,
                    NewValue::Thunk(index) => *thunks?.get(*index)?,
                };
                Some((*address, value.wrapping_add_signed(*addend)))
            });
            let values: Vec<_> = values.collect();
            let library = &loaded[index];
            debug!(
                library = library.name,
                words = values.len(),
                "the program's names count"
            );
            // SAFETY: it is loaded, as for `collect`; the words are its own, and get the program's
            // definition, as the loader would have written it, or a thunk that leads there.
            if !unsafe { library.write(&values) } {
                warn!(library = library.name, "its calls do not reach the program");
            }
        }
    }
}

/// The previous target of calls through a word; zero if it had none.
fn before(word: &Word<'_>) -> u64 {
    match word.lazy {
        // Code that looks the name up would write the word again.
        // SAFETY: a C string.
        true => unsafe { libc::dlsym(libc::RTLD_DEFAULT, word.name.as_ptr()) as u64 },
        false => word.holds,
    }
}

/// Whether libraries can see a program's definition of `name`, if its names preempt theirs.
pub(crate) fn is_seen(name: &str) -> bool {
    gates::index_of(name).is_none() || gates::are_there()
}

/// The address that guest code gets for a name that the loader found at `address` in the global
/// scope.
pub(super) fn behind_gate(name: &CStr, address: u64) -> u64 {
    gates::behind(name, address).unwrap_or(address)
}
