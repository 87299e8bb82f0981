//! A callee that a function was never seen to call is not inlined into it.

use uruk::{Jit, Tier};

/// A body that is not tiny, and small enough to be inlined.
fn body(name: &str) -> String {
    let mut text = format!("define i32 @{name}(i32 %x) {{\n%v0 = add i32 %x, 3\n");
    for i in 1..20 {
        let before = i - 1;
        text += &format!("%m{i} = mul i32 %v{before}, %x\n%v{i} = xor i32 %m{i}, {i}\n");
    }
    text + "ret i32 %v19\n}\n"
}

/// `f` calls `always` in each round, `last` in round 5,000.
fn program() -> String {
    body("always")
        + &body("last")
        + "define i32 @f(i32 %n) {
           entry: br label %loop
           loop:
             %i = phi i32 [ 0, %entry ], [ %j, %next ]
             %a = phi i32 [ 0, %entry ], [ %b, %next ]
             %always = call i32 @always(i32 %i)
             %sum = add i32 %a, %always
             %is = icmp eq i32 %i, 5000
             br i1 %is, label %rare, label %next
           rare:
             %last = call i32 @last(i32 %sum)
             br label %next
           next:
             %b = phi i32 [ %sum, %loop ], [ %last, %rare ]
             %j = add i32 %i, 1
             %more = icmp slt i32 %j, %n
             br i1 %more, label %loop, label %done
           done:
             ret i32 %b
           }"
}

/// Whether `last` is in `f` at `tiers`, of which the last runs: then it need not be
/// compiled by itself. Before that `f` ran for `rounds` at tier 1.
fn is_inlined(rounds: i32, tiers: &[Tier]) -> bool {
    let result = |jit: &Jit, rounds| {
        // SAFETY: it only computes.
        let f = unsafe { jit.function::<extern "C" fn(i32) -> i32>("f") };
        f.expect("typed").call(rounds)
    };
    let new = || {
        let jit = Jit::new().expect("a session");
        jit.pause_tiers();
        jit.add_ir("m", &program()).expect("valid IR");
        jit
    };
    let expected = result(&new(), 6_000);
    let jit = new();
    result(&jit, rounds);
    for &tier in tiers {
        jit.compile_at("f", tier).expect("compiles");
    }
    assert_eq!(result(&jit, 6_000), expected);
    jit.tier("last").expect("defined").is_none()
}

#[test]
fn what_was_never_called_is_not_inlined() {
    for tiers in [
        &[Tier::Optimized][..],
        &[Tier::Guided],
        &[Tier::Optimized, Tier::Guided],
    ] {
        // Ten rounds say nothing.
        assert!(is_inlined(10, tiers), "{tiers:?}");
        assert!(!is_inlined(4_000, tiers), "{tiers:?}");
    }
}
