//! Exchanges the code of functions while they run: a set at one instant, or not at all.
//!
//! ```text
//! input -> plan (what exists keeps its name) -> checks -> data and code, linked (prepare)
//!       -> dependents, compiled again -> stage, new bodies and plans, commit (commit)
//! ```
//!
//! Invariants:
//! - Everything that can fail comes before the commit; a failure leaves the program as it
//!   was.
//! - Of the modules that define a function, one offers its body to optimizers: that of the
//!   code that runs.
//! - No version is published that depends on something replaced since it was begun.
//!
//! Reading order: `plan` (names), `prepare` (checks, code), `migrate` (variables), `commit` (the instant),
//! `dependents`,
//! `quiet` (who runs old code), `watch` (files), `state`
//! (locks, epochs, history), `error`.

mod commit;
mod dependents;
mod error;
mod migrate;
mod plan;
mod prepare;
mod quiet;
mod state;
mod watch;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uruk_codegen::Bitcode;

use crate::core::Core;
use crate::dylib::Dylib;
use crate::error::Error;
use crate::jit::Jit;
use crate::load::Source;
use crate::service;

use self::commit::{Change, Way, What};
use self::migrate::Migration;
use self::prepare::{Allowed, Prepared, Staging};
use self::quiet::OldCode;

pub use self::error::ReplaceError;
pub(crate) use self::plan::Locals;
pub use self::quiet::Activation;
pub(crate) use self::state::Replacing;

/// When a set of functions is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Level {
    /// At one instant: calls that begin before it run old code to its end, calls that
    /// begin after it run new code.
    #[default]
    Immediate,
    /// At an instant at which nobody runs, or will return into, code of a member or code
    /// that depends on one. Until then calls of members wait, but those of threads that
    /// must go on to leave such code. If that takes longer than `wait`, nothing changes.
    /// A `fork` waits, too.
    Quiescent {
        /// The longest time calls are held up.
        wait: Duration,
    },
}

/// New code for functions that exist.
#[derive(Debug, Clone)]
pub struct Replacement {
    name: String,
    input: Input,
    level: Level,
    allow_signatures: bool,
    migrations: Vec<Migration>,
}

#[derive(Clone)]
enum Input {
    Bitcode(Arc<[u8]>),
    Ir(String),
    /// Whatever it is.
    File(Arc<[u8]>),
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Bitcode(bytes) => write!(f, "{} bytes of bitcode", bytes.len()),
            Input::File(bytes) => write!(f, "{} bytes", bytes.len()),
            Input::Ir(text) => write!(f, "{} bytes of IR", text.len()),
        }
    }
}

impl Replacement {
    /// From LLVM bitcode.
    pub fn bitcode(name: &str, bytes: impl Into<Arc<[u8]>>) -> Replacement {
        Replacement::new(name, Input::Bitcode(bytes.into()))
    }

    /// From LLVM IR text.
    pub fn ir(name: &str, text: &str) -> Replacement {
        Replacement::new(name, Input::Ir(text.to_owned()))
    }

    /// From a module built with inkwell; it is copied.
    pub fn module(module: &inkwell::module::Module<'_>) -> Replacement {
        let name = module.get_name().to_string_lossy().into_owned();
        Replacement::bitcode(&name, module.write_bitcode_to_memory().as_slice())
    }

    /// From what a file holds: bitcode or IR text, told by its content.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn file(path: &Path) -> Result<Replacement, Error> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|cause| Error::File {
            file: name.clone(),
            cause: Arc::new(cause),
        })?;
        Ok(Replacement::new(&name, Input::File(bytes.into())))
    }

    /// When it is exchanged. Default: [`Level::Immediate`].
    #[must_use]
    pub fn level(mut self, level: Level) -> Replacement {
        self.level = level;
        self
    }

    /// Accepts functions whose signature changed. Callers that are not replaced along, and
    /// [`Func`](crate::Func)s, go on calling as before: they must not.
    #[must_use]
    pub fn allow_signatures(mut self, allow: bool) -> Replacement {
        self.allow_signatures = allow;
        self
    }

    /// Accepts that a variable changed its type: it gets new storage, with the initializer
    /// of the input, and `fill` is called once with the old bytes, their number, the new
    /// bytes and theirs. All functions that mention the variable must be in the input, and
    /// pointers to it that are stored elsewhere go on pointing at the old one. So does, after
    /// a rollback, what was compiled meanwhile with the new one.
    ///
    /// `fill` runs before anything has changed, while calls of the set wait (at
    /// [`Level::Quiescent`], while nobody runs old code). It must not call code of the
    /// session, nor the session.
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

    fn new(name: &str, input: Input) -> Replacement {
        Replacement {
            name: name.to_owned(),
            input,
            level: Level::default(),
            allow_signatures: false,
            migrations: Vec::new(),
        }
    }
}

impl Input {
    fn bitcode(self, name: &str) -> Result<Bitcode, Error> {
        match self {
            Input::Bitcode(bytes) => Ok(Bitcode::new(name, bytes)),
            Input::Ir(text) => Ok(Bitcode::from_ir_text(name, &text)?),
            Input::File(bytes) => match Source::from_bytes(name, bytes.to_vec())? {
                Source::Bitcode(bitcode) => Ok(bitcode),
                Source::Object { file, .. } => Err(Error::from(ReplaceError::Construct {
                    file,
                    construct: "machine code (an object file)",
                })),
            },
        }
    }
}

/// What a replacement did. Names are in the order of the input.
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
    /// Constructors and destructors of the input: none is run.
    pub constructors_skipped: Vec<String>,
    /// How long no call of a member could begin.
    pub closed: Duration,
    number: u64,
    old: OldCode,
    jit: Jit,
}

impl fmt::Debug for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced")
            .field("functions", &self.functions)
            .field("added", &self.added)
            .field("dependents", &self.dependents)
            .field("globals_added", &self.globals_added)
            .field("globals_kept", &self.globals_kept)
            .field("constructors_skipped", &self.constructors_skipped)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Replaced {
    /// Goes back to what ran before this replacement, which must be the latest; see
    /// [`Jit::rollback`].
    ///
    /// # Errors
    /// [`ReplaceError::NotLatest`], also if it was rolled back already.
    pub fn rollback(&self) -> Result<Vec<String>, Error> {
        self.jit.core().roll_back(Some(self.number))
    }

    /// Which threads still run, or will return into, code that this replacement replaced.
    /// Asks every thread of the process, each for microseconds; one that does not answer is
    /// listed without functions.
    ///
    /// # Errors
    /// [`ReplaceError::Scan`].
    pub fn activations(&self) -> Result<Vec<Activation>, Error> {
        quiet::scrub_stack();
        let old = self.old.clone();
        let what = String::from("a scan of threads");
        let core = self.jit.core();
        core.on_compile_thread(what, move |core| core.activations(&old, quiet::SCAN.1))
    }
}

impl Dylib {
    /// Exchanges the code of functions of this dylib while they run.
    ///
    /// The input may define any number of functions. Those that exist get its bodies; their
    /// addresses stay. Those that do not exist are added, as are new variables; variables
    /// that exist keep their address and contents. Local functions and variables are
    /// matched by name with those of the modules that are replaced. Constructors are not
    /// run.
    ///
    /// Everything is compiled and linked first, as is code elsewhere that holds, or relies
    /// on, a body that is replaced. If anything fails, nothing has changed. Of several
    /// replacements at a time, each waits for the one before.
    ///
    /// ```
    /// use uruk::{Jit, Replacement};
    ///
    /// let jit = Jit::new()?;
    /// jit.add_ir("m", "define i32 @answer() { ret i32 41 }")?;
    /// // SAFETY: the function above.
    /// let answer = unsafe { jit.function::<extern "C" fn() -> i32>("answer")? };
    /// assert_eq!(answer.call(), 41);
    /// let fixed = Replacement::ir("fix", "define i32 @answer() { ret i32 42 }");
    /// let replaced = jit.main().replace(fixed)?;
    /// assert_eq!(answer.call(), 42);
    /// replaced.rollback()?;
    /// assert_eq!(answer.call(), 41);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Replace`] and whatever compiling and linking report.
    #[inline(never)]
    pub fn replace(&self, replacement: Replacement) -> Result<Replaced, Error> {
        if replacement.level == Level::Immediate {
            return self.replace_here(replacement);
        }
        // What is known about code, old and new, is not to be found on this stack.
        quiet::scrub_stack();
        let dylib = self.clone();
        let what = replacement.name.clone();
        let core = self.jit.core();
        core.on_compile_thread(what, move |_| dylib.replace_here(replacement))
    }

    fn replace_here(&self, replacement: Replacement) -> Result<Replaced, Error> {
        let core = self.jit.core();
        let _turn = core.replacing.turn();
        let staging = {
            let _pass = service::enter();
            Arc::new(Staging::new(core, &self.dylib)?)
        };
        let undo = |cause: Error| {
            let _pass = service::enter();
            staging.undo();
            cause
        };
        let prepared = {
            let (staging, dylib) = (Arc::clone(&staging), self.dylib.clone());
            let Replacement { name, input, .. } = replacement.clone();
            let allowed = Allowed {
                signatures: replacement.allow_signatures,
                migrations: replacement.migrations.clone(),
            };
            core.on_compile_thread(name.clone(), move |core| {
                let bitcode = input.bitcode(&name)?;
                core.prepare_replacement(&dylib, bitcode, &allowed, &staging)
            })
        };
        let Prepared {
            members,
            added,
            globals_added,
            globals_kept,
            constructors_skipped,
            moves,
        } = prepared.map_err(undo)?;
        let functions = members.iter().map(|member| core.display_of(member.id));
        let functions = functions.collect();
        let changes = members.into_iter().map(|member| Change {
            id: member.id,
            function: member.function,
            next: What::Code(Box::new(member.code)),
        });
        let way = Way {
            tracker: Some(staging.tracker()),
            moves,
            back: Vec::new(),
        };
        let (changes, level) = (changes.collect(), replacement.level);
        let done = core.commit_set(changes, way, level);
        let done = done.map_err(|(cause, changes)| {
            drop(changes);
            undo(cause)
        })?;
        let number = done.set.number;
        let _pass = service::enter();
        core.replacing.file(done.set);
        Ok(Replaced {
            functions,
            added,
            dependents: done
                .dependents
                .iter()
                .map(|&id| core.display_of(id))
                .collect(),
            globals_added,
            globals_kept,
            constructors_skipped,
            closed: done.closed,
            number,
            old: done.old,
            jit: self.jit.clone(),
        })
    }
}

impl Jit {
    /// Goes back to what ran before the latest replacement; the functions whose code was
    /// exchanged. Variables keep their contents, and what was new stays. The last 8 can be
    /// rolled back, one after the other; see [`JitBuilder::replacements_kept`].
    ///
    /// # Errors
    /// [`ReplaceError::NothingToRollBack`], and whatever compiling dependents reports.
    ///
    /// [`JitBuilder::replacements_kept`]: crate::JitBuilder::replacements_kept
    pub fn rollback(&self) -> Result<Vec<String>, Error> {
        self.core().roll_back(None)
    }
}

impl Core {
    fn roll_back(self: &Arc<Self>, number: Option<u64>) -> Result<Vec<String>, Error> {
        let _turn = self.replacing.turn();
        let taken = {
            let _pass = service::enter();
            let taken = self.replacing.take(number);
            taken.ok_or_else(|| match number {
                None => ReplaceError::NothingToRollBack,
                Some(number) => ReplaceError::NotLatest {
                    number,
                    latest: self.replacing.latest().unwrap_or(0),
                },
            })?
        };
        let state::Set {
            number,
            before,
            moved,
            _tracker: tracker,
        } = taken;
        let changes = before.into_iter().map(|before| Change {
            id: before.id,
            function: before.function,
            next: before.kept.map_or(What::Unbound, What::Restored),
        });
        let way = Way {
            back: moved.clone(),
            ..Way::default()
        };
        match self.commit_set(changes.collect(), way, Level::Immediate) {
            Ok(done) => Ok(done
                .set
                .before
                .iter()
                .map(|b| self.display_of(b.id))
                .collect()),
            Err((cause, changes)) => {
                let before = changes.into_iter().map(|change| state::Before {
                    id: change.id,
                    function: change.function,
                    kept: match change.next {
                        What::Restored(kept) => Some(kept),
                        What::Code(_) | What::Unbound => None,
                    },
                });
                let _pass = service::enter();
                self.replacing.file(state::Set {
                    number,
                    before: before.collect(),
                    moved,
                    _tracker: tracker,
                });
                Err(cause)
            }
        }
    }

    fn display_of(&self, id: uruk_stubs::FunctionId) -> String {
        self.name_of(id).to_owned()
    }
}
