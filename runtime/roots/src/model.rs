//! The handshake under loom: request, answer, late answer, next request.
//!
//! Loom's cells report two parties in the work at once; the assertions report an answer by the wrong
//! thread or a lost request.

use loom::sync::Arc;
use loom::thread;

use crate::entries::Line;
use crate::slot::{Slot, Withdrawn};
use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// The thread that a request was for, and the thread that answered.
struct Work {
    asked: u32,
    answered: Option<u32>,
}

/// A thread whose signal arrives at any time, or twice.
fn thread_of(slot: &Arc<Slot<Work>>, tid: u32, signals: usize) -> thread::JoinHandle<()> {
    let slot = slot.clone();
    thread::spawn(move || {
        for _ in 0..signals {
            if let Some(mut claim) = slot.claim(tid) {
                claim.with(|work| {
                    assert_eq!(work.asked, tid, "somebody else's request");
                    assert!(work.answered.is_none(), "answered twice");
                    work.answered = Some(tid);
                });
                claim.finish();
            }
        }
    })
}

fn ask(slot: &Slot<Work>, tid: u32) -> Option<Work> {
    let work = Work {
        asked: tid,
        answered: None,
    };
    let Ok(ticket) = slot.post(tid, work) else {
        // The slot is still with a late handler.
        return slot.collect();
    };
    if let Some(work) = slot.collect() {
        assert_eq!(work.answered, Some(tid));
        return Some(work);
    }
    match slot.withdraw(ticket) {
        Withdrawn::Back(work) => {
            assert!(work.answered.is_none(), "an answer was thrown away");
            Some(work)
        }
        Withdrawn::Taken => slot.collect(),
    }
}

#[test]
fn a_late_answer_never_meets_the_next_request() {
    let mut builder = loom::model::Builder::new();
    // Three parties: all interleavings with up to three forced switches.
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let slot = Arc::new(Slot::new());
        let first = thread_of(&slot, 1, 1);
        let second = thread_of(&slot, 2, 1);
        ask(&slot, 1);
        ask(&slot, 2);
        first.join().expect("the first thread");
        second.join().expect("the second thread");
        let late = slot.collect();
        assert!(late.is_none_or(|work| work.answered == Some(work.asked)));
    });
}

#[test]
fn a_thread_asked_twice_answers_each_request_once() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let asked = thread_of(&slot, 1, 2);
        ask(&slot, 1);
        ask(&slot, 1);
        asked.join().expect("the thread");
        slot.collect();
    });
}

/// A scan that finds a counted thread outside frees what the slot held: the thread must not
/// run it any more.
#[test]
fn a_thread_found_outside_does_not_run_old_code() {
    loom::model(|| {
        // 1: old code. 2: new code. The cell is the old code's memory: 0 once it was freed.
        let shared = Arc::new((Line::new(), AtomicU32::new(1), UnsafeCell::new(1)));
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, slot, code) = &*shared;
                assert!(line.take(7));
                for _ in 0..2 {
                    let before = line.enter();
                    run(slot, code);
                    line.leave(before);
                }
                line.give();
            })
        };
        let (line, slot, code) = &*shared;
        free_if(slot, code, || line.outside(7));
        thread.join().expect("the thread");
    });
}

#[test]
fn work_comes_back_when_all_is_quiet() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let asked = thread_of(&slot, 1, 1);
        let at_once = ask(&slot, 1).is_some();
        asked.join().expect("the thread");
        assert!(at_once || slot.collect().is_some(), "the work is lost");
    });
}

/// A line whose owner stopped being counted inside a call, and the thread after it.
#[test]
fn a_call_that_outlives_its_line_counts_for_nobody_else() {
    loom::model(|| {
        let shared = Arc::new((Line::new(), AtomicU32::new(1), UnsafeCell::new(1)));
        let first = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, ..) = &*shared;
                if line.take(7) {
                    let before = line.enter();
                    line.give();
                    line.leave(before);
                }
            })
        };
        let second = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, slot, code) = &*shared;
                if line.take(8) {
                    let before = line.enter();
                    run(slot, code);
                    line.leave(before);
                }
            })
        };
        let (line, slot, code) = &*shared;
        free_if(slot, code, || line.outside(8));
        first.join().expect("the first thread");
        second.join().expect("the second thread");
    });
}

/// A thread runs code as any other before it promises to be counted, and after.
#[test]
fn a_promise_covers_nothing_before_or_after_it() {
    loom::model(|| {
        let shared = Arc::new((Line::new(), AtomicU32::new(1), UnsafeCell::new(1)));
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, slot, code) = &*shared;
                run(slot, code);
                assert!(line.take(7));
                line.give();
                run(slot, code);
            })
        };
        let (line, slot, code) = &*shared;
        free_if(slot, code, || line.outside(7));
        thread.join().expect("the thread");
    });
}

/// A line goes from thread to thread; the last is outside when all is quiet, and one that
/// gave its line away is not.
#[test]
fn a_line_is_as_its_last_owner_left_it() {
    loom::model(|| {
        let line = Arc::new(Line::new());
        let use_it = |line: &Line, tid| {
            let taken = line.take(tid);
            if taken {
                let before = line.enter();
                line.leave(before);
            }
            taken
        };
        let first = {
            let line = line.clone();
            thread::spawn(move || {
                if use_it(&line, 7) {
                    line.give();
                }
            })
        };
        let taken = use_it(&line, 8);
        first.join().expect("the first thread");
        assert_eq!(line.outside(8), taken);
        assert!(!line.outside(7));
    });
}

/// Runs what the slot holds, if that is the old code.
fn run(slot: &AtomicU32, code: &UnsafeCell<u32>) {
    if slot.load(Ordering::Acquire) == 1 {
        code.with(|code| {
            // SAFETY: loom checks that no thread writes meanwhile.
            assert_eq!(unsafe { *code }, 1, "it runs freed code");
        });
    }
}

/// Models a scan of a thread: the old code is freed if the thread is outside.
fn free_if(slot: &AtomicU32, code: &UnsafeCell<u32>, outside: impl FnOnce() -> bool) {
    slot.store(2, Ordering::Release);
    loom::sync::atomic::fence(Ordering::SeqCst);
    if outside() {
        code.with_mut(|code| {
            // SAFETY: loom checks that no thread is in it.
            unsafe { *code = 0 };
        });
    }
}
