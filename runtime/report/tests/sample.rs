//! Renders the sample's run with every renderer.

use uruk_report::{EventKind, Nanos, Recording, State, Summary, html, text, trace};

#[path = "../examples/sample.rs"]
mod sample;

#[test]
fn the_sample_keeps_the_promises_of_a_recording() {
    let recording = sample::recording();
    assert!(recording.periods.windows(2).all(|w| w[0].end <= w[1].start));
    let heat = |f: &uruk_report::Function| (f.samples, f.compile());
    assert!(
        recording
            .functions
            .windows(2)
            .all(|w| heat(&w[0]) >= heat(&w[1]))
    );
    for function in &recording.functions {
        let states = function.versions.iter().map(|version| &version.state);
        let published = states.filter(|state| matches!(state, State::Published { .. }));
        assert_eq!(published.count(), 1, "{}", function.name);
        let of_versions: u64 = function
            .versions
            .iter()
            .map(|version| version.samples)
            .sum();
        assert_eq!(of_versions, function.samples, "{}", function.name);
    }
    let of_periods: u64 = recording.periods.iter().flat_map(|p| p.samples).sum();
    assert_eq!(of_periods, recording.totals.samples.iter().sum::<u64>());
    let lost: u64 = recording.periods.iter().map(|period| period.lost).sum();
    assert_eq!(lost, recording.totals.lost);
}

#[test]
fn the_peak_comes_after_the_last_promotion_that_matters() {
    let recording = sample::recording();
    let hottest = &recording.functions[0];
    let promoted = recording
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Published { function, .. } if function == hottest.id => Some(event.time),
            _ => None,
        });
    let last = promoted.max().unwrap_or_default();
    let peak = Summary::of(&recording)
        .peak
        .expect("a run with enough samples");
    assert!(
        peak.at >= last && peak.at < last + Nanos(400_000_000),
        "{peak:?} {last:?}"
    );
}

#[test]
fn every_way_of_showing_tells_the_same() {
    let recording = sample::recording();
    let summary = Summary::of(&recording);
    let json: serde_json::Value = serde_json::from_str(&text::json(&recording, 3)).expect("JSON");
    assert_eq!(json["hottest"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["tiers"][1]["compile_ns"], summary.tiers[1].compile.0);
    let table = text::run(&recording, 3);
    let page = html::run(&recording);
    let samples = |n: usize| recording.functions[n].samples;
    let share = format!(
        "{:.1}\u{a0}%",
        samples(0) as f64 / summary.samples as f64 * 100.0
    );
    for shown in [&table.replace(' ', "\u{a0}"), &page] {
        assert!(
            shown.contains("sqlite3VdbeExec") && shown.contains(&share),
            "{share}"
        );
        assert!(shown.contains("2.41\u{a0}s"));
    }
    assert!(
        page.contains("X86ISD::VPERMV"),
        "the reason of the failure is told"
    );
    let mut bytes = Vec::new();
    trace::write(&recording, &mut bytes).expect("writing to memory");
    let trace: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let count = |phase: &str| {
        let lines = trace["traceEvents"].as_array().into_iter().flatten();
        lines.filter(|line| line["ph"] == phase).count()
    };
    let spans = recording.compiles.len() + recording.links.len() + recording.lookups.len();
    assert_eq!((count("X"), count("i")), (spans, recording.events.len()));
}

#[test]
fn a_recording_can_be_kept_and_shown_later() {
    let recording = sample::recording();
    let kept = serde_json::to_string(&recording).expect("plain data");
    let read: Recording = serde_json::from_str(&kept).expect("what was written");
    assert_eq!(read, recording);
    assert_eq!(html::run(&read), html::run(&recording));
}
