//! Loops that are left for better code while they run: asked for, offered by the policy, forbidden;
//! beside replacement, removal, and reclaim.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Func, Jit, ReclaimKind, Replacement, Tier, Tiers};

/// Longest wait for something that is to happen on another thread.
const PATIENCE: Duration = Duration::from_secs(120);

type Spin = extern "C" fn(*const Shared, i64) -> i64;

/// What a thread in a loop and its test share.
#[repr(C)]
struct Shared {
    /// The loop ends when this is not zero.
    stop: AtomicI64,
    passes: AtomicI64,
}

/// Adds up what depends on every pass, in a loop in a loop, with what lives across its heads as a
/// value, in a scalar, in an array whose address leaves, and in one whose address does not.
fn spin(factor: i64) -> String {
    format!(
        "declare void @look(ptr)
         define i64 @spin(ptr %shared, i64 %x) {{
         entry:
           %sum = alloca i64
           %seen = alloca [4 x i64]
           %mine = alloca [4 x i64]
           store i64 %x, ptr %sum
           store i64 %x, ptr %mine
           %one = getelementptr [4 x i64], ptr %mine, i64 0, i64 1
           store i64 7, ptr %one
           call void @look(ptr %seen)
           br label %outer
         outer:
           %i = phi i64 [ 0, %entry ], [ %i1, %latch ]
           br label %inner
         inner:
           %j = phi i64 [ 0, %outer ], [ %j1, %inner ]
           %s = load i64, ptr %sum
           %m = mul i64 %s, {factor}
           %seven = load i64, ptr %one
           %a = add i64 %m, %seven
           %first = load i64, ptr %mine
           %b = xor i64 %a, %first
           %nine = load i64, ptr %seen
           %c = add i64 %b, %nine
           store i64 %c, ptr %sum
           %j1 = add i64 %j, 1
           %again = icmp ult i64 %j1, 3
           br i1 %again, label %inner, label %latch
         latch:
           %i1 = add i64 %i, 1
           %passes = getelementptr i64, ptr %shared, i64 1
           store atomic i64 %i1, ptr %passes release, align 8
           %stop = load atomic i64, ptr %shared acquire, align 8
           %over = icmp ne i64 %stop, 0
           br i1 %over, label %done, label %outer
         done:
           %end = load i64, ptr %sum
           %r = xor i64 %end, %i1
           ret i64 %r
         }}"
    )
}

/// What `spin` returns after so many passes.
fn expected(factor: i64, x: i64, passes: i64) -> i64 {
    let pass = |s: i64, _| (s.wrapping_mul(factor).wrapping_add(7) ^ x).wrapping_add(9);
    (0..3 * passes).fold(x, pass) ^ passes
}

extern "C" fn look(seen: *mut i64) {
    // SAFETY: four words of the caller's.
    unsafe { seen.write(9) };
}

fn session(tiers: Tiers, factor: i64) -> Jit {
    let jit = Jit::builder().tiers(tiers).build().expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.define_address("look", look as *const ()) }.expect("a name");
    jit.add_ir("spin", &spin(factor)).expect("added");
    jit
}

/// A thread in `spin`, and how to end it.
struct Spinning {
    shared: Arc<Shared>,
    thread: std::thread::JoinHandle<i64>,
}

impl Spinning {
    fn start(function: Func<Spin>, x: i64) -> Spinning {
        let shared = Arc::new(Shared {
            stop: AtomicI64::new(0),
            passes: AtomicI64::new(0),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || function.call(Arc::as_ptr(&shared), x))
        };
        let spinning = Spinning { shared, thread };
        spinning.pass();
        spinning
    }

    /// Waits until the loop has come round again twice.
    fn pass(&self) {
        let before = self.shared.passes.load(Ordering::Acquire);
        wait(|| self.shared.passes.load(Ordering::Acquire) > before + 1);
    }

    /// Ends the loop; what it returned, and after how many passes.
    fn end(self) -> (i64, i64) {
        self.shared.stop.store(1, Ordering::Release);
        let result = self.thread.join().expect("it returns");
        (result, self.shared.passes.load(Ordering::Acquire))
    }
}

fn wait(mut until: impl FnMut() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::yield_now();
    }
}

fn function(jit: &Jit) -> Func<Spin> {
    // SAFETY: the function above, which reads and writes what it is passed.
    unsafe { jit.function("spin") }.expect("a function")
}

fn left(jit: &Jit) -> u64 {
    jit.stats().continuations.left
}

#[test]
fn a_loop_is_left_when_somebody_asks() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let spinning = Spinning::start(function(&jit), 5);
    assert_eq!(left(&jit), 0);
    assert_eq!(jit.main().leave_loops("spin").expect("compiled"), 2);
    wait(|| left(&jit) == 1);
    spinning.pass();
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    let stats = jit.stats().continuations;
    assert_eq!((stats.offered, stats.left), (2, 1));
    assert!(stats.refused.is_empty(), "{:?}", stats.refused);
    // What is offered stays offered: the next one leaves, too.
    let (result, passes) = Spinning::start(function(&jit), 6).end();
    assert_eq!(result, expected(3, 6, passes));
    assert_eq!(left(&jit), 2);
}

#[test]
fn the_policy_has_a_loop_left_that_is_entered_once() {
    let jit = session(Tiers::Auto, 3);
    let spinning = Spinning::start(function(&jit), 5);
    wait(|| left(&jit) == 1);
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    // The function itself was called once and is worth nothing.
    assert_eq!(jit.tier("spin").expect("known"), Some(Tier::Baseline));
}

#[test]
fn every_loop_can_be_left_at_any_pass() {
    for passes in [1, 2, 3, 50, 51, 1000] {
        let jit = session(Tiers::Leave(passes), 5);
        let spinning = Spinning::start(function(&jit), 11);
        wait(|| left(&jit) == 1);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(5, 11, passes));
    }
}

#[test]
fn what_is_forbidden_is_not_left() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    jit.main()
        .forbid_continuations("spin", true)
        .expect("known");
    let spinning = Spinning::start(function(&jit), 5);
    assert_eq!(jit.main().leave_loops("spin").expect("nothing"), 0);
    jit.main()
        .forbid_continuations("spin", false)
        .expect("known");
    assert_eq!(jit.main().leave_loops("spin").expect("compiled"), 2);
    wait(|| left(&jit) == 1);
    // Who left does not come back; who comes later finds nothing.
    jit.main()
        .forbid_continuations("spin", true)
        .expect("known");
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    let spinning = Spinning::start(function(&jit), 8);
    spinning.pass();
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 8, passes));
    assert_eq!(left(&jit), 1);
}

#[test]
fn what_was_forbidden_to_a_function_is_allowed_to_the_next_of_its_name() {
    let jit = Jit::builder().build().expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.define_address("look", look as *const ()) }.expect("a name");
    jit.pause_tiers();
    for round in 0..3 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.add_ir("spin", &spin(3)).expect("added");
        let spinning = Spinning::start(function(&jit), 5);
        assert_eq!(jit.main().leave_loops("spin").expect("compiled"), 2);
        wait(|| left(&jit) == round + 1);
        jit.main()
            .forbid_continuations("spin", true)
            .expect("known");
        assert_eq!(jit.main().leave_loops("spin").expect("nothing"), 0);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(3, 5, passes));
        // SAFETY: nobody is inside, and nothing keeps an address.
        unsafe { tracker.remove() }.expect("removed");
    }
}

#[test]
fn a_replacement_takes_offers_back_and_lets_who_left_go_on() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let (first, second) = (
        Spinning::start(function(&jit), 5),
        Spinning::start(function(&jit), 6),
    );
    jit.main().leave_loops("spin").expect("compiled");
    wait(|| left(&jit) == 2);
    let third = Spinning::start(function(&jit), 7);
    wait(|| left(&jit) == 3);
    let replacement = Replacement::ir("new", &spin(11));
    jit.main().replace(replacement).expect("replaced");
    let fourth = Spinning::start(function(&jit), 8);
    for (spinning, x, factor) in [
        (first, 5, 3),
        (second, 6, 3),
        (third, 7, 3),
        (fourth, 8, 11),
    ] {
        spinning.pass();
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(factor, x, passes));
    }
    assert_eq!(left(&jit), 3, "nothing is offered to the new body yet");
    let fifth = Spinning::start(function(&jit), 9);
    assert_eq!(jit.main().leave_loops("spin").expect("compiled"), 2);
    wait(|| left(&jit) == 4);
    let (result, passes) = fifth.end();
    assert_eq!(result, expected(11, 9, passes));
}

#[test]
fn continuations_go_with_their_function() {
    let jit = Jit::builder()
        .tiers(Tiers::Leave(1))
        .build()
        .expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.define_address("look", look as *const ()) }.expect("a name");
    let mut held = Vec::new();
    for round in 0..40 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.add_ir("spin", &spin(3)).expect("added");
        let spinning = Spinning::start(function(&jit), round);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(3, round, passes));
        // SAFETY: nobody is inside, and nothing keeps an address.
        unsafe { tracker.remove() }.expect("removed");
        // The version of tier 1 goes, then what was offered to it.
        wait(|| {
            jit.reclaim(ReclaimKind::Sweep, PATIENCE);
            jit.stats().memory.live == 0 && jit.stats().memory.retired == 0
        });
        held.push(jit.stats().memory.held);
    }
    assert_eq!(left(&jit), 40);
    // What goes with a name is given back by and by: a saw, that does not rise.
    let most = |rounds: std::ops::Range<usize>| held[rounds].iter().max().copied();
    assert!(
        most(28..40) < most(4..16).map(|most| most + 500),
        "{held:?}"
    );
}

#[test]
fn code_moves_while_its_loops_are_left() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let spinning = Spinning::start(function(&jit), 5);
    jit.main().leave_loops("spin").expect("compiled");
    wait(|| left(&jit) == 1);
    for round in 0..20 {
        jit.reclaim(ReclaimKind::Evacuate, PATIENCE);
        spinning.pass();
        let other = Spinning::start(function(&jit), round);
        wait(|| left(&jit) as i64 == round + 2);
        let (result, passes) = other.end();
        assert_eq!(result, expected(3, round, passes));
    }
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
}
