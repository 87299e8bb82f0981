//! Tests of traces against Perfetto's rules.

use uruk_report::{Compile, FunctionId, Nanos, Place, Recording, Tier, VersionId, trace};

#[path = "../examples/sample.rs"]
mod sample;

mod perfetto;

fn written(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace::write(recording, &mut bytes).expect("writing to memory");
    bytes
}

#[test]
fn perfetto_reads_the_sample() {
    let recording = sample::recording();
    let seen = perfetto::read(&written(&recording)).unwrap();
    let spans = recording.compiles.len() + recording.links.len() + recording.lookups.len();
    assert_eq!(seen.spans, spans);
    assert_eq!(seen.instants, recording.events.len());
    assert!(seen.counters > recording.periods.len() && seen.metadata > 4);
}

#[test]
fn perfetto_reads_odd_names_and_times() {
    let mut recording = sample::recording();
    recording.run.program = String::from("\u{7f}\u{1}\n\t\"\\ {[🦀]}");
    for function in &mut recording.functions {
        function.name.push_str("\u{7f}\u{0}\u{85}}]\"\\");
    }
    // A hundred spans that overlap, on the thread with the highest number.
    for number in 0..100 {
        recording.compiles.push(Compile {
            function: FunctionId(1),
            version: VersionId(1),
            tier: Tier::Baseline,
            continues: false,
            place: Place::Thread(4_194_304),
            waited: Nanos(1),
            start: Nanos(86_400_000_000_000 + number),
            end: Nanos(86_400_000_001_001 + number * 7),
            instructions: 1,
            code_bytes: 1,
        });
    }
    let seen = perfetto::read(&written(&recording)).unwrap();
    assert!(seen.spans >= 100);
}

#[test]
fn each_rule_is_checked() {
    let event = r#"{"name":"a","ph":"X","pid":1,"tid":2,"ts":1.5,"dur":2.001,"args":{}}"#;
    let trace = |event: &str| {
        let text = format!("{{\"otherData\":{{}},\"traceEvents\":[\n{event}\n]}}\n");
        perfetto::read(text.as_bytes()).map_err(|error| error[..6].to_owned())
    };
    assert_eq!(trace(event).map(|seen| seen.spans), Ok(1));
    for (rule, from, to) in [
        ("rule 2", "\"a\"", "\"\u{7f}\""),
        ("rule 3", "{}", "[]"),
        ("rule 3", "1.5", "-1.5"),
        ("rule 3", "1.5", "1e30"),
        ("rule 3", "1.5", "1.5001"),
        ("rule 4", "\"tid\":2", "\"tid\":4294967296"),
        ("rule 5", "\"dur\"", "\"dour\""),
        ("rule 5", "\"X\"", "\"i\""),
        ("rule 5", "\"X\"", "\"M\""),
    ] {
        let wrong = trace(&event.replace(from, to));
        assert_eq!(wrong, Err(rule.to_owned()), "{to}");
    }
    let other = event.replace("1.5", "2.5");
    assert_eq!(
        trace(&format!("{event},\n{other}")),
        Err("rule 6".to_owned())
    );
    let with_unit = r#"{"displayTimeUnit":"ns","otherData":{},"traceEvents":[]}"#;
    assert!(perfetto::read(with_unit.as_bytes()).is_err());
}
