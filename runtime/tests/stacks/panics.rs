//! Panics on threads of the library: here those of a listener, in the middle of compiles.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Error, Event, FunctionId, Jit, JitBuilder, SessionError, Tier};

/// Longest wait for something that happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);

type Log = Arc<Mutex<Vec<Event>>>;
type Square = extern "C" fn(i32) -> i32;

extern "C" fn minus_one() -> i32 {
    -1
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    minus_one as *const () as u64
}

/// A session whose listener panics where `when` says, after it has written down the event.
fn panicking(
    builder: JitBuilder,
    when: impl Fn(&Event) -> bool + Send + Sync + 'static,
) -> (Jit, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let listener = move |event: &Event| {
        sink.lock().expect("not poisoned").push(event.clone());
        if when(event) {
            // Past the hook, which would print.
            std::panic::resume_unwind(Box::new("a fault of the listener's"));
        }
    };
    let builder = builder.on_event(listener).on_failure(on_failure);
    (builder.build().expect("a session"), log)
}

fn squares(names: &[&str]) -> String {
    let define =
        |name: &&str| format!("define i32 @{name}(i32 %x) {{ %y = mul i32 %x, %x ret i32 %y }}\n");
    names.iter().map(define).collect()
}

fn function(jit: &Jit, name: &str) -> uruk::Func<Square> {
    // SAFETY: functions of `squares`.
    unsafe { jit.function(name) }.expect("typed")
}

#[test]
fn callers_of_a_compile_that_panics_get_the_failure_and_others_go_on() {
    let bad = |event: &Event| matches!(event, Event::Compiled { function, .. } if function.starts_with("bad"));
    let (jit, log) = panicking(Jit::builder().jobs(2), bad);
    let names = ["bad1", "a", "bad2", "b", "bad3", "c", "bad4", "d"];
    jit.add_ir("m", &squares(&names)).expect("valid IR");
    // More panics than there are workers.
    for name in names {
        let expected = if name.starts_with("bad") { -1 } else { 49 };
        assert_eq!(function(&jit, name).call(7), expected, "{name}");
    }
    // Later calls fail at once, as after every failed compile.
    assert_eq!(function(&jit, "bad1").call(7), -1);
    let error = jit.main().compile("bad2").expect_err("it panics");
    let is_panic = matches!(&error, Error::Session(SessionError::Panicked { .. }));
    assert!(is_panic, "{error:?}");
    assert!(error.to_string().contains("the listener's"), "{error}");
    drop(jit);
    let count = |of: fn(&Event) -> Option<&str>| {
        let log = log.lock().expect("not poisoned");
        let texts = log.iter().filter_map(of);
        texts.filter(|it| it.contains("the listener's")).count()
    };
    let failed = count(|event| match event {
        Event::Failed { message, .. } => Some(message),
        _ => None,
    });
    assert_eq!(failed, 5);
    // A worker tells that it is lost when its caller has gone on.
    let start = Instant::now();
    let mut lost = 0;
    while lost != 4 && start.elapsed() < PATIENCE {
        lost = count(|event| match event {
            Event::WorkerLost { message, .. } => Some(message),
            _ => None,
        });
    }
    assert_eq!(lost, 4);
}

#[test]
fn a_panic_after_the_code_is_published_costs_nobody_anything() {
    let answered = AtomicUsize::new(0);
    let every = move |event: &Event| {
        matches!(event, Event::Answered { .. }) && answered.fetch_add(1, Ordering::Relaxed) < 6
    };
    let (jit, _log) = panicking(Jit::builder().jobs(1), every);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    jit.add_ir("m", &squares(&names)).expect("valid IR");
    for name in names {
        assert_eq!(function(&jit, name).call(7), 49, "{name}");
    }
}

#[test]
fn a_background_worker_that_panics_is_replaced() {
    let better = |event: &Event| {
        let Event::Compiled { function, tier, .. } = event else {
            return false;
        };
        *function == "bad" && *tier > Tier::Baseline
    };
    let (jit, log) = panicking(Jit::builder(), better);
    jit.add_ir("m", &squares(&["bad", "good"]))
        .expect("valid IR");
    let (bad, good) = (function(&jit, "bad"), function(&jit, "good"));
    let start = Instant::now();
    let lost = |log: &Log| {
        let log = log.lock().expect("not poisoned");
        log.iter().any(|e| matches!(e, Event::WorkerLost { .. }))
    };
    let up = || jit.tier("good").expect("known") >= Some(Tier::Optimized);
    while !(lost(&log) && up()) {
        (0..1000).for_each(|x| assert_eq!((bad.call(x), good.call(x)), (x * x, x * x)));
        assert!(
            start.elapsed() < PATIENCE,
            "lost: {}, up: {}",
            lost(&log),
            up()
        );
    }
    assert_eq!(jit.tier("bad").expect("known"), Some(Tier::Baseline));
}
