//! Trials: two versions take turns in a slot, and are timed. [`Turns`] sets the lengths of slices and
//! the end. No pass is held while a slice runs, so forks need not wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::trace;
use uruk_base::{FunctionId, Nanos, VersionId};
use uruk_tiering::tuning::{
    Arm, Arms, Root, Rules, Slice, TrialResult, TuningUnit, Turn, Turns, Verdict,
};

use super::clock::{GuestClock, Reading};
use super::short::Shorts;
use crate::fork::gate;
use crate::tuning::Tuning;

/// Fraction of a unit's time between two checks for its end, and bounds of that: checking every 50
/// us took a tenth of a processor.
const LOOKS: u64 = 20;
const WAIT: (Duration, Duration) = (Duration::from_micros(200), Duration::from_micros(500));

/// Maximal wait for a program that does not run, as a multiple of the slice.
const IDLES: u32 = 8;

/// The counts at the beginning of a slice.
struct SliceStart {
    clock: Reading,
    units: u64,
}

impl Tuning {
    /// Lets the two versions, of which the candidate is published, take turns until the faster one
    /// is known. Short functions return to native code meanwhile. `None` if another publication
    /// stored to the slot meanwhile, the program does no work, or the session ends.
    pub(super) fn take_turns(
        self: &Arc<Self>,
        arms: Arms,
        expected: Nanos,
        shorts: &mut Shorts,
    ) -> Option<TrialResult> {
        let rules = {
            let _pass = gate::enter();
            self.rules_for(arms.root.id, arms.native == Some(Arm::Incumbent))
        };
        let mut turns = Turns::new(arms, rules);
        let mut published = arms.candidate;
        loop {
            let slices = self.take_turn(&mut turns, arms.root, &mut published)?;
            let _pass = gate::enter();
            if self.is_stopping() {
                return None;
            }
            match turns.pair(slices) {
                Turn::Ended(verdict) => return Some(turns.ended(verdict)),
                Turn::Idle => return None,
                Turn::IfEndured if !self.state().account.endures(expected, turns.lost()) => {
                    return Some(turns.ended(Verdict::Undecided));
                }
                Turn::IfEndured | Turn::Next => self.send_short_home(shorts),
            }
        }
    }

    /// Lets each version run for a slice; `published` is the one in the slot. `None` if the slot
    /// holds another version.
    fn take_turn(
        &self,
        turns: &mut Turns,
        root: Root,
        published: &mut VersionId,
    ) -> Option<[(Arm, Slice); 2]> {
        let clock = {
            let _pass = gate::enter();
            GuestClock::new()
        };
        let [first, second] = turns.order();
        let mut run = |(arm, version)| {
            {
                let _pass = gate::enter();
                *published = self.turn_to(root.id, *published, version)?;
            }
            let (time, work) = self.run_slice(root, &clock, turns);
            trace!(target: "uruk::tuning", ?arm, time = time.0, work, "slice");
            Some((arm, turns.measured(arm, time, work)))
        };
        Some([run(first)?, run(second)?])
    }

    /// The stopping rules of a trial; `contested` if native code runs.
    fn rules_for(&self, id: FunctionId, contested: bool) -> Rules {
        let state = self.state();
        let region = state.regions.get(&id.index()).filter(|_| !self.same);
        region.map_or(self.rules, |region| region.rules(self.rules, contested))
    }

    /// Lets the program run for a slice, longer if it did not run meanwhile; returns its time and
    /// its units. Not under a pass.
    fn run_slice(&self, root: Root, clock: &GuestClock, turns: &Turns) -> (Nanos, u64) {
        if let Some(units) = turns.units() {
            return self.run_units(root, clock, units, turns.longest());
        }
        let begin = {
            let _pass = gate::enter();
            self.mark(clock, root)
        };
        let mut waited = Duration::ZERO;
        loop {
            self.let_run(turns.slice());
            waited += turns.slice();
            let _pass = gate::enter();
            let end = self.mark(clock, root);
            let time = end.clock.since(&begin.clock);
            let work = between(root, begin.units, end.units);
            if turns.is_full(waited, time, work) || self.is_stopping() {
                self.state().account.ran(time);
                return (time, work);
            }
        }
    }

    /// Like `run_slice`, for `wanted` units, from the end of a unit to the end of another.
    fn run_units(
        &self,
        root: Root,
        clock: &GuestClock,
        wanted: u64,
        most: Duration,
    ) -> (Nanos, u64) {
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
            TuningUnit::Entries => u64::from(self.counts.now(root.id).entries),
            TuningUnit::Work => self.work.load(Ordering::Relaxed),
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
        TuningUnit::Entries => units & u64::from(u32::MAX),
        TuningUnit::Work => units,
    }
}
