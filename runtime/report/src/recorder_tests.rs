//! Tests of the recording that a recorder makes of its events.

use super::*;
use crate::recording::{EventKind, LookupKind, Place, State};

const ORIGIN: Nanos = Nanos(1_000_000_000);

fn at(ms: u64) -> Nanos {
    ORIGIN + Nanos(ms * 1_000_000)
}

fn recorder(limits: Limits) -> Recorder {
    Recorder::new(Run::default(), ORIGIN, limits)
}

fn variant(words: &str) -> Variant {
    Variant {
        tier: Tier::Guided,
        words: words.to_owned(),
        verdict: String::from("same"),
        ratio: [0.9, 1.0, 1.1],
        pairs: 40,
        stays: false,
    }
}

fn compile(function: u32, version: u64, tier: Tier, from_ms: u64, to_ms: u64) -> Compile {
    Compile {
        function: FunctionId(function),
        version: VersionId(version),
        tier,
        continues: false,
        place: Place::Worker(0),
        waited: Nanos(5),
        start: at(from_ms),
        end: at(to_ms),
        instructions: 10,
        code_bytes: 100,
    }
}

fn finish(recorder: &Recorder) -> Recording {
    let ending = Ending {
        time: at(100),
        cpu: Nanos(7),
        exit: Some(0),
        defined: 9,
    };
    recorder.finish(ending).expect("a recorder that is on")
}

fn hit(ms: u64, version: u64, tier: Tier, count: u32) -> Hit {
    Hit {
        time: at(ms),
        code: Some((VersionId(version), tier)),
        count,
    }
}

fn drain<'a>(ms: u64, hits: &'a [Hit]) -> Drain<'a> {
    Drain {
        time: at(ms),
        hits,
        lost: 0,
        uncovered: 0,
        rate_hz: 1000.0,
        overhead: 0.001,
        queue: 0,
    }
}

#[test]
fn versions_follow_each_other_in_the_slot() {
    let recorder = recorder(Limits::default());
    let f = FunctionId(1);
    recorder.compiled("f", &compile(1, 1, Tier::Baseline, 1, 2));
    recorder.published(at(2), f, VersionId(1), Tier::Baseline);
    recorder.drained(&drain(3, &[hit(2, 1, Tier::Baseline, 4)]));
    recorder.compiled("f", &compile(1, 2, Tier::Optimized, 3, 6));
    recorder.published(at(6), f, VersionId(2), Tier::Optimized);
    recorder.drained(&drain(9, &[hit(8, 2, Tier::Optimized, 6)]));
    // The new version is slower, so the old one is published again.
    recorder.published(at(10), f, VersionId(1), Tier::Baseline);
    recorder.compiled("f", &compile(1, 3, Tier::Guided, 11, 12));
    recorder.dropped(at(12), f, VersionId(3), "replaced meanwhile");
    recorder.entries(f, 77);
    let record = finish(&recorder);

    let function = &record.functions[0];
    assert_eq!((function.samples, function.entries), (10, Some(77)));
    assert_eq!(function.published().map(|v| v.id), Some(VersionId(1)));
    let states: Vec<&State> = function.versions.iter().map(|v| &v.state).collect();
    let ms = |ms: u64| Nanos(ms * 1_000_000);
    let retired = State::Retired {
        at: ms(6),
        until: ms(10),
    };
    assert_eq!(
        states,
        [
            &State::Published { at: ms(10) },
            &retired,
            &State::Dropped { at: ms(12) }
        ]
    );
    let moves = record.events.iter().filter_map(|event| match event.kind {
        EventKind::Published { from, to, .. } => Some((from, to)),
        _ => None,
    });
    assert_eq!(
        moves.collect::<Vec<_>>(),
        [
            (None, Tier::Baseline),
            (Some(Tier::Baseline), Tier::Optimized),
            (Some(Tier::Optimized), Tier::Baseline)
        ]
    );
    assert_eq!(record.totals.compiled, [0, 1, 1, 1, 0]);
    assert_eq!(record.totals.compile[2], ms(3));
    // Version 1 was in the slot at the end, so its samples count as settled.
    let settled: Vec<u64> = record.periods.iter().map(|p| p.settled).collect();
    assert_eq!(settled.iter().sum::<u64>(), 4);
    assert_eq!(record.totals.samples, [0, 4, 6, 0, 0]);
}

#[test]
fn what_was_exchanged_is_kept_with_its_times_and_as_many_names_as_there_is_room_for() {
    let limits = Limits {
        exchanged: 2,
        name_bytes: 9,
        ..Limits::default()
    };
    let recorder = recorder(limits);
    let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let exchange = Exchange {
        number: 3,
        functions: names(&["f", "abcdefghijkl", "g", "h"]),
        added: names(&["new"]),
        dependents: names(&["a", "b", "c"]),
        unnamed: 0,
        level: "at once".to_owned(),
        took: Nanos(70),
        closed: Nanos(5),
    };
    recorder.replaced(at(4), &exchange);
    recorder.rolled_back(at(9), &Exchange::default());
    let record = finish(&recorder);
    let kept = Exchange {
        functions: names(&["f", "abc…jkl"]),
        dependents: names(&["a", "b"]),
        unnamed: 3,
        ..exchange
    };
    assert_eq!(kept.reached(), 8);
    let kinds: Vec<_> = record
        .events
        .iter()
        .map(|event| (event.time, &event.kind))
        .collect();
    let ms = |ms: u64| Nanos(ms * 1_000_000);
    assert_eq!(
        kinds,
        [
            (ms(4), &EventKind::Replaced(kept)),
            (ms(9), &EventKind::RolledBack(Exchange::default()))
        ]
    );
}

#[test]
fn times_are_relative_and_spans_do_not_run_backwards() {
    let recorder = recorder(Limits::default());
    recorder.compiled("f", &compile(1, 1, Tier::Baseline, 5, 3));
    let record = finish(&recorder);
    let span = &record.compiles[0];
    assert_eq!((span.start, span.end), (Nanos(5_000_000), Nanos(5_000_000)));
    assert_eq!(record.wall, Nanos(100_000_000));
}

#[test]
fn every_list_is_bounded_and_says_what_it_left_out() {
    let limits = Limits {
        spans: 2,
        events: 2,
        functions: 2,
        variants: 2,
        exchanged: 2,
        versions_in_period: 2,
        name_bytes: 9,
        text_bytes: 4,
        listing_bytes: 6,
        listings_bytes: 8,
    };
    let recorder = recorder(limits);
    for id in 0..5_u32 {
        let version = VersionId(u64::from(id));
        let name = format!("a_long_name_{id}");
        recorder.compiled(&name, &compile(id, version.0, Tier::Baseline, 1, 2));
        recorder.linked(&Link {
            function: None,
            place: Place::Worker(1),
            start: at(1),
            end: at(2),
        });
        recorder.looked_up(&Lookup {
            name,
            kind: LookupKind::Symbol,
            place: Place::Thread(3),
            start: at(1),
            end: at(2),
        });
        recorder.noted(at(1), None, "a long text");
        // All of one function, except one of an unknown function.
        recorder.tried(
            FunctionId(if id == 4 { 4 } else { 0 }),
            &variant("a long way"),
        );
        recorder.disassembled(version, "nop\nnop\nnop\n");
    }
    let record = finish(&recorder);
    let lengths = [
        record.compiles.len(),
        record.links.len(),
        record.lookups.len(),
        record.events.len(),
        record.functions.len(),
    ];
    assert_eq!(lengths, [2; 5]);
    let named = record.omitted.named();
    let of = |name: &str| named.iter().find(|(n, _)| *n == name).map(|(_, c)| *c);
    for (name, count) in [
        ("lookups", 3),
        ("compiles", 3),
        ("links", 3),
        ("events", 3),
        ("versions", 3),
        ("variants", 3),
        ("disassemblies", 2),
    ] {
        assert_eq!(of(name), Some(count), "{name}");
    }
    assert_eq!(record.totals.compiled[1], 5);
    assert_eq!(record.functions[0].name, "a_l…e_0");
    let listings = record.functions.iter().flat_map(|f| &f.versions);
    let bytes: usize = listings
        .filter_map(|v| v.disassembly.as_ref())
        .map(String::len)
        .sum();
    assert_eq!(bytes, 8);
    let text = record.events.iter().find_map(|event| match &event.kind {
        EventKind::Policy { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert_eq!(text.as_deref(), Some("a lo"));
    let tried = &record.functions[0].variants;
    assert_eq!((tried.len(), &*tried[0].words), (2, "a lo"));
}

#[test]
fn off_means_off() {
    let ending = Ending {
        time: at(1),
        cpu: Nanos(0),
        exit: None,
        defined: 0,
    };
    let silent = Recorder::off();
    silent.compiled("f", &compile(1, 1, Tier::Baseline, 1, 2));
    assert!(silent.finish(ending).is_none());

    let child = recorder(Limits::default());
    let held = child.lock();
    // As after a fork: a thread that does not exist here may hold the lock.
    child.forget();
    child.compiled("f", &compile(1, 1, Tier::Baseline, 1, 2));
    assert!(child.hottest(1).is_empty());
    assert!(child.finish(ending).is_none());
    drop(held);
}

#[test]
fn threads_may_tell_at_once() {
    let recorder = recorder(Limits::default());
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let recorder = &recorder;
            scope.spawn(move || {
                for n in 0..100 {
                    let version = u64::from(thread * 100 + n);
                    let name = format!("f{thread}");
                    recorder.compiled(&name, &compile(thread, version, Tier::Baseline, 1, 2));
                    let id = FunctionId(thread);
                    recorder.published(at(2), id, VersionId(version), Tier::Baseline);
                }
            });
        }
    });
    let record = finish(&recorder);
    assert_eq!(record.totals.compiled[1], 400);
    for function in &record.functions {
        let states = function.versions.iter().map(|v| &v.state);
        let published = states.filter(|s| matches!(s, State::Published { .. }));
        assert_eq!((function.versions.len(), published.count()), (100, 1));
    }
}

#[test]
fn the_hottest_come_first_and_compile_time_decides_without_samples() {
    let recorder = recorder(Limits::default());
    recorder.compiled("cold", &compile(1, 1, Tier::Baseline, 1, 2));
    recorder.compiled("slow", &compile(2, 2, Tier::Baseline, 1, 9));
    recorder.compiled("hot", &compile(3, 3, Tier::Baseline, 1, 2));
    let first = |recorder: &Recorder| {
        recorder
            .hottest(2)
            .iter()
            .map(|(f, _)| f.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(first(&recorder), [2, 1]);
    recorder.drained(&drain(3, &[hit(2, 3, Tier::Baseline, 1)]));
    assert_eq!(first(&recorder), [3, 2]);
}

#[test]
fn a_recording_survives_being_written() {
    let recorder = recorder(Limits::default());
    recorder.compiled("f", &compile(1, 1, Tier::Guided, 1, 2));
    recorder.published(at(2), FunctionId(1), VersionId(1), Tier::Guided);
    recorder.failed(at(3), "g", FunctionId(2), Tier::Optimized, "verifier");
    let record = finish(&recorder);
    let json = serde_json::to_string(&record).expect("plain data");
    let read: Recording = serde_json::from_str(&json).expect("what was written");
    assert_eq!(read, record);
    assert!(serde_json::from_str::<Tier>("4").is_err());
}
