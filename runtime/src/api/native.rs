//! Functions with existing machine code: those of the program that the session lives in.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_codegen::native::{
    Additions, Choices, Contents, Method, NativeCallers, Outdated, Survey, Versions,
};

use crate::api::dylib::Dylib;
use crate::api::jit::Jit;
use crate::error::Error;
use crate::fork::threads;
use crate::fork::{self, gate};
use crate::host::processes;
pub use crate::version::native::InlinedCopy;

/// Native machine code of a function of a dylib, made from the same source by another compiler and
/// linker.
///
/// It is the function's first version. Calls through the function's stub reach it until a better
/// one exists, samples in it are the function's, and the function falls back to it.
#[derive(Debug, Clone)]
pub struct NativeCode {
    /// Address at which a call through the stub continues: behind the bytes that may be overwritten
    /// by a jump to the stub.
    pub entry: u64,
    /// The function's whole code.
    pub code: Range<u64>,
    /// Other code whose samples may count for the function: of functions that it calls and that are
    /// replaced only together with it, or with other callers of the same copy. These callers take
    /// turns.
    pub beside: Vec<InlinedCopy>,
    /// Functions of the dylib whose bodies, or facts of them, may be in the code: code that depends
    /// on them is recompiled when they are replaced. [`Dylib::number_of`] has their numbers.
    pub holds: Vec<FunctionId>,
}

impl Dylib {
    /// Makes existing code the version that calls of a function reach: its first, or, if adopted
    /// later, in place of the current one.
    ///
    /// Returns the version's number; events and statistics count it as tier 0. Samples are
    /// attributed if the code lies in a range that the session attends to.
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
        let session = self.jit.session();
        let holds = native.holds.as_slice().into();
        let version = session.adopt(id, native.entry, native.code.clone(), holds)?;
        session.note_native(id, &native.beside);
        for beside in &native.beside {
            let whose = self.id_of(&beside.name).ok();
            let code = beside.code.clone();
            session
                .tiers
                .sampling
                .add_shared(&session.sampled, code, whose, id, version);
        }
        Ok(version)
    }

    /// The part of all samples that were in adopted code of a function while calls reached other code:
    /// threads are in a loop there that they entered before, and no call of the function leads them out.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn stayed_in_native(&self, name: &str) -> Result<f64, Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        Ok(self.jit.session().tiers.sampling.stayed(id))
    }

    /// The part of all samples that were in adopted code of a function.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn native_samples(&self, name: &str) -> Result<f64, Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        let session = self.jit.session();
        let samples = session.versions.samples_at(id, Tier::Native) as f64;
        Ok(samples / session.tiers.sampling.usual().max(1) as f64)
    }

    /// Sets the functions that adopted code depends on, in place of [`NativeCode::holds`]. The code
    /// is recompiled when these are replaced, and a [`Level::Quiescent`](crate::Level::Quiescent)
    /// replacement waits until no thread is in it.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`], of `name`.
    pub fn set_holds(&self, name: &str, holds: &[FunctionId]) -> Result<(), Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        self.jit.session().set_native_depends(id, &holds.into());
        Ok(())
    }

    /// The number of a function, for [`NativeCode::holds`]. It stays the same when the function is
    /// replaced.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn number_of(&self, name: &str) -> Result<FunctionId, Error> {
        self.id_of(name)
    }
}

/// Runs `work` while `fork` does not copy the process, and no handler of the program runs on this
/// thread: a child finds no lock taken by `work`. It must not wait for other threads.
pub fn uncopied<R>(work: impl FnOnce() -> R) -> R {
    let _pass = gate::enter();
    work()
}

/// Prepares the runtime inside a native program, on its main thread and before the program starts.
/// From then on forks copy the whole process, and it ends with the last thread of the *program*,
/// also where the main thread exits first.
pub fn enter_program() {
    processes::prepare();
    fork::register_fork_handlers();
    threads::watch_main_thread();
}

/// Registers `run` to be called in each whole child of a fork, by the thread that forked, before
/// its program continues. Only the first registration counts.
pub fn on_fork_in_child(run: fn()) {
    fork::on_child(run);
}

/// Checks whether the main thread of the program has exited by a system call that the runtime did
/// not observe. A session's worker does this; before one exists, the embedder has to.
pub fn look_at_main_thread() {
    threads::look_at_main_thread();
}

/// Starts a thread that is not one of the program's. No handler of the program runs there, it does
/// not keep the process alive, and a forked child does not miss it. It ends after `run`, and gets no
/// other work: the C library then gives back the free memory that it keeps for the thread.
///
/// # Errors
/// [`Error::Thread`].
pub fn spawn_own(name: &str, run: impl Fn() + Send + 'static) -> Result<(), Error> {
    fork::thread::spawn(name.to_owned(), move || {
        run();
        fork::thread::rest::unfit();
    })
}

/// Whether a thread of [`spawn_own`] must end, like all others of the library, because the process
/// gives up system calls.
pub fn own_threads_end() -> bool {
    fork::confine::is_begun()
}

/// Registers `run` to be called, by a thread of the library, once [`own_threads_end`] has become true:
/// it wakes threads that wait in the kernel. Only the first registration counts.
pub fn on_own_threads_end(run: fn()) {
    fork::confine::at_end(run);
}

/// Files of the program that a session lives in, by their bitcode.
#[derive(Clone, Copy)]
pub struct NativeFiles<'j>(&'j Jit);

impl<'j> NativeFiles<'j> {
    /// Of the program that `jit` lives in.
    pub fn of(jit: &'j Jit) -> NativeFiles<'j> {
        NativeFiles(jit)
    }

    /// The source names that modules record, in their order.
    ///
    /// # Errors
    /// Bitcode that LLVM does not read.
    pub fn sources(&self, modules: Vec<Vec<u8>>) -> Result<Vec<String>, Error> {
        let what = String::from("a program's modules");
        self.0.session().on_compile_thread(what, move |_| {
            let modules = modules.iter();
            let sources = modules.map(|bytes| uruk_codegen::native::source("a module", bytes));
            Ok(sources.collect::<Result<_, _>>()?)
        })
    }

    /// Rebinds a module of the program that the session lives in, before it is added. Its variables
    /// become those of the program, and addresses of functions those that the program knows, as
    /// `choose` decides for each name. Returns the new bitcode.
    ///
    /// # Errors
    /// Bitcode that LLVM does not read; choices that fit another module.
    pub fn rebind(
        &self,
        name: &str,
        bytes: Vec<u8>,
        choose: impl FnMut(&Survey) -> Choices + Send + 'static,
    ) -> Result<Vec<u8>, Error> {
        let what = format!("{name}, which is rebound");
        let name = name.to_owned();
        self.0.session().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::rebind(&name, &bytes, choose)?)
        })
    }

    /// Like [`rebind`](NativeFiles::rebind), for a module that is first compared with another
    /// one: `compare` decides whether to continue; if not, no bitcode is returned. `choose` may be
    /// called several times: the last survey lists the names that all kept bodies mention.
    ///
    /// # Errors
    /// As [`rebind`](NativeFiles::rebind).
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
        self.0.session().on_compile_thread(what, move |_| {
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
        self.0.session().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::defined(&name, &bytes)?)
        })
    }

    /// The contents by which two versions of a module are compared.
    ///
    /// # Errors
    /// Bitcode that is damaged, or that LLVM does not read.
    pub fn contents(&self, name: &str, bytes: Vec<u8>, method: Method) -> Result<Contents, Error> {
        let what = format!("{name}, whose functions are compared");
        let name = name.to_owned();
        self.0.session().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::contents(&name, &bytes, method)?)
        })
    }

    /// Finds the native callers in a file whose `called` functions may get other bodies; `None` if
    /// the file is too large for that.
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
        self.0.session().on_compile_thread(what, move |_| {
            let callers = uruk_codegen::native::native_callers(&name, &native, &called)?;
            Ok(callers)
        })
    }

    /// Native callers of functions of a file that its new version makes outdated.
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
        self.0.session().on_compile_thread(what, move |_| {
            let versions = Versions {
                native: &native,
                new: &new,
                called: &called,
            };
            Ok(uruk_codegen::native::outdated(&name, &callers, versions)?)
        })
    }

    /// The additions to the `changed` functions of a file; none if they contain any other change.
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
        self.0.session().on_compile_thread(what, move |_| {
            Ok(uruk_codegen::native::only_added(
                &name, &native, &new, &changed,
            )?)
        })
    }

    /// Attributes samples in an address range to the functions whose native code lies there
    /// ([`Dylib::adopt`]). To be called before they are adopted.
    pub fn attend(&self, text: Range<u64>) {
        let _pass = gate::enter();
        self.0.session().sampled.attend(text);
    }
}
