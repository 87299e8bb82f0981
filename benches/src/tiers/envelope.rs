//! The envelope: for programs that run for 10 ms to 20 s natively, the default tiers against the best
//! fixed choice of a tier, which is known afterwards only.
//!
//! All choices of one program and length run interleaved, in alternating order, and the best fixed one
//! is that of least median, by wall-clock time and by processor time separately. As the least of
//! several medians is a little below the true least, ratios of equal choices are a little above 1.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use uruk_guests::{Kernel, Level, Native, Tongue, Workload};

use super::steady;
use crate::bench::{Bench, progress};
use crate::contest::{self, Contender, Side};
use crate::row::{Figure, Row, Target, Unit};

/// The programs.
const WORKLOADS: [Workload; 12] = [
    Workload::Kernel(Tongue::C, Kernel::NBody),
    Workload::Kernel(Tongue::C, Kernel::Fannkuch),
    Workload::Kernel(Tongue::C, Kernel::HashMix),
    Workload::Kernel(Tongue::Rust, Kernel::HashMix),
    Workload::Kernel(Tongue::Rust, Kernel::SpectralNorm),
    Workload::Lua("fib"),
    Workload::Lua("nbody"),
    Workload::Lua("binary-trees"),
    Workload::QuickJs,
    Workload::Sqlite,
    Workload::Zstd,
    Workload::Bzip2,
];

/// Iterations of the runs; one takes about 20 ms natively.
const ITERATIONS: [usize; 8] = [1, 2, 5, 15, 50, 150, 400, 1000];

/// Lengths of a quick run. The longer ones run once: their parts are longer than what disturbs them.
const QUICK: usize = 4;

/// A choice that takes this many times the time of another is not the best one: a long run is stopped.
const PATIENCE: f64 = 1.5;

/// How long the choices of one program and length are repeated, and how often at least.
const BUDGET: Duration = Duration::from_secs(6);

/// The largest ratio at a point, and of the geometric mean, by wall-clock and by processor time.
const WALL: (f64, f64) = (1.03, 1.00);
const CPU: (f64, f64) = (1.15, 1.05);

/// The choices of a tier; the first is the default, the last is stopped in long runs.
const CHOICES: [(&str, &str); 4] = [
    ("auto", "auto"),
    ("tier 2", "2"),
    ("tier 3", "3"),
    ("tier 1", "1"),
];

/// Milliseconds natively, ratio by wall-clock time, ratio by processor time.
type Point = (f64, f64, f64);

/// A coordinate of a point.
type Coordinate = fn(&Point) -> f64;

/// The ratios of one program, by length.
struct Line {
    program: String,
    points: Vec<Point>,
}

/// Every program at every length.
///
/// # Errors
/// A workload cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let bench = Bench {
        repeat_budget: BUDGET.min(bench.repeat_budget),
        ..bench.clone()
    };
    let lengths = match bench.quick {
        true => &ITERATIONS[..QUICK],
        false => &ITERATIONS[..],
    };
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        if !bench.is_asked_for(&workload.name()) {
            continue;
        }
        let mut points = Vec::new();
        for (at, &iterations) in lengths.iter().enumerate() {
            let bench = match at < QUICK {
                true => bench.clone(),
                false => Bench {
                    quick: true,
                    patience: PATIENCE,
                    ..bench.clone()
                },
            };
            let (point, of_point) = measure_point(&bench, workload, iterations)?;
            points.extend(point);
            rows.extend(of_point);
        }
        lines.push(Line {
            program: workload.name(),
            points,
        });
    }
    rows.extend(means(&lines));
    let picture = bench.directory.join("envelope.svg");
    std::fs::write(&picture, draw(&lines)).context("cannot write the picture")?;
    progress(&format!("the curves are in {}", picture.display()));
    Ok(rows)
}

/// One program at one length: its point, and its rows by wall-clock and by processor time.
fn measure_point(
    bench: &Bench,
    workload: Workload,
    iterations: usize,
) -> Result<(Option<Point>, Vec<Row>)> {
    let args = workload.args(iterations);
    let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
    let native = steady::native(bench, workload, Native::PLAIN)?;
    let mut command: Vec<OsString> = vec![native.into()];
    command.extend(args.iter().map(Into::into));
    let mut contenders = vec![Contender::new("native", Side::Reference, command)];
    for (name, tiers) in CHOICES {
        let side = match name {
            "auto" => Side::Ours,
            _ => Side::Peer,
        };
        let command = bench.uruk_run_with(&["--tiers", tiers], &bitcode, &args);
        contenders.push(Contender::new(name, side, command));
    }
    let name = format!("envelope, {}, {iterations} iterations", workload.name());
    let contenders = contest::hold_all(bench, &name, contenders)?;
    let wall = row(&name, &contenders, Unit::Ms, Contender::wall_figure, WALL.0);
    let cpu = row(&name, &contenders, Unit::CpuMs, Contender::figure, CPU.0);
    let native = contenders[0].wall_ms();
    let ratios = [&wall, &cpu].map(|row| row.as_ref().and_then(Row::ratio));
    let point = match (native, ratios) {
        (Some(native), [Some(wall), Some(cpu)]) => Some((native, wall, cpu)),
        _ => None,
    };
    Ok((point, wall.into_iter().chain(cpu).collect()))
}

/// The default against the best fixed choice, by one kind of time.
fn row(
    name: &str,
    contenders: &[Contender],
    unit: Unit,
    figure: fn(&Contender) -> Figure,
    limit: f64,
) -> Option<Row> {
    let ours = contenders.iter().find(|one| one.side == Side::Ours)?;
    let fixed = contenders.iter().filter(|one| one.side == Side::Peer);
    let timed = fixed.filter_map(|one| Some((one, figure(one).median()?)));
    let (best, _) = timed.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let row = Row::new(name, unit, figure(ours)).peer(&*best.name, figure(best));
    Some(row.target(Target::RatioAtMost(limit)))
}

/// The geometric means over all points.
fn means(lines: &[Line]) -> Vec<Row> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let mean = |ratio: Coordinate| {
        let logs: Vec<f64> = points().map(|point| ratio(point).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    };
    let row = |name: &str, mean: f64, limit| {
        let name = format!("envelope, geometric mean {name}");
        Row::new(name, Unit::Times, Figure::of([mean])).target(Target::AtMost(limit))
    };
    if points().next().is_none() {
        return Vec::new();
    }
    vec![
        row("by wall-clock time", mean(|point| point.1), WALL.1),
        row("by processor time", mean(|point| point.2), CPU.1),
    ]
}

/// A picture of the curves: ratios over the native time, which is drawn by its logarithm; by wall-clock
/// time above, by processor time below.
fn draw(lines: &[Line]) -> String {
    const COLOURS: [&str; 6] = [
        "#1b6ca8", "#c0392b", "#27803b", "#8e44ad", "#b9770e", "#34495e",
    ];
    let (width, height) = (560.0, 240.0);
    let x = |ms: f64| 60.0 + width * (ms.max(1.0).log10() - 1.0) / 3.5;
    let y = |top: f64, ratio: f64| top + height * (1.6 - ratio.clamp(0.8, 1.6)) / 0.8;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"840\" height=\"620\" \
         font-family=\"sans-serif\" font-size=\"12\">\n",
    );
    // Writing to a string does not fail.
    for (top, title) in [(40.0, "wall-clock time"), (340.0, "processor time")] {
        let _ = writeln!(
            svg,
            "<text x=\"60\" y=\"{}\">default tiers over the best fixed tier, {title}</text>",
            top - 14.0
        );
        for ratio in [0.8, 1.0, 1.2, 1.4, 1.6] {
            let at = y(top, ratio);
            let (from, to) = (x(10.0), x(10.0) + width);
            let _ = writeln!(
                svg,
                "<line x1=\"{from}\" x2=\"{to}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>\
                 <text x=\"24\" y=\"{:.1}\">{ratio}</text>",
                at + 4.0
            );
        }
        for ms in [10.0, 100.0, 1000.0, 10_000.0] {
            let (at, below) = (x(ms), top + height + 16.0);
            let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{below}\">{ms} ms</text>");
        }
    }
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dashes = if index < COLOURS.len() { "none" } else { "5 3" };
        let ratios: [Coordinate; 2] = [|point| point.1, |point| point.2];
        for (top, ratio) in [40.0, 340.0].into_iter().zip(ratios) {
            let at = |point: Point| format!("{:.1},{:.1}", x(point.0), y(top, ratio(&point)));
            let points: Vec<String> = line.points.iter().copied().map(at).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-dasharray=\"{dashes}\"/>",
                points.join(" ")
            );
        }
        let at = 60.0 + 18.0 * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"650\" y=\"{at}\" fill=\"{colour}\">{}</text>",
            line.program
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::{Line, draw, means};
    use crate::row::Verdict;

    #[test]
    fn means_are_geometric_and_curves_are_drawn() {
        let line = Line {
            program: "one".to_owned(),
            points: vec![(10.0, 2.0, 1.0), (100.0, 0.5, 1.1)],
        };
        let rows = means(std::slice::from_ref(&line));
        assert_eq!(rows.len(), 2);
        let wall = rows[0].ours.median().expect("a mean");
        assert!((wall - 1.0).abs() < 1e-9);
        assert_eq!(rows[1].verdict(), Verdict::Ok);
        let picture = draw(&[line]);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(means(&[]).is_empty());
    }
}
