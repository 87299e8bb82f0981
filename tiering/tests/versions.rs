//! The publication protocol of one function, step by step; its races are in `loom.rs`.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

#[path = "versions/ended.rs"]
mod ended;
#[path = "versions/turns.rs"]
mod turns;

use std::sync::Arc;

use uruk_tiering::{
    CommitError, Committed, EntryAddress, FunctionVersions, Generation, IllegalStep, Late, Next,
    Publication, Purpose, RevertError, Stage, StageError, Ticket, Tier, VersionError, VersionId,
    VersionState,
};

const SLOT_TRAMPOLINE: u64 = 0;

/// A function, its slot, and everything stored there.
struct Case {
    versions: Arc<FunctionVersions>,
    slot: u64,
}

impl Case {
    fn new() -> Case {
        Case {
            versions: Arc::default(),
            slot: SLOT_TRAMPOLINE,
        }
    }

    fn request(&self, id: u64, tier: Tier, purpose: Purpose) -> Ticket {
        self.versions.request(VersionId(id), tier, purpose).unwrap()
    }

    fn first(&self, id: u64) -> Ticket {
        self.request(id, Tier::Baseline, Purpose::First)
    }

    fn change(&self, id: u64) -> Ticket {
        self.request(id, Tier::Optimized, Purpose::Change)
    }

    fn make(&self, ticket: Ticket) {
        self.versions.start(ticket).unwrap();
        let entry = EntryAddress(ticket.version.0 * 16);
        self.versions.ready(ticket, entry).unwrap();
    }

    fn publish(&mut self, ticket: Ticket) -> Publication {
        let slot = &mut self.slot;
        let store = |entry: EntryAddress| {
            *slot = entry.0;
            true
        };
        self.versions.publish(ticket, store).unwrap()
    }

    fn commit(&mut self, stage: Stage, next: Next) -> Result<Committed, CommitError> {
        stage.commit(next, |entry| {
            self.slot = entry.map_or(SLOT_TRAMPOLINE, |entry| entry.0);
            true
        })
    }

    fn replace(&mut self, next: Next) -> Committed {
        let stage = self.versions.stage().unwrap();
        self.commit(stage, next).unwrap()
    }

    /// All steps of a version without interference.
    fn run(&mut self, ticket: Ticket) -> Publication {
        self.make(ticket);
        self.publish(ticket)
    }
}

/// Code of a new body.
fn code(id: u64) -> Next {
    Next::Code {
        version: VersionId(id),
        tier: Tier::Baseline,
        entry: EntryAddress(id * 16),
    }
}

fn published(retired: Option<u64>, released: Option<u64>) -> Publication {
    Publication::Published {
        retired: retired.map(VersionId),
        released: released.map(VersionId),
    }
}

#[test]
fn a_function_goes_up_the_tiers() {
    let mut case = Case::new();
    let first = case.first(1);
    assert_eq!(case.run(first), published(None, None));
    let second = case.change(2);
    assert_eq!(case.run(second), published(Some(1), None));
    let third = case.change(3);
    assert_eq!(case.run(third), published(Some(2), Some(1)));
    assert_eq!(case.slot, 48);
    let snapshot = case.versions.snapshot();
    assert_eq!(snapshot.active, Some(VersionId(3)));
    let fallback = snapshot.fallback.unwrap();
    assert_eq!(
        (fallback.id, fallback.state),
        (VersionId(2), VersionState::Retired)
    );
    assert_eq!((snapshot.counts.published, snapshot.counts.retired), (3, 2));
}

/// The code of a first call never covers that of a change, whichever was requested first.
#[test]
fn a_late_first_call_is_dropped() {
    for first_number in [1, 3] {
        let mut case = Case::new();
        let first = case.first(first_number);
        let change = case.change(2);
        case.make(first);
        assert_eq!(case.run(change), published(None, None));
        let late = Publication::Dropped(Late::Overtaken(VersionId(2)));
        assert_eq!(case.publish(first), late);
        assert_eq!(case.slot, 32);
    }
}

/// In the other order a change is published over it, even if requested before it.
#[test]
fn a_change_covers_the_first_call() {
    let mut case = Case::new();
    let change = case.change(1);
    let first = case.first(2);
    assert_eq!(case.run(first), published(None, None));
    assert_eq!(case.run(change), published(Some(2), None));
    assert_eq!(case.slot, 16);
}

#[test]
fn of_two_changes_the_later_requested_stays() {
    let mut case = Case::new();
    let (old, new) = (case.change(1), case.change(2));
    case.make(old);
    assert_eq!(case.versions.snapshot().active, Some(VersionId(2)));
    case.run(new);
    let late = Late::Overtaken(VersionId(2));
    assert_eq!(case.publish(old), Publication::Dropped(late));
    // A version that is too late is not even started.
    let (old, new) = (case.change(3), case.change(4));
    case.run(new);
    let late = Late::Overtaken(VersionId(4));
    assert_eq!(case.versions.start(old), Err(VersionError::Late(late)));
    assert_eq!(case.versions.snapshot().counts.dropped, 2);
}

/// A commit ends everything of the old generation: versions in flight, held versions, and the
/// fallback.
#[test]
fn a_commit_ends_the_old_generation() {
    let mut case = Case::new();
    let (first, second) = (case.first(1), case.change(2));
    case.run(first);
    case.run(second);
    let (made, held) = (case.change(3), case.change(4));
    case.make(made);
    let stage = case.versions.stage().unwrap();
    assert_eq!(stage.published().unwrap().id, VersionId(2));
    assert_eq!(case.run(held), Publication::Held);
    let in_flight = case.versions.snapshot().in_flight;
    assert_eq!(in_flight[1].state, VersionState::Held);
    assert_eq!(case.slot, 32, "nothing changed yet");
    let decided_before = VersionId(5);

    let committed = case.commit(stage, code(6)).unwrap();
    assert_eq!(case.slot, 96);
    assert_eq!(committed.generation, Generation(1));
    assert_eq!(committed.dropped, [VersionId(3), VersionId(4)]);
    assert_eq!(committed.released, Some(VersionId(1)));
    let kept = committed.kept.unwrap().view();
    assert_eq!((kept.id, kept.state), (VersionId(2), VersionState::Retired));
    for late in [made, held] {
        let late = case.publish(late);
        assert_eq!(late, Publication::Dropped(Late::Replaced));
    }
    let error = case.versions.revert(VersionId(6), |_| panic!("stored"));
    assert_eq!(error, Err(RevertError::NoFallback(VersionId(6))));
    // A change decided on before the commit is of the old body, even if it is requested later.
    let change = case.change(decided_before.0);
    let late = Late::Overtaken(VersionId(6));
    assert_eq!(case.versions.start(change), Err(VersionError::Late(late)));
    let counts = case.versions.snapshot().counts;
    assert_eq!(
        (counts.published, counts.retired, counts.dropped),
        (3, 2, 3)
    );
    // The new generation is promoted through the tiers.
    let change = case.change(7);
    assert_eq!(case.run(change), published(Some(6), None));
}

/// An abandoned replacement leaves the function as it was, and better code from meanwhile is
/// published then.
#[test]
fn an_abandoned_replacement_costs_nothing() {
    let mut case = Case::new();
    let first = case.first(1);
    case.run(first);
    let (older, newer) = (case.change(2), case.change(3));
    let stage = case.versions.stage().unwrap();
    assert_eq!(case.run(newer), Publication::Held);
    assert_eq!(case.run(older), Publication::Held);
    let error = case.versions.revert(VersionId(1), |_| panic!("stored"));
    assert_eq!(error, Err(RevertError::Staged(VersionId(1))));
    assert_eq!(stage.abandon(), [older, newer]);
    assert_eq!(case.slot, 16);
    assert_eq!(case.publish(older), published(Some(1), None));
    assert_eq!(case.publish(newer), published(Some(2), Some(1)));
    assert_eq!(case.slot, 48);
    assert_eq!(case.versions.snapshot().generation, Generation(0));
    // Dropped instead of abandoned: held versions are given up.
    let (held, running) = (case.change(4), case.change(5));
    let stage = case.versions.stage().unwrap();
    assert_eq!(case.run(held), Publication::Held);
    drop(stage);
    assert_eq!(case.publish(held), Publication::Dropped(Late::GivenUp));
    assert_eq!(case.run(running), published(Some(3), Some(2)));
}

/// A first call is answered while its function is staged: the caller may be a thread that must
/// leave old code.
#[test]
fn first_calls_of_a_staged_function_are_answered() {
    let mut case = Case::new();
    let stage = case.versions.stage().unwrap();
    let first = case.first(1);
    assert_eq!(case.run(first), published(None, None));
    let committed = case.commit(stage, Next::Unbound).unwrap();
    assert_eq!(case.slot, SLOT_TRAMPOLINE);
    assert_eq!(committed.kept.unwrap().version(), VersionId(1));
    assert_eq!(case.versions.published(), None);
    let first = case.first(2);
    assert_eq!(case.run(first), published(None, None));
}

#[test]
fn a_replacement_is_rolled_back() {
    let mut case = Case::new();
    let first = case.first(1);
    case.run(first);
    let mut kept = case.replace(code(2)).kept.unwrap();
    let better = case.change(3);
    assert_eq!(case.run(better), published(Some(2), None));
    kept.moved(EntryAddress(0x100));
    let back = case.replace(Next::Restored(kept));
    assert_eq!(case.slot, 0x100);
    assert_eq!(back.released, Some(VersionId(2)));
    let restored = case.versions.published().unwrap();
    assert_eq!(restored.id, VersionId(1));
    assert_eq!(restored.state, VersionState::Published);
    assert_eq!(restored.generation, Generation(2));
    // Then a rollback of the rollback, to the best code of the replacement.
    let forward = case.replace(Next::Restored(back.kept.unwrap()));
    assert_eq!(case.slot, 48);
    assert_eq!(forward.kept.unwrap().version(), VersionId(1));
    let counts = case.versions.snapshot().counts;
    assert_eq!((counts.published, counts.retired), (3, 4));
}

#[test]
fn replacements_that_are_refused_change_nothing() {
    let mut case = Case::new();
    let (first, change) = (case.first(1), case.change(2));
    case.run(first);
    let mut other = Case::new();
    let others = other.first(9);
    other.run(others);
    let foreign = other.replace(Next::Unbound).kept.unwrap();

    let stage = case.versions.stage().unwrap();
    let error = case.versions.stage().unwrap_err();
    assert_eq!(error, StageError::Staged(Generation(0)));
    let error = case.commit(stage, Next::Restored(foreign)).unwrap_err();
    assert_eq!(error, CommitError::Foreign(VersionId(9)));
    let stage = case.versions.stage().unwrap();
    let error = case.commit(stage, code(2)).unwrap_err();
    assert_eq!(error, CommitError::Reused(VersionId(2)));
    let stage = case.versions.stage().unwrap();
    let error = stage.commit(code(3), |_| false).unwrap_err();
    assert_eq!(error, CommitError::Refused);
    let snapshot = case.versions.snapshot();
    assert!(!snapshot.staged);
    assert_eq!(snapshot.generation, Generation(0));
    assert_eq!(snapshot.counts.published, 1);
    assert_eq!(case.run(change), published(Some(1), None));
}

#[test]
fn slower_code_is_taken_back() {
    let mut case = Case::new();
    let first = case.first(1);
    case.run(first);
    let (slow, between) = (case.change(3), case.change(2));
    case.run(slow);
    let slot = &mut case.slot;
    let reverted = case.versions.revert(VersionId(3), |entry| {
        *slot = entry.0;
        true
    });
    assert_eq!(reverted.unwrap().restored, VersionId(1));
    assert_eq!(case.slot, 16);
    let published = case.versions.published().unwrap();
    assert_eq!(published.state, VersionState::Published);
    // Overtaken by the slow version, it does not come back after the revert.
    let late = Late::Overtaken(VersionId(3));
    assert_eq!(case.versions.start(between), Err(VersionError::Late(late)));
    let error = case.versions.revert(VersionId(3), |_| true).unwrap_err();
    assert_eq!(
        error,
        RevertError::NotPublished {
            asked: VersionId(3),
            published: Some(VersionId(1))
        }
    );
}

#[test]
fn failed_and_cancelled_versions_end() {
    let mut case = Case::new();
    let (failing, cancelled) = (case.change(1), case.change(2));
    case.versions.start(failing).unwrap();
    assert!(case.versions.fail(failing.version));
    assert!(!case.versions.fail(failing.version));
    case.make(cancelled);
    assert!(case.versions.cancel(cancelled.version));
    assert_eq!(case.publish(cancelled), Publication::Dropped(Late::GivenUp));
    assert_eq!(case.slot, SLOT_TRAMPOLINE);
    let counts = case.versions.snapshot().counts;
    assert_eq!((counts.failed, counts.dropped), (1, 1));
}

#[test]
fn a_slot_that_refuses_keeps_what_it_has() {
    let mut case = Case::new();
    let (first, change) = (case.first(1), case.change(2));
    case.run(first);
    case.make(change);
    let outcome = case.versions.publish(change, |_| false).unwrap();
    assert_eq!(outcome, Publication::Dropped(Late::Refused));
    assert_eq!(case.versions.published().unwrap().id, VersionId(1));
    let change = case.change(3);
    case.run(change);
    let error = case.versions.revert(VersionId(3), |_| false);
    assert_eq!(error, Err(RevertError::Refused));
    assert_eq!(case.versions.published().unwrap().id, VersionId(3));
}

#[test]
fn code_can_be_withdrawn() {
    let mut case = Case::new();
    assert_eq!(case.versions.withdraw(|| panic!("nothing there")), None);
    let first = case.first(1);
    case.run(first);
    let slot = &mut case.slot;
    let retired = case.versions.withdraw(|| *slot = SLOT_TRAMPOLINE);
    assert_eq!(retired, Some(VersionId(1)));
    assert_eq!(case.versions.published(), None);
    let again = case.first(2);
    assert_eq!(case.run(again), published(None, Some(1)));
}

#[test]
fn code_is_evicted_unless_somebody_is_at_it() {
    let mut case = Case::new();
    let evict = |case: &mut Case, stays: bool| {
        let slot = &mut case.slot;
        case.versions.evict(|| {
            if !stays {
                *slot = SLOT_TRAMPOLINE;
            }
            !stays
        })
    };
    assert_eq!(evict(&mut case, false), None, "nothing there");
    let first = case.first(1);
    case.make(first);
    case.publish(first);
    let change = case.change(2);
    assert_eq!(evict(&mut case, false), None, "a better one is under way");
    case.make(change);
    case.publish(change);
    let stage = case.versions.stage().unwrap();
    assert_eq!(evict(&mut case, false), None, "it is being replaced");
    assert!(stage.abandon().is_empty());
    assert_eq!(evict(&mut case, true), None, "the slot refuses");
    assert_eq!(case.slot, 32);
    let gone = evict(&mut case, false).unwrap();
    assert_eq!(
        (gone.version, gone.released),
        (VersionId(2), Some(VersionId(1)))
    );
    assert_eq!(case.slot, SLOT_TRAMPOLINE);
    let snapshot = case.versions.snapshot();
    assert_eq!((snapshot.published, snapshot.fallback), (None, None));
    // The next call gets new code of the same body, which can be promoted again.
    let again = case.first(3);
    case.make(again);
    assert!(matches!(
        case.publish(again),
        Publication::Published { retired: None, .. }
    ));
    let change = case.change(4);
    case.make(change);
    case.publish(change);
    assert_eq!(case.slot, 64);
}

#[test]
fn wrong_calls_are_refused() {
    let case = Case::new();
    let first = case.first(1);
    let reused = case
        .versions
        .request(first.version, Tier::Baseline, Purpose::First);
    assert_eq!(reused, Err(VersionError::Reused(VersionId(1))));
    let step = IllegalStep {
        from: VersionState::Wanted,
        event: uruk_tiering::Event::Publish,
    };
    let version = first.version;
    let illegal = case.versions.publish(first, |_| panic!("stored"));
    assert_eq!(illegal, Err(VersionError::Illegal { version, step }));
    for id in 2..=4 {
        case.change(id);
    }
    let error = case
        .versions
        .request(VersionId(5), Tier::Guided, Purpose::Change)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "v5 would be one more than the 4 versions under way"
    );
}

#[test]
fn a_version_moves_in_the_slot_and_as_the_one_to_go_back_to() {
    let mut case = Case::new();
    let (first, second) = (case.first(1), case.change(2));
    for ticket in [first, second] {
        case.make(ticket);
        case.publish(ticket);
    }
    let slot = &mut case.slot;
    let mut moved = |id, from, to| {
        case.versions.moved(
            VersionId(id),
            EntryAddress(from),
            EntryAddress(to),
            |entry| {
                *slot = entry.0;
                true
            },
        )
    };
    assert!(!moved(2, 16, 100), "not the place it is at");
    assert!(!moved(3, 32, 100), "not a version that is kept");
    assert!(moved(2, 32, 100), "the published one");
    assert!(moved(1, 16, 200), "the fallback");
    assert_eq!(case.slot, 100);
    let store = |entry: EntryAddress| {
        case.slot = entry.0;
        true
    };
    case.versions.revert(VersionId(2), store).unwrap();
    assert_eq!(case.slot, 200);
    let stage = case.versions.stage().unwrap();
    let late = case
        .versions
        .moved(VersionId(1), EntryAddress(200), EntryAddress(300), |_| true);
    assert!(!late, "staged code stays where threads are looked for");
    assert!(stage.abandon().is_empty());
}
