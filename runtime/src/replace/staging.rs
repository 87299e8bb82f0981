//! The new definitions of a replacement: functions, variables and names that did not exist.
//!
//! They are made under a tracker of their own, by which a replacement that fails removes them
//! ([`Staging::undo`]). One that was committed puts them under the tracker of the functions that it
//! replaced ([`Staging::settle`]): they are removed, transferred and reported with these functions.
//!
//! | the replaced functions are of images under | the new definitions are removed with |
//! |---|---|
//! | one tracker | that tracker, into which theirs is transferred |
//! | several trackers | the last of these |
//! | no tracker: they stay for images that are bound to them | the last of these images |
//!
//! The image of a variable that gets new storage counts like those of functions: the name means the
//! new storage.
//!
//! A rollback, and the limit of kept replacements, change nothing about that: new definitions stay,
//! since the program may have stored their addresses.
//!
//! # Why
//! The new body of a function calls new functions, so these may go with that function, and not
//! before. It is the image of the function that counts, by its [`Life`]: its tracker may have been
//! transferred since. An image that stays after its removal, since others are bound to it, keeps its
//! local names, and so the local names of its replacements ([`Remaining`](crate::code::bonds)): a
//! body that is compiled later looks them up.

use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, Tracker, TrackerKey};

use crate::code::life::Life;
use crate::code::tracked::Tracked;
use crate::error::Error;
use crate::fork::gate;
use crate::replace::state::Replacing;

use super::migrate::{Moved, Redirection};

/// How often the tracker of an image is looked up again, since the table of images has not heard of
/// its transfer or removal yet.
const ATTEMPTS: u32 = 1_000_000;

/// The new definitions of a replacement that is under way; see the module.
pub(super) struct Staging {
    replacing: Arc<Replacing>,
    dylib: Dylib,
    tracker: Tracked,
    added: Mutex<Added>,
}

/// Definitions that came with a replacement.
#[derive(Default)]
struct Added {
    /// The image of the replacement.
    life: Option<Arc<Life>>,
    /// Images whose functions, or variables, are replaced, each once.
    replaced: Vec<Arc<Life>>,
    stubs: Vec<FunctionId>,
    /// Link names that only bodies of the replacement, and of later ones, look up.
    locals: Vec<Box<str>>,
    moved: Vec<Redirection>,
}

/// A share in definitions that belong to several trackers. The last one removes them.
struct Share {
    replacing: Weak<Replacing>,
    tracker: TrackerKey,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(replacing) = self.replacing.upgrade() {
            let _pass = gate::enter();
            let tracker = replacing.names.session().tracker(self.tracker);
            // The dylib was cleared if there is none.
            let _ = tracker.map(|tracker| tracker.remove());
        }
    }
}

impl Staging {
    pub(super) fn new(replacing: &Arc<Replacing>, dylib: &Dylib) -> Result<Staging, Error> {
        Ok(Staging {
            replacing: Arc::clone(replacing),
            dylib: dylib.clone(),
            tracker: dylib.create_tracker()?.into(),
            added: Mutex::default(),
        })
    }

    pub(super) fn session_tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Makes the life of the replacement's image, which replaces functions `members` and storage
    /// of variables at `moved`.
    pub(super) fn begin_life(
        &self,
        members: impl Iterator<Item = FunctionId>,
        moved: impl Iterator<Item = u64>,
    ) -> Arc<Life> {
        let mut replaced: Vec<Arc<Life>> = Vec::new();
        let members = members.filter_map(|id| self.replacing.life_of(id));
        let moved = moved.filter_map(|at| self.replacing.life_at(at));
        for life in members.chain(moved) {
            if !replaced.iter().any(|known| Arc::ptr_eq(known, &life)) {
                replaced.push(life);
            }
        }
        let life = Life::replacing(replaced.first().cloned());
        self.replacing.names.lives.note(&self.tracker, &life);
        let mut added = self.lock();
        added.life = Some(Arc::clone(&life));
        added.replaced = replaced;
        life
    }

    /// Adds the stub of a new function.
    pub(super) fn add_stub(&self, id: FunctionId) {
        self.lock().stubs.push(id);
    }

    /// Adds a local name, which the replacement defines.
    pub(super) fn add_local(&self, link_name: &str) {
        self.lock().locals.push(link_name.into());
    }

    /// Adds a variable that gets new storage.
    pub(super) fn add_moved(&self, moved: &Moved) {
        let redirection = Redirection::new(&self.replacing, moved.clone());
        self.lock().moved.push(redirection);
    }

    /// The stubs of new functions.
    pub(super) fn stubs(&self) -> Vec<FunctionId> {
        self.lock().stubs.clone()
    }

    /// Removes names and stubs that came with the replacement.
    pub(super) fn undo(&self) {
        // Fails only if the dylib is gone, and its names with it.
        let _ = self.tracker.remove();
        let stubs = std::mem::take(&mut self.lock().stubs);
        for id in stubs {
            self.replacing.engines().remove_function(id);
        }
    }

    /// Puts the new definitions under the tracker of the replaced functions; see the module. The
    /// replacement cannot be undone from here on.
    pub(super) fn settle(&self) {
        let _pass = gate::enter();
        let Added {
            life,
            replaced,
            stubs,
            locals,
            moved,
        } = std::mem::take(&mut *self.lock());
        let Some(life) = life else { return };
        if !stubs.is_empty() {
            let engines = self.replacing.engines();
            // Fails if the dylib was cleared, and the functions are removed then.
            let _ = self.tracker.attach(engines.removal_of(&life, stubs));
        }
        for moved in moved.into_iter().map(Arc::new) {
            // The host's data is never removed.
            match self.replacing.life_at(moved.old()) {
                Some(life) => self.attach_to(&life, &moved),
                None => {
                    let _ = self.tracker.attach(Box::new(move || drop(moved)));
                }
            }
        }
        for _ in 0..ATTEMPTS {
            match *self.owners(&replaced) {
                // The default tracker gets them, with the last handle.
                [] => return,
                [Some(owner)] => {
                    // Fails if it was transferred or removed meanwhile.
                    let owner = self.replacing.names.session().tracker(owner);
                    if owner.is_some_and(|owner| self.tracker.transfer_to(&owner).is_ok()) {
                        return self.keep_locals(&replaced, &locals);
                    }
                    std::thread::yield_now();
                }
                _ => return self.share(&replaced),
            }
        }
    }

    /// The trackers of images that were replaced, each once; `None` for an image that was removed.
    fn owners(&self, replaced: &[Arc<Life>]) -> Vec<Option<TrackerKey>> {
        let lives = &self.replacing.names.lives;
        let owners = replaced.iter();
        let mut owners: Vec<Option<TrackerKey>> = owners
            .map(|life| lives.tracker_of(&self.dylib, life))
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Keeps local names for as long as those of the image whose functions were replaced.
    fn keep_locals(&self, replaced: &[Arc<Life>], locals: &[Box<str>]) {
        let session = self.replacing.names.session();
        let roots = replaced.iter().map(Life::root);
        let key = roots.filter_map(|root| root.bonds.names.get()).next();
        if let Some(names) = key.and_then(|&key| session.tracker(key)) {
            let locals: Vec<_> = locals.iter().map(|name| session.intern(name)).collect();
            // Fails if the dylib was cleared, and the names are gone.
            let _ = names.adopt(&locals);
        }
    }

    /// Removes the new definitions with the last of several images.
    fn share(&self, replaced: &[Arc<Life>]) {
        let session = self.replacing.names.session();
        let Ok(tracker) = self.dylib.create_kept_tracker() else {
            return;
        };
        let kept = session.tracker(tracker);
        if kept.is_none_or(|kept| self.tracker.transfer_to(&kept).is_err()) {
            return;
        }
        let share = Arc::new(Share {
            replacing: Arc::downgrade(&self.replacing),
            tracker,
        });
        for life in replaced {
            self.attach_to(life, &share);
        }
    }

    /// Has an image, or the images that are bound to it, hold `share` until they are removed.
    fn attach_to<T: Send + Sync + 'static>(&self, life: &Arc<Life>, share: &Arc<T>) {
        let names = &self.replacing.names;
        for _ in 0..ATTEMPTS {
            let (share, of) = (Arc::clone(share), Arc::clone(life));
            let resource = move || of.when_unbound(Box::new(move || drop(share)));
            let Some(owner) = names.lives.tracker_of(&self.dylib, life) else {
                return resource();
            };
            // It fails if the tracker was transferred or removed meanwhile.
            let owner = names.session().tracker(owner);
            if owner.is_some_and(|owner| owner.attach(Box::new(resource)).is_ok()) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Added> {
        self.added.lock()
    }
}
