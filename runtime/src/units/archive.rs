//! Static archives as generators: their members are added as symbols are asked for.
//!
//! A lookup to link something pulls the members in that define what it misses, each once; one like
//! `dlsym`'s pulls none. What a member itself misses is looked up in turn, by whoever binds it, and
//! so comes from the archive too. Members are bitcode or objects ([`LazyObject`]).

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use uruk_base::locks::Mutex;

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::generator::{Generator, GeneratorId, GeneratorRequest, LookupKind};
use crate::fork::errands::Errand;
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
    settled: Settled,
}

/// Names that are settled without an archive; once they are known, it defines others only.
///
/// The members that a program needs are in its image, so a name that the image mentions and does
/// not define is one that may be missing, such as a weak one.
#[derive(Clone)]
pub(crate) struct Settled(Option<Arc<OnceLock<HashSet<String>>>>);

impl Settled {
    /// None are.
    const NONE: Settled = Settled(None);

    /// Those that [`Settled::are`] is told; until then all are.
    pub(crate) fn later() -> Settled {
        Settled(Some(Arc::default()))
    }

    /// Says which they are.
    pub(crate) fn are(&self, names: HashSet<String>) {
        if let Some(known) = &self.0 {
            // Said once.
            let _ = known.set(names);
        }
    }

    fn has(&self, name: &str) -> bool {
        match &self.0 {
            None => false,
            Some(names) => names.get().is_none_or(|names| names.contains(name)),
        }
    }
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

impl Dylib {
    /// Adds a static archive: members of bitcode or ELF objects.
    ///
    /// # Errors
    /// The file cannot be read or is no archive with an index, or the dylib was removed; with
    /// [`Members::All`], what adding a member ended with. A member that cannot be added later is
    /// an error of the lookup that needs it.
    pub fn add_archive(&self, path: &Path, members: Members) -> Result<Option<GeneratorId>, Error> {
        self.add_members(Arc::new(Archive::read(path)?), members, Settled::NONE)
    }

    /// Adds an archive of a program whose files are linked with what they need of it: for names
    /// that are not `settled`, those that code generation needs.
    pub(crate) fn add_helpers(&self, archive: Arc<Archive>, settled: Settled) -> Result<(), Error> {
        self.add_members(archive, Members::Needed, settled)
            .map(drop)
    }

    /// Adds an archive, of which members are pulled in when they are needed.
    pub(crate) fn add_needed(&self, archive: Arc<Archive>) -> Result<(), Error> {
        self.add_members(archive, Members::Needed, Settled::NONE)
            .map(drop)
    }

    fn add_members(
        &self,
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
            (0..count).try_for_each(|member| pulling.pull(self, member))?;
            return Ok(None);
        }
        self.add_generator(pulling).map(Some)
    }
}
