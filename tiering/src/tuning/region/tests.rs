//! Steps of a root, one after another.

use uruk_base::FunctionId;

use super::*;
use crate::tuning::advice::{Advice, Shape};
use crate::tuning::candidate::{Candidate, TrialResult, TuningUnit};
use crate::tuning::trial::Verdict;
use uruk_base::Change;

fn root(tier: Tier) -> Root {
    Root {
        id: FunctionId(0),
        version: VersionId(1),
        tier,
        per_unit: Nanos::from_ms(1),
        unit: TuningUnit::Entries,
        per_entry: Nanos::from_ms(1),
    }
}

fn region(tier: Tier) -> Region {
    Region::new(&root(tier), Variant::default(), &Before::default())
}

/// A candidate that changes the code of a tier to `variant`.
fn changed(tier: Tier, variant: Variant) -> Candidate {
    Candidate {
        tier,
        variant,
        change: Some(Change::Slp),
    }
}

/// The same variant at another tier.
fn other(tier: Tier, variant: Variant) -> Candidate {
    Candidate {
        tier,
        variant,
        change: None,
    }
}

fn free(has_native: bool) -> RootFacts {
    RootFacts {
        entered: 100,
        has_native,
        compared_before: false,
        is_free: true,
    }
}

const ALL: Possible = Possible {
    native: false,
    guided: true,
    contracted: true,
    values: true,
    same: false,
};

fn ended(verdict: Verdict, point: f64) -> TrialResult {
    TrialResult {
        verdict,
        ratio: Interval {
            low: point * 0.99,
            point,
            high: point * 1.01,
        },
        pairs: 20,
        lost: Nanos::ZERO,
    }
}

const TESTED: Tested = Tested {
    version: VersionId(2),
    object: Some(2),
    running: Some(1),
};

/// Steps of the tiers that are done: plain code, guided code.
fn compared(region: &Region) -> (bool, bool) {
    (region.done.has(Step::Plain), region.done.has(Step::Guided))
}

/// A doubtful variant is tried once more when nothing else is left, and then no more.
#[test]
fn doubtful_variants_are_tried_once_more() {
    let plain = Variant::default();
    let [slp, packed] = ["no-slp", "packed"].map(|words| words.parse().expect("words"));
    let mut region = region(Tier::Optimized);
    region.note(changed(Tier::Optimized, slp));
    region.note(changed(Tier::Optimized, packed));
    assert!(!region.goes_on_finely(), "nothing is in doubt");
    region.doubtful.push(packed);
    assert!(region.goes_on_finely());
    assert_eq!(region.tried, [slp]);
    region.doubtful.push(slp);
    assert!(!region.goes_on_finely(), "once");

    // Code of tier 3 that the policy made is compared with that of tier 2, not with itself.
    let mut region = self::region(Tier::Optimized);
    region.follow(&root(Tier::Guided), false);
    assert_eq!(compared(&region), (false, true));
    region.note(other(Tier::Optimized, plain));
    assert_eq!(compared(&region), (true, true));

    // The other tier's code of the same variant.
    for (tier, beside) in [
        (Tier::Guided, Tier::Optimized),
        (Tier::Optimized, Tier::Guided),
    ] {
        let mut region = self::region(tier);
        region.note(other(beside, plain));
        assert_eq!(compared(&region), (beside == Tier::Optimized, true));
        region.doubtful.push(plain);
        assert!(region.goes_on_finely());
        assert_eq!(compared(&region), (false, tier == Tier::Guided));
    }
}

/// Unchanged loops are tried at tier 2 once, and once more for a small gain.
#[test]
fn loops_as_written_are_tried_below_tier_3() {
    let plain = Variant::default();
    let rolled = plain.with(Change::Rolled);
    let mut region = region(Tier::Guided);
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
    region.note(changed(Tier::Optimized, rolled));
    assert_eq!(region.rolled_apart(Tier::Optimized, 1), None, "tried");
}

/// Native code that won is compared again, ever more rarely.
#[test]
fn native_code_is_compared_again_in_time() {
    let root = root(Tier::Native);
    let mut region = region(Tier::Native);
    region.settle();
    // Compiled code is watched: it need not be compared again without a reason.
    region.reopen_in_time(Nanos(0));
    region.reopen_in_time(Nanos(u64::MAX));
    assert!(region.is_settled());

    region.lost = Some(Lost { root, by: 1.1 });
    let mut now = Nanos::from_ms(7_000);
    for times in [1, 2, 4] {
        region.settle();
        region.reopen_in_time(now);
        let before = Nanos(now.0 + times * AGAIN.0 - 1);
        region.reopen_in_time(before);
        assert!(region.is_settled(), "after {times} times as long");
        now = Nanos(before.0 + 1);
        region.reopen_in_time(now);
        assert!(region.is_contested() && region.tried.is_empty());
    }
}

/// Every step is proposed in its order, each candidate once, until the root settles; a trial that
/// wins opens the changes on its variant.
#[test]
fn candidates_come_in_order_until_the_root_settles() {
    let mut advice = Advice::new(1);
    let (shape, margin) = (Shape::default(), Rules::default().margin);
    let mut root = root(Tier::Optimized);
    let mut region = region(Tier::Optimized);
    assert_eq!(region.check(&root, free(false)), Check::Due);
    let mut next = |region: &mut Region, root: &Root| region.next(root, shape, ALL, &mut advice);

    let guided = next(&mut region, &root).expect("tier 3 first");
    assert_eq!((guided.tier, guided.change), (Tier::Guided, None));
    let faster = ended(Verdict::Faster, 1.2);
    let told = region.ended(&root, guided, &TESTED, &faster, Nanos::ZERO, margin);
    assert!(told.won && told.better && told.known.is_some());
    assert_eq!(
        (region.tier(), region.version),
        (Tier::Guided, VersionId(2))
    );

    (root.tier, root.version) = (Tier::Guided, VersionId(2));
    let mut proposed = Vec::new();
    let slower = ended(Verdict::Slower, 0.5);
    while let Some(candidate) = next(&mut region, &root) {
        assert!(!proposed.contains(&candidate), "{candidate:?} twice");
        proposed.push(candidate);
        let told = region.ended(&root, candidate, &TESTED, &slower, Nanos(5), margin);
        assert!(!told.won && !told.better);
    }
    // It was compared with plain code when it won.
    assert!(
        proposed.iter().all(|it| it.change.is_some()),
        "{proposed:?}"
    );
    assert!(proposed.len() > 5);
    assert!(region.settled().is_some() && region.progress().is_none());
    assert_eq!(region.trials().len(), proposed.len() + 1);
    assert_eq!(region.check(&root, free(false)), Check::Nothing);
}

/// Code of a native program is compared with its native code before anything else, and so is code
/// of the policy that follows it.
#[test]
fn native_code_is_the_first_candidate() {
    let mut advice = Advice::new(1);
    let may = Possible {
        native: true,
        guided: false,
        ..ALL
    };
    let mut root = root(Tier::Optimized);
    let mut region = region(Tier::Optimized);
    assert_eq!(region.check(&root, free(true)), Check::Due);
    let native = region.next(&root, Shape::default(), may, &mut advice);
    assert_eq!(native, Some(other(Tier::Native, Variant::default())));
    let lost = ended(Verdict::Faster, 1.1);
    region.native_ended(&root, &lost, (VersionId(3), Tier::Native), Nanos::ZERO);
    assert!(region.is_contested());

    // A variant that is better than the code that lost, but not than native code, is the next base.
    (root.tier, root.version) = (Tier::Native, VersionId(3));
    let variant = region.next(&root, Shape::default(), may, &mut advice);
    let variant = variant.expect("changes are left");
    assert_eq!(variant.tier, Tier::Optimized);
    let near = ended(Verdict::Slower, 0.98);
    let told = region.ended(&root, variant, &TESTED, &near, Nanos::ZERO, 0.01);
    assert!(!told.won && told.better && told.known.is_none());
    assert!((told.gain - 0.98 * 1.1).abs() < 1e-9);
    assert_eq!(
        (region.variant(), region.tier()),
        (variant.variant, Tier::Native)
    );

    // The policy requests guided code.
    (root.tier, root.version) = (Tier::Guided, VersionId(4));
    assert_eq!(region.check(&root, free(true)), Check::Due);
    assert!(!region.is_compared_with_native());
    let native = region.next(&root, Shape::default(), may, &mut advice);
    assert_eq!(native.map(|it| it.tier), Some(Tier::Native));
}

/// A root that is entered too often to be timed is left, and examined again with each new version.
#[test]
fn roots_that_are_entered_too_often_are_left() {
    let mut root = root(Tier::Optimized);
    let mut region = region(Tier::Optimized);
    (root.per_unit, root.per_entry) = (Nanos(10), Nanos(10));
    assert_eq!(region.check(&root, free(false)), Check::Nothing);
    assert!(matches!(region.phase(), RootPhase::Left(_)));
    // Code that replaced native code is compared with it all the same.
    assert_eq!(region.check(&root, free(true)), Check::Due);
    (root.version, root.per_unit, root.per_entry) = (VersionId(9), Nanos(900), Nanos(900));
    assert_eq!(region.check(&root, free(false)), Check::Due);
}

/// The progress of a run is continued by the next one.
#[test]
fn progress_is_kept_and_continued() {
    let slp: Variant = "no-slp".parse().expect("a variant");
    let mut region = region(Tier::Optimized);
    region.note(changed(Tier::Optimized, slp));
    region.note(other(Tier::Guided, Variant::default()));
    let progress = region.progress().expect("two were tried");
    let before = Before {
        progress: Some(&progress),
        ..Before::default()
    };
    let next = Region::new(&root(Tier::Optimized), Variant::default(), &before);
    assert_eq!(compared(&next), (true, true));
    assert_eq!(next.progress(), Some(progress));
    assert!(!self::region(Tier::Optimized).knows_code(Some(1), Some(2)));
    assert!(self::region(Tier::Optimized).knows_code(Some(1), Some(1)));
}
