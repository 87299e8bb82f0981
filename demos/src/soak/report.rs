//! The result of a run, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Outcome;
use super::program::Figures;
use super::tally::{Answers, GAP, Kind, Tally, mean, quantile};
use crate::table::align;

/// Tables of one program.
pub fn text(outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let mut text = edits(outcome);
    text.push_str(&answers(outcome));
    for kind in Kind::ALL {
        for (reason, count) in &tally.of(kind).reasons {
            line(
                &mut text,
                &format!("  {} refused, {count} times: {reason}", kind.name()),
            );
        }
    }
    line(&mut text, "");
    text.push_str(&growth(outcome));
    let (forks, longest) = tally.forks;
    line(
        &mut text,
        &format!(
            "\n{} requests, {} wrong; {forks} forks and threads, the longest {longest:.1} ms; {} signals",
            tally.requests, tally.wrong, tally.signals
        ),
    );
    line(&mut text, &gaps(tally));
    for (ms, second, asked) in &tally.gaps {
        line(
            &mut text,
            &format!("  {ms:.1} ms at {second:.1} s: {asked}"),
        );
    }
    for example in &tally.examples {
        line(&mut text, &format!("WRONG: {example}"));
    }
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn gaps(tally: &Tally) -> String {
    let longest = tally.gaps.first().map_or(0.0, |it| it.0);
    format!(
        "longest gap {longest:.1} ms, {:.1} ms before the first exchange; {} over {GAP} ms; the longest:",
        tally.calm, tally.long
    )
}

/// Edits of functions one by one.
fn edits(outcome: &Outcome) -> String {
    if outcome.edits.is_empty() {
        return String::new();
    }
    let mut lines = vec![
        ["function", "ms", "cpu ms", "answer"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for edit in &outcome.edits {
        lines.push(vec![
            edit.function.to_owned(),
            format!("{:.0}", edit.ms),
            format!("{:.0}", edit.cpu),
            edit.said.chars().take(100).collect(),
        ]);
    }
    let (count, all) = (good(outcome), outcome.edits.len());
    let mut text = align(&lines);
    let (ms, cpu) = edit_times(outcome);
    line(
        &mut text,
        &format!(
            "{count} of {all} functions can be exchanged; {ms:.0} ms, {cpu:.0} ms of processor time\n"
        ),
    );
    text
}

fn good(outcome: &Outcome) -> usize {
    outcome.edits.iter().filter(|it| it.done).count()
}

/// Means of all edits.
fn edit_times(outcome: &Outcome) -> (f64, f64) {
    let edits = outcome.edits.iter();
    let (ms, cpu): (Vec<f64>, Vec<f64>) = edits.map(|it| (it.ms, it.cpu)).unzip();
    (mean(&ms), mean(&cpu))
}

fn done(answers: &Answers) -> Vec<f64> {
    answers.done.iter().map(|it| it.1).collect()
}

/// Questions by kind.
fn answers(outcome: &Outcome) -> String {
    let heads = [
        "", "done", "mean ms", "99 % ms", "most ms", "refused", "mean ms",
    ];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines[0][0] = outcome.name.to_owned();
    for kind in Kind::ALL {
        let answers = outcome.tally.of(kind);
        let times = done(answers);
        let time = |part| quantile(&times, part).unwrap_or_default();
        lines.push(vec![
            kind.name().to_owned(),
            times.len().to_string(),
            format!("{:.1}", mean(&times)),
            format!("{:.1}", time(0.99)),
            format!("{:.1}", time(1.0)),
            answers.refused.len().to_string(),
            format!("{:.1}", mean(&answers.refused)),
        ]);
    }
    align(&lines)
}

/// Figures that are compared between the hundredth exchange and the end, with names.
fn compared(outcome: &Outcome) -> Vec<(&'static str, f64, f64)> {
    let tally = &outcome.tally;
    let mut rows = Vec::new();
    if let (Some(then), Some(now)) = (tally.hundredth, outcome.last) {
        let mut row = |name, of: fn(&Figures) -> u64| {
            rows.push((name, of(&then) as f64, of(&now) as f64));
        };
        row("resident KiB", |it| it.resident);
        row("descriptors", |it| it.descriptors);
        row("mappings", |it| it.mappings);
    }
    let kinds = [
        ("immediate ms", Kind::Immediate),
        ("quiescent ms", Kind::Quiescent),
    ];
    for (name, kind) in kinds {
        if let Some((then, now)) = tally.then_and_now(kind) {
            rows.push((name, then, now));
        }
    }
    rows
}

fn growth(outcome: &Outcome) -> String {
    let end = format!("{}th", outcome.tally.exchanges);
    let mut lines = vec![vec![
        "at exchange".to_owned(),
        "100th".to_owned(),
        end,
        "quotient".to_owned(),
    ]];
    for (name, then, now) in compared(outcome) {
        lines.push(vec![
            name.to_owned(),
            format!("{then:.1}"),
            format!("{now:.1}"),
            format!("{:.2}", now / then),
        ]);
    }
    align(&lines)
}

/// One line.
pub fn json(outcome: &Outcome) -> Value {
    let tally = &outcome.tally;
    let kinds = Kind::ALL.map(|kind| {
        let answers = tally.of(kind);
        let times = done(answers);
        let value = json!({
            "done": times.len(),
            "mean_ms": mean(&times),
            "p99_ms": quantile(&times, 0.99),
            "refused": answers.refused.len(),
            "reasons": answers.reasons,
        });
        (kind.name().to_owned(), value)
    });
    let compared = compared(outcome).into_iter().map(|(name, then, now)| {
        let value = json!({"hundredth": then, "end": now, "quotient": now / then});
        (name.to_owned(), value)
    });
    let (ms, cpu) = edit_times(outcome);
    json!({
        "program": outcome.name,
        "exchanges": tally.exchanges,
        "questions": Value::Object(kinds.into_iter().collect()),
        "growth": Value::Object(compared.collect()),
        "requests": tally.requests,
        "wrong": tally.wrong,
        "longest_gap_ms": tally.gaps.first().map(|it| it.0),
        "calm_gap_ms": tally.calm,
        "long_gaps": tally.long,
        "forks": tally.forks.0,
        "signals": tally.signals,
        "edits": {"tried": outcome.edits.len(), "exchanged": good(outcome), "ms": ms, "cpu_ms": cpu},
    })
}
