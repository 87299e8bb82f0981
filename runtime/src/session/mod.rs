//! A session: all rooms below the public handles, wired together.
//!
//! Each layer holds the layer below it and derefs to it. From the top: [`Session`], [`Replacing`],
//! [`Reclaim`], [`Tuning`], [`TierState`], [`Speculation`], [`Continuations`], [`Loader`],
//! [`Compiler`], [`CodeDirectory`]. So a room can use all layers below it, and rustc rejects a use
//! of a layer above. The compiler of versions calls the rooms above through one interface,
//! [`Engines`](crate::version::engines::Engines), which [`engines`] implements for the session.
//!
//! [`lifetime`] starts and ends a session's threads, and prepares it for a fork.

mod engines;
mod lifetime;

pub(crate) use lifetime::SessionEnd;

use std::ops::Deref;

use crate::code::directory::{CodeDirectory, DirectorySettings};
use crate::load::loader::Loader;
use crate::tiers::settings::TierSettings;
use crate::version::compiler::Compiler;
use std::sync::Weak;
use std::sync::{Arc, OnceLock};

use uruk_heap::HeapConfig;

use crate::calls::failed::{Context, OnFailure};
use crate::calls::functions::HostFunctions;
use crate::code::names::Reporter;
use crate::code::names::{Definition, NewName};
use crate::code::tools::Tools;
use crate::error::Error;
use crate::fork::gate;
use crate::guarded::asked::HandlerRegistration;
use crate::loops::state::Continuations;
use crate::reclaim::Reclaim;
use crate::replace::state::Replacing;
use crate::speculation::Speculation;
use crate::tiers::TierState;
use crate::tuning::Tuning;
use crate::version::baseline::Compilers;
use crate::version::layers::Layers;
use uruk_base::Tiers;

/// The top layer of a session, which holds all other layers.
pub(crate) struct Session {
    /// Functions of the host that have types.
    pub(crate) host: HostFunctions,
    /// Called before the session's threads end for good.
    pub(crate) before_end: OnceLock<fn(&Session)>,
    pub(crate) on_failure: OnceLock<Box<Context>>,
    /// Handles memory faults as long as the session lives.
    pub(crate) asked: OnceLock<HandlerRegistration>,
    pub(crate) replacing: Arc<Replacing>,
    end: gate::End,
}

/// The layer below: replacements.
impl Deref for Session {
    type Target = Arc<Replacing>;

    fn deref(&self) -> &Arc<Replacing> {
        &self.replacing
    }
}

/// Takes a pass: a session's fields take locks of the process when they are dropped. The thread
/// that drops the last handle keeps the pass until all fields are gone.
impl Drop for Session {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Session {
    /// Reserves memory, makes the stub table and all layers, and connects them. Starts no thread.
    pub(crate) fn new(
        config: HeapConfig,
        jobs: usize,
        tiers: TierSettings,
        tools: Tools,
        reclaim: uruk_reclaim::Config,
        reporter: Option<Reporter>,
        layers: Layers,
    ) -> Result<Arc<Session>, Error> {
        let speculate = tiers.speculate && tiers.tiers != Tiers::Churn;
        let ahead = Speculation::most(speculate, jobs, tiers.policy.cpus as usize);
        let code = CodeDirectory::new(DirectorySettings {
            heap: config,
            jobs,
            readers: jobs + tiers.background_jobs() + ahead,
            sampled: tiers.samples() != uruk_profiler::Choice::Off,
            tools,
            reclaim: &reclaim,
            reporter,
        })?;
        let overrides = crate::guest::overrides().into_iter();
        let overrides = overrides.map(|(name, at)| NewName::strong(name, Definition::Address(at)));
        let host = code.names.host().default_tracker()?;
        code.names.define(&host, overrides.collect())?;
        let baseline = Compilers::new(tiers.baseline);
        let compiler = Compiler::new(layers, baseline, tiers.choices(), code);
        let continuations = Continuations::new(Loader::new(compiler));
        let speculation = Speculation::new(ahead, continuations);
        let tuned = tiers.tuning.clone();
        let tuning = Tuning::new(&tuned, TierState::new(tiers, speculation));
        let reclaimed = Reclaim::new(&reclaim, tuning);
        let session = Session {
            host: HostFunctions::default(),
            before_end: OnceLock::new(),
            on_failure: OnceLock::new(),
            asked: OnceLock::new(),
            replacing: Replacing::new(reclaimed),
            end: gate::End::default(),
        };
        let session = Arc::new(session);
        let engines: Weak<Session> = Arc::downgrade(&session);
        session.serve(engines);
        Ok(session)
    }

    /// Sets the treatment of failed calls. Once, before any call.
    pub(crate) fn on_failure(&self, handler: OnFailure) {
        let context = || Context::new(self.directory(), handler);
        self.on_failure.get_or_init(context).install(&self.stubs);
    }
}
