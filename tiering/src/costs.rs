//! The expected time of a compile: a line per tier, learned from the compiles that end.
//!
//! ```text
//! cost = base + instruction * instructions + part * parts
//! parts = min(calls, 2) + min(loops, 1)
//! ```
//!
//! `instructions`, `calls` and `loops` are of the function itself. A call brings inline
//! candidates along and a loop the passes for loops: of functions of sqlite and Lua of the
//! same size, those without either take a fifth of the time of the others. More calls do
//! not cost more than two, because the code inlined along is bounded.
//!
//! # Learning
//! Each compile that ends well says `took = base + instruction * n + part * p`. Observations are
//! weighted by the expected time, so that errors count relative to the cost (`SPREAD`, their
//! standard deviation). The settings are a prior whose coefficients are known up to `UNCERTAIN`
//! times themselves. The best estimate `x` then solves
//!
//! ```text
//! (P + D) x = P x0 + d      P = diag(1 / (UNCERTAIN_i x0_i)^2)
//! D = sum w f f^T           f = (1, n, p)
//! d = sum w f took          w = 1 / (SPREAD * prior(f))^2
//! ```
//!
//! (ridge regression towards the prior; Bayesian linear regression with known noise). `D`
//! and `d` are multiplied by `1 - 1 / LONGEST` with each observation: old ones are
//! forgotten, the prior is not. The prior is less sure of `base` than of `instruction`:
//! compiles of small functions, which come first, cannot tell one from the other. If they take
//! longer than expected, the estimate for a large function must not rise in proportion.

use crate::config::Config;
use crate::ids::{Nanos, Tier};
use crate::learn::Estimate;
use crate::policy::Facts;

/// Observations remembered.
const LONGEST: f64 = 64.0;
/// Standard deviation of a compile's time, as a part of the expected time. Measured: 0.4.
const SPREAD: f64 = 0.4;
/// Standard deviation of each coefficient of the prior, as a part of it.
const UNCERTAIN: Row = [2.0, 0.5, 1.0];
/// A learned coefficient is at most this many times the prior, and at least the prior over it.
const OUTLIER: f64 = 16.0;
/// An observation counts as at most this many times what was expected before it, and at least as that
/// over it: one compile that a busy machine held up must not delay all others for a second. Times
/// that are longer indeed are learned in a few observations.
const STEP: f64 = 3.0;
/// Calls of a function that make its compile longer.
const CALLS: u32 = 2;
/// Loops of a function that make its compile longer.
const LOOPS: u32 = 1;

/// Base, instructions, parts.
type Row = [f64; 3];

fn features(facts: &Facts) -> Row {
    let parts = facts.calls.min(CALLS) + facts.loops.min(LOOPS);
    [1.0, f64::from(facts.instructions), f64::from(parts)]
}

fn dot(a: &Row, b: &Row) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The line of one tier.
#[derive(Clone, Debug)]
struct CostLine {
    prior: Row,
    learned: Row,
    information: [Row; 3],
    seen: Row,
    observed: u64,
}

impl CostLine {
    fn new(prior: [Nanos; 3]) -> CostLine {
        let prior = prior.map(|time| time.as_f64());
        CostLine {
            prior,
            learned: prior,
            information: [[0.0; 3]; 3],
            seen: [0.0; 3],
            observed: 0,
        }
    }

    fn learn(&mut self, facts: &Facts, took: f64) {
        let row = features(facts);
        let expected = dot(&self.prior, &row).max(1.0);
        let thought = dot(&self.learned, &row).max(1.0);
        let took = took.clamp(thought / STEP, thought * STEP);
        let weight = (SPREAD * expected).powi(-2);
        let keep = 1.0 - 1.0 / LONGEST;
        for (line, a) in self.information.iter_mut().zip(row) {
            for (cell, b) in line.iter_mut().zip(row) {
                *cell = *cell * keep + weight * a * b;
            }
        }
        for (cell, a) in self.seen.iter_mut().zip(row) {
            *cell = *cell * keep + weight * a * took;
        }
        self.observed += 1;
        let (mut matrix, mut right) = (self.information, self.seen);
        for (index, prior) in self.prior.into_iter().enumerate() {
            // A coefficient of zero means that the tier has no such cost.
            let known = (UNCERTAIN[index] * prior.max(1.0)).powi(-2);
            matrix[index][index] += known;
            right[index] += known * prior;
        }
        for (index, solved) in solve(matrix, right).into_iter().enumerate() {
            let prior = self.prior[index];
            self.learned[index] = solved.clamp(prior / OUTLIER, prior * OUTLIER);
        }
    }
}

/// Solves a positive definite system by elimination.
fn solve(mut matrix: [Row; 3], mut right: Row) -> Row {
    for pivot in 0..3 {
        let row = matrix[pivot];
        for below in pivot + 1..3 {
            let factor = matrix[below][pivot] / row[pivot];
            for (cell, above) in matrix[below].iter_mut().zip(row) {
                *cell -= factor * above;
            }
            right[below] -= factor * right[pivot];
        }
    }
    let mut solved = [0.0; 3];
    for index in (0..3).rev() {
        let known = dot(&matrix[index], &solved);
        solved[index] = (right[index] - known) / matrix[index][index];
    }
    solved
}

/// Expected compile times, by tier.
#[derive(Debug)]
pub(crate) struct Costs([CostLine; 3]);

impl Costs {
    pub(crate) fn new(config: &Config) -> Costs {
        let (base, each, part) = (
            [
                config.cost_baseline,
                config.cost_optimized,
                config.cost_guided,
            ],
            [
                config.instruction_baseline,
                config.instruction_optimized,
                config.instruction_guided,
            ],
            [Nanos::ZERO, config.part_optimized, config.part_guided],
        );
        Costs(Tier::ALL.map(|tier| {
            let index = tier.index();
            CostLine::new([base[index], each[index], part[index]])
        }))
    }

    /// Expected compile time in ns.
    pub(crate) fn expect(&self, tier: Tier, facts: &Facts) -> f64 {
        dot(&self.0[tier.index()].learned, &features(facts))
    }

    /// Learns the time of a compile; zero means that it was no compile of ours, and is ignored.
    pub(crate) fn learn(&mut self, tier: Tier, facts: &Facts, took: Nanos) {
        if took > Nanos::ZERO {
            self.0[tier.index()].learn(facts, took.as_f64());
        }
    }

    /// The expected time of a function of typical size, over that of the prior.
    pub(crate) fn factor(&self, tier: Tier) -> Estimate {
        let typical = Facts {
            instructions: 100,
            calls: 1,
            ..Facts::default()
        };
        let line = &self.0[tier.index()];
        let row = features(&typical);
        Estimate {
            value: dot(&line.learned, &row) / dot(&line.prior, &row),
            observed: line.observed,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn facts(instructions: u32, calls: u32, loops: u32) -> Facts {
        Facts {
            instructions,
            calls,
            loops,
            ..Facts::default()
        }
    }

    #[test]
    fn the_prior_is_the_settings() {
        let config = Config::default();
        let costs = Costs::new(&config);
        let [base, each, part] = [
            config.cost_optimized,
            config.instruction_optimized,
            config.part_optimized,
        ]
        .map(|time| time.as_f64());
        for (of, parts) in [((9, 0, 0), 0.0), ((9, 1, 0), 1.0), ((9, 7, 5), 3.0)] {
            let expected = base + 9.0 * each + parts * part;
            let got = costs.expect(Tier::Optimized, &facts(of.0, of.1, of.2));
            assert!((got - expected).abs() < 1e-3, "{of:?}: {got}");
        }
    }

    /// All three coefficients are found from compiles of all sorts, for any prior.
    #[test]
    fn a_line_is_found_from_points_on_it() {
        let mut costs = Costs::new(&Config::default());
        let truth = |facts: &Facts| dot(&[3e6, 20e3, 5e6], &features(facts));
        for round in 0..200u32 {
            // As many small functions as large ones.
            let size = 10 << (round % 7);
            let of = facts(size + round, round % 4, round / 3 % 2);
            let took = Nanos::from_f64(truth(&of));
            costs.learn(Tier::Optimized, &of, took);
        }
        // The prior expects 0.41, 2.4 and 0.8 times their time.
        for of in [facts(10, 0, 0), facts(9000, 50, 7), facts(100, 1, 0)] {
            let ratio = costs.expect(Tier::Optimized, &of) / truth(&of);
            assert!((0.7..1.25).contains(&ratio), "{of:?}: {ratio}");
        }
        // Another tier learned nothing.
        assert_eq!(costs.factor(Tier::Guided).value, 1.0);
        assert_eq!(costs.factor(Tier::Optimized).observed, 200);
    }

    /// Small functions that take five times the expected time change little for large ones.
    #[test]
    fn small_functions_do_not_make_large_ones_dear() {
        let mut costs = Costs::new(&Config::default());
        let large = facts(9000, 100, 5);
        let before = costs.expect(Tier::Optimized, &large);
        let small = facts(20, 0, 0);
        let thought = costs.expect(Tier::Optimized, &small);
        for _ in 0..20 {
            costs.learn(Tier::Optimized, &small, Nanos::from_f64(5.0 * thought));
        }
        let ratio = costs.expect(Tier::Optimized, &small) / thought;
        assert!((4.0..5.5).contains(&ratio), "{ratio}");
        let ratio = costs.expect(Tier::Optimized, &large) / before;
        assert!((0.9..2.0).contains(&ratio), "{ratio}");
    }

    /// One compile that a busy machine held up changes the expectation by less than its excess.
    #[test]
    fn one_late_compile_is_not_the_rule() {
        let mut costs = Costs::new(&Config::default());
        let of = facts(40, 1, 1);
        let before = costs.expect(Tier::Optimized, &of);
        costs.learn(Tier::Optimized, &of, Nanos::from_f64(15.0 * before));
        let ratio = costs.expect(Tier::Optimized, &of) / before;
        assert!((1.5..3.1).contains(&ratio), "{ratio}");
        for _ in 0..5 {
            costs.learn(Tier::Optimized, &of, Nanos::from_f64(15.0 * before));
        }
        let ratio = costs.expect(Tier::Optimized, &of) / before;
        assert!((8.0..16.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn absurd_times_are_bounded_and_forgotten() {
        let mut costs = Costs::new(&Config::default());
        let of = facts(100, 2, 1);
        let before = costs.expect(Tier::Guided, &of);
        for took in [Nanos(u64::MAX), Nanos::ZERO] {
            costs.learn(Tier::Guided, &of, took);
            let now = costs.expect(Tier::Guided, &of);
            assert!(now.is_finite() && now > 0.0 && now < 16.1 * before, "{now}");
        }
        for _ in 0..400 {
            costs.learn(Tier::Guided, &of, Nanos::from_f64(2.0 * before));
        }
        let ratio = costs.expect(Tier::Guided, &of) / before;
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
        // With one coefficient at its bound the others still follow.
        for _ in 0..400 {
            costs.learn(Tier::Guided, &facts(0, 0, 0), Nanos(1));
        }
        assert!(costs.expect(Tier::Guided, &facts(0, 0, 0)) > 0.0);
    }

    #[test]
    fn what_others_compile_teaches_nothing() {
        let mut costs = Costs::new(&Config::default());
        let facts = Facts {
            instructions: 50,
            ..Facts::default()
        };
        let before = costs.expect(Tier::Optimized, &facts);
        costs.learn(Tier::Optimized, &facts, Nanos::ZERO);
        assert_eq!(costs.expect(Tier::Optimized, &facts), before);
        assert_eq!(costs.factor(Tier::Optimized).observed, 0);
    }
}
