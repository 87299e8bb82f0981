//! The interface from measuring to reporting: rows. Pure; decides `ok` or `short`.

use crate::sample::Sample;

/// The unit of a row's figures. Less is better for all units but rates and ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds of processor time, all threads and children together.
    CpuMs,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// Million operations a second.
    MillionPerSecond,
    /// Bytes.
    Bytes,
    /// 1,024 bytes.
    Kilobytes,
    /// Iterations in a second of processor time, all threads counted.
    IterationsPerSecond,
    /// Runs of a program in a second of processor time, all threads counted.
    RunsPerSecond,
    /// A ratio; more is better.
    Times,
    /// Per cent.
    PerCent,
}

impl Unit {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Unit::CpuMs => "ms cpu",
            Unit::Ms => "ms",
            Unit::Us => "us",
            Unit::Ns => "ns",
            Unit::MillionPerSecond => "M/s",
            Unit::Bytes => "bytes",
            Unit::Kilobytes => "KB",
            Unit::IterationsPerSecond => "it/s cpu",
            Unit::RunsPerSecond => "runs/s cpu",
            Unit::Times => "x",
            Unit::PerCent => "%",
        }
    }
}

/// The result of measuring one side of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// It ran.
    Measured(Sample),
    /// It was stopped when it had used this much.
    Stopped(f64),
    /// It did not run, or did something else; why.
    Failed(String),
}

impl Figure {
    /// A measurement; without figures, a failure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Figure {
        match Sample::new(figures) {
            Some(sample) => Figure::Measured(sample),
            None => Figure::Failed("no figures".to_owned()),
        }
    }

    /// The sample, if it ran to the end.
    pub fn sample(&self) -> Option<&Sample> {
        match self {
            Figure::Measured(sample) => Some(sample),
            _ => None,
        }
    }

    /// The median, if it ran to the end.
    pub fn median(&self) -> Option<f64> {
        self.sample().map(Sample::median)
    }
}

/// The contender we are compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name, with the mode.
    pub name: String,
    /// Its figure, in the row's unit.
    pub figure: Figure,
}

/// The target of a row. `r` is our median over the peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// `r <=` this.
    RatioAtMost(f64),
    /// `r >=` this.
    RatioAtLeast(f64),
    /// Our median `<=` this.
    AtMost(f64),
    /// Our median `>=` this.
    AtLeast(f64),
    /// Nothing: the row is for information.
    Information,
}

/// How a row came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reached.
    Ok,
    /// Not reached.
    Short,
    /// There was no figure to compare with.
    NoPeer,
    /// There is no target.
    Information,
}

impl Verdict {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Short => "short",
            Verdict::NoPeer => "no peer",
            Verdict::Information => "-",
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the measurement.
    pub name: String,
    /// Optimization level of the bitcode; empty where there is none.
    pub level: String,
    /// Of both figures.
    pub unit: Unit,
    /// Ours.
    pub ours: Figure,
    /// The peer's.
    pub peer: Option<Peer>,
    /// Medians by wall-clock time, ours and the peer's, where they were taken as well;
    /// times or rates, as the unit is.
    pub wall: Option<(f64, f64)>,
    /// Ratios of what was taken in one stretch of time, one of each round, which say more than the
    /// ratio of medians.
    pub paired: Option<Sample>,
    /// The target to reach.
    pub target: Target,
    /// A remark on this row for the reader.
    pub note: String,
}

impl Row {
    /// A row without peer and target.
    pub fn new(name: impl Into<String>, unit: Unit, ours: Figure) -> Row {
        Row {
            name: name.into(),
            level: String::new(),
            unit,
            ours,
            peer: None,
            wall: None,
            paired: None,
            target: Target::Information,
            note: String::new(),
        }
    }

    /// Sets the bitcode's optimization level.
    pub fn level(mut self, level: impl Into<String>) -> Row {
        self.level = level.into();
        self
    }

    /// Sets the peer.
    pub fn peer(mut self, name: impl Into<String>, figure: Figure) -> Row {
        self.peer = Some(Peer {
            name: name.into(),
            figure,
        });
        self
    }

    /// Sets the target.
    pub fn target(mut self, target: Target) -> Row {
        self.target = target;
        self
    }

    /// Sets the note.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    /// Our median over the peer's, or the median of what was [paired](Row::paired). Of a peer that was
    /// stopped, an upper bound.
    pub fn ratio(&self) -> Option<f64> {
        let ours = self.ours.median()?;
        match &self.peer.as_ref()?.figure {
            Figure::Measured(sample) => {
                let paired = self.paired.as_ref().map(Sample::median);
                Some(paired.unwrap_or(ours / sample.median()))
            }
            Figure::Stopped(at) => Some(ours / at),
            Figure::Failed(_) => None,
        }
    }

    /// The standard error of the ratio as a part of it, by how figures or pairs differ.
    pub fn error(&self) -> Option<f64> {
        if let Some(paired) = &self.paired {
            return paired.error();
        }
        let ours = self.ours.sample()?.error()?;
        let peer = self.peer.as_ref()?.figure.sample()?.error()?;
        Some(ours.hypot(peer))
    }

    /// Compares with the target.
    pub fn verdict(&self) -> Verdict {
        let holds = |reached: bool| if reached { Verdict::Ok } else { Verdict::Short };
        let ratio = |test: &dyn Fn(f64) -> bool| match (self.ours.median(), self.ratio()) {
            (None, _) => Verdict::Short,
            (_, None) => Verdict::NoPeer,
            (_, Some(ratio)) => holds(test(ratio)),
        };
        match self.target {
            Target::Information => Verdict::Information,
            Target::RatioAtMost(limit) => ratio(&|r| r <= limit),
            Target::RatioAtLeast(limit) => ratio(&|r| r >= limit),
            Target::AtMost(limit) => holds(self.ours.median().is_some_and(|ours| ours <= limit)),
            Target::AtLeast(limit) => holds(self.ours.median().is_some_and(|ours| ours >= limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Row, Sample, Target, Unit, Verdict};

    fn row(ours: f64, peer: f64, target: Target) -> Row {
        Row::new("r", Unit::Ns, Figure::of([ours]))
            .peer("p", Figure::of([peer]))
            .target(target)
    }

    #[test]
    fn targets_decide() {
        for (ours, peer, target, verdict) in [
            (1.0, 2.0, Target::RatioAtMost(0.5), Verdict::Ok),
            (1.1, 2.0, Target::RatioAtMost(0.5), Verdict::Short),
            (3.6, 2.0, Target::RatioAtLeast(1.8), Verdict::Ok),
            (9.0, 1.0, Target::AtMost(10.0), Verdict::Ok),
            (9.0, 1.0, Target::AtLeast(10.0), Verdict::Short),
            (7.1, 5.0, Target::Information, Verdict::Information),
        ] {
            let row = row(ours, peer, target);
            assert_eq!(row.verdict(), verdict, "{row:?}");
        }
    }

    #[test]
    fn a_failure_of_ours_is_short_and_of_the_peer_no_comparison() {
        let mut one = row(1.0, 2.0, Target::RatioAtMost(0.5));
        one.ours = Figure::Failed("signal 11".to_owned());
        assert_eq!(one.verdict(), Verdict::Short);
        let two = row(1.0, f64::NAN, Target::RatioAtMost(0.5));
        assert_eq!(two.verdict(), Verdict::NoPeer);
    }

    #[test]
    fn the_error_of_a_ratio_is_that_of_both_sides_or_of_pairs() {
        let figures = [0.9, 1.0, 1.0 / 0.9];
        let one = Figure::of(figures);
        let of_one = one.sample().and_then(Sample::error).expect("three figures");
        let mut row = Row::new("r", Unit::Ns, one.clone()).peer("p", one);
        let of_both = row.error().expect("three figures each");
        assert!((of_both - 2f64.sqrt() * of_one).abs() < 1e-12);
        row.paired = Sample::new(figures.map(|figure| 2.0 * figure));
        assert_eq!(row.ratio(), Some(2.0));
        let of_pairs = row.error().expect("three pairs");
        assert!((of_pairs - of_one).abs() < 1e-12);
    }

    #[test]
    fn a_stopped_peer_bounds_the_ratio() {
        let mut one = row(1.0, 2.0, Target::RatioAtMost(0.5));
        one.peer.as_mut().expect("set").figure = Figure::Stopped(4.0);
        assert_eq!((one.ratio(), one.verdict()), (Some(0.25), Verdict::Ok));
    }
}
