//! A sequential test of two versions that take turns in a slot.
//!
//! # The test
//! A pair is two slices, one of each version, in random order; `d` is the logarithm of the
//! incumbent's time per unit of work over the candidate's: positive where the candidate is faster.
//! If the two versions are equal, exchanging them changes nothing. So given everything before the
//! pair and `|d|`, both signs of `d` are equally likely, *because the order was drawn*. This holds
//! for any noise: autocorrelated, periodic, drifting or with heavy tails. For such `d`, clipped at
//! bounds that depend on earlier pairs only, with sums `S` of `d` and `V` of `d * d`,
//!
//! `E = mean over r in SCALES of sqrt(r / (V + r)) * exp(S * S / (2 * (V + r)))`
//!
//! is at most a supermartingale that begins at 1 (de la Peña's bound for symmetric sums, mixed over
//! normal priors of variance `1 / r`). So is a bet of everything that the signs of all pairs are
//! the same: `B` is `2^(pairs - 1)` while they are. `E` is for differences that are small beside
//! the noise; with hardly any noise, `B` needs 10 pairs and `E` 14, and a pair may take a second.
//! `(1 - BET) * E + BET * B` passes `1 / error` at any time with a probability of at most `error`
//! (Ville). So the test may look after each pair and stop at any time. All ratios that are not
//! refuted in this way are an [`Interval`] that holds at all times at once, as long as the ratio
//! does not change.
//!
//! # When it ends
//! | verdict | when |
//! |---|---|
//! | `Faster`, `Slower` | that sum `>= 1 / error`, by the sign of `S` |
//! | `Same` | `(1 - FUTILE) * E + FUTILE * L`, of the differences that are left if the gain were `margin`, `>= 1 / missed`: the probability to miss a gain of that size is at most `missed`. `L` is the bet that the candidate is behind in all pairs, `2^pairs` while it is |
//! | `Undecided` | `pairs` pairs were seen |
//!
//! Clipping at [`CLIP`] times the median size of earlier pairs bounds the effect of one stalled
//! slice; without it one outlier hides a difference for as many pairs as its square holds. With the
//! default rules and noise of 6 % a pair, a difference of 3 % is found within 250 slices in 95 of
//! 100 trials, at 3 % noise within 90 (`tests` below hold that).

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

/// Priors' scales, in squares of log ratios: differences from 30 % to 0.3 %.
const SCALES: [f64; 5] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5];

/// Weight of the bet that all signs are the same.
const BET: f64 = 0.1;

/// Weight of the bet that a candidate without enough gain is behind in all pairs: five pairs are
/// enough then, also for one that is twice as slow. Most candidates change nothing.
const FUTILE: f64 = 1.0 / 3.0;

/// Pairs are clipped at this many times the median size of earlier ones.
const CLIP: f64 = 5.0;

/// Number of earlier pairs needed for clipping.
const CLIP_AFTER: usize = 8;

/// The first step from the likeliest difference to those that are refuted.
const NEAREST: f64 = 1e-4;

/// Log ratios of times beyond this are not distinguished.
const MOST: f64 = 8.0;

/// One of the two versions of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The version that ran before.
    Incumbent,
    /// The version on trial.
    Candidate,
}

/// The measurement of one version in the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Processor time of the program's threads, in ns.
    pub time: f64,
    /// Entries of the root, or units of work.
    pub work: f64,
}

impl Slice {
    /// Logarithm of the time per unit of work; `None` without work.
    fn cost(self) -> Option<f64> {
        let cost = (self.time / self.work).ln();
        (self.work > 0.0 && cost.is_finite()).then_some(cost)
    }
}

/// The conditions that end a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Greatest probability that one of two equal versions is called faster.
    pub error: f64,
    /// Gains below this part are not searched for.
    pub margin: f64,
    /// Greatest probability that a gain of that part is missed; larger ones are missed less often.
    pub missed: f64,
    /// Number of pairs after which it is given up.
    pub pairs: u32,
}

impl Default for Rules {
    /// Error 2 %; margin 1 %, missed one time of ten; 400 pairs.
    fn default() -> Rules {
        Rules {
            error: 0.02,
            margin: 0.01,
            missed: 0.1,
            pairs: 400,
        }
    }
}

impl Rules {
    /// The rules for one of several trials of one question, with a part of the error.
    #[must_use]
    pub fn with_part_of_error(self, part: f64) -> Rules {
        Rules {
            error: self.error * part,
            ..self
        }
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The candidate is faster.
    Faster,
    /// The candidate is slower.
    Slower,
    /// The candidate gains less than the margin, or is slower.
    Same,
    /// The trial ended without a result.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Same => "no difference",
            Verdict::Undecided => "undecided",
        })
    }
}

/// Speed of the candidate relative to the incumbent, with the range that is not refuted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The least ratio.
    pub low: f64,
    /// The likeliest ratio.
    pub point: f64,
    /// The greatest ratio.
    pub high: f64,
}

impl Interval {
    /// The interval of two steps, one after the other: at most as wide as both together.
    #[must_use]
    pub fn times(self, next: Interval) -> Interval {
        Interval {
            low: self.low * next.low,
            point: self.point * next.point,
            high: self.high * next.high,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { low, point, high } = self;
        write!(f, "{point:.3} ({low:.3} to {high:.3})")
    }
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    difference: f64,
    /// The bound at which it is clipped, from the pairs before it.
    bound: f64,
}

/// The sums of the module's formula.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sum: f64,
    squares: f64,
    /// Number of differences above and below zero.
    ups: u32,
    downs: u32,
}

impl Sums {
    fn add(&mut self, difference: f64, bound: f64) {
        let clipped = difference.clamp(-bound, bound);
        self.sum += clipped;
        self.squares += clipped * clipped;
        self.ups += u32::from(difference > 0.0);
        self.downs += u32::from(difference < 0.0);
    }

    /// Logarithm of the evidence for a difference.
    fn evidence(self) -> f64 {
        let pairs = self.ups.max(self.downs);
        let bet = match pairs > 0 && self.ups.min(self.downs) == 0 {
            true => f64::from(pairs - 1) * 2f64.ln() + BET.ln(),
            false => f64::NEG_INFINITY,
        };
        log_of_sum(self.mixed() + (1.0 - BET).ln(), bet)
    }

    /// Logarithm of the evidence that the candidate is slower than supposed.
    fn futility(self) -> f64 {
        if self.sum >= 0.0 {
            return 0.0;
        }
        let bet = match self.ups {
            0 => f64::from(self.downs) * 2f64.ln() + FUTILE.ln(),
            _ => f64::NEG_INFINITY,
        };
        log_of_sum(self.mixed() + (1.0 - FUTILE).ln(), bet)
    }

    /// Logarithm of `E`.
    fn mixed(self) -> f64 {
        let part = |scale: f64| {
            let spread = self.squares + scale;
            0.5 * (scale / spread).ln() + self.sum * self.sum / (2.0 * spread)
        };
        let parts = SCALES.map(part);
        let most = parts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let rest: f64 = parts.iter().map(|one| (one - most).exp()).sum();
        most + (rest / SCALES.len() as f64).ln()
    }
}

/// Logarithm of a sum, from the logarithms of its parts.
fn log_of_sum(one: f64, other: f64) -> f64 {
    let (less, more) = (one.min(other), one.max(other));
    more + (less - more).exp().ln_1p()
}

/// A trial in progress; see the module.
///
/// ```
/// use uruk_tiering::tuning::{Arm, Rules, Slice, Trial, Verdict};
///
/// let mut trial = Trial::new(Rules::default(), 1);
/// let slice = |arm| match arm {
///     Arm::Incumbent => Slice { time: 4e6, work: 1000.0 },
///     Arm::Candidate => Slice { time: 4e6, work: 1100.0 },
/// };
/// let verdict = loop {
///     let [first, second] = trial.order();
///     if let Some(verdict) = trial.pair([(first, slice(first)), (second, slice(second))]) {
///         break verdict;
///     }
/// };
/// assert_eq!(verdict, Verdict::Faster);
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    rules: Rules,
    random: u64,
    pairs: Vec<Pair>,
    /// Sizes of the pairs, sorted.
    sizes: Vec<f64>,
    sums: Sums,
    ended: Option<Verdict>,
}

impl Trial {
    /// A trial whose orders are drawn from `seed`.
    pub fn new(rules: Rules, seed: u64) -> Trial {
        Trial {
            rules: Rules {
                error: rules.error.clamp(1e-9, 0.5),
                missed: rules.missed.clamp(1e-9, 0.5),
                ..rules
            },
            random: seed,
            pairs: Vec::new(),
            sizes: Vec::new(),
            sums: Sums::default(),
            ended: None,
        }
    }

    /// Draws the order of the next two slices.
    pub fn order(&mut self) -> [Arm; 2] {
        match draw(&mut self.random) >> 63 {
            0 => [Arm::Incumbent, Arm::Candidate],
            _ => [Arm::Candidate, Arm::Incumbent],
        }
    }

    /// Takes a pair of slices, in any order; returns the verdict, if the pair ends the trial. A
    /// pair in which one version did no work does not count.
    pub fn pair(&mut self, slices: [(Arm, Slice); 2]) -> Option<Verdict> {
        if self.ended.is_some() {
            return self.ended;
        }
        let cost = |arm| {
            let mut found = slices.iter().filter(|(of, _)| *of == arm);
            found.next().and_then(|(_, slice)| slice.cost())
        };
        let (before, after) = (cost(Arm::Incumbent)?, cost(Arm::Candidate)?);
        let difference = (before - after).clamp(-MOST, MOST);
        let bound = match self.sizes.len() {
            known if known >= CLIP_AFTER => CLIP * self.sizes[known / 2],
            _ => MOST,
        };
        self.sums.add(difference, bound);
        self.pairs.push(Pair { difference, bound });
        let size = difference.abs();
        let at = self.sizes.partition_point(|&other| other < size);
        self.sizes.insert(at, size);
        self.ended = self.verdict();
        self.ended
    }

    fn verdict(&self) -> Option<Verdict> {
        if self.sums.evidence() >= self.threshold() {
            return Some(match self.sums.sum > 0.0 {
                true => Verdict::Faster,
                false => Verdict::Slower,
            });
        }
        let left = self.supposed(self.rules.margin.ln_1p());
        if left.futility() >= -self.rules.missed.ln() {
            return Some(Verdict::Same);
        }
        (self.pairs.len() >= self.rules.pairs as usize).then_some(Verdict::Undecided)
    }

    /// Number of pairs that counted so far.
    pub fn pairs(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// The median size of the differences of pairs, as a logarithm: that of the noise, if the
    /// versions are about equal.
    pub fn median(&self) -> f64 {
        self.sizes.get(self.sizes.len() / 2).copied().unwrap_or(0.0)
    }

    /// The verdict, if the trial has ended.
    pub fn ended(&self) -> Option<Verdict> {
        self.ended
    }

    /// Speed of the candidate relative to the incumbent. Without pairs any ratio is possible.
    /// Ratios outside are refuted at [`Rules::error`]; higher ones, if it ended as
    /// [`Verdict::Same`], at [`Rules::missed`].
    pub fn interval(&self) -> Interval {
        let (mut low, mut high) = (-MOST, MOST);
        // The sum falls as the supposed difference rises.
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            match self.supposed(middle).sum > 0.0 {
                true => low = middle,
                false => high = middle,
            }
        }
        let point = 0.5 * (low + high);
        Interval {
            low: self.end(point, -MOST).exp(),
            point: match self.pairs.is_empty() {
                true => 1.0,
                false => point.exp(),
            },
            high: self.end(point, MOST).exp(),
        }
    }

    /// The difference towards `far` at which refutation begins. The search starts near the point:
    /// farther away the first pairs, which are not clipped, outweigh all others, and no difference
    /// is refuted.
    fn end(&self, point: f64, far: f64) -> f64 {
        let (mut held, mut refuted) = (point, far);
        let mut step = NEAREST;
        while step < (far - point).abs() {
            let at = point + step.copysign(far - point);
            if self.refutes(at, far) {
                refuted = at;
                break;
            }
            held = at;
            step *= 1.5;
        }
        for _ in 0..40 {
            let middle = 0.5 * (held + refuted);
            match self.refutes(middle, far) {
                false => held = middle,
                true => refuted = middle,
            }
        }
        held
    }

    /// The sums if the difference were `shift`.
    fn supposed(&self, shift: f64) -> Sums {
        let mut sums = Sums::default();
        for pair in &self.pairs {
            sums.add(pair.difference - shift, pair.bound);
        }
        sums
    }

    /// Whether a difference is refuted, on the side of `far`.
    fn refutes(&self, difference: f64, far: f64) -> bool {
        let left = self.supposed(difference);
        match self.ended {
            Some(Verdict::Same) if far > 0.0 => left.futility() >= -self.rules.missed.ln(),
            _ => left.evidence() >= self.threshold(),
        }
    }

    fn threshold(&self) -> f64 {
        -self.rules.error.ln()
    }
}

/// The next number of a sequence (splitmix64).
pub(super) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
