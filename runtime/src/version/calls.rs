//! The workers that answer first calls.
//!
//! A worker blocks all signals: guest handlers must never run on its stack. During a request it
//! holds a pass of the gate ([`crate::fork::gate`]). A worker in which LLVM reports a fatal error
//! never returns: its function fails, another worker replaces it, and it is no longer counted.
//!
//! # Why
//! - Workers, never the guest's thread, compile. Two context switches per first call, on the
//!   caller's processor ([`seat`]: 4 to 6 us) buy a guest side without locks, allocation or stack
//!   needs.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, warn};
use uruk_base::{FunctionId, Part, Tier, VersionId};
use uruk_codegen::{Cancellation, fatal};
use uruk_stubs::seat;
use uruk_tiering::{Late, Publication, Purpose};

use crate::code::body::Body;
use crate::error::Error;
use crate::events::Event;
use crate::fork::gate::{self, leave_lost};
use crate::fork::panics;
use crate::fork::sacrificial::sacrificial;
use crate::fork::thread::{self, rest};
use crate::fork::threads;
use crate::host::room;
use crate::version::compiler::Compiler;
use crate::version::engines::{Engines, OnLostThread};
use crate::version::partition::Partition;
use crate::version::request::Request;

/// The parts of a session that a worker uses and keeps: the compiler, and the rooms above it.
pub(super) struct Workplace {
    compiler: Arc<Compiler>,
    engines: Arc<dyn Engines>,
}

/// Starts `count` workers, or fewer if not all threads can be started.
pub(crate) fn spawn(compiler: &Arc<Compiler>, count: usize) -> Result<(), Error> {
    let place = Arc::new(Workplace {
        compiler: Arc::clone(compiler),
        engines: compiler.engines(),
    });
    spawn_at(&place, count)
}

fn spawn_at(place: &Arc<Workplace>, count: usize) -> Result<(), Error> {
    for index in 0..count {
        let name = format!("uruk-{index}");
        let compiler = &place.compiler;
        let work = compiler
            .serving
            .work(place, Arc::clone(&place.engines), move |place| {
                serve(place, index == 0)
            });
        compiler.service.begin_worker();
        let Err(cause) = thread::spawn(name, work) else {
            continue;
        };
        compiler.service.end_worker();
        if index == 0 {
            return Err(cause);
        }
        warn!(asked = count, had = index, %cause, "fewer compile workers");
        break;
    }
    Ok(())
}

/// Makes the C library reserve heap for a compile on the calling thread at once, on the first call
/// there. Otherwise the heap of a thread other than the first grows by a page at a time, with a
/// system call for each. Pages still become resident only when they are written.
pub(crate) fn widen_heap() {
    /// Less than the size that is mapped separately (128 KiB).
    const PIECE: usize = 120 << 10;
    /// 2 MiB in all: the memory of a first compile.
    const PIECES: usize = 17;
    thread_local! {
        static WIDE: Cell<bool> = const { Cell::new(false) };
    }
    if WIDE.replace(true) {
        return;
    }
    // SAFETY: allocates; null is a piece, too.
    let pieces = [(); PIECES].map(|()| unsafe { libc::malloc(PIECE) });
    for piece in std::hint::black_box(pieces) {
        // SAFETY: allocated above, and not used.
        unsafe { libc::free(piece) };
    }
}

/// Time between checks, by a worker whose first call joined a compile ahead, whether that makes
/// progress.
const PATIENCE: Duration = Duration::from_micros(500);

/// Time that a worker stays on the processor of its last caller.
const LINGER: Duration = Duration::from_millis(100);

/// Runs a worker; the first one also checks the main thread.
fn serve(place: &Arc<Workplace>, first: bool) {
    let Workplace { compiler, engines } = &**place;
    let lost: OnLostThread = {
        let place = Arc::clone(place);
        Arc::new(move |message: &str| replace_worker(&place, message))
    };
    // Without a controller, the worker must detect that no compiles come any more.
    let rests = !compiler.choices.is_auto();
    let idle = first.then_some(threads::LOOK_INTERVAL);
    let busy = if rests { Some(room::REST) } else { idle };
    let mut patience = busy;
    // Compiles after an answer would occupy the caller's processor.
    let sits = matches!(compiler.layers.partition, Partition::Function);
    while !compiler.is_stopping() {
        let lingers = seat::processor().map(|_| LINGER);
        let looks_on = engines.is_joined().then_some(PATIENCE);
        let until = looks_on.or(lingers).or(patience);
        match compiler.stubs.wait_request_on(until, seat::processor()) {
            Some(id) => {
                let panic = {
                    let _busy = gate::enter();
                    match engines.join_ahead(id) {
                        true => None,
                        false => answer(compiler, id, &lost),
                    }
                };
                let panic = panic.or_else(|| compiler.make_together(id, &lost));
                if let Some(panic) = panic {
                    let _busy = gate::enter();
                    lost(&panic);
                    return;
                }
                patience = busy;
                if sits && let Some(caller) = compiler.stubs.last_caller() {
                    seat::take(caller);
                }
            }
            None if looks_on.is_some() => {
                let _busy = gate::enter();
                let panic = match engines.stranded() {
                    Some(id) => answer(compiler, id, &lost),
                    None => Arc::clone(engines).help_ahead(&lost),
                };
                if let Some(panic) = panic {
                    return lost(&panic);
                }
            }
            None if lingers.is_some() => seat::leave(),
            None => {
                if first {
                    threads::look_at_main_thread();
                }
                if rests && compiler.heap.rest() {
                    patience = idle;
                }
            }
        }
    }
    seat::leave();
}

/// Starts another worker in place of the calling one, which ends. The new worker also checks the
/// main thread. Without any worker, first calls fail until one can be started. Under a pass.
fn replace_worker(place: &Arc<Workplace>, message: &str) {
    rest::unfit();
    let compiler = &place.compiler;
    compiler.service.end_worker();
    if let Err(cause) = spawn_at(place, 1) {
        error!(%cause, message, "no worker in place of one that was lost");
        // Of several that are lost at the same time, the last one finds none.
        if compiler.service.has_none() {
            compiler.service.lose(&compiler.stubs, cause);
        }
    }
    // The panic may come from a listener.
    panics::contained(|| place.compiler.tell_lost(message));
}

/// Answers a first call, under a pass; returns the text of a panic, after which this thread's state
/// is uncertain. `lost` starts another thread in its place.
pub(crate) fn answer(
    compiler: &Arc<Compiler>,
    id: FunctionId,
    lost: &OnLostThread,
) -> Option<String> {
    widen_heap();
    let version = compiler.versions.ids.next();
    let on_fatal = {
        let (compiler, lost) = (Arc::clone(compiler), Arc::clone(lost));
        move |message: &str| {
            compiler.versions.seen(id).fail(version);
            compiler.fail(id, &compiler.fatal(id, message));
            lost(message);
            leave_lost();
        }
    };
    fatal::guard(on_fatal, || {
        // The request may have been answered by a compile-ahead meanwhile.
        if compiler.stubs.entry(id).is_some() {
            return None;
        }
        if let Some(Body::Unit(unit)) = compiler.body(id) {
            compiler.engines().answer_from_unit(id, unit);
            return None;
        }
        let taken = compiler.events.now();
        let made = panics::caught(|| {
            compiler
                .engines()
                .churn()
                .and_then(|()| compiler.make_first(id, version))
        });
        let Err(cause) = made else {
            return panics::contained(|| {
                compiler.events.tell(|| Event::Answered {
                    id,
                    function: compiler.name_of(id),
                    worker: thread::name(),
                    taken,
                    at: compiler.events.now(),
                });
            });
        };
        error!(function = compiler.name_of(id), %cause, "compile failed");
        compiler.fail(id, &cause);
        cause.panic().map(str::to_owned)
    })
}

impl Compiler {
    /// Compiles a function at `tier` as `version` and publishes it, on the calling thread.
    pub(crate) fn compile_at(
        self: &Arc<Self>,
        id: FunctionId,
        version: VersionId,
        tier: Tier,
    ) -> Result<(), Error> {
        let published = self.versions.seen(id).published();
        let purpose = match published {
            Some(_) => Purpose::Change,
            None => Purpose::First,
        };
        let request = Request {
            ahead: false,
            function: id,
            version,
            tier,
            purpose,
        };
        let made = match self.make(request, None, &Cancellation::new()) {
            // The function was replaced or removed meanwhile, as if right after the compile.
            Err(cause) if cause.is_cancelled() => return Ok(()),
            made => made?,
        };
        if let Publication::Published { .. } = made.publication {
            let now = self.events.now();
            match purpose {
                Purpose::First => self.engines().compiled(now, id, tier, &made),
                Purpose::Change => self.engines().published(now, id, tier, &made),
            }
        }
        Ok(())
    }

    /// Compiles the first version of `id` and publishes it, unless better code was published
    /// meanwhile.
    pub(crate) fn make_first(
        self: &Arc<Self>,
        id: FunctionId,
        version: VersionId,
    ) -> Result<(), Error> {
        self.make_first_at(id, version, self.choices.first())
    }

    /// Like `make_first`, at a tier, unless a higher one is required.
    pub(super) fn make_first_at(
        self: &Arc<Self>,
        id: FunctionId,
        version: VersionId,
        mut tier: Tier,
    ) -> Result<(), Error> {
        let _planning = self.counters.parts.enter(Part::Planning);
        if self.choices.is_entry_point(id) {
            // No later call will reach a better version: a pin is obeyed at once.
            tier = self.engines().start_tier(id);
        }
        let origin = self.function(id).and_then(|it| it.origin);
        if origin.is_some_and(|it| it.elsewhere.is_none()) {
            tier = tier.max(Tier::Optimized);
        }
        let mut first = Request {
            function: id,
            version,
            tier,
            purpose: Purpose::First,
            ahead: false,
        };
        let made = loop {
            let made = self.make(first, None, &Cancellation::new());
            let outdated = match &made {
                Ok(made) => made.publication == Publication::Dropped(Late::Replaced),
                Err(Error::Version { cause, .. }) => cause.is_late(),
                Err(cause) => cause.is_cancelled(),
            };
            if !outdated || self.stubs.has_code(id) || self.is_stopping() {
                break made;
            }
            // The function, or one of its dependences, was replaced meanwhile.
            first.version = self.versions.ids.next();
        };
        match (made, self.stubs.has_code(id)) {
            (Ok(made), _) => {
                self.engines().compiled(self.events.now(), id, tier, &made);
                Ok(())
            }
            // Another thread has published or prepared code before; that suffices.
            (Err(Error::Version { cause, .. }), true) if cause.is_late() => Ok(()),
            (Err(cause), true) if cause.is_cancelled() => Ok(()),
            (Err(cause), _) => Err(cause),
        }
    }
}

/// Compiles a function now, on a thread that LLVM can stop: at `tier`, replacing the current
/// version, or (`None`) at the tier of first code, unless it has code.
pub(crate) fn compile_now(
    compiler: &Arc<Compiler>,
    id: FunctionId,
    tier: Option<Tier>,
) -> Result<(), Error> {
    let unit = {
        let _pass = gate::enter();
        compiler.unit_of(id)
    };
    if let Some(unit) = unit {
        return compiler.engines().compile_unit(id, &unit, tier);
    }
    let version = compiler.versions.ids.next();
    let request = Request {
        function: id,
        version,
        tier: tier.unwrap_or(compiler.choices.first()),
        purpose: Purpose::First,
        ahead: false,
    };
    let lost = {
        let compiler = Arc::clone(compiler);
        move |message: &str| {
            compiler.versions.seen(id).fail(version);
            let error = compiler.fatal(id, message);
            compiler.tell_failed(request, &error);
            compiler.tell_lost(message);
            error
        }
    };
    let compiler = Arc::clone(compiler);
    sacrificial("uruk-now", lost, move || match tier {
        Some(tier) => compiler.compile_at(id, version, tier),
        None if compiler.stubs.has_code(id) => Ok(()),
        None => compiler.make_first(id, version),
    })
}
