//! The state of a root, from its first check on, and the time of the next one. A settled root is
//! examined at once if its time per unit changes, and after [`AGAIN`] if native code beat all
//! candidates. Native code counts nothing, so a change of its load is not seen.

use std::collections::{BTreeMap, HashSet};

use uruk_base::{Change, Nanos, Tier, Variant, VersionId};
use uruk_tiering::tuning::{Drift, Interval, Verdict};

use crate::tuning::views::TuningUnit;
use uruk_base::FunctionId;

/// Minimal gain of the first trials. To refute that an interpreter's loop, entered every 20 ms,
/// gains a hundredth takes 70 pairs of slices, and 12 s. To refute a twentieth takes 5 pairs, and a
/// gain of a quarter is found among 27 candidates in one run instead of ten.
pub(super) const COARSE: f64 = 0.05;

/// Processor time of the program after which winning native code is compared again, doubled each
/// time it wins again: the account pays for trials without success all the same.
const AGAIN: Nanos = Nanos::from_ms(300_000);

/// Maximal number of doublings.
const DOUBLED: u32 = 10;

/// The state of a root.
#[derive(Debug)]
pub(super) struct Region {
    /// The current version: the best so far.
    pub(super) version: VersionId,
    pub(super) tier: Tier,
    pub(super) variant: Variant,
    /// Speed relative to the first version.
    pub(super) ratio: Interval,
    pub(super) tried: Vec<Variant>,
    /// Hashes of the objects of tried and current code: several variants give the same code.
    pub(super) objects: HashSet<u64>,
    pub(super) trials: Vec<Tried>,
    pub(super) phase: Phase,
    pub(super) drift: Drift,
    /// Whether the current code was compared with plain code of tier 2.
    pub(super) lowered: bool,
    /// Whether it was compared with code of tier 3, made of the latest counts.
    pub(super) raised: bool,
    /// Whether an earlier run compared the two.
    pub(super) compared_before: bool,
    /// Variants that gain less than [`COARSE`], but may gain something: they are tried once more
    /// when nothing else is left.
    pub(super) doubtful: Vec<Variant>,
    /// Whether that is being done.
    pub(super) fine: bool,
    /// Number of callees that could be inlined, known after a compile.
    pub(super) callees: u32,
    /// Whether code of tier 3, or of the thorough pipeline, was compared with plain code of tier 2
    /// with its loops unchanged.
    pub(super) rolled: bool,
    /// Whether it was profiled since its load last changed.
    pub(super) counted: bool,
    /// Whether it was compared with native code, if any.
    pub(super) native: bool,
    /// The code that lost to native code, while that runs, or ran until the policy requested other
    /// code.
    pub(super) lost: Option<Lost>,
    /// Time of the program when it settled, once known.
    pub(super) settled: Option<Nanos>,
    /// Number of repeated comparisons since.
    pub(super) again: u32,
    /// Time of its last compile, by tier.
    pub(super) compile: BTreeMap<Tier, Nanos>,
}

/// Code that lost to native code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    /// Its measures; its tier is that of candidates against native code.
    pub(super) root: Root,
    /// Speed of native code relative to the best variant so far.
    pub(super) by: f64,
}

/// The phase of a root.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Phase {
    /// Candidates are left.
    Open,
    /// No candidates are left.
    Settled,
    /// It cannot be measured.
    Left(&'static str),
}

/// A trial that ended.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) tier: Tier,
    pub(super) variant: Variant,
    pub(super) verdict: Verdict,
    pub(super) ratio: Interval,
    pub(super) pairs: u32,
    pub(super) unit: TuningUnit,
    /// Time charged to the account.
    pub(super) lost: Nanos,
}

impl Region {
    pub(super) fn new(root: Root, variant: Variant) -> Region {
        Region {
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
            phase: Phase::Open,
            drift: Drift::default(),
            lowered: false,
            // The policy compiled it from its counts.
            raised: root.tier == Tier::Guided,
            compared_before: false,
            doubtful: Vec::new(),
            fine: false,
            callees: 0,
            rolled: false,
            counted: false,
            native: false,
            lost: None,
            settled: None,
            again: 0,
            compile: BTreeMap::new(),
        }
    }

    /// Follows a version of the policy: the tier is new, the variant stays.
    pub(super) fn follow(&mut self, root: Root, recalled: bool) {
        (self.version, self.tier) = (root.version, root.tier);
        self.lowered = self.lost.is_some() || self.compared_before;
        // The policy compiled it from its counts.
        self.raised |= root.tier == Tier::Guided;
        self.drift = Drift::default();
        // It is compared with native code again, whatever was tried before: guided code may be
        // slower than plain code that was faster.
        self.native &= recalled;
    }

    /// Reopens all candidates: the load may have changed.
    pub(super) fn reopen(&mut self) {
        self.tried.clear();
        self.objects.clear();
        self.doubtful.clear();
        self.fine = false;
        (self.counted, self.raised, self.lowered) = (false, false, false);
        (self.rolled, self.compared_before) = (false, false);
        self.phase = Phase::Open;
        self.settled = None;
    }

    /// Reopens them if native code won long enough before `now`, by the program's time.
    pub(super) fn reopen_in_time(&mut self, now: Nanos) {
        if self.phase != Phase::Settled || self.lost.is_none() {
            return;
        }
        let since = *self.settled.get_or_insert(now);
        let after = Nanos(AGAIN.0 << self.again.min(DOUBLED));
        if now.0.saturating_sub(since.0) >= after.0 {
            self.again += 1;
            self.reopen();
        }
    }

    /// Whether native code runs and candidates against it are left.
    pub(super) fn is_contested(&self) -> bool {
        self.lost.is_some() && self.phase == Phase::Open
    }

    /// Continues with small gains, once all candidates were tried for large ones; returns whether
    /// any are left.
    pub(super) fn goes_on_finely(&mut self) -> bool {
        if self.fine || self.doubtful.is_empty() {
            return false;
        }
        (self.fine, self.rolled) = (true, false);
        for variant in self.doubtful.drain(..) {
            // An equal variant means the other tier's code: plain in place of guided, or the
            // reverse.
            if variant == self.variant {
                (self.lowered, self.raised) = (false, self.tier == Tier::Guided);
                self.compared_before = false;
            }
            self.tried.retain(|&tried| tried != variant);
        }
        true
    }

    /// Proposes once the variant with unchanged loops, by the plain pipeline of tier 2, if the
    /// current code is of tier 3 or of the thorough one: it is tried after all candidates on that.
    /// Two steps at once, as neither needs to gain anything by itself: Rust's fannkuch took 16.2 ms
    /// an iteration at tier 2, 15.7 at tier 3 or thorough, and no less with unchanged loops on top
    /// of those; at tier 2 they took 14.2 to 14.6.
    pub(super) fn rolled_apart(&mut self, tier: Tier, loops: u8) -> Option<Variant> {
        let elsewhere = tier == Tier::Guided || self.variant.thorough;
        if !elsewhere || loops == 0 || std::mem::replace(&mut self.rolled, true) {
            return None;
        }
        let mut variant = self.variant.with(Change::Rolled);
        variant.thorough = false;
        let tried = tier != Tier::Guided && self.tried.contains(&variant);
        let same = tier == Tier::Guided && variant == self.variant;
        (!tried && !same).then_some(variant)
    }

    /// Notes a tried candidate; `same` if it was no variant, but another tier's code.
    pub(super) fn note(&mut self, tier: Tier, variant: Variant, same: bool) {
        if tier == Tier::Native {
            self.native = true;
            return;
        }
        if !self.tried.contains(&variant) {
            self.tried.push(variant);
        }
        self.lowered |= same && tier == Tier::Optimized;
        self.raised |= same && tier == Tier::Guided;
    }
}

#[cfg(test)]
mod tests {
    use uruk_base::FunctionId;

    use super::*;
    use crate::tuning::views::TuningUnit as Unit;

    /// A doubtful variant is tried once more when nothing else is left, and then no more.
    #[test]
    pub(super) fn what_is_doubtful_is_tried_once_more() {
        let root = |tier| Root {
            id: FunctionId(0),
            version: VersionId(1),
            tier,
            per_unit: Nanos::from_ms(1),
            unit: Unit::Entries,
            per_entry: Nanos::from_ms(1),
        };
        let plain = Variant::default();
        let [slp, packed] = ["no-slp", "packed"].map(|words| words.parse().expect("words"));
        let mut region = Region::new(root(Tier::Optimized), plain);
        region.note(Tier::Optimized, slp, false);
        region.note(Tier::Optimized, packed, false);
        assert!(!region.goes_on_finely(), "nothing is in doubt");
        region.doubtful.push(packed);
        assert!(region.goes_on_finely());
        assert_eq!(region.tried, [slp]);
        region.doubtful.push(slp);
        assert!(!region.goes_on_finely(), "once");

        // Code of tier 3 that the policy made is compared with that of tier 2, not with itself.
        let mut region = Region::new(root(Tier::Optimized), plain);
        region.follow(root(Tier::Guided), false);
        assert_eq!((region.lowered, region.raised), (false, true));
        region.note(Tier::Optimized, plain, true);
        assert!(region.lowered);

        // The other tier's code of the same variant.
        for (tier, other) in [
            (Tier::Guided, Tier::Optimized),
            (Tier::Optimized, Tier::Guided),
        ] {
            let mut region = Region::new(root(tier), plain);
            region.note(other, plain, true);
            let compared = (region.lowered, region.raised);
            assert_eq!(compared, (other == Tier::Optimized, true));
            region.doubtful.push(plain);
            assert!(region.goes_on_finely());
            let compared = (region.lowered, region.raised);
            assert_eq!(compared, (false, tier == Tier::Guided));
        }
    }

    /// Unchanged loops are tried at tier 2 once, and once more for a small gain.
    #[test]
    fn loops_as_written_are_tried_below_tier_3() {
        let root = Root {
            id: FunctionId(0),
            version: VersionId(1),
            tier: Tier::Guided,
            per_unit: Nanos::from_ms(1),
            unit: Unit::Entries,
            per_entry: Nanos::from_ms(1),
        };
        let plain = Variant::default();
        let rolled = plain.with(Change::Rolled);
        let mut region = Region::new(root, plain);
        assert_eq!(region.rolled_apart(Tier::Optimized, 1), None);
        assert_eq!(region.rolled_apart(Tier::Guided, 0), None);
        assert_eq!(region.rolled_apart(Tier::Guided, 1), Some(rolled));
        assert_eq!(region.rolled_apart(Tier::Guided, 1), None, "once");
        region.doubtful.push(plain.with(Change::Slp));
        assert!(region.goes_on_finely());
        assert_eq!(region.rolled_apart(Tier::Guided, 1), Some(rolled));
        region.variant = rolled;
        region.reopen();
        assert_eq!(region.rolled_apart(Tier::Guided, 1), None, "its own");

        region.variant = plain.with(Change::Thorough);
        region.reopen();
        assert_eq!(region.rolled_apart(Tier::Optimized, 1), Some(rolled));
        region.reopen();
        region.note(Tier::Optimized, rolled, false);
        assert_eq!(region.rolled_apart(Tier::Optimized, 1), None, "tried");
    }

    /// Native code that won is compared again, ever more rarely.
    #[test]
    fn native_code_is_compared_again_in_time() {
        let root = Root {
            id: FunctionId(0),
            version: VersionId(1),
            tier: Tier::Native,
            per_unit: Nanos::from_ms(1),
            unit: Unit::Entries,
            per_entry: Nanos::from_ms(1),
        };
        let mut region = Region::new(root, Variant::default());
        region.phase = Phase::Settled;
        // Compiled code is watched: it need not be compared again without a reason.
        region.reopen_in_time(Nanos(0));
        region.reopen_in_time(Nanos(u64::MAX));
        assert_eq!(region.phase, Phase::Settled);

        region.lost = Some(Lost { root, by: 1.1 });
        let mut now = Nanos::from_ms(7_000);
        for times in [1, 2, 4] {
            region.phase = Phase::Settled;
            region.reopen_in_time(now);
            let before = Nanos(now.0 + times * AGAIN.0 - 1);
            region.reopen_in_time(before);
            assert_eq!(region.phase, Phase::Settled, "after {times} times as long");
            now = Nanos(before.0 + 1);
            region.reopen_in_time(now);
            assert!(region.is_contested() && region.tried.is_empty());
        }
    }
}

/// A function to be tuned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root {
    pub(crate) id: FunctionId,
    pub(crate) version: VersionId,
    pub(crate) tier: Tier,
    /// Time of the program per unit of work.
    pub(super) per_unit: Nanos,
    pub(crate) unit: TuningUnit,
    /// Time of the program per entry.
    pub(super) per_entry: Nanos,
}
