//! The knowledge about the exits of the loops of one version.

use uruk_base::VersionId;
use uruk_base::locks::Mutex;
use uruk_codegen::Compiled;

/// The exits of the loops of one version.
#[derive(Debug)]
pub(crate) struct LoopExits(Mutex<Exits>);

#[derive(Debug)]
enum Exits {
    /// They are compiled on request, for code with this fingerprint.
    Later(u64),
    /// For each loop, the fingerprint with which a continuation starts, if the loop can be left. And
    /// the code of the exits, unless they are part of the version.
    Made(Vec<Option<u64>>, Option<VersionId>),
}

impl LoopExits {
    /// Those of a version as it was compiled.
    pub(super) fn of(compiled: &Compiled) -> LoopExits {
        LoopExits(Mutex::new(match compiled.fingerprint {
            Some(fingerprint) => Exits::Later(fingerprint),
            None => {
                let heads = compiled.heads.counted.iter();
                Exits::Made(heads.map(|head| head.fingerprint).collect(), None)
            }
        }))
    }

    /// Fingerprint of the code whose exits are still to be compiled, if they are.
    pub(crate) fn are_for(&self) -> Option<u64> {
        match *self.0.lock() {
            Exits::Later(fingerprint) => Some(fingerprint),
            Exits::Made(..) => None,
        }
    }

    /// The fingerprint with which a continuation starts at the head of a loop; `None` if the loop
    /// cannot be left, or its exit was not compiled.
    pub(crate) fn start(&self, place: usize) -> Option<u64> {
        match &*self.0.lock() {
            Exits::Later(_) => None,
            Exits::Made(starts, _) => *starts.get(place)?,
        }
    }

    /// Whether it is known that a loop cannot be left.
    pub(crate) fn lack(&self, place: usize) -> bool {
        match &*self.0.lock() {
            Exits::Later(_) => false,
            Exits::Made(starts, _) => starts.get(place).is_none_or(Option::is_none),
        }
    }

    /// Ends them; returns the version that was their code.
    pub(super) fn end(&self) -> Option<VersionId> {
        match std::mem::replace(&mut *self.0.lock(), Exits::Made(Vec::new(), None)) {
            Exits::Later(_) => None,
            Exits::Made(_, version) => version,
        }
    }

    /// Sets for each loop the address of its exit and its fingerprint, and the version that is their
    /// code. Stores the address with the loop's place. False, without a change, if there are some.
    pub(super) fn set(
        &self,
        exits: &[Option<(u64, u64)>],
        version: Option<VersionId>,
        store: impl Fn(usize, u64),
    ) -> bool {
        let mut known = self.0.lock();
        if let Exits::Made(..) = *known {
            return false;
        }
        for (place, exit) in exits.iter().enumerate() {
            store(place, exit.map_or(0, |(address, _)| address));
        }
        let starts = exits.iter().map(|exit| Some((*exit)?.1));
        *known = Exits::Made(starts.collect(), version);
        true
    }
}
