//! Rows of ready lookups.

use std::time::Duration;

use anyhow::Result;

use super::readings::{Race, Readings};
use super::scenario::{Outcome, Side, Sides};
use crate::bench::Bench;
use crate::row::{Figure, Row, Target, Unit};

/// Lookups of a race, ours and ORC's: a millisecond or two, so that many races run without
/// anyone else on their processors.
const COUNT: &str = "40000";
const ORC_COUNT: &str = "2000";
/// Processes of each side, so that neither has all of a noisy minute.
const PROCESSES: usize = 4;
const LIMIT: Duration = Duration::from_secs(40);

/// The kinds of lookups, each with its prefix in the readings.
const KINDS: [(&str, &str); 4] = [
    ("ready lookup by name", "name"),
    ("  by interned symbol", "symbol"),
    ("  in batches of 20, each", "batch"),
    ("  by symbol, in the last of ten dylibs", "deep"),
];

/// One thread and two, beside ORC.
///
/// # Errors
/// This executable is nowhere.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let rounds = bench.rounds(60).to_string();
    let (mut ours, mut orc) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        ours.push(sides.run(Side::Ours, &["lookups", &rounds, COUNT], LIMIT));
        orc.push(sides.run(Side::Orc, &["lookups", &rounds, ORC_COUNT], LIMIT));
    }
    let disturbed = |kind: &str| {
        let all = ours.iter().filter_map(Outcome::readings);
        let races = least_disturbed(all, kind);
        let parts = races.iter().map(|race| race.disturbed);
        parts.sum::<f64>() / races.len().max(1) as f64 * 100.0
    };
    let note = format!(
        "wall-clock time of threads on a processor each, the third of the races that other \
         processes disturbed least: of ours by symbol they still had {:.1} % of one thread's time, \
         {:.1} % of two threads'",
        disturbed("symbol_1"),
        disturbed("symbol_2"),
    );
    let mut rows = Vec::new();
    for (what, kind) in KINDS {
        let one = |side: &[Outcome]| figure(side, &format!("{kind}_1"), false);
        let row = Row::new(what, Unit::Ns, one(&ours)).peer("ORC (LLJIT)", one(&orc));
        rows.push(row.target(Target::AtMost(50.0)).note(note.clone()));
    }
    for (what, kind) in KINDS {
        let what = format!("{what}, two threads");
        let rate = |side: &[Outcome], threads| figure(side, &format!("{kind}_{threads}"), true);
        let row = Row::new(what, Unit::MillionPerSecond, rate(&ours, 2));
        let row = row.peer("one thread", rate(&ours, 1));
        rows.push(row.target(Target::RatioAtLeast(1.9)).note(note.clone()));
        let row = Row::new("  ORC", Unit::MillionPerSecond, rate(&orc, 2));
        rows.push(row.peer("one thread", rate(&orc, 1)).note(note.clone()));
    }
    Ok(rows)
}

/// Nanoseconds for each operation, or million operations a second, of the races of a name.
fn figure(side: &[Outcome], name: &str, rate: bool) -> Figure {
    let of = |race: &Race| match rate {
        true => race.count / race.wall_ns * 1e3,
        false => race.wall_ns / race.count,
    };
    match side.iter().find(|outcome| outcome.readings().is_none()) {
        Some(failed) => failed.figure(|_| []),
        None => {
            let all = side.iter().filter_map(Outcome::readings);
            Figure::of(least_disturbed(all, name).iter().map(of))
        }
    }
}

/// The least disturbed third: threads that did not run at the same time say nothing about
/// scaling.
fn least_disturbed<'a>(all: impl Iterator<Item = &'a Readings>, name: &str) -> Vec<Race> {
    let races = all.flat_map(|readings| &readings.races);
    let mut races: Vec<Race> = races.filter(|race| race.name == name).cloned().collect();
    races.sort_by(|a, b| a.disturbed.total_cmp(&b.disturbed));
    races.truncate(races.len().div_ceil(3));
    races
}
