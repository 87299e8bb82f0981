//! The guest and runtime sides under loom: every interleaving of small programs.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p uruk-stubs --lib --release`
//!
//! A lost wake-up or a lost request is a deadlock, which loom reports. Signals
//! are not modelled; `tests/signals.rs` has them.

mod code;
mod gate;
mod lists;

use loom::sync::Arc;
use loom::thread;

use crate::cell::Cells;
use crate::futex::Futex;
use crate::gate::Target;
use crate::guest::Outcome;
use crate::kept::Kept;
use crate::requests::{Requests, TaggedList};
use crate::shared::Shared;
use crate::spots::Spots;
use crate::state::Kind;
use crate::sync::{AtomicU32, AtomicU64, Ordering, turn};
use uruk_base::FunctionId;

const HEAP_BASE: u64 = 0x1000;

fn table(functions: u32) -> Arc<Shared> {
    table_with(functions, 1)
}

/// Makes a table whose callers poll a closed gate so often before they sleep.
fn table_with(functions: u32, looks_at_gate: u32) -> Arc<Shared> {
    // Initializes the counter of turns, which publishes all earlier writes: here there are none.
    turn();
    let shared = Shared {
        cells: Cells::new(functions),
        requests: Requests::default(),
        waiting: Futex::default(),
        kept: Kept::default(),
        spots: Spots::default(),
        gate: AtomicU32::new(0),
        gates: AtomicU32::new(0),
        free: TaggedList::default(),
        looks_at_gate,
        failure_handler: AtomicU64::new(1),
        failure_context: AtomicU64::new(0),
        attendance: AtomicU64::new(0),
        heap_base: HEAP_BASE,
        heap_size: 0x1000,
    };
    for i in 0..functions {
        shared.allocate(function(i));
    }
    Arc::new(shared)
}

fn function(i: u32) -> FunctionId {
    FunctionId(i)
}

/// The code that the service gives a function.
fn code(function: FunctionId) -> u64 {
    HEAP_BASE + 0x10 + u64::from(function.index())
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(f);
}

fn call(shared: &Arc<Shared>, f: FunctionId) -> thread::JoinHandle<Outcome> {
    let shared = shared.clone();
    thread::spawn(move || shared.resolve(f, || 1))
}

/// Functions with code.
fn bound(functions: u32) -> Arc<Shared> {
    with_code(table(functions))
}

/// Functions with code, whose callers sleep at a gate at once.
fn bound_sleepers(functions: u32) -> Arc<Shared> {
    with_code(table_with(functions, 0))
}

fn with_code(shared: Arc<Shared>) -> Arc<Shared> {
    let functions = shared.cells.count();
    for f in (0..functions).map(function) {
        assert!(shared.publish(f, code(f)));
    }
    shared
}

/// The code that the gate opens to.
fn new(f: FunctionId) -> u64 {
    code(f) + 0x100
}

/// Lets each wait of a thread through; false if it has none.
fn let_through(shared: &Shared, thread: u32) -> bool {
    let waits = shared.spots.list().into_iter();
    let own = waits.filter(|wait| wait.thread() == thread);
    own.filter(|&wait| shared.let_through(wait)).count() > 0
}

/// A call: by the slot, or by the trampoline that it holds.
fn start(shared: &Shared, f: FunctionId, thread: u32) -> Outcome {
    let target = shared.cells.get(f).target.load(Ordering::Acquire);
    if target != shared.cells.trampoline(f) {
        return Outcome::Code(target);
    }
    shared.resolve(f, || thread)
}

fn slot(shared: &Shared, f: FunctionId) -> u64 {
    shared.cells.get(f).target.load(Ordering::Acquire)
}

fn open(shared: &Shared, set: &[(FunctionId, Target)]) {
    shared.open_all(set.iter().copied());
    for &(f, _) in set {
        // Old code may be freed now, so the kept word must not hold it.
        let kept = shared.kept.word(f).expect("gated");
        assert_eq!(kept.load(Ordering::Relaxed), 0);
    }
    shared.end_gate();
}

fn close(shared: &Shared, set: &[FunctionId]) {
    shared.claim_gate().expect("no other gate");
    set.iter().for_each(|&f| shared.kept.ensure(f));
    for &f in set {
        assert!(shared.close(f));
        assert_eq!(slot(shared, f), shared.cells.trampoline(f));
    }
}

/// Two callers race, the service waits: one request, both get the code.
#[test]
fn racing_callers() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let callers = [call(&shared, f), call(&shared, f)];
        let asked = shared.requests.wait(&shared.cells, None, None);
        assert_eq!(asked, Some(f));
        assert!(shared.publish(f, code(f)));
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
        }
        assert_eq!(shared.requests.next(&shared.cells), None);
    });
}

/// The service ends while two callers race: both get no code, and a caller asks again once there is
/// a service.
#[test]
fn no_service() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let callers = [call(&shared, f), call(&shared, f)];
        shared.requests.set_unserved(true);
        shared.end_waits(f);
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Outcome::Failed);
        }
        shared.requests.set_unserved(false);
        let caller = call(&shared, f);
        let asked = shared.requests.wait(&shared.cells, None, None);
        assert_eq!(asked, Some(f));
        assert!(shared.publish(f, code(f)));
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
    });
}

/// Two functions, two requests, whichever order.
#[test]
fn two_functions() {
    model(|| {
        let shared = table(2);
        let callers = [0, 1].map(|i| call(&shared, function(i)));
        for _ in 0..2 {
            let asked = shared.requests.wait(&shared.cells, None, None).unwrap();
            assert!(shared.publish(asked, code(asked)));
        }
        for (i, caller) in callers.into_iter().enumerate() {
            let expected = code(function(i as u32));
            assert_eq!(caller.join().unwrap(), Outcome::Code(expected));
        }
    });
}

/// Two service threads, two functions: each request goes to one of them.
#[test]
fn two_services() {
    model(|| {
        let shared = table(2);
        for i in 0..2 {
            // The guest's half of a first call.
            let cell = shared.cells.get(function(i));
            cell.step(crate::state::Step::Request).unwrap();
            shared.requests.push(&shared.cells, function(i));
        }
        let serve = |shared: Arc<Shared>| {
            let mut served = 0;
            while let Some(asked) = shared.requests.next(&shared.cells) {
                assert!(shared.publish(asked, code(asked)));
                served += 1;
            }
            served
        };
        let other = thread::spawn({
            let shared = shared.clone();
            move || serve(shared)
        });
        let here = serve(shared.clone());
        assert_eq!(here + other.join().unwrap(), 2);
        for i in 0..2 {
            assert_eq!(shared.cells.get(function(i)).word().kind(), Kind::Bound);
        }
    });
}

/// Code is published over code while a caller comes: the call gets one of them, and the later one
/// stays.
#[test]
fn republication() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = call(&shared, f);
        let asked = shared.requests.wait(&shared.cells, None, None);
        assert_eq!(asked, Some(f));
        assert!(shared.publish(f, code(f)));
        assert!(shared.publish(f, code(f) + 1));
        let got = caller.join().unwrap();
        assert!([0, 1].map(|i| Outcome::Code(code(f) + i)).contains(&got));
        let target = shared.cells.get(f).target.load(Ordering::Acquire);
        assert_eq!(target, code(f) + 1);
    });
}

/// A failure reaches the waiting caller; a publication takes it back.
#[test]
fn failure_and_recovery() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = call(&shared, f);
        let asked = shared.requests.wait(&shared.cells, None, None);
        assert_eq!(asked, Some(f));
        assert!(shared.fail(f));
        let later = call(&shared, f);
        assert!(shared.publish(f, code(f)));
        for caller in [caller, later] {
            let got = caller.join().unwrap();
            assert!([Outcome::Failed, Outcome::Code(code(f))].contains(&got));
        }
        assert_eq!(shared.resolve(f, || 1), Outcome::Code(code(f)));
    });
}

/// Callers bind prepared code while newer code is published: the newer stays.
#[test]
fn binding_races_with_publication() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        assert!(shared.prepare(f, code(f)));
        let callers = [call(&shared, f), call(&shared, f)];
        assert!(shared.publish(f, code(f) + 1));
        for caller in callers {
            let got = caller.join().unwrap();
            assert!([0, 1].map(|i| Outcome::Code(code(f) + i)).contains(&got));
        }
        let cell = shared.cells.get(f);
        assert_eq!(cell.target.load(Ordering::Acquire), code(f) + 1);
        assert_eq!(cell.word().kind(), Kind::Bound);
    });
}

/// Code is taken back while a caller comes: it got the code, or asks again -
/// also when its first request is still in the list.
#[test]
fn unpublication() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = call(&shared, f);
        // A publication without a request, as from a background compile.
        assert!(shared.publish(f, code(f)));
        shared.unpublish(f);
        let second = call(&shared, f);
        let asked = shared.requests.wait(&shared.cells, None, None);
        assert_eq!(asked, Some(f));
        assert!(shared.publish(f, code(f) + 1));
        let got = caller.join().unwrap();
        assert!([0, 1].map(|i| Outcome::Code(code(f) + i)).contains(&got));
        assert_eq!(second.join().unwrap(), Outcome::Code(code(f) + 1));
        assert_eq!(shared.requests.next(&shared.cells), None);
    });
}

/// A release while a caller waits sends it to the failure handler.
#[test]
fn release() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = call(&shared, f);
        assert!(shared.quarantine(f));
        assert_eq!(caller.join().unwrap(), Outcome::Failed);
        assert!(!shared.publish(f, code(f)));
        assert_eq!(shared.requests.next(&shared.cells), None);
        assert!(shared.recycle(f));
        assert_eq!(shared.free.pop(&shared.cells), Some(f));
    });
}

/// Stopping ends a wait for which no request comes, whenever it began.
#[test]
fn stopping_wakes_the_service() {
    model(|| {
        let shared = table(1);
        let service = thread::spawn({
            let shared = shared.clone();
            move || shared.requests.wait(&shared.cells, None, None)
        });
        shared.requests.stop();
        assert_eq!(service.join().unwrap(), None);
    });
}

/// Stopping ends a wait, whenever it began; a request that came is kept.
#[test]
fn stopping_the_service() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = call(&shared, f);
        let service = thread::spawn({
            let shared = shared.clone();
            move || shared.requests.wait(&shared.cells, None, None)
        });
        shared.requests.stop();
        let asked = service.join().unwrap();
        shared.requests.start();
        let asked = asked.or_else(|| shared.requests.wait(&shared.cells, None, None));
        assert_eq!(asked, Some(f));
        shared.publish(f, code(f));
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
    });
}
