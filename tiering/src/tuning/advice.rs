//! Chooses the next change to try on a function: a bandit over the changes of a variant, that
//! learns from their results on functions of the same shape.
//!
//! The value of a change is the gain of having it tried: its logarithm where it won, else 0. Each
//! estimate is a mean shrunk towards a broader one, with [`TRUST`] observations' weight: the
//! shape's towards that of all functions, and that towards a prior (the order of [`Change::ALL`],
//! from [`FIRST`] down). Compared are draws about the estimates (Thompson's rule), as wide as the
//! number of observations leaves them. So a change that failed twice gets a third chance, and one
//! that failed on all functions of a shape none. Nothing is proposed whose draw is below [`LEAST`].

use std::collections::BTreeMap;

use uruk_base::{Change, Variant};

use super::trial::draw;
use crate::policy::Facts;

/// Weight of a broader estimate, in observations.
const TRUST: f64 = 2.0;

/// The prior of the first change; the last has a fifth of it.
const FIRST: f64 = 0.02;

/// Deviation of a draw without observations.
const WIDTH: f64 = 0.01;

/// Expected gain below which a trial is not worthwhile.
const LEAST: f64 = 0.001;

/// Properties by which functions count as alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// 0, 1, or 2 for more loops.
    pub loops: u8,
    /// Whether a loop lies in another.
    pub nested: bool,
    /// 0, 1, or 2 for more calls.
    pub calls: u8,
    /// Instructions: 0 for up to 16, one more for each factor of four.
    pub size: u8,
}

impl Shape {
    /// The shape of a function.
    pub fn of(facts: &Facts) -> Shape {
        let bits = 32 - (facts.instructions / 16).leading_zeros();
        Shape {
            loops: facts.loops.min(2) as u8,
            nested: facts.nested,
            calls: facts.calls.min(2) as u8,
            size: bits.div_ceil(2).min(6) as u8,
        }
    }
}

/// The results of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lesson {
    /// Number of trials.
    pub count: f64,
    /// Sum of the logarithms of gains, of the trials that won.
    pub gains: f64,
}

impl Lesson {
    fn mean(self, broader: f64) -> f64 {
        (self.gains + TRUST * broader) / (self.count + TRUST)
    }

    fn add(&mut self, other: Lesson) {
        self.count += other.count;
        self.gains += other.gains;
    }
}

/// The results on all functions so far.
///
/// ```
/// use uruk_base::{Change, Variant};
/// use uruk_tiering::{Facts, tuning::{Advice, Shape}};
///
/// let mut advice = Advice::new(1);
/// let shape = Shape::of(&Facts { instructions: 100, loops: 1, ..Facts::default() });
/// for _ in 0..20 {
///     advice.learn(shape, Change::Slp, 1.3);
/// }
/// let next = advice.next(shape, Variant::default(), &[], |_| true);
/// let (change, _) = next.expect("there are many");
/// assert_eq!(change, Change::Slp);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Advice {
    lessons: BTreeMap<(Shape, Change), Lesson>,
    all: BTreeMap<Change, Lesson>,
    random: u64,
}

impl Advice {
    /// An instance without results; draws come from `seed`.
    pub fn new(seed: u64) -> Advice {
        Advice {
            random: seed,
            ..Advice::default()
        }
    }

    /// The next change to try on a function of `shape` that runs as `current`, and the variant that
    /// results: none of `tried`, and only an `allowed` one.
    pub fn next(
        &mut self,
        shape: Shape,
        current: Variant,
        tried: &[Variant],
        allowed: impl Fn(Change) -> bool,
    ) -> Option<(Change, Variant)> {
        let mut best: Option<(f64, Change, Variant)> = None;
        for (place, change) in Change::ALL.into_iter().enumerate() {
            let variant = current.with(change);
            if variant == current || tried.contains(&variant) || !allowed(change) {
                continue;
            }
            let drawn = self.draw(shape, change, place);
            if drawn >= LEAST && best.is_none_or(|(most, ..)| drawn > most) {
                best = Some((drawn, change, variant));
            }
        }
        best.map(|(_, change, variant)| (change, variant))
    }

    fn draw(&mut self, shape: Shape, change: Change, place: usize) -> f64 {
        let prior = FIRST * (1.0 - 0.8 * place as f64 / Change::ALL.len() as f64);
        let lesson = |found: Option<&Lesson>| found.copied().unwrap_or_default();
        let all = lesson(self.all.get(&change)).mean(prior);
        let own = lesson(self.lessons.get(&(shape, change)));
        let mean = own.mean(all);
        // The sum of four uniform draws is close enough to normal.
        let uniform = |random: &mut u64| (draw(random) >> 11) as f64 / (1u64 << 53) as f64;
        let normal = (0..4).map(|_| uniform(&mut self.random)).sum::<f64>() * 1.732 - 3.464;
        // The less a change can gain, the narrower its draws.
        let width = WIDTH.min(0.3 * mean) / (own.count + 1.0).sqrt();
        mean + width * normal
    }

    /// Records that a trial of `change` on a function of `shape` found this ratio; 1 if it did not
    /// win.
    pub fn learn(&mut self, shape: Shape, change: Change, ratio: f64) {
        let gains = ratio.max(1.0).ln();
        if gains.is_finite() {
            let lesson = Lesson { count: 1.0, gains };
            self.add(shape, change, lesson);
        }
    }

    /// Adds the results of another run.
    pub fn add(&mut self, shape: Shape, change: Change, lesson: Lesson) {
        self.lessons.entry((shape, change)).or_default().add(lesson);
        self.all.entry(change).or_default().add(lesson);
    }

    /// All results.
    pub fn lessons(&self) -> impl Iterator<Item = (Shape, Change, Lesson)> + '_ {
        let all = self.lessons.iter();
        all.map(|(&(shape, change), &lesson)| (shape, change, lesson))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn no_contraction(change: Change) -> bool {
        change != Change::Contract
    }

    fn shape(loops: u32) -> Shape {
        Shape::of(&Facts {
            instructions: 50,
            loops,
            ..Facts::default()
        })
    }

    /// All changes are proposed once, then none; those that failed everywhere are not proposed
    /// again.
    #[test]
    fn every_change_gets_its_turn() {
        let mut advice = Advice::new(5);
        let current = Variant::default();
        let mut tried = vec![current];
        while let Some((change, variant)) = advice.next(shape(1), current, &tried, no_contraction) {
            assert_ne!(change, Change::Contract);
            assert!(!tried.contains(&variant));
            tried.push(variant);
        }
        // Three of the changes lead to the default, one is forbidden.
        assert_eq!(tried.len(), Change::ALL.len() - 3);
        for change in Change::ALL {
            (0..60).for_each(|_| advice.learn(shape(1), change, 0.9));
        }
        assert_eq!(advice.next(shape(1), current, &[current], |_| true), None);
    }

    /// Over many functions, the changes that help a shape are found, and tried first there and not
    /// elsewhere.
    #[test]
    fn a_shape_is_learned() {
        let mut advice = Advice::new(9);
        let truth = |shape: Shape, change| match (shape.loops, change) {
            (1, Change::Unroll) => 1.2,
            (2, Change::Thorough) => 1.3,
            _ => 1.0,
        };
        let mut first = 0;
        for function in 0..60 {
            let shape = shape(1 + function % 2);
            let mut tried = vec![Variant::default()];
            for turn in 0..3 {
                let next = advice.next(shape, Variant::default(), &tried, no_contraction);
                let Some((change, variant)) = next else { break };
                tried.push(variant);
                let ratio = truth(shape, change);
                advice.learn(shape, change, ratio);
                first += u32::from(function >= 30 && turn == 0 && ratio > 1.0);
            }
        }
        assert!(first >= 24, "first choice in {first} of the last 30");
    }

    #[test]
    fn shapes_differ_by_size() {
        let of = |instructions| {
            let facts = Facts {
                instructions,
                ..Facts::default()
            };
            Shape::of(&facts).size
        };
        assert_eq!(
            [0, 15, 16, 63, 64, 300, u32::MAX].map(of),
            [0, 0, 1, 1, 2, 3, 6]
        );
    }
}
