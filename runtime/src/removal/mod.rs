//! Taking things out of a session again: what an image holds, and what becomes of it.
//!
//! Every `add` puts what it makes under a tracker of the session: names, the stubs of
//! functions, memory. Removing the tracker releases the stubs (calls then go to the
//! failure handler), and retires all code. Data goes once the last code is gone that was
//! linked against it: whoever links against an image [holds](Holding) it. Before any of that,
//! its destructors and what it registered to be called at the end of the process are called, and
//! what others may still call of it stays for as long ([`life`]).

pub(crate) mod bonds;
mod leave;
pub(crate) mod life;
pub(crate) mod removed;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};

use uruk_base::locks::RwLock;
use uruk_base::{FunctionId, VersionId};
use uruk_heap::Sealed;
use uruk_link::Resolved;
use uruk_reclaim::Fixed;
use uruk_session::{Dylib, Resource, Tracker};
use uruk_tiering::Next;

use crate::api::error::Error;
use crate::core::{Body, Core, Function};
use crate::fork::gate;
use crate::guest::program::Mode;
use crate::guest::tls;
use crate::load::Source;
use crate::load::hooks::Hooks;
use crate::load::image::Image;
use crate::load::own::Handle;
use crate::reclaim::Notes;
use crate::removal::life::Life;
use crate::told::holdings::Sizes;
use crate::version::blocks::{Code, Piece, Rest, split};

/// How often an input is bound anew because others that were added meanwhile had its names first.
const ATTEMPTS: u32 = 100;

/// The memory of an image's data and of its functions that have no versions. It goes
/// when nobody holds it any more.
pub(crate) struct Holding {
    notes: Arc<Notes>,
    owners: Arc<Owners>,
    ranges: Vec<Range<u64>>,
    /// What its thread-locals are known by.
    thread_locals: Option<u64>,
    /// Its code, if it has any; that holds the data, too.
    code: Option<VersionId>,
    life: Arc<Life>,
    sizes: Sizes,
    /// Goes before the memory it lies in, which may be another handle's next.
    _handle: Option<Handle>,
    _rest: Arc<Rest>,
}

/// What there is to be held of an image.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) memory: Vec<Sealed>,
    /// What it was linked against.
    pub(crate) uses: Uses,
    /// Bytes of its data that begin as zeros, and of its unwind records.
    pub(crate) zeros: usize,
    pub(crate) unwind: usize,
    pub(crate) thread_locals: ThreadLocals,
    /// A handle that lies in the memory.
    pub(crate) handle: Option<Handle>,
}

/// The thread-locals of an image, if it has any.
#[derive(Default)]
pub(crate) struct ThreadLocals {
    pub(crate) place: Option<tls::Place>,
    /// Its slot, unless that is in static storage.
    pub(crate) owned: Option<tls::Owned>,
}

/// Memory of other images that code or data was linked against.
#[derive(Clone, Default)]
pub(crate) struct Uses(Vec<Arc<Holding>>);

/// Who holds an address of the heap, or a module of thread-locals.
#[derive(Default)]
pub(crate) struct Owners {
    ranges: RwLock<BTreeMap<u64, (u64, Weak<Holding>)>>,
    thread_locals: RwLock<HashMap<u64, Weak<Holding>>>,
}

/// How many resolvers may choose each what another one chose. In a circle, no function has a
/// body.
const MOST_CHOICES: usize = 64;

impl Holding {
    /// What its code is called in the table of code.
    pub(crate) fn code(&self) -> Option<VersionId> {
        self.code
    }

    /// What it takes.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Of its image.
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut owners = self
            .owners
            .ranges
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for range in &self.ranges {
            owners.remove(&range.start);
        }
        drop(owners);
        if let Some(module) = self.thread_locals {
            let held = &self.owners.thread_locals;
            let mut held = held.write().unwrap_or_else(PoisonError::into_inner);
            held.remove(&module);
        }
        if let Some(version) = self.code {
            self.notes.retire(version);
        }
    }
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uses({})", self.0.len())
    }
}

impl Owners {
    pub(crate) fn find(&self, address: u64) -> Option<Arc<Holding>> {
        let owners = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (_, (end, holding)) = owners.range(..=address).next_back()?;
        // One past the end of a variable is an address of it, too.
        (address <= *end).then(|| holding.upgrade()).flatten()
    }

    /// All that are held, each once.
    pub(crate) fn all(&self) -> Vec<Arc<Holding>> {
        let owners = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = owners.values().filter_map(|(_, h)| h.upgrade()).collect();
        drop(owners);
        all.sort_unstable_by_key(Arc::as_ptr);
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    /// Of the image that thread-locals are of.
    pub(crate) fn life_of_thread_locals(&self, module: u64) -> Option<Arc<Life>> {
        Some(Arc::clone(self.find_thread_locals(module)?.life()))
    }

    fn find_thread_locals(&self, module: u64) -> Option<Arc<Holding>> {
        let held = self.thread_locals.read();
        held.unwrap_or_else(PoisonError::into_inner)
            .get(&module)?
            .upgrade()
    }
}

impl Core {
    /// Adds an input under `tracker`: all of it, or nothing.
    pub(crate) fn add(self: &Arc<Self>, tracker: &Tracker, source: Source) -> Result<(), Error> {
        let _pass = gate::enter();
        let mut attempts = 1..=ATTEMPTS;
        let (own, image, started, remaining) = loop {
            let own = tracker.dylib().create_tentative_tracker()?;
            let remaining = self.remaining(&tracker.dylib())?;
            let names = Some(Arc::clone(&remaining));
            let loaded = self.load_and_start(&own, names, vec![source.clone()], Mode::Lazy);
            match loaded {
                Ok((image, started)) => {
                    self.warn_of_interposers(&image, |_| false);
                    if let Err(cause) = self.keep_remaining(&own, &image.life, &remaining) {
                        remaining.remove();
                        return Err(cause);
                    }
                    break (own, image, started, remaining);
                }
                Err(cause) => {
                    // What the definitions took the place of is there again. Not left to the
                    // last handle: a thread that LLVM took down keeps one. Defunct only if the
                    // dylib is, and then its definitions are gone, too.
                    remaining.remove();
                    let _ = own.remove();
                    // Each that is late lets another one be done.
                    if !remaining.is_late() || attempts.next().is_none() {
                        return Err(cause);
                    }
                }
            }
        };
        let hooks = started.map(|started| Hooks::of(self, &image, &started));
        if let Err(cause) = own.transfer_to(tracker) {
            remaining.remove();
            return Err(cause.into());
        }
        remaining.finish();
        if let Some(hooks) = hooks {
            self.schedule().add(hooks);
        }
        self.retry_failed();
        Ok(())
    }

    /// Notes that something is linked against what is at `resolved`.
    pub(crate) fn note_use(&self, resolved: &Resolved, uses: &mut Uses) {
        let holding = match resolved.tls {
            Some((module, _)) => self.owners.find_thread_locals(module),
            None if resolved.slot.is_some() || !self.heap.contains(resolved.address) => None,
            None => self.owners.find(resolved.address),
        };
        let Some(holding) = holding else { return };
        if !uses.0.iter().any(|held| Arc::ptr_eq(held, &holding)) {
            uses.0.push(holding);
        }
    }

    /// Makes the holding of memory of an image. `tracker` forgets the image when it is removed,
    /// and until then holds it if it `stays`.
    pub(crate) fn hold(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        parts: Parts,
        stays: bool,
    ) -> Result<Arc<Holding>, Error> {
        let Parts {
            memory,
            uses,
            zeros,
            unwind,
            thread_locals,
            handle,
        } = parts;
        let sizes = Sizes::of(&memory, zeros, unwind);
        let range = |memory: &Sealed| {
            let start = memory.address();
            start..start + memory.len() as u64
        };
        let ranges = memory.iter().map(range).collect();
        let (code, data) = split(memory);
        let ThreadLocals { place, owned } = thread_locals;
        let rest = Rest::new(data, None, uses).with_thread_locals(owned);
        let rest = Arc::new(rest);
        let thread_locals = place.map(|place| place.module);
        let version = code.map(|memory| {
            let version = self.tiers.versions.ids.next();
            let code = Code {
                memory,
                entry: 0,
                body_end: 0,
                rows: Vec::new(),
                name: c"",
                unwind: 0,
                moves: None,
                rest: Arc::clone(&rest),
            };
            let notes = &self.reclaim.notes;
            notes.live(Piece {
                function: None,
                version,
                depends: Arc::default(),
                fixed: Some(Fixed::Referenced),
                code,
            });
            version
        });
        let holding = Arc::new(Holding {
            notes: Arc::clone(&self.reclaim.notes),
            owners: Arc::clone(&self.owners),
            ranges,
            thread_locals,
            code: version,
            life: Arc::clone(&image.life),
            sizes,
            _handle: handle,
            _rest: rest,
        });
        if let Some(module) = thread_locals {
            let held = &self.owners.thread_locals;
            let mut held = held.write().unwrap_or_else(PoisonError::into_inner);
            held.insert(module, Arc::downgrade(&holding));
        }
        let mut owners = self
            .owners
            .ranges
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for range in &holding.ranges {
            owners.insert(range.start, (range.end, Arc::downgrade(&holding)));
        }
        drop(owners);
        let held = stays.then(|| Arc::clone(&holding));
        let core = Arc::downgrade(self);
        tracker.attach(image.life.guard(move || {
            drop(held);
            if let Some(core) = core.upgrade() {
                core.start_reclaim();
            }
        }))?;
        let core = Arc::downgrade(self);
        let number = image.number;
        let life = Arc::clone(&image.life);
        tracker.attach(Box::new(move || {
            life.bonds.after(Box::new(move || {
                if let Some(core) = core.upgrade() {
                    core.forget_image(number, thread_locals);
                }
            }));
        }))?;
        Ok(holding)
    }

    /// Removes functions of an image that nobody is to call any more, once it is released. What
    /// stays of the image keeps them, and so does that of what replaced them.
    pub(crate) fn removal_of(
        self: &Arc<Self>,
        image: &Arc<Life>,
        functions: Vec<FunctionId>,
    ) -> Box<dyn Resource> {
        let weak = Arc::downgrade(self);
        let image = Arc::clone(image);
        Box::new(move || {
            let owner = Arc::clone(&image);
            image.when_unbound(Box::new(move || {
                let Some(core) = weak.upgrade() else { return };
                functions.into_iter().for_each(|id| core.let_go(id, &owner));
            }));
        })
    }

    /// Removes a function of `image`, to which nobody is bound any more, once nobody else can
    /// call it.
    fn let_go(self: &Arc<Self>, id: FunctionId, image: &Arc<Life>) {
        let weak = Arc::downgrade(self);
        let remove = Box::new(move || {
            if let Some(core) = weak.upgrade() {
                core.remove_function(id);
            }
        });
        let Err(remove) = image.park(remove) else {
            return;
        };
        let Some(body) = self.life_of(id) else {
            return remove.release();
        };
        let holder = Arc::clone(&body);
        body.when_unbound(Box::new(move || {
            if let Err(remove) = holder.park(remove) {
                remove.release();
            }
        }));
    }

    /// How long the body of a function stays that calls of it reach.
    pub(crate) fn life_of(&self, mut id: FunctionId) -> Option<Arc<Life>> {
        for _ in 0..MOST_CHOICES {
            if let Some(Body::Module(function)) = self.body(id) {
                return Some(Arc::clone(&function.module.life));
            }
            // Of an object, or what a resolver chose.
            let at = self
                .stubs
                .entry(id)
                .map(u64::from)
                .filter(|&at| self.heap.contains(at))?;
            match self.stubs.function_at(at) {
                Some(chosen) => id = chosen,
                None => {
                    return match (self.owners.find(at), self.body(id)) {
                        (Some(holding), _) => Some(Arc::clone(holding.life())),
                        // A better version, whose memory is its own.
                        (None, Some(Body::Unit(unit))) => Some(unit.life),
                        (None, _) => None,
                    };
                }
            }
        }
        None
    }

    /// How long what is at an address stays, if it is of an image.
    pub(crate) fn life_at(&self, address: u64) -> Option<Arc<Life>> {
        if !self.heap.contains(address) {
            return None;
        }
        match self.stubs.function_at(address) {
            Some(id) => self.life_of(id),
            None => Some(Arc::clone(self.owners.find(address)?.life())),
        }
    }

    /// Ends a function: calls of it go to the failure handler, its code is retired.
    pub(crate) fn remove_function(self: &Arc<Self>, id: FunctionId) {
        let versions = self.tiers.versions.of(id);
        // What is under way is late from here on. Who is replacing the function finds its
        // slot closed.
        let settled = match versions.stage() {
            Ok(stage) => {
                if let Ok(done) = stage.commit(Next::Unbound, |_| self.stubs.release(id)) {
                    self.tiers.under_way.cancel(&done.dropped);
                }
                true
            }
            Err(_) => {
                versions.withdraw(|| ());
                self.stubs.release(id);
                false
            }
        };
        self.tiers.forget(id);
        self.continuations.close(id);
        self.speculation.forget(id);
        // The body before the record: who asks for a version under the next record finds none,
        // or the one that comes after.
        let body = {
            let mut functions = self
                .functions
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            let place = functions.get_mut(id.index() as usize);
            place.and_then(Option::take)
        };
        let built = {
            let mut records = self.tiers.versions.lock();
            let record = records.remove(&id.index());
            let all = record.map(|record| record.built.into_iter().chain(record.staying));
            all.map(Iterator::collect::<Vec<_>>).unwrap_or_default()
        };
        self.tiers.versions.fixed().remove(&id.index());
        for version in built {
            self.retire(version);
        }
        drop(self.objects.take_all(id));
        self.forget_cause(id);
        // Last: a replacement that is under way may name it, and so may a way back.
        let settled = self.replacing.forget(id) && settled;
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let linked = linked.remove(&id);
        drop(linked);
        let file = |dylib: &Dylib, link_name: &str| {
            // What stayed may go after its dylib.
            if settled && !dylib.is_defunct() {
                self.removed.file(dylib, link_name, id);
            }
        };
        match body {
            // It never had a name.
            Some(Body::Module(Function {
                origin: Some(_), ..
            })) => {}
            Some(Body::Module(function)) => {
                let plan = function.module.plan();
                file(&function.module.dylib, &plan.import(function.symbol).name);
            }
            Some(Body::Unit(unit)) => {
                file(&unit.dylib, self.names.session().name(unit.own));
            }
            Some(Body::Object(_)) | None => {}
        }
    }

    /// Forgets constructors and destructors that did not run, and thread-locals.
    fn forget_image(&self, number: u64, thread_locals: Option<u64>) {
        self.schedule().forget(number);
        self.destructors().forget(number);
        self.objects.forget_image(number);
        if let Some(module) = thread_locals {
            self.names.forget_thread_locals(module);
        }
    }
}

impl crate::tiers::TierState {
    /// Forgets a function that was removed.
    fn forget(&self, id: FunctionId) {
        let mut control = self.control();
        control.controller.replaced(id);
        control.watch(id, false, crate::tiers::counts::Count::default());
        control.entries.remove(&id);
    }
}
