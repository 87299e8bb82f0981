//! Functions are compiled before they are called, and only a caller that waits for them can tell.
//!
//! The tests look at events and counts, never at times. A transform holds compiles ahead up where a
//! test wants something to happen beside one. On a single processor nothing is compiled ahead, and
//! there is nothing to see.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uruk::{Event, Jit, JitBuilder, Replacement, SpeculationStats, Tier, Tiers, Transform};

/// Longer than anything takes here.
const LATE: Duration = Duration::from_secs(60);

type Number = extern "C" fn() -> i32;

thread_local! {
    static PAUSE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Called by the tests' functions.
extern "C" fn pause() {
    let work = PAUSE.with_borrow_mut(Option::take);
    if let Some(work) = work {
        work();
    }
}

/// Sets the work of a function that calls `pause` on this thread.
fn at_pause(work: impl Fn() + 'static) {
    PAUSE.set(Some(Box::new(work)));
}

/// The right to run, one test at a time: a fork waits for compiles, which tests hold up. `None`
/// on a single processor.
fn begin() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors > 1).then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LATE, "no {what}");
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn is_ahead() -> bool {
    std::fs::read_to_string("/proc/thread-self/comm")
        .is_ok_and(|name| name.starts_with("uruk-ahead"))
}

/// A session with all it tells.
struct Session {
    jit: Jit,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Session {
    fn new(builder: JitBuilder, ir: &str) -> Session {
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let told = Arc::clone(&events);
        let builder = builder.on_event(move |event: &Event| {
            told.lock().expect("no panic").push(event.clone());
        });
        let jit = builder.build().expect("a session");
        // SAFETY: a function of that type, which lives as long as the process.
        unsafe { jit.main().define_address("pause", pause as *const ()) }.expect("a new name");
        jit.add_ir("m", ir).expect("valid");
        Session { jit, events }
    }

    fn call(&self, name: &str) -> i32 {
        // SAFETY: functions of the tests, which take nothing and return a number.
        let function = unsafe { self.jit.function::<Number>(name) };
        function.expect("a function").call()
    }

    fn ahead(&self) -> SpeculationStats {
        self.jit.stats().ahead
    }

    /// How many events there were of those that `is` knows.
    fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.lock().expect("no panic");
        events.iter().filter(|event| is(event)).count()
    }

    fn compiled(&self, name: &str) -> usize {
        self.count(|event| matches!(event, Event::Compiled { function, .. } if *function == name))
    }

    fn answered(&self, name: &str) -> usize {
        self.count(|event| matches!(event, Event::Answered { function, .. } if *function == name))
    }
}

fn speculating() -> JitBuilder {
    Jit::builder().jobs(2).speculate(true)
}

/// Holds compiles ahead of `late` up.
#[derive(Clone, Default)]
struct Hold {
    begun: Arc<AtomicBool>,
    go: Arc<AtomicBool>,
}

impl Hold {
    fn transform(&self) -> Transform {
        let hold = self.clone();
        Transform::new(move |unit| {
            if unit.function == "late" && is_ahead() {
                hold.begun.store(true, Ordering::SeqCst);
                until("word to go on", || hold.go.load(Ordering::SeqCst));
            }
            Ok(())
        })
    }

    fn is_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    fn go(&self) {
        self.go.store(true, Ordering::SeqCst);
    }
}

const STEPS: &str = "declare void @pause()
    define i32 @start() {
      call void @pause()
      %x = call i32 @late()
      ret i32 %x
    }
    define i32 @late() noinline { %x = call i32 @later() %y = add i32 %x, 2 ret i32 %y }
    define i32 @later() noinline { ret i32 40 }";

#[test]
fn code_is_ready_before_its_first_call() {
    let Some(_one) = begin() else { return };
    for tiers in [
        Tiers::Auto,
        Tiers::Fixed(Tier::Baseline),
        Tiers::Fixed(Tier::Optimized),
    ] {
        let session = Session::new(speculating().tiers(tiers), STEPS);
        let jit = session.jit.clone();
        at_pause(move || until("compiles ahead", || jit.stats().ahead.compiled == 2));
        assert_eq!(session.call("start"), 42);
        let ahead = session.ahead();
        assert_eq!(
            (ahead.compiled, ahead.called, ahead.joined),
            (2, 2, 0),
            "{tiers:?}"
        );
        for name in ["late", "later"] {
            assert_eq!(
                (session.compiled(name), session.answered(name)),
                (1, 0),
                "{name}"
            );
        }
        assert_eq!(session.call("late"), 42);
        until("word of the first call", || session.answered("start") == 1);
        assert_eq!(session.jit.first_calls(), ["start", "late", "later"]);
    }
}

#[test]
fn what_is_prepared_is_code_like_any_other() {
    let Some(_one) = begin() else { return };
    let session = Session::new(speculating(), STEPS);
    session.jit.pause_tiers();
    session
        .jit
        .main()
        .compile_ahead(&["late", "later", "nobody", "pause"]);
    until("compiles ahead", || session.ahead().compiled == 2);
    assert_eq!(session.ahead().called, 0);
    session.jit.main().compile("late").expect("there");
    assert_eq!(session.compiled("late"), 1);
    session
        .jit
        .compile_at("later", Tier::Optimized)
        .expect("better");
    assert_eq!(
        session.jit.tier("later").expect("known"),
        Some(Tier::Optimized)
    );
    // An address that a program takes leads to it, too.
    assert_eq!(session.call("start"), 42);
    assert_eq!(
        session.jit.tier("later").expect("known"),
        Some(Tier::Optimized)
    );
}

#[test]
fn an_expected_order_is_kept() {
    let Some(_one) = begin() else { return };
    let ir: String = (0..20)
        .map(|i| format!("define i32 @f{i}() {{ ret i32 {i} }}\n"))
        .collect();
    let session = Session::new(speculating(), &ir);
    let order: Vec<String> = (0..20).map(|i| format!("f{}", i * 7 % 20)).collect();
    let names: Vec<&str> = order.iter().map(String::as_str).collect();
    session.jit.main().compile_ahead(&names);
    until("compiles ahead", || session.ahead().compiled == 20);
    let events = session.events.lock().expect("no panic");
    let compiled = events.iter().filter_map(|event| match event {
        Event::Compiled { function, .. } => Some(*function),
        _ => None,
    });
    // The next three are the program's, as long as there are more.
    let (next, others) = names.split_at(3);
    assert_eq!(compiled.collect::<Vec<_>>(), [others, next].concat());
}

#[test]
fn a_first_call_joins_a_compile_under_way() {
    let Some(_one) = begin() else { return };
    let hold = Hold::default();
    let session = Session::new(speculating().transform_ir(hold.transform()), STEPS);
    let begun = hold.clone();
    at_pause(move || until("compile ahead", || begun.is_begun()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("first call that joins", || session.ahead().joined >= 1);
            hold.go();
        });
        assert_eq!(session.call("start"), 42);
    });
    // Callers go on before it is told. By whom: who compiles may have had no processor.
    until("word of the first call", || session.answered("late") == 1);
    assert_eq!(session.call("start"), 42);
    assert_eq!(session.answered("late"), 1);
}

#[test]
fn a_first_call_does_not_wait_for_who_does_not_get_on() {
    let Some(_one) = begin() else { return };
    let hold = Hold::default();
    let session = Session::new(speculating().transform_ir(hold.transform()), STEPS);
    let begun = hold.clone();
    at_pause(move || until("compile ahead", || begun.is_begun()));
    // The compile ahead is held up until the call has returned.
    assert_eq!(session.call("start"), 42);
    assert!(session.ahead().joined >= 1);
    until("word of the first call", || session.answered("late") == 1);
    hold.go();
    until("end of the compile ahead", || session.ahead().failed == 1);
    assert_eq!(session.call("start"), 42);
}

#[test]
fn with_one_job_nothing_is_compiled_ahead() {
    let _one = begin();
    let quiet = |builder: JitBuilder| {
        let session = Session::new(builder, STEPS);
        session.jit.main().compile_ahead(&["late", "later"]);
        assert_eq!(session.call("start"), 42);
        assert_eq!(session.ahead(), SpeculationStats::default());
        assert!(session.jit.first_calls().is_empty());
    };
    quiet(speculating().jobs(1));
    quiet(Jit::builder().jobs(2));
}

extern "C" fn minus_one() -> i32 {
    -1
}

#[test]
fn a_failure_is_the_first_calls_to_tell() {
    let Some(_one) = begin() else { return };
    static FAILED: AtomicU32 = AtomicU32::new(0);
    let builder = speculating().on_failed_call(Arc::new(|call| {
        FAILED.fetch_add(u32::from(call.function == "late"), Ordering::SeqCst);
        minus_one as *const ()
    }));
    let session = Session::new(builder, "");
    session.jit.main().allow_missing(true);
    let ir = STEPS.replace(
        "define i32 @later() noinline { ret i32 40 }",
        "declare i32 @later()",
    );
    session.jit.add_ir("n", &ir).expect("valid");
    let jit = session.jit.clone();
    at_pause(move || until("failure ahead", || jit.stats().ahead.failed == 1));
    assert_eq!(session.call("start"), -1);
    assert_eq!(FAILED.load(Ordering::SeqCst), 1);
    let failed = |event: &Event| matches!(event, Event::Failed { .. });
    assert_eq!((session.count(failed), session.ahead().compiled), (1, 0));
    session
        .jit
        .add_ir("o", "define i32 @later() { ret i32 1 }")
        .expect("valid");
    assert_eq!(session.call("start"), 3);
}

#[test]
fn a_replacement_ends_a_compile_ahead() {
    let Some(_one) = begin() else { return };
    let hold = Hold::default();
    let session = Session::new(speculating().transform_ir(hold.transform()), STEPS);
    let (held, jit) = (hold.clone(), session.jit.clone());
    at_pause(move || {
        until("compile ahead", || held.is_begun());
        let new = Replacement::ir("new", "define i32 @late() { ret i32 7 }");
        jit.main().replace(new).expect("replaceable");
        held.go();
    });
    assert_eq!(session.call("start"), 7);
    until("end of the compile ahead", || session.ahead().failed == 1);
    assert_eq!(session.call("start"), 7);
}

#[test]
fn a_removal_ends_a_compile_ahead() {
    let Some(_one) = begin() else { return };
    let hold = Hold::default();
    let session = Session::new(speculating().transform_ir(hold.transform()), "");
    let jit = &session.jit;
    let tracker = jit.main().create_tracker().expect("a tracker");
    let (steps, late) = STEPS.split_once("define i32 @late").expect("there");
    tracker
        .add_ir("late", &format!("define i32 @late{late}"))
        .expect("valid");
    jit.add_ir("n", &format!("{steps} declare i32 @late()"))
        .expect("valid");
    let (held, again) = (hold.clone(), jit.clone());
    at_pause(move || {
        until("compile ahead", || held.is_begun());
        // SAFETY: nothing of it was called, nor is it again.
        unsafe { tracker.remove() }.expect("removable");
        held.go();
        again
            .add_ir("o", "define i32 @late() { ret i32 9 }")
            .expect("valid");
    });
    assert_eq!(session.call("start"), 9);
}

#[test]
fn children_of_forks_go_on_beside_compiles_ahead() {
    let Some(_one) = begin() else { return };
    const STEPS: usize = 60;
    let mut ir = String::from("declare void @pause()\n");
    for i in 0..STEPS {
        let next = i + 1;
        ir += &format!(
            "define i32 @f{i}() {{ call void @pause() %x = call i32 @f{next}() %y = add i32 %x, 1 ret i32 %y }}\n"
        );
    }
    ir += &format!("define i32 @f{STEPS}() {{ ret i32 0 }}\n");
    fn fork_now() {
        // SAFETY: the child goes on in code of the session and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            CHILD.set(true);
            // SAFETY: as above.
            unsafe { libc::alarm(60) };
            return;
        }
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's answer");
        at_pause(|| at_pause(|| at_pause(fork_now)));
    }
    thread_local! {
        static CHILD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let session = Session::new(speculating(), &ir);
    at_pause(fork_now);
    let sum = session.call("f0");
    if CHILD.get() {
        // SAFETY: ends the child, whose other threads are gone.
        unsafe { libc::_exit(i32::from(sum != STEPS as i32)) };
    }
    assert_eq!(sum, STEPS as i32);
    assert!(session.ahead().compiled > 0);
}

#[test]
fn guesses_that_come_to_nothing_are_bounded() {
    let Some(_one) = begin() else { return };
    const CALLEES: usize = 200;
    // All of them look as if they were about to be called, and none is.
    let mut ir = String::from(
        "declare void @pause() define i32 @start() { call void @pause() ret i32 1\nrest:\n",
    );
    ir = ir.replace("ret i32 1\nrest:", "br label %rest\nrest:");
    ir += "%z = load volatile i32, ptr @zero %c = icmp eq i32 %z, 0 br i1 %c, label %done, label %calls, !prof !0\ncalls:\n";
    for i in 0..CALLEES {
        ir += &format!("%x{i} = call i32 @f{i}()\n");
    }
    ir += "br label %done\ndone: ret i32 1 }\n@zero = global i32 0\n!0 = !{!\"branch_weights\", i32 1, i32 99}\n";
    for i in 0..CALLEES {
        ir += &format!("define i32 @f{i}() {{ ret i32 {i} }}\n");
    }
    let session = Session::new(speculating(), &ir);
    let jit = session.jit.clone();
    at_pause(move || {
        until("compiles ahead", || jit.stats().ahead.compiled >= 28);
    });
    assert_eq!(session.call("start"), 1);
    let ahead = session.ahead();
    assert!(ahead.compiled < 100 && ahead.called == 0, "{ahead:?}");
}

/// A small function is inlined into its caller, which is compiled at tier 2 in its place. The bodies
/// that speculation reads show who calls it.
#[test]
fn callers_of_small_hot_functions_are_compiled_in_their_place() {
    const PAIRS: u32 = 5;
    let Some(_alone) = begin() else { return };
    let jit = speculating().build().expect("a session");
    let mut text = String::new();
    for n in 0..PAIRS {
        let steps: String = (0..8)
            .map(|at| {
                let from = if at == 0 {
                    "x".to_owned()
                } else {
                    format!("y{}", at - 1)
                };
                format!("%y{at} = call i32 @small{n}(i32 %{from})\n")
            })
            .collect();
        text += &format!(
            "define i32 @small{n}(i32 %x) {{ %y = mul i32 %x, 7 %z = xor i32 %y, {n} ret i32 %z }}
            define i32 @large{n}(i32 %x) {{ {steps} ret i32 %y7 }}\n"
        );
    }
    jit.add_ir("m", &text).expect("valid");
    let small = |n: u32, x: u32| x.wrapping_mul(7) ^ n;
    for n in 0..PAIRS {
        // SAFETY: a function of the module above, which computes.
        let large = unsafe { jit.function::<extern "C" fn(u32) -> u32>(&format!("large{n}")) };
        let large = large.expect("typed");
        let result = (0..8).fold(1, |x, _| small(n, x));
        until("tier 2", || {
            (0..10_000).for_each(|_| assert_eq!(large.call(1), result));
            jit.tier(&format!("large{n}")).expect("known") >= Some(Tier::Optimized)
        });
    }
    let stays = |n: &u32| {
        let tier = jit.tier(&format!("small{n}")).expect("known");
        tier == Some(Tier::Baseline)
    };
    // A body may be read late on a busy machine.
    let stayed = (0..PAIRS).filter(stays).count();
    assert!(stayed >= 3, "{stayed}");
}
