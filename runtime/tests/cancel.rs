//! Compiles that nobody wants end early, and take nothing with them.
//!
//! One function takes LLVM hundreds of milliseconds at tier 2. Its compile is cancelled
//! when a worker has spent some of that, in each way there is; what the worker spends
//! after that is bounded by a share of the whole. All times are of the processor.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use uruk::{Event, Jit, Replacement, Tier};

type Big = extern "C" fn(u64) -> u64;

/// Statements of the function.
const STATEMENTS: u64 = 800;

/// Spent on a compile by the time it is cancelled.
const BEGUN: Duration = Duration::from_millis(30);

/// A cancelled compile goes on for less than the whole divided by this.
const SHARE: u32 = 2;

/// Longer than any compile takes here.
const LATE: Duration = Duration::from_secs(120);

/// One test at a time: threads are found by their names.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    wait("workers of the test before", || worker().is_none());
    alone
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LATE, "no {what}");
        std::thread::sleep(Duration::from_micros(300));
    }
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

/// What the function returns.
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

/// Processor time of a clock.
fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid out pointer; a thread that ended has no clock.
    let known = unsafe { libc::clock_gettime(id, &raw mut time) } == 0;
    known.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn process() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID).expect("there always is")
}

/// The background worker, if there is one.
fn worker() -> Option<i32> {
    let mut tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    tasks.find_map(|task| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let id = path.file_name()?.to_str()?.parse().ok()?;
        name.starts_with("uruk-opt").then_some(id)
    })
}

/// Processor time of the background worker; none while there is none.
fn spent() -> Duration {
    // The kernel's clock of a thread's time, by its number.
    let time = worker().and_then(|thread| clock((!thread << 3) | 6));
    time.unwrap_or_default()
}

struct Session {
    jit: Jit,
    events: Arc<Mutex<Vec<String>>>,
    /// What the worker had spent when its compile was cancelled.
    ended: Arc<Mutex<Option<Duration>>>,
}

impl Session {
    /// With the function at tier 1.
    fn new() -> Session {
        let events: Arc<Mutex<Vec<String>>> = Arc::default();
        let ended: Arc<Mutex<Option<Duration>>> = Arc::default();
        let (told, at) = (Arc::clone(&events), Arc::clone(&ended));
        let listener = move |event: &Event| {
            let text = match event {
                Event::Cancelled { function, tier, .. } => {
                    *at.lock().expect("no panic") = clock(libc::CLOCK_THREAD_CPUTIME_ID);
                    format!("{function} {tier} cancelled")
                }
                Event::Failed { function, .. } => format!("{function} failed"),
                Event::Published { function, tier, .. } => format!("{function} {tier}"),
                _ => return,
            };
            told.lock().expect("no panic").push(text);
        };
        let builder = Jit::builder().jobs(1).on_event(Arc::new(listener));
        let jit = builder.build().expect("a session");
        Session { jit, events, ended }
    }

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
        self.jit.pin("big", Some(tier)).expect("there is one");
    }

    /// Has the function compiled at tier 2, until the worker is in the middle of it.
    fn begin(&self) {
        let before = spent();
        self.pin(Tier::Optimized);
        wait("compile", || spent() > before + BEGUN);
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

    fn wait_for_cancelled(&self) {
        wait("cancellation", || self.count("cancelled") == 1);
    }

    /// Checks that the worker's compile ended soon after it had spent `before`.
    fn check_rest(&self, before: Duration, whole: Duration) {
        let ended = self.ended.lock().expect("no panic");
        let rest = ended.expect("it was cancelled").saturating_sub(before);
        assert!(rest * SHARE < whole, "{rest:?} of {whole:?}");
    }
}

/// What the whole compile takes.
fn whole() -> Duration {
    static WHOLE: OnceLock<Duration> = OnceLock::new();
    *WHOLE.get_or_init(|| {
        let session = Session::with_big();
        let before = spent();
        session.pin(Tier::Optimized);
        session.wait_for_tier(Tier::Optimized);
        assert_eq!(session.call(5), model(11, 5));
        let whole = spent() - before;
        drop(session);
        wait("end of the session", || worker().is_none());
        assert!(whole > 4 * BEGUN, "too short to be cancelled: {whole:?}");
        whole
    })
}

#[test]
fn a_worker_is_free_soon_and_the_function_is_as_good_as_before() {
    let _alone = alone();
    let whole = whole();
    let session = Session::with_big();
    session.begin();
    let before = spent();
    session.pin(Tier::Baseline);
    session.wait_for_cancelled();
    session.check_rest(before, whole);
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
    session.begin();
    let new = Replacement::ir("new", "define i64 @big(i64 %x) { ret i64 %x }");
    session.jit.main().replace(new).expect("replaceable");
    session.wait_for_cancelled();
    assert_eq!(session.call(7), 7);

    let back = session.jit.rollback().expect("something to undo");
    assert_eq!(back, ["big"]);
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
    session.begin();
    // SAFETY: nobody calls what is removed.
    unsafe { tracker.remove() }.expect("once");
    session.wait_for_cancelled();
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
    let whole = whole();
    let session = Session::with_big();
    session.begin();
    let before = process();
    drop(session.jit);
    wait("end of the worker", || worker().is_none());
    let rest = process() - before;
    assert!(rest * SHARE < whole, "{rest:?} of {whole:?}");
    let events = session.events.lock().expect("no panic");
    assert!(events.iter().any(|event| event.contains("cancelled")));
}

#[test]
fn a_fork_interrupts_a_compile_once_and_it_begins_again() {
    let _alone = alone();
    let fork = || {
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "fork");
        // SAFETY: our child; nobody wants to know how it ended.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    };
    let whole = whole();
    let session = Session::with_big();
    session.begin();
    let before = spent();
    fork();
    assert_eq!(session.count("cancelled"), 1);
    session.check_rest(before, whole);
    // By the time the child has ended that may be long under way.
    let ended = *session.ended.lock().expect("no panic");
    let ended = ended.expect("it was cancelled");
    wait("second compile", || spent() > ended + BEGUN);
    fork();
    session.wait_for_tier(Tier::Optimized);
    assert_eq!(session.call(9), model(11, 9));
    assert_eq!(
        (session.count("cancelled"), session.count("failed")),
        (1, 0)
    );
}
