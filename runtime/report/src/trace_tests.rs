//! Tests that read the trace back as JSON and check its invariants line by line.

use super::*;
use crate::recording::{Event, Exchange, Function, FunctionId, Link, Lookup, Run, VersionId};
use uruk_testing::Random;

const ODD: &str = "operator\"\\<\u{1}\n\u{7f}>(🦀, </script>)";

fn ms(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

fn compile(place: Place, function: u32, start: Nanos, end: Nanos) -> Compile {
    Compile {
        function: FunctionId(function),
        version: VersionId(7),
        tier: Tier::Optimized,
        continues: false,
        place,
        waited: Nanos(1_500),
        start,
        end,
        instructions: 3,
        code_bytes: 40,
    }
}

/// An exchange after which two further functions were recompiled.
fn exchange(functions: &[&str]) -> Exchange {
    Exchange {
        number: 4,
        functions: functions.iter().map(|&name| name.to_owned()).collect(),
        dependents: vec!["e".to_owned()],
        unnamed: 1,
        ..Exchange::default()
    }
}

fn recording() -> Recording {
    let worker = Place::Worker(0);
    let link = |place, start, end| Link {
        function: Some(FunctionId(1)),
        place,
        start,
        end,
    };
    let event = |time, kind| Event { time, kind };
    Recording {
        run: Run {
            program: ODD.to_owned(),
            ..Run::default()
        },
        compiles: vec![
            compile(worker, 2, ms(10), ms(12)),
            compile(worker, 1, Nanos(1_234_567), ms(5)),
            compile(Place::Worker(1), 1, ms(1), ms(4)),
        ],
        links: vec![
            link(worker, ms(4), ms(5)),
            // Overlaps the second half of the compile before it.
            link(worker, ms(11), ms(13)),
        ],
        lookups: vec![Lookup {
            name: ODD.to_owned(),
            kind: LookupKind::FirstCall,
            place: Place::Thread(4711),
            start: ms(1),
            end: ms(6),
        }],
        events: vec![
            event(
                ms(5),
                EventKind::Published {
                    function: FunctionId(1),
                    version: VersionId(7),
                    from: None,
                    to: Tier::Optimized,
                },
            ),
            event(
                ms(6),
                EventKind::Failed {
                    function: FunctionId(9),
                    tier: Tier::Guided,
                    reason: ODD.to_owned(),
                },
            ),
            event(
                ms(7),
                EventKind::Policy {
                    function: Some(FunctionId(1)),
                    text: ODD.to_owned(),
                },
            ),
            event(ms(8), EventKind::Replaced(exchange(&[ODD, "b", "c", "d"]))),
            event(ms(9), EventKind::RolledBack(exchange(&[ODD]))),
            event(ms(9), EventKind::Replaced(exchange(&[]))),
        ],
        periods: vec![
            Period {
                start: ms(0),
                end: ms(2),
                samples: [2, 4, 0, 0, 0],
                queue: 5,
                rate_hz: 1000.0,
                ..Period::default()
            },
            Period {
                start: ms(8),
                end: ms(10),
                samples: [0, 0, 6, 0, 0],
                ..Period::default()
            },
        ],
        functions: vec![Function {
            id: FunctionId(1),
            name: ODD.to_owned(),
            entries: None,
            samples: 0,
            failures: 0,
            continues: false,
            versions: Vec::new(),
            variants: Vec::new(),
        }],
        ..Recording::default()
    }
}

fn lines(recording: &Recording) -> Vec<Value> {
    let mut bytes = Vec::new();
    write(recording, &mut bytes).expect("writing to memory");
    let trace: Value = serde_json::from_slice(&bytes).expect("the trace is JSON");
    trace["traceEvents"].as_array().expect("a list").clone()
}

/// Checks the module's invariants on any trace.
fn check_shape(lines: &[Value]) {
    let mut open: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    let mut counted: HashMap<String, f64> = HashMap::new();
    let mut named = std::collections::HashSet::new();
    for line in lines {
        let (pid, tid) = (line["pid"].as_u64().unwrap(), line["tid"].as_u64().unwrap());
        let ts = line["ts"].as_f64().unwrap();
        match line["ph"].as_str().unwrap() {
            "M" => {
                if line["name"] == "thread_name" {
                    assert!(named.insert((pid, tid)), "named twice: {line}");
                }
            }
            "X" => {
                assert!(named.contains(&(pid, tid)), "no name: {line}");
                let end = ts + line["dur"].as_f64().unwrap();
                let stack = open.entry((pid, tid)).or_default();
                if let Some((last, _)) = stack.last() {
                    assert!(*last <= ts, "out of order: {line}");
                }
                while stack.last().is_some_and(|(_, end)| *end <= ts + 1e-6) {
                    stack.pop();
                }
                if let Some((_, outer)) = stack.last() {
                    assert!(end <= outer + 1e-6, "overlaps: {line}");
                }
                stack.push((ts, end));
            }
            "i" => assert!(named.contains(&(pid, tid)), "no name: {line}"),
            "C" => {
                let name = line["name"].as_str().unwrap().to_owned();
                let before = counted.insert(name, ts).unwrap_or(-1.0);
                assert!(before < ts, "time stands still: {line}");
                assert!(
                    line["args"]
                        .as_object()
                        .unwrap()
                        .values()
                        .all(Value::is_number)
                );
            }
            other => panic!("unexpected phase {other}"),
        }
    }
}

#[test]
fn spans_nest_and_overlaps_move_aside() {
    let lines = lines(&recording());
    check_shape(&lines);
    let spans: Vec<&Value> = lines.iter().filter(|l| l["ph"] == "X").collect();
    assert_eq!(spans.len(), 6);
    let aside = spans.iter().filter(|l| l["tid"].as_u64() >= Some(LANE));
    assert_eq!(aside.count(), 1);
    let first = spans
        .iter()
        .find(|l| l["name"].as_str().unwrap().ends_with("(tier 2)"));
    assert_eq!(first.unwrap()["ts"].to_string(), "1234.567");
}

#[test]
fn names_come_back_as_they_were() {
    let lines = lines(&recording());
    let has = |phase: &str, name: String| {
        lines
            .iter()
            .any(|line| line["ph"] == phase && line["name"] == name.as_str())
    };
    assert!(has("X", format!("first call of {ODD}")));
    assert!(has("X", format!("{ODD} (tier 2)")));
    assert!(has("X", "function 2 (tier 2)".to_owned()));
    assert!(has("i", ODD.to_owned()));
    assert!(has("i", format!("{ODD} to tier 2")));
    assert!(has("i", "function 9 failed".to_owned()));
    assert!(has("i", format!("replaced {ODD}, b, c and 3 more")));
    assert!(has("i", format!("rolled back {ODD} and 2 more")));
    assert!(has("i", "replaced 2\u{a0}functions".to_owned()));
    let mut bytes = Vec::new();
    write(&recording(), &mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(trace["otherData"]["run"]["program"], ODD);
    // One event per line: no raw newline inside one.
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), lines.len() + 2);
}

#[test]
fn counters_fall_to_zero_in_a_pause() {
    let lines = lines(&recording());
    let rates: Vec<(f64, f64)> = lines
        .iter()
        .filter(|line| line["name"] == "samples per second")
        .map(|line| {
            let values = line["args"].as_object().unwrap().values();
            (
                line["ts"].as_f64().unwrap(),
                values.filter_map(Value::as_f64).sum(),
            )
        })
        .collect();
    let expected = [
        (0.0, 3000.0),
        (2000.0, 0.0),
        (8000.0, 3000.0),
        (10_000.0, 0.0),
    ];
    assert_eq!(rates, expected);
}

#[test]
fn an_empty_run_is_a_valid_trace() {
    check_shape(&lines(&Recording::default()));
}

#[test]
fn random_spans_never_overlap_on_a_track() {
    let mut numbers = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut random = |below: u64| numbers.below(below);
    for _ in 0..50 {
        let spans = (0..40).map(|_| {
            let start = Nanos(random(100) * 1000);
            let end = start + Nanos(random(60) * 1000);
            compile(
                Place::Worker(random(2) as u32),
                random(3) as u32,
                start,
                end,
            )
        });
        let recording = Recording {
            compiles: spans.collect(),
            ..Recording::default()
        };
        let lines = lines(&recording);
        check_shape(&lines);
        assert_eq!(lines.iter().filter(|l| l["ph"] == "X").count(), 40);
    }
}
