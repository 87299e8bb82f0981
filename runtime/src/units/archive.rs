//! Static archives as generators: their members are added as symbols are asked for.
//!
//! A lookup to link something pulls the members in that define what it misses, each once; one like
//! `dlsym`'s pulls none. What a member itself misses is looked up in turn, by whoever binds it, and
//! so comes from the archive too. Members are bitcode or objects ([`LazyObject`]).

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use uruk_base::locks::Mutex;

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::generator::{Ask, Generator, GeneratorId, LookupKind};
use crate::fork::gate;
use crate::load::archive::Archive;

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
struct Pulling {
    archive: Arc<Archive>,
    pulled: Mutex<HashSet<usize>>,
}

impl Pulling {
    /// Adds a member, unless it was added.
    fn pull(&self, dylib: &Dylib, member: usize) -> Result<(), Error> {
        {
            let _pass = gate::enter();
            let mut pulled = self.pulled.lock().unwrap_or_else(PoisonError::into_inner);
            if !pulled.insert(member) {
                return Ok(());
            }
        }
        let add = || {
            let (name, bytes) = self.archive.member(member)?;
            match bytes.starts_with(b"\x7fELF") {
                true => dylib.define(LazyObject::new(dylib.jit(), &name, &*bytes)?),
                false => dylib.add_source(self.archive.source(member)?),
            }
        };
        add().inspect_err(|_| {
            let _pass = gate::enter();
            let mut pulled = self.pulled.lock().unwrap_or_else(PoisonError::into_inner);
            pulled.remove(&member);
        })
    }
}

impl Generator for Pulling {
    fn generate(&self, ask: Ask) {
        if ask.kind() == LookupKind::Dlsym {
            return ask.finish(Ok::<(), Error>(()));
        }
        let dylib = ask.dylib();
        let missing = ask.missing().iter();
        let members: Vec<usize> = missing
            .filter_map(|(symbol, _)| self.archive.member_of(dylib.jit().name_of(*symbol)))
            .collect();
        let answer = members
            .into_iter()
            .try_for_each(|member| self.pull(&dylib, member));
        ask.finish(answer.map_err(|cause| Error::Member {
            archive: self.archive.name.clone(),
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
        self.add_members(Arc::new(Archive::read(path)?), members)
    }

    pub(crate) fn add_members(
        &self,
        archive: Arc<Archive>,
        members: Members,
    ) -> Result<Option<GeneratorId>, Error> {
        let count = archive.len();
        let pulling = Pulling {
            archive,
            pulled: Mutex::default(),
        };
        if members == Members::All {
            (0..count).try_for_each(|member| pulling.pull(self, member))?;
            return Ok(None);
        }
        self.add_generator(pulling).map(Some)
    }
}
