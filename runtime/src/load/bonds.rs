//! Keeps definitions as long as images need them whose own definitions yielded to them
//! ([`weak`](crate::load::weak)).
//!
//! The yielding image is *bound* to the image that has the definition, which may be removed first.
//! Then that image *remains*: its memory, its functions, its handlers of the process's exit, and
//! three kinds of its names. These are names that others were bound to, weak ones, and local ones,
//! which its functions still need to be compiled. Its other names go at once, and can be defined
//! anew. It goes with the last image that is bound to it: handlers first, then the names, then the
//! rest. Bonds lead to images that were added before, so there are no circles.
//!
//! For this each image has two trackers in the session: the one it is removed by, and one that
//! no handle keeps, for the names that may remain.
//!
//! # Invariants
//! - `BondState::later` is empty unless an image is bound. The thread that drops the last bond
//!   releases it.
//! - No image is bound once this image is about to be removed, or before it is added ([`Stage`]).

use std::sync::Arc;

use uruk_session::{Dylib, Tracker};

use crate::code::bonds::Bond;
use crate::code::bonds::Remaining;
use crate::code::bonds::Stage;
use crate::code::life::Life;
use crate::code::names::{Definition, NewName};
use crate::code::static_names::LOCAL_MARKER;
use crate::error::Error;
use crate::load::image::Image;
use crate::load::loader::Loader;

impl Loader {
    /// Makes the tracker for names of an image that may remain.
    pub(crate) fn remaining(&self, dylib: &Dylib) -> Result<Arc<Remaining>, Error> {
        let key = dylib.create_kept_tracker()?;
        let defunct = || uruk_session::SessionError::TrackerDefunct {
            dylib: dylib.name().into(),
        };
        let tracker = self.names.session().tracker(key).ok_or_else(defunct)?;
        Ok(Arc::new(Remaining::new(key, tracker)))
    }

    /// Removes the remaining names of an image when it is removed, or with the last image that is
    /// bound to it.
    pub(crate) fn keep_remaining(
        self: &Arc<Self>,
        tracker: &Tracker,
        life: &Arc<Life>,
        remaining: &Remaining,
    ) -> Result<(), Error> {
        let (loader, key) = (Arc::downgrade(self), remaining.key);
        let of = Arc::clone(life);
        Ok(tracker.attach(Box::new(move || {
            of.bonds.after(Box::new(move || {
                let tracker = loader
                    .upgrade()
                    .and_then(|c| c.names.session().tracker(key));
                // The dylib was cleared if there is none.
                let _ = tracker.map(|tracker| tracker.remove());
            }));
        }))?)
    }

    /// Gives an image the number of its local names. Another image may get it once this image is
    /// gone, and its names under both trackers are.
    pub(super) fn number_locals(&self, tracker: &Tracker, image: &Image) -> Result<(), Error> {
        let suffix = self.removed.suffixes.take(|| image.number);
        image.life.keep_suffix(Arc::clone(&suffix));
        let remaining = image
            .remaining
            .as_deref()
            .map(|remaining| &remaining.tracker);
        for tracker in remaining.into_iter().chain([tracker]) {
            let suffix = Arc::clone(&suffix);
            tracker.attach(Box::new(move || drop(suffix)))?;
        }
        Ok(())
    }

    /// Defines names of an image: names that may remain apart from the others. Variables among them
    /// are in use from here on.
    pub(super) fn define_names(
        &self,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        names: Vec<NewName>,
    ) -> Result<(), Error> {
        let Some(remaining) = remaining else {
            return Ok(self.names.define(tracker, names)?);
        };
        let may_remain = |name: &NewName| name.weak || name.name.contains(LOCAL_MARKER);
        let (weak, strong): (Vec<NewName>, Vec<NewName>) = names.into_iter().partition(may_remain);
        self.names.define(tracker, strong)?;
        let known: Vec<(Box<str>, bool)> = weak
            .iter()
            .map(|name| (name.name.clone(), name.function().is_none()))
            .collect();
        self.names.define(&remaining.tracker, weak)?;
        let (dylib, session) = (tracker.dylib(), self.names.session());
        for (name, variable) in known {
            if session.tracker_of(&dylib, session.intern(&name)) != Some(remaining.key) {
                if remaining.yields_silently(&name) {
                    continue;
                }
                remaining.note_late();
                return Err(Error::DuplicateSymbol {
                    symbol: name.into(),
                    first: dylib.name().to_owned(),
                    second: String::from("what was added at the same time"),
                });
            }
            if variable {
                self.names.find(&dylib, &name);
            }
        }
        Ok(())
    }

    /// Binds an image to those that its own definitions yielded to, under `tracker` until it is
    /// removed.
    pub(super) fn bind_to(
        &self,
        tracker: &Tracker,
        life: &Arc<Life>,
        remaining: Option<&Remaining>,
        yielded: &[(Box<str>, Definition)],
    ) -> Result<(), Error> {
        let mut bonds: Vec<Bond> = Vec::new();
        for (name, definition) in yielded {
            let owner = match *definition {
                Definition::Function { id } => self.life_of(id),
                Definition::Address(at) => self.life_at(at),
                Definition::Tls { module, .. } => self.owners.life_of_thread_locals(module),
            };
            let Some(owner) = owner else { continue };
            for image in [owner.root(), &owner] {
                if bonds.iter().any(|bond| Arc::ptr_eq(&bond.to, image)) {
                    continue;
                }
                let bond = match image.bind_when_finished(life.number()) {
                    Ok(bond) => bond,
                    Err(stage) => {
                        if let (Stage::Abandoned, Some(remaining)) = (stage, remaining) {
                            remaining.note_late();
                        }
                        let symbol = name.to_string();
                        return Err(Error::Leaving { symbol });
                    }
                };
                bonds.push(bond);
            }
            let key = owner.root().bonds.names.get();
            let theirs = key.and_then(|&key| self.names.session().tracker(key));
            if let Some(theirs) = theirs {
                let symbol = self.names.session().intern(name);
                // It fails if the dylib was cleared, which removed the name.
                let _ = theirs.adopt(&[symbol]);
            }
        }
        if bonds.is_empty() {
            return Ok(());
        }
        Ok(tracker.attach(life.guard(move || drop(bonds)))?)
    }
}
