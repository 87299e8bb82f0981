//! Loops that are entered once: whole runs of programs that call their kernel a single time,
//! or have its loops in `main`.
//!
//! Each program runs natively, with tiers chosen by the policy, and with every function at one
//! tier from its first call on, in turns. All figures are speeds: a ratio of 0.5 is twice the
//! native time. Who prints another checksum than the native program has no figure, and is
//! named beside the means.

use std::path::PathBuf;

use anyhow::Result;
use uruk_guests::once::{Once, Size};
use uruk_guests::{Flavor, Level, Native};

use crate::bench::Bench;
use crate::contest::{self, Contender, Side};
use crate::row::{Figure, Row, Target, Unit};

/// The bitcode's level: annotated for optimization, no pass has run.
const LEVEL: Level = Level::O1NoPasses;
/// The program that all are compared with.
const NATIVE: &str = "native -O3 -march=native";
/// The same program when no operations may be fused, as ours are not.
const AS_WRITTEN: &str = "native, nothing fused";
/// Ours: name and tiers.
const OURS: [(&str, &str); 3] = [("auto", "auto"), ("tier 1", "1"), ("tier 2", "2")];
/// The part of the native speed that `auto` has to reach, as the geometric mean of all programs.
const MEAN_OF_AUTO: f64 = 0.95;
/// And of that of each.
const LEAST_OF_AUTO: f64 = 0.85;

/// A speed over the native one, by processor time and by wall-clock time; and what a run takes
/// beyond the native one by both, in milliseconds: the same whatever the length of a run, but for
/// what the code itself is slower.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    cpu: f64,
    wall: f64,
    cpu_over: f64,
    wall_over: f64,
}

/// One contender's speed in a program, if it ran.
type OfProgram = (&'static str, Option<Speed>);

/// Rows of each program that was asked for, then means and least ones.
///
/// # Errors
/// A program cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut speeds: Vec<(String, Vec<OfProgram>)> = Vec::new();
    for once in bench.once() {
        let title = format!("once {}", once.name());
        let contenders = contest::hold_all(bench, &title, contenders(bench, once)?)?;
        let Some((native, others)) = contenders.split_first() else {
            continue;
        };
        for one in others {
            let name = &one.name;
            if speeds.iter().all(|(known, _)| known != name) {
                speeds.push((name.clone(), Vec::new()));
            }
            let row = compare(once.name(), one, native);
            let times = one.figure().median().zip(native.figure().median());
            let walls = one.wall_ms().zip(native.wall_ms());
            let speed = row.ratio().zip(times.zip(walls));
            let speed = speed.map(|(cpu, (times, walls))| Speed {
                cpu,
                wall: walls.1 / walls.0,
                cpu_over: times.0 - times.1,
                wall_over: walls.0 - walls.1,
            });
            let list = speeds.iter_mut().find(|(known, _)| known == name);
            list.into_iter()
                .for_each(|(_, list)| list.push((once.name(), speed)));
            rows.push(row);
        }
    }
    for (name, speeds) in &speeds {
        rows.extend(totals(name, speeds));
    }
    Ok(rows)
}

fn contenders(bench: &Bench, once: Once) -> Result<Vec<Contender>> {
    let program = once.program(Size::Large);
    let flavor = Flavor::plain(LEVEL);
    let built = program.build(&bench.tools, &bench.cache, flavor, 1, &|_, _| {})?;
    let native = |name: &str, how: Native| -> Result<Contender> {
        let path: PathBuf = program.build_native(&bench.tools, &bench.cache, how)?;
        Ok(Contender::new(name, Side::Reference, vec![path.into()]))
    };
    let mut all = vec![
        native(NATIVE, Native::TYPED)?,
        native(AS_WRITTEN, Native::BEST)?,
    ];
    all.extend(OURS.map(|(name, tiers)| {
        let command = bench.uruk_run_with(&["--tiers", tiers], &built.bitcode, &[]);
        Contender::new(name, Side::Ours, command)
    }));
    Ok(all)
}

/// Runs in a second, ours and the native program's.
fn compare(program: &str, ours: &Contender, native: &Contender) -> Row {
    let speed = |figure: Figure| match figure {
        Figure::Measured(sample) => Figure::Measured(sample.map(|ms| 1e3 / ms)),
        Figure::Stopped(_) => Figure::Failed("too slow".to_owned()),
        failed @ Figure::Failed(_) => failed,
    };
    let name = format!("once {program}, {}", ours.name);
    let mut row = Row::new(name, Unit::RunsPerSecond, speed(ours.figure()))
        .peer(NATIVE, speed(native.figure()))
        .level(LEVEL.name());
    let wall = ours.wall_ms().zip(native.wall_ms());
    row.wall = wall.map(|(ours, native)| (1e3 / ours, 1e3 / native));
    row
}

/// The geometric mean of one contender's speeds, and the least of them.
fn totals(name: &str, speeds: &[OfProgram]) -> Vec<Row> {
    let known = || {
        speeds
            .iter()
            .filter_map(|(of, speed)| Some((*of, (*speed)?)))
    };
    let row = |what: &str, speed: Option<(f64, f64)>| {
        let figure = Figure::of(speed.map(|(cpu, _)| cpu));
        let mut row = Row::new(format!("once, {what}, {name}"), Unit::Times, figure)
            .peer(NATIVE, Figure::of([1.0]))
            .level(LEVEL.name());
        row.wall = speed.map(|(_, wall)| (wall, 1.0));
        row
    };
    let mean = |of: fn(Speed) -> f64| {
        let logs: Vec<f64> = known().map(|(_, speed)| of(speed).ln()).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let means = mean(|speed| speed.cpu).zip(mean(|speed| speed.wall));
    let without: Vec<&str> = speeds
        .iter()
        .filter_map(|(of, speed)| speed.is_none().then_some(*of))
        .collect();
    let target = |limit| match name == OURS[0].0 {
        true => Target::AtLeast(limit),
        false => Target::Information,
    };
    let mut mean = row("geometric mean", means).target(target(MEAN_OF_AUTO));
    if !without.is_empty() {
        mean = mean.note(format!("without {}", without.join(", ")));
    }
    let least = known().min_by(|(_, a), (_, b)| a.cpu.total_cmp(&b.cpu));
    let note = least.map_or(String::new(), |(of, _)| of.to_owned());
    let least = row("least", least.map(|(_, it)| (it.cpu, it.wall)));
    let least = least.target(target(LEAST_OF_AUTO)).note(note);
    let average = |of: fn(Speed) -> f64| {
        let all: Vec<f64> = known().map(|(_, speed)| of(speed)).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let name = format!("once, mean over native, {name}");
    let over = Figure::of(average(|speed| speed.cpu_over));
    let wall = average(|speed| speed.wall_over).unwrap_or(f64::NAN);
    let over = Row::new(name, Unit::CpuMs, over)
        .level(LEVEL.name())
        .note(format!("{wall:.1} ms of wall-clock time"));
    vec![mean, least, over]
}

#[cfg(test)]
mod tests {
    use super::{Speed, totals};
    use crate::row::Verdict;

    fn speed(cpu: f64) -> Option<Speed> {
        Some(Speed {
            cpu,
            wall: cpu * 2.0,
            cpu_over: 4.0 * cpu,
            wall_over: 8.0 * cpu,
        })
    }

    #[test]
    fn means_are_of_those_that_ran_and_name_the_others() {
        let speeds = [("a", speed(0.25)), ("b", None), ("c", speed(1.0))];
        let [mean, least, over] = &totals("auto", &speeds)[..] else {
            panic!("three rows");
        };
        assert_eq!(over.ours.median(), Some(2.5));
        assert_eq!(over.note, "5.0 ms of wall-clock time");
        assert_eq!(mean.ours.median(), Some(0.5));
        assert_eq!(mean.wall, Some((1.0, 1.0)));
        assert_eq!(
            (mean.note.as_str(), mean.verdict()),
            ("without b", Verdict::Short)
        );
        assert_eq!(
            (least.ours.median(), least.note.as_str()),
            (Some(0.25), "a")
        );
    }

    #[test]
    fn where_nothing_ran_there_is_no_mean() {
        let [mean, least, over] = &totals("tier 2", &[("a", None)])[..] else {
            panic!("three rows");
        };
        let medians = [mean, least, over].map(|row| row.ours.median());
        assert_eq!(medians, [None; 3]);
    }
}
