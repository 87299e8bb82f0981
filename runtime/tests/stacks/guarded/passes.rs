//! Passes: code is stopped where it looks, at every tier, at the same place each time.

use std::time::Duration;

use uruk::{Func, GuestThread, Jit, Signature, Tier, Tiers, TrapKind};

use super::names;

/// Loops of many kinds: nested, with calls, entered by a switch, with two latches, left in the
/// middle, beside an unwind edge, with labels, and none at all.
const LOOPS: &str = r#"
@seen = global i64 0
declare i32 @__gxx_personality_v0(...)
define void @spin() { br label %l l: br label %l }
define void @spins(i64 %n) {
entry:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %more
more:
  %m = sub i64 %n, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %more ], [ %j, %next ]
  %j = add i64 %i, 1
  %last = icmp eq i64 %j, 50
  br i1 %last, label %down, label %next
down:
  call void @spins(i64 %m)
  br label %next
next:
  br label %loop
end:
  call void @spin()
  ret void
}
define void @forever(i64 %n) { %m = add i64 %n, 1 call void @forever(i64 %m) ret void }
define i64 @leaf(i64 %x) { %y = mul i64 %x, 3 %z = xor i64 %y, 5 ret i64 %z }
define i64 @caller(i64 %x) { %y = call i64 @leaf(i64 %x) %z = add i64 %y, 1 ret i64 %z }
define i64 @nested(i64 %n) {
entry:
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %a = phi i64 [ 1, %entry ], [ %c, %next ]
  br label %columns
columns:
  %j = phi i64 [ 0, %rows ], [ %j2, %columns ]
  %b = phi i64 [ %a, %rows ], [ %b2, %columns ]
  %v = load volatile i64, ptr @seen
  %v2 = add i64 %v, 1
  store volatile i64 %v2, ptr @seen
  %b2 = call i64 @caller(i64 %b)
  %j2 = add i64 %j, 1
  %more = icmp ult i64 %j2, 7
  br i1 %more, label %columns, label %next
next:
  %c = phi i64 [ %b2, %columns ]
  %i2 = add i64 %i, 1
  %done = icmp eq i64 %i2, %n
  br i1 %done, label %exit, label %rows
exit:
  ret i64 %c
}
define i64 @machine(i64 %n) {
entry:
  %odd = and i64 %n, 1
  %start = trunc i64 %odd to i1
  br i1 %start, label %one, label %two
one:
  %x = phi i64 [ %n, %entry ], [ %y2, %two ], [ %x2, %one ], [ %x2, %one ]
  %v = load volatile i64, ptr @seen
  %v2 = add i64 %v, 1
  store volatile i64 %v2, ptr @seen
  %x2 = sub i64 %x, 1
  %k = and i64 %x2, 3
  switch i64 %k, label %two [ i64 1, label %one
                              i64 2, label %one
                              i64 3, label %check ]
check:
  %zero = icmp slt i64 %x2, 4
  br i1 %zero, label %exit, label %two
two:
  %y = phi i64 [ %n, %entry ], [ %x2, %one ], [ %x2, %check ]
  %y2 = sub i64 %y, 1
  %end = icmp slt i64 %y2, 1
  br i1 %end, label %exit, label %one
exit:
  %r = phi i64 [ %y2, %two ], [ %x2, %check ]
  ret i64 %r
}
define i64 @guards(i64 %n) personality ptr @__gxx_personality_v0 {
entry:
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ], [ %j2, %pad ]
  %j = add i64 %i, 1
  %v = load volatile i64, ptr @seen
  %v2 = add i64 %v, 1
  store volatile i64 %v2, ptr @seen
  %c = icmp ult i64 %j, %n
  br i1 %c, label %l, label %m
m:
  %r = invoke i64 @caller(i64 %j) to label %e unwind label %pad
pad:
  %p = landingpad { ptr, i32 } catch ptr null
  %j2 = sub i64 %j, 5
  br label %l
e:
  ret i64 %r
}
define i64 @labels(i64 %n) {
entry:
  %t = alloca [2 x ptr]
  store ptr blockaddress(@labels, %step), ptr %t
  %second = getelementptr ptr, ptr %t, i64 1
  store ptr blockaddress(@labels, %exit), ptr %second
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %j, %step ]
  %j = add i64 %i, 1
  %v = load volatile i64, ptr @seen
  %v2 = add i64 %v, 1
  store volatile i64 %v2, ptr @seen
  %c = icmp uge i64 %j, %n
  %at = zext i1 %c to i64
  %p = getelementptr ptr, ptr %t, i64 %at
  %to = load ptr, ptr %p
  indirectbr ptr %to, [label %step, label %exit]
exit:
  ret i64 %j
}
define void @add(ptr %a, ptr %b, i64 %n) {
entry:
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %p
  %y = load float, ptr %q
  %z = fadd float %x, %y
  store float %z, ptr %p
  %j = add nuw i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %l, label %e
e:
  ret void
}
"#;

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// Functions of one number, and arguments.
const COUNTED: [(&str, i64); 4] = [
    ("nested", 9),
    ("machine", 100),
    ("guards", 50),
    ("labels", 40),
];

fn session(tiers: Tiers) -> Jit {
    let builder = Jit::builder().tiers(tiers).count_fuel(true);
    let jit = builder.expect("words").build().expect("a session");
    jit.add_ir("loops", LOOPS).expect("it loads");
    jit
}

fn function<F: Signature>(jit: &Jit, name: &str) -> Func<F> {
    // SAFETY: a function of `LOOPS`, which is called with what it takes.
    unsafe { jit.function(name) }.expect("it is there")
}

/// Passes of `seen`, which is a variable of the session; it begins anew.
fn seen(jit: &Jit) -> i64 {
    let place = jit.lookup("seen").expect("it is there") as *mut i64;
    // SAFETY: a number, which no thread uses now.
    unsafe { place.replace(0) }
}

type Number = extern "C" fn(i64) -> i64;

#[test]
fn fuel_ends_the_same_call_at_the_same_place_at_every_tier() {
    let mut all = Vec::new();
    for tier in ALL_TIERS {
        let jit = session(Tiers::Fixed(tier));
        let mut found = Vec::new();
        for (name, argument) in COUNTED {
            let f = function::<Number>(&jit, name);
            let plain = f.call(argument);
            seen(&jit);
            let before = GuestThread::fuel_used();
            let enough = f.with_fuel(1_000_000).call_guarded(argument);
            assert_eq!(enough.ok(), Some(plain), "{name} at {tier:?}");
            let needs = GuestThread::fuel_used() - before;
            found.push((name, plain, needs, seen(&jit)));
            for fuel in (0..needs).step_by(7) {
                let before = GuestThread::fuel_used();
                let trap = f.with_fuel(fuel).call_guarded(argument);
                let trap = trap.expect_err("there is too little");
                assert!(matches!(trap.kind, TrapKind::OutOfFuel), "{trap}");
                assert_eq!(GuestThread::fuel_used() - before, fuel + 1);
                found.push((name, trap.backtrace.len() as i64, fuel, seen(&jit)));
            }
            let exact = f.with_fuel(needs).call_guarded(argument);
            assert_eq!(exact.ok(), Some(plain), "{name} at {tier:?}");
            seen(&jit);
        }
        // Frames of what was inlined are those of who inlined it.
        found
            .iter_mut()
            .for_each(|it| it.1 = if it.2 == 0 { 0 } else { it.1.min(1) });
        all.push(found);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_call_that_moves_up_in_the_middle_counts_the_same() {
    let kinds = [
        Tiers::Fixed(Tier::Baseline),
        Tiers::Auto,
        Tiers::Leave(3),
        Tiers::Leave(77),
    ];
    let counts = kinds.map(|tiers| {
        let jit = session(tiers);
        let nested = function::<Number>(&jit, "nested");
        // One pass of the outer loop, seven of the inner, with a call each.
        let before = GuestThread::fuel_used();
        let result = nested.call(2_000_000);
        (result, GuestThread::fuel_used() - before, seen(&jit))
    });
    assert!(counts.iter().all(|of| *of == counts[0]), "{counts:?}");
}

#[test]
fn a_call_that_moved_up_is_one_frame_by_its_own_name() {
    for tiers in [
        Tiers::Fixed(Tier::Baseline),
        Tiers::Leave(1),
        Tiers::Leave(20),
    ] {
        let jit = session(tiers);
        let spins = function::<extern "C" fn(i64)>(&jit, "spins");
        // Each leaves its loop before it calls the next.
        let trap = spins.with_fuel(100_000).call_guarded(2).unwrap_err();
        assert!(matches!(trap.kind, TrapKind::OutOfFuel), "{trap}");
        assert_eq!(
            names(&trap),
            ["spin", "spins", "spins", "spins"],
            "{tiers:?}"
        );
        let left = jit.stats().continuations.left;
        assert_eq!(left != 0, matches!(tiers, Tiers::Leave(_)), "{tiers:?}");
    }
}

#[test]
fn loops_and_recursion_end_without_a_signal() {
    // SAFETY: valid sets; the mask is this thread's own.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    for tier in ALL_TIERS {
        let jit = session(Tiers::Fixed(tier));
        let spin = function::<extern "C" fn()>(&jit, "spin");
        let trap = spin.with_fuel(100_000).call_guarded().unwrap_err();
        assert!(matches!(trap.kind, TrapKind::OutOfFuel), "{trap}");
        assert_eq!(trap.function(), Some("spin"));
        let limit = Duration::from_millis(3);
        let trap = spin.within(limit).call_guarded().unwrap_err();
        assert!(matches!(trap.kind, TrapKind::Deadline(of) if of == limit));
        let thread = GuestThread::current();
        let other = jit.clone();
        let asking = std::thread::spawn(move || {
            while !other.interrupt(&thread) {
                std::thread::yield_now();
            }
        });
        let trap = spin.call_guarded().unwrap_err();
        assert!(matches!(trap.kind, TrapKind::Interrupted), "{trap}");
        asking.join().expect("it ended");
        // Short enough for the stack.
        let deep = function::<extern "C" fn(i64)>(&jit, "forever");
        let trap = deep.with_fuel(5_000).call_guarded(0).unwrap_err();
        assert!(matches!(trap.kind, TrapKind::OutOfFuel), "{trap}");
        // The session and the thread go on.
        let nested = function::<Number>(&jit, "nested");
        assert_eq!(nested.call_guarded(9).ok(), Some(nested.call(9)));
        assert_eq!(
            nested.with_fuel(1 << 40).call_guarded(9).ok(),
            Some(nested.call(9))
        );
    }
}

#[test]
fn fuel_reaches_through_the_host_and_calls_within_calls() {
    let jit = session(Tiers::Fixed(Tier::Baseline));
    let inner = jit.clone();
    jit.define_fn("host", move |passes: i64| {
        let spin = function::<extern "C" fn()>(&inner, "spin");
        let trap = spin.with_fuel(passes as u64).call_guarded();
        i64::from(matches!(trap.unwrap_err().kind, TrapKind::OutOfFuel))
    })
    .expect("defined");
    jit.add_ir(
        "outer",
        "declare i64 @host(i64) define i64 @outer(i64 %n) { %r = call i64 @host(i64 %n) ret i64 %r }",
    )
    .expect("it loads");
    let outer = function::<Number>(&jit, "outer");
    // The inner call has less than is left; then more, and is ended by the outer one's end.
    assert_eq!(outer.with_fuel(10_000).call_guarded(100).ok(), Some(1));
    assert_eq!(outer.with_fuel(100).call_guarded(10_000).ok(), Some(0));
}

#[test]
fn fuel_needs_a_session_that_counts() {
    let jit = Jit::new().expect("a session");
    jit.add_ir("m", "define i64 @one(i64 %x) { ret i64 1 }")
        .expect("it loads");
    let one = function::<Number>(&jit, "one");
    let trap = one.with_fuel(5).call_guarded(0).unwrap_err();
    assert!(matches!(trap.kind, TrapKind::NotCounted), "{trap}");
    assert_eq!(one.call_guarded(0).ok(), Some(1));
}

#[test]
fn a_loop_that_calls_nothing_is_vectorized() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let jit = session(Tiers::Fixed(tier));
        let ir = jit.main().ir("add", tier).expect("it compiles");
        assert!(ir.contains("fadd <"), "{tier:?}:\n{ir}");
        let add = function::<unsafe extern "C" fn(*mut f32, *const f32, i64)>(&jit, "add");
        let (mut a, b) = (vec![1.0; 1000], vec![2.0; 1000]);
        let before = GuestThread::fuel_used();
        // SAFETY: as many numbers as it is told.
        unsafe { add.call(a.as_mut_ptr(), b.as_ptr(), 1000) };
        assert_eq!(GuestThread::fuel_used() - before, 1000);
        assert!(a.iter().all(|&x| x == 3.0));
        // SAFETY: likewise.
        let trap = unsafe {
            add.with_fuel(333)
                .call_guarded(a.as_mut_ptr(), b.as_ptr(), 1000)
        };
        assert!(matches!(trap.unwrap_err().kind, TrapKind::OutOfFuel));
        // The pass that is one too many has done its work, and no other.
        assert!(a[..334].iter().all(|&x| x == 5.0) && a[334..].iter().all(|&x| x == 3.0));
    }
}
