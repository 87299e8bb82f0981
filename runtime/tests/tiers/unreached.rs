//! Code that LLVM takes for unreachable traps, whichever compiler and tier made it: what lies behind
//! it in memory does not run.

use uruk::{Baseline, Jit, Tier, Tiers, TrapKind};

/// Functions that end without a return: at once, behind a call that is said not to return and does,
/// and where a condition does not hold. `@inside` has a table of cases of which the others are
/// impossible, and is right.
const TEXT: &str = "
    declare void @comes_back() noreturn
    define i64 @at_once(i64 %n) noinline { unreachable }
    define i64 @behind(i64 %n) noinline {
      call void @comes_back()
      unreachable
    }
    define i64 @beside(i64 %n) noinline {
      %is = icmp ult i64 %n, 5
      br i1 %is, label %fine, label %other
    fine:
      ret i64 7
    other:
      call void @comes_back()
      unreachable
    }
    define i64 @inside(i64 %n) noinline {
      switch i64 %n, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d ]
    a: ret i64 10
    b: ret i64 21
    c: ret i64 12
    d: ret i64 43
    other: unreachable
    }
    define i64 @neighbour(i64 %n) noinline { ret i64 99 }";

#[test]
fn code_that_is_not_to_be_reached_traps() {
    for (tier, baseline) in [
        (Tier::Baseline, Baseline::On),
        (Tier::Baseline, Baseline::Off),
        (Tier::Optimized, Baseline::On),
        (Tier::Guided, Baseline::On),
    ] {
        let builder = Jit::builder().tiers(Tiers::Fixed(tier)).baseline(baseline);
        let jit = builder.build().expect("a session");
        jit.define_fn("comes_back", || ()).expect("defined");
        jit.add_ir("m", TEXT).expect("a module");
        let call = |name: &str, given: i64| {
            // SAFETY: as their definitions.
            let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name) };
            function.expect("found").call_guarded(given)
        };
        assert_eq!(call("neighbour", 0).ok(), Some(99));
        for (name, given) in [("at_once", 1), ("behind", 2), ("beside", 8)] {
            let trap = call(name, given).expect_err(name);
            assert!(
                matches!(trap.kind, TrapKind::Illegal),
                "{name} at {tier:?}: {trap}"
            );
            assert_eq!(trap.function(), Some(name), "{tier:?}");
        }
        assert_eq!(call("beside", 4).ok(), Some(7));
        let all: Vec<_> = (0..4).map(|given| call("inside", given).ok()).collect();
        assert_eq!(all, [10, 21, 12, 43].map(Some), "{tier:?}");
    }
}
