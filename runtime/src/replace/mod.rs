//! Exchanges the code of functions while they run: a set at one instant, or not at all.
//!
//! ```text
//! input -> plan (existing definitions keep their names) -> checks -> data and code, linked (prepare)
//!       -> dependents, compiled again -> stage, new bodies and plans, commit (commit)
//! ```
//!
//! Invariants:
//! - Everything that can fail comes before the commit; a failure leaves the program as it
//!   was.
//! - Of the modules that define a function, one offers its body to optimizers: the module of the
//!   code that runs.
//! - No version is published that depends on a function replaced since its compile began.
//!
//! Reading order: `input` (forms), `plan` (names), `check`, `staging` (new definitions), `prepare`
//! (code), `object` (machine code), `migrate` (variables), `hooks` (constructors), `commit` and
//! `publish` (the instant), `first` (first bodies of functions that are produced when they are
//! called), `dependents`, `rollback`, `old` (the code that was replaced), `quiet` (threads that run
//! it), `loops` (OSR of running loops into new code), `withdrawal` (by the caller), `telling`
//! (events), `turn` (all steps of one replacement), `turns` (one after another), `state` (locks,
//! history).
//!
//! # Handlers of signals
//! A handler that calls a member parks at a closed gate, on the thread that it interrupted.
//! That must not be the thread that opens the gate:
//!
//! - `Level::Immediate` commits on the caller's thread, under one pass from
//!   before the gate closes until it is open, whatever fails: no handler runs under a pass
//!   (`fork::gate`). The gate is closed for a few stores, and for callbacks of migrations.
//! - `Level::Quiescent`, of a rollback as well, may wait for long. It commits on a thread of the
//!   session, on which no handler ever runs; the caller waits without a pass. A handler that calls
//!   a member on the caller's thread waits like all other callers. The gate lets it through if its
//!   thread must go on to leave old code.
//! - A handler that replaces while its own thread does gets
//!   [`ReplaceError::Nested`](crate::ReplaceError::Nested).

mod check;
mod commit;
mod dependents;
pub(crate) mod first;
mod hooks;
mod input;
pub(crate) mod loops;
mod migrate;
mod object;
mod old;
mod plan;
mod prepare;
mod publish;
pub(crate) mod quiet;
pub(crate) mod rollback;
mod staging;
pub(crate) mod state;
mod telling;
pub(crate) mod turn;
mod turns;
mod withdrawal;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uruk_base::Level;

use crate::OldLoop;
use crate::error::Error;
use crate::error::replace::Activation;
use crate::replace::state::Replacing;
use std::any::Any;

use self::input::ReplacementInput;
use self::migrate::Migration;
use self::old::ReplacedCode;
use self::withdrawal::Withdrawal;

/// New code for functions that exist.
#[derive(Debug, Clone)]
pub struct Replacement {
    name: String,
    input: ReplacementInput,
    level: Level,
    allow_signatures: bool,
    allow_parts: bool,
    constructors: bool,
    osr: bool,
    migrations: Vec<Migration>,
    withdrawal: Option<Withdrawal>,
}

impl Replacement {
    /// From LLVM bitcode.
    pub fn bitcode(name: &str, bytes: impl Into<Arc<[u8]>>) -> Replacement {
        Replacement::new(name, ReplacementInput::Bitcode(bytes.into()))
    }

    /// From LLVM IR text.
    pub fn ir(name: &str, text: &str) -> Replacement {
        Replacement::new(name, ReplacementInput::Ir(text.to_owned()))
    }

    /// From a module built with inkwell; it is copied.
    pub fn module(module: &inkwell::module::Module<'_>) -> Replacement {
        let name = module.get_name().to_string_lossy().into_owned();
        Replacement::bitcode(&name, module.write_bitcode_to_memory().as_slice())
    }

    /// From a relocatable ELF object, whose functions take the place of compiled ones or of
    /// those of another object.
    ///
    /// References to existing definitions are bound to them: calls through stubs, variables of the
    /// same size at their old storage. Facts that machine code does not contain are not checked:
    /// signatures and types. Its local variables are new ([`Replaced::locals_new`]). The program
    /// may have stored pointers to local functions of an object that was replaced; these still lead
    /// to old code.
    ///
    /// Functions of an object file are replaced all together: some may have been inlined into
    /// others. They can be replaced in part only if the object was made with `-fPIC
    /// -fsemantic-interposition -frecord-gcc-switches` or with `-O0 -frecord-gcc-switches`, or with
    /// [`Replacement::allow_parts`].
    pub fn object(name: &str, bytes: impl Into<Arc<[u8]>>) -> Replacement {
        Replacement::new(name, ReplacementInput::Object(bytes.into()))
    }

    /// From the contents of a file: bitcode, IR text or an object, recognized by its content.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn file(path: &Path) -> Result<Replacement, Error> {
        let name = path.display().to_string();
        let bytes = uruk_files::read(path).map_err(|cause| Error::File {
            file: name.clone(),
            cause: Arc::new(cause),
        })?;
        Ok(Replacement::new(
            &name,
            ReplacementInput::File(bytes.into()),
        ))
    }

    /// Sets when the functions are exchanged. Default: [`Level::Immediate`].
    #[must_use]
    pub fn level(mut self, level: Level) -> Replacement {
        self.level = level;
        self
    }

    /// Accepts functions whose signature changed. Callers that are not in the same replacement, and
    /// [`Func`](crate::Func)s, still use the old signature: they must not call the function again.
    #[must_use]
    pub fn allow_signatures(mut self, allow: bool) -> Replacement {
        self.allow_signatures = allow;
        self
    }

    /// Accepts that functions of object files are replaced in part: none of them holds, or
    /// relies on, the body of another (`-fno-inline -fno-ipa-cp -fno-ipa-ra` and the like, or
    /// functions of assembly).
    #[must_use]
    pub fn allow_parts(mut self, allow: bool) -> Replacement {
        self.allow_parts = allow;
        self
    }

    /// Runs the constructors of the input, on the thread that replaces. They run when everything is
    /// compiled and before anything is exchanged: calls of functions that are replaced still reach
    /// old code. Constructors of existing variables are left out where the input identifies them
    /// (C++ inline variables). Destructors are run by
    /// [`Jit::deinitialize`](crate::Jit::deinitialize), when the replaced code is removed, at the
    /// end of the session, or at exit of a program.
    ///
    /// By default none is run and [`Replaced::constructors_skipped`] lists them: a file that was
    /// compiled again mostly has constructors of existing variables, which would lose their
    /// contents.
    ///
    /// If a constructor traps, or a panic or an error of a host function leaves it, the replacement
    /// ends with that error: nothing is exchanged, and later constructors are not run. If the
    /// exchange fails afterwards, new definitions stay: constructors may have published their
    /// addresses.
    ///
    /// # Safety
    /// 1. The same requirements as calling any function of the input.
    #[must_use]
    pub unsafe fn run_constructors(mut self) -> Replacement {
        self.constructors = true;
        self
    }

    /// Accepts that a variable changed its type: it gets new storage, with the initializer of the
    /// input. `fill` is called once with the old bytes, their number, the new bytes and their
    /// number. All functions that mention the variable must be in the input. Pointers to it that
    /// are stored elsewhere still point at the old storage. After a rollback, code compiled
    /// meanwhile still uses the new storage.
    ///
    /// `fill` runs before anything has changed, while calls of the set wait (at
    /// [`Level::Quiescent`], while no thread runs old code). It must not call code of the session,
    /// nor the session.
    #[must_use]
    pub fn migrate(
        mut self,
        global: &str,
        fill: impl Fn(*const u8, usize, *mut u8, usize) + Send + Sync + 'static,
    ) -> Replacement {
        self.migrations.push(Migration {
            global: global.to_owned(),
            fill: Arc::new(fill),
        });
        self
    }

    /// Ends the wait of a [`Level::Quiescent`] replacement before its time is over, once `given_up`
    /// returns true. The replacement then fails with
    /// [`ReplaceError::StillRunning`](crate::ReplaceError::StillRunning), and nothing changes.
    /// `given_up` is called every few milliseconds on a thread of the session, while calls of the
    /// set wait: it must not call code of the session, nor the session. If it panics, the
    /// replacement fails.
    #[must_use]
    pub fn withdraw_when(
        mut self,
        given_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Replacement {
        self.withdrawal = Some(Withdrawal(Arc::new(given_up)));
        self
    }

    fn new(name: &str, input: ReplacementInput) -> Replacement {
        Replacement {
            name: name.to_owned(),
            input,
            level: Level::default(),
            allow_signatures: false,
            allow_parts: false,
            constructors: false,
            osr: false,
            migrations: Vec::new(),
            withdrawal: None,
        }
    }
}

/// The outcome of a replacement. Names are in the order of the input.
#[non_exhaustive]
pub struct Replaced {
    /// Functions whose code was exchanged.
    pub functions: Vec<String>,
    /// Functions that are new.
    pub added: Vec<String>,
    /// Functions that were compiled again, because their code held, or relied on, a body
    /// that was replaced.
    pub dependents: Vec<String>,
    /// Variables that are new.
    pub globals_added: Vec<String>,
    /// Variables that exist and keep their contents.
    pub globals_kept: Vec<String>,
    /// Local variables of an object file: they begin anew.
    pub locals_new: Vec<String>,
    /// Constructors and destructors of the input that were not run; see
    /// [`Replacement::run_constructors`].
    pub constructors_skipped: Vec<String>,
    /// Loops that threads may have been in, if [`Replacement::osr`] was on: each says whether it
    /// continues in new code.
    pub loops: Vec<OldLoop>,
    /// How long no call of a member could begin.
    pub closed: Duration,
    number: u64,
    old: ReplacedCode,
    replacing: Arc<Replacing>,
    /// Keeps the session.
    _handle: SessionHandle,
}

/// A handle of an embedder that keeps the session as long as it lives.
type SessionHandle = Arc<dyn Any + Send + Sync>;

impl fmt::Debug for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced")
            .field("functions", &self.functions)
            .field("added", &self.added)
            .field("dependents", &self.dependents)
            .field("globals_added", &self.globals_added)
            .field("globals_kept", &self.globals_kept)
            .field("locals_new", &self.locals_new)
            .field("constructors_skipped", &self.constructors_skipped)
            .field("loops", &self.loops)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Replaced {
    /// Lists the threads that still run, or will return into, code that this replacement replaced.
    /// Asks every thread of the process, each for microseconds; one that does not answer is listed
    /// without functions.
    ///
    /// # Errors
    /// [`Error::Roots`].
    pub fn activations(&self) -> Result<Vec<Activation>, Error> {
        quiet::scrub_stack();
        let old = self.old.clone();
        let what = String::from("a scan of threads");
        self.replacing.on_compile_thread(what, move |replacing| {
            let code = old.code(replacing);
            replacing.activations(&code, quiet::SCAN.1)
        })
    }
}
