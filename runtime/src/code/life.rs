//! The lifetime of an image: it can be called until it is removed, and longer while a
//! *registration* holds it, which will call it and cannot be cancelled.
//!
//! A registration is a handler of the process's exit, a destructor of a thread's variable, or a
//! destructor of a key's values (`exits`, `guest::keys`). The C library has its address and
//! will call it. The native behaviour when its library is closed:
//!
//! | registered by | `dlclose` | here, when the tracker or dylib is removed |
//! |---|---|---|
//! | `atexit`, `__cxa_atexit` | runs it, latest first | runs it, latest first |
//! | `at_quick_exit`, `pthread_atfork` | forgets it | forgets it |
//! | `__cxa_thread_atexit[_impl]` | the library stays until the thread has ended | that of the thread that removes is run; the image stays until the others have ended |
//! | `pthread_key_create`, `tss_create`, `on_exit` | nothing: it is called, and the process crashes | the image stays until the key is deleted, the process ends |
//!
//! An image that *stays* has lost its names. Its functions without code are compiled before that,
//! as the names they mention are not found later. Then the resources that the image's tracker would
//! have released are parked here, and go with the last hold.
//!
//! A replacement is an image of its own, which may be removed by itself (a replacement that fails
//! is undone). Registrations of its code belong to the image whose functions it replaced
//! ([`Life::root`]), and a hold of it holds that image, too.
//!
//! # Invariants
//! - A closed image without holds gets no hold any more: later registrations are refused.
//! - Resources are parked only while the image is held, and are released once, by the thread that
//!   drops the last hold.
//! - An image is closed with its own resources. Other resources may be parked there
//!   ([`Life::park`]), but do not close it.
//!
//! Holds, the end and the parked resources change under one lock, which is taken for each
//! registration and on no frequent path. It is taken under a pass of the gate, and under other
//! locks (`exits`, [`Lives`]); nothing is called while it is held.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_session::{Dylib, DylibId, Resource, Tracker, TrackerEvent, TrackerKey};

use crate::code::bonds::Bonds;
use crate::code::suffix::Suffix;
use crate::fork::gate;

/// The lifetime of an image; see the module.
pub(crate) struct Life {
    /// Different from those of all others of the process.
    number: u64,
    state: Mutex<LifeState>,
    /// The image whose functions it replaced.
    root: Option<Arc<Life>>,
    /// Images whose weak definitions yielded to its own.
    pub(crate) bonds: Bonds,
    /// The number of its local names.
    suffix: OnceLock<Arc<Suffix>>,
}

#[derive(Default)]
struct LifeState {
    holds: usize,
    closed: bool,
    /// Part of it is released, or parked.
    released: bool,
    /// Resources that go with the last hold.
    parked: Vec<Box<dyn Resource>>,
    /// Addresses of its handles: an image that replaced functions of it has one of its own.
    handles: Vec<u64>,
}

/// Keeps an image alive, also after its removal.
pub(crate) struct Hold(Arc<Life>);

/// The error of a hold of an image that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageGone;

/// The lives of a session's images, by the trackers they are under.
#[derive(Clone, Default)]
pub(crate) struct Lives(Arc<Mutex<LifeTable, ranks::Lives>>);

#[derive(Default)]
struct LifeTable {
    trackers: HashMap<TrackerKey, Under>,
    /// The trackers of each dylib in `trackers`.
    dylibs: HashMap<DylibId, HashSet<TrackerKey>>,
    /// Images that were removed while others were bound to them.
    bound: Vec<Weak<Life>>,
    /// Images that were removed while they were held.
    stay: Vec<Weak<Life>>,
}

/// The images under a tracker.
struct Under {
    dylib: DylibId,
    images: Vec<Weak<Life>>,
}

impl Under {
    /// Makes room for more. Images that are gone, such as replaced ones, are dropped from the list
    /// each time it would have to grow.
    fn admit(&mut self, more: usize) {
        if self.images.len() + more > self.images.capacity() {
            self.images.retain(|life| life.strong_count() != 0);
            self.images.reserve(self.images.len() + more);
        }
    }
}

impl LifeTable {
    /// The images under a tracker of a dylib.
    fn under(&mut self, tracker: TrackerKey, dylib: DylibId) -> &mut Under {
        self.trackers.entry(tracker).or_insert_with(|| {
            self.dylibs.entry(dylib).or_default().insert(tracker);
            Under {
                dylib,
                images: Vec::new(),
            }
        })
    }

    fn take(&mut self, tracker: TrackerKey) -> Option<Under> {
        let under = self.trackers.remove(&tracker)?;
        if let Some(others) = self.dylibs.get_mut(&under.dylib) {
            others.remove(&tracker);
            if others.is_empty() {
                self.dylibs.remove(&under.dylib);
            }
        }
        Some(under)
    }

    /// Drops a tracker; its images that are held or bound to are noted.
    fn removed(&mut self, tracker: TrackerKey) {
        let stays = |life: &Weak<Life>| life.upgrade().is_some_and(|life| life.is_held());
        let is_bound = |life: &Weak<Life>| life.upgrade().is_some_and(|l| l.bonds.any());
        self.stay.retain(stays);
        self.bound.retain(is_bound);
        let images = self
            .take(tracker)
            .into_iter()
            .flat_map(|under| under.images);
        for life in images {
            self.bound.extend(is_bound(&life).then(|| life.clone()));
            self.stay.extend(stays(&life).then_some(life));
        }
    }
}

impl Default for Life {
    fn default() -> Life {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Life {
            // Relaxed: only to be distinct.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::default(),
            root: None,
            bonds: Bonds::default(),
            suffix: OnceLock::new(),
        }
    }
}

impl Life {
    /// The life of an image that replaces functions of another.
    pub(crate) fn replacing(replaced: Option<Arc<Life>>) -> Arc<Life> {
        Arc::new(Life {
            root: replaced.map(|life| Arc::clone(life.root())),
            ..Life::default()
        })
    }

    /// Keeps the number of its local names.
    pub(crate) fn keep_suffix(&self, suffix: Arc<Suffix>) {
        // It has one at most.
        let _ = self.suffix.set(suffix);
    }

    /// The number of its local names, if another image may get it later.
    pub(crate) fn suffix(&self) -> Option<&Arc<Suffix>> {
        self.suffix.get()
    }

    /// The image that all registrations belong to.
    pub(crate) fn root(self: &Arc<Self>) -> &Arc<Life> {
        self.root.as_ref().unwrap_or(self)
    }

    /// Its number in the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The lock, under a pass.
    fn state(&self) -> MutexGuard<'_, LifeState> {
        self.state.lock()
    }

    /// Holds the image until the result is dropped. Under a pass, as all of these methods.
    pub(crate) fn hold(self: &Arc<Self>) -> Result<Hold, ImageGone> {
        let mut state = self.state();
        if state.closed && state.holds == 0 {
            return Err(ImageGone);
        }
        state.holds += 1;
        Ok(Hold(Arc::clone(self)))
    }

    /// Notes that the image is removed; returns whether it is held.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state();
        state.closed = true;
        state.holds != 0
    }

    /// Notes that the image is not removed after all, unless part of it is.
    pub(crate) fn reopen(&self) {
        let mut state = self.state();
        if !state.released {
            state.closed = false;
            drop(state);
            self.bonds.reopen();
        }
    }

    /// Whether the image is removed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Notes a handle (`own`).
    pub(super) fn note_handle(&self, address: u64) {
        self.state().handles.push(address);
    }

    /// Drops a handle, whose memory is freed.
    pub(super) fn forget_handle(&self, address: u64) {
        self.state().handles.retain(|&handle| handle != address);
    }

    /// Its handles.
    pub(crate) fn handles(&self) -> Vec<u64> {
        self.state().handles.clone()
    }

    /// Whether the image is held.
    pub(crate) fn is_held(&self) -> bool {
        self.state().holds != 0
    }

    /// The resource to attach to the image's tracker for `resource`.
    pub(crate) fn guard(self: &Arc<Self>, resource: impl Resource + 'static) -> Box<dyn Resource> {
        let life = Arc::clone(self);
        Box::new(move || life.release(Box::new(resource)))
    }

    /// Releases a resource of the image, when no image is bound to it any more, and then now or
    /// with the last hold. Under a pass.
    pub(crate) fn release(self: &Arc<Self>, resource: Box<dyn Resource>) {
        let life = Arc::clone(self);
        self.when_unbound(Box::new(move || life.release_unbound(resource)));
    }

    /// Releases a resource when no image is bound to this one any more. Under a pass.
    pub(crate) fn when_unbound(self: &Arc<Self>, resource: Box<dyn Resource>) {
        let own = Arc::clone(self);
        // An image bound to replaced functions calls their replacements.
        let last = move || own.bonds.after(resource);
        self.root().bonds.after(Box::new(last));
    }

    fn release_unbound(&self, resource: Box<dyn Resource>) {
        let mut state = self.state();
        state.closed = true;
        state.released = true;
        if state.holds != 0 {
            state.parked.push(resource);
            return;
        }
        drop(state);
        resource.release();
    }

    /// Parks `resource`, of a removed image that this one or the image whose functions it replaced
    /// needs, until the last hold of either ends; it is returned if they stay anyway, or are not held.
    /// Under a pass.
    pub(crate) fn park(&self, resource: Box<dyn Resource>) -> Result<(), Box<dyn Resource>> {
        match (self.park_here(resource), &self.root) {
            (Err(resource), Some(root)) => root.park_here(resource),
            (done, _) => done,
        }
    }

    fn park_here(&self, resource: Box<dyn Resource>) -> Result<(), Box<dyn Resource>> {
        if self.root.as_ref().is_some_and(|root| !root.is_closed()) {
            return Err(resource);
        }
        let mut state = self.state();
        if state.holds == 0 || (self.root.is_none() && !state.closed) {
            return Err(resource);
        }
        state.parked.push(resource);
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut state = self.0.state();
        state.holds -= 1;
        if state.holds != 0 {
            return;
        }
        let parked = std::mem::take(&mut state.parked);
        // Released resources take locks, and may come back here.
        drop(state);
        parked.into_iter().for_each(Resource::release);
    }
}

impl Lives {
    fn lock(&self) -> MutexGuard<'_, LifeTable> {
        self.0.lock()
    }

    /// Notes an image that is about to get its first names.
    pub(crate) fn note(&self, tracker: &Tracker, life: &Arc<Life>) {
        let (key, dylib) = (tracker.key(), tracker.dylib().id());
        let mut table = self.lock();
        let under = table.under(key, dylib);
        under.admit(1);
        under.images.push(Arc::downgrade(life));
    }

    /// Follows the session's trackers.
    pub(crate) fn follow(&self, event: &TrackerEvent) {
        let mut table = self.lock();
        match *event {
            TrackerEvent::Removed { tracker, .. } => table.removed(tracker),
            TrackerEvent::Transferred { from, to, dylib } => {
                if let Some(mut moved) = table.take(from) {
                    let under = table.under(to, dylib);
                    under.admit(moved.images.len());
                    under.images.append(&mut moved.images);
                }
            }
        }
    }

    /// The images under a tracker.
    pub(crate) fn under(&self, tracker: &Tracker) -> Vec<Arc<Life>> {
        let table = self.lock();
        let under = table.trackers.get(&tracker.key());
        let images = under.into_iter().flat_map(|under| &under.images);
        images.filter_map(Weak::upgrade).collect()
    }

    /// The tracker of `dylib` that an image is under, unless the image was removed.
    pub(crate) fn tracker_of(&self, dylib: &Dylib, life: &Arc<Life>) -> Option<TrackerKey> {
        let table = self.lock();
        let mut trackers = table.dylibs.get(&dylib.id())?.iter().copied();
        trackers.find(|key| {
            let under = table.trackers.get(key);
            // A function is mostly replaced again soon: the latest first.
            let mut images = under
                .into_iter()
                .flat_map(|under| under.images.iter().rev());
            images.any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(life)))
        })
    }

    /// The images of a dylib.
    pub(crate) fn of(&self, dylib: &Dylib) -> Vec<Arc<Life>> {
        let table = self.lock();
        let trackers = table.dylibs.get(&dylib.id()).into_iter().flatten();
        let under = trackers.filter_map(|key| table.trackers.get(key));
        let images = under.flat_map(|under| &under.images);
        images.filter_map(Weak::upgrade).collect()
    }

    /// Whether a removed image is held.
    pub(crate) fn any_stays(&self) -> bool {
        let table = self.lock();
        let mut stay = table.stay.iter().filter_map(Weak::upgrade);
        stay.any(|life| life.is_held())
    }

    /// The images that go if `removed` is removed. These are images in it that only such images are
    /// bound to, and images that were removed before and stayed for them only.
    pub(crate) fn going(&self, removed: Vec<Arc<Life>>) -> Vec<Arc<Life>> {
        let stayed = self.lock().bound.clone();
        if removed.is_empty() && stayed.is_empty() {
            return removed;
        }
        let mut left = removed;
        left.extend(
            stayed
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|l| l.bonds.any()),
        );
        let mut going: Vec<Arc<Life>> = Vec::new();
        loop {
            let numbers: Vec<u64> = going.iter().map(|life| life.number()).collect();
            let goes = |life: &Arc<Life>| life.bonds.end_with(&numbers);
            let (more, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(goes);
            if more.is_empty() {
                return going;
            }
            going.extend(more);
            left = rest;
        }
    }

    /// The tracker of each image, by the number of its life.
    pub(crate) fn trackers(&self) -> HashMap<u64, (DylibId, TrackerKey)> {
        let table = self.lock();
        let under = table.trackers.iter().flat_map(|(&tracker, under)| {
            let images = under.images.iter().filter_map(Weak::upgrade);
            images.map(move |life| (life.number(), (under.dylib, tracker)))
        });
        under.collect()
    }

    /// All images that were not removed.
    pub(crate) fn all(&self) -> Vec<Arc<Life>> {
        let table = self.lock();
        let images = table.trackers.values().flat_map(|under| &under.images);
        images.filter_map(Weak::upgrade).collect()
    }
}
