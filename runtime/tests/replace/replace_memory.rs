//! Memory after replacing and removing: code that is kept for a rollback moves with the rest, and
//! thread-locals of modules that are gone make room.

use crate::clang;

use std::sync::mpsc;
use std::time::Duration;

use uruk::{Freed, HeapConfig, Jit, ReclaimKind, Replacement};

type Answer = extern "C" fn() -> i32;

fn answer(jit: &Jit, name: &str) -> uruk::Func<Answer> {
    // SAFETY: functions of the tests' modules, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

fn replace(jit: &Jit, ir: &str) {
    jit.main()
        .replace(Replacement::ir("new", ir))
        .expect("replaceable");
}

#[test]
fn code_that_is_kept_for_a_rollback_moves() {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 16 << 20,
    };
    let jit = Jit::builder().heap(heap).build().expect("a session");
    let set = |value: i32| {
        let bodies = (0..20).map(|i| format!("define i32 @f{i}() {{ ret i32 {} }}\n", value + i));
        bodies.collect::<String>()
    };
    jit.add_ir("m", &set(0)).expect("valid");
    let functions: Vec<_> = (0..20).map(|i| answer(&jit, &format!("f{i}"))).collect();
    let check = |value: i32| {
        for (i, function) in (0..).zip(&functions) {
            assert_eq!(function.call(), value + i);
        }
    };
    check(0);
    for set_number in 1..=3 {
        replace(&jit, &set(set_number * 100));
    }
    let moved = || {
        let before = jit.stats().memory.moved.0;
        assert!(jit.reclaim(ReclaimKind::Evacuate, Duration::from_secs(120)));
        jit.stats().memory.moved.0 - before
    };
    // 20 that run, and 60 that are kept; a cycle that was under way may have done a part.
    let first = moved() + moved();
    assert!(first >= 80, "{first} moved");
    check(300);
    for back in (0..3).rev() {
        jit.rollback().expect("kept");
        check(back * 100);
        moved();
        check(back * 100);
    }
}

#[test]
fn thread_locals_of_modules_that_are_gone_make_room() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let source = "__thread int counter = 40; int f(void) { return ++counter; }";
    let object = clang::compile("replace_memory", "tls.c", source, &["-O1", "-fPIC"]);
    // More than there are slots.
    let rounds = if cfg!(debug_assertions) {
        5_000
    } else {
        10_000
    };
    let call = |address: u64| {
        // SAFETY: `f` of the object, which is there until both threads have called it.
        let f = unsafe { std::mem::transmute::<u64, Answer>(address) };
        assert_eq!((f(), f()), (41, 42));
    };
    let (there, calls) = mpsc::channel();
    let (called, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for address in calls {
                call(address);
                called.send(()).expect("the other thread is there");
            }
        });
        for _ in 0..rounds {
            let tracker = jit.main().create_tracker().expect("a tracker");
            tracker
                .add_object("tls.o", object.clone())
                .expect("there is room");
            let address = jit.lookup("f").expect("defined");
            there.send(address).expect("the other thread is there");
            call(address);
            answers.recv().expect("the other thread is there");
            // SAFETY: no thread calls it any more.
            unsafe { tracker.remove() }.expect("there");
        }
        drop(there);
    });
}
