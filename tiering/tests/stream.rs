//! The text form of inputs: round trips, clear errors, and no panics.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod simulator;

use simulator::parse;
use uruk_testing::Random;
use uruk_tiering::stream::{HEADER, Input, Recorder};
use uruk_tiering::{Facts, FirstCode, FunctionId, Nanos, Outcome, Tier, VersionId};

/// One input of each kind, with numbers over their whole ranges.
fn inputs(random: &mut Random) -> Vec<Input> {
    let function = FunctionId(random.next() as u32);
    let version = VersionId(random.next());
    let tier = Tier::ALL[random.below(3) as usize];
    let compile = Nanos(random.next() >> random.below(64));
    let counters = random.below(2) == 0;
    let first = FirstCode {
        version,
        tier,
        facts: Facts {
            instructions: random.next() as u32,
            loops: random.below(9) as u32,
            nested: counters,
            calls: random.below(99) as u32,
        },
        compile,
        counters,
    };
    let finished = |outcome| Input::Finished(function, version, tier, outcome);
    vec![
        Input::Compiled(function, first),
        Input::Counters(function, random.next(), random.next()),
        Input::Samples(function, version, random.next() as u32, compile),
        Input::Sampling(None),
        Input::Opening(Nanos(random.next())),
        Input::Sampling(Some(Nanos(random.next() | 1))),
        Input::ProcessorTime(compile),
        finished(Outcome::Published { compile, counters }),
        finished(Outcome::Late { compile }),
        finished(Outcome::Failed { compile }),
        finished(Outcome::Cancelled),
        finished(Outcome::NoMemory),
        Input::Reverted(function, version, tier, counters),
        Input::Pin(function, None),
        Input::Pin(function, Some(tier)),
        Input::Request(function, tier),
        Input::Replaced(function),
        Input::FasterThanNative(function, random.next() as u32),
        Input::Times(Nanos(random.next()), compile),
        Input::Caller(function, FunctionId(random.below(1 << 20) as u32)),
        Input::CallersTold(function),
        Input::Pause,
        Input::Resume,
    ]
}

fn written(inputs: &[(Nanos, Input)], limit: u64) -> String {
    let mut recorder = Recorder::new(Vec::new(), limit).unwrap();
    for (now, input) in inputs {
        recorder.record(*now, input).unwrap();
    }
    String::from_utf8(recorder.finish().unwrap()).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let mut random = Random::new(5);
    let mut now = 0;
    let mut all = Vec::new();
    for _ in 0..200 {
        for input in inputs(&mut random) {
            now += random.below(1 << 30);
            all.push((Nanos(now), input));
        }
    }
    assert_eq!(parse(&written(&all, u64::MAX)), Ok(all));
}

#[test]
fn the_example_of_the_documentation() {
    let text = "uruk tiering stream 2\n\
        # a comment\n\
        0 sampling ns=1000000\n\
        210000 compiled f1 v1 tier=1 instructions=120 loops=1 nested=0 calls=2 ns=200000 counters=1\n\
        \n\
        1000000 samples f1 v1 count=1 ns=1000000\n\
        1000000 counters f1 entries=3 loops=90000\n\
        6000000 published f1 v2 tier=2 ns=3900000 counters=0\n";
    let inputs = parse(text).unwrap();
    assert_eq!(inputs.len(), 5);
    let counted = Input::Counters(FunctionId(1), 3, 90_000);
    assert_eq!(inputs[3], (Nanos::from_ms(1), counted));
}

/// A time that went back is written as the time before it.
#[test]
fn recorded_times_never_go_back() {
    let text = written(&[(Nanos(9), Input::Pause), (Nanos(4), Input::Resume)], 100);
    assert_eq!(text, format!("{HEADER}\n9 pause\n9 resume\n"));
}

#[test]
fn a_recording_ends_at_its_limit() {
    let inputs = vec![(Nanos(1), Input::Pause); 100];
    let text = written(&inputs, 30);
    assert!(text.ends_with("# cut here: the limit was reached\n"));
    assert_eq!(parse(&text).unwrap().len(), 3);
}

#[test]
fn errors_say_where_and_what() {
    let error = |lines: &str| {
        parse(&format!("{HEADER}\n{lines}"))
            .unwrap_err()
            .to_string()
    };
    let cases = [
        ("x pause", "line 2: \"x\" is not a time in ns"),
        (
            "1 pause\n0 pause",
            "line 3: 0 ns comes before 1 ns of the line before",
        ),
        ("1 jump f1", "line 2: there is no input \"jump\""),
        ("1", "line 2: there is no input \"\""),
        (
            "1 counters f1 entries=2",
            "line 2: expected \"loops=\" with a number, found \"\"",
        ),
        (
            "1 counters g1 entries=2 loops=1",
            "line 2: expected \"f\" with a number, found \"g1\"",
        ),
        (
            "1 request f1 tier=0",
            "line 2: 0 is out of range for \"tier=\"",
        ),
        (
            "1 request f1 tier=9",
            "line 2: 9 is out of range for \"tier=\"",
        ),
        (
            "1 replaced f4294967296",
            "line 2: 4294967296 is out of range for \"f\"",
        ),
        ("1 pause now", "line 2: \"now\" is too much"),
    ];
    for (lines, expected) in cases {
        assert_eq!(error(lines), expected);
    }
    assert_eq!(
        parse("uruk tiering stream 1\n").unwrap_err().to_string(),
        "line 1: a stream begins with \"uruk tiering stream 2\", not with \"uruk tiering stream 1\""
    );
    assert!(parse("").is_err());
}

/// Damaged streams are errors or other streams, never panics.
#[test]
fn damaged_streams_do_not_panic() {
    let mut random = Random::new(11);
    let numbered = inputs(&mut random).into_iter().enumerate();
    let all: Vec<_> = numbered
        .map(|(at, input)| (Nanos(at as u64), input))
        .collect();
    let text = written(&all, u64::MAX).into_bytes();
    let mut errors = 0;
    for _ in 0..20_000 {
        let mut bytes = text.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"0 =\nf9"[random.below(6) as usize]),
            }
        }
        errors += usize::from(parse(&String::from_utf8_lossy(&bytes)).is_err());
    }
    assert!(errors > 10_000, "{errors}");
}
