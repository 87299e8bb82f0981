//! Choice of the flavors and modes in which a case runs.
//!
//! A case runs once in each of its flavors and once in each of its modes, in as few trials as that takes,
//! and over all cases each flavor meets each mode: faults that need one factor, or two of them, are found
//! in about a third of the full matrix. `cargo xtask test --full` runs all of it ([`FULL`]).

use std::collections::HashSet;
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
                let new_mode = !has(&|it| it.1 == mode);
                usize::from(new_flavor) + usize::from(new_mode)
            };
            let is_new = |pair: &Pair| !self.seen.contains(&named(*pair));
            let rank = |&(_, pair): &(usize, &Pair)| {
                // A mode that few flavors offer is taken with one of these.
                let flavors = offered.iter().filter(|it| it.1 == pair.1).count();
                (
                    2 * gain(pair) + usize::from(is_new(pair)),
                    usize::MAX - flavors,
                )
            };
            let open = offered.iter().enumerate();
            let open = open.filter(|(_, pair)| gain(pair) > 0 || is_new(pair));
            // The first of those that rank highest.
            let Some((best, _)) = open.rev().max_by_key(rank) else {
                break;
            };
            chosen.push(best);
            self.seen.insert(named(offered[best]));
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|at| offered[at]).collect()
    }
}

fn named((flavor, mode): Pair) -> (String, &'static str) {
    (flavor.to_string(), mode.name())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Pair, Pairs, named};
    use crate::case::Case;
    use crate::gate;

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
                assert!(chosen.iter().any(|it| it.1 == pair.1), "{pair:?}");
            }
            all += own.len();
            few += chosen.len();
            offered.extend(own.into_iter().map(named));
            run.extend(chosen.into_iter().map(named));
        }
        assert_eq!(offered, run);
        assert!(2 * few < all, "{few} of {all}");
    }
}
