//! The loader of a session: inputs that wait, and constructors and destructors of images.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use uruk_base::locks::{Mutex, MutexGuard, ranks};

use crate::fork::gate;
use crate::load::hooks::{Destructors, Schedule};
use crate::load::untrusted::InputLimits;
use crate::load::waiting::WaitingInputs;
use crate::version::compiler::Compiler;

/// Binds files to images; see [`load`](crate::load).
pub(crate) struct Loader {
    /// Inputs that were added before the definitions that they need.
    pub(crate) waiting: WaitingInputs,
    /// Constructors of images.
    schedule: Mutex<Schedule, ranks::LoaderSchedule>,
    destructors: Mutex<Destructors, ranks::LoaderDestructors>,
    /// Limits for reading inputs in another process first; not set if inputs are trusted.
    pub(crate) untrusted: OnceLock<InputLimits>,
    compiler: Arc<Compiler>,
    end: gate::End,
}

/// The compiler is below the loader.
impl Deref for Loader {
    type Target = Arc<Compiler>;

    fn deref(&self) -> &Arc<Compiler> {
        &self.compiler
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Loader {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Loader {
    /// The locked hooks of images, under a pass.
    pub(crate) fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock()
    }

    /// The locked table of destructors, under a pass.
    pub(crate) fn destructors(&self) -> MutexGuard<'_, Destructors> {
        self.destructors.lock()
    }

    /// The loader, for callers that hold a layer above it.
    pub(crate) fn loader(&self) -> &Loader {
        self
    }

    /// The loader of a session with this compiler.
    pub(crate) fn new(compiler: Arc<Compiler>) -> Arc<Loader> {
        Arc::new(Loader {
            waiting: WaitingInputs::default(),
            schedule: Mutex::default(),
            destructors: Mutex::default(),
            untrusted: OnceLock::new(),
            compiler,
            end: gate::End::default(),
        })
    }
}
