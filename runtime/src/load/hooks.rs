//! Code that runs before and after the program: resolvers of ifuncs, constructors, destructors,
//! those of bitcode and those of object files in one order.
//!
//! Destructors are in a table of the session from the time when their constructors have run
//! ([`Destructors`]). Each caller takes a destructor out before it calls it: the end of the
//! program, that of the session, a removal, [`Jit::deinitialize`](crate::Jit::deinitialize). So
//! each runs once.

pub(crate) mod run;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

use uruk_base::{EntryAddress, FunctionId};
use uruk_codegen::Structor;
use uruk_link::{DEFAULT_PRIORITY, Init};
use uruk_session::Dylib;

use crate::code::life::Life;
use crate::load::image::Image;
use crate::load::loader::Loader;
use crate::load::started::Started;

/// A function to call at start or exit.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// Lower runs earlier at start, later at exit; [`DEFAULT_PRIORITY`] for those without one.
    pub(crate) priority: u32,
    /// Index of the file, which orders equal priorities.
    pub(crate) file: usize,
    pub(crate) target: Target,
}

/// The priority of an entry in a module's list, as that of a section of an object.
pub(crate) fn priority_of(entry: &Structor) -> u32 {
    // LLVM puts these into the section without a number.
    match entry.priority {
        0xffff => DEFAULT_PRIORITY,
        priority => priority,
    }
}

/// The target of a hook.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Address(u64),
    /// A function of the program, whose address is known after the link.
    Name(Dylib, Box<str>),
}

impl Target {
    fn address(&self, loader: &Loader) -> Option<u64> {
        match self {
            Target::Address(address) => Some(*address),
            Target::Name(dylib, name) => loader.address_of(dylib, name),
        }
    }
}

/// The order of a constructor among those of all inputs: those of `.preinit_array` are first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConstructorOrder {
    Before,
    Priority(u32),
}

/// The hooks of an image, in order.
#[derive(Default)]
pub(crate) struct ImageHooks {
    /// Number of the image.
    pub(crate) image: u64,
    pub(crate) life: Arc<Life>,
    /// Functions behind stubs, and their resolvers.
    ifuncs: Vec<(FunctionId, u64)>,
    /// Words to be filled with the result of a resolver.
    ifunc_words: Vec<(u64, u64)>,
    constructors: Vec<(ConstructorOrder, u64)>,
    /// With their priorities, in running order: reversed priorities and files.
    pub(crate) destructors: Vec<(u32, u64)>,
    /// Whether the resolvers were called.
    resolved: bool,
    /// Number of constructors that were called.
    ran: usize,
}

impl ImageHooks {
    /// Collects the hooks of an image.
    pub(crate) fn of(loader: &Loader, image: &Image, started: &Started) -> ImageHooks {
        // Compilers emit the list of a module's constructors behind its variables, some of which
        // may lie in the sections of the arrays.
        let hook = |init: &Init| Hook {
            priority: init.priority,
            file: started.file(init),
            target: Target::Address(init.address),
        };
        let mut init: Vec<Hook> = started.init.iter().map(hook).collect();
        init.extend_from_slice(&image.constructors);
        init.sort_by_key(|hook| (hook.priority, hook.file));
        // The linker lists destructors in running order; they are reversed below.
        let mut fini: Vec<Hook> = started.fini.iter().rev().map(hook).collect();
        fini.extend_from_slice(&image.destructors);
        fini.sort_by_key(|hook| (hook.priority, hook.file));
        let preinit = started
            .preinit
            .iter()
            .map(|&at| (ConstructorOrder::Before, at));
        ImageHooks {
            image: image.number,
            life: Arc::clone(&image.life),
            ifuncs: image
                .ifuncs
                .iter()
                .filter_map(|(id, resolver)| Some((*id, resolver.address(loader)?)))
                .collect(),
            ifunc_words: started.ifuncs.clone(),
            constructors: preinit
                .chain(init.iter().filter_map(|h| {
                    Some((
                        ConstructorOrder::Priority(h.priority),
                        h.target.address(loader)?,
                    ))
                }))
                .collect(),
            destructors: fini
                .iter()
                .rev()
                .filter_map(|h| Some((h.priority, h.target.address(loader)?)))
                .collect(),
            resolved: false,
            ran: 0,
        }
    }

    /// Whether there are hooks to run.
    fn is_some(&self) -> bool {
        !(self.constructors.is_empty() && self.destructors.is_empty())
    }

    /// Calls the resolvers of functions that are selected at start.
    ///
    /// # Safety
    /// 1. The image's code may run, on this thread.
    /// 2. Its data is not in use yet.
    pub(crate) unsafe fn resolve_ifuncs(&self, loader: &Loader) {
        for &(id, resolver) in &self.ifuncs {
            // SAFETY: duty 1.
            let chosen = unsafe { uruk_stubs::call_ptr(resolver) };
            loader.stubs.publish(id, EntryAddress(chosen));
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
        for &(_, address) in &self.constructors {
            // SAFETY: by the caller's promise.
            unsafe { uruk_stubs::call_init(address, argc, argv, envp) };
        }
    }
}

/// Hooks of images that are not a program's, by number of the image: those due at the next
/// initialization, and those done.
#[derive(Default)]
pub(crate) struct Schedule {
    due: BTreeMap<u64, ImageHooks>,
    done: BTreeMap<u64, ImageHooks>,
}

impl Schedule {
    /// Adds hooks for the next initialization. They are removed with their image's data, or its
    /// hooks: an image without hooks is not entered.
    pub(crate) fn add(&mut self, hooks: ImageHooks) {
        if hooks.is_some() || !hooks.ifuncs.is_empty() || !hooks.ifunc_words.is_empty() {
            self.due.insert(hooks.image, hooks);
        }
    }

    /// Takes out the images selected by `wanted`, by the numbers of their lives.
    fn take(&mut self, wanted: &dyn Fn(u64) -> bool) -> Vec<ImageHooks> {
        let (taken, left) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|(_, hooks)| wanted(hooks.life.root().number()));
        self.due = left;
        let taken: BTreeMap<u64, ImageHooks> = taken;
        taken.into_values().collect()
    }

    /// Makes hooks that were run due again.
    pub(crate) fn again(&mut self, wanted: impl Fn(u64) -> bool) {
        let (back, done) = std::mem::take(&mut self.done)
            .into_iter()
            .partition(|(_, hooks)| wanted(hooks.life.root().number()));
        self.done = done;
        let back: BTreeMap<u64, ImageHooks> = back;
        self.due.extend(back);
    }

    /// Removes an image.
    pub(crate) fn forget(&mut self, image: u64) {
        self.due.remove(&image);
        self.done.remove(&image);
    }
}

/// Destructors of images whose constructors have run. Those of images that were initialized
/// together run by priority over all of them.
#[derive(Default)]
pub(crate) struct Destructors {
    /// Number of the latest initialization.
    latest: u64,
    /// In reversed running order, with the numbers of their lives and their addresses.
    left: BTreeMap<DestructorPlace, (u64, u64)>,
}

/// Place of a destructor in the reversed running order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DestructorPlace {
    initialization: u64,
    priority: u32,
    image: u64,
    index: Reverse<usize>,
}

impl Destructors {
    /// The number of a new initialization.
    fn begin(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }

    /// Takes out the next one of the images selected by `wanted`, by their numbers and those of
    /// their lives.
    fn next(&mut self, wanted: impl Fn(u64, u64) -> bool) -> Option<u64> {
        let mut latest = self.left.iter().rev();
        let (place, _) = latest.find(|(place, (life, _))| wanted(place.image, *life))?;
        let place = place.clone();
        Some(self.left.remove(&place)?.1)
    }

    /// Whether any are left of images with a selected life.
    fn are_left(&self, wanted: impl Fn(u64) -> bool) -> bool {
        self.left.values().any(|(life, _)| wanted(*life))
    }

    /// Removes those of an image.
    pub(crate) fn forget(&mut self, image: u64) {
        self.left.retain(|place, _| place.image != image);
    }
}
