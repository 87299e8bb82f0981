//! The times of a process's iterations, and how they are told. Pure but for reading.

use anyhow::{Context, Result, bail};

use super::changes::{self, Segment, Shape};

/// One iteration, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration {
    /// When it began, on the monotonic clock.
    pub start: f64,
    /// How long it took.
    pub wall: f64,
    /// Processor time of the thread that ran it.
    pub thread: f64,
    /// Processor time of all threads of the process meanwhile.
    pub process: f64,
}

/// The iterations of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The workload that was run.
    pub workload: String,
    /// By whom.
    pub side: String,
    /// Whether that is us.
    pub ours: bool,
    /// Optimization level of the bitcode; empty where there is none.
    pub level: String,
    /// Which of the interleaved rounds, from 1.
    pub round: usize,
    /// In order; at least one.
    pub iterations: Vec<Iteration>,
}

/// A level is settled if it is one over this of the iterations.
const WARM_PART: usize = 4;

/// The level at which a curve ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// Median of an iteration's processor time, all threads, in nanoseconds.
    pub cpu: f64,
    /// Median of its wall-clock time.
    pub wall: f64,
}

/// The lines of the file that `steady.h` writes.
///
/// # Errors
/// A line does not have four numbers, or there is none.
pub fn parse(text: &str) -> Result<Vec<Iteration>> {
    let numbers = |line: &str| -> Option<Iteration> {
        let words: Vec<f64> = line
            .split(' ')
            .map_while(|word| word.parse().ok())
            .collect();
        match words[..] {
            [start, wall, thread, process] => Some(Iteration {
                start,
                wall,
                thread,
                process,
            }),
            _ => None,
        }
    };
    let lines = text.lines().map(|line| {
        numbers(line).with_context(|| format!("not the times of an iteration: {line:?}"))
    });
    let iterations = lines.collect::<Result<Vec<_>>>()?;
    if iterations.is_empty() {
        bail!("no iteration was timed");
    }
    Ok(iterations)
}

impl Curve {
    /// Where the level changes, by processor time of all threads: what others do on the
    /// machine is not in it, what our compile threads do is.
    pub fn segments(&self) -> Vec<Segment> {
        let times: Vec<f64> = self.iterations.iter().map(|one| one.process).collect();
        changes::segments(&times)
    }

    /// Whether the last level is long enough to be called one: at least a quarter of the
    /// iterations.
    pub fn is_warm(&self) -> bool {
        let start = self.segments().last().map_or(0, |last| last.start);
        self.iterations.len() - start >= self.iterations.len() / WARM_PART
    }

    /// Medians of the last level; of the last quarter, if the level changed in it: a run
    /// that has not settled by then is charged for it.
    pub fn settled(&self) -> Settled {
        let count = self.iterations.len();
        let quarter = count - count.div_ceil(WARM_PART);
        let last = self.segments().last().map_or(0, |last| last.start);
        let level = &self.iterations[last.min(quarter)..];
        let middle = |of: fn(&Iteration) -> f64| {
            changes::median(&level.iter().map(of).collect::<Vec<f64>>())
        };
        Settled {
            cpu: middle(|one| one.process),
            wall: middle(|one| one.wall),
        }
    }

    /// One line: a picture, the shape, the levels, and when the last one began.
    pub fn line(&self) -> String {
        let times: Vec<f64> = self.iterations.iter().map(|one| one.process).collect();
        let segments = self.segments();
        let levels: Vec<String> = segments.iter().map(level).collect();
        let settled = segments.last().map_or(0, |last| last.start);
        let since = self.iterations[settled].start - self.iterations[0].start;
        format!(
            "{:<20} {:<9} {}  {}; last level from {:.0} ms on",
            self.workload,
            Shape::of(&segments).name(),
            picture(&times),
            levels.join(", "),
            since / 1e6,
        )
    }
}

/// `2..9: 20.1 ms`, iterations counted from 1.
fn level(segment: &Segment) -> String {
    let (first, last) = (segment.start + 1, segment.end);
    let range = if first == last {
        first.to_string()
    } else {
        format!("{first}..{last}")
    };
    format!("{range}: {:.2} ms", segment.median / 1e6)
}

/// A character for each of at most [`WIDTH`] groups of iterations: the tallest is the
/// slowest, and the lowest stands for nothing, not for the fastest.
fn picture(times: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const WIDTH: usize = 25;
    let most = times.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let group = times.len().div_ceil(WIDTH).max(1);
    // The first iteration stands by itself: it is the one that differs most.
    let (first, rest) = times.split_at(times.len().min(1));
    let groups = first.chunks(1).chain(rest.chunks(group));
    let height = |times: &[f64]| {
        let part = changes::median(times) / most;
        HEIGHTS[((part * 8.0) as usize).min(7)]
    };
    groups.map(height).collect()
}

/// All iterations of all curves as comma-separated values.
pub fn csv(curves: &[Curve]) -> String {
    let mut text = String::from(
        "workload,side,level,round,iteration,start_ns,wall_ns,thread_cpu_ns,process_cpu_ns\n",
    );
    for curve in curves {
        for (number, one) in curve.iterations.iter().enumerate() {
            text.push_str(&format!(
                "{},{},{},{},{},{},{},{},{}\n",
                curve.workload,
                curve.side,
                curve.level,
                curve.round,
                number + 1,
                one.start,
                one.wall,
                one.thread,
                one.process
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Curve, Iteration, csv, parse};

    fn curve() -> Curve {
        let iteration = |number: usize| {
            let wall = if number == 0 { 90e6 } else { 20e6 };
            Iteration {
                start: 1e9 + 20e6 * number as f64,
                wall,
                thread: wall - 1e5,
                process: wall + 1e5,
            }
        };
        Curve {
            workload: "c n-body".to_owned(),
            side: "uruk".to_owned(),
            ours: true,
            level: "O2".to_owned(),
            round: 1,
            iterations: (0..10).map(iteration).collect(),
        }
    }

    #[test]
    fn a_line_names_levels_and_the_moment() {
        assert_eq!(
            curve().line(),
            "c n-body             warm-up   █▂▂▂▂▂▂▂▂▂  1: 90.10 ms, 2..10: 20.10 ms; \
             last level from 20 ms on"
        );
        let settled = curve().settled();
        assert_eq!((settled.cpu, settled.wall), (20.1e6, 20e6));
    }

    #[test]
    fn what_is_written_is_read() {
        let read = parse("100 5 4 6\n105 5 4 6\n").expect("two lines");
        assert_eq!(read.len(), 2);
        assert_eq!((read[1].start, read[1].process), (105.0, 6.0));
        assert!(parse("").is_err());
        assert!(parse("1 2 3\n").is_err());
        assert_eq!(csv(&[curve()]).lines().count(), 11);
    }
}
