//! Bonds between images: weak definitions that yielded to those of others.

use crate::code::life::Life;
use crate::fork::gate;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_session::{Resource, Tracker, TrackerKey};

/// Time between looks at an image that is being added.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The images that are bound to one.
#[derive(Default)]
pub(crate) struct Bonds {
    state: Mutex<BondState, ranks::BondsState>,
    /// The tracker of the names that may remain.
    pub(crate) names: OnceLock<TrackerKey>,
}

#[derive(Default)]
struct BondState {
    /// Numbers of the images, one for each bond.
    by: Vec<u64>,
    stage: Stage,
    /// Resources that are released with the last bond.
    later: Vec<Box<dyn Resource>>,
}

/// Whether other images may be bound to an image.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stage {
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
    pub(crate) to: Arc<Life>,
    by: u64,
}

impl Bonds {
    fn lock(&self) -> MutexGuard<'_, BondState> {
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
    pub(super) fn end_with(&self, numbers: &[u64]) -> bool {
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
    pub(crate) fn bind_when_finished(self: &Arc<Self>, by: u64) -> Result<Bond, Stage> {
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
    pub(crate) key: TrackerKey,
    pub(crate) tracker: Tracker,
    /// The life of the image.
    life: OnceLock<Arc<Life>>,
    /// Names that were looked up before the image defined its own. Names that assembly defines are
    /// not among them: they yield silently.
    asked: OnceLock<HashSet<Box<str>>>,
    /// Another image defined one of the names first.
    late: AtomicBool,
}

impl Remaining {
    /// For an image whose names that may remain are under `tracker`, with this key.
    pub(crate) fn new(key: TrackerKey, tracker: Tracker) -> Remaining {
        Remaining {
            key,
            tracker,
            life: OnceLock::new(),
            asked: OnceLock::new(),
            late: AtomicBool::new(false),
        }
    }

    /// Whether the image yields silently to another definition of a name: it was not looked up
    /// before.
    pub(crate) fn yields_silently(&self, name: &str) -> bool {
        let asked = self.asked.get();
        asked.is_some_and(|asked| !asked.contains(name))
    }

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

    pub(crate) fn note_late(&self) {
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
