//! Better code of a unit's function: requested from its unit, linked as a version like any other.
//!
//! The request is a unit of the session ([`BetterUnit`]), as a compile of IR is: under a tracker of
//! its own, and ready when all dependences of the code are. The requesting thread waits for that,
//! and continues with the outcome ([`PendingReoptimization`]).
//!
//! | thread | action |
//! |---|---|
//! | a thread for code of embedders, or one of the embedder | has the session look the version's symbol up ([`Session::build_better`]) |
//! | the same thread, or another one of these kinds | calls the reoptimizer |
//! | the holder of the request | links, and ends the responsibility, once |
//!
//! The object's memory is the version's own: it may move, and is freed with the version, unless the
//! program can keep an address of its private definitions. So the object exports no definitions,
//! and names that are already defined refer to the existing definition ([`Session::link_better`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::Instant;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::Cancellation;
use uruk_heap::Sealed;
use uruk_link::{Graph, Hint, Kind as LinkKind, LayoutOptions, Linked, Object, Place, Placed};
use uruk_session::{
    DependenceGroup, DylibId, Flags, Interface, Making, Responsibility, SessionError, Symbol, Unit,
};
use uruk_tiering::{Late, VersionError};

use crate::api::improve::ReoptimizeRequest;
use crate::code::blocks::{Rest, split};
use crate::code::body::Body;
use crate::code::holding::Uses;
use crate::code::kept::KeptResources;
use crate::code::unit_body::UnitBody;
use crate::error::{Error, Missing, Refusal};
use crate::fork::errands::Errand;
use crate::fork::{gate, panics};
use crate::load::objects::is_function;
use crate::session::Session;
use crate::units;
use crate::units::bodies::Improving;
use crate::units::materialize::{Outcome, materialize_version};
use crate::version::build::Built;
use crate::version::findable::NewCode;
use crate::version::request::Made;
use crate::version::request::Request;
use std::time::Duration;

/// A request for better code, and its answer.
pub(crate) struct PendingReoptimization {
    session: Arc<Session>,
    pub(crate) request: Request,
    pub(crate) unit: UnitBody,
    pub(crate) cancel: Cancellation,
    /// The symbol of the version in the session.
    symbol: Symbol,
    since: Instant,
    /// `None` before the call of the reoptimizer, and once it was answered.
    responsibility: Mutex<Option<Responsibility>>,
    outcome: Outcome,
    /// The thread that calls the reoptimizer, and whether the call is still running: a panic there
    /// is reported with its text. Relaxed: used on that thread only.
    asking: Mutex<Option<ThreadId>>,
    is_asking: AtomicBool,
}

/// The request as a unit of the session.
struct BetterUnit(Arc<PendingReoptimization>);

impl Unit for BetterUnit {
    fn name(&self) -> &str {
        self.0.unit.name.to_str().unwrap_or("?")
    }

    fn interface(&self) -> Interface {
        let flags = Flags::EXPORTED.with(Flags::CALLABLE);
        [(self.0.symbol, flags)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let BetterUnit(asked) = *self;
        *asked.lock() = Some(responsibility);
        let session = Arc::clone(&asked.session);
        let ask = move || {
            let _others = Errand::Others.begin();
            let _making = asked.making();
            asked.ask();
        };
        // Without a thread the responsibility is dropped: the function keeps its code.
        session.hands.run(ask);
    }
}

impl PendingReoptimization {
    fn lock(&self) -> MutexGuard<'_, Option<Responsibility>> {
        self.responsibility.lock()
    }

    /// Declares this thread as the maker; called without a pass.
    fn making(&self) -> Option<Making> {
        let _pass = gate::enter();
        self.lock().as_ref().map(Responsibility::making)
    }

    fn function(&self) -> &'static str {
        self.session.name_of(self.request.function)
    }

    fn refused(&self, cause: Refusal) -> Error {
        let function = self.function();
        Error::Version { function, cause }
    }

    /// The error that the object contains a construct that only whole images may have.
    fn of_an_image(&self, construct: &'static str) -> Error {
        self.refused(Refusal::Construct { construct })
    }

    /// Checks that the linked object has no code that must run before the function.
    fn check_runs_nothing(&self, linked: &Linked) -> Result<(), Error> {
        let arrays = [&linked.preinit, &linked.init, &linked.fini];
        if arrays.iter().any(|list| !list.is_empty()) {
            return Err(self.of_an_image("constructors or destructors"));
        }
        match linked.ifuncs.is_empty() {
            true => Ok(()),
            false => Err(self.of_an_image("ifuncs")),
        }
    }

    fn cancelled(&self) -> Error {
        self.session.cancelled(self.request.function)
    }

    /// Calls the reoptimizer, without a pass.
    fn ask(self: Arc<Self>) {
        let improver = Improving::of(&self.unit);
        let jit = improver.as_ref().and_then(|it| it.jit());
        let Some((jit, improver)) = jit.zip(improver) else {
            return self.fail(Error::Session(SessionError::Ended));
        };
        let improvement = {
            let _pass = gate::enter();
            let mut asking = self.asking.lock();
            *asking = Some(std::thread::current().id());
            self.is_asking.store(true, Ordering::Relaxed);
            ReoptimizeRequest::new(jit, Arc::clone(&self))
        };
        let asked = panics::caught(|| {
            improver.improve(improvement);
            Ok(())
        });
        self.is_asking.store(false, Ordering::Relaxed);
        if let Err(panic) = asked {
            self.fail(panic);
        }
    }

    /// Handles a dropped request.
    pub(crate) fn dropped(&self) {
        let asking = {
            let _pass = gate::enter();
            let thread = self.asking.lock();
            *thread == Some(std::thread::current().id()) && self.is_asking.load(Ordering::Relaxed)
        };
        // Otherwise the calling thread reports the panic.
        if !(asking && std::thread::panicking()) {
            let _pass = gate::enter();
            self.fail(self.refused(Refusal::Unanswered));
        }
    }

    /// Answers that no better code exists.
    pub(crate) fn decline(&self) {
        let _pass = gate::enter();
        let tier = self.request.tier;
        self.fail(self.refused(Refusal::Declined { tier }));
    }

    /// Answers that better code cannot be made.
    pub(crate) fn fail(&self, error: Error) {
        let _pass = gate::enter();
        let Some(responsibility) = self.lock().take() else {
            return;
        };
        let text = error.to_string();
        *self.outcome() = Some(Err(error));
        responsibility.fail(SessionError::unit(self.function(), text));
    }

    /// Makes the version a jump to an address.
    pub(crate) fn jump(&self, address: u64, kept: KeptResources) -> Result<(), Error> {
        let _pass = gate::enter();
        // `jmp [rip]`, and the address behind it.
        let mut bytes = vec![0xff, 0x25, 0, 0, 0, 0];
        bytes.extend(address.to_le_bytes());
        let mut code = units::ObjectBuilder::new();
        code.function(self.own_name(), &bytes);
        self.link(self.function(), &code.finish()?, kept)
    }

    fn own_name(&self) -> &str {
        self.unit.dylib.session().name(self.unit.own)
    }

    /// Links the object with the better code.
    pub(crate) fn link(&self, name: &str, bytes: &[u8], kept: KeptResources) -> Result<(), Error> {
        let _pass = gate::enter();
        if self.cancel.is_cancelled() {
            self.fail(self.cancelled());
            return Err(self.cancelled());
        }
        let compiling = self.since.elapsed();
        let linking = Instant::now();
        match self.session.link_better(self, name, bytes, kept) {
            Ok((mut built, dependences)) => {
                (built.compiling, built.linking) = (compiling, linking.elapsed());
                self.emit(built, dependences)
            }
            Err(error) => {
                self.fail(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the responsibility with the code that was made.
    fn emit(&self, built: Built, dependences: Dependences) -> Result<(), Error> {
        let responsibility = self.lock().take();
        let Some(responsibility) = responsibility else {
            self.session
                .discard(self.request.function, built.unit, built.code);
            return Err(self.cancelled());
        };
        let entry = built.entry;
        *self.outcome() = Some(Ok(built));
        let group = DependenceGroup {
            symbols: vec![self.symbol],
            dependences,
        };
        let resolved = responsibility.resolve(&[(self.symbol, entry)]);
        let told = resolved.and_then(|()| responsibility.emit(&[group]));
        told.map_err(|cause| {
            self.give_up();
            Error::Session(cause)
        })
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Result<Built, Error>>> {
        self.outcome.lock()
    }

    /// Retires code that is not needed any more.
    fn give_up(&self) {
        let outcome = self.outcome().take();
        if let Some(Ok(built)) = outcome {
            self.session
                .discard(self.request.function, built.unit, built.code);
        }
    }
}

impl Session {
    /// Like [`Compiler::make`](crate::version::compiler::Compiler::make), for a function whose code
    /// `unit` makes. On a thread for code of embedders.
    ///
    /// # Errors
    /// Those of [`Compiler::make`](crate::version::compiler::Compiler::make), and the unit's.
    pub(crate) fn make_better(
        self: &Arc<Self>,
        request: Request,
        unit: &UnitBody,
        queued: Option<Duration>,
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        self.make_with(request, queued, cancel, || {
            self.build_better(request, unit, cancel)
        })
    }

    /// Requests better code from the unit of a function, and waits until it is ready. Under a pass,
    /// on a thread for code of embedders.
    pub(super) fn build_better(
        self: &Arc<Self>,
        request: Request,
        unit: &UnitBody,
        cancel: &Cancellation,
    ) -> Result<(Request, Built), Error> {
        let id = request.function;
        // From here on a replacement of the unit is detected.
        if !self.is_of_unit(id, unit) {
            let function = self.name_of(id);
            let late = VersionError::Late(Late::Replaced);
            let cause = Refusal::State(late);
            return Err(Error::Version { function, cause });
        }
        let outcome = Outcome::default();
        let built = materialize_version(self, id, &outcome, |symbol, tracker| {
            self.under_way.asks(request.version, tracker);
            BetterUnit(Arc::new(PendingReoptimization {
                session: Arc::clone(self),
                request,
                unit: unit.clone(),
                cancel: cancel.clone(),
                symbol,
                since: Instant::now(),
                responsibility: Mutex::new(None),
                outcome: Arc::clone(&outcome),
                asking: Mutex::new(None),
                is_asking: AtomicBool::new(false),
            }))
        });
        match built {
            // The wait was cancelled.
            Err(_) if cancel.is_cancelled() => Err(self.cancelled(id)),
            built => Ok((request, built?)),
        }
    }

    /// Whether the code of a function still is that unit's.
    pub(super) fn is_of_unit(&self, id: FunctionId, unit: &UnitBody) -> bool {
        matches!(self.body(id), Some(Body::Unit(own)) if own.symbol == unit.symbol)
    }

    /// Links an object with better code of a function, and makes it findable; returns its
    /// dependences.
    fn link_better(
        &self,
        asked: &PendingReoptimization,
        name: &str,
        bytes: &[u8],
        kept: KeptResources,
    ) -> Result<(Built, Dependences), Error> {
        let dylib = &asked.unit.dylib;
        let own = asked.own_name();
        let changed = match self.layers.changes_objects() {
            true => Some(self.layers.object(name, bytes.to_vec())?),
            false => None,
        };
        let object = changed.as_deref().unwrap_or(bytes);
        let graph = self.graph_of(asked, name, object)?;
        let needed = graph.undefined().filter(|needed| needed.name != own);
        let needed = needed.map(|needed| self.names.session().intern(needed.name));
        let found = self.resolved(dylib, needed.collect())?;
        let is_stub = |name: &str| name == own || self.names.is_ready_function(dylib, name);
        let options = LayoutOptions {
            merge_read_only: true,
            ..LayoutOptions::default()
        };
        let laid = graph.layout_with(&options, |name| match is_stub(name) {
            // Stubs and slots are in the reservation.
            true => Hint::Near,
            false => Hint::Unknown,
        })?;
        if laid.tls().is_some() {
            return Err(asked.of_an_image("thread-locals"));
        }
        let mut drafts = self.allocate(&laid)?;
        let placed = laid.place(drafts.placement(None))?;
        let extents = extents(&placed);
        let body = extents.iter().find(|(name, _)| &**name == own);
        let body = body.map(|(_, body)| body.clone());
        let body = body.ok_or_else(|| lacks(own))?;
        let id = asked.request.function;
        let mut uses = Uses::default();
        let linked = placed.fix_up(|name, need| {
            let resolved = match name == own {
                true => self.resolved_stub(id),
                false => self.resolve_found(&found, name, need)?,
            };
            self.owners.note_use(&resolved, &self.heap, &mut uses);
            Some(resolved)
        })?;
        asked.check_runs_nothing(&linked)?;
        let code = drafts.code_range();
        for (function, range) in extents {
            self.stacks
                .note_function(&function, &linked, code.start, range);
        }
        drafts.write(&linked)?;
        let (memory, data) = split(drafts.seal()?);
        let memory = memory.ok_or_else(|| lacks(own))?;
        self.make_findable(&NewCode {
            name: asked.unit.name,
            tier: asked.request.tier,
            stands_in: false,
            body: body.clone(),
            code,
            object: Some(object),
            linked: &linked,
            symbol: own,
        })?;
        let rest = Rest::new(data, None, uses).with_kept(kept);
        let built = self.built(asked, memory, body, linked, rest);
        Ok((built, found.dependences()))
    }

    /// The graph of an object. Its references to the function, and to names that the function's
    /// dylib defines, are bound to those definitions.
    fn graph_of<'o>(
        &self,
        asked: &PendingReoptimization,
        name: &str,
        object: &'o [u8],
    ) -> Result<Graph<'o>, Error> {
        let own = asked.own_name();
        let dylib = &asked.unit.dylib;
        let mut graph = Graph::new(vec![Object::parse(name, object)?])?;
        self.layers.link(name, &mut graph)?;
        let is_own = |place: Place<'_>| place.definition.name == own && is_function(&place);
        if !graph.places().any(is_own) {
            return Err(lacks(own));
        }
        graph.preempt(|definition| {
            definition.name == own || self.names.is_own(dylib, definition.name)
        });
        Ok(graph)
    }

    /// Makes a version of linked code.
    fn built(
        &self,
        asked: &PendingReoptimization,
        memory: Sealed,
        body: Range<u64>,
        linked: Linked,
        rest: Rest,
    ) -> Built {
        let movable = linked.immovable.is_none() && !linked.escapes && !self.tools.pins_code();
        Built {
            escapes: linked.escapes,
            ..Built::new(asked.unit.name, linked, memory, body, movable, rest)
        }
    }
}

/// The symbols that a version waits for.
type Dependences = Vec<(DylibId, Symbol)>;

fn lacks(own: &str) -> Error {
    Error::MissingSymbols {
        missing: vec![Missing {
            symbol: own.to_owned(),
            needed_by: vec![String::from("who asked for a better version of it")],
        }],
    }
}

/// The functions of an image, and their address ranges.
fn extents(placed: &Placed<'_>) -> Vec<(Box<str>, Range<u64>)> {
    let yielding = placed.preempted().map(|(place, at)| (place.definition, at));
    let all = placed.definitions().chain(yielding);
    let functions = all.filter(|(definition, _)| definition.kind == LinkKind::Function);
    functions
        .map(|(it, at)| (Box::from(it.name), at..at + it.size.max(1)))
        .collect()
}
