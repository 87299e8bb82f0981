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
/// What `auto` has to reach of the native speed, as the geometric mean of all programs.
const MEAN_OF_AUTO: f64 = 0.8;

/// A speed over the native one, by processor time and by wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    cpu: f64,
    wall: f64,
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
            let speed = row.ratio().zip(row.wall);
            let speed = speed.map(|(cpu, (ours, natives))| Speed {
                cpu,
                wall: ours / natives,
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
    let row = |what: &str, speed: Option<Speed>| {
        let figure = Figure::of(speed.map(|speed| speed.cpu));
        let mut row = Row::new(format!("once, {what}, {name}"), Unit::Times, figure)
            .peer(NATIVE, Figure::of([1.0]))
            .level(LEVEL.name());
        row.wall = speed.map(|speed| (speed.wall, 1.0));
        row
    };
    let mean = |of: fn(Speed) -> f64| {
        let logs: Vec<f64> = known().map(|(_, speed)| of(speed).ln()).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let means = mean(|speed| speed.cpu).zip(mean(|speed| speed.wall));
    let means = means.map(|(cpu, wall)| Speed { cpu, wall });
    let without: Vec<&str> = speeds
        .iter()
        .filter_map(|(of, speed)| speed.is_none().then_some(*of))
        .collect();
    let target = if name == OURS[0].0 {
        Target::AtLeast(MEAN_OF_AUTO)
    } else {
        Target::Information
    };
    let mut mean = row("geometric mean", means).target(target);
    if !without.is_empty() {
        mean = mean.note(format!("without {}", without.join(", ")));
    }
    let least = known().min_by(|(_, a), (_, b)| a.cpu.total_cmp(&b.cpu));
    let note = least.map_or(String::new(), |(of, _)| of.to_owned());
    vec![mean, row("least", least.map(|(_, speed)| speed)).note(note)]
}

#[cfg(test)]
mod tests {
    use super::{Speed, totals};
    use crate::row::Verdict;

    fn speed(cpu: f64) -> Option<Speed> {
        Some(Speed {
            cpu,
            wall: cpu * 2.0,
        })
    }

    #[test]
    fn means_are_of_those_that_ran_and_name_the_others() {
        let speeds = [("a", speed(0.25)), ("b", None), ("c", speed(1.0))];
        let [mean, least] = &totals("auto", &speeds)[..] else {
            panic!("two rows");
        };
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
        let [mean, least] = &totals("tier 2", &[("a", None)])[..] else {
            panic!("two rows");
        };
        assert_eq!((mean.ours.median(), least.ours.median()), (None, None));
    }
}
