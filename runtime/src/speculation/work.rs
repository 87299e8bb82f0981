//! The threads that compile ahead, and first calls that meet them.
//!
//! # Why
//! Whether there is a processor to spare is seen by what a compile took of one: it waits for
//! nothing else. A worker that had to wait rests, for longer each time, until it finds one again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error, warn};
use uruk_base::{FunctionId, Part};
use uruk_codegen::{Cancellation, fatal};
use uruk_tiering::foresight::{Course, Sketch};

use super::{Flight, Mail, Sketched};
use crate::core::{Body, Core, Module};
use crate::fork::thread::{self, rest};
use crate::fork::{self, gate, panics};
use crate::load::names::Definition;
use crate::tiers::background::thread_time;
use crate::told::event::Event;
use crate::version::ahead::Ahead;
use crate::version::calls;

/// The share of the time of compiles for which a worker must have had a processor.
const ENOUGH: f64 = 0.6;

/// The time of compiles after which that is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long a worker rests that had to wait for a processor: at first, and at most.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));

/// What a worker does next; it reads on a thread of its own only.
enum Turn {
    Compile(FunctionId, Cancellation),
    Read(Arc<Module>),
    Wait,
}

/// Starts the threads, if there are to be any.
pub(crate) fn start(core: &Arc<Core>) {
    let speculation = &core.speculation;
    for number in 0..speculation.most {
        add(core, number);
    }
}

/// Starts a thread.
fn add(core: &Arc<Core>, number: usize) {
    if !core.is_program() {
        fork::wait_at_exit();
    }
    let served = Arc::clone(core);
    let name = format!("uruk-ahead-{number}");
    if let Err(cause) = thread::spawn(name, move || work(&served)) {
        warn!(%cause, "no thread that compiles ahead");
    }
}

/// What a worker had of a processor, and how long it rests.
struct Pace {
    had: Duration,
    took: Duration,
    rest: Duration,
}

impl Pace {
    /// Does some work aside, and says how long to rest after it.
    fn keep<R>(&mut self, core: &Core, work: impl FnOnce() -> R) -> (R, Option<Duration>) {
        let (before, start) = (thread_time(), Instant::now());
        let result = work();
        let had = thread_time().saturating_sub(before);
        core.tiers.spent_aside(had);
        self.had += had;
        self.took += start.elapsed();
        if self.took < LOOK {
            return (result, None);
        }
        let enough = self.had >= self.took.mul_f64(ENOUGH);
        (self.had, self.took) = Default::default();
        if enough {
            self.rest = REST.0;
            return (result, None);
        }
        let rest = self.rest;
        self.rest = (rest * 2).min(REST.1);
        (result, Some(rest))
    }
}

/// The life of a thread that compiles ahead.
fn work(core: &Arc<Core>) {
    {
        let _pass = gate::enter();
        calls::widen_heap();
    }
    let mut pace = Pace {
        had: Duration::ZERO,
        took: Duration::ZERO,
        rest: REST.0,
    };
    while !core.is_stopping() {
        let pass = gate::enter();
        let (panic, rest) = match core.next_ahead(false) {
            Turn::Compile(id, cancel) => {
                pace.keep(core, || core.compile_ahead(id, &cancel, replace))
            }
            Turn::Read(module) => pace.keep(core, || core.read_ahead(&module)),
            Turn::Wait => {
                drop(pass);
                // Whoever ends the session before this thread lined up does not wake it.
                if core.is_stopping() || !core.speculation.is_on() {
                    return;
                }
                std::thread::park();
                let _pass = gate::enter();
                let me = std::thread::current().id();
                let idle = &mut core.speculation.lock().idle;
                idle.retain(|idle| idle.id() != me);
                continue;
            }
        };
        if let Some(panic) = panic {
            // LLVM's objects of this thread may be half changed.
            return replace(core, &panic);
        }
        drop(pass);
        if let Some(rest) = rest {
            std::thread::park_timeout(rest);
        }
    }
}

/// Has another thread take the place of the calling one, which ends. Under a pass.
fn replace(core: &Arc<Core>, message: &str) {
    rest::unfit();
    error!(message, "a thread that compiles ahead is lost");
    add(core, core.speculation.threads());
}

impl Core {
    /// What the calling worker does next; it is in line if that is to wait.
    fn next_ahead(self: &Arc<Self>, helped: bool) -> Turn {
        self.learn_first_calls();
        let mut state = self.speculation.lock();
        if state.over {
            return Turn::Wait;
        }
        if !helped && let Some(module) = state.unread.pop() {
            return Turn::Read(module);
        }
        // Whoever waits for a compile ahead leaves a processor to another.
        let joined = state
            .under_way
            .iter()
            .filter(|flight| flight.joined.is_some());
        let room = self.speculation.threads() + joined.count() > state.under_way.len();
        while room && let Some(id) = state.foresight.guess() {
            let has_code = self.stubs.has_code(id);
            if has_code || !matches!(self.body(id), Some(Body::Module(_))) {
                state.foresight.unguess(id);
                continue;
            }
            let cancel = Cancellation::new();
            state.under_way.push(Flight {
                function: id,
                cancel: cancel.clone(),
                joined: None,
                helped,
            });
            return Turn::Compile(id, cancel);
        }
        if !helped {
            state.idle.push(std::thread::current());
        }
        Turn::Wait
    }

    /// Learns which first calls came since, and what they may lead to. Whoever is no worker has
    /// one look at it.
    pub(crate) fn learn_first_calls(&self) {
        let mail = std::mem::take(&mut self.speculation.lock().mail);
        let mut bodies = Vec::new();
        let mut asked = Vec::new();
        for one in mail {
            match one {
                Mail::Called(id) => asked.push(id),
                Mail::Body(body) => bodies.push((body.function, self.course(&body))),
            }
        }
        // What found its code ready was called before what did not.
        self.see_called();
        let mut state = self.speculation.lock();
        for (id, course) in bodies {
            state.foresight.add(id, course);
        }
        for id in asked {
            state.called(id);
        }
    }

    /// Looks what was called of what was compiled ahead.
    pub(crate) fn see_called(&self) {
        let mut state = self.speculation.lock();
        // The first call takes it out of its rest.
        let is_called = |id: &mut FunctionId| {
            let has_code = self.stubs.entry(*id).is_some();
            has_code && !self.stubs.rests(*id)
        };
        let called: Vec<FunctionId> = state.prepared.extract_if(.., is_called).collect();
        state.stats.called += called.len() as u64;
        for id in called {
            state.called(id);
        }
    }

    /// The callees of a body by what their names mean now.
    fn course(&self, body: &Sketched) -> Course {
        let dylib = &body.module.dylib;
        let find = |symbol| {
            let import = body.plan.import(symbol);
            // What is not the module's own may be an embedder's to define, who is not asked.
            if import.defined || self.is_program() {
                return match self.names.find(dylib, &import.name)? {
                    Definition::Function { id } => Some(id),
                    _ => None,
                };
            }
            let symbol = self.names.session().intern(&import.name);
            self.stubs.function_at(dylib.ready_in_order(symbol)?)
        };
        let calls = body.sketch.calls.iter();
        let calls = calls.filter_map(|&(block, symbol)| Some((block, find(symbol)?)));
        Course::new(&Sketch {
            calls: calls.collect(),
            starts: body.sketch.starts.clone(),
            edges: body.sketch.edges.clone(),
            ends: body.sketch.ends.clone(),
        })
    }

    /// Compiles a function whose flight is noted, under a pass; the text of a panic. `lost` has
    /// another thread take the place of this one.
    fn compile_ahead(
        self: &Arc<Self>,
        id: FunctionId,
        cancel: &Cancellation,
        lost: fn(&Arc<Core>, &str),
    ) -> Option<String> {
        let on_fatal = {
            let cancel = cancel.clone();
            move |core: &Arc<Core>, message: &str| {
                if core.land(id, &cancel, false).is_some() {
                    core.fail(id, &core.fatal(id, message));
                }
                lost(core, message);
            }
        };
        let Ahead { published, panic } = self.make_ahead(id, cancel, on_fatal);
        let joined = self.land(id, cancel, published);
        if let Some(taken) = joined {
            if self.stubs.entry(id).is_none() {
                // Whoever waits is told what is wrong, if it is again.
                return calls::answer(self, id, lost);
            }
            self.events.tell(|| Event::Answered {
                id,
                function: self.name_of(id),
                worker: thread::name(),
                taken,
                at: self.events.now(),
            });
        }
        panic
    }

    /// Reads a module once more; the text of a panic. Under a pass.
    fn read_ahead(self: &Arc<Self>, module: &Arc<Module>) -> Option<String> {
        let on_fatal = {
            let core = Arc::clone(self);
            move |message: &str| {
                replace(&core, message);
                gate::leave_lost();
            }
        };
        let readers = 1 + self.speculation.threads();
        fatal::guard(on_fatal, || {
            panics::contained(|| {
                let _reading = self.counters.parts.enter(Part::Reading);
                if let Err(cause) = module.readers.prepare(readers) {
                    debug!(%cause, "not read once more");
                }
            })
        })
    }

    /// A flight is over; when a first call joined it, if one did.
    fn land(&self, id: FunctionId, cancel: &Cancellation, published: bool) -> Option<Duration> {
        let mut state = self.speculation.lock();
        match published {
            true => {
                state.stats.compiled += 1;
                state.prepared.push(id);
            }
            false => {
                state.stats.failed += 1;
                state.foresight.unguess(id);
            }
        }
        let mut under_way = state.under_way.iter();
        let at = under_way.position(|flight| flight.cancel.is(cancel))?;
        let flight = state.under_way.swap_remove(at);
        // There may have been no room.
        if (flight.helped || flight.joined.is_some())
            && let Some(worker) = state.idle.pop()
        {
            worker.unpark();
        }
        flight.joined
    }

    /// Leaves the answer to a first call to who compiles the function already, if somebody
    /// does; else the function is the calling worker's.
    pub(crate) fn join_ahead(&self, id: FunctionId) -> bool {
        if !self.speculation.is_on() {
            return false;
        }
        let mut state = self.speculation.lock();
        let mut under_way = state.under_way.iter_mut();
        let Some(flight) = under_way.find(|flight| flight.function == id) else {
            // The caller compiles it, at once: nobody else does from here on.
            state.foresight.begun(id);
            return false;
        };
        flight.joined = Some(self.events.now());
        state.stats.joined += 1;
        state.mail.push(Mail::Called(id));
        // Nobody else may take up what the caller leaves of a processor.
        if state.helping + 1 >= self.jobs
            && let Some(worker) = state.idle.pop()
        {
            worker.unpark();
        }
        true
    }

    /// Compiles ahead on a worker of first calls, for as long as the caller of `id` waits for
    /// somebody else; the text of a panic. `lost` as in [`Core::compile_ahead`].
    pub(crate) fn help_ahead(
        self: &Arc<Self>,
        id: FunctionId,
        lost: fn(&Arc<Core>, &str),
    ) -> Option<String> {
        {
            let mut state = self.speculation.lock();
            // One is there for the next call.
            if state.helping + 1 >= self.jobs {
                return None;
            }
            state.helping += 1;
        }
        let mut panic = None;
        while panic.is_none() && self.speculation.is_joined(id) {
            match self.next_ahead(true) {
                Turn::Compile(id, cancel) => panic = self.compile_ahead(id, &cancel, lost),
                Turn::Read(_) | Turn::Wait => break,
            }
        }
        self.speculation.lock().helping -= 1;
        panic
    }
}
