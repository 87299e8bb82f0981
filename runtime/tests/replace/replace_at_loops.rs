//! A thread in a loop of a replaced function goes on in the new body, where that has all it needs.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::spinning::{PATIENCE, Spinning, function, left, look, wait};
use uruk::{Jit, LoopStays, OldLoop, PolicyConfig, ReclaimKind, Replaced, Replacement, Tiers};

/// Adds `100^n` for body `n` at every pass of the inner loop, and counts it. What lives across
/// the heads is a phi, a scalar, an array whose address leaves, one whose address does not, and
/// arguments.
fn body(n: usize) -> String {
    let add = 100_i64.pow(n as u32);
    let cell = n + 2;
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
           %seven = load i64, ptr %one
           %first = load i64, ptr %mine
           %nine = load i64, ptr %seen
           %a = add i64 %s, {add}
           %b = add i64 %seven, %nine
           %c = sub i64 %b, 16
           %d = sub i64 %first, %x
           %e = or i64 %c, %d
           %wrong = shl i64 %e, 50
           %f = add i64 %a, %wrong
           store i64 %f, ptr %sum
           %cell = getelementptr i64, ptr %shared, i64 {cell}
           %n = load atomic i64, ptr %cell monotonic, align 8
           %n1 = add i64 %n, 1
           store atomic i64 %n1, ptr %cell release, align 8
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
           ret i64 %end
         }}"
    )
}

/// The value that `spin` returns after its inner loops came round so often.
fn sum(x: i64, counts: [i64; 4]) -> i64 {
    let each = (0..).zip(counts).map(|(n, count)| 100_i64.pow(n) * count);
    x + each.sum::<i64>()
}

/// A session in which nothing moves up by itself.
fn session(text: &str) -> Jit {
    session_keeping(8, text)
}

fn session_keeping(replacements: usize, text: &str) -> Jit {
    let jit = Jit::builder()
        .tiers(Tiers::Auto)
        .replacements_kept(replacements);
    let jit = jit.build().expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("look", look as *const ()) }.expect("a name");
    jit.pause_tiers();
    jit.add_ir("spin", text).expect("added");
    jit
}

fn replace(jit: &Jit, text: &str) -> Replaced {
    let new = Replacement::ir("new", text).osr(true);
    jit.main().replace(new).expect("replaced")
}

/// The outcome of each loop, as text.
fn told(loops: &[OldLoop]) -> Vec<String> {
    let mut told: Vec<String> = loops.iter().map(ToString::to_string).collect();
    told.sort();
    told
}

const GOES_ON: [&str; 2] = [
    "spin, loop inner: goes on in the new body",
    "spin, loop outer: goes on in the new body",
];

/// Waits until a body comes round; then no other does.
fn comes_to(spinning: &Spinning, body: usize) {
    let before = spinning.count(body);
    wait(|| spinning.count(body) > before + 3);
    let others = || [0, 1, 2, 3].map(|it| if it == body { 0 } else { spinning.count(it) });
    let counts = others();
    spinning.pass();
    assert_eq!(others(), counts);
}

#[test]
fn a_running_loop_goes_on_in_the_new_body() {
    let jit = session(&body(0));
    let spinning = Spinning::start(function(&jit), 5);
    let replaced = replace(&jit, &body(1));
    assert_eq!(told(&replaced.loops), GOES_ON);
    comes_to(&spinning, 1);
    // It is below, and returns what the new body does.
    let activations = replaced.activations().expect("a scan");
    let mut named = activations.iter().flat_map(|it| &it.functions);
    assert!(named.any(|it| it == "spin"), "{activations:?}");
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    // A new call runs the new body only.
    let (result, counts) = Spinning::start(function(&jit), 6).end_counted();
    assert_eq!((result, counts[0]), (sum(6, counts), 0));
}

#[test]
fn it_changes_as_often_as_it_is_replaced_and_back() {
    let jit = session(&body(0));
    let spinning = Spinning::start(function(&jit), 5);
    let sets = [1, 2, 3].map(|n| {
        let replaced = replace(&jit, &body(n));
        assert_eq!(told(&replaced.loops), GOES_ON, "{n}");
        comes_to(&spinning, n);
        replaced
    });
    for (n, set) in sets.iter().enumerate().rev() {
        set.rollback().expect("the latest");
        comes_to(&spinning, n);
    }
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
}

#[test]
fn it_moves_up_in_the_new_body() {
    let jit = session(&body(0));
    let spinning = Spinning::start(function(&jit), 5);
    replace(&jit, &body(1));
    comes_to(&spinning, 1);
    let before = left(&jit);
    assert_ne!(jit.main().osr_loops("spin").expect("compiled"), 0);
    wait(|| left(&jit) > before);
    comes_to(&spinning, 1);
    // Optimized code has no way out: it stays where it is, and that is said.
    let replaced = replace(&jit, &body(2));
    let stays = |it: &OldLoop| matches!(it.stays, Some(LoopStays::NoWayOut));
    assert!(replaced.loops.iter().any(stays), "{:?}", replaced.loops);
    comes_to(&spinning, 1);
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
}

#[test]
fn threads_change_each_for_itself() {
    let jit = session(&body(0));
    let all = [1, 2, 3].map(|x| (x, Spinning::start(function(&jit), x)));
    let replaced = replace(&jit, &body(1));
    assert_eq!(told(&replaced.loops), GOES_ON);
    for (_, spinning) in &all {
        comes_to(spinning, 1);
    }
    for (x, spinning) in all {
        let (result, counts) = spinning.end_counted();
        assert_eq!(result, sum(x, counts));
    }
}

#[test]
fn what_does_not_match_goes_on_in_the_old_body_and_is_told_why() {
    let cases = [
        (
            "%sum",
            "%total",
            "the new body needs `total` (alloca align 8 1 x i64), which is not there",
        ),
        (
            "[4 x i64]",
            "[5 x i64]",
            "`seen` is alloca align 8 1 x [4 x i64] and the new body has alloca align 8 1 x [5 x i64]",
        ),
        ("outer", "other", "the new body has no such loop"),
    ];
    for (from, to, why) in cases {
        let jit = session(&body(0));
        let spinning = Spinning::start(function(&jit), 5);
        let replaced = replace(&jit, &body(1).replace(from, to));
        let told = told(&replaced.loops);
        let expected = format!("spin, loop outer: goes on in the old body: {why}");
        assert!(told.contains(&expected), "{told:#?} {expected}");
        if from != "outer" {
            comes_to(&spinning, 0);
        }
        let activations = replaced.activations().expect("a scan");
        assert!(
            activations.iter().any(|it| it.functions == ["spin"]),
            "{activations:?}"
        );
        let (result, counts) = spinning.end_counted();
        assert_eq!(result, sum(5, counts));
        let (result, counts) = Spinning::start(function(&jit), 6).end_counted();
        assert_eq!((result, counts[0]), (sum(6, counts), 0));
    }
}

#[test]
fn nothing_changes_unless_it_is_asked_for_or_where_it_is_forbidden() {
    let jit = session(&body(0));
    let spinning = Spinning::start(function(&jit), 5);
    let replaced = jit.main().replace(Replacement::ir("new", &body(1)));
    assert!(replaced.expect("replaced").loops.is_empty());
    comes_to(&spinning, 0);
    jit.rollback().expect("the latest");
    jit.main().forbid_osr("spin", true).expect("a function");
    let replaced = replace(&jit, &body(1));
    assert_eq!(
        told(&replaced.loops),
        ["spin: goes on in the old body: it is forbidden"]
    );
    comes_to(&spinning, 0);
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
}

/// The same without names, as compilers write them.
fn without_names(text: &str) -> String {
    let mut text = text.to_owned();
    // Blocks and values are numbered as they come.
    let order = "shared x entry sum seen mine one outer i inner j s seven first nine a b c d e \
                 wrong f cell n n1 j1 again latch i1 passes stop over done end";
    for (number, name) in order.split_whitespace().enumerate() {
        let named = |open: &str, close: &str| {
            (
                format!("{open}{name}{close}"),
                format!("{open}{number}{close}"),
            )
        };
        for close in [",", " ", ")", "\n"] {
            let (from, to) = named("%", close);
            text = text.replace(&from, &to);
        }
        let (from, to) = (format!(" {name}:\n"), format!(" {number}:\n"));
        text = text.replace(&from, &to);
    }
    text
}

#[test]
fn without_names_bodies_of_the_same_operations_match() {
    let jit = session(&without_names(&body(0)));
    let spinning = Spinning::start(function(&jit), 5);
    let replaced = replace(&jit, &without_names(&body(1)));
    assert!(replaced.loops.len() == 2 && replaced.loops.iter().all(|it| it.stays.is_none()));
    comes_to(&spinning, 1);
    // One operation more.
    let other = without_names(&body(2)).replace(
        "%33 = load i64, ptr %3\n",
        "fence seq_cst\n%33 = load i64, ptr %3\n",
    );
    assert!(other.contains("fence"), "{other}");
    let replaced = replace(&jit, &other);
    assert!(!replaced.loops.is_empty() && replaced.loops.iter().all(|it| it.stays.is_some()));
    let why = told(&replaced.loops).join("\n");
    assert!(why.contains("without a name"), "{why}");
    comes_to(&spinning, 1);
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
}

#[test]
fn frames_of_both_bodies_outlive_sweeps_and_moves() {
    let jit = session_keeping(0, &body(0));
    let spinning = Spinning::start(function(&jit), 5);
    for n in [1, 2, 3] {
        assert_eq!(told(&replace(&jit, &body(n)).loops), GOES_ON);
        comes_to(&spinning, n);
        for kind in [ReclaimKind::Sweep, ReclaimKind::Evacuate] {
            jit.reclaim(kind, Duration::from_secs(1));
            spinning.pass();
        }
    }
    assert_ne!(jit.stats().memory.retired, 0);
    let (result, counts) = spinning.end_counted();
    assert_eq!(result, sum(5, counts));
    // All that was old goes, continuations too.
    wait(|| {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        jit.stats().memory.retired == 0
    });
}

extern "C-unwind" fn boom(pass: i64, n: i64) -> i64 {
    NEW.fetch_max(n, Ordering::AcqRel);
    match pass == i64::MAX || (n == 2 && STOP.load(Ordering::Acquire)) {
        true => std::panic::panic_any(n),
        false => 0,
    }
}

static NEW: AtomicI64 = AtomicI64::new(-1);
static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn a_panic_passes_the_frames_of_all_bodies() {
    let text = |n: i64| {
        format!(
            "declare i64 @boom(i64, i64)
             define i64 @loops(i64 %x) {{
             entry: br label %head
             head:
               %i = phi i64 [ 0, %entry ], [ %j, %head ]
               %j = add i64 %i, 1
               %r = call i64 @boom(i64 %i, i64 {n})
               %more = icmp eq i64 %r, 0
               br i1 %more, label %head, label %done
             done: ret i64 %j }}"
        )
    };
    let jit = Jit::builder()
        .tiers(Tiers::Auto)
        .build()
        .expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("boom", boom as *const ()) }.expect("a name");
    jit.pause_tiers();
    jit.add_ir("m", &text(0)).expect("added");
    let address = jit.lookup("loops").expect("known") as usize;
    // SAFETY: the function above, through which a panic may pass.
    let loops = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(i64) -> i64>(address) };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<i64>() {
            usual(panic);
        }
    }));
    let thread = std::thread::spawn(move || std::panic::catch_unwind(|| loops(1)));
    wait(|| NEW.load(Ordering::Acquire) == 0);
    for n in [1, 2] {
        let replaced = replace(&jit, &text(n));
        assert_eq!(
            told(&replaced.loops),
            ["loops, loop head: goes on in the new body"]
        );
        wait(|| NEW.load(Ordering::Acquire) == n);
    }
    STOP.store(true, Ordering::Release);
    let caught = thread.join().expect("caught").expect_err("thrown");
    assert_eq!(caught.downcast_ref::<i64>(), Some(&2));
    assert_eq!(left(&jit), 2);
}

/// A variable of the source has its name though the value has none.
#[test]
fn names_for_debuggers_are_names() {
    let text = |operation: &str| {
        format!(
            r#"define i64 @spin(ptr %0, i64 %1) !dbg !5 {{
               %3 = alloca i64
                 #dbg_declare(ptr %3, !10, !DIExpression(), !9)
               store i64 %1, ptr %3
               br label %4
             4:
               %5 = phi i64 [ 0, %2 ], [ %8, %4 ]
                 #dbg_value(i64 %5, !11, !DIExpression(), !9)
               %6 = load i64, ptr %3
               %7 = {operation}
               store i64 %7, ptr %3
               %8 = add i64 %5, 1
               %9 = getelementptr i64, ptr %0, i64 1
               store atomic i64 %8, ptr %9 release, align 8
               %10 = load atomic i64, ptr %0 acquire, align 8
               %11 = icmp ne i64 %10, 0
               br i1 %11, label %12, label %4
             12:
               %13 = load i64, ptr %3
               ret i64 %13
             }}
             !llvm.module.flags = !{{!0}}
             !llvm.dbg.cu = !{{!1}}
             !0 = !{{i32 2, !"Debug Info Version", i32 3}}
             !1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, emissionKind: FullDebug)
             !2 = !DIFile(filename: "spin.c", directory: "/")
             !3 = !DISubroutineType(types: !4)
             !4 = !{{null}}
             !5 = distinct !DISubprogram(name: "spin", scope: !2, file: !2, line: 1, type: !3,
                                         unit: !1, spFlags: DISPFlagDefinition)
             !6 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
             !9 = !DILocation(line: 1, column: 1, scope: !5)
             !10 = !DILocalVariable(name: "sum", scope: !5, file: !2, line: 1, type: !6)
             !11 = !DILocalVariable(name: "i", scope: !5, file: !2, line: 1, type: !6)"#
        )
    };
    let jit = session(&text("add i64 %6, 0"));
    let spinning = Spinning::start(function(&jit), 5);
    // Other operations: only names say what is what.
    let replaced = replace(&jit, &text("or i64 %6, 256"));
    let goes_on = replaced.loops.iter().all(|it| it.stays.is_none());
    assert!(goes_on && replaced.loops.len() == 1, "{:?}", replaced.loops);
    wait(|| left(&jit) >= 1);
    spinning.pass();
    let again = replace(
        &jit,
        &text("or i64 %6, 512").replace("\"sum\"", "\"total\""),
    );
    let [only] = &again.loops[..] else {
        panic!("{:?}", again.loops)
    };
    let Some(LoopStays::Mismatch(why)) = &only.stays else {
        panic!("{only}")
    };
    assert!(why.contains("needs `total` (alloca"), "{why}");
    assert_eq!(spinning.end().0, 5 | 256);
}

/// Calls of [`turn`]; how many may return; the body of the last call; whether the loop ends.
static TURNS: AtomicI64 = AtomicI64::new(0);
static TICKETS: AtomicI64 = AtomicI64::new(0);
static LAST: AtomicI64 = AtomicI64::new(-1);
static OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn turn(body: i64) -> i64 {
    LAST.store(body, Ordering::Relaxed);
    let own = TURNS.fetch_add(1, Ordering::Release);
    wait(|| TICKETS.load(Ordering::Acquire) > own);
    i64::from(OVER.load(Ordering::Relaxed))
}

/// A loop that comes round twice between replacements, or not at all, goes on in the last body.
#[test]
fn a_slow_loop_goes_on_in_the_last_of_several_bodies() {
    let text = |n: usize| {
        format!(
            "declare i64 @turn(i64)
             define i64 @slow() {{
             entry: br label %loop
             loop:
               %over = call i64 @turn(i64 {n})
               %again = icmp eq i64 %over, 0
               br i1 %again, label %loop, label %done
             done: ret i64 {n}
             }}"
        )
    };
    // No thread reads the counts of passes meanwhile.
    let mut policy = PolicyConfig::default();
    policy.set("poll_min", "60s").expect("a setting");
    policy.set("poll_max", "60s").expect("a setting");
    let jit = Jit::builder().policy(policy).build().expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("turn", turn as *const ()) }.expect("a name");
    jit.pause_tiers();
    jit.add_ir("slow", &text(0)).expect("added");
    // SAFETY: it has this type.
    let slow = unsafe { jit.function::<extern "C" fn() -> i64>("slow") }.expect("a function");
    std::thread::scope(|scope| {
        let looping = scope.spawn(move || slow.call());
        let mut body = 0;
        for round in 0..40 {
            let turns = TURNS.load(Ordering::Acquire) + 2;
            TICKETS.fetch_add(2, Ordering::Release);
            wait(|| TURNS.load(Ordering::Acquire) >= turns);
            assert_eq!(LAST.load(Ordering::Relaxed), body, "{round}");
            for _ in 0..round % 4 {
                body += 1;
                replace(&jit, &text(body as usize));
            }
        }
        OVER.store(true, Ordering::Relaxed);
        TICKETS.store(i64::MAX, Ordering::Release);
        assert_eq!(
            looping.join().expect("it ends"),
            LAST.load(Ordering::Relaxed)
        );
    });
}
