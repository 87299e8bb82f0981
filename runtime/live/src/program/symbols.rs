//! Maps names to addresses, by a symbol table that was not stripped.
//!
//! Global names are one table. Local ones are only unique within the object file that they came from. A
//! linker keeps those of one file together, behind a symbol that names its source (`STT_FILE`). The file
//! of a module follows from the source's name where there is one such file, else from the order: a
//! linker takes files in the order in which it takes their bitcode. Names that no other *program* sees
//! (`visibility("hidden")`) become local in the linker, too, behind a source without a name: files see
//! them as they see global ones.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Separates the name of a function and the number of a copy that LLVM's function specialization made of
/// it. LLVM copies functions that are never inlined, too.
const SPECIALIZED: &str = ".specialized.";

/// Suffixes of a function's name in names of its parts that LLVM puts elsewhere: rarely run code,
/// landing pads, clusters of blocks.
const PARTS: [&str; 3] = [".cold", ".eh", ".__part."];

/// The address and kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its address, or of a thread-local its offset in the block that each thread has.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its kind.
    pub kind: PlaceKind,
    /// Whether another file may define it, too.
    pub weak: bool,
    /// Whether other files of the process see it, and may define another one in its place.
    pub exported: bool,
}

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    /// Code.
    Function,
    /// A variable, or a symbol without a type.
    Data,
    /// A variable that each thread has.
    ThreadLocal,
}

/// A symbol as a table lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// Local symbols up to the next one belong to the object file of this source.
    File(String),
    /// A local symbol.
    Local(String, Place),
    /// A symbol that other files see.
    Global(String, Place),
}

/// The symbols of a file.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    global: HashMap<String, Place>,
    /// Local ones, by object file.
    files: Vec<(String, HashMap<String, Place>)>,
    /// Functions of which the optimizer made a copy for some values of their arguments, by object file.
    copied: HashSet<(usize, String)>,
    /// Parts of functions, by object file and the functions' names.
    parts: HashMap<(usize, String), Vec<Range<u64>>>,
    /// Every place that has a name, by address.
    starts: Vec<u64>,
}

/// The function that a part belongs to, by the part's name.
fn part_of(name: &str) -> Option<&str> {
    PARTS.iter().find_map(|mark| {
        let at = name.rfind(mark)?;
        let number = &name[at + mark.len()..];
        let is_whole = number.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        (at != 0 && is_whole).then_some(&name[..at])
    })
}

impl Symbols {
    /// Symbols of a table, in its order.
    pub fn new(listed: impl IntoIterator<Item = Listed>) -> Symbols {
        let mut symbols = Symbols::default();
        for symbol in listed {
            match symbol {
                Listed::File(name) => symbols.files.push((name, HashMap::new())),
                Listed::Local(name, place) => {
                    symbols.starts.push(place.address);
                    let file = symbols.files.len().wrapping_sub(1);
                    if let Some((function, _)) = name.split_once(SPECIALIZED) {
                        symbols.copied.insert((file, function.to_owned()));
                    }
                    if let Some(function) = part_of(&name) {
                        let parts = symbols.parts.entry((file, function.to_owned()));
                        let range = place.address..place.address + place.size.max(1);
                        parts.or_default().push(range);
                    }
                    if let Some((file, locals)) = symbols.files.last_mut() {
                        if file.is_empty() {
                            // The symbol's original binding is not known any more.
                            let place = Place {
                                weak: true,
                                exported: false,
                                ..place
                            };
                            symbols.global.entry(name.clone()).or_insert(place);
                        }
                        // Of equal names in one file, as assembly may have, none is used.
                        locals.entry(name).or_insert(place);
                    }
                }
                Listed::Global(name, place) => {
                    symbols.starts.push(place.address);
                    // `name@VERSION` and `name@@VERSION` are the versions of one name.
                    let plain = name.split('@').next().unwrap_or_default().to_owned();
                    symbols.global.entry(plain).or_insert(place);
                }
            }
        }
        symbols.starts.sort_unstable();
        symbols.starts.dedup();
        symbols
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.global.is_empty() && self.files.iter().all(|(_, locals)| locals.is_empty())
    }

    /// The symbol of that name that all files see.
    pub fn global(&self, name: &str) -> Option<Place> {
        self.global.get(name).copied()
    }

    /// The local symbol of that name in an object file.
    pub fn local(&self, file: usize, name: &str) -> Option<Place> {
        self.files.get(file)?.1.get(name).copied()
    }

    /// Whether an object file has a copy of its function of that name, for some values of its arguments.
    pub fn is_copied(&self, file: usize, name: &str) -> bool {
        self.copied.contains(&(file, name.to_owned()))
    }

    /// Parts of a function that lie elsewhere; those in all object files, if its file is not known.
    pub fn parts(&self, file: Option<usize>, name: &str) -> Vec<Range<u64>> {
        let files = match file {
            Some(file) => file..file + 1,
            None => 0..self.files.len(),
        };
        let parts = files.filter_map(|file| self.parts.get(&(file, name.to_owned())));
        parts.flatten().cloned().collect()
    }

    /// Whether a symbol's place begins at the address.
    pub fn begins(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    /// The object file of each module, given the sources of all in link order. `None` where that is not
    /// certain: then its local names have no address.
    pub fn files_of(&self, sources: &[String]) -> Vec<Option<usize>> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut of_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, (name, _)) in self.files.iter().enumerate() {
            of_name.entry(base(name)).or_default().push(number);
        }
        let mut modules: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, source) in sources.iter().enumerate() {
            modules.entry(base(source)).or_default().push(number);
        }
        let mut found = vec![None; sources.len()];
        for (name, modules) in modules {
            let files = of_name.remove(&name).unwrap_or_default();
            // More or fewer: an object of that name has no bitcode, or no symbols.
            if files.len() == modules.len() {
                for (module, file) in modules.into_iter().zip(files) {
                    found[module] = Some(file);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Listed, Place, PlaceKind, Symbols};

    fn place(address: u64) -> Place {
        Place {
            address,
            size: 8,
            kind: PlaceKind::Data,
            weak: false,
            exported: true,
        }
    }

    fn table() -> Symbols {
        let local = |name: &str, at| Listed::Local(name.to_owned(), place(at));
        Symbols::new([
            Listed::File("crt.c".to_owned()),
            Listed::File("util.c".to_owned()),
            local("counter", 10),
            Listed::File("util.c".to_owned()),
            local("counter", 20),
            local("sum.specialized.1", 60),
            local("sum.cold", 70),
            local("sum.__part.12", 80),
            local("sum.colder", 90),
            Listed::File("odd.c".to_owned()),
            Listed::File("odd.c".to_owned()),
            Listed::File(String::new()),
            local("hidden", 50),
            Listed::Global("main".to_owned(), place(30)),
            Listed::Global("stdout@GLIBC_2.2.5".to_owned(), place(40)),
        ])
    }

    #[test]
    fn local_names_are_found_in_their_file() {
        let symbols = table();
        let sources = ["a/util.c", "b/util.c", "odd.c", "none.c"].map(str::to_owned);
        let files = symbols.files_of(&sources);
        assert_eq!(files, [Some(1), Some(2), None, None]);
        assert_eq!(symbols.local(1, "counter"), Some(place(10)));
        assert_eq!(symbols.local(2, "counter"), Some(place(20)));
        assert_eq!(symbols.local(2, "main"), None);
    }

    #[test]
    fn copies_for_some_arguments_are_seen_in_their_file() {
        let symbols = table();
        assert!(symbols.is_copied(2, "sum"));
        assert!(!symbols.is_copied(1, "sum") && !symbols.is_copied(2, "counter"));
    }

    #[test]
    fn parts_of_functions_are_told_by_their_names() {
        let symbols = table();
        assert_eq!(symbols.parts(Some(2), "sum"), [70..78, 80..88]);
        assert_eq!(symbols.parts(None, "sum"), [70..78, 80..88]);
        assert_eq!(symbols.parts(Some(1), "sum"), []);
    }

    #[test]
    fn hidden_names_are_seen_by_all_files() {
        let hidden = table().global("hidden").expect("it is listed");
        assert_eq!((hidden.address, hidden.weak), (50, true));
        assert!(!hidden.exported && table().global("main").expect("it is listed").exported);
    }

    #[test]
    fn versions_of_a_name_are_that_name() {
        assert_eq!(table().global("stdout"), Some(place(40)));
        assert!(table().begins(20) && !table().begins(21));
    }
}
