//! Whether a region still runs as it did when its code was chosen.
//!
//! The first [`LEARN`] readings of the time per unit of work give a middle (median) and a spread
//! (median distance from it, at least [`LEAST`]). Later readings are told in spreads, clipped at
//! [`CLIP`], and summed up on either side where they exceed [`ALLOWED`]; a sum above [`ALARM`] is
//! a drift. So four readings far off are one, and single ones never are. Readings are about a
//! tenth of a second apart, and say nothing of which code is better: a drift only has the choice
//! looked at again.

/// Readings that the middle and the spread are taken from.
const LEARN: usize = 16;

/// Least spread, as a part of the time.
const LEAST: f64 = 0.02;

/// Spreads that one reading counts for at most.
const CLIP: f64 = 6.0;

/// Spreads by which a reading may be off for nothing.
const ALLOWED: f64 = 2.5;

/// Spreads above that, summed up, that are a drift.
const ALARM: f64 = 12.0;

/// Watches one region.
///
/// ```
/// use uruk_tiering::tuning::Drift;
///
/// let mut drift = Drift::default();
/// assert!((0..100).all(|_| !drift.reading(250.0)));
/// assert!((0..10).any(|_| drift.reading(400.0)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Drift {
    learned: Vec<f64>,
    middle: f64,
    spread: f64,
    above: f64,
    below: f64,
}

impl Drift {
    /// Takes a time per unit of work; true if the region has drifted, once: it is learned anew
    /// from then on.
    pub fn reading(&mut self, time: f64) -> bool {
        let log = time.ln();
        if !log.is_finite() {
            return false;
        }
        if self.learned.len() < LEARN {
            self.learned.push(log);
            if self.learned.len() == LEARN {
                self.middle = median(&self.learned);
                let away: Vec<f64> = self
                    .learned
                    .iter()
                    .map(|l| (l - self.middle).abs())
                    .collect();
                // The median distance of normal readings is two thirds of their deviation.
                self.spread = (median(&away) * 1.5).max(LEAST);
            }
            return false;
        }
        let off = ((log - self.middle) / self.spread).clamp(-CLIP, CLIP);
        self.above = (self.above + off - ALLOWED).max(0.0);
        self.below = (self.below - off - ALLOWED).max(0.0);
        let drifted = self.above.max(self.below) > ALARM;
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
}
