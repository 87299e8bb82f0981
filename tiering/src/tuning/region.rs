//! The course of a root's tuning: which candidate is next, and what a result changes.
//!
//! # Steps
//! A [`Region`] is in one [`RootPhase`], and while it is open, the first of these is done that is due:
//!
//! | step | due |
//! |---|---|
//! | native code | the program has native code of the root that compiled code was not compared with |
//! | profile | code of tier 2 or 3 runs whose load was not counted since it last changed |
//! | guided code | a profile is known, and no code of tier 3 was made of it; never against native code, which is compared with it first |
//! | plain code | code of tier 3 runs that was not compared with code of tier 2 |
//! | a change | [`Advice`] proposes one |
//! | loops as written | the code is of tier 3, or of the thorough pipeline; once |
//! | small gains | variants that may gain less than [`COARSE`] are tried once more, from the top of this table |
//!
//! If none is due, it is settled. A settled root is opened again if its time per unit changes, and after
//! [`AGAIN`] if native code beat all candidates. Native code counts nothing, so a change of its load
//! is not seen.

mod next;
mod results;

use std::collections::{BTreeMap, HashSet};

use uruk_base::{CALLEES, Nanos, Tier, Variant, VersionId};

use super::candidate::{LONGEST, Root, SHORTEST, Tried};
use super::drift::Drift;
use super::memory::{Known, Progress};
use super::trial::{Interval, Rules};

/// Minimal gain of the first trials. To refute that an interpreter's loop, entered every 20 ms,
/// gains a hundredth takes 70 pairs of slices, and 12 s. To refute a twentieth takes 5 pairs, and a
/// gain of a quarter is found among 27 candidates in one run instead of ten.
pub(super) const COARSE: f64 = 0.05;

/// Processor time of the program after which winning native code is compared again, doubled each
/// time it wins again: the account pays for trials without success all the same.
const AGAIN: Nanos = Nanos::from_ms(300_000);

/// Maximal number of doublings.
const DOUBLED: u32 = 10;

pub use next::Possible;
pub use results::{Consequence, Tested};

/// The phase of a root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RootPhase {
    /// Candidates are left.
    Open,
    /// No candidates are left.
    Settled {
        /// Time of the program when that was first seen.
        since: Option<Nanos>,
    },
    /// It cannot be measured.
    Left(&'static str),
}

/// The gains that candidates are tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// At least [`COARSE`].
    Coarse,
    /// All that the rules ask for.
    Fine,
}

/// A step that is done once for the current code, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Native,
    Profile,
    Guided,
    Plain,
    Rolled,
}

/// A set of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps(u8);

impl Steps {
    fn has(self, step: Step) -> bool {
        self.0 & (1 << step as u8) != 0
    }

    fn set(&mut self, step: Step, done: bool) {
        self.0 &= !(1 << step as u8);
        self.0 |= u8::from(done) << step as u8;
    }
}

/// Code that lost to native code.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Its measures; its tier is that of candidates against native code.
    root: Root,
    /// Speed of native code relative to the best variant so far.
    by: f64,
}

/// Facts about a root before its first check, of this run and an earlier one.
#[derive(Debug, Default)]
pub struct Before<'k> {
    /// Whether it was profiled.
    pub profiled: bool,
    /// Whether an earlier run compared it with its native code.
    pub compared_with_native: bool,
    /// Progress of an earlier run.
    pub progress: Option<&'k Progress>,
    /// Result of an earlier run.
    pub known: Option<Known>,
}

/// Facts about a root at a check.
#[derive(Clone, Copy, Debug)]
pub struct RootFacts {
    /// Entries since the last check.
    pub entered: u32,
    /// Whether the program has native code of it.
    pub has_native: bool,
    /// Whether an earlier run compared it with that.
    pub compared_before: bool,
    /// Whether its code may be exchanged now.
    pub is_free: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A candidate is to be tried.
    Due,
    /// Its load changed: all candidates are open again.
    Drifted,
    /// Nothing is to be done now.
    Nothing,
}

/// The state of a root.
#[derive(Debug)]
pub struct Region {
    /// The current version: the best so far.
    version: VersionId,
    tier: Tier,
    variant: Variant,
    /// Speed relative to the first version.
    ratio: Interval,
    tried: Vec<Variant>,
    /// Hashes of the objects of tried and current code: several variants give the same code.
    objects: HashSet<u64>,
    trials: Vec<Tried>,
    phase: RootPhase,
    depth: Depth,
    done: Steps,
    /// Whether an earlier run compared code of tiers 2 and 3.
    tiers_compared: bool,
    drift: Drift,
    /// Variants that gain less than [`COARSE`], but may gain something: they are tried once more
    /// when nothing else is left.
    doubtful: Vec<Variant>,
    /// Number of callees that could be inlined, known after a compile.
    callees: u32,
    /// The code that lost to native code, while that runs, or ran until the policy requested other
    /// code.
    lost: Option<Lost>,
    /// Number of repeated comparisons with native code that won.
    again: u32,
    /// Time of its last compile, by tier.
    compile: BTreeMap<Tier, Nanos>,
}

impl Region {
    /// A region of which nothing but `before` is known; its code is `variant`.
    pub fn new(root: &Root, variant: Variant, before: &Before<'_>) -> Region {
        let mut region = Region {
            version: root.version,
            tier: root.tier,
            variant,
            ratio: Interval {
                low: 1.0,
                point: 1.0,
                high: 1.0,
            },
            tried: Vec::new(),
            objects: HashSet::new(),
            trials: Vec::new(),
            phase: RootPhase::Open,
            depth: Depth::Coarse,
            done: Steps::default(),
            tiers_compared: false,
            drift: Drift::default(),
            doubtful: Vec::new(),
            callees: 0,
            lost: None,
            again: 0,
            compile: BTreeMap::new(),
        };
        // The policy compiled it from its counts.
        region.done.set(Step::Guided, root.tier == Tier::Guided);
        region.done.set(Step::Profile, before.profiled);
        region.done.set(Step::Native, before.compared_with_native);
        if let Some(progress) = before.progress {
            region.go_on_from(progress);
        }
        if let Some(known) = before.known {
            region.ratio = known.ratio;
            // An earlier run has tried all candidates.
            if known.settled {
                region.settle();
            }
        }
        region
    }

    /// Continues the progress of an earlier run.
    fn go_on_from(&mut self, progress: &Progress) {
        self.tried.clone_from(&progress.tried);
        self.doubtful.clone_from(&progress.doubtful);
        // Small gains are tried once nothing else is left.
        if progress.fine {
            self.depth = Depth::Fine;
        }
        self.done.set(Step::Rolled, progress.fine);
        // The number is known only after a compile; a candidate beyond it changes nothing.
        self.callees = CALLEES.into();
        self.tiers_compared = progress.compared;
        self.done.set(Step::Plain, progress.compared);
        let raised = self.done.has(Step::Guided) || progress.compared;
        self.done.set(Step::Guided, raised);
    }

    /// Candidates that the next run need not try again, if any; variants over native code are not
    /// kept, and nothing of a settled root is.
    pub fn progress(&self) -> Option<Progress> {
        let kept = self.lost.is_none() && !self.tried.is_empty() && !self.is_settled();
        let other = match self.tier {
            Tier::Guided => Step::Plain,
            _ => Step::Guided,
        };
        kept.then(|| Progress {
            tried: self.tried.clone(),
            doubtful: self.doubtful.clone(),
            compared: self.tiers_compared || self.done.has(other),
            fine: self.depth == Depth::Fine,
        })
    }

    /// The result of a root that has settled on compiled code, for the next run.
    pub fn settled(&self) -> Option<Known> {
        let settled = self.is_settled() && self.lost.is_none();
        settled.then_some(Known {
            variant: self.variant,
            ratio: self.ratio,
            settled,
        })
    }

    /// The tier of the best code so far.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The variant of the best code so far.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Speed of that code relative to the first version.
    pub fn ratio(&self) -> Interval {
        self.ratio
    }

    /// All trials, in order.
    pub fn trials(&self) -> &[Tried] {
        &self.trials
    }

    /// The phase.
    pub fn phase(&self) -> RootPhase {
        self.phase
    }

    fn is_settled(&self) -> bool {
        matches!(self.phase, RootPhase::Settled { .. })
    }

    /// Whether it is settled and its usual time is known.
    pub fn is_watched(&self) -> bool {
        self.is_settled() && self.drift.is_known()
    }

    /// Whether it was compared with native code, if any.
    pub fn is_compared_with_native(&self) -> bool {
        self.done.has(Step::Native)
    }

    /// Whether it was profiled since its load last changed.
    pub fn is_profiled(&self) -> bool {
        self.done.has(Step::Profile)
    }

    /// Notes that it is profiled now.
    pub fn profile(&mut self) {
        self.done.set(Step::Profile, true);
    }

    /// Time of its last compile at a tier.
    pub fn compile_time(&self, tier: Tier) -> Option<Nanos> {
        self.compile.get(&tier).copied()
    }

    /// Notes the time of a compile.
    pub fn compiled(&mut self, tier: Tier, time: Nanos) {
        self.compile.insert(tier, time);
    }

    /// Notes the number of single inlining decisions.
    pub fn has_callees(&mut self, callees: u32) {
        self.callees = self.callees.max(callees);
    }

    /// Whether native code runs and candidates against it are left.
    pub fn is_contested(&self) -> bool {
        self.lost.is_some() && self.phase == RootPhase::Open
    }

    /// A root whose native code runs, with the measures of its comparison.
    pub fn as_compared(&self, root: &Root) -> Option<Root> {
        let lost = self.lost?;
        Some(Root {
            version: root.version,
            tier: root.tier,
            ..lost.root
        })
    }

    /// Notes that native code runs as `version`.
    pub fn runs_natively(&mut self, version: VersionId) {
        (self.version, self.tier) = (version, Tier::Native);
    }

    /// Gives it up, for that reason.
    pub fn leave(&mut self, why: &'static str) {
        self.phase = RootPhase::Left(why);
    }

    /// Gives it up in favour of native code, which runs as `version`.
    pub fn leave_to_native(&mut self, version: VersionId, why: &'static str) {
        self.runs_natively(version);
        self.done.set(Step::Native, true);
        self.leave(why);
    }

    /// Checks whether a candidate is to be tried, by the latest measures.
    pub fn check(&mut self, root: &Root, facts: RootFacts) -> Check {
        let compiled = root.tier > Tier::Native && facts.has_native;
        if self.version != root.version {
            self.follow(root, facts.compared_before);
            let awaits = compiled && !self.done.has(Step::Native);
            if awaits || matches!(self.phase, RootPhase::Left(_)) {
                self.phase = RootPhase::Open;
            }
        }
        let entered = facts.entered > 0;
        if self.is_settled() {
            if entered && self.drift.reading(root.per_unit.as_f64()) {
                self.reopen();
                return Check::Drifted;
            }
            return Check::Nothing;
        }
        if !facts.is_free {
            return Check::Nothing;
        }
        // It may be entered later.
        let measured = entered && root.per_unit <= LONGEST;
        // It is compared with the code it replaced, however often it is entered.
        let awaits = compiled && !self.done.has(Step::Native);
        let is_done = !awaits && (self.done.has(Step::Plain) || root.tier != Tier::Guided);
        self.phase = match measured && root.per_entry < SHORTEST && is_done {
            true => RootPhase::Left("it is entered too often to be timed"),
            false => RootPhase::Open,
        };
        match measured && self.phase == RootPhase::Open {
            true => Check::Due,
            false => Check::Nothing,
        }
    }

    /// Follows a version of the policy: the tier is new, the variant stays.
    fn follow(&mut self, root: &Root, compared_before: bool) {
        (self.version, self.tier) = (root.version, root.tier);
        let lowered = self.lost.is_some() || self.tiers_compared;
        self.done.set(Step::Plain, lowered);
        // The policy compiled it from its counts.
        if root.tier == Tier::Guided {
            self.done.set(Step::Guided, true);
        }
        self.drift = Drift::default();
        // It is compared with native code again, whatever was tried before: guided code may be
        // slower than plain code that was faster.
        if !compared_before {
            self.done.set(Step::Native, false);
        }
    }

    /// Reopens all candidates: the load may have changed.
    fn reopen(&mut self) {
        self.tried.clear();
        self.objects.clear();
        self.doubtful.clear();
        self.depth = Depth::Coarse;
        for step in [Step::Profile, Step::Guided, Step::Plain, Step::Rolled] {
            self.done.set(step, false);
        }
        self.tiers_compared = false;
        self.phase = RootPhase::Open;
    }

    /// Reopens them if native code won long enough before `now`, by the program's time.
    pub fn reopen_in_time(&mut self, now: Nanos) {
        let RootPhase::Settled { since } = &mut self.phase else {
            return;
        };
        if self.lost.is_none() {
            return;
        }
        let since = *since.get_or_insert(now);
        let after = Nanos(AGAIN.0 << self.again.min(DOUBLED));
        if now.0.saturating_sub(since.0) >= after.0 {
            self.again += 1;
            self.reopen();
        }
    }

    fn settle(&mut self) {
        self.phase = RootPhase::Settled { since: None };
    }

    /// The stopping rules of a trial of a variant: shorter if other candidates wait for their first
    /// trial. Against native code, a candidate must gain enough over the best variant so far, which
    /// may be slower.
    pub fn rules(&self, rules: Rules, contested: bool) -> Rules {
        let margin = match self.depth {
            Depth::Fine => rules.margin,
            Depth::Coarse => rules.margin.max(COARSE),
        };
        let lost = self.lost.filter(|_| contested);
        let by = lost.map_or(1.0, |lost| lost.by);
        let margin = (1.0 + margin) / by - 1.0;
        Rules { margin, ..rules }
    }

    /// Whether code made for a trial is identical to the `running` code or to code tried before: the
    /// trial is then unnecessary.
    pub fn knows_code(&mut self, running: Option<u64>, object: Option<u64>) -> bool {
        self.objects.extend(running);
        object.is_some_and(|object| {
            // Candidates with a possible small gain are tried twice.
            let tried = self.depth == Depth::Coarse && self.objects.contains(&object);
            running == Some(object) || tried
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
