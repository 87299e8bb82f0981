//! The threads that compile ahead, and first calls that join their compiles.
//!
//! # Why
//! - A thread that waits for calls *naps*, and is not woken: waking a thread on another processor
//!   costs the waking thread more than all else that a first call costs besides the compile.
//! - A first call that meets a compile under way is on an otherwise idle worker, on the processor
//!   of the waiting caller. It polls for a moment ([`SPIN`]), because to sleep and be woken from
//!   another processor takes half as long as a compile.
//! - After that it leaves the call to the compiling thread, unless that has no processor: on a busy
//!   machine a call would wait for a thread that others keep from running, where it could have
//!   compiled itself.
//! - During a long wait it compiles ahead itself: the caller's processor is idle. If it began at
//!   once, callers that could go on in the middle of it would wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{debug, error, warn};
use uruk_base::{FunctionId, Part};
use uruk_codegen::{Cancellation, fatal};
use uruk_stubs::seat;
use uruk_tiering::foresight::{Course, Sketch};

use super::processor::{Pace, Watch};
use super::{Flight, Front, Mail, Sketched, Speculation};
use crate::code::body::Body;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::events::Event;
use crate::fork::thread::{self, rest};
use crate::fork::{self, gate, panics};
use crate::version::ahead::Ahead;
use crate::version::calls;
use crate::version::engines::OnLostThread;

/// Shortest sleep of a worker that is out of guesses.
const NAP: Duration = Duration::from_micros(50);

/// Naps without news after which it sleeps until it is woken.
const MOST_NAPS: usize = 24;

/// How long a first call polls whether a compile under way ends.
const SPIN: Duration = Duration::from_micros(60);

/// The next action of a worker.
enum SpeculationStep {
    Compile(FunctionId, Cancellation),
    Read(Arc<Module>),
    /// There is nothing to compile; whether there were news.
    Nap {
        news: bool,
    },
    /// The worker is in line to be woken.
    Wait,
}

/// Starts the threads, if there are any.
pub(crate) fn start(speculation: &Arc<Speculation>) {
    for number in 0..speculation.most {
        add(speculation, number);
    }
}

/// Starts a thread.
fn add(speculation: &Arc<Speculation>, number: usize) {
    fork::wait_at_exit();
    let name = format!("uruk-ahead-{number}");
    if let Err(cause) = thread::spawn(
        name,
        speculation
            .serving
            .work(speculation, speculation.engines(), work),
    ) {
        warn!(%cause, "no thread that compiles ahead");
    }
}

/// The main function of a thread that compiles ahead.
fn work(speculation: &Arc<Speculation>) {
    {
        let _pass = gate::enter();
        calls::widen_heap();
    }
    let goes_on = || !speculation.is_stopping() && speculation.is_on();
    let take_rest = |pace: &mut Pace, time| {
        speculation.resting.fetch_add(1, Ordering::Relaxed);
        pace.rest(time, goes_on);
        speculation.resting.fetch_sub(1, Ordering::Relaxed);
    };
    let lost: OnLostThread = {
        let speculation = Arc::clone(speculation);
        Arc::new(move |message: &str| replace(&speculation, message))
    };
    let mut pace = Pace::new();
    let mut naps = 0;
    while !speculation.is_stopping() {
        let pass = gate::enter();
        let (panic, tired) = match speculation.next_ahead(naps < MOST_NAPS) {
            SpeculationStep::Compile(id, cancel) => {
                naps = 0;
                if let Some(caller) = speculation.stubs.last_caller() {
                    seat::avoid(caller);
                }
                pace.keep(speculation, || {
                    speculation.compile_ahead(id, &cancel, &lost)
                })
            }
            SpeculationStep::Read(module) => {
                pace.keep(speculation, || speculation.read_ahead(&module))
            }
            turn => {
                drop(pass);
                // If the session ends before this thread is in line, it is not woken.
                if !goes_on() {
                    return;
                }
                if let SpeculationStep::Nap { news } = turn {
                    naps = if news { 0 } else { naps + 1 };
                    if let Some(time) = pace.sleep(NAP) {
                        take_rest(&mut pace, time);
                    }
                    continue;
                }
                naps = 0;
                seat::leave();
                std::thread::park();
                let _pass = gate::enter();
                let me = std::thread::current().id();
                let idle = &mut speculation.front().idle;
                idle.retain(|idle| idle.id() != me);
                continue;
            }
        };
        if let Some(panic) = panic {
            // LLVM's objects of this thread may be half changed.
            return replace(speculation, &panic);
        }
        drop(pass);
        if let Some(time) = tired {
            take_rest(&mut pace, time);
        }
    }
}

/// Starts another thread in place of the calling one, which ends. Under a pass.
fn replace(speculation: &Arc<Speculation>, message: &str) {
    rest::unfit();
    error!(message, "a thread that compiles ahead is lost");
    add(speculation, speculation.threads());
}

impl Speculation {
    /// The next action of the calling worker: if there is nothing to do, it naps if `may_nap`, else
    /// it is in line to be woken.
    fn next_ahead(self: &Arc<Self>, may_nap: bool) -> SpeculationStep {
        let news = self.learn_first_calls();
        if let Some(module) = self.front().unread.pop() {
            return SpeculationStep::Read(module);
        }
        if (news || !may_nap)
            && let Some((id, cancel)) = self.guess_ahead()
        {
            // There may be more guesses.
            self.wake();
            return SpeculationStep::Compile(id, cancel);
        }
        let mut front = self.front();
        if may_nap || front.news {
            return SpeculationStep::Nap { news };
        }
        if !front.over {
            front.idle.push(std::thread::current());
        }
        SpeculationStep::Wait
    }

    /// The function to be compiled next, by the guesses; noted as under way.
    fn guess_ahead(&self) -> Option<(FunctionId, Cancellation)> {
        let mut mind = self.mind();
        while let Some(id) = mind.foresight.guess() {
            let has_code = self.stubs.has_code(id);
            let compiles = !has_code && matches!(self.body(id), Some(Body::Module(_)));
            let now = self.events.now();
            match compiles.then(|| self.begin(id, now)).flatten() {
                Some(cancel) => return Some((id, cancel)),
                None => mind.foresight.unguess(id),
            }
        }
        None
    }

    /// Learns the new first calls, and the calls they may lead to; returns whether there were
    /// news. Threads other than workers may call it, too.
    pub(super) fn learn_first_calls(&self) -> bool {
        let (mail, told) = {
            let mut front = self.front();
            let told = std::mem::take(&mut front.news);
            (std::mem::take(&mut front.mail), told)
        };
        let mut news = told || !mail.is_empty();
        let mut bodies = Vec::new();
        let mut asked = Vec::new();
        for one in mail {
            match one {
                Mail::Called(id) => asked.push(id),
                Mail::Body(body) => bodies.push((body.function, self.course(&body))),
            }
        }
        // Functions whose code was found ready were called before those whose code was not.
        news |= self.see_called();
        let mut mind = self.mind();
        for (id, course) in bodies {
            mind.foresight.add(id, course);
        }
        for id in asked {
            mind.called(id);
        }
        news
    }

    /// Checks which functions compiled ahead were called; returns whether any was.
    pub(crate) fn see_called(&self) -> bool {
        let mut mind = self.mind();
        // The first call ends the rest of the code.
        let is_called = |id: &mut FunctionId| {
            let has_code = self.stubs.entry(*id).is_some();
            has_code && !self.stubs.rests(*id)
        };
        let called: Vec<FunctionId> = mind.prepared.extract_if(.., is_called).collect();
        mind.called += called.len() as u64;
        for &id in &called {
            mind.called(id);
        }
        !called.is_empty()
    }

    /// The callees of a body by what their names mean now.
    fn course(&self, body: &Sketched) -> Course {
        let dylib = &body.module.dylib;
        let find = |symbol| {
            let import = body.plan.import(symbol);
            // An embedder may have to define other names, and is not called here.
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

    /// Compiles a function whose flight is noted, under a pass; returns the text of a panic. `lost`
    /// starts another thread in place of this one.
    fn compile_ahead(
        self: &Arc<Self>,
        id: FunctionId,
        cancel: &Cancellation,
        lost: &OnLostThread,
    ) -> Option<String> {
        let on_fatal = {
            let (speculation, lost, cancel) = (Arc::clone(self), Arc::clone(lost), cancel.clone());
            move |message: &str| {
                if speculation.land(id, &cancel, false).is_some() {
                    speculation.fail(id, &speculation.fatal(id, message));
                }
                lost(message);
            }
        };
        let Ahead { published, panic } = self.make_ahead(id, cancel, on_fatal);
        let joined = self.land(id, cancel, published);
        if let Some(taken) = joined {
            if self.stubs.entry(id).is_none() {
                // The waiting caller gets the error, if it occurs again.
                return calls::answer(self, id, lost);
            }
            self.tell_answered(id, taken);
        }
        panic
    }

    /// Reads a module once more; returns the text of a panic. Under a pass.
    fn read_ahead(self: &Arc<Self>, module: &Arc<Module>) -> Option<String> {
        let on_fatal = {
            let speculation = Arc::clone(self);
            move |message: &str| {
                replace(&speculation, message);
                gate::leave_lost();
            }
        };
        let readers = 1 + self.threads();
        fatal::guard(on_fatal, || {
            panics::contained(|| {
                let _reading = self.counters.parts.enter(Part::Reading);
                if let Err(cause) = module.readers.prepare(readers) {
                    debug!(%cause, "not read once more");
                }
            })
        })
    }

    /// Ends a flight; returns when a first call joined it, if one did.
    fn land(&self, id: FunctionId, cancel: &Cancellation, published: bool) -> Option<Duration> {
        {
            let mut mind = self.mind();
            match published {
                true => mind.prepared.push(id),
                false => mind.foresight.unguess(id),
            }
        }
        let mut front = self.front();
        match published {
            true => front.stats.compiled += 1,
            false => front.stats.failed += 1,
        }
        let mut under_way = front.under_way.iter();
        let at = under_way.position(|flight| flight.cancel.is(cancel))?;
        let flight = front.under_way.swap_remove(at);
        self.note_joined(&front);
        flight.joined
    }

    /// Leaves the answer to a first call to the thread that compiles the function already, if there
    /// is one that makes progress; else the function is the calling worker's.
    pub(crate) fn join_ahead(&self, id: FunctionId) -> bool {
        if !self.is_on() {
            return false;
        }
        {
            let mut front = self.front();
            // No other thread begins it from here on.
            front.taken.insert(id);
            front.put(Mail::Called(id));
            if front.flight_of(id).is_none() {
                return false;
            }
            front.stats.joined += 1;
        }
        let taken = self.events.now();
        let start = Instant::now();
        while start.elapsed() < SPIN {
            if self.stubs.entry(id).is_some() {
                self.tell_answered(id, taken);
                return true;
            }
            (0..50).for_each(|_| std::hint::spin_loop());
        }
        let mut front = self.front();
        let Some(flight) = front.flight_of(id) else {
            // It had no result, or just ended.
            return false;
        };
        flight.joined = Some(taken);
        flight.pilot.begin();
        self.note_joined(&front);
        true
    }

    /// A first call that joined a compile whose thread makes no progress: the calling worker takes
    /// it over.
    pub(crate) fn stranded(&self) -> Option<FunctionId> {
        let mut front = self.front();
        let mut joined = front
            .under_way
            .iter_mut()
            .filter(|flight| flight.joined.is_some());
        let flight = joined.find_map(|flight| (!flight.pilot.gets_on()).then_some(flight))?;
        flight.joined = None;
        let id = flight.function;
        self.note_joined(&front);
        Some(id)
    }

    /// Compiles a function ahead on a worker of first calls, while a call waits for a long compile
    /// ahead and its processor is idle; returns the text of a panic. `lost` as in
    /// [`Speculation::compile_ahead`].
    pub(crate) fn help_ahead(self: &Arc<Self>, lost: &OnLostThread) -> Option<String> {
        {
            let mut front = self.front();
            // One worker stays free for the next call.
            if front.helping + 1 >= self.jobs {
                return None;
            }
            front.helping += 1;
        }
        self.learn_first_calls();
        let next = self.guess_ahead();
        let panic = next.and_then(|(id, cancel)| self.compile_ahead(id, &cancel, lost));
        self.front().helping -= 1;
        panic
    }

    fn tell_answered(&self, id: FunctionId, taken: Duration) {
        self.events.tell(|| Event::Answered {
            id,
            function: self.name_of(id),
            worker: thread::name(),
            taken,
            at: self.events.now(),
        });
    }
}

impl Speculation {
    /// Notes that the calling thread compiles `id`, if no worker does.
    fn begin(&self, id: FunctionId, now: Duration) -> Option<Cancellation> {
        let mut front = self.front();
        if front.over || front.taken.contains(&id) {
            return None;
        }
        self.begun_ns
            .store(now.as_nanos() as u64, Ordering::Relaxed);
        let cancel = Cancellation::new();
        front.under_way.push(Flight {
            function: id,
            cancel: cancel.clone(),
            joined: None,
            pilot: Watch::mine(),
        });
        Some(cancel)
    }

    fn note_joined(&self, front: &Front) {
        let joined = front.under_way.iter().any(|flight| flight.joined.is_some());
        self.joined.store(joined, Ordering::Relaxed);
    }

    /// Whether a first call waits for a compile ahead, so that a thread must check whether it
    /// [makes progress](Speculation::stranded).
    pub(crate) fn is_joined(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }
}
