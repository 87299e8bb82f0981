//! Trials under noise of many kinds.

use super::*;
use crate::tuning::noise::{Kind, Noise};

/// Trials of a version that is `gain` times as fast: verdicts, and the pairs of each.
fn trials(kind: Kind, spread: f64, gain: f64, count: u64) -> Vec<(Verdict, u32, Interval)> {
    trials_by(Rules::default(), kind, spread, gain, count)
}

fn trials_by(
    rules: Rules,
    kind: Kind,
    spread: f64,
    gain: f64,
    count: u64,
) -> Vec<(Verdict, u32, Interval)> {
    let one = |seed| {
        let mut noise = Noise::new(kind, spread, seed);
        let mut trial = Trial::new(rules, seed ^ 0x5eed);
        loop {
            let order = trial.order();
            let pair = order.map(|arm| {
                let work = 1000.0 * if arm == Arm::Candidate { gain } else { 1.0 };
                let time = 4e6 * noise.next();
                (arm, Slice { time, work })
            });
            if let Some(verdict) = trial.pair(pair) {
                return (verdict, trial.pairs(), trial.interval());
            }
        }
    };
    (0..count).map(one).collect()
}

/// Equal versions are told apart in fewer than 5 of 100 trials, under noise of all kinds.
#[test]
fn of_equal_versions_neither_is_picked() {
    for kind in Kind::ALL {
        let ends = trials(kind, 0.04, 1.0, 300);
        let picked = ends
            .iter()
            .filter(|(verdict, ..)| matches!(verdict, Verdict::Faster | Verdict::Slower));
        let picked = picked.count();
        assert!(picked <= 15, "{kind:?}: {picked} of 300");
    }
}

/// The power that the module names.
#[test]
fn three_percent_are_found() {
    for (spread, slices) in [(0.03 / 2f64.sqrt(), 90), (0.06 / 2f64.sqrt(), 250)] {
        for gain in [1.03, 1.0 / 1.03] {
            let ends = trials(Kind::White, spread, gain, 200);
            let right = match gain > 1.0 {
                true => Verdict::Faster,
                false => Verdict::Slower,
            };
            let sure = |&&(verdict, pairs, _): &&(Verdict, u32, Interval)| {
                // A gain below the margin is also a right verdict here.
                let found = verdict == right || (gain < 1.0 && verdict == Verdict::Same);
                found && pairs * 2 <= slices
            };
            let found = ends.iter().filter(sure).count();
            assert!(found >= 190, "{gain} at {spread}: {found} of 200");
        }
    }
}

/// A gain of the margin is missed in one of ten trials at most. Of equal versions it is soon known
/// that they do not differ by a large gain.
#[test]
fn a_gain_of_the_margin_is_seldom_missed() {
    let coarse = Rules {
        margin: 0.04,
        ..Rules::default()
    };
    for kind in Kind::ALL {
        let ends = trials_by(coarse, kind, 0.03, 1.04, 300);
        let missed = ends
            .iter()
            .filter(|(verdict, ..)| *verdict == Verdict::Same)
            .count();
        assert!(missed <= 30, "{kind:?}: {missed} of 300");
    }
    let mut pairs = trials_by(coarse, Kind::White, 0.02, 1.0, 200)
        .iter()
        .map(|&(_, pairs, _)| pairs)
        .collect::<Vec<_>>();
    pairs.sort_unstable();
    assert!(pairs[100] <= 8, "{} pairs", pairs[100]);
}

/// Without other differences a few pairs are enough, for any difference.
#[test]
fn without_noise_few_pairs_are_enough() {
    for gain in [1.5, 1.1, 1.011, 1.0 / 1.1] {
        let ends = trials(Kind::White, 1e-4, gain, 50);
        // A gain below the margin is a right verdict, too.
        let right = match gain > 1.0 {
            true => Verdict::Faster,
            false => Verdict::Same,
        };
        let most = if gain > 1.0 { 10 } else { 5 };
        let quick =
            |&&(verdict, pairs, _): &&(Verdict, u32, Interval)| verdict == right && pairs <= most;
        assert_eq!(ends.iter().filter(quick).count(), 50, "{gain}");
    }
}

/// The interval of the ratio holds, also when the trial ends as soon as it may.
#[test]
fn intervals_hold() {
    for kind in Kind::ALL {
        let ends = trials(kind, 0.05, 1.08, 200);
        let holds = |(_, _, it): &&(Verdict, u32, Interval)| it.low <= 1.08 && 1.08 <= it.high;
        let held = ends.iter().filter(holds).count();
        assert!(held >= 190, "{kind:?}: {held} of 200");
        let wrong = ends
            .iter()
            .filter(|(verdict, ..)| *verdict == Verdict::Slower);
        assert!(wrong.count() <= 5, "{kind:?}");
    }
}

/// Recorded slices of a running session, equal versions: lines of time and work.
#[test]
fn of_equal_versions_neither_is_picked_in_recorded_noise() {
    let text = include_str!("../recorded.txt");
    let slices: Vec<Slice> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (time, work) = line.split_once(' ')?;
            let (time, work) = (time.parse().ok()?, work.parse().ok()?);
            Some(Slice { time, work })
        })
        .collect();
    assert!(slices.len() >= 1000, "{} slices", slices.len());
    let mut picked = 0;
    for seed in 0..300 {
        let mut trial = Trial::new(Rules::default(), seed);
        let mut at = seed as usize * 97 % slices.len();
        let ended = loop {
            let order = trial.order();
            let pair = order.map(|arm| {
                at = (at + 1) % slices.len();
                (arm, slices[at])
            });
            if let Some(verdict) = trial.pair(pair) {
                break verdict;
            }
        };
        picked += u32::from(matches!(ended, Verdict::Faster | Verdict::Slower));
    }
    assert!(picked <= 15, "{picked} of 300");
}

/// Pairs from before there was a bound to clip them do not make all ratios possible again.
#[test]
fn an_early_outlier_leaves_an_interval() {
    let mut trial = Trial::new(Rules::default(), 3);
    let mut noise = Noise::new(Kind::White, 0.01, 11);
    while trial.pairs() < 200 && trial.ended().is_none() {
        let stalled = if trial.pairs() == 2 { 8.0 } else { 1.0 };
        let before = 4e6 * noise.next() * stalled;
        let slice = |arm, time| (arm, Slice { time, work: 1e3 });
        let after = slice(Arm::Candidate, 4e6 * noise.next());
        trial.pair([slice(Arm::Incumbent, before), after]);
    }
    let found = trial.interval();
    assert!(found.low > 0.9 && found.high < 1.1, "{found}");
}

#[test]
fn pairs_without_work_do_not_count() {
    let mut trial = Trial::new(Rules::default(), 7);
    let slice = |of| Slice { time: of, work: of };
    let (idle, busy) = (slice(0.0), slice(1.0));
    let pairs = [
        [(Arm::Incumbent, idle), (Arm::Candidate, busy)],
        [(Arm::Candidate, idle), (Arm::Incumbent, idle)],
        [(Arm::Incumbent, busy), (Arm::Incumbent, busy)],
    ];
    for pair in pairs {
        assert_eq!(trial.pair(pair), None);
    }
    let all = trial.interval();
    assert_eq!((trial.pairs(), all.point), (0, 1.0));
    assert!(all.low < 0.01 && all.high > 100.0, "{all}");
}
