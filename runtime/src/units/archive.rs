//! Static archives as generators: their members are added as symbols are looked up.
//!
//! A lookup for linking adds the members that define the missing names, each once; one like
//! `dlsym`'s adds none. The references of a member are looked up in turn, when it is bound, and so
//! come from the archive too. Members are bitcode or objects ([`LazyObject`]).

use std::collections::HashSet;
use std::sync::Arc;

use uruk_base::locks::Mutex;

use crate::api::dylib::Dylib;
use crate::api::generator::{Generator, GeneratorId, GeneratorRequest, LookupKind};
use crate::error::Error;
use crate::fork::errands::Errand;
use crate::fork::gate;
use crate::load::archive::Archive;
use crate::load::settled::Settled;

use super::object::LazyObject;

/// The members of an archive that are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Members {
    /// Members that define a missing symbol, when it is looked up.
    #[default]
    Needed,
    /// All of them, at once.
    All,
}

/// An archive whose members are added as they are needed.
struct Pulling {
    archive: Arc<Archive>,
    pulled: Mutex<HashSet<usize>>,
    settled: Settled,
}

impl Pulling {
    /// Adds a member, unless it was added.
    fn pull(&self, dylib: &Dylib, member: usize) -> Result<(), Error> {
        {
            let _pass = gate::enter();
            let mut pulled = self.pulled.lock();
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
            let mut pulled = self.pulled.lock();
            pulled.remove(&member);
        })
    }
}

impl Generator for Pulling {
    fn generate(&self, ask: GeneratorRequest) {
        let _ours = Errand::Ours.begin();
        if ask.kind() == LookupKind::Dlsym {
            return ask.finish(Ok::<(), Error>(()));
        }
        let dylib = ask.dylib();
        let missing = ask.missing().iter();
        let members: Vec<usize> = missing
            .map(|(symbol, _)| dylib.jit().name_of(*symbol))
            .filter(|name| !self.settled.has(name))
            .filter_map(|name| self.archive.member_of(name))
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

/// Adds an archive of a program whose files are linked with the members they need: for names that
/// are not `settled`, which code generation needs.
pub(crate) fn add_helpers(
    dylib: &Dylib,
    archive: Arc<Archive>,
    settled: Settled,
) -> Result<(), Error> {
    add_members(dylib, archive, Members::Needed, settled).map(drop)
}

/// Adds an archive whose members are added when they are needed.
pub(crate) fn add_needed(dylib: &Dylib, archive: Arc<Archive>) -> Result<(), Error> {
    add_members(dylib, archive, Members::Needed, Settled::NONE).map(drop)
}

/// Adds `members` of an archive: all at once, or by a generator that pulls them.
pub(crate) fn add_members(
    dylib: &Dylib,
    archive: Arc<Archive>,
    members: Members,
    settled: Settled,
) -> Result<Option<GeneratorId>, Error> {
    let count = archive.len();
    let pulling = Pulling {
        archive,
        pulled: Mutex::default(),
        settled,
    };
    if members == Members::All {
        (0..count).try_for_each(|member| pulling.pull(dylib, member))?;
        return Ok(None);
    }
    dylib.add_generator(pulling).map(Some)
}
