//! The course of one comparison: the lengths of its slices, and when it ends.
//!
//! A slice begins right after the store to the slot. A call that is in the previous version counts
//! in the slice it began in and runs on in the next one. Slices of at least [`ENTRIES`] entries
//! limit that to a fraction, and as the order of a pair is random it favours neither. If a unit
//! takes longer than [`SLOW`], so many of them would take seconds, and slices begin and end where a
//! unit does: [`UNITS`] are as good then, and the unit in which the slot was stored belongs to no
//! slice. So a slice of an interpreter's loop that is entered every 50 ms takes 0.2 s, and not 0.8.
//! Slices are measured in the program's time. On a busy machine the program often did not run at
//! all in a slice of wall-clock time, and trials with such slices had no result.

use std::time::Duration;

use uruk_base::{Nanos, VersionId};

use super::candidate::{Root, TrialResult, TuningUnit, part};
use super::native;
use super::trial::{Arm, Rules, Slice, Trial, Verdict};

/// Minimal entries of the root in a slice.
const ENTRIES: u64 = 16;

/// Minimal and maximal length of a slice.
const SLICE: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(500));

/// Minimal time of the program per unit for slices that begin and end with units.
const SLOW: Nanos = Nanos::from_us(500);

/// Minimal units in such a slice, and its minimal length. One more unit is lost to each slice; and
/// a disturbance mostly affects neighbouring units, so that more of them add little.
const UNITS: u64 = 2;
const SLOW_SLICE: Duration = Duration::from_millis(16);

/// Pairs after which a trial is checked for noise, the median difference of pairs that counts as
/// noise, and the factor, maximal length and number of steps by which slices are then lengthened. A
/// program with phases of 20 ms, as SQLite in its bench, is cut at random by slices of 3 ms: 400
/// pairs left 20 % open.
const NOISY_AFTER: u32 = 16;
const NOISE: f64 = 0.08;
const LONGER: u32 = 4;
const LONGEST: Duration = Duration::from_millis(256);

/// Maximal time of a trial with slices of one length, if all of them contain work. For native code
/// as the candidate it is shorter: it should run soon if it is faster, and otherwise the better
/// estimate is used.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_NATIVE: Duration = Duration::from_secs(4);

/// Minimal pairs for a result.
const LEAST: u32 = 12;

/// Shares of the error rate: the first trial's, and each one's with longer slices; their sum is at
/// most 1. The rate of missed gains applies to each: a noisy program only misses more of the small
/// gains.
const ERRORS: (f64, f64) = (0.7, 0.1);

/// Minimal part of a slice that the program must have run: while others have the processors, a
/// slice takes longer.
const FULL: f64 = 0.5;

/// Pairs without work, after which a trial is abandoned.
const IDLE: u32 = 20;

/// Pairs between two checks of the account.
const CHECKED: u32 = 8;

/// The versions of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Arms {
    /// The function, whose version is the incumbent.
    pub root: Root,
    /// The version that may take its place.
    pub candidate: VersionId,
    /// Which of the two is native code.
    pub native: Option<Arm>,
}

/// The consequence of a pair of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another pair follows.
    Next,
    /// Another pair follows, if the account [endures](super::Account::endures) the time lost so far.
    IfEndured,
    /// The program did no work for long. No result is recorded: the candidate may be tried again.
    Idle,
    /// The trial ended.
    Ended(Verdict),
}

/// A comparison in progress.
#[derive(Debug)]
pub struct Turns {
    arms: Arms,
    rules: Rules,
    patience: Duration,
    slice: Duration,
    trial: Trial,
    idle: u32,
    /// Time of the program in the candidate.
    in_candidate: Nanos,
}

impl Turns {
    /// A comparison by `rules`, those of the root's [region](super::Region::rules); stricter or
    /// shorter where native code is the candidate.
    pub fn new(arms: Arms, rules: Rules) -> Turns {
        let (rules, patience) = match arms.native {
            Some(Arm::Candidate) => (native::rules(rules), PATIENCE_NATIVE),
            _ => (rules, PATIENCE),
        };
        let slice = slice(arms.root.per_unit);
        let seed = arms.candidate.0;
        Turns {
            arms,
            rules,
            patience,
            slice,
            trial: Trial::new(in_time(rules, ERRORS.0, slice, patience), seed),
            idle: 0,
            in_candidate: Nanos::ZERO,
        }
    }

    /// Draws the order of the next two slices.
    pub fn order(&mut self) -> [(Arm, VersionId); 2] {
        let Arms {
            root, candidate, ..
        } = self.arms;
        self.trial.order().map(|arm| match arm {
            Arm::Incumbent => (arm, root.version),
            Arm::Candidate => (arm, candidate),
        })
    }

    /// The length of the next slices.
    pub fn slice(&self) -> Duration {
        self.slice
    }

    /// Units of work in a slice, if slices begin and end where a unit does.
    pub fn units(&self) -> Option<u64> {
        let per_unit = self.arms.root.per_unit;
        let units = self.slice.as_nanos() as u64 / per_unit.0.max(1);
        (per_unit >= SLOW).then_some(units.max(1))
    }

    /// Maximal time to wait for such a slice.
    pub fn longest(&self) -> Duration {
        SLICE.1.max(self.slice * 2)
    }

    /// Whether another slice may end, `waited` after its begin, as the program ran for `time` in it
    /// with `work`.
    pub fn is_full(&self, waited: Duration, time: Nanos, work: u64) -> bool {
        let full = time >= part(self.slice, FULL) && work >= ENTRIES / 2;
        full || waited >= SLICE.1
    }

    /// The measurement of a version that ran for `time` of the program, with so much work.
    pub fn measured(&mut self, arm: Arm, time: Nanos, work: u64) -> Slice {
        if arm == Arm::Candidate {
            self.in_candidate.0 += time.0;
        }
        let (mut time, work) = (time.as_f64(), work as f64);
        let by_entries = self.arms.root.unit == TuningUnit::Entries;
        if self.arms.native == Some(arm) && by_entries {
            time = native::without_way(time, work);
        }
        Slice { time, work }
    }

    /// Takes a pair of slices.
    pub fn pair(&mut self, slices: [(Arm, Slice); 2]) -> Turn {
        let before = self.trial.pairs();
        if let Some(verdict) = self.trial.pair(slices) {
            return Turn::Ended(verdict);
        }
        let pairs = self.trial.pairs();
        let noisy = pairs == NOISY_AFTER && self.trial.median() > NOISE;
        if noisy && self.slice * LONGER <= LONGEST {
            self.lengthen();
            return Turn::Next;
        }
        self.idle = if pairs == before { self.idle + 1 } else { 0 };
        match () {
            () if self.idle >= IDLE => Turn::Idle,
            () if pairs > 0 && pairs.is_multiple_of(CHECKED) => Turn::IfEndured,
            () => Turn::Next,
        }
    }

    /// Starts again with longer slices: the earlier ones add little to the new ones.
    fn lengthen(&mut self) {
        self.slice *= LONGER;
        let rules = in_time(self.rules, ERRORS.1, self.slice, self.patience);
        let seed = self.arms.candidate.0;
        let seed = seed.wrapping_add(self.slice.as_millis() as u64);
        self.trial = Trial::new(rules, seed);
    }

    /// Time of the program that the candidate lost so far.
    pub fn lost(&self) -> Nanos {
        let ran = Duration::from_nanos(self.in_candidate.0);
        part(ran, 1.0 - self.trial.interval().point)
    }

    /// The result, with that verdict.
    pub fn ended(&self, verdict: Verdict) -> TrialResult {
        TrialResult {
            verdict,
            ratio: self.trial.interval(),
            pairs: self.trial.pairs(),
            lost: self.lost(),
        }
    }
}

/// The first length of slices for a root with that time per unit.
pub(super) fn slice(per_unit: Nanos) -> Duration {
    let units = |count| Duration::from_nanos(per_unit.0.saturating_mul(count));
    match per_unit >= SLOW {
        true => units(UNITS).max(SLOW_SLICE),
        false => units(ENTRIES).clamp(SLICE.0, SLICE.1),
    }
}

/// The rules of a trial with slices of that length, with a share of the error rate of `rules`.
fn in_time(rules: Rules, part: f64, slice: Duration, patience: Duration) -> Rules {
    let pairs = patience.as_nanos() / (slice * 2).as_nanos().max(1);
    let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
    Rules {
        pairs: rules.pairs.min(pairs.max(LEAST)),
        ..rules.with_part_of_error(part)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use uruk_base::{FunctionId, Tier};

    use super::*;

    fn turns(per_unit: Nanos, native: Option<Arm>) -> Turns {
        let root = Root {
            id: FunctionId(0),
            version: VersionId(1),
            tier: Tier::Optimized,
            per_unit,
            unit: TuningUnit::Entries,
            per_entry: per_unit,
        };
        let arms = Arms {
            root,
            candidate: VersionId(2),
            native,
        };
        Turns::new(arms, Rules::default())
    }

    /// Lets pairs run until the comparison ends, in versions of these times per unit; noise is added
    /// to every other pair.
    fn run(turns: &mut Turns, times: [u64; 2], noise: f64) -> (Turn, Duration) {
        let mut count = 0;
        loop {
            let slices = turns.order().map(|(arm, _)| {
                count += 1;
                let per_unit = match arm {
                    Arm::Incumbent => times[0],
                    Arm::Candidate => times[1],
                };
                let factor = if count % 4 == 0 { 1.0 + noise } else { 1.0 };
                let time = Nanos((100.0 * per_unit as f64 * factor) as u64);
                (arm, turns.measured(arm, time, 100))
            });
            match turns.pair(slices) {
                Turn::Next | Turn::IfEndured => {}
                ended => return (ended, turns.slice()),
            }
        }
    }

    #[test]
    fn the_faster_version_wins_and_a_slower_candidate_loses_time() {
        let mut faster = turns(Nanos::from_us(20), None);
        let (ended, slice) = run(&mut faster, [20_000, 10_000], 0.0);
        assert_eq!(ended, Turn::Ended(Verdict::Faster));
        assert_eq!((slice, faster.lost()), (SLICE.0, Nanos::ZERO));
        let mut slower = turns(Nanos::from_us(20), None);
        let (ended, _) = run(&mut slower, [10_000, 20_000], 0.0);
        assert!(matches!(
            ended,
            Turn::Ended(Verdict::Slower | Verdict::Same)
        ));
        // It took twice as long as needed for its work.
        let (lost, ran) = (slower.lost().as_f64(), slower.in_candidate.as_f64());
        assert!((lost / ran - 0.5).abs() < 0.01, "{lost} of {ran}");
    }

    #[test]
    fn slices_get_longer_where_pairs_differ_widely() {
        let mut noisy = turns(Nanos::from_us(20), None);
        let (_, slice) = run(&mut noisy, [10_000, 10_000], 3.0);
        assert!(slice > SLICE.0 && slice <= LONGEST, "{slice:?}");
    }

    #[test]
    fn a_program_without_work_ends_a_comparison_without_a_result() {
        let mut turns = turns(Nanos::from_us(20), None);
        let mut pairs = 0;
        let ended = loop {
            let slices = turns
                .order()
                .map(|(arm, _)| (arm, turns.measured(arm, Nanos::ZERO, 0)));
            pairs += 1;
            match turns.pair(slices) {
                Turn::Next => {}
                other => break other,
            }
        };
        assert_eq!((ended, pairs), (Turn::Idle, IDLE));
    }

    #[test]
    fn native_code_is_credited_with_its_way() {
        // Equal times, of which 1.5 ns an entry are the way to compiled code.
        let mut short = turns(Nanos(30), Some(Arm::Candidate));
        let (ended, _) = run(&mut short, [30, 30], 0.0);
        assert_eq!(ended, Turn::Ended(Verdict::Faster));
    }

    #[test]
    fn slices_of_slow_units_count_units() {
        let slow = turns(Nanos::from_ms(50), None);
        assert_eq!(slow.slice(), Duration::from_millis(100));
        assert_eq!(slow.units(), Some(2));
        let quick = turns(Nanos::from_us(1), None);
        assert_eq!((quick.slice(), quick.units()), (SLICE.0, None));
        let ms = Duration::from_millis;
        assert!(!quick.is_full(ms(3), Nanos::from_ms(1), 16));
        assert!(!quick.is_full(ms(3), Nanos::from_ms(2), 7));
        assert!(quick.is_full(ms(3), Nanos::from_ms(2), 8));
        assert!(quick.is_full(ms(500), Nanos::ZERO, 0));
    }
}
