//! What runs before and after the program: resolvers of ifuncs, constructors,
//! destructors, those of bitcode and those of object files in one order.
//!
//! Destructors wait in a table of the session from when their constructors have run
//! ([`Destructors`]). Whoever calls one takes it out before: the end of the program, that of the
//! session, a removal, [`Jit::deinitialize`](crate::Jit::deinitialize). So each runs once.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, PoisonError};

use uruk_base::locks::MutexGuard;
use uruk_base::{EntryAddress, FunctionId};
use uruk_session::Dylib;

use crate::api::error::Error;
use crate::calls::guard;
use crate::calls::passes::Limits;
use crate::core::Core;
use crate::fork::gate;
use crate::fork::panics::caught;
use crate::load::image::Image;
use crate::load::start::Started;
use crate::removal::life::Life;

/// A function to call at start or exit.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// Lower runs earlier at start, later at exit.
    pub(crate) priority: u32,
    /// Index of the file, which decides among equal priorities.
    pub(crate) file: usize,
    pub(crate) target: Target,
}

/// What a hook calls.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Address(u64),
    /// A function of the program, whose address is known once it is linked.
    Name(Dylib, Box<str>),
}

impl Target {
    fn address(&self, core: &Core) -> Option<u64> {
        match self {
            Target::Address(address) => Some(*address),
            Target::Name(dylib, name) => core.address_of(dylib, name),
        }
    }
}

/// The calls an image asks for, in order.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Number of the image.
    pub(crate) image: u64,
    pub(crate) life: Arc<Life>,
    /// Functions behind stubs, and their resolvers.
    ifuncs: Vec<(FunctionId, u64)>,
    /// Words to be filled with what a resolver returns.
    ifunc_words: Vec<(u64, u64)>,
    constructors: Vec<u64>,
    /// In running order: reversed priorities and files.
    pub(crate) destructors: Vec<u64>,
}

impl Hooks {
    /// Collects the hooks of an image.
    pub(crate) fn of(core: &Core, image: &Image, started: &Started) -> Hooks {
        let of_objects = |list: &[(u32, u64)]| -> Vec<Hook> {
            let file = usize::MAX;
            list.iter()
                .map(|&(priority, at)| Hook {
                    priority,
                    file,
                    target: Target::Address(at),
                })
                .collect()
        };
        let mut init = image.constructors.clone();
        init.extend(of_objects(&started.init));
        init.sort_by_key(|hook| (hook.priority, hook.file));
        let mut fini = image.destructors.clone();
        // The linker lists destructors in running order; reversed below.
        fini.extend(of_objects(&started.fini).into_iter().rev());
        fini.sort_by_key(|hook| (hook.priority, hook.file));
        let preinit = started.preinit.iter().copied();
        Hooks {
            image: image.number,
            life: Arc::clone(&image.life),
            ifuncs: image
                .ifuncs
                .iter()
                .filter_map(|(id, resolver)| Some((*id, resolver.address(core)?)))
                .collect(),
            ifunc_words: started.ifuncs.clone(),
            constructors: preinit
                .chain(init.iter().filter_map(|h| h.target.address(core)))
                .collect(),
            destructors: fini
                .iter()
                .rev()
                .filter_map(|h| h.target.address(core))
                .collect(),
        }
    }

    /// Whether there is anything to be run.
    fn is_some(&self) -> bool {
        !(self.constructors.is_empty() && self.destructors.is_empty())
    }

    /// Calls the resolvers of functions that are chosen at start.
    ///
    /// # Safety
    /// 1. The image's code may run, on this thread.
    /// 2. Its data is not yet used by anyone.
    pub(crate) unsafe fn resolve_ifuncs(&self, core: &Core) {
        for &(id, resolver) in &self.ifuncs {
            // SAFETY: duty 1.
            let chosen = unsafe { uruk_stubs::call_ptr(resolver) };
            core.stubs.publish(id, EntryAddress(chosen));
        }
        for &(word, resolver) in &self.ifunc_words {
            // SAFETY: duties 1 and 2; `word` is 8 aligned bytes of the image's data.
            unsafe {
                let chosen = uruk_stubs::call_ptr(resolver);
                (word as *mut u64).write(chosen);
            }
        }
    }

    /// Calls the constructors as a native start does.
    ///
    /// # Safety
    /// 1. The image's code may run, on this thread.
    /// 2. `argv` and `envp` end with a null pointer, `argv` after `argc` strings.
    pub(crate) unsafe fn run_constructors(
        &self,
        argc: c_int,
        argv: *const *const c_char,
        envp: *const *const c_char,
    ) {
        for &address in &self.constructors {
            // SAFETY: by the caller's promise.
            unsafe { uruk_stubs::call_init(address, argc, argv, envp) };
        }
    }
}

impl Hooks {
    /// Calls the constructors without arguments; the first error, panic of a function of the host or
    /// trap ends it.
    ///
    /// # Safety
    /// The image's code may run, on this thread.
    unsafe fn run_guarded(&self) -> Result<(), Error> {
        type Constructor = extern "C-unwind" fn(c_int, *const *const c_char, *const *const c_char);
        let empty = [std::ptr::null()];
        for &address in &self.constructors {
            // SAFETY: by the caller's promise.
            let constructor = unsafe { std::mem::transmute::<u64, Constructor>(address) };
            caught(|| {
                let call = || constructor(0, empty.as_ptr(), empty.as_ptr());
                let ended = guard::run(Limits::default(), call);
                ended.map_err(|trap| Error::Trap(Box::new(trap)))
            })?;
        }
        Ok(())
    }
}

/// Hooks of images that are not a program's, by number of the image: what is to be run at the next
/// initialization, and what was.
#[derive(Default)]
pub(crate) struct Schedule {
    due: BTreeMap<u64, Hooks>,
    done: BTreeMap<u64, Hooks>,
}

impl Schedule {
    /// Has hooks run at the next initialization. They are forgotten with their image's data, or
    /// its hooks: an image that has none is not entered.
    pub(crate) fn add(&mut self, hooks: Hooks) {
        if hooks.is_some() || !hooks.ifuncs.is_empty() || !hooks.ifunc_words.is_empty() {
            self.due.insert(hooks.image, hooks);
        }
    }

    /// Takes the next of those images out that are wanted, by the numbers of their lives.
    fn next(&mut self, wanted: &dyn Fn(u64) -> bool) -> Option<Hooks> {
        let mut due = self.due.iter();
        let (&image, _) = due.find(|(_, hooks)| wanted(hooks.life.root().number()))?;
        self.due.remove(&image)
    }

    /// Has hooks that were run be due again.
    pub(crate) fn again(&mut self, wanted: impl Fn(u64) -> bool) {
        let (back, done) = std::mem::take(&mut self.done)
            .into_iter()
            .partition(|(_, hooks)| wanted(hooks.life.root().number()));
        self.done = done;
        let back: BTreeMap<u64, Hooks> = back;
        self.due.extend(back);
    }

    /// Forgets an image.
    pub(crate) fn forget(&mut self, image: u64) {
        self.due.remove(&image);
        self.done.remove(&image);
    }
}

/// Destructors of images whose constructors have run, by number of the image.
#[derive(Default)]
pub(crate) struct Destructors(BTreeMap<u64, Left>);

/// What is left of an image's.
struct Left {
    /// Number of the life it goes with.
    life: u64,
    /// The next one last.
    addresses: Vec<u64>,
}

impl Destructors {
    /// Takes out the next of those images that are `wanted`, by their numbers and those of the
    /// lives they go with; the image that came last is first.
    fn next(&mut self, wanted: impl Fn(u64, u64) -> bool) -> Option<u64> {
        let mut latest = self.0.iter_mut().rev();
        let (&image, left) = latest.find(|(image, left)| wanted(**image, left.life))?;
        let next = left.addresses.pop();
        if left.addresses.is_empty() {
            self.0.remove(&image);
        }
        next
    }

    /// Whether there are any of images that go with one of `lives`.
    fn are_left(&self, wanted: impl Fn(u64) -> bool) -> bool {
        self.0.values().any(|left| wanted(left.life))
    }

    /// Forgets those of an image.
    pub(crate) fn forget(&mut self, image: u64) {
        self.0.remove(&image);
    }
}

impl Core {
    /// The table, under a pass.
    pub(crate) fn destructors(&self) -> MutexGuard<'_, Destructors> {
        let destructors = self.destructors.lock();
        destructors.unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes destructors of an image, in running order, as its constructors have run. Those of
    /// one that is removed meanwhile are not called any more.
    pub(crate) fn note_destructors(&self, image: u64, life: &Arc<Life>, mut addresses: Vec<u64>) {
        let _pass = gate::enter();
        let life = life.root();
        let mut destructors = self.destructors();
        if addresses.is_empty() || life.is_closed() {
            return;
        }
        addresses.reverse();
        let life = life.number();
        destructors.0.insert(image, Left { life, addresses });
    }

    /// The hooks of images, under a pass.
    pub(crate) fn schedule(&self) -> MutexGuard<'_, Schedule> {
        let schedule = self.schedule.lock();
        schedule.unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the constructors that are due of those images that are wanted, by the numbers of
    /// their lives, in the order in which the images were added.
    ///
    /// # Safety
    /// Their code may run, on this thread.
    ///
    /// # Errors
    /// What went wrong in one: that image is not initialized, those behind it stay due.
    pub(crate) unsafe fn run_due(&self, wanted: &dyn Fn(u64) -> bool) -> Result<(), Error> {
        // Each is taken out before it runs: one may come back here, or add others.
        loop {
            let next = {
                let _pass = gate::enter();
                self.schedule().next(wanted)
            };
            let Some(hooks) = next else { return Ok(()) };
            // SAFETY: by the caller's promise.
            unsafe {
                hooks.resolve_ifuncs(self);
                hooks.run_guarded()?;
            }
            self.note_destructors(hooks.image, &hooks.life, hooks.destructors.clone());
            let _pass = gate::enter();
            if hooks.is_some() && !hooks.life.root().is_closed() {
                self.schedule().done.insert(hooks.image, hooks);
            }
        }
    }

    /// Takes out the next destructor of those images that are wanted, see [`Destructors::next`].
    pub(crate) fn next_destructor(&self, wanted: impl Fn(u64, u64) -> bool) -> Option<u64> {
        let _pass = gate::enter();
        self.destructors().next(wanted)
    }

    /// Whether destructors are left of images that go with one of these lives. Under a pass.
    pub(crate) fn has_destructors(&self, wanted: impl Fn(u64) -> bool) -> bool {
        self.destructors().are_left(wanted)
    }
}
