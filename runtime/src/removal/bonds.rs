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
//! - [`State::later`] is empty unless an image is bound. The thread that drops the last bond
//!   releases it.
//! - No image is bound once this image is about to be removed, or before it is added ([`Stage`]).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, Resource, Tracker, TrackerKey};

use crate::core::Core;
use crate::error::Error;
use crate::fork::gate;
use crate::load::bind::LOCAL_MARKER;
use crate::load::image::Image;
use crate::load::names::{Definition, Name};
use crate::removal::life::Life;

/// Time between looks at an image that is being added.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The images that are bound to one.
#[derive(Default)]
pub(crate) struct Bonds {
    state: Mutex<State>,
    /// The tracker of the names that may remain.
    names: OnceLock<TrackerKey>,
}

#[derive(Default)]
struct State {
    /// Numbers of the images, one for each bond.
    by: Vec<u64>,
    stage: Stage,
    /// Resources that are released with the last bond.
    later: Vec<Box<dyn Resource>>,
}

/// Whether other images may be bound to an image.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// It is being added, and may still fail.
    Unfinished,
    #[default]
    Ready,
    /// It is about to be removed.
    Leaving,
    /// Adding it failed.
    Abandoned,
}

/// Keeps the definitions of an image for another one, also when it is removed.
pub(crate) struct Bond {
    to: Arc<Life>,
    by: u64,
}

impl Bonds {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether an image is bound to this one.
    pub(crate) fn any(&self) -> bool {
        !self.lock().by.is_empty()
    }

    /// Releases a resource, now or with the last bond. Under a pass.
    pub(crate) fn after(&self, resource: Box<dyn Resource>) {
        let mut state = self.lock();
        if state.by.is_empty() {
            drop(state);
            resource.release();
        } else {
            state.later.push(resource);
        }
    }

    /// Notes that the image is not removed after all.
    pub(crate) fn reopen(&self) {
        let mut state = self.lock();
        if state.stage == Stage::Leaving {
            state.stage = Stage::Ready;
        }
    }

    /// Whether all bonds end with images of these numbers. If so, no image can be bound any more.
    pub(crate) fn end_with(&self, numbers: &[u64]) -> bool {
        let mut state = self.lock();
        let ends = state.by.iter().all(|by| numbers.contains(by));
        if ends {
            state.stage = Stage::Leaving;
        }
        ends
    }
}

impl Life {
    /// Binds the image of number `by` to this one.
    fn bind(self: &Arc<Self>, by: u64) -> Result<Bond, Stage> {
        let mut state = self.bonds.lock();
        match state.stage {
            Stage::Ready if !self.is_closed() => {}
            Stage::Ready => return Err(Stage::Leaving),
            other => return Err(other),
        }
        state.by.push(by);
        Ok(Bond {
            to: Arc::clone(self),
            by,
        })
    }
}

impl Life {
    /// Like [`Life::bind`], once it is known whether adding the image succeeded. A waiting image
    /// has no names yet, and an image with names does not wait here any more: so no image waits for
    /// one that waits.
    fn bind_when_finished(self: &Arc<Self>, by: u64) -> Result<Bond, Stage> {
        loop {
            match self.bind(by) {
                Err(Stage::Unfinished) => std::thread::sleep(LOOK_AGAIN),
                done => return done,
            }
        }
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let later = {
            let mut state = self.to.bonds.lock();
            let at = state.by.iter().position(|by| *by == self.by);
            at.map(|at| state.by.swap_remove(at));
            match state.by.is_empty() {
                true => std::mem::take(&mut state.later),
                false => Vec::new(),
            }
        };
        later.into_iter().for_each(Resource::release);
    }
}

/// The tracker for names of an image that may remain when it is removed.
pub(crate) struct Remaining {
    key: TrackerKey,
    tracker: Tracker,
    /// The life of the image.
    life: OnceLock<Arc<Life>>,
    /// Names that were looked up before the image defined its own. Names that assembly defines are
    /// not among them: they yield silently.
    asked: OnceLock<HashSet<Box<str>>>,
    /// Another image defined one of the names first.
    late: AtomicBool,
}

impl Remaining {
    /// Whether an image that was bound at the same time defined a name of this one: this image has
    /// to be bound anew.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Sets where the names of the image are, for images that get bound to it. Until it is added
    /// they wait.
    pub(crate) fn note(&self, life: &Arc<Life>) {
        life.bonds.lock().stage = Stage::Unfinished;
        // An image has one.
        let _ = life.bonds.names.set(self.key);
        let _ = self.life.set(Arc::clone(life));
    }

    /// Notes that the image is added.
    pub(crate) fn finish(&self) {
        if let Some(life) = self.life.get() {
            life.bonds.lock().stage = Stage::Ready;
        }
    }

    fn note_late(&self) {
        // Relaxed: read by a thread that waits for this one.
        self.late.store(true, Ordering::Relaxed);
    }

    /// Notes which weak names of the image were looked up.
    pub(crate) fn note_asked<'a>(&self, names: impl Iterator<Item = &'a &'a str>) {
        // An image is bound once.
        let _ = self.asked.set(names.map(|name| Box::from(*name)).collect());
    }

    /// Removes the names of an image that could not be added.
    pub(crate) fn remove(&self) {
        if let Some(life) = self.life.get() {
            life.bonds.lock().stage = Stage::Abandoned;
        }
        // It fails if the dylib was cleared, and the names are gone.
        let _ = self.tracker.remove();
    }
}

impl Core {
    /// Makes the tracker for names of an image that may remain.
    pub(crate) fn remaining(&self, dylib: &Dylib) -> Result<Arc<Remaining>, Error> {
        let key = dylib.create_kept_tracker()?;
        let defunct = || uruk_session::SessionError::TrackerDefunct {
            dylib: dylib.name().into(),
        };
        let tracker = self.names.session().tracker(key).ok_or_else(defunct)?;
        Ok(Arc::new(Remaining {
            key,
            tracker,
            life: OnceLock::new(),
            asked: OnceLock::new(),
            late: AtomicBool::new(false),
        }))
    }

    /// Removes the remaining names of an image when it is removed, or with the last image that is
    /// bound to it.
    pub(crate) fn keep_remaining(
        self: &Arc<Self>,
        tracker: &Tracker,
        life: &Arc<Life>,
        remaining: &Remaining,
    ) -> Result<(), Error> {
        let (core, key) = (Arc::downgrade(self), remaining.key);
        let of = Arc::clone(life);
        Ok(tracker.attach(Box::new(move || {
            of.bonds.after(Box::new(move || {
                let tracker = core.upgrade().and_then(|c| c.names.session().tracker(key));
                // The dylib was cleared if there is none.
                let _ = tracker.map(|tracker| tracker.remove());
            }));
        }))?)
    }

    /// Gives an image the number of its local names. Another image may get it once this image is
    /// gone, and its names under both trackers are.
    pub(crate) fn number_locals(&self, tracker: &Tracker, image: &Image) -> Result<(), Error> {
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
    pub(crate) fn define_names(
        &self,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        names: Vec<Name>,
    ) -> Result<(), Error> {
        let Some(remaining) = remaining else {
            return Ok(self.names.define(tracker, names)?);
        };
        let may_remain = |name: &Name| name.weak || name.name.contains(LOCAL_MARKER);
        let (weak, strong): (Vec<Name>, Vec<Name>) = names.into_iter().partition(may_remain);
        self.names.define(tracker, strong)?;
        let known: Vec<(Box<str>, bool)> = weak
            .iter()
            .map(|name| (name.name.clone(), name.function().is_none()))
            .collect();
        self.names.define(&remaining.tracker, weak)?;
        let (dylib, session) = (tracker.dylib(), self.names.session());
        for (name, variable) in known {
            if session.tracker_of(&dylib, session.intern(&name)) != Some(remaining.key) {
                let asked = remaining.asked.get();
                if asked.is_some_and(|asked| !asked.contains(&name)) {
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
    pub(crate) fn bind_to(
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
