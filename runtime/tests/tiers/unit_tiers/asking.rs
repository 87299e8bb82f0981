//! Requests for better code, and the answers to them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use uruk::{Jit, Refusal, ReoptimizeRequest, SessionError, Tier, Tiers};

use super::formula::{all, by_tier, counting, formula, function, refusal, told, until};
use crate::unit::{self, PATIENCE, TestUnit};

#[test]
fn whoever_asks_gets_better_code() {
    let (jit, events, reports) = told(Jit::builder());
    let unit = formula(
        &jit,
        counting("f", 1),
        |better: ReoptimizeRequest| match better.tier() {
            Tier::Guided => better.decline(),
            _ => by_tier(better),
        },
    );
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
    until("the last event", || all(&events) == wanted);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn what_fails_is_reported_once_and_not_asked_again() {
    let _alone = ALONE.lock();
    let (jit, events, reports) = told(Jit::builder());
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let unit = formula(&jit, counting("f", 1), move |better: ReoptimizeRequest| {
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
        jit.main().pin("f", Some(tier)).unwrap();
        until("the pinned tier", || f.call(0) == i64::from(tier.number()));
    }
}

#[test]
fn a_fixed_tier_is_that_of_the_first_code() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let (jit, events, reports) = told(Jit::builder().tiers(Tiers::Fixed(tier)));
        let unit = formula(
            &jit,
            counting("f", 1),
            |better: ReoptimizeRequest| match better.tier() {
                Tier::Optimized => by_tier(better),
                _ => better.decline(),
            },
        );
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
        // Told after the store, which lets the call go on.
        until("the last event", || all(&events) == wanted);
        assert_eq!(all(&reports), Vec::<String>::new());
    }
}

#[test]
fn questions_are_answered_later_elsewhere_or_not_at_all() {
    let (jit, _, _) = told(Jit::builder());
    let (sender, receiver) = channel::<ReoptimizeRequest>();
    let sender = Mutex::new(sender);
    let unit = formula(
        &jit,
        counting("f", 1),
        move |better: ReoptimizeRequest| match better.tier() {
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
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
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
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    until("better code", || f.call(0) == 2);
}

#[test]
fn tools_are_told_of_better_code() {
    let mut tools = uruk::ToolSettings::default();
    let folder = format!("uruk-unit-tiers-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    tools.perf_map = true;
    tools.jitdump = Some(folder.clone());
    tools.gdb = true;
    let jit = Jit::builder().tools(tools).build().unwrap();
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(function(&jit).call(0), 2);
    let map = format!("perf-{}.map", std::process::id());
    let map = std::path::Path::new("/tmp").join(map);
    let text = std::fs::read_to_string(&map).unwrap();
    assert!(
        text.lines().any(|line| line.ends_with(" f [tier 2]")),
        "{text}"
    );
    std::fs::remove_file(map).unwrap();
    let dump = folder.join(format!("jit-{}.dump", std::process::id()));
    let bytes = std::fs::read(dump).unwrap();
    // Its name, and the first of its bytes.
    let record = b"f [tier 2]\0\xb8\x02\0\0\0\x48";
    assert!(bytes.windows(record.len()).any(|part| part == record));
    std::fs::remove_dir_all(folder).unwrap();
}
