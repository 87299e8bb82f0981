//! A session while its code runs: tuning, samples, orders of first calls, replacements, archives.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uruk_files::OutputPath;

use super::dylib::Dylib;
use super::generator::GeneratorId;
use super::jit::Jit;
use crate::error::Error;
use crate::fork::gate;
use crate::load::archive::Archive;
use crate::load::settled::Settled;
use crate::replace::Replaced;
use crate::replace::Replacement;
use crate::replace::rollback::Rollback;
use crate::replace::rollback::RolledBack;
use crate::replace::turn;
use crate::told::watch;
use crate::tuning::views::TuningView;
use crate::units::{Members, add_members};

impl Jit {
    /// Results of the tuner so far, the functions with the most trials first; empty where
    /// the session is not [tuned](crate::JitBuilder::tune).
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// assert!(jit.tuning().is_empty(), "nothing ran yet");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn tuning(&self) -> Vec<TuningView> {
        let _pass = gate::enter();
        self.session().tuning_views()
    }

    /// Results of the tuner, for [`JitBuilder::tuned_before`](crate::JitBuilder::tuned_before) in
    /// another run on this machine: the best variant of each function that was tried, and the
    /// variants that helped similar functions.
    ///
    /// ```
    /// use uruk::Jit;
    ///
    /// let jit = Jit::builder().tune(true).build()?;
    /// let text = jit.tuning_text();
    /// let next = Jit::builder().tune(true).tuned_before(text).build()?;
    /// assert_eq!(next.stats().tuning.before.as_deref(), Some("0 functions known"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn tuning_text(&self) -> String {
        let _pass = gate::enter();
        self.session().tuning_text()
    }

    /// Writes [`tuning_text`](Jit::tuning_text) to a file atomically: on failure the old contents
    /// stay.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// let file = std::env::temp_dir().join(format!("uruk-tuning-{}", std::process::id()));
    /// jit.keep_tuning(&file).expect("there is room");
    /// assert_eq!(std::fs::read_to_string(&file).expect("it is there"), jit.tuning_text());
    /// # std::fs::remove_file(&file).expect("ours");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_tuning(&self, file: &Path) -> io::Result<()> {
        let file = OutputPath::new(file)?;
        let _pass = gate::enter();
        self.session().keep_tuning(&file)
    }

    /// Reports that `units` of work were done: requests answered, frames drawn. From the first call
    /// on, functions are [tuned](crate::JitBuilder::tune) for processor time per unit instead of
    /// per entry. Costs one atomic addition.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// jit.work_done(1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn work_done(&self, units: u64) {
        self.session().tuning.work_done(units);
    }

    /// Takes no samples until [`Jit::resume_sampling`]: no thread is interrupted for it. Earlier
    /// samples still count; functions are ranked by counters alone meanwhile. A session that has
    /// not begun to sample opens no source. The child of a fork inherits the pause.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.pause_sampling();
    /// // What must not be disturbed.
    /// jit.resume_sampling();
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn pause_sampling(&self) {
        let _busy = gate::enter();
        self.session().pause_sampling();
    }

    /// Ends [`Jit::pause_sampling`], at the previous rate: a pause is not counted as idleness, and
    /// an interrupted burst continues.
    pub fn resume_sampling(&self) {
        let _busy = gate::enter();
        self.session().resume_sampling();
    }

    /// Records the tiering policy's inputs from now on to `out`, as text of `uruk_tiering::stream`,
    /// 256 MiB at most: the package's example `simulate` replays it under other settings. It costs
    /// a line for every called function, at every read of the counters. Ends a recording already in
    /// progress.
    ///
    /// # Errors
    /// Those of `out`, or of the end of the previous recording.
    pub fn record_policy(&self, out: impl Write + Send + 'static) -> io::Result<()> {
        let _busy = gate::enter();
        self.session().record_policy(Box::new(out))
    }

    /// Ends [`Jit::record_policy`]. The end of a program of `uruk run`, and the drop of the last
    /// handle, end it too.
    ///
    /// # Errors
    /// The first error that `out` returned.
    pub fn end_policy_record(&self) -> io::Result<()> {
        self.session().end_policy_record()
    }

    /// The functions called so far, by their linkage names, in the order of their first calls, for
    /// another session of the same program to [compile ahead](Dylib::compile_ahead). Empty unless the
    /// session [speculates](crate::JitBuilder::speculate). Functions that were compiled ahead and
    /// called within the time of one compile appear in the expected order.
    pub fn first_calls(&self) -> Vec<String> {
        let _pass = gate::enter();
        self.session().first_calls()
    }

    /// Restores the state before the latest replacement. Variables keep their contents, added
    /// definitions stay, and functions that were removed meanwhile are left out. The last 8 can be
    /// rolled back, one after the other; see
    /// [`JitBuilder::replacements_kept`](crate::JitBuilder::replacements_kept).
    ///
    /// Uses the level of that replacement. A replacement that was published when no thread ran old
    /// code is rolled back when no thread runs the new code, so that its functions are never mixed.
    /// The maximal wait is the same. [`Jit::rollback_at`] takes another level.
    ///
    /// # Errors
    /// [`ReplaceError::NothingToRollBack`](crate::ReplaceError::NothingToRollBack),
    /// [`ReplaceError::StillRunning`](crate::ReplaceError::StillRunning) after the wait, and errors
    /// of compiling dependents. Nothing has changed then.
    pub fn rollback(&self) -> Result<RolledBack, Error> {
        self.rollback_at(Rollback::new())
    }

    /// Like [`Jit::rollback`], at a given level: [`Level::Immediate`](crate::Level::Immediate) also
    /// rolls back code that a thread never leaves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uruk::{Jit, Level, Replacement};
    ///
    /// let jit = Jit::new()?;
    /// jit.add_ir("m", "define i32 @answer() { ret i32 41 }")?;
    /// // SAFETY: the function above.
    /// let answer = unsafe { jit.function::<extern "C" fn() -> i32>("answer")? };
    /// let wait = Duration::from_secs(5);
    /// let fixed = Replacement::ir("fix", "define i32 @answer() { ret i32 42 }");
    /// jit.main().replace(fixed)?;
    /// jit.rollback_at(Level::Quiescent { wait })?;
    /// assert_eq!(answer.call(), 41);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Jit::rollback`].
    pub fn rollback_at(&self, how: impl Into<Rollback>) -> Result<RolledBack, Error> {
        self.session().roll_back(None, how.into())
    }

    /// Replaces functions of [`Jit::main`] by those of `files` (bitcode, IR text or objects)
    /// whenever one of them changes, for the rest of the process. Prints a line on standard error
    /// that lists the replaced functions, or the reason why not. A thread in a loop switches to the
    /// new body by OSR where it can ([`Replacement::osr`](crate::Replacement::osr)): a program's
    /// main loop is in a function that is never called again.
    ///
    /// # Errors
    /// No thread.
    pub fn watch(&self, files: &[PathBuf]) -> Result<(), Error> {
        watch::watch(self, files)
    }
}

impl Dylib {
    /// Exchanges the code of functions of this dylib while they run.
    ///
    /// The input may define any number of functions. Existing functions get its bodies and keep
    /// their addresses. New functions and variables are added; existing variables keep their
    /// address and contents. Local functions and variables are matched by name with those of the
    /// replaced modules. Constructors are run on request ([`Replacement::run_constructors`]).
    ///
    /// New functions and variables are removed and transferred with the functions that were
    /// replaced: with their tracker, or with the last of their trackers if there are several.
    ///
    /// Everything is compiled and linked first, dependent code that inlined or relies on a replaced
    /// body included. If anything fails, nothing has changed. Concurrent replacements run one after
    /// the other.
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
    /// [`Error::Replace`] and errors of compiling and linking.
    pub fn replace(&self, replacement: Replacement) -> Result<Replaced, Error> {
        let session = self.jit().session();
        let handle = Arc::new(self.jit().clone());
        turn::replace((&session.replacing, handle), &self.dylib, replacement)
    }

    /// Gives the expected order of first calls: a session that
    /// [speculates](crate::JitBuilder::speculate) compiles these functions ahead of their calls,
    /// before its own predictions. They are looked up now; names without a body, called before, or
    /// not defined yet are skipped.
    pub fn compile_ahead(&self, functions: &[&str]) {
        let _pass = gate::enter();
        let session = self.jit().session();
        session.expect_names(&self.dylib, functions.iter().copied());
    }

    /// Adds a static archive: members of bitcode or ELF objects.
    ///
    /// # Errors
    /// The file cannot be read or is no archive with an index, or the dylib was removed; with
    /// [`Members::All`], the error of adding a member. A member that cannot be added later is an
    /// error of the lookup that needs it.
    pub fn add_archive(&self, path: &Path, members: Members) -> Result<Option<GeneratorId>, Error> {
        add_members(self, Arc::new(Archive::read(path)?), members, Settled::NONE)
    }
}
