//! Compiles that are no longer wanted end early, and take nothing with them.
//!
//! A compile of one function at tier 2 is held where an embedder may change its IR, until it is
//! cancelled, in each way there is. That it ends there shows in what does not come any more: an
//! object. (`uruk-codegen` shows that it ends at every other stage, too.)

use std::cell::Cell;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uruk::{Event, IrUnit, Jit, Replacement, Tier, Transform};

type Big = extern "C" fn(u64) -> u64;

/// Statements of the function.
const STATEMENTS: u64 = 800;

/// Longer than anything takes here.
const LATE: Duration = Duration::from_secs(120);

/// One test at a time: threads are found by their names.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    wait("workers of the test before", || !is_worker_there());
    alone
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LATE, "no {what}");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Whether there is a background worker.
fn is_worker_there() -> bool {
    let mut tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    tasks.any(|task| {
        let name = task.and_then(|task| std::fs::read_to_string(task.path().join("comm")));
        name.is_ok_and(|name| name.starts_with("uruk-opt"))
    })
}

/// Statement `i`: a branch that depends on all before, and arithmetic on both sides.
fn text(seed: u64) -> String {
    let mut ir = String::from(
        "@cells = global [64 x i64] zeroinitializer
         define i64 @big(i64 %v0) { br label %s0\n",
    );
    for i in 0..STATEMENTS {
        let (odd, next) = (seed + 2 * i + 1, i + 1);
        let before = match i {
            0 => String::from("%v0, %0"),
            _ => format!("%l{i}, %left{} ], [ %r{i}, %right{}", i - 1, i - 1),
        };
        write!(
            ir,
            "s{i}: %p{i} = phi i64 [ {before} ]
             %m{i} = mul i64 %p{i}, {odd}
             %h{i} = lshr i64 %m{i}, 7
             %x{i} = xor i64 %m{i}, %h{i}
             %b{i} = and i64 %x{i}, 8
             %c{i} = icmp eq i64 %b{i}, 0
             br i1 %c{i}, label %left{i}, label %right{i}
             left{i}: %k{i} = and i64 %x{i}, 63
             %a{i} = getelementptr [64 x i64], ptr @cells, i64 0, i64 %k{i}
             %o{i} = load i64, ptr %a{i}
             %n{i} = and i64 %o{i}, 0
             %l{next} = add i64 %x{i}, %n{i}
             br label %s{next}
             right{i}: %r{next} = sub i64 %x{i}, {i}
             br label %s{next}\n",
        )
        .expect("room");
    }
    let (i, last) = (STATEMENTS, STATEMENTS - 1);
    let end = format!("s{i}: %p{i} = phi i64 [ %l{i}, %left{last} ], [ %r{i}, %right{last} ]");
    ir + &end + &format!(" ret i64 %p{i} }}")
}

/// The value that the function must return.
fn model(seed: u64, mut value: u64) -> u64 {
    for i in 0..STATEMENTS {
        let product = value.wrapping_mul(seed + 2 * i + 1);
        value = product ^ (product >> 7);
        if value & 8 != 0 {
            value = value.wrapping_sub(i);
        }
    }
    value
}

/// Where compiles at tier 2 are held.
#[derive(Default)]
struct Hold {
    /// How many more are.
    left: AtomicUsize,
    /// How many were.
    begun: AtomicUsize,
    /// Objects that came of them.
    made: AtomicUsize,
}

/// Forks that were begun, whose turn to wait for compiles comes after this is counted.
static FORKS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the last compile that came by on this thread was held.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

impl Hold {
    /// Holds a compile until it is cancelled, the second one until a second fork was begun.
    fn pass(&self, unit: &IrUnit<'_, '_>) {
        let take = |left: usize| left.checked_sub(1);
        let held = unit.tier == Tier::Optimized
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_ok();
        HELD.set(held);
        if held {
            let second = self.begun.fetch_add(1, Ordering::SeqCst) != 0;
            wait("cancellation", || {
                unit.is_cancelled() || (second && FORKS.load(Ordering::SeqCst) > 1)
            });
        }
    }

    /// A compile has become an object.
    fn end(&self) {
        let held = usize::from(HELD.get());
        self.made.fetch_add(held, Ordering::SeqCst);
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

struct Session {
    jit: Jit,
    events: Arc<Mutex<Vec<String>>>,
    hold: Arc<Hold>,
}

impl Session {
    fn new() -> Session {
        let events: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&events);
        let listener = move |event: &Event| {
            let text = match event {
                Event::Cancelled { function, tier, .. } => format!("{function} {tier} cancelled"),
                Event::Failed { function, .. } => format!("{function} failed"),
                Event::Published { function, tier, .. } => format!("{function} {tier}"),
                _ => return,
            };
            told.lock().expect("no panic").push(text);
        };
        let hold: Arc<Hold> = Arc::default();
        let (held, counting) = (Arc::clone(&hold), Arc::clone(&hold));
        let builder = Jit::builder()
            .jobs(1)
            .on_event(listener)
            .transform_ir(Transform::new(move |unit| {
                held.pass(unit);
                Ok(())
            }))
            .transform_objects(Arc::new(move |_: &str, object| {
                counting.end();
                Ok(object)
            }));
        let jit = builder.build().expect("a session");
        Session { jit, events, hold }
    }

    /// With the function at tier 1.
    fn with_big() -> Session {
        let session = Session::new();
        session.jit.add_ir("m", &text(11)).expect("valid IR");
        assert_eq!(session.call(3), model(11, 3));
        session
    }

    fn call(&self, value: u64) -> u64 {
        // SAFETY: the function above, or another of its type.
        let big = unsafe { self.jit.function::<Big>("big") };
        big.expect("typed").call(value)
    }

    fn pin(&self, tier: Tier) {
        self.jit
            .main()
            .pin("big", Some(tier))
            .expect("there is one");
    }

    /// Has the function compiled at tier 2, until the worker is in the middle of it; the first
    /// `held` of such compiles are held there.
    fn begin(&self, held: usize) {
        self.hold.left.store(held, Ordering::SeqCst);
        self.pin(Tier::Optimized);
        self.wait_until_begun(1);
    }

    fn wait_until_begun(&self, times: usize) {
        wait("compile", || {
            self.hold.begun.load(Ordering::SeqCst) == times
        });
    }

    fn wait_for_tier(&self, tier: Tier) {
        wait("code", || {
            self.jit.tier("big").expect("there is one") == Some(tier)
        });
    }

    fn count(&self, what: &str) -> usize {
        let events = self.events.lock().expect("no panic");
        events.iter().filter(|event| event.contains(what)).count()
    }

    /// Waits until the compile that is held has ended, and checks that nothing came of it.
    fn check_cancelled(&self) {
        wait("cancellation", || self.count("cancelled") == 1);
        assert_eq!(self.hold.made(), 0);
    }
}

#[test]
fn a_worker_is_free_and_the_function_is_as_good_as_before() {
    let _alone = alone();
    let session = Session::with_big();
    session.begin(1);
    session.pin(Tier::Baseline);
    session.check_cancelled();
    let stats = session.jit.stats();
    assert_eq!((stats.cancelled, stats.failed), (1, 0));
    assert_eq!(session.call(7), model(11, 7));

    session.pin(Tier::Optimized);
    session.wait_for_tier(Tier::Optimized);
    assert_eq!(session.call(7), model(11, 7));
    assert_eq!(session.count("failed"), 0);
}

#[test]
fn a_replacement_ends_the_compile_of_what_it_replaces() {
    let _alone = alone();
    let session = Session::with_big();
    session.begin(1);
    let new = Replacement::ir("new", "define i64 @big(i64 %x) { ret i64 %x }");
    session.jit.main().replace(new).expect("replaceable");
    session.check_cancelled();
    assert_eq!(session.call(7), 7);

    let back = session.jit.rollback().expect("something to undo");
    assert_eq!(back.functions, ["big"]);
    assert_eq!(session.call(7), model(11, 7));
    session.pin(Tier::Optimized);
    session.wait_for_tier(Tier::Optimized);
    assert_eq!(session.call(7), model(11, 7));
}

#[test]
fn a_removal_ends_the_compile_of_what_it_removes() {
    let _alone = alone();
    let session = Session::new();
    let tracker = session.jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("m", &text(11)).expect("valid IR");
    assert_eq!(session.call(3), model(11, 3));
    session.begin(1);
    // SAFETY: no thread calls the removed code.
    unsafe { tracker.remove() }.expect("once");
    session.check_cancelled();
    session
        .jit
        .add_ir("m", &text(13))
        .expect("the name is free");
    assert_eq!(session.call(3), model(13, 3));
    session
        .jit
        .compile_at("big", Tier::Optimized)
        .expect("compiles");
    assert_eq!(session.call(3), model(13, 3));
}

#[test]
fn the_end_of_a_session_does_not_wait_for_a_compile() {
    let _alone = alone();
    let Session { jit, events, hold } = {
        let session = Session::with_big();
        session.begin(1);
        session
    };
    drop(jit);
    wait("end of the worker", || !is_worker_there());
    let events = events.lock().expect("no panic");
    assert!(events.iter().any(|event| event.contains("cancelled")));
    assert_eq!(hold.made(), 0);
}

extern "C" fn about_to_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Forks; the child ends at once.
fn fork() {
    // SAFETY: as said.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "fork");
    // SAFETY: our child; the test does not need its status.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

#[test]
fn a_fork_interrupts_a_compile_once_and_it_begins_again() {
    let _alone = alone();
    let session = Session::with_big();
    // The handler that is registered last runs first before a fork: the session's handler waits for
    // compiles.
    // SAFETY: a function that lives as long as the process.
    unsafe { libc::pthread_atfork(Some(about_to_fork), None, None) };
    session.begin(2);
    fork();
    assert_eq!(session.count("cancelled"), 1);
    assert_eq!(session.hold.made(), 0);
    // It is under way again, and goes on once a second fork waits for it.
    session.wait_until_begun(2);
    fork();
    session.wait_for_tier(Tier::Optimized);
    assert_eq!(session.call(9), model(11, 9));
    assert_eq!(
        (session.count("cancelled"), session.count("failed")),
        (1, 0)
    );
    assert_eq!(session.hold.made(), 1);
}
