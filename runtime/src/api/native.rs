//! Functions that have machine code already: of the program that the session lives in.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::VersionId;
use uruk_codegen::native::{
    Additions, Choices, Contents, Method, NativeCallers, Outdated, Survey, Versions,
};

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::jit::Jit;
use crate::fork::{self, gate};
use crate::guest::{processes, threads};

/// Machine code that somebody else made of a function of a dylib: a linker, from the same source.
///
/// It is the function's first version. Calls through the function's stub reach it until there is a
/// better one, samples in it are the function's, and it is what is gone back to.
#[derive(Debug, Clone)]
pub struct NativeCode {
    /// Where a call that comes through the stub goes on: behind what may be made a jump to the
    /// stub.
    pub entry: u64,
    /// All of it.
    pub code: Range<u64>,
    /// Code beside it whose samples may count for it, too: of functions that it calls, and that are
    /// replaced with it only, or with others that have the same beside them. These are asked in turns.
    pub beside: Vec<InlinedCopy>,
    /// Functions of the dylib whose bodies, or facts of them, may be in the code: what depends on
    /// them is compiled anew when they are replaced. Names the dylib does not define as functions
    /// count for nothing.
    pub holds: Vec<String>,
}

/// Native code of a function that is replaced with its callers only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlinedCopy {
    /// The function, by its name in the dylib.
    pub name: String,
    /// Its code.
    pub code: Range<u64>,
}

impl Dylib {
    /// Makes code that is there the version that calls of a function reach: its first, or, given
    /// later, one that takes the place of whatever runs.
    ///
    /// The number of the version is returned; events and statistics count it as tier 0. Samples
    /// are attributed if the code lies in what a session was told to attend to.
    ///
    /// ```
    /// extern "C" fn native() -> i32 {
    ///     42
    /// }
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i32 @answer() { ret i32 42 }")?;
    /// let entry = native as *const () as u64;
    /// let code = uruk::NativeCode { entry, code: entry..entry + 1, beside: Vec::new(), holds: Vec::new() };
    /// // SAFETY: both return the same number.
    /// unsafe { jit.main().adopt("answer", &code)? };
    /// // SAFETY: the function above.
    /// let answer = unsafe { jit.function::<extern "C" fn() -> i32>("answer")? };
    /// assert_eq!(answer.call(), 42);
    /// // Nothing was compiled for it.
    /// assert_eq!((jit.stats().compiled, jit.stats().native.functions), (0, 1));
    /// assert_eq!(jit.tier("answer")?, Some(uruk::Tier::Native));
    /// jit.compile_at("answer", uruk::Tier::Optimized)?;
    /// assert_eq!((answer.call(), jit.stats().native.functions), (42, 0));
    /// jit.compile_at("answer", uruk::Tier::Native)?;
    /// assert_eq!(jit.tier("answer")?, Some(uruk::Tier::Native));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. The code does what the function's body says, by the same calling convention.
    /// 2. It stays where it is for as long as the session is used.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`]; that the function was changed
    /// meanwhile.
    pub unsafe fn adopt(&self, name: &str, native: &NativeCode) -> Result<VersionId, Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        let holds = native.holds.iter().filter_map(|name| self.id_of(name).ok());
        let core = self.jit.core();
        let version = core.adopt(id, native.entry, native.code.clone(), holds.collect())?;
        core.note_native(id, &native.beside);
        for beside in &native.beside {
            let whose = self.id_of(&beside.name).ok();
            let code = beside.code.clone();
            core.tiers.sampling.add_shared(code, whose, id, version);
        }
        Ok(version)
    }

    /// Has adopted code depend on other functions than [`NativeCode::holds`] said: it is compiled anew
    /// with these when they are replaced, and a [`Level::Quiescent`](crate::Level::Quiescent)
    /// replacement waits until it is left.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`], of `name`.
    pub fn set_holds(&self, name: &str, holds: &[String]) -> Result<(), Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        let holds = holds.iter().filter_map(|name| self.id_of(name).ok());
        self.jit.core().set_native_depends(id, &holds.collect());
        Ok(())
    }
}

/// Does something during which no process is copied by `fork`, and no handler of the program's runs
/// on this thread: what is locked in it, no child finds locked. It must not wait for others.
pub fn uncopied<R>(work: impl FnOnce() -> R) -> R {
    let _pass = gate::enter();
    work()
}

/// Begins to live in a native program, on its main thread and before the program starts: copies of
/// the process are whole from now on, and it ends when the last thread of the *program* does, also
/// where the main thread leaves first.
pub fn enter_program() {
    processes::prepare();
    fork::register_fork_handlers();
    threads::watch_main_thread();
}

/// Has `run` called in each whole child of a fork, by the thread that forked, before its program goes
/// on. The first that is given is called.
pub fn on_fork_in_child(run: fn()) {
    fork::on_child(run);
}

/// Looks whether the main thread of the program has left by a system call that nobody saw. A
/// session's worker does; before there is one, somebody else has to.
pub fn look_at_main_thread() {
    threads::look_at_main_thread();
}

/// Starts a thread that counts for none of the program's: no handler of it runs there, it is no
/// reason for the process to live, and a copy of the process does not miss it.
///
/// # Errors
/// [`Error::Thread`].
pub fn spawn_own(name: &str, run: impl Fn() + Send + 'static) -> Result<(), Error> {
    fork::thread::spawn(name.to_owned(), run)
}

/// Whether a thread of [`spawn_own`] is to end, as all others: the process gives up system calls.
pub fn own_threads_end() -> bool {
    fork::confine::is_begun()
}

/// Files of the program that a session lives in, by their bitcode.
#[derive(Clone, Copy)]
pub struct NativeFiles<'j>(&'j Jit);

impl<'j> NativeFiles<'j> {
    /// Of the program that `jit` lives in.
    pub fn of(jit: &'j Jit) -> NativeFiles<'j> {
        NativeFiles(jit)
    }

    /// The sources that modules say they were made of, in their order.
    ///
    /// # Errors
    /// Bitcode that LLVM does not read.
    pub fn sources(&self, modules: Vec<Vec<u8>>) -> Result<Vec<String>, Error> {
        let what = String::from("a program's modules");
        self.0.core().on_compile_thread(what, move |_| {
            let modules = modules.iter();
            let sources = modules.map(|bytes| uruk_codegen::native::source("a module", bytes));
            Ok(sources.collect::<Result<_, _>>()?)
        })
    }

    /// Rebinds a module of the program that the session lives in, before it is added: its
    /// variables become those that the program has, addresses of functions those that the program
    /// knows, as `choose` says of each name. The new bitcode.
    ///
    /// # Errors
    /// Bitcode that LLVM does not read; as many choices as fit another module.
    pub fn rebind(
        &self,
        name: &str,
        bytes: Vec<u8>,
        choose: impl FnMut(&Survey) -> Choices + Send + 'static,
    ) -> Result<Vec<u8>, Error> {
        let what = format!("{name}, which is rebound");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::rebind(&name, &bytes, choose)?)
        })
    }

    /// Like [`rebind`](NativeFiles::rebind), of a module that is first compared with another one:
    /// `compare` tells whether it is to go on, and there is no bitcode if not. `choose` may be asked several
    /// times: the last survey says what all bodies mention that are kept.
    ///
    /// # Errors
    /// As there.
    pub fn renew(
        &self,
        name: &str,
        bytes: Vec<u8>,
        method: Method,
        compare: impl FnOnce(Contents) -> bool + Send + 'static,
        choose: impl FnMut(&Survey) -> Choices + Send + 'static,
    ) -> Result<Vec<u8>, Error> {
        let what = format!("{name}, which is rebound");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::renew(
                &name, &bytes, method, compare, choose,
            )?)
        })
    }

    /// The names of functions that a module defines.
    ///
    /// # Errors
    /// Bitcode that is damaged, or that LLVM does not read.
    pub fn defined(&self, name: &str, bytes: Vec<u8>) -> Result<Vec<String>, Error> {
        let what = format!("{name}, whose functions are listed");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::defined(&name, &bytes)?)
        })
    }

    /// All that two versions of a module are compared by.
    ///
    /// # Errors
    /// Bitcode that is damaged, or that LLVM does not read.
    pub fn contents(&self, name: &str, bytes: Vec<u8>, method: Method) -> Result<Contents, Error> {
        let what = format!("{name}, whose functions are compared");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::contents(&name, &bytes, method)?)
        })
    }

    /// Looks at native code of a file, of which `called` functions may get other bodies; `None` if the file
    /// is too large for that.
    ///
    /// # Errors
    /// Bitcode that is damaged, or that LLVM does not read.
    pub fn native_callers(
        &self,
        name: &str,
        native: Vec<u8>,
        called: HashSet<String>,
    ) -> Result<Option<NativeCallers>, Error> {
        let what = format!("{name}, whose native callers are looked at");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            let callers = uruk_codegen::native::native_callers(&name, &native, &called)?;
            Ok(callers)
        })
    }

    /// Native callers of functions of a file that are not right for its new version.
    ///
    /// # Errors
    /// Bitcode that is damaged, or that LLVM does not read.
    pub fn outdated(
        &self,
        name: &str,
        callers: Arc<NativeCallers>,
        native: Vec<u8>,
        new: Vec<u8>,
        called: HashSet<String>,
    ) -> Result<Outdated, Error> {
        let what = format!("{name}, whose native callers are looked at");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            let versions = Versions {
                native: &native,
                new: &new,
                called: &called,
            };
            Ok(uruk_codegen::native::outdated(&name, &callers, versions)?)
        })
    }

    /// The additions to the `changed` functions of a file; none if anything else is new in them.
    ///
    /// # Errors
    /// Bitcode that LLVM does not read.
    pub fn only_added(
        &self,
        name: &str,
        native: Arc<[u8]>,
        new: Arc<[u8]>,
        changed: HashSet<String>,
    ) -> Result<Option<Additions>, Error> {
        let what = format!("{name}, whose functions are compared");
        let name = name.to_owned();
        self.0.core().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::only_added(
                &name, &native, &new, &changed,
            )?)
        })
    }

    /// Has samples in a part of the address space counted for the functions whose native code lies
    /// there ([`Dylib::adopt`]). To be told before they are adopted.
    pub fn attend(&self, text: Range<u64>) {
        let _pass = gate::enter();
        self.0.core().tiers.sampling.attend(text);
    }
}
