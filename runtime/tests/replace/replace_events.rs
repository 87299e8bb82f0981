//! Reports of replacements and of their rollbacks: events, the page and the trace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{Event, Jit, Level, Replacement, Tier};

const PROGRAM: &str = "define i32 @g(i32 %x) { %y = add i32 %x, 1 ret i32 %y }
    define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }";
const FIX: &str = "define i32 @g(i32 %x) { %y = call i32 @by(i32 %x) ret i32 %y }
    define i32 @by(i32 %x) { %y = add i32 %x, 100 ret i32 %y }";

/// Exchanges, as they are told.
type Log = Arc<Mutex<Vec<Event>>>;

fn session() -> (Jit, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let listener = move |event: &Event| {
        if matches!(event, Event::Replaced { .. } | Event::RolledBack { .. }) {
            sink.lock().expect("not poisoned").push(event.clone());
        }
    };
    let jit = Jit::builder().jobs(2).record(true);
    let jit = jit.on_event(listener).build();
    let jit = jit.expect("a session");
    jit.add_ir("m", PROGRAM).expect("valid IR");
    (jit, log)
}

fn call(jit: &Jit, argument: i32) -> i32 {
    // SAFETY: a function of the program above, which only computes.
    let function = unsafe { jit.function::<extern "C" fn(i32) -> i32>("f") };
    function.expect("typed").call(argument)
}

/// The reports: the number of the replacement, whether it went back, and the functions that were
/// exchanged, added and compiled again. Times are in order, each within its exchange.
fn told(log: &Log) -> Vec<(u64, bool, [String; 3])> {
    let mut last = Duration::ZERO;
    let mut check = |took: Duration, closed: Duration, at: Duration| {
        assert!(last <= at && took <= at && closed <= took, "{log:?}");
        last = at;
    };
    let events = log.lock().expect("not poisoned");
    let all = events.iter().map(|event| match event {
        Event::Replaced {
            number,
            functions,
            added,
            dependents,
            took,
            closed,
            at,
            ..
        } => {
            check(*took, *closed, *at);
            let names = [functions, added, dependents].map(|names| names.join(" "));
            (*number, false, names)
        }
        Event::RolledBack {
            number,
            functions,
            dependents,
            took,
            closed,
            at,
            ..
        } => {
            check(*took, *closed, *at);
            let names = [functions, &Vec::new(), dependents].map(|names| names.join(" "));
            (*number, true, names)
        }
        other => panic!("{other:?}"),
    });
    all.collect()
}

fn names(functions: &str, added: &str, dependents: &str) -> [String; 3] {
    [functions, added, dependents].map(str::to_owned)
}

#[test]
fn a_fix_comes_and_goes() {
    let (jit, log) = session();
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, 1), 2);
    // `f` has `g` inlined.
    let fix = jit.main().replace(Replacement::ir("fix", FIX));
    let fix = fix.expect("replaceable");
    assert_eq!(call(&jit, 1), 101);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    fix.rollback().expect("the latest");
    assert_eq!(call(&jit, 1), 2);
    let first = told(&log);
    let [(number, false, there), (same, true, back)] = first.as_slice() else {
        panic!("{first:?}");
    };
    assert_eq!(*there, names("g", "by", "f"));
    assert_eq!((number, back), (same, &names("g", "", "f")));

    jit.main()
        .replace(Replacement::ir("fix", FIX))
        .expect("replaceable");
    jit.rollback().expect("the latest");
    let all = told(&log);
    let numbers: Vec<u64> = all.iter().map(|(number, _, _)| *number).collect();
    assert!(
        numbers[1] < numbers[2] && numbers[2] == numbers[3],
        "{all:?}"
    );
}

#[test]
fn the_level_is_told() {
    let (jit, log) = session();
    let wait = Duration::from_secs(60);
    let level = Level::Quiescent { wait };
    let fix = Replacement::ir("fix", FIX).level(level);
    jit.main().replace(fix).expect("replaceable");
    let log = log.lock().expect("not poisoned");
    let [Event::Replaced { level: told, .. }] = log.as_slice() else {
        panic!("{log:?}");
    };
    assert_eq!(*told, level);
}

#[test]
fn what_fails_is_not_told() {
    let (jit, log) = session();
    let odd = "define i64 @g(i64 %x, i64 %y) { ret i64 %x }";
    assert!(jit.main().replace(Replacement::ir("odd", odd)).is_err());
    assert!(jit.rollback().is_err());
    let fix = jit.main().replace(Replacement::ir("fix", FIX));
    let fix = fix.expect("replaceable");
    fix.rollback().expect("the latest");
    assert!(fix.rollback().is_err());
    assert_eq!(told(&log).len(), 2);
}

#[test]
fn the_page_and_the_trace_have_it() {
    let (jit, _log) = session();
    assert_eq!(call(&jit, 1), 2);
    let page = jit.report_page().expect("recorded");
    assert!(!page.contains("Functions replaced"));
    let fix = Replacement::ir("fix", FIX);
    jit.main().replace(fix).expect("replaceable");
    jit.rollback().expect("the latest");
    let page = jit.report_page().expect("recorded");
    for text in [
        "Functions replaced</h2>",
        "<b>replaced</b>",
        "<b>rolled back</b>",
        "<code>g; added: by</code>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let mut trace = Vec::new();
    assert!(jit.trace(&mut trace).expect("memory can be written to"));
    let trace = String::from_utf8(trace).expect("text");
    for name in ["\"replaced g and 1 more\"", "\"rolled back g\""] {
        assert!(trace.contains(name), "{name}");
    }
}
