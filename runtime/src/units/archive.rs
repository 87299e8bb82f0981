//! Static archives: their members are added as symbols are asked for.
//!
//! An archive's index says which member defines a symbol. A lookup to link something pulls the
//! members in that define what it misses, each once; one like `dlsym`'s pulls none. What a member
//! itself misses is looked up in turn, by whoever binds it, and so comes from the archive too.
//! Members are bitcode or objects ([`LazyObject`]).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use object::read::archive::ArchiveFile;
use uruk_base::locks::Mutex;

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::generator::{Ask, Generator, GeneratorId, LookupKind};
use crate::fork::gate;
use crate::load::Source;

use super::object::LazyObject;

/// Which members of an archive are added, and how they are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Members {
    /// Those that define something that is missing, when it is looked up.
    #[default]
    Needed,
    /// All of them, at once.
    All,
}

/// An archive whose members are added as they are needed.
struct Archive {
    name: String,
    bytes: Arc<[u8]>,
    /// The member that defines a symbol, by its place.
    index: HashMap<Box<str>, usize>,
    members: Vec<(String, Range<usize>)>,
    pulled: Mutex<HashSet<usize>>,
}

/// What an archive is refused for.
fn bad(file: &str, why: impl ToString) -> Error {
    Error::Archive {
        file: file.to_owned(),
        why: why.to_string(),
    }
}

impl Archive {
    fn read(path: &Path) -> Result<Archive, Error> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|cause| Error::File {
            file: name.clone(),
            cause: Arc::new(cause),
        })?;
        let (index, members) = {
            let file = ArchiveFile::parse(&*bytes).map_err(|cause| bad(&name, cause))?;
            if file.is_thin() {
                return Err(bad(&name, "thin archives name files that may have changed"));
            }
            let mut places: HashMap<u64, usize> = HashMap::new();
            let mut members: Vec<(String, Range<usize>)> = Vec::new();
            for member in file.members() {
                let member = member.map_err(|cause| bad(&name, cause))?;
                let (start, size) = member.file_range();
                let end = start
                    .checked_add(size)
                    .filter(|end| *end <= bytes.len() as u64);
                let end = end.ok_or_else(|| bad(&name, "a member ends behind the archive"))?;
                let of = String::from_utf8_lossy(member.name());
                // The range's start is that of the bytes; the index names the header before it.
                places.insert(start, members.len());
                members.push((format!("{name}({of})"), start as usize..end as usize));
            }
            let mut index = HashMap::new();
            if let Some(symbols) = file.symbols().map_err(|cause| bad(&name, cause))? {
                for symbol in symbols {
                    let symbol = symbol.map_err(|cause| bad(&name, cause))?;
                    let member = file.member(symbol.offset());
                    let (start, _) = member.map_err(|cause| bad(&name, cause))?.file_range();
                    let (Ok(text), Some(&at)) =
                        (std::str::from_utf8(symbol.name()), places.get(&start))
                    else {
                        continue;
                    };
                    // Of members that define the same, a linker takes the first.
                    index.entry(Box::from(text)).or_insert(at);
                }
            } else if !members.is_empty() {
                return Err(bad(&name, "no index of symbols: run `ranlib`"));
            }
            (index, members)
        };
        Ok(Archive {
            name,
            bytes: bytes.into(),
            index,
            members,
            pulled: Mutex::default(),
        })
    }

    /// Adds a member, unless it was added.
    fn pull(&self, dylib: &Dylib, member: usize) -> Result<(), Error> {
        {
            let _pass = gate::enter();
            let mut pulled = self.pulled.lock().unwrap_or_else(PoisonError::into_inner);
            if !pulled.insert(member) {
                return Ok(());
            }
        }
        let (name, range) = &self.members[member];
        let bytes = &self.bytes[range.clone()];
        let added = match bytes.starts_with(b"\x7fELF") {
            true => LazyObject::new(dylib.jit(), name, bytes).and_then(|unit| dylib.define(unit)),
            false => Source::from_bytes(name, bytes.to_vec()).and_then(|it| dylib.add_source(it)),
        };
        added.inspect_err(|_| {
            let _pass = gate::enter();
            let mut pulled = self.pulled.lock().unwrap_or_else(PoisonError::into_inner);
            pulled.remove(&member);
        })
    }
}

impl Generator for Archive {
    fn generate(&self, ask: Ask) {
        if ask.kind() == LookupKind::Dlsym {
            return ask.finish(Ok::<(), Error>(()));
        }
        let dylib = ask.dylib();
        let missing = ask.missing().iter();
        let members: Vec<usize> = missing
            .filter_map(|(symbol, _)| self.index.get(dylib.jit().name_of(*symbol)).copied())
            .collect();
        let answer = members
            .into_iter()
            .try_for_each(|member| self.pull(&dylib, member));
        ask.finish(answer.map_err(|cause| Error::Member {
            archive: self.name.clone(),
            cause: Box::new(cause),
        }));
    }
}

impl Dylib {
    /// Adds a static archive: members of bitcode or ELF objects.
    ///
    /// # Errors
    /// The file cannot be read or is no archive with an index, or the dylib was removed; with
    /// [`Members::All`], what adding a member ended with. A member that cannot be added later is
    /// an error of the lookup that needs it.
    pub fn add_archive(&self, path: &Path, members: Members) -> Result<Option<GeneratorId>, Error> {
        let archive = Archive::read(path)?;
        if members == Members::All {
            (0..archive.members.len()).try_for_each(|member| archive.pull(self, member))?;
            return Ok(None);
        }
        self.add_generator(archive).map(Some)
    }
}
