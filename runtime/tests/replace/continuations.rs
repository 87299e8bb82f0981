//! Loops that are left for better code while they run: asked for, offered by the policy, forbidden;
//! beside replacement, removal, and reclaim.

use crate::spinning::{PATIENCE, Spinning, expected, function, left, look, session, spin, wait};
use uruk::{Jit, ReclaimKind, Replacement, Tier, Tiers};

#[test]
fn a_loop_is_left_when_somebody_asks() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let spinning = Spinning::start(function(&jit), 5);
    assert_eq!(left(&jit), 0);
    assert_eq!(jit.main().osr_loops("spin").expect("compiled"), 2);
    wait(|| left(&jit) == 1);
    spinning.pass();
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    let stats = jit.stats().continuations;
    assert_eq!((stats.offered, stats.left), (2, 1));
    assert!(stats.refused.is_empty(), "{:?}", stats.refused);
    // The offer stays in force: the next activation leaves, too.
    let (result, passes) = Spinning::start(function(&jit), 6).end();
    assert_eq!(result, expected(3, 6, passes));
    assert_eq!(left(&jit), 2);
}

#[test]
fn the_policy_has_a_loop_left_that_is_entered_once() {
    // A thread that gets no processor for long stands for an activation that ended, whose passes
    // are then the function's: not every time.
    let stays = (0..10).any(|_| {
        let jit = session(Tiers::Auto, 3);
        let spinning = Spinning::start(function(&jit), 5);
        // The thread may have left the continuation, too, before the test looks.
        wait(|| left(&jit) >= 1);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(3, 5, passes));
        // The function itself was called once and is worth nothing.
        jit.tier("spin").expect("known") == Some(Tier::Baseline)
    });
    assert!(stays);
}

#[test]
fn every_loop_can_be_left_at_any_pass() {
    for passes in [1, 2, 3, 50, 51, 1000] {
        let jit = session(Tiers::Leave(passes), 5);
        let spinning = Spinning::start(function(&jit), 11);
        wait(|| left(&jit) >= 1);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(5, 11, passes));
    }
}

#[test]
fn what_is_forbidden_is_not_left() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    jit.main().forbid_osr("spin", true).expect("known");
    let spinning = Spinning::start(function(&jit), 5);
    assert_eq!(jit.main().osr_loops("spin").expect("nothing"), 0);
    jit.main().forbid_osr("spin", false).expect("known");
    assert_eq!(jit.main().osr_loops("spin").expect("compiled"), 2);
    wait(|| left(&jit) == 1);
    // The thread that left does not come back. A thread that comes later finds no offer.
    jit.main().forbid_osr("spin", true).expect("known");
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
    unsafe { jit.main().define_address("look", look as *const ()) }.expect("a name");
    jit.pause_tiers();
    for round in 0..3 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.add_ir("spin", &spin(3)).expect("added");
        let spinning = Spinning::start(function(&jit), 5);
        assert_eq!(jit.main().osr_loops("spin").expect("compiled"), 2);
        wait(|| left(&jit) == round + 1);
        jit.main().forbid_osr("spin", true).expect("known");
        assert_eq!(jit.main().osr_loops("spin").expect("nothing"), 0);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(3, 5, passes));
        // SAFETY: no thread is inside, and nothing keeps an address.
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
    jit.main().osr_loops("spin").expect("compiled");
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
    assert_eq!(jit.main().osr_loops("spin").expect("compiled"), 2);
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
    unsafe { jit.main().define_address("look", look as *const ()) }.expect("a name");
    let mut held = Vec::new();
    for round in 0..40 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.add_ir("spin", &spin(3)).expect("added");
        let spinning = Spinning::start(function(&jit), round);
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(3, round, passes));
        // SAFETY: no thread is inside, and nothing keeps an address.
        unsafe { tracker.remove() }.expect("removed");
        // The version of tier 1 goes, then what was offered to it.
        wait(|| {
            jit.reclaim(ReclaimKind::Sweep, PATIENCE);
            jit.stats().memory.live == 0 && jit.stats().memory.retired == 0
        });
        held.push(jit.stats().memory.held);
    }
    assert_eq!(left(&jit), 40);
    // Memory that goes with a name is given back by and by: the amount rises and falls, but its
    // maximum does not rise.
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
    jit.main().osr_loops("spin").expect("compiled");
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

#[test]
fn functions_that_stay_are_named_with_the_reason() {
    let jit = Jit::builder().build().expect("a session");
    let ir = "declare ptr @llvm.frameaddress.p0(i32)
        define i64 @stays(i64 %n) {
        entry:
          %frame = call ptr @llvm.frameaddress.p0(i32 0)
          br label %head
        head:
          %i = phi i64 [ 0, %entry ], [ %j, %head ]
          %j = add i64 %i, 1
          %more = icmp ult i64 %j, %n
          br i1 %more, label %head, label %done
        done:
          ret i64 %j
        }
        define i64 @goes(i64 %n) { ret i64 %n }";
    jit.add_ir("stays", ir).expect("valid");
    // SAFETY: the functions have this type.
    let [stays, goes] = ["stays", "goes"]
        .map(|name| unsafe { jit.function::<extern "C" fn(i64) -> i64>(name) }.expect("typed"));
    assert_eq!(stays.call(5) + goes.call(6), 11);
    let named = || {
        let all = jit.stats().staying.functions.into_iter();
        all.map(|(name, why)| format!("{name}: {why}"))
            .collect::<Vec<_>>()
    };
    // Known once a loop is to be left.
    assert!(named().is_empty());
    assert_eq!(jit.main().osr_loops("stays").expect("no loop"), 0);
    assert_eq!(named(), ["stays: no loop can be left: frame address"]);
    jit.compile_at("stays", Tier::Optimized).expect("compiles");
    assert!(named().is_empty());
}

/// The results and the number of loops left of a function `run`.
fn run(ir: &str, tiers: Tiers) -> ([i64; 3], u64) {
    let jit = Jit::builder().tiers(tiers).build().expect("a session");
    jit.add_ir("run", ir).expect("valid");
    // SAFETY: the function has this type.
    let run = unsafe { jit.function::<extern "C" fn(i64) -> i64>("run") };
    let results = [3, 4, 77].map(|n| run.as_ref().expect("typed").call(n));
    (results, left(&jit))
}

/// Code of tier 1 keeps the contents of such an alloca in a register, as no other address of it exists;
/// its continuation gets an address.
#[test]
fn an_alloca_of_any_type_crosses() {
    let types = [
        ("i8", "trunc i64 %x to i8", "zext i8 %old to i64"),
        ("i16", "trunc i64 %x to i16", "sext i16 %old to i64"),
        ("i32", "trunc i64 %x to i32", "zext i32 %old to i64"),
        ("i64", "xor i64 %x, 5", "add i64 %old, 1"),
        (
            "float",
            "uitofp i64 %x to float",
            "fptoui float %old to i64",
        ),
        (
            "double",
            "uitofp i64 %x to double",
            "fptoui double %old to i64",
        ),
        (
            "x86_fp80",
            "uitofp i64 %x to x86_fp80",
            "fptoui x86_fp80 %old to i64",
        ),
    ];
    for (ty, to, from) in types {
        for room in [format!("{{{ty}}}"), format!("[4 x {ty}]"), ty.to_owned()] {
            let ir = format!(
                "define i64 @run(i64 %n) {{
                 entry:
                   %room = alloca {room}, align 16
                   %late = alloca {room}, align 16
                   %first = alloca i64
                   store i64 %n, ptr %first
                   br label %begin
                 begin:
                   %x = load i64, ptr %first
                   %new = {to}
                   store {ty} %new, ptr %room
                   br label %head
                 head:
                   %i = phi i64 [ 0, %begin ], [ %j, %head ]
                   %sum = phi i64 [ 0, %begin ], [ %s, %head ]
                   store {ty} %new, ptr %late
                   %old = load {ty}, ptr %room
                   %number = {from}
                   %s1 = add i64 %sum, %number
                   %s = add i64 %s1, %i
                   %other = load {ty}, ptr %late
                   store {ty} %other, ptr %room
                   %j = add i64 %i, 1
                   %more = icmp ult i64 %j, 60
                   br i1 %more, label %head, label %done
                 done:
                   ret i64 %s
                 }}"
            );
            let (expected, none) = run(&ir, Tiers::Fixed(Tier::Baseline));
            assert_eq!(none, 0);
            for passes in [1, 2, 50] {
                let (found, left) = run(&ir, Tiers::Leave(passes));
                assert_eq!(found, expected, "{room} after {passes} passes");
                assert_eq!(left, 3, "{room} after {passes} passes");
            }
        }
    }
}

/// Two values that are the address of one alloca, which the baseline compiler keeps in a register:
/// their continuation gets the addresses of one copy.
#[test]
fn aliases_of_an_alloca_share_its_contents() {
    let aliases = [
        "%p = freeze ptr %a",
        "%p = getelementptr {}, ptr %a, i64 %n",
        "%p = getelementptr [0 x i32], ptr %a, i64 %n",
        "%p = call ptr @llvm.launder.invariant.group.p0(ptr %a)",
        "%p = call ptr @llvm.strip.invariant.group.p0(ptr %a)",
        "%p = call ptr @llvm.ssa.copy.p0(ptr %a)",
        "%p = call ptr @llvm.ptr.annotation.p0.p0(ptr %a, ptr @of, ptr @of, i32 1, ptr null)",
        "%s = insertvalue {ptr, i32} undef, ptr %a, 0
         %p = extractvalue {ptr, i32} %s, 0",
        "%number = ptrtoint ptr %a to i64
         %p = inttoptr i64 %number to ptr",
        "%q = freeze ptr %a
         %p = freeze ptr %q",
    ];
    for alias in aliases {
        let ir = format!(
            "@of = constant [1 x i8] zeroinitializer
             declare ptr @llvm.launder.invariant.group.p0(ptr)
             declare ptr @llvm.strip.invariant.group.p0(ptr)
             declare ptr @llvm.ssa.copy.p0(ptr)
             declare ptr @llvm.ptr.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)
             define i64 @run(i64 %n) {{
             entry:
               %a = alloca i64
               {alias}
               store i64 %n, ptr %a
               br label %head
             head:
               %i = phi i64 [ 0, %entry ], [ %j, %head ]
               %old = load i64, ptr %a
               %new = add i64 %old, %i
               store i64 %new, ptr %p
               %j = add i64 %i, 1
               %more = icmp ult i64 %j, 60
               br i1 %more, label %head, label %done
             done:
               %sum = load i64, ptr %a
               ret i64 %sum
             }}"
        );
        let (expected, none) = run(&ir, Tiers::Fixed(Tier::Baseline));
        assert_eq!(none, 0);
        for passes in [1, 2, 50] {
            let (found, left) = run(&ir, Tiers::Leave(passes));
            assert_eq!(found, expected, "{alias} after {passes} passes");
            assert_eq!(left, 3, "{alias} after {passes} passes");
        }
    }
}

/// Values that only code without effects uses are in no register: their continuation gets anything
/// in their place, but for a value of which something is assumed.
#[test]
fn loops_are_left_though_nothing_reads_what_crosses() {
    let ir = |more: &str| {
        format!(
            "%pair = type {{ i64, double }}
             declare void @llvm.assume(i1)
             declare double @llvm.fabs.f64(double)
             define i64 @run(i64 %n) {{
             entry:
               %x = mul i64 %n, 3
               %d = uitofp i64 %n to double
               %p0 = insertvalue %pair undef, i64 %x, 0
               %p = insertvalue %pair %p0, double %d, 1
               br label %head
             head:
               %i = phi i64 [ 0, %entry ], [ %j, %head ]
               %unread = phi i64 [ %n, %entry ], [ %next, %head ]
               %sum = phi i64 [ 0, %entry ], [ %s, %head ]
               %next = add i64 %unread, %i
               %dead = udiv i64 %i, %x
               %first = extractvalue %pair %p, 0
               %second = extractvalue %pair %p, 1
               %deader = add i64 %first, %dead
               %deadest = fdiv double %d, %second
               {more}
               %s = xor i64 %sum, %i
               %j = add i64 %i, 1
               %more = icmp ult i64 %j, 60
               br i1 %more, label %head, label %done
             done:
               ret i64 %s
             }}"
        )
    };
    let assumed = "%is = icmp ugt i64 %x, 5
                   call void @llvm.assume(i1 %is)";
    let of_another = "%is = icmp ult i64 %i, 60
                      call void @llvm.assume(i1 %is)";
    let bundled = "%at = inttoptr i64 %x to ptr
                   call void @llvm.assume(i1 true) [\"align\"(ptr %at, i64 1)]";
    for (more, passes, leaves) in [
        ("", 1, 3),
        ("", 50, 3),
        (of_another, 1, 3),
        (assumed, 1, 0),
        (bundled, 1, 0),
    ] {
        let (found, left) = run(&ir(more), Tiers::Leave(passes));
        assert_eq!(found, [0; 3].map(|_| (0..60).fold(0, |sum, i| sum ^ i)));
        assert_eq!(left, leaves, "{more}");
    }
}

/// An interpreter whose table of labels is written by nothing: in one body the label that the head
/// jumps to crosses, in the other one also a label in a variable, and a label in a loop in a loop.
#[test]
fn labels_mean_the_same_behind_a_loop_that_is_left() {
    let direct = "
        next:
          %to = phi ptr [ %first, %entry ], [ %t, %dispatch ]
          %acc = phi i64 [ %n, %entry ], [ %a, %dispatch ]
          %at = phi i64 [ 0, %entry ], [ %at1, %dispatch ]
          indirectbr ptr %to, [label %add, label %mul, label %halt]";
    let variable = "
        next:
          %acc = phi i64 [ %n, %entry ], [ %a, %dispatch ]
          %at = phi i64 [ 0, %entry ], [ %at1, %dispatch ]
          br label %inner
        inner:
          %k = phi i64 [ 0, %next ], [ %k1, %inner ]
          %k1 = add i64 %k, 1
          store volatile i64 %k, ptr %seen
          %again = icmp ult i64 %k1, 3
          br i1 %again, label %inner, label %jump
        jump:
          %to = load ptr, ptr %kept
          indirectbr ptr %to, [label %add, label %mul, label %halt]";
    let body = |next: &str| {
        format!(
            "@ops = internal global [3 x ptr] [ptr blockaddress(@run, %add),
               ptr blockaddress(@run, %mul), ptr blockaddress(@run, %halt)]
             define i64 @run(i64 %n) {{
             entry:
               %seen = alloca i64
               %kept = alloca ptr
               %first = load ptr, ptr @ops
               store ptr %first, ptr %kept
               br label %next
             {next}
             add:
               %sum = add i64 %acc, %at
               br label %dispatch
             mul:
               %product = mul i64 %acc, 31
               br label %dispatch
             dispatch:
               %a = phi i64 [ %sum, %add ], [ %product, %mul ]
               %at1 = add i64 %at, 1
               %bits = xor i64 %a, %at
               %low = and i64 %bits, 1
               %end = icmp ugt i64 %at1, 100
               %op = select i1 %end, i64 2, i64 %low
               %place = getelementptr [3 x ptr], ptr @ops, i64 0, i64 %op
               %t = load ptr, ptr %place
               store ptr %t, ptr %kept
               br label %next
             halt:
               ret i64 %acc
             }}"
        )
    };
    for next in [direct, variable] {
        let ir = body(next);
        let (expected, none) = run(&ir, Tiers::Fixed(Tier::Baseline));
        assert_eq!(none, 0);
        for passes in [1, 2, 50, 100, 201] {
            let (found, left) = run(&ir, Tiers::Leave(passes));
            assert_eq!(found, expected, "after {passes} passes");
            assert!(left > 0 || passes > 101);
        }
    }
}
