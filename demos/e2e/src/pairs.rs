//! Choice of the flavors and modes in which a case runs.
//!
//! A case runs once in each of its flavors and once in each of its modes, in as few trials as that takes,
//! and over all cases each flavor meets each mode: faults that need one factor, or two of them, are found
//! in about a third of the full matrix. Of the two modes that compile all functions by LLVM again and
//! again, a case runs in one, by turns: they take half of the time of all. `cargo xtask test --full`
//! runs the full matrix ([`FULL`]).

use std::collections::{HashMap, HashSet};
use std::env;

use uruk_guests::Flavor;

use crate::subject::Mode;

/// Environment variable that asks for the full matrix, unless it is empty.
pub const FULL: &str = "URUK_TEST_FULL";

/// One combination.
pub type Pair = (Flavor, Mode);

/// The pairs that earlier cases ran in.
#[derive(Debug, Default)]
pub struct Pairs {
    seen: HashSet<(String, &'static str)>,
    /// Trials so far, by mode.
    trials: HashMap<&'static str, usize>,
}

impl Pairs {
    /// Pairs of `offered` in which the next case runs, in the order of `offered`; all of them if [`FULL`]
    /// is set.
    pub fn choose(&mut self, offered: &[Pair]) -> Vec<Pair> {
        if env::var_os(FULL).is_some_and(|value| !value.is_empty()) {
            return offered.to_vec();
        }
        self.pick(offered)
    }

    fn pick(&mut self, offered: &[Pair]) -> Vec<Pair> {
        let mut chosen: Vec<usize> = Vec::new();
        loop {
            let gain = |&(flavor, mode): &Pair| {
                let has =
                    |test: &dyn Fn(&Pair) -> bool| chosen.iter().any(|&at| test(&offered[at]));
                let new_flavor = !has(&|it| it.0 == flavor);
                let new_mode = !has(&|it| stands_for(it.1) == stands_for(mode));
                usize::from(new_flavor) + usize::from(new_mode)
            };
            let is_new = |pair: &Pair| !self.seen.contains(&named(*pair));
            let rank = |&(_, pair): &(usize, &Pair)| {
                // A mode that few flavors offer is taken with one of these.
                let flavors = offered.iter().filter(|it| it.1 == pair.1).count();
                let trials = self.trials.get(pair.1.name()).copied().unwrap_or(0);
                (
                    2 * gain(pair) + usize::from(is_new(pair)),
                    usize::MAX - flavors,
                    // Modes that stand for each other take turns.
                    usize::MAX - trials * usize::from(is_one_of_two(pair.1)),
                )
            };
            let open = offered.iter().enumerate();
            let open = open.filter(|(_, pair)| gain(pair) > 0 || is_new(pair));
            // The first of those that rank highest.
            let Some((best, _)) = open.rev().max_by_key(rank) else {
                break;
            };
            chosen.push(best);
            *self.trials.entry(offered[best].1.name()).or_default() += 1;
            self.seen.insert(named(offered[best]));
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|at| offered[at]).collect()
    }
}

/// Whether a case may run in another mode instead.
fn is_one_of_two(mode: Mode) -> bool {
    Mode::CHANGING.contains(&mode)
}

/// The mode of which a case needs one trial, in place of `mode`.
fn stands_for(mode: Mode) -> Mode {
    match is_one_of_two(mode) {
        true => Mode::CHANGING[0],
        false => mode,
    }
}

fn named((flavor, mode): Pair) -> (String, &'static str) {
    (flavor.to_string(), mode.name())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Pair, Pairs, named, stands_for};
    use crate::case::Case;
    use crate::gate;
    use crate::subject::Mode;

    #[test]
    fn each_case_meets_its_flavors_and_modes_and_all_pairs_are_met() {
        let cases = Case::all(&gate::cases_folder()).expect("cases");
        let mut pairs = Pairs::default();
        let (mut offered, mut run) = (HashSet::new(), HashSet::new());
        let (mut all, mut few) = (0, 0);
        for case in cases {
            let own: Vec<Pair> = case.pairs();
            let chosen = pairs.pick(&own);
            for pair in &own {
                assert!(chosen.iter().any(|it| it.0 == pair.0), "{pair:?}");
                let mode = stands_for(pair.1);
                assert!(chosen.iter().any(|it| stands_for(it.1) == mode), "{pair:?}");
            }
            all += own.len();
            few += chosen.len();
            offered.extend(own.into_iter().map(named));
            run.extend(chosen.into_iter().map(named));
        }
        assert_eq!(offered, run);
        let [tiered, moving] = Mode::CHANGING.map(|mode| pairs.trials[mode.name()]);
        assert!(tiered.abs_diff(moving) < all / 20, "{tiered} and {moving}");
        assert!(2 * few < all, "{few} of {all}");
    }
}
