//! Figures computed from a recording, as pure functions.
//!
//! **Time to peak.** A sample is *settled* if it is in a version that was still published when the
//! run ended: code that was not improved again. With samples in bins `b` of growing length (20 to a
//! decade of time, each with at least [`BIN_SAMPLES`] samples in our code), `own(b)` samples in our
//! code and `settled(b)` settled ones:
//!
//! ```text
//! peak = end of the first b with  settled(b) >= PEAK_SHARE * own(b)
//!                            and  settled(b..) >= PEAK_SHARE * own(b..)
//! ```
//!
//! where `b..` is that bin and all after it. The figure is the end of the bin, so it may be late by
//! an eighth and is never early. With fewer than [`PEAK_SAMPLES`] samples in our code there is no
//! figure.

use serde::Serialize;

use crate::recording::{Function, Nanos, Period, Recording, State, Tier};
use crate::units::ratio;

/// Share of the samples that must be settled at the peak.
pub const PEAK_SHARE: f64 = 0.9;
/// Least samples in our code for a time to peak.
pub const PEAK_SAMPLES: u64 = 50;
/// Least samples in our code for a meaningful share.
const BIN_SAMPLES: u64 = 8;
/// Least samples of any kind for a stack of several shares.
const STACK_SAMPLES: u64 = 20;
/// Growth from one logarithmic bin to the next: 20 to a decade.
const GROWTH: f64 = 1.122;

/// The time at which a run reached its peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// From here on at least [`PEAK_SHARE`] of the samples are settled.
    pub at: Nanos,
}

/// The reason why the time to peak is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeakUnknown {
    /// Our code has no samples, or too few.
    TooFewSamples(u64),
    /// Code was still being replaced when the run ended.
    NotReached,
}

/// Figures of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TierFigures {
    /// The tier.
    pub tier: Tier,
    /// Compiles.
    pub compiled: u64,
    /// Functions that ran at this tier when the run ended.
    pub published: u64,
    /// Time of the compiles, summed over workers.
    pub compile: Nanos,
    /// Machine code that was made.
    pub code_bytes: u64,
    /// Samples in its code.
    pub samples: u64,
}

/// The key figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// By tier of compiled code, lowest first.
    pub tiers: [TierFigures; 3],
    /// Native code; all zero if the program had none.
    pub native: TierFigures,
    /// Functions that have code.
    pub compiled_functions: u64,
    /// Versions that were replaced in the slot.
    pub retired: u64,
    /// Bytes of those.
    pub retired_bytes: u64,
    /// All samples.
    pub samples: u64,
    /// Samples in our code.
    pub own_samples: u64,
    /// Measured cost of sampling, as a share of the CPU time since it began; none without sampling.
    pub overhead: Option<f64>,
    /// The time to peak.
    pub peak: Result<Peak, PeakUnknown>,
}

impl Summary {
    /// Computes the figures.
    pub fn of(recording: &Recording) -> Summary {
        let versions = || recording.functions.iter().flat_map(|f| &f.versions);
        // Continuations count with the function whose loop they continue.
        let functions = || recording.functions.iter().filter(|f| !f.continues);
        let ours = |v: &&crate::Version| v.tier != Tier::Native;
        let retired = || {
            let ours = versions().filter(ours);
            ours.filter(|v| matches!(v.state, State::Retired { .. }))
        };
        let totals = &recording.totals;
        let figures = |tier: Tier| {
            let here = |f: &&Function| f.published().is_some_and(|v| v.tier == tier);
            TierFigures {
                tier,
                compiled: totals.compiled[tier.rank()],
                published: functions().filter(here).count() as u64,
                compile: totals.compile[tier.rank()],
                code_bytes: totals.code_bytes[tier.rank()],
                samples: totals.samples[tier.rank()],
            }
        };
        let with_code = |f: &&Function| f.versions.iter().any(|v| v.tier != Tier::Native);
        Summary {
            tiers: Tier::ALL.map(figures),
            native: figures(Tier::Native),
            compiled_functions: functions().filter(with_code).count() as u64,
            retired: retired().count() as u64,
            retired_bytes: retired().map(|v| v.code_bytes).sum(),
            samples: totals.samples.iter().sum(),
            own_samples: totals.samples[1..].iter().sum(),
            overhead: overhead(&recording.periods),
            peak: peak(&recording.periods),
        }
    }

    /// Native code, if there is any, then the tiers of compiled code.
    pub fn rows(&self) -> impl Iterator<Item = &TierFigures> {
        let native = Some(&self.native).filter(|native| native.published + native.samples > 0);
        native.into_iter().chain(&self.tiers)
    }

    /// Time of all compiles, summed over workers.
    pub fn compile(&self) -> Nanos {
        self.tiers.iter().map(|tier| tier.compile).sum()
    }

    /// Machine code that was made, in bytes.
    pub fn code_bytes(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.code_bytes).sum()
    }

    /// Share of the samples in our code that are in optimized code (tiers 2 and 3).
    pub fn optimized_share(&self) -> f64 {
        let optimized: u64 = self.tiers[1..].iter().map(|tier| tier.samples).sum();
        ratio(optimized as f64, self.own_samples as f64)
    }
}

/// The last reported cost of sampling, which is that of the whole run.
fn overhead(periods: &[Period]) -> Option<f64> {
    let mut measured = periods.iter().rev().filter(|period| period.rate_hz > 0.0);
    measured.next().map(|period| period.overhead)
}

/// Adjacent periods, merged for drawing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Bin {
    /// Its start.
    pub(crate) start: Nanos,
    /// Its end.
    pub(crate) end: Nanos,
    /// Like [`Period::samples`].
    pub(crate) samples: [u64; Tier::RANKS],
    /// Like [`Period::settled`].
    pub(crate) settled: u64,
}

impl Bin {
    /// Samples in our code.
    pub(crate) fn own(&self) -> u64 {
        self.samples[1..].iter().sum()
    }

    /// All samples.
    pub(crate) fn all(&self) -> u64 {
        self.samples.iter().sum()
    }

    /// Share of the samples in our code that are settled.
    pub(crate) fn settled_share(&self) -> f64 {
        ratio(self.settled as f64, self.own() as f64)
    }

    fn add(&mut self, period: &Period) {
        self.end = period.end;
        self.settled += period.settled;
        for (sum, count) in self.samples.iter_mut().zip(period.samples) {
            *sum += count;
        }
    }
}

/// Merges periods until the bin is `full`, or a pause of more than `pause` follows it. Periods
/// without samples are skipped, so there may be gaps between bins.
fn gather(periods: &[Period], pause: u64, full: impl Fn(&Bin) -> bool) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    let mut open = false;
    for period in periods.iter().filter(|p| p.samples.iter().any(|n| *n > 0)) {
        let near = |bin: &&mut Bin| open && period.start.since(bin.end).0 <= pause;
        match bins.last_mut().filter(near) {
            Some(bin) => {
                bin.add(period);
                open = !full(bin);
            }
            None => {
                let mut bin = Bin {
                    start: period.start,
                    ..Bin::default()
                };
                bin.add(period);
                open = !full(&bin);
                bins.push(bin);
            }
        }
    }
    bins
}

/// Sampling rate below which samples come in clumps. Such rates occur while no new code appears.
const RARE_HZ: f64 = 50.0;

/// Samples of a clump.
const CLUMP: f64 = 10.0;

/// At most about `columns` bins of equal length over the whole run.
pub(crate) fn even_bins(recording: &Recording, columns: u64) -> Vec<Bin> {
    let width = recording.wall.0.div_ceil(columns.max(1)).max(1);
    let samples: u64 = recording.periods.iter().flat_map(|p| p.samples).sum();
    let rates = recording.periods.iter().map(|it| it.rate_hz);
    let rare = rates.filter(|&rate| rate > 0.0 && rate < RARE_HZ);
    let clumps = rare.map(|rate| CLUMP / rate * 1e9).fold(0.0, f64::max);
    // A few columns, or several times the mean distance of two samples.
    let pause = (3 * width).max(8 * recording.wall.0 / samples.max(1));
    let pause = pause.max(clumps as u64);
    let mut bins = gather(&recording.periods, pause, |bin| {
        bin.end.since(bin.start).0 >= width && bin.all() >= STACK_SAMPLES
    });
    for at in 1..bins.len() {
        let next = bins[at].start;
        if next.since(bins[at - 1].end).0 <= pause {
            bins[at - 1].end = next;
        }
    }
    bins
}

/// Bins of growing length, each with enough samples in our code.
pub(crate) fn growing_bins(periods: &[Period]) -> Vec<Bin> {
    let mut bins = gather(periods, u64::MAX, |bin| {
        let grown = bin.end.0 as f64 >= bin.start.0 as f64 * GROWTH;
        grown && bin.own() >= BIN_SAMPLES
    });
    // A remainder that is too small is merged into the bin before it.
    if bins.len() > 1
        && let Some(rest) = bins.pop_if(|last| last.own() < BIN_SAMPLES)
        && let Some(last) = bins.last_mut()
    {
        last.end = rest.end;
        last.settled += rest.settled;
        for (sum, count) in last.samples.iter_mut().zip(rest.samples) {
            *sum += count;
        }
    }
    bins
}

/// The time to peak, as the module's documentation defines it.
fn peak(periods: &[Period]) -> Result<Peak, PeakUnknown> {
    let own: u64 = periods.iter().map(Period::own).sum();
    if own < PEAK_SAMPLES {
        return Err(PeakUnknown::TooFewSamples(own));
    }
    let bins = growing_bins(periods);
    let mut found = Err(PeakUnknown::NotReached);
    let (mut own, mut settled) = (0, 0);
    for bin in bins.iter().rev() {
        own += bin.own();
        settled += bin.settled;
        let here = bin.own() > 0 && bin.settled_share() >= PEAK_SHARE;
        if here && settled as f64 >= PEAK_SHARE * own as f64 {
            found = Ok(Peak { at: bin.end });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Periods of 1 ms with ten samples in tier 1, all settled from `peak` on.
    fn periods(count: u64, peak: u64) -> Vec<Period> {
        let period = |n: u64| Period {
            start: Nanos(n * 1_000_000),
            end: Nanos((n + 1) * 1_000_000),
            samples: [1, 10, 0, 0, 0],
            settled: if n >= peak { 10 } else { 0 },
            rate_hz: 100.0,
            overhead: 0.004,
            ..Period::default()
        };
        (0..count).map(period).collect()
    }

    #[test]
    fn the_peak_is_where_settled_code_takes_over_for_good() {
        for at in [0, 1, 5, 20, 40, 80] {
            let found = peak(&periods(100, at)).expect("enough samples").at.as_ms();
            let (early, late) = (at as f64, (at as f64 + 1.0) * 1.3 + 1.0);
            assert!(found >= early && found <= late, "{at}: {found}");
        }
    }

    #[test]
    fn a_passing_good_bin_is_no_peak() {
        let mut run = periods(100, 100);
        for period in &mut run[10..20] {
            period.settled = 10;
        }
        assert_eq!(peak(&run), Err(PeakUnknown::NotReached));
        for period in &mut run[60..] {
            period.settled = 10;
        }
        assert!(peak(&run).expect("settled at the end").at.as_ms() >= 60.0);
    }

    #[test]
    fn few_samples_give_no_figure() {
        assert_eq!(peak(&[]), Err(PeakUnknown::TooFewSamples(0)));
        assert_eq!(peak(&periods(4, 0)), Err(PeakUnknown::TooFewSamples(40)));
    }

    #[test]
    fn bins_keep_every_sample() {
        let recording = Recording {
            wall: Nanos(100_000_000),
            periods: periods(100, 50),
            ..Recording::default()
        };
        for bins in [
            even_bins(&recording, 10),
            even_bins(&recording, 1000),
            growing_bins(&recording.periods),
        ] {
            assert_eq!(bins.iter().map(Bin::all).sum::<u64>(), 1100);
            assert_eq!(bins.iter().map(|b| b.settled).sum::<u64>(), 500);
            assert!(bins.windows(2).all(|w| w[0].end <= w[1].start));
        }
        assert_eq!(even_bins(&recording, 10).len(), 10);
        assert!(even_bins(&Recording::default(), 10).is_empty());
    }

    #[test]
    fn a_pause_is_a_gap_between_bins() {
        let mut run = periods(100, 0);
        for period in &mut run[20..80] {
            period.samples = [0; Tier::RANKS];
        }
        let recording = Recording {
            wall: Nanos(100_000_000),
            periods: run,
            ..Recording::default()
        };
        let bins = even_bins(&recording, 20);
        let gaps = bins.windows(2).filter(|w| w[0].end < w[1].start);
        assert_eq!(gaps.count(), 1);
        // Also if the bin before it has room.
        let few = even_bins(&recording, 4);
        assert!(
            few.iter().all(|bin| bin.end <= Nanos(100_000_000)),
            "{few:?}"
        );
    }

    #[test]
    fn clumps_of_rare_samples_leave_no_gaps() {
        let mut run = periods(100, 0);
        for (number, period) in run.iter_mut().enumerate() {
            period.rate_hz = if number < 50 { 100.0 } else { 500.0 / 12.0 };
            if number >= 50 && number % 25 != 0 {
                period.samples = [0; Tier::RANKS];
            }
        }
        let recording = Recording {
            wall: Nanos(100_000_000),
            periods: run,
            ..Recording::default()
        };
        let bins = even_bins(&recording, 20);
        assert!(bins.windows(2).all(|w| w[0].end == w[1].start), "{bins:?}");
    }

    #[test]
    fn the_cost_of_sampling_is_that_of_the_whole_run() {
        // Each period has the cost so far: it falls after a burst.
        let mut run = periods(3, 0);
        run[0].overhead = 0.02;
        run[1].overhead = 0.006;
        run[2].rate_hz = 0.0;
        assert_eq!(overhead(&run), Some(0.006));
        assert_eq!(overhead(&[]), None);
    }
}
