//! Detects that a region no longer runs as it did when its code was chosen.
//!
//! The first [`LEARN`] readings of the time per unit of work give a middle (median) and a spread
//! (median distance from it, at least [`LEAST`]). Later readings are measured in spreads, clipped
//! at [`CLIP`], and summed up on either side where they exceed [`ALLOWED`]; a sum above [`ALARM`]
//! is a drift. So four readings far off make a drift, and single ones never do. Readings are about
//! a tenth of a second apart, and do not show which code is better: a drift only starts another
//! comparison.
//!
//! # Wide spreads
//! A spread above [`WIDE`] hides a change of the load: at 0.6 even one to four times the time is
//! allowed. It has two possible causes. The load changed, or other threads of the process began or
//! ended, while it was learned; or the readings are that noisy. So after [`STALE`] readings middle
//! and spread are learned anew, from means of twice as many readings (logarithms, [`MOST`] at
//! most). A change of the load then shows in the two middles: they differ by more than [`ALLOWED`]
//! of the lesser spread.

/// Number of readings from which the middle and the spread are taken.
const LEARN: usize = 16;

/// Least spread, as a part of the time.
const LEAST: f64 = 0.02;

/// Most spreads that one reading counts for.
const CLIP: f64 = 6.0;

/// Deviation in spreads up to which a reading does not count.
const ALLOWED: f64 = 2.5;

/// Sum of further spreads that is a drift.
const ALARM: f64 = 12.0;

/// Spread from which on middle and spread are learned anew, after [`STALE`] readings without a drift.
const WIDE: f64 = 0.1;
const STALE: u32 = 32;

/// Most readings in one mean.
const MOST: u32 = 8;

/// Watches one region for a drift.
///
/// ```
/// use uruk_tiering::tuning::Drift;
///
/// let mut drift = Drift::default();
/// assert!((0..100).all(|_| !drift.reading(250.0)));
/// assert!((0..10).any(|_| drift.reading(400.0)));
/// ```
#[derive(Clone, Debug)]
pub struct Drift {
    /// Readings in a mean, and those in the next one.
    each: u32,
    sum: f64,
    summed: u32,
    learned: Vec<f64>,
    middle: f64,
    spread: f64,
    /// Middle and spread that were learned before.
    before: Option<(f64, f64)>,
    above: f64,
    below: f64,
    /// Number of means since middle and spread are known.
    watched: u32,
}

impl Default for Drift {
    fn default() -> Drift {
        Drift::of_means(1)
    }
}

impl Drift {
    fn of_means(each: u32) -> Drift {
        Drift {
            each,
            sum: 0.0,
            summed: 0,
            learned: Vec::new(),
            middle: 0.0,
            spread: 0.0,
            before: None,
            above: 0.0,
            below: 0.0,
            watched: 0,
        }
    }

    /// Whether the region's usual time is known: changes are detected from then on.
    pub fn is_known(&self) -> bool {
        self.learned.len() == LEARN
    }

    /// Takes a time per unit of work; returns true once if the region has drifted: its usual time
    /// is learned anew from then on.
    pub fn reading(&mut self, time: f64) -> bool {
        let log = time.ln();
        if !log.is_finite() {
            return false;
        }
        self.sum += log;
        self.summed += 1;
        if self.summed < self.each {
            return false;
        }
        let mean = self.sum / f64::from(self.summed);
        (self.sum, self.summed) = (0.0, 0);
        self.mean(mean)
    }

    fn mean(&mut self, log: f64) -> bool {
        if !self.is_known() {
            self.learned.push(log);
            if self.is_known() {
                return self.learn();
            }
            return false;
        }
        let off = ((log - self.middle) / self.spread).clamp(-CLIP, CLIP);
        self.above = (self.above + off - ALLOWED).max(0.0);
        self.below = (self.below - off - ALLOWED).max(0.0);
        let drifted = self.above.max(self.below) > ALARM;
        if drifted {
            *self = Drift::default();
            return true;
        }
        self.watched += 1;
        if self.spread > WIDE && self.watched == STALE {
            let before = Some((self.middle, self.spread));
            *self = Drift {
                before,
                ..Drift::of_means((self.each * 2).min(MOST))
            };
        }
        false
    }

    /// Takes middle and spread from the readings; true if the load changed since they were taken
    /// before.
    fn learn(&mut self) -> bool {
        self.middle = median(&self.learned);
        let away = self.learned.iter().map(|log| (log - self.middle).abs());
        let away: Vec<f64> = away.collect();
        // The median distance of normal readings is two thirds of their deviation.
        self.spread = (median(&away) * 1.5).max(LEAST);
        let drifted = self.before.is_some_and(|(middle, spread)| {
            (self.middle - middle).abs() > ALLOWED * spread.min(self.spread)
        });
        if drifted {
            *self = Drift::default();
        }
        drifted
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tuning::noise::{Kind, Noise};

    /// Readings until an alarm, of a load that costs `factor` times as much after `at`.
    fn alarm(kind: Kind, seed: u64, at: u32, factor: f64, most: u32) -> Option<u32> {
        let mut noise = Noise::new(kind, 0.03, seed);
        let mut drift = Drift::default();
        let time = |n| if n >= at { factor } else { 1.0 };
        (0..most).find(|&n| drift.reading(250.0 * noise.next() * time(n)))
    }

    #[test]
    fn a_change_is_seen_and_noise_is_not() {
        for kind in [Kind::White, Kind::Outliers] {
            let mut early = 0;
            for seed in 0..100 {
                match alarm(kind, seed, 200, 1.3, 230) {
                    None => panic!("{kind:?} {seed}: not seen in 30 readings"),
                    Some(at) => early += u32::from(at < 200),
                }
            }
            assert!(
                early <= 5,
                "{kind:?}: {early} false alarms in 20,000 readings"
            );
        }
        let faster = alarm(Kind::White, 3, 200, 0.75, 230);
        assert!(faster.is_some_and(|at| at >= 200), "{faster:?}");
    }

    /// Readings of a load that is learned while it changes have no middle, and two that differ by
    /// as much are within their spread.
    #[test]
    fn a_load_that_changes_while_it_is_learned_is_learned_anew() {
        let mut drift = Drift::default();
        assert!((0..8).all(|_| !drift.reading(250.0)));
        assert!((0..80).all(|_| !drift.reading(1000.0)), "it is learned");
        assert!(drift.is_known());
        assert!((0..30).any(|_| drift.reading(250.0)));
    }

    /// With other threads of the process coming and going, a reading is between half and twice the
    /// time.
    #[test]
    fn a_change_is_seen_through_much_noise() {
        for seed in 0..100 {
            let mut noise = Noise::new(Kind::White, 0.7, seed);
            let mut drift = Drift::default();
            let mut alarm = |factor: f64, most: u32| {
                (0..most).any(|_| drift.reading(250.0 * factor * noise.next()))
            };
            alarm(1.0, 600);
            assert!(alarm(4.0, 600), "{seed}: not seen");
        }
    }
}
