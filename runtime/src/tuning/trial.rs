//! Trials: two versions take turns in a slot, and are timed.
//!
//! A slice begins right after the store to the slot. A call that is in the previous version counts
//! in the slice it began in and runs on in the next one. Slices of at least [`ENTRIES`] entries
//! limit that to a fraction, and as the order of a pair is random it favours neither. If a unit
//! takes longer than [`SLOW`], so many of them would take seconds, and slices begin and end where a
//! unit does: [`UNITS`] are as good then, and the unit in which the slot was stored belongs to no
//! slice. So a slice of an interpreter's loop that is entered every 50 ms takes 0.2 s, and not 0.8.
//! Slices are measured in the program's time. On a busy machine the program often did not run at
//! all in a slice of wall-clock time, and trials with such slices had no result. No pass is held
//! while a slice runs, so forks need not wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::trace;
use uruk_base::{FunctionId, Nanos, VersionId};
use uruk_tiering::tuning::{Arm, Interval, Rules, Slice, Trial, Verdict};

use super::candidate::part;
use super::clock::{GuestClock, Reading};
use super::region::COARSE;
use super::short::Shorts;
use crate::fork::gate;
use crate::host::clock::nanos;
use crate::tuning::Tuning;
use crate::tuning::region::Root;
use crate::tuning::views::TuningUnit as Unit;

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

/// Fraction of a unit's time between two checks for its end, and bounds of that: checking every 50
/// us took a tenth of a processor.
const LOOKS: u64 = 20;
const WAIT: (Duration, Duration) = (Duration::from_micros(200), Duration::from_micros(500));

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

/// Maximal wait for a program that does not run, as a multiple of the slice.
const IDLES: u32 = 8;

/// Minimal part of a slice that the program must have run: while others have the processors, a
/// slice takes longer.
const FULL: f64 = 0.5;

/// Pairs without work, after which a trial is abandoned.
const IDLE: u32 = 20;

/// Pairs between two checks of the account.
const LOOK: u32 = 8;

/// The result of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialResult {
    pub(super) verdict: Verdict,
    pub(super) ratio: Interval,
    pub(super) pairs: u32,
    /// Time lost in the slower version.
    pub(super) lost: Nanos,
}

/// The length of slices for a root with that time per unit.
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

/// The counts at the beginning of a slice.
struct SliceStart {
    clock: Reading,
    units: u64,
}

impl Tuning {
    /// Lets `candidate`, which is published, and the root's version take turns until the faster one
    /// is known; one of the two may be `native`. Short functions return to native code meanwhile.
    /// `None` if another publication stored to the slot meanwhile, the program does no work, or the
    /// session ends.
    pub(super) fn take_turns(
        self: &Arc<Self>,
        root: Root,
        candidate: VersionId,
        slice: Duration,
        expected: Nanos,
        native: Option<Arm>,
        shorts: &mut Shorts,
    ) -> Option<TrialResult> {
        let mut pass = gate::enter();
        let (rules, patience) = match native {
            Some(Arm::Candidate) => (super::native::rules(self.rules), PATIENCE_NATIVE),
            _ => (self.rules_for(root.id, native.is_some()), PATIENCE),
        };
        let mut slice = slice;
        let mut trial = Trial::new(in_time(rules, ERRORS.0, slice, patience), candidate.0);
        let mut published = candidate;
        let (mut idle, mut in_candidate) = (0, Nanos::ZERO);
        let verdict = loop {
            let order = trial.order();
            let clock = GuestClock::new();
            let mut slices = [(
                Arm::Incumbent,
                Slice {
                    time: 0.0,
                    work: 0.0,
                },
            ); 2];
            for (place, arm) in order.into_iter().enumerate() {
                let version = match arm {
                    Arm::Incumbent => root.version,
                    Arm::Candidate => candidate,
                };
                published = self.turn_to(root.id, published, version)?;
                drop(pass);
                let (time, work) = self.run_slice(root, &clock, slice);
                pass = gate::enter();
                trace!(target: "uruk::tuning", ?arm, time = time.0, work, "slice");
                if arm == Arm::Candidate {
                    in_candidate.0 += time.0;
                }
                let (mut time, work) = (time.as_f64(), work as f64);
                if native == Some(arm) && matches!(root.unit, Unit::Entries) {
                    time = super::native::without_way(time, work);
                }
                slices[place] = (arm, Slice { time, work });
            }
            if self.is_stopping() {
                return None;
            }
            let pairs = trial.pairs();
            if let Some(verdict) = trial.pair(slices) {
                break verdict;
            }
            if trial.pairs() == NOISY_AFTER && trial.median() > NOISE && slice * LONGER <= LONGEST {
                // Starts again: the earlier slices add little to the new ones.
                slice *= LONGER;
                let rules = in_time(rules, ERRORS.1, slice, patience);
                trial = Trial::new(rules, candidate.0.wrapping_add(slice.as_millis() as u64));
                continue;
            }
            idle = if trial.pairs() == pairs { idle + 1 } else { 0 };
            if idle >= IDLE {
                // No result is recorded: it may be tried again once the program works.
                return None;
            }
            self.send_short_home(shorts);
            let look = trial.pairs().is_multiple_of(LOOK) && trial.pairs() > 0;
            if look && !self.endures(&trial, in_candidate, expected) {
                break Verdict::Undecided;
            }
        };
        let ratio = trial.interval();
        let ended = TrialResult {
            verdict,
            ratio,
            pairs: trial.pairs(),
            lost: lost(in_candidate, ratio),
        };
        drop(trial);
        Some(ended)
    }

    /// The stopping rules of a trial of a variant: shorter if other candidates wait for their first
    /// trial. Against native code, a candidate must gain enough over the best variant so far, which
    /// may be slower.
    fn rules_for(&self, id: FunctionId, contested: bool) -> Rules {
        let rules = self.rules;
        let state = self.state();
        let region = state.regions.get(&id.index());
        let Some(region) = region.filter(|_| !self.same) else {
            return rules;
        };
        let margin = match region.fine {
            true => rules.margin,
            false => rules.margin.max(COARSE),
        };
        let by = region
            .lost
            .filter(|_| contested)
            .map_or(1.0, |lost| lost.by);
        let margin = (1.0 + margin) / by - 1.0;
        Rules { margin, ..rules }
    }

    /// Whether a trial may continue after the candidate ran for so long.
    fn endures(&self, trial: &Trial, in_candidate: Nanos, expected: Nanos) -> bool {
        let spent = lost(in_candidate, trial.interval());
        self.state().account.endures(expected, spent)
    }

    /// Lets the program run for a slice, longer if it did not run meanwhile; returns its time and
    /// its units. Not under a pass.
    fn run_slice(&self, root: Root, clock: &GuestClock, slice: Duration) -> (Nanos, u64) {
        if root.per_unit >= SLOW {
            return self.run_units(root, clock, slice);
        }
        let begin = {
            let _pass = gate::enter();
            self.mark(clock, root)
        };
        let mut waited = Duration::ZERO;
        loop {
            self.let_run(slice);
            waited += slice;
            let _pass = gate::enter();
            let end = self.mark(clock, root);
            let time = end.clock.since(&begin.clock);
            let work = between(root, begin.units, end.units);
            let is_full = time >= part(slice, FULL) && work >= ENTRIES / 2;
            if is_full || waited >= SLICE.1 || self.is_stopping() {
                self.state().account.ran(time);
                return (time, work);
            }
        }
    }

    /// Like `run_slice`, from the end of a unit to the end of another.
    fn run_units(&self, root: Root, clock: &GuestClock, slice: Duration) -> (Nanos, u64) {
        let wanted = (nanos(slice).0 / root.per_unit.0.max(1)).max(1);
        let most = SLICE.1.max(slice * 2);
        let begin = self.wait_for_units(root, clock, 1, most);
        let end = self.wait_for_units(root, clock, wanted, most);
        let time = end.clock.since(&begin.clock);
        let _pass = gate::enter();
        self.state().account.ran(time);
        (time, between(root, begin.units, end.units))
    }

    /// Waits until `wanted` further units have begun, for at most `most` of the program's time:
    /// while it is stopped, or others have its processor, none can begin.
    fn wait_for_units(
        &self,
        root: Root,
        clock: &GuestClock,
        wanted: u64,
        most: Duration,
    ) -> SliceStart {
        let begin = Instant::now();
        let ran = {
            let _pass = gate::enter();
            clock.read()
        };
        let is_over = |now: &SliceStart| {
            let ran = Duration::from_nanos(now.clock.since(&ran).0);
            ran >= most || begin.elapsed() >= most * IDLES
        };
        let unit = Duration::from_nanos(root.per_unit.0);
        let look = Duration::from_nanos(root.per_unit.0 / LOOKS).clamp(WAIT.0, WAIT.1);
        let first = {
            let _pass = gate::enter();
            self.units(root)
        };
        loop {
            let done = {
                let _pass = gate::enter();
                let done = between(root, first, self.units(root));
                if done >= wanted || begin.elapsed() >= most || self.is_stopping() {
                    let now = self.mark(clock, root);
                    if done >= wanted || is_over(&now) || self.is_stopping() {
                        return now;
                    }
                }
                done
            };
            // Half of the time of the remaining whole units: several threads may do them.
            let whole = u32::try_from(wanted - done - 1).unwrap_or(u32::MAX);
            std::thread::park_timeout(look.max(unit.saturating_mul(whole) / 2));
        }
    }

    /// Waits for the length of a slice, without a pass.
    pub(super) fn let_run(&self, slice: Duration) {
        let begin = Instant::now();
        while let Some(left) = slice.checked_sub(begin.elapsed()) {
            if self.is_stopping() || left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// The current counts.
    fn mark(&self, clock: &GuestClock, root: Root) -> SliceStart {
        SliceStart {
            clock: clock.read(),
            units: self.units(root),
        }
    }

    /// The number of units so far.
    fn units(&self, root: Root) -> u64 {
        match root.unit {
            Unit::Entries => u64::from(self.counts.now(root.id).entries),
            Unit::Work => self.work.load(Ordering::Relaxed),
        }
    }

    /// Puts `wanted` into the slot in place of `published`. `None` if the slot holds another
    /// version.
    pub(super) fn turn_to(
        &self,
        id: FunctionId,
        published: VersionId,
        wanted: VersionId,
    ) -> Option<VersionId> {
        let versions = self.versions.of(id);
        if versions.published()?.id != published {
            return None;
        }
        if published == wanted {
            return Some(wanted);
        }
        let turned = versions.alternate(published, |entry| self.stubs.publish(id, entry));
        turned.ok().filter(|&now| now == wanted)
    }

    /// Leaves the winner in the slot and retires the loser. `None` if another publication decided
    /// that.
    pub(super) fn end_turns(
        self: &Arc<Self>,
        root: Root,
        candidate: VersionId,
        ended: Option<TrialResult>,
    ) -> Option<TrialResult> {
        let versions = self.versions.of(root.id);
        let published = versions.published()?.id;
        let (winner, loser) = match ended.map(|ended| ended.verdict) {
            Some(Verdict::Faster) => (candidate, root.version),
            _ => (root.version, candidate),
        };
        if published != winner && published != loser {
            return None;
        }
        self.turn_to(root.id, published, winner)?;
        if versions.release_loser(loser) {
            self.retire_version(root.id, loser);
        }
        ended
    }
}

/// Units from one count to a later one: entries are counted in 32 bits.
fn between(root: Root, begin: u64, end: u64) -> u64 {
    let units = end.wrapping_sub(begin);
    match root.unit {
        Unit::Entries => units & u64::from(u32::MAX),
        Unit::Work => units,
    }
}

/// The time lost by a candidate of that relative speed, of the time it ran.
fn lost(ran: Nanos, ratio: Interval) -> Nanos {
    part(Duration::from_nanos(ran.0), 1.0 - ratio.point)
}
