//! What runs before and after the program: resolvers of ifuncs, constructors,
//! destructors, those of bitcode and those of object files in one order.

use std::ffi::{c_char, c_int};

use uruk_base::FunctionId;
use uruk_session::Dylib;

use crate::core::Core;
use crate::load::image::Image;
use crate::load::start::Started;

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
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// Number of the image.
    pub(crate) image: u64,
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

    /// Calls the resolvers of functions that are chosen at start.
    ///
    /// # Safety
    /// 1. The image's code may run, on this thread.
    /// 2. Its data is not yet used by anyone.
    pub(crate) unsafe fn resolve_ifuncs(&self, core: &Core) {
        for &(id, resolver) in &self.ifuncs {
            // SAFETY: duty 1.
            let chosen = unsafe { uruk_stubs::call_ptr(resolver) };
            core.stubs.publish(id, chosen);
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
