//! From a plan to code that is ready: offers, compile, link. The code is not reachable yet.
//!
//! # Why
//! A body is a definition of the session under a tracker of its own: its parts are removed together.
//! Its production begins with its definition ([`Tracker::begin`](uruk_session::Tracker::begin)), as no
//! other thread can look it up. Functions are defined in the session at their stubs' addresses, ready from the start; `host`
//! answers for the process by a generator.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_base::parts::{self, Part};
use uruk_base::{CompiledBy, FunctionId};
use uruk_codegen::{Compile, Compiled, Labels};
use uruk_heap::Sealed;
use uruk_link::Linked;
use uruk_session::{Flags, SessionError};
use uruk_tiering::Purpose;

use super::baseline::Assembled;
use super::exits;
use super::offers::Crossing;
use super::plan::BodyOf;
use crate::code::blocks::{LinkedCode, Rest};
use crate::code::records::BodyTracker;
use crate::code::words::ProbeWords;
use crate::error::{Error, Refusal};
use crate::events::staying::Staying;
use crate::fork::panics;
use crate::version::compiler::Compiler;
use crate::version::request::Request;

/// A version that is ready to run; it is not reachable yet.
pub(crate) struct Built {
    pub(crate) unit: Option<BodyTracker>,
    pub(crate) entry: u64,
    /// End of the function itself.
    pub(crate) body_end: u64,
    /// Bytes of code.
    pub(crate) bytes: u64,
    pub(crate) compiling: Duration,
    pub(crate) linking: Duration,
    /// The words in which its probes count.
    pub(crate) words: Option<ProbeWords>,
    /// Its memory.
    pub(crate) code: LinkedCode,
    /// The results of codegen, without the object.
    pub(crate) compiled: Compiled,
    pub(crate) by: CompiledBy,
    /// Functions of other modules whose bodies it took, and their dependences.
    pub(crate) foreign: Vec<FunctionId>,
    /// Functions it calls by their stubs; listed only over native code.
    pub(crate) called: Vec<FunctionId>,
    /// Whether the program may keep addresses of its private definitions.
    pub(crate) escapes: bool,
    /// Hash of the object that it was linked from, if LLVM made one.
    pub(crate) object: Option<u64>,
}

impl Built {
    /// Makes a version of linked code: its code lies in `memory`, and its other resources in
    /// `rest`.
    pub(crate) fn new(
        name: &'static CStr,
        linked: Linked,
        memory: Sealed,
        body: Range<u64>,
        movable: bool,
        rest: Rest,
    ) -> Built {
        Built {
            unit: None,
            entry: body.start,
            body_end: body.end,
            bytes: linked.code.len() as u64,
            compiling: Duration::ZERO,
            linking: Duration::ZERO,
            words: None,
            code: LinkedCode {
                memory,
                entry: body.start,
                body_end: body.end,
                text_size: linked.text_size,
                rows: linked.fdes,
                name,
                unwind: linked.eh_frame.as_ref().map_or(0, |records| records.size),
                moves: movable.then_some(linked.moves),
                rest: Arc::new(rest),
            },
            compiled: Compiled::default(),
            by: CompiledBy::Unit,
            foreign: Vec::new(),
            called: Vec::new(),
            escapes: false,
            object: None,
        }
    }
}

impl Compiler {
    /// Builds the version of a request. If the code of the first version can never be exchanged,
    /// the best possible version.
    pub(super) fn build_once_or_for_good(
        self: &Arc<Self>,
        mut request: Request,
        how: Compile,
    ) -> Result<(Request, Built), Error> {
        let id = request.function;
        let cancel = how.cancel.clone();
        let body = self.body_of(id)?;
        let built = match self.build_body(body, how.clone()) {
            Err(Error::Heap(cause)) if self.engines().reclaim_for_more(&cause) => {
                self.build_body(self.body_of(id)?, how)?
            }
            built => built?,
        };
        let labels = built.compiled.labels;
        let for_ever = labels == Labels::Fixed;
        if labels >= Labels::Escape
            && request.purpose != Purpose::First
            && self.choices.has_native()
        {
            // Native code exists, whose labels' addresses the program may have.
            self.versions.note_fixed(id, Staying::NativeLabels);
            self.discard(id, built.unit, built.code);
            let function = self.name_of(id);
            let cause = Refusal::FirstStays;
            return Err(Error::Version { function, cause });
        }
        if !(for_ever || self.is_stuck(id, &built.compiled)?) || request.purpose != Purpose::First {
            return Ok((request, built));
        }
        if for_ever {
            self.versions.note_fixed(id, Staying::Coroutine);
        }
        let best = self.choices.only(request.tier);
        if best == request.tier {
            return Ok((request, built));
        }
        // The first version is final.
        request.tier = best;
        let mut how = self.choices.how(best);
        how.cancel = cancel;
        let again = self.body_of(id);
        let again = again.and_then(|body| self.build_body(body, self.plan(&request, how)));
        self.discard(id, built.unit, built.code);
        Ok((request, again?))
    }

    /// True for the function the program starts at, if it has loops and none can be left: it is
    /// never called again, so a better version would not be reached.
    fn is_stuck(&self, id: FunctionId, compiled: &Compiled) -> Result<bool, Error> {
        let heads = &compiled.heads;
        if !self.choices.is_auto() || !self.choices.is_entry_point(id) {
            return Ok(false);
        }
        Ok(match (heads.counted.is_empty(), compiled.fingerprint) {
            (true, _) => !heads.refused.is_empty(),
            (false, Some(_)) => exits::are_none(self, &self.body_of(id)?),
            (false, None) => false,
        })
    }

    /// Compiles and links a body under a tracker of its own in the session, so that its parts are
    /// removed together. The body need not be the function's own yet.
    pub(crate) fn build_body(self: &Arc<Self>, body: BodyOf, how: Compile) -> Result<Built, Error> {
        let number = self.versions.take_number();
        let built = self.build_under_tracker(number, &body, &how);
        built.inspect_err(|_| self.versions.give_number(number))
    }

    fn build_under_tracker(
        self: &Arc<Self>,
        number: usize,
        body: &BodyOf,
        how: &Compile,
    ) -> Result<Built, Error> {
        let symbol = self.names.body_symbol(number);
        let tracker = self.names.bodies.create_tracker()?;
        let flags = Flags::EXPORTED.with(Flags::CALLABLE);
        let responsibility = tracker.begin(&[(symbol, flags)])?;
        let built = {
            let _making = responsibility.making();
            panics::caught(|| self.build(body, how))
        };
        let mut built = built.inspect_err(|cause| {
            if let Error::Session(cause @ SessionError::Panicked { .. }) = cause {
                self.names.session().report(cause);
            }
            // The responsibility is void then. Fails if the session ended meanwhile.
            let _ = tracker.remove();
        })?;
        match responsibility.publish(&[(symbol, built.entry)], &[]) {
            Ok(()) => {
                built.unit = Some(BodyTracker { tracker, number });
                Ok(built)
            }
            Err(told) => {
                let _ = tracker.remove();
                self.discard(body.id, None, built.code);
                Err(self.without_symbol(body.id, Some(told)))
            }
        }
    }

    /// Renames an error of the session about the unit of a version to the function: the unit's
    /// symbol is a number.
    pub(crate) fn without_symbol(&self, function: FunctionId, told: Option<SessionError>) -> Error {
        let what = match told {
            Some(SessionError::Failed {
                cause: Some(cause), ..
            }) => return Error::Session((*cause).clone()),
            Some(SessionError::Failed { cause: None, .. }) => "failed",
            Some(SessionError::Removed(_) | SessionError::TrackerDefunct { .. }) => "was cancelled",
            Some(SessionError::Abandoned(_) | SessionError::NotFound(_)) | None => "was abandoned",
            Some(other) => return Error::Session(other),
        };
        Error::Version {
            function: self.name_of(function),
            cause: Refusal::Unfinished { what },
        }
    }

    /// Compiles and links a body, with offers of other modules if possible; the code is not
    /// reachable yet.
    fn build(self: &Arc<Self>, body: &BodyOf, how: &Compile) -> Result<Built, Error> {
        let start = Instant::now();
        let crossing = self.crossing(body, how)?;
        if crossing.is_empty() {
            return self.build_with(start, body, how, &crossing);
        }
        match self.build_with(start, body, &crossing.offer(how), &crossing) {
            Ok(built) if self.offers_hold(&crossing, &built.compiled.taken) => return Ok(built),
            Ok(built) => self.discard(body.id, built.unit, built.code),
            Err(Error::Heap(cause)) => return Err(Error::Heap(cause)),
            Err(cause) if cause.is_cancelled() => return Err(cause),
            // An offered function may have been removed meanwhile.
            Err(_) => {}
        }
        self.build_with(start, body, how, &Crossing::default())
    }

    /// Compiles and links a body; the code is not reachable yet.
    fn build_with(
        self: &Arc<Self>,
        start: Instant,
        body: &BodyOf,
        how: &Compile,
        crossing: &Crossing,
    ) -> Result<Built, Error> {
        let (compiled, assembled) = self.compile(body, how)?;
        let compiling = start.elapsed();
        let start = Instant::now();
        let mut built = self.link(body, how.tier, compiled, assembled, crossing)?;
        built.compiling = compiling;
        built.linking = start.elapsed();
        Ok(built)
    }

    /// Compiles a body: to an object, or to code in memory.
    fn compile(
        self: &Arc<Self>,
        body: &BodyOf,
        how: &Compile,
    ) -> Result<(Compiled, Option<Assembled>), Error> {
        let function = &body.function;
        // For all code, including replacements and trial variants.
        let how = how.clone().with_lines(self.tools.want_lines());
        let mut how = how.with_variables(self.tools.want_variables());
        how.transform.clone_from(&self.layers.ir);
        // The frame layout of code that an embedder changes is unknown.
        how.leaves &= self.layers.ir.is_none();
        how.start = match &function.origin {
            Some(origin) => Some(exits::start_of(self, body.id, origin)?),
            None => None,
        };
        let mut sketched = false;
        if self.wants_baseline(body.id, &how)
            && let Some((compiled, assembled)) =
                self.compile_without_llvm(body, &how, &mut sketched)
        {
            return Ok((compiled, Some(assembled)));
        }
        if !uruk_late::is_open() && self.engines().is_guess(body.id) {
            // A prediction is no reason to load LLVM.
            return Err(self.cancelled(body.id));
        }
        let mut reader = {
            let _reading = parts::enter(Part::Reading);
            function.module.reader()?
        };
        if !sketched
            && self.engines().wants_sketch(body.id)
            && let Ok(sketch) = reader.sketch(function.symbol)
        {
            let module = &function.module;
            self.engines().sketched(body.id, module, &body.plan, sketch);
        }
        let key = self.layers.cache.is_some() && how.is_storable();
        let key = key.then(|| reader.key(&body.plan, function.symbol, &how));
        if let Some(known) = key.and_then(|key| self.layers.cached(&key)) {
            return Ok((known, None));
        }
        match reader.compile(&body.plan, function.symbol, &how) {
            Ok(compiled) => {
                drop(reader);
                key.inspect(|key| self.layers.keep(key, &compiled));
                Ok((compiled, None))
            }
            // The reader's state is still valid.
            Err(error) if error.is_cancelled() => Err(error.into()),
            Err(error) => {
                reader.discard();
                Err(error.into())
            }
        }
    }
}
