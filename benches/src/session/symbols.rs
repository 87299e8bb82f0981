//! Rows of units, trackers, aliases and dependences without code.

use std::time::Duration;

use anyhow::Result;

use super::scenario::{Outcome, Side, Sides};
use crate::bench::Bench;
use crate::row::{Figure, Row, Target, Unit};

/// How long one scenario may take.
const LIMIT: Duration = Duration::from_secs(20);
/// ORC's dependence graph grows with the cube of its size: no longer than this.
const GRAPH_LIMIT: Duration = Duration::from_secs(6);

const ORC: &str = "ORC (LLJIT)";

/// Define and materialize a trivial unit.
///
/// # Errors
/// This executable is nowhere.
pub fn measure_publish(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let rounds = bench.rounds(15).to_string();
    let run = |side| sides.run(side, &["publish", &rounds, "20000"], LIMIT);
    let [ours, orc] = [Side::Ours, Side::Orc].map(run);
    let row = Row::new(
        "define and materialize a trivial unit",
        Unit::Us,
        ours.each_us("publish"),
    );
    let alone = sides.run(Side::Ours, &["publish-alone", &rounds, "20000"], LIMIT);
    let alone = Row::new(
        "  in the session's package alone",
        Unit::Us,
        alone.each_us("publish"),
    );
    let note = "processor time of define, look up, materialize, resolve, emit, call; names \
                interned before";
    Ok(vec![
        row.peer(ORC, orc.each_us("publish"))
            .target(Target::AtMost(0.6))
            .note(note),
        alone.peer(ORC, orc.each_us("publish")).note(note),
    ])
}

/// Small trackers that come and go beside pending symbols of others.
///
/// # Errors
/// This executable is nowhere.
pub fn measure_pending(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let mut rows = Vec::new();
    // ORC looks at every pending symbol for each of ours: no more than these.
    for (kind, what, orc_others) in [
        ("working", "at work", "100000"),
        ("emitted", "emitted and waiting", "3000"),
    ] {
        let run = |side, others, small| sides.run(side, &["pending", kind, others, small], LIMIT);
        let alone = run(Side::Ours, "0", "2000");
        let beside = run(Side::Ours, "100000", "2000");
        let orc = run(Side::Orc, orc_others, "200");
        let orc_name = match orc_others {
            "100000" => ORC.to_owned(),
            fewer => format!("{ORC}, beside {fewer}"),
        };
        for (phase, action) in [("add", "add a small tracker"), ("remove", "remove it")] {
            let name = format!("{action} beside 100,000 pending, {what}");
            let row = Row::new(name, Unit::Us, beside.each_us(phase));
            let row = row.peer(orc_name.clone(), orc.each_us(phase));
            rows.push(row.target(Target::RatioAtMost(1.0)).note(
                "processor time; of an emitted symbol that waits for another one, or of a ready one \
                 beside units at work",
            ));
            let row = Row::new("  as without others", Unit::Us, beside.each_us(phase));
            let row = row.peer("beside none", alone.each_us(phase));
            rows.push(
                row.target(Target::RatioAtMost(3.0))
                    .note("the same instructions, to one in a hundred, in colder caches"),
            );
        }
    }
    Ok(rows)
}

/// Chains of aliases.
///
/// # Errors
/// This executable is nowhere.
pub fn measure_aliases(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let rounds = bench.rounds(6).to_string();
    let mut rows = Vec::new();
    for length in ["1000", "10000"] {
        let run = |side| sides.run(side, &["aliases", &rounds, length], LIMIT);
        let [ours, orc] = [Side::Ours, Side::Orc].map(run);
        for (phase, what) in [("define", "define"), ("lookup", "look up the last of")] {
            let name = format!("{what} a chain of {length} aliases, each");
            let row = Row::new(name, Unit::Us, ours.each_us(phase));
            let row = row.peer(ORC, orc.each_us(phase));
            rows.push(row.target(Target::RatioAtMost(1.0)));
        }
    }
    Ok(rows)
}

/// Chains and rings of symbols that depend on each other.
///
/// # Errors
/// This executable is nowhere.
pub fn measure_graph(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let mut rows = Vec::new();
    for (units, what) in [("unit", "in one unit"), ("units", "a unit each")] {
        for shape in ["chain", "ring"] {
            let ladder = Ladder::climb(|side, count| {
                sides.run(side, &["graph", units, shape, count], GRAPH_LIMIT)
            });
            rows.extend(ladder.rows(&format!("{shape} of {{}} symbols, {what}")));
        }
    }
    Ok(rows)
}

/// Sizes of graphs.
pub const SIZES: [&str; 3] = ["1000", "4000", "16000"];

/// A graph of each size, by both.
pub struct Ladder {
    ours: Vec<Figure>,
    orc: Vec<Figure>,
}

impl Ladder {
    /// Runs all sizes; a side that was stopped at one does not begin with the next.
    pub fn climb(run: impl Fn(Side, &str) -> Outcome) -> Ladder {
        let climb = |side| {
            let mut figures: Vec<Figure> = Vec::new();
            for size in SIZES {
                let figure = match figures.last() {
                    Some(Figure::Failed(_) | Figure::Stopped(_)) => {
                        Figure::Failed("not begun".to_owned())
                    }
                    _ => total_ms(&run(side, size)),
                };
                figures.push(figure);
            }
            figures
        };
        Ladder {
            ours: climb(Side::Ours),
            orc: climb(Side::Orc),
        }
    }

    /// A row for each size, and one of how ours grows. `name` holds `{}` for the size.
    pub fn rows(self, name: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        let all = SIZES.iter().zip(self.ours.iter().zip(self.orc));
        for (size, (ours, orc)) in all {
            let row = Row::new(name.replace("{}", size), Unit::Ms, ours.clone()).peer(ORC, orc);
            rows.push(row.target(Target::RatioAtMost(1.0)).note(
                "processor time; who is stopped at its limit does not begin with a larger one",
            ));
        }
        // Linear growth: as much for each symbol.
        let row = Row::new(
            "  growth from 4,000 to 16,000",
            Unit::Ms,
            self.ours[2].clone(),
        );
        let fewer = match &self.ours[1] {
            Figure::Measured(sample) => Figure::Measured(sample.map(|ms| ms * 4.0)),
            other => other.clone(),
        };
        let row = row.peer("four times that of 4,000", fewer);
        rows.push(row.target(Target::RatioAtMost(1.5)));
        rows
    }
}

/// Milliseconds of the whole graph.
fn total_ms(outcome: &Outcome) -> Figure {
    if let Outcome::Stopped(seconds) = outcome {
        return Figure::Stopped(seconds * 1e3);
    }
    outcome.figure(|readings| {
        let graphs = readings.phases.iter().filter(|phase| phase.name == "graph");
        let all: Vec<f64> = graphs.map(|phase| phase.cpu_ns / 1e6).collect();
        all
    })
}
