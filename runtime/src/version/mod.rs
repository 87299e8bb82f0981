//! One version of a function, from the request to the slot. [`Compiler::make`] runs all phases; each
//! takes the result of the previous one.
//!
//! | phase | file | result |
//! |---|---|---|
//! | plan | [`plan`] | a body, bound; settings, with facts known of its surroundings |
//! | offers | [`offers`], [`rare`] | bodies of other modules that may be inlined |
//! | compile | [`build`] | an object |
//! | or without LLVM | [`baseline`] | code in memory, at tier 1 |
//! | or from a unit | `units::reoptimize` | an object that a unit made, linked |
//! | link | [`link`], [`drafts`], `code::constants` | bytes for their place |
//! | seal | [`link`] | code in its place, executable |
//! | called | [`called`] | over native code: all its callees have code |
//! | findable | [`findable`] | known to the unwinder, backtraces and tools |
//! | file | [`mod@file`], `code::records`, `code::blocks` | known to samples, reclaim and statistics |
//! | publish | [`publish`] | in the slot, or too late |
//!
//! Native code of the program's linker only takes the last two phases: [`native`].
//!
//! Requests come from [`calls`] for first calls, [`ahead`] for those still to come, `tiers` for
//! better versions, `replace` for new bodies, `units` for better code of units' functions.
//! `reclaim` undoes a version, in the opposite order.
//!
//! The [`compiler`] holds what all of these share. It knows the rooms above by one interface,
//! [`engines`], only.
//!
//! `uruk_tiering`'s [`FunctionVersions`] decides which version is stored into a slot, under the
//! lock of that function, inside which is only the slot. Versions that a publication makes unused
//! are retired.

pub(crate) mod ahead;
pub(crate) mod baseline;
pub(crate) mod build;
mod called;
pub(crate) mod calls;
pub(crate) mod choices;
pub(crate) mod compiler;
pub(crate) mod counts;
mod depends;
pub(crate) mod disassemble;
pub(crate) mod drafts;
pub(crate) mod engines;
pub(crate) mod exits;
mod file;
pub(crate) mod findable;
mod finish;
pub(crate) mod layers;
mod link;
pub(crate) mod native;
mod offers;
pub(crate) mod partition;
mod plan;
mod publish;
mod rare;
pub(crate) mod request;
mod telling;
mod together;
pub(crate) mod under_way;

use std::sync::Arc;
use std::time::Duration;

use uruk_base::parts::{self, Part};
use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Cancellation, Compile};
use uruk_tiering::{EntryAddress, FunctionVersions, Purpose, Ticket, VersionError};

use crate::code::body::Body;
use crate::error::{Error, Refusal};
use crate::fork::panics;
use crate::version::compiler::Compiler;
use crate::version::request::Made;
use crate::version::request::Request;
use build::Built;
pub(crate) use plan::BodyOf;
use publish::RecordedVersion;

impl Compiler {
    /// Compiles a version, links it, and publishes it unless that is too late.
    ///
    /// # Errors
    /// The compile's own, and cancellation; the previously published version stays.
    pub(crate) fn make(
        self: &Arc<Self>,
        request: Request,
        queued: Option<Duration>,
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        let mut how = self.choices.how(request.tier);
        if request.tier == Tier::Guided {
            how = self.engines().guide(request.function, how);
        }
        self.make_as(request, how, queued, cancel)
    }

    /// Like [`Compiler::make`], with settings of its own.
    ///
    /// # Errors
    /// Those of [`Compiler::make`].
    pub(crate) fn make_as(
        self: &Arc<Self>,
        request: Request,
        how: Compile,
        queued: Option<Duration>,
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        let refused = |cause: Refusal| {
            let function = self.name_of(request.function);
            Error::Version { function, cause }
        };
        let file = match self.body(request.function) {
            Some(Body::Object(object)) => Some(object.file.name.to_string()),
            Some(Body::Unit(unit)) => Some(unit.name.to_string_lossy().into_owned()),
            _ => None,
        };
        if let Some(file) = file {
            self.tell_dropped(request);
            return Err(refused(Refusal::FromObject { file }));
        }
        if request.purpose == Purpose::Change && self.versions.is_fixed(request.function) {
            self.tell_dropped(request);
            return Err(refused(Refusal::FirstStays));
        }
        let how = how.cancelled_by(cancel);
        self.make_with(request, queued, cancel, || {
            let how = self.plan(&request, how);
            self.build_once_or_for_good(request, how)
        })
    }

    /// Runs all phases, with a function that builds.
    pub(crate) fn make_with(
        self: &Arc<Self>,
        request: Request,
        queued: Option<Duration>,
        cancel: &Cancellation,
        build: impl FnOnce() -> Result<(Request, Built), Error>,
    ) -> Result<Made, Error> {
        let _planning = self.counters.parts.enter(Part::Planning);
        let versions = self.versions.of(request.function);
        let refused = self.refused(request.function);
        let _entered = self.under_way.enter(&request, cancel);
        let ticket = versions
            .request(request.version, request.tier, request.purpose)
            .map_err(refused)?;
        let made = || self.make_requested(request, build, &versions, ticket, queued);
        let made = panics::caught(made).inspect_err(|cause| {
            match cause.is_cancelled() {
                true => versions.cancel(request.version),
                false => versions.fail(request.version),
            };
            match cause {
                cause if cause.is_cancelled() => self.tell_cancelled(request),
                Error::Version { cause, .. } if cause.is_late() => self.tell_dropped(request),
                // The later caller gets the error.
                _ if request.ahead => {}
                cause => {
                    // The panic may come from a listener.
                    panics::contained(|| self.tell_failed(request, cause));
                }
            }
        });
        if made.is_err() && self.body(request.function).is_none() {
            // The function was removed meanwhile, maybe before the version was entered.
            drop(versions);
            self.versions.forget_idle(request.function);
        }
        made
    }

    /// Runs the phases of a version that its function's state accepts.
    fn make_requested(
        self: &Arc<Self>,
        request: Request,
        build: impl FnOnce() -> Result<(Request, Built), Error>,
        versions: &FunctionVersions,
        ticket: Ticket,
        queued: Option<Duration>,
    ) -> Result<Made, Error> {
        let refused = self.refused(request.function);
        versions.start(ticket).map_err(&refused)?;
        let started = self.events.now();
        let epoch = self.publications.epoch();
        let (request, built) = build()?;
        if let Err(cause) = self.make_called(request.tier, &built.called) {
            self.discard(request.function, built.unit, built.code);
            return Err(cause);
        }
        if let Err(cause) = versions.ready(ticket, EntryAddress(built.entry)) {
            self.discard(request.function, built.unit, built.code);
            return Err(refused(cause));
        }
        let _publishing = parts::enter(Part::Publishing);
        let returned = self.engines().note_code(request.function, built.bytes);
        let first = request.purpose == Purpose::First && !returned;
        // A continuation is code of a function that is already counted.
        let first = first && self.origin_of(request.function).is_none();
        self.counters
            .add_compile(first, built.compiling, built.linking, built.bytes);
        self.tell_compiled(request, &built, queued, started);
        let made = self.made(request, &built);
        let depends = self.depends(request.function, &built);
        self.file_version(request, built, Arc::clone(&depends));
        self.publish(
            RecordedVersion {
                request,
                made,
                depends,
                epoch,
                quiet: false,
            },
            versions,
            ticket,
        )
    }
}

impl Compiler {
    /// The error of a step that the function's state refuses.
    fn refused(&self, function: FunctionId) -> impl Fn(VersionError) -> Error {
        let function = self.name_of(function);
        move |cause| Error::Version {
            function,
            cause: cause.into(),
        }
    }
}
