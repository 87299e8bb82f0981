//! Better code of units' functions: who asks for it, and what becomes of it whatever happens
//! meanwhile. The units here have a tiny compiler: its code counts down, or waits for a word.

#[path = "support/unit.rs"]
#[allow(dead_code)]
mod unit;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unit::{PATIENCE, TestUnit, ask, session};
use uruk::{
    Code, Error, Event, Flags, Func, Improvement, Improver, Interface, Jit, JitBuilder,
    ReclaimKind, Reference, Refusal, Replacement, Responsibility, SessionError, Symbol, Tier,
    Tiers, Unit,
};

type F = Func<extern "C" fn(i64) -> i64>;

/// A compiler's output: takes turns in a loop, then says which code it is.
fn counting(name: &str, number: u8) -> Vec<u8> {
    let mut code = Code::new();
    code.function(
        name,
        &[
            0xb8, number, 0, 0, 0, // mov eax, NUMBER
            0x48, 0x85, 0xff, // test rdi, rdi
            0x7e, 0x05, // jle +5
            0x48, 0xff, 0xcf, // dec rdi
            0x75, 0xfb, // jnz -5
            0xc3,
        ],
    );
    code.finish().unwrap()
}

/// The same: says that it is inside, waits for the word to change, and says which code it is.
fn waiting(name: &str, number: u8) -> Vec<u8> {
    let mut code = Code::new();
    code.function(
        name,
        &[
            0x48, 0xc7, 0x47, 8, 1, 0, 0, 0, // mov qword [rdi + 8], 1
            0x48, 0x83, 0x3f, 0, // cmp qword [rdi], 0
            0x74, 0xfa, // je -6
            0xb8, number, 0, 0, 0, // mov eax, NUMBER
            0xc3,
        ],
    );
    code.finish().unwrap()
}

/// What code that waits looks at.
#[derive(Default)]
#[repr(C)]
struct Words {
    go: AtomicI64,
    inside: AtomicI64,
}

impl Words {
    fn address(&self) -> i64 {
        std::ptr::from_ref(self).addr() as i64
    }
}

/// A function whose first code is tier 1's.
struct Formula {
    symbol: Symbol,
    object: Vec<u8>,
    improver: Arc<dyn Improver>,
}

impl Unit for Formula {
    fn name(&self) -> &str {
        "formula"
    }

    fn interface(&self) -> Interface {
        let flags = Flags::EXPORTED | Flags::CALLABLE;
        [(self.symbol, flags)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        responsibility.link("first.o", self.object).unwrap();
    }

    fn improver(&self) -> Option<Arc<dyn Improver>> {
        Some(Arc::clone(&self.improver))
    }
}

fn formula(jit: &Jit, object: Vec<u8>, improver: impl Improver) -> Formula {
    let (symbol, improver) = (jit.intern("f"), Arc::new(improver));
    Formula {
        symbol,
        object,
        improver,
    }
}

fn function(jit: &Jit) -> F {
    // SAFETY: the functions of these tests take and return a number.
    unsafe { jit.function("f").unwrap() }
}

/// Links the code whose number is its tier.
fn by_tier(better: Improvement) {
    let code = counting("f", better.tier().number());
    better.link("better.o", code).unwrap();
}

type Told = Arc<Mutex<Vec<String>>>;

/// A session, what its events say of versions, and what is reported.
fn told(builder: JitBuilder) -> (Jit, Told, Told) {
    let (events, reports) = (Told::default(), Told::default());
    let sink = Arc::clone(&reports);
    let report = move |error: &SessionError| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        sink.lock().unwrap().push(format!("{error}: {source:?}"));
    };
    let sink = Arc::clone(&events);
    let listener = move |event: &Event| {
        let text = match event {
            Event::Compiled { tier, .. } => format!("compiled {}", tier.number()),
            Event::Published { tier, replaced, .. } => {
                let before = replaced.map_or(0, |(_, tier)| tier.number());
                format!("published {} after {before}", tier.number())
            }
            Event::Failed { tier, message, .. } => format!("failed {}: {message}", tier.number()),
            Event::Dropped { .. } => String::from("dropped"),
            Event::Cancelled { .. } => String::from("cancelled"),
            _ => return,
        };
        sink.lock().unwrap().push(text);
    };
    let builder = builder.on_error(Arc::new(report));
    let jit = builder.on_event(Arc::new(listener)).build().unwrap();
    (jit, events, reports)
}

fn all(told: &Told) -> Vec<String> {
    told.lock().unwrap().clone()
}

/// Waits for something that is to happen on another thread.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn refusal(result: Result<(), Error>) -> Refusal {
    match result {
        Err(Error::Version { cause, .. }) => cause,
        other => panic!("no refusal: {other:?}"),
    }
}

#[test]
fn whoever_asks_gets_better_code() {
    let (jit, events, reports) = told(Jit::builder());
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        match better.tier() {
            Tier::Guided => better.decline(),
            _ => by_tier(better),
        }
    });
    jit.main().define(unit).unwrap();
    assert_eq!(jit.tier("f").unwrap(), None);
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(function(&jit).call(0), 2);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Optimized));
    let declined = refusal(jit.compile_at("f", Tier::Guided));
    assert_eq!(declined, Refusal::Declined { tier: Tier::Guided });
    assert_eq!(function(&jit).call(0), 2);
    let wanted = [
        "published 1 after 0",
        "compiled 2",
        "published 2 after 1",
        "failed 3: f: its unit has no code for tier 3",
    ];
    assert_eq!(all(&events), wanted);
    assert_eq!(all(&reports), Vec::<String>::new());
    let tiers = jit.stats().tiers;
    assert_eq!(tiers.map(|tier| tier.versions), [1, 1, 0]);
    assert_eq!(tiers.map(|tier| tier.functions), [0, 1, 0]);
}

#[test]
fn units_without_better_code_say_so() {
    let jit = Jit::new().unwrap();
    let unit = TestUnit::at(&jit, &[("f()", unit::address(unit::seven))]);
    jit.main().define(unit).unwrap();
    let declined = refusal(jit.compile_at("f", Tier::Optimized));
    assert_eq!(
        declined,
        Refusal::Declined {
            tier: Tier::Optimized
        }
    );
    assert_eq!(unit::call(&jit, "f"), 7);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Baseline));
}

/// Tests that sample: the timers of a thread exist once.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn samples_find_hot_functions_of_units() {
    let _alone = ALONE.lock();
    let (jit, events, reports) = told(Jit::builder());
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    until("better code", || f.call(1_000_000) == 3);
    let wanted = [
        "published 1 after 0",
        "compiled 2",
        "published 2 after 1",
        "compiled 3",
        "published 3 after 2",
    ];
    assert_eq!(all(&events), wanted);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn what_fails_is_reported_once_and_not_asked_again() {
    let _alone = ALONE.lock();
    let (jit, events, reports) = told(Jit::builder());
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let unit = formula(&jit, counting("f", 1), move |better: Improvement| {
        count.fetch_add(1, Ordering::Relaxed);
        better.fail(SessionError::unit("tiny", "too hard"));
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    until("a question", || {
        f.call(1_000_000);
        asked.load(Ordering::Relaxed) > 0
    });
    until("a report", || !all(&reports).is_empty());
    // As hot as before, and seen to be.
    let before = jit.stats().samples.0;
    until("more samples", || {
        f.call(1_000_000);
        jit.stats().samples.0 > before + 100
    });
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(f.call(0), 1);
    let events = all(&events);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[1].starts_with("failed 2: "), "{events:?}");
    let reports = all(&reports);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("tiny"), "{reports:?}");
}

#[test]
fn pins_bring_units_functions_to_their_tier() {
    let (jit, _, _) = told(Jit::builder());
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    for tier in [Tier::Guided, Tier::Optimized, Tier::Baseline] {
        jit.pin("f", Some(tier)).unwrap();
        until("the pinned tier", || f.call(0) == i64::from(tier.number()));
    }
}

#[test]
fn a_fixed_tier_is_that_of_the_first_code() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let (jit, events, reports) = told(Jit::builder().tiers(Tiers::Fixed(tier)));
        let unit = formula(&jit, counting("f", 1), |better: Improvement| {
            match better.tier() {
                Tier::Optimized => by_tier(better),
                _ => better.decline(),
            }
        });
        jit.main().define(unit).unwrap();
        let (code, wanted) = match tier {
            Tier::Optimized => (2, vec!["compiled 2", "published 2 after 0"]),
            _ => (
                1,
                vec![
                    "failed 3: f: its unit has no code for tier 3",
                    "published 1 after 0",
                ],
            ),
        };
        assert_eq!(function(&jit).call(0), code);
        assert_eq!(all(&events), wanted);
        assert_eq!(all(&reports), Vec::<String>::new());
    }
}

/// A question that is under way, and the word to go on.
struct Paused {
    begun: Receiver<Improvement>,
    /// What the improver's link came to.
    linked: Receiver<Result<(), Error>>,
    go: Sender<Improvement>,
}

/// An improver that waits in the middle.
fn paused() -> (impl Improver, Paused) {
    let (begin, begun) = channel();
    let (go, going) = channel::<Improvement>();
    let (sender, linked) = channel();
    let ends = Mutex::new((begin, going, sender));
    let improver = move |better: Improvement| {
        let ends = ends.lock().unwrap();
        ends.0.send(better).unwrap();
        let better = ends.1.recv_timeout(PATIENCE).unwrap();
        let code = counting("f", better.tier().number());
        ends.2.send(better.link("better.o", code)).unwrap();
    };
    (improver, Paused { begun, linked, go })
}

#[test]
fn a_function_is_removed_while_it_gets_better() {
    let (jit, events, reports) = told(Jit::builder());
    let (improver, paused) = paused();
    let tracker = jit.main().create_tracker().unwrap();
    tracker
        .define(formula(&jit, counting("f", 1), improver))
        .unwrap();
    assert_eq!(function(&jit).call(0), 1);
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    let better = paused.begun.recv_timeout(PATIENCE).unwrap();
    assert!(!better.is_cancelled());
    // SAFETY: nobody calls it.
    unsafe { tracker.remove().unwrap() };
    assert!(better.is_cancelled());
    paused.go.send(better).unwrap();
    assert!(paused.linked.recv_timeout(PATIENCE).unwrap().is_err());
    until("the end", || {
        all(&events).iter().any(|it| it == "cancelled")
    });
    assert!(jit.lookup("f").is_err());
    // It comes back under the same stub, and is improved as any.
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(function(&jit).call(0), 2);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn a_function_is_replaced_while_it_gets_better() {
    let (jit, _, reports) = told(Jit::builder());
    let (improver, paused) = paused();
    jit.main()
        .define(formula(&jit, counting("f", 1), improver))
        .unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    let better = paused.begun.recv_timeout(PATIENCE).unwrap();
    let ir = Replacement::ir("new", "define i64 @f(i64 %x) { ret i64 77 }");
    let replaced = jit.main().replace(ir).unwrap();
    assert_eq!(f.call(0), 77);
    assert!(better.is_cancelled());
    paused.go.send(better).unwrap();
    assert!(paused.linked.recv_timeout(PATIENCE).unwrap().is_err());
    assert_eq!(f.call(0), 77);
    // The way back leads to the unit, which is asked again.
    jit.pin("f", None).unwrap();
    replaced.rollback().unwrap();
    assert_eq!(f.call(0), 1);
    jit.pin("f", Some(Tier::Guided)).unwrap();
    loop {
        let better = paused.begun.recv_timeout(PATIENCE).unwrap();
        let tier = better.tier();
        paused.go.send(better).unwrap();
        let linked = paused.linked.recv_timeout(PATIENCE).unwrap();
        // What was wanted of the body in between may be asked of this one.
        if tier == Tier::Guided {
            break linked.unwrap();
        }
    }
    until("better code", || f.call(0) == 3);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn better_code_is_replaced_and_comes_back() {
    let jit = Jit::new().unwrap();
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    let f = function(&jit);
    let ir = Replacement::ir("new", "define i64 @f(i64 %x) { ret i64 77 }");
    let replaced = jit.main().replace(ir).unwrap();
    assert_eq!(f.call(0), 77);
    replaced.rollback().unwrap();
    assert_eq!(f.call(0), 2);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Optimized));
}

#[test]
fn a_panic_is_a_failure_with_its_text() {
    let (jit, events, reports) = told(Jit::builder());
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        panic!("tier {} is too much", better.tier().number());
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    let error = jit.compile_at("f", Tier::Guided).unwrap_err();
    assert!(error.to_string().contains("tier 3 is too much"), "{error}");
    // Nobody waits for this one.
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    until("a report", || !all(&reports).is_empty());
    let reports = all(&reports);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("tier 2 is too much"), "{reports:?}");
    let failed = all(&events);
    let failed = failed.iter().filter(|event| event.starts_with("failed"));
    assert_eq!(failed.count(), 2);
    assert_eq!(f.call(0), 1);
    jit.pin("f", None).unwrap();
    // The threads for such code are still there.
    jit.main()
        .define(TestUnit::at(&jit, &[("g()", unit::address(unit::eight))]))
        .unwrap();
    assert_eq!(unit::call(&jit, "g"), 8);
}

#[test]
fn questions_are_answered_later_elsewhere_or_not_at_all() {
    let (jit, _, _) = told(Jit::builder());
    let (sender, receiver) = channel::<Improvement>();
    let sender = Mutex::new(sender);
    let unit = formula(
        &jit,
        counting("f", 1),
        move |better: Improvement| match better.tier() {
            Tier::Guided => drop(better),
            _ => sender.lock().unwrap().send(better).unwrap(),
        },
    );
    jit.main().define(unit).unwrap();
    let dropped = refusal(jit.compile_at("f", Tier::Guided));
    assert_eq!(dropped, Refusal::Unanswered);
    let answering = std::thread::spawn(move || {
        let better = receiver.recv_timeout(PATIENCE).unwrap();
        by_tier(better);
    });
    jit.compile_at("f", Tier::Optimized).unwrap();
    answering.join().unwrap();
    assert_eq!(function(&jit).call(0), 2);
}

#[test]
fn improvers_call_what_has_no_code_yet() {
    let jit = Jit::builder().jobs(1).build().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        better
            .jit()
            .add_ir("late", "define i64 @late() { ret i64 8 }")
            .unwrap();
        assert_eq!(unit::call(better.jit(), "late"), 8);
        by_tier(better);
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    until("better code", || f.call(0) == 2);
}

#[test]
fn better_code_is_published_once_what_it_needs_is_ready() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        let mut code = Code::new();
        // mov rax, [rip + number]; mov rax, [rax]; ret
        let bytes = [0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0, 0xc3];
        code.function("f", &bytes);
        code.refer(3, Reference::AddressWord, "number");
        better.link("better.o", code.finish().unwrap()).unwrap();
    });
    jit.main().define(unit).unwrap();
    static NUMBER: AtomicI64 = AtomicI64::new(0);
    let (number, kept) = TestUnit::kept(&jit, &["number"]);
    jit.main().define(number).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    let responsibility = kept.take();
    let address = [(jit.intern("number"), NUMBER.as_ptr() as u64)];
    responsibility.resolve(&address).unwrap();
    // It has an address, and is not written yet.
    assert_eq!(f.call(0), 1);
    NUMBER.store(42, Ordering::Relaxed);
    responsibility.emit(&[]).unwrap();
    until("better code", || f.call(0) == 42);
}

#[test]
fn better_code_is_not_published_if_what_it_needs_fails() {
    let (jit, _, reports) = told(Jit::builder());
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        let mut code = Code::new();
        code.function("f", &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3]);
        code.refer(3, Reference::AddressWord, "number");
        better.link("better.o", code.finish().unwrap()).unwrap();
    });
    jit.main().define(unit).unwrap();
    let (number, kept) = TestUnit::kept(&jit, &["number"]);
    jit.main().define(number).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.pin("f", Some(Tier::Optimized)).unwrap();
    let responsibility = kept.take();
    let address = [(jit.intern("number"), 0x1234)];
    responsibility.resolve(&address).unwrap();
    responsibility.fail(unit::oops());
    until("a report", || !all(&reports).is_empty());
    assert_eq!(f.call(0), 1);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Baseline));
    assert!(
        session(
            jit.lookup_all(ask(&jit).symbol(jit.intern("number")))
                .map(drop)
        )
        .names()
        .is_some()
    );
}

#[test]
fn old_code_is_freed_once_nobody_is_inside() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, waiting("f", 1), |better: Improvement| {
        let code = waiting("f", better.tier().number());
        better.link("better.o", code).unwrap();
    });
    jit.main().define(unit).unwrap();
    let limit = Duration::from_secs(10);
    let sweep = |jit: &Jit| jit.reclaim(ReclaimKind::Sweep, limit);
    // The unit's own code, then better code: each is left while a thread is in it.
    let tiers = [None, Some(Tier::Optimized), Some(Tier::Guided)];
    for tier in tiers {
        if let Some(tier) = tier {
            jit.compile_at("f", tier).unwrap();
        }
        let number = tier.map_or(1, |tier| i64::from(tier.number()));
        let words = Arc::new(Words::default());
        let inside = std::thread::spawn({
            let (f, words) = (function(&jit), Arc::clone(&words));
            move || f.call(words.address())
        });
        until("a call", || words.inside.load(Ordering::Relaxed) == 1);
        // The one before a version is kept for a while, to go back to; not that before it.
        jit.compile_at("f", Tier::Optimized).unwrap();
        jit.compile_at("f", Tier::Guided).unwrap();
        until("a sweep", || sweep(&jit) && jit.stats().memory.pinned > 0);
        let before = jit.stats().memory;
        words.go.store(1, Ordering::Relaxed);
        assert_eq!(inside.join().unwrap(), number);
        until("the end of old code", || {
            let memory = jit.stats().memory;
            sweep(&jit) && memory.pinned == 0 && memory.freed > before.freed
        });
    }
    // It runs on, wherever it is moved.
    let words = Words::default();
    words.go.store(1, Ordering::Relaxed);
    assert!(jit.reclaim(ReclaimKind::Evacuate, limit));
    assert!(jit.stats().memory.moved.0 > 0);
    assert_eq!(function(&jit).call(words.address()), 3);
}

#[test]
fn what_a_version_keeps_goes_with_its_code() {
    struct Dropped(Arc<AtomicBool>);
    impl uruk::Resource for Dropped {
        fn release(self: Box<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let jit = Jit::new().unwrap();
    let gone: [Arc<AtomicBool>; 2] = Default::default();
    let flags = gone.clone();
    let unit = formula(
        &jit,
        counting("f", 1),
        move |mut better: Improvement| match better.tier() {
            Tier::Baseline => {
                better.attach(Dropped(Arc::clone(&flags[0])));
                better.decline();
            }
            Tier::Optimized => {
                better.attach(Dropped(Arc::clone(&flags[1])));
                by_tier(better);
            }
            Tier::Guided => by_tier(better),
        },
    );
    jit.main().define(unit).unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    // There is no version that it would be kept for.
    jit.compile_at("f", Tier::Baseline).unwrap_err();
    until("a release", || gone[0].load(Ordering::Relaxed));
    assert!(!gone[1].load(Ordering::Relaxed));
    assert_eq!(function(&jit).call(0), 2);
    for _ in 0..2 {
        jit.compile_at("f", Tier::Guided).unwrap();
    }
    until("a release", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        gone[1].load(Ordering::Relaxed)
    });
}

extern "C" fn nine(_: i64) -> i64 {
    9
}

#[test]
fn better_code_may_be_anywhere() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        better.resolve(nine as *const () as u64).unwrap();
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(f.call(0), 9);
}

/// Better code calls itself through its stub, uses the data of the unit under its name, and what it
/// has of its own stays if its address can be kept.
#[test]
fn names_mean_what_they_mean_elsewhere() {
    let jit = Jit::new().unwrap();
    jit.add_ir("data", "@shared = global i64 5").unwrap();
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        let mut code = Code::new();
        match better.tier() {
            // lea rax, [rip + own]; ret
            Tier::Optimized => {
                code.data("own", &77_u64.to_le_bytes(), 8, false);
                code.function("f", &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]);
                code.refer(3, Reference::Near, "own");
            }
            // test rdi, rdi; jz +8; xor edi, edi; jmp f; nop; mov rax, [rip + shared];
            // mov rax, [rax]; ret
            _ => {
                code.data("shared", &6_u64.to_le_bytes(), 8, false);
                let bytes = [
                    0x48, 0x85, 0xff, 0x74, 0x08, 0x31, 0xff, 0xe9, 0, 0, 0, 0, 0x90, 0x48, 0x8b,
                    0x05, 0, 0, 0, 0, 0x48, 0x8b, 0, 0xc3,
                ];
                code.function("f", &bytes);
                code.refer(8, Reference::Call, "f");
                code.refer(16, Reference::AddressWord, "shared");
            }
        }
        better.link("better.o", code.finish().unwrap()).unwrap();
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.compile_at("f", Tier::Optimized).unwrap();
    let own = f.call(0) as *const i64;
    jit.compile_at("f", Tier::Guided).unwrap();
    assert_eq!((f.call(0), f.call(1)), (5, 5));
    jit.compile_at("f", Tier::Guided).unwrap();
    let freed = |jit: &Jit| jit.stats().memory.freed;
    until("the end of old code", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE) && freed(&jit) > 0
    });
    // SAFETY: the variable of a version that stays for it.
    assert_eq!(unsafe { own.read() }, 77);
}

#[test]
fn objects_that_are_no_version_are_refused() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: Improvement| {
        let wrong = match better.tier() {
            Tier::Optimized => counting("g", 2),
            _ => b"not an object".to_vec(),
        };
        better.link("wrong.o", wrong).unwrap_err();
    });
    jit.main().define(unit).unwrap();
    let error = jit.compile_at("f", Tier::Optimized).unwrap_err();
    assert!(error.to_string().contains("`f`"), "{error}");
    jit.compile_at("f", Tier::Guided).unwrap_err();
    assert_eq!(function(&jit).call(0), 1);
}

#[test]
fn many_threads_make_and_call_a_function() {
    let jit = Jit::new().unwrap();
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = (0..2).map(|_| {
            let (jit, over) = (&jit, &over);
            scope.spawn(move || {
                let f = function(jit);
                while !over.load(Ordering::Relaxed) {
                    assert!((1..=3).contains(&f.call(10)));
                }
            })
        });
        let calling: Vec<_> = calling.collect();
        let making = [Tier::Optimized, Tier::Guided].map(|tier| {
            let jit = &jit;
            scope.spawn(move || {
                for _ in 0..200 {
                    match jit.compile_at("f", tier) {
                        // The other one's is later.
                        Ok(()) | Err(Error::Version { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        for thread in making {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        calling.into_iter().for_each(|it| it.join().unwrap());
    });
    until("the end of old code", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        jit.stats().memory.freed > 100
    });
}
