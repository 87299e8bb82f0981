//! The gate under loom: closing and opening against calls, publications, grants
//! and each other.

use loom::sync::Arc;
use loom::thread;

use super::{
    bound, bound_sleepers, close, code, function, let_through, model, new, open, slot, start, table,
};
use crate::gate::Target;
use crate::guest::Outcome;
use crate::shared::Shared;
use crate::spots::SPOTS;
use crate::sync::{AtomicU32, Ordering};
use uruk_base::FunctionId;

/// A caller goes through f and g while both are replaced: a caller that got the new f gets the new
/// g, and all calls end.
#[test]
fn one_instant_for_a_set() {
    model(|| {
        let shared = bound(2);
        let [f, g] = [function(0), function(1)];
        let caller = thread::spawn({
            let shared = shared.clone();
            move || [f, g].map(|f| start(&shared, f, 1))
        });
        close(&shared, &[f, g]);
        // In the opposite order of the caller's.
        for order in [f, g] {
            assert_eq!(shared.entry(order), Some(code(order)));
        }
        open(&shared, &[f, g].map(|f| (f, Target::Code(new(f)))));
        let seen = caller.join().unwrap();
        let [old_f, old_g] = [f, g].map(|f| Outcome::Code(code(f)));
        let [new_f, new_g] = [f, g].map(|f| Outcome::Code(new(f)));
        let legal = [[old_f, old_g], [old_f, new_g], [new_f, new_g]];
        assert!(legal.contains(&seen), "{seen:?}");
        for f in [f, g] {
            assert_eq!((slot(&shared, f), shared.entry(f)), (new(f), Some(new(f))));
        }
    });
}

/// A version is published while the gate closes and opens: it is in the slot at the end, and not
/// before the gate opens.
#[test]
fn publication_does_not_open() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        let publisher = thread::spawn({
            let shared = shared.clone();
            move || shared.publish(f, new(f))
        });
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        close(&shared, &[f]);
        assert_eq!(slot(&shared, f), shared.cells.trampoline(f));
        open(&shared, &[(f, Target::Keep)]);
        assert!(publisher.join().unwrap());
        let got = caller.join().unwrap();
        assert!([code(f), new(f)].map(Outcome::Code).contains(&got));
        assert_eq!((slot(&shared, f), shared.entry(f)), (new(f), Some(new(f))));
    });
}

/// A call that is let through gets old code before the gate opens; the next call of the same thread
/// waits for the new code.
#[test]
fn a_grant_is_for_one_call() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || {
                let first = start(&shared, f, 1);
                shared.failure_handler.store(2, Ordering::Release);
                [first, start(&shared, f, 1)]
            }
        });
        while !let_through(&shared, 1) {
            thread::yield_now();
        }
        // A lost wake-up is a deadlock here: only the grant lets the call continue.
        while shared.failure_handler.load(Ordering::Acquire) == 1 {
            thread::yield_now();
        }
        open(&shared, &[(f, Target::Code(new(f)))]);
        let seen = caller.join().unwrap();
        assert_eq!(seen, [code(f), new(f)].map(Outcome::Code));
        assert!(shared.spots.list().is_empty());
    });
}

/// A grant races with the opening: the call gets old or new code, a later one new
/// code only.
#[test]
fn a_grant_races_with_the_opening() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        let let_through = let_through(&shared, 1);
        open(&shared, &[(f, Target::Code(new(f)))]);
        let got = caller.join().unwrap();
        match got {
            Outcome::Code(entry) if entry == code(f) => assert!(let_through),
            got => assert_eq!(got, Outcome::Code(new(f))),
        }
        assert_eq!(start(&shared, f, 1), Outcome::Code(new(f)));
    });
}

/// Two callers park, one is let through: the other's call does not start before the
/// gate opens.
#[test]
fn a_grant_is_for_one_thread() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        let callers = [1, 2].map(|thread| {
            let shared = shared.clone();
            thread::spawn(move || start(&shared, f, thread))
        });
        let_through(&shared, 1);
        open(&shared, &[(f, Target::Code(new(f)))]);
        let [_, other] = callers.map(|caller| caller.join().unwrap());
        assert_eq!(other, Outcome::Code(new(f)));
    });
}

/// Without code and grant, a first call makes one request, when the gate opens.
#[test]
fn first_calls_ask_when_it_opens() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        assert_eq!(shared.requests.next(&shared.cells), None);
        open(&shared, &[(f, Target::Keep)]);
        assert_eq!(shared.requests.wait(&shared.cells, None, None), Some(f));
        assert!(shared.publish(f, code(f)));
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
    });
}

/// A call without code that was let through makes a request, and is answered behind the gate.
#[test]
fn a_call_that_is_let_through_asks() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        while !let_through(&shared, 1) {
            thread::yield_now();
        }
        assert_eq!(shared.requests.wait(&shared.cells, None, None), Some(f));
        assert!(shared.publish(f, code(f)));
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
        assert_eq!(slot(&shared, f), shared.cells.trampoline(f));
        open(&shared, &[(f, Target::Keep)]);
        assert_eq!(slot(&shared, f), code(f));
    });
}

/// A request made before the gate closed is answered behind it.
#[test]
fn a_request_from_before_is_answered() {
    model(|| {
        let shared = table(1);
        let f = function(0);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        assert_eq!(shared.requests.wait(&shared.cells, None, None), Some(f));
        close(&shared, &[f]);
        let opener = thread::spawn({
            let shared = shared.clone();
            move || open(&shared, &[(f, Target::Keep)])
        });
        assert!(shared.publish(f, code(f)));
        opener.join().unwrap();
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
        assert_eq!(slot(&shared, f), code(f));
    });
}

/// A member is released behind the gate: the call fails when the gate opens.
#[test]
fn release_behind_the_gate() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        assert!(shared.quarantine(f));
        assert!(!shared.recycle(f));
        open(&shared, &[(f, Target::Code(new(f)))]);
        assert_eq!(caller.join().unwrap(), Outcome::Failed);
        assert_eq!(slot(&shared, f), shared.cells.trampoline(f));
        assert!(shared.recycle(f));
    });
}

/// Two threads replace overlapping sets while a caller goes through both: one after
/// the other, or one is refused; no mixture.
#[test]
fn two_sets_are_serialised() {
    model(|| {
        let shared = bound(2);
        let [f, g] = [function(0), function(1)];
        let replace = move |shared: &Shared, set: [FunctionId; 2], by: u64| {
            let claimed = shared.claim_gate().is_some();
            if claimed {
                set.iter().for_each(|&f| shared.kept.ensure(f));
                for f in set {
                    assert!(shared.close(f));
                }
                open(shared, &set.map(|f| (f, Target::Code(code(f) + by))));
            }
            claimed
        };
        let other = thread::spawn({
            let shared = shared.clone();
            move || replace(&shared, [g, f], 0x200)
        });
        let here = replace(&shared, [f, g], 0x100);
        assert!(other.join().unwrap() || here);
        // The second gate uses the kept words that the first one made.
        assert_eq!(shared.kept.arrays(), 2);
        let [by_f, by_g] = [f, g].map(|f| slot(&shared, f) - code(f));
        assert_eq!(by_f, by_g);
        assert!(by_f == 0x100 || by_f == 0x200);
    });
}

/// Two gates one after the other, and a caller that is parked from the first to the second, or late
/// for one of them: the call gets one of the codes.
#[test]
fn a_caller_outlasts_a_gate() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        open(&shared, &[(f, Target::Keep)]);
        close(&shared, &[f]);
        // At any point, the caller can be let through or has continued.
        let mut waited = 0;
        while !let_through(&shared, 1) && waited < 3 {
            thread::yield_now();
            waited += 1;
        }
        open(&shared, &[(f, Target::Code(new(f)))]);
        let got = caller.join().unwrap();
        assert!([code(f), new(f)].map(Outcome::Code).contains(&got));
    });
}

/// A caller that was parked at a gate and meets the next one is found there, at any point between
/// the opening of the one and the closing of the other.
#[test]
fn a_caller_is_found_at_the_next_gate() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        let done = Arc::new(AtomicU32::new(0));
        close(&shared, &[f]);
        let caller = thread::spawn({
            let (shared, done) = (shared.clone(), done.clone());
            move || {
                let got = start(&shared, f, 1);
                done.store(1, Ordering::Release);
                got
            }
        });
        open(&shared, &[(f, Target::Keep)]);
        close(&shared, &[f]);
        // Loops for ever if the caller sleeps where no gate finds it.
        while !let_through(&shared, 1) && done.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert_eq!(caller.join().unwrap(), Outcome::Code(code(f)));
    });
}

/// A thread reads the entry of a function that always has code, while gates close and open before
/// it.
#[test]
fn a_gate_hides_no_code_from_the_runtime() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        let look = thread::spawn({
            let shared = shared.clone();
            move || shared.entry(f)
        });
        close(&shared, &[f]);
        open(&shared, &[(f, Target::Keep)]);
        close(&shared, &[f]);
        open(&shared, &[(f, Target::Keep)]);
        assert_eq!(look.join().unwrap(), Some(code(f)));
    });
}

/// Handlers of one thread waited and left by `longjmp`, the last after it was let through. The
/// thread still has one spot, and its next call needs a new grant.
#[test]
fn waits_that_were_left_by_jumps_take_one_spot() {
    model(|| {
        let shared = bound_sleepers(1);
        let f = function(0);
        close(&shared, &[f]);
        for _ in 0..=SPOTS {
            shared.spots.take(1, f).expect("its own");
        }
        let listed = shared.spots.list();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].thread(), listed[0].function()), (1, f));
        assert!(let_through(&shared, 1));
        let caller = thread::spawn({
            let shared = shared.clone();
            move || start(&shared, f, 1)
        });
        // Loops for ever if the call uses the grant of the wait that was left.
        while shared.spots.list().is_empty() {
            thread::yield_now();
        }
        open(&shared, &[(f, Target::Code(new(f)))]);
        assert_eq!(caller.join().unwrap(), Outcome::Code(new(f)));
        // A spot that was left behind is not listed at the next gate.
        shared.spots.take(1, f).expect("a spot");
        close(&shared, &[f]);
        assert!(shared.spots.list().is_empty());
    });
}

/// A wait was left by `longjmp` and the thread waits anew: a scan during the first wait lets no
/// later wait through.
#[test]
fn a_grant_is_for_the_wait_that_was_seen() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        close(&shared, &[f]);
        shared.spots.take(1, f).expect("a spot");
        let seen = shared.spots.list();
        shared.spots.take(1, f).expect("its own");
        assert!(!shared.let_through(seen[0]));
        assert!(let_through(&shared, 1));
    });
}

/// A handler waits for the same function as the frame it interrupted, and takes its spot: a grant
/// is for the handler alone, and once used it frees the spot. (Here they are two threads: a frame
/// continues at any step.)
#[test]
fn a_grant_is_used_once() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        let [frame, handler] = [0, 1].map(|_| shared.spots.take(1, f).expect("a spot"));
        let listed = shared.spots.list();
        assert_eq!(listed.len(), 1);
        assert!(shared.spots.grant(listed[0]));
        let handler = thread::spawn({
            let shared = shared.clone();
            move || shared.spots.pass(handler)
        });
        assert!(!shared.spots.pass(frame));
        assert!(handler.join().unwrap());
        for thread in 2..2 + SPOTS as u32 {
            assert!(shared.spots.take(thread, f).is_some(), "{thread}");
        }
    });
}

/// A thread leaves old code and calls the set anew while the set waits for such threads. Its calls
/// never mix old and new code, whatever an earlier scan saw on its stack.
#[test]
fn a_thread_that_left_old_code_waits_for_the_new() {
    model(|| {
        // A polling caller yields first, and loom lets no yielding thread continue beside another.
        let shared = bound_sleepers(2);
        let [f, g] = [function(0), function(1)];
        close(&shared, &[f, g]);
        // Whether the caller's stack holds old code, as a scan sees it. A scan begins with a
        // barrier on all processors; here the fences stand for it.
        let holds = Arc::new(AtomicU32::new(1));
        let caller = thread::spawn({
            let (shared, holds) = (shared.clone(), holds.clone());
            move || {
                holds.store(0, Ordering::Relaxed);
                loom::sync::atomic::fence(Ordering::SeqCst);
                [f, g].map(|member| start(&shared, member, 1))
            }
        });
        let scan = || {
            loom::sync::atomic::fence(Ordering::SeqCst);
            Ok::<bool, ()>(holds.load(Ordering::Relaxed) == 1)
        };
        // A caller that was let through may be slow to wake: the next scan finds it in no old code.
        while shared.round(scan, |&held, _| held) == Ok(true) {
            thread::yield_now();
        }
        open(
            &shared,
            &[f, g].map(|member| (member, Target::Code(new(member)))),
        );
        let seen = caller.join().unwrap();
        assert_eq!(seen, [f, g].map(|member| Outcome::Code(new(member))));
    });
}
