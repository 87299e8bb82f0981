//! Publication and first calls under loom, every interleaving up to three preemptions:
//! `RUSTFLAGS="--cfg loom" cargo test -p uruk-tiering --release --test loom`.
//!
//! The slot is one atomic word, as in memory. The invariants: it holds the trampoline or the entry
//! of finished code; a reader never sees it go back to older code (except by a revert); at rest it
//! holds the entry of the function's published version. `offers` are at the heads of loops.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(loom)]

#[path = "loom/offers.rs"]
mod offers;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use uruk_tiering::{
    Committed, EntryAddress, FunctionVersions, Kept, Late, Next, Publication, Purpose, RevertError,
    Stage, Ticket, Tier, VersionError, VersionId,
};

const TRAMPOLINE: u64 = 0;
const VERSIONS: usize = 5;

/// A function: its versions, its slot, and the memory of the code of each version.
struct Model {
    versions: std::sync::Arc<FunctionVersions>,
    slot: AtomicU64,
    code: [AtomicU64; VERSIONS],
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            versions: std::sync::Arc::default(),
            slot: AtomicU64::new(TRAMPOLINE),
            code: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn request(&self, id: u64, purpose: Purpose) -> Ticket {
        let request = self
            .versions
            .request(VersionId(id), Tier::Baseline, purpose);
        request.expect("a request within the limits")
    }

    fn store(&self, entry: EntryAddress) -> bool {
        // Release: pairs with the guest's acquire in `call`.
        self.slot.store(entry.0, Ordering::Release);
        true
    }

    /// The steps of a worker with a ticket. `None`: it was too late to begin or to link.
    fn work(&self, ticket: Ticket) -> Option<Publication> {
        match self.versions.start(ticket) {
            Ok(()) => {}
            Err(VersionError::Late(_)) => return None,
            Err(error) => panic!("{error}"),
        }
        let id = ticket.version.0;
        self.code[id as usize].store(id, Ordering::Relaxed);
        match self.versions.ready(ticket, EntryAddress(id)) {
            Ok(()) => {}
            Err(VersionError::Late(_)) => return None,
            Err(error) => panic!("{error}"),
        }
        let publication = self.versions.publish(ticket, |entry| self.store(entry));
        Some(publication.expect("a ready version"))
    }

    fn stage(&self) -> Stage {
        self.versions.stage().expect("nobody else replaces it")
    }

    fn commit(&self, stage: Stage, next: Next) -> Committed {
        let committed = stage.commit(next, |entry| {
            let entry = entry.unwrap_or(EntryAddress(TRAMPOLINE));
            self.store(entry)
        });
        committed.expect("a commit of finished code")
    }

    /// Finished code of a new body.
    fn replacement(&self, id: u64) -> Next {
        self.code[id as usize].store(id, Ordering::Relaxed);
        Next::Code {
            version: VersionId(id),
            tier: Tier::Baseline,
            entry: EntryAddress(id),
        }
    }

    /// Replaces the body; nothing is published between the two steps, except a first call's code
    /// for a function without code.
    fn replace(&self, id: u64) -> Option<Kept> {
        let stage = self.stage();
        let before = stage.published().map(|version| version.id);
        let kept = self.commit(stage, self.replacement(id)).kept;
        let after = kept.as_ref().map(Kept::version);
        assert!(before.is_none() || before == after, "{before:?} {after:?}");
        kept
    }

    /// A call: through the slot into code that must be whole.
    fn call(&self) -> u64 {
        let entry = self.slot.load(Ordering::Acquire);
        if entry != TRAMPOLINE {
            let code = self.code[entry as usize].load(Ordering::Relaxed);
            assert_eq!(code, entry, "unfinished code is published");
        }
        entry
    }

    fn assert_slot_is_published(&self) {
        let published = self.versions.published().map_or(TRAMPOLINE, |v| v.id.0);
        assert_eq!(self.call(), published);
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn spawn<R: 'static>(
    model: &Arc<Model>,
    run: impl FnOnce(&Model) -> R + 'static,
) -> thread::JoinHandle<R> {
    let model = Arc::clone(model);
    thread::spawn(move || run(&model))
}

/// A first call's worker races with a tier-up that was requested before or after it.
#[test]
fn a_first_call_never_covers_a_tier_up() {
    for (first, change) in [(1, 2), (2, 1)] {
        model(move || {
            let function = Model::new();
            let first_call = spawn(&function, move |f| f.work(f.request(first, Purpose::First)));
            let tier_up = spawn(&function, move |f| {
                f.work(f.request(change, Purpose::Change))
            });
            let seen = [function.call(), function.call()];
            assert!(
                seen[0] != change || seen[1] == change,
                "better code went away: {seen:?}"
            );
            first_call.join().unwrap();
            tier_up.join().unwrap();
            assert_eq!(function.call(), change);
            function.assert_slot_is_published();
        });
    }
}

/// Two changes race: the one requested later stays.
#[test]
fn a_late_change_never_covers_a_newer_one() {
    model(|| {
        let function = Model::new();
        let tickets = [1, 2].map(|id| function.request(id, Purpose::Change));
        let older = spawn(&function, move |f| f.work(tickets[0]));
        let newer = spawn(&function, move |f| f.work(tickets[1]));
        let seen = [function.call(), function.call()];
        assert!(seen[0] <= seen[1], "older code came back: {seen:?}");
        older.join().unwrap();
        newer.join().unwrap();
        assert_eq!(function.call(), 2);
        function.assert_slot_is_published();
    });
}

/// First call, tier-up and a replacement of the body: nothing of the old body is stored
/// after the new one's.
#[test]
fn nothing_of_a_replaced_body_is_published_late() {
    model(|| {
        let function = Model::new();
        let tickets = [
            function.request(1, Purpose::First),
            function.request(2, Purpose::Change),
        ];
        let first_call = spawn(&function, move |f| f.work(tickets[0]));
        let tier_up = spawn(&function, move |f| f.work(tickets[1]));
        let kept = function.replace(3);
        assert_eq!(function.call(), 3, "over {kept:?}");
        for worker in [first_call, tier_up] {
            worker.join().unwrap();
        }
        assert_eq!(function.call(), 3);
        function.assert_slot_is_published();
    });
}

/// A body is replaced and its code withdrawn while versions of it are compiled: whatever they do
/// afterwards, the slot keeps the trampoline.
#[test]
fn a_withdrawn_body_stays_away() {
    model(|| {
        let function = Model::new();
        let tickets = [
            function.request(1, Purpose::First),
            function.request(2, Purpose::Change),
        ];
        let workers = tickets.map(|ticket| spawn(&function, move |f| f.work(ticket)));
        function.commit(function.stage(), Next::Unbound);
        assert_eq!(function.call(), TRAMPOLINE);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(function.call(), TRAMPOLINE);
        function.assert_slot_is_published();
    });
}

/// A tier-up is taken back while a newer change and a withdrawal race with it.
#[test]
fn a_revert_never_covers_newer_code() {
    model(|| {
        let function = Model::new();
        function.work(function.request(1, Purpose::First));
        function.work(function.request(2, Purpose::Change));
        let ticket = function.request(3, Purpose::Change);
        let newer = spawn(&function, move |f| f.work(ticket));
        let reverter = spawn(&function, |f| {
            f.versions.revert(VersionId(2), |entry| f.store(entry))
        });
        let newer = newer.join().unwrap();
        assert!(matches!(newer, Some(Publication::Published { .. })));
        let reverted = reverter.join().unwrap();
        assert!(matches!(
            reverted,
            Ok(_) | Err(RevertError::NotPublished { .. })
        ));
        assert_eq!(function.call(), 3);
        function.assert_slot_is_published();
    });
}

/// Code is withdrawn while it is published: at the end the slot agrees with the function's state.
#[test]
fn a_withdrawal_races_with_publication() {
    model(|| {
        let function = Model::new();
        function.work(function.request(1, Purpose::First));
        let ticket = function.request(2, Purpose::Change);
        let tier_up = spawn(&function, move |f| f.work(ticket));
        function.versions.withdraw(|| {
            function.slot.store(TRAMPOLINE, Ordering::Release);
        });
        function.call();
        tier_up.join().unwrap();
        function.assert_slot_is_published();
    });
}

/// A version is cancelled while it is compiled: either it was stored, or it was dropped.
#[test]
fn a_cancelled_version_is_stored_or_dropped() {
    model(|| {
        let function = Model::new();
        let ticket = function.request(1, Purpose::Change);
        let worker = spawn(&function, move |f| f.work(ticket));
        let cancelled = function.versions.cancel(VersionId(1));
        let outcome = worker.join().unwrap();
        match outcome {
            Some(Publication::Published { .. }) => assert!(!cancelled),
            Some(Publication::Dropped(late)) => assert!(cancelled && late == Late::GivenUp),
            Some(Publication::Held) => panic!("held without a replacement"),
            None => assert!(cancelled),
        }
        assert_eq!(function.call(), u64::from(!cancelled));
        function.assert_slot_is_published();
    });
}

/// A tier-up that comes between the two steps of an abandoned replacement is published by its
/// worker before or after, or by the thread that abandoned.
#[test]
fn an_abandoned_replacement_loses_no_tier_up() {
    model(|| {
        let function = Model::new();
        function.work(function.request(1, Purpose::First));
        let ticket = function.request(2, Purpose::Change);
        let tier_up = spawn(&function, move |f| f.work(ticket));
        let stage = function.stage();
        let published = stage.published();
        assert_eq!(function.versions.published(), published);
        let held = stage.abandon();
        for &ticket in &held {
            let outcome = function
                .versions
                .publish(ticket, |entry| function.store(entry));
            assert!(matches!(outcome, Ok(Publication::Published { .. })));
        }
        let outcome = tier_up.join().unwrap();
        assert_eq!(outcome == Some(Publication::Held), !held.is_empty());
        assert_eq!(function.call(), 2);
        function.assert_slot_is_published();
    });
}

/// A late tier-up of the old body, one of the new body and a rollback: the restored code is the
/// last, and each tier-up was dropped or retired.
#[test]
fn nothing_covers_restored_code() {
    model(|| {
        let function = Model::new();
        function.work(function.request(1, Purpose::First));
        let old = function.request(2, Purpose::Change);
        let old = spawn(&function, move |f| f.work(old));
        let kept = function.replace(3).expect("v1 or v2");
        let before = kept.version().0;
        let new = function.request(4, Purpose::Change);
        let new = spawn(&function, move |f| f.work(new));
        function.commit(function.stage(), Next::Restored(kept));
        assert_eq!(function.call(), before);
        let stored = matches!(old.join().unwrap(), Some(Publication::Published { .. }));
        assert_eq!(stored, before == 2);
        new.join().unwrap();
        assert_eq!(function.call(), before);
        function.assert_slot_is_published();
    });
}

/// A version is taken back while its body is replaced: the new code stays.
#[test]
fn a_revert_never_covers_a_replacement() {
    model(|| {
        let function = Model::new();
        function.work(function.request(1, Purpose::First));
        function.work(function.request(2, Purpose::Change));
        let reverter = spawn(&function, |f| {
            f.versions.revert(VersionId(2), |entry| f.store(entry))
        });
        let kept = function.replace(3).expect("v1 or v2");
        let reverted = reverter.join().unwrap().is_ok();
        assert_eq!(kept.version(), VersionId(if reverted { 1 } else { 2 }));
        assert_eq!(function.call(), 3);
        function.assert_slot_is_published();
    });
}

/// Two threads replace the same function: one after the other, or one is refused.
#[test]
fn replacements_exclude_each_other() {
    model(|| {
        let function = Model::new();
        let replace = |f: &Model, id| {
            let stage = f.versions.stage().ok()?;
            assert!(f.versions.snapshot().staged, "somebody ended it");
            Some(f.commit(stage, f.replacement(id)).generation.0)
        };
        let other = spawn(&function, move |f| replace(f, 1));
        let here = replace(&function, 2);
        let other = other.join().unwrap();
        let last = match (here, other) {
            (Some(1), None) | (Some(2), Some(1)) => 2,
            (None, Some(1)) | (Some(1), Some(2)) => 1,
            impossible => panic!("{impossible:?}"),
        };
        assert_eq!(function.call(), last);
        function.assert_slot_is_published();
    });
}
