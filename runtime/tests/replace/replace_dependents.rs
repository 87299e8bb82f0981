//! Code that holds, or relies on, a body that is replaced is replaced with it: without the
//! records of what a version depends on each of these patches would be partial.

use uruk::{Baseline, Jit, Replacement, Tier};

fn jit(ir: &str) -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", ir).expect("valid IR");
    jit
}

fn call(jit: &Jit, name: &str, argument: i32) -> i32 {
    // SAFETY: functions of the tests' modules, which only compute.
    let function = unsafe { jit.function::<extern "C" fn(i32) -> i32>(name) };
    function.expect("typed").call(argument)
}

fn replace(jit: &Jit, ir: &str) -> Vec<String> {
    let replaced = jit.main().replace(Replacement::ir("new", ir));
    replaced.expect("replaceable").dependents
}

/// A function that is too long to be inlined.
fn long(name: &str, step: &str, end: &str) -> String {
    let mut text = format!(
        "@sink = external global i32\ndefine i32 @{name}(i32 %x) {{\n%a0 = add i32 %x, 1\n"
    );
    for i in 1..70 {
        text += &step
            .replace("NEW", &format!("%a{i}"))
            .replace("OLD", &format!("%a{}", i - 1));
        text += "\n";
    }
    text + &end.replace("LAST", "%a69") + "\n}\n"
}

#[test]
fn a_body_that_was_inlined() {
    let jit = jit("define i32 @g(i32 %x) { %y = add i32 %x, 1 ret i32 %y }
        define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }
        define i32 @e(i32 %x) { %y = call i32 @f(i32 %x) ret i32 %y }
        define i32 @other(i32 %x) { ret i32 %x }");
    for name in ["e", "f", "other"] {
        jit.compile_at(name, Tier::Optimized).expect("compiles");
    }
    assert_eq!((call(&jit, "e", 1), call(&jit, "f", 1)), (2, 2));
    // `e` has inlined `f`, and with it `g`.
    let new = "define i32 @g(i32 %x) { %y = add i32 %x, 100 ret i32 %y }";
    assert_eq!(replace(&jit, new), ["f", "e"]);
    assert_eq!((call(&jit, "e", 1), call(&jit, "f", 1)), (101, 101));
    assert_eq!(jit.tier("f").expect("known"), Some(Tier::Baseline));
    assert_eq!(jit.tier("other").expect("known"), Some(Tier::Optimized));
    // The old module offers its old body no more.
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    jit.compile_at("e", Tier::Guided).expect("compiles");
    assert_eq!((call(&jit, "e", 1), call(&jit, "f", 1)), (101, 101));
    // The way back: now nothing depends on the new body.
    let back = jit.rollback().expect("the latest");
    let names = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (back.functions, back.dependents),
        (names(&["g"]), names(&["f", "e"]))
    );
    assert_eq!((call(&jit, "e", 1), call(&jit, "f", 1)), (2, 2));
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 2);
    assert_eq!(replace(&jit, new), ["f"]);
    assert_eq!((call(&jit, "e", 1), call(&jit, "f", 1)), (101, 101));
}

#[test]
fn a_body_that_is_always_inlined() {
    // The baseline compiler calls what LLVM copies at every tier.
    for (baseline, tier, dependents) in [
        (Baseline::Off, Tier::Baseline, &["f"][..]),
        (Baseline::On, Tier::Baseline, &[]),
        (Baseline::On, Tier::Optimized, &["f"]),
    ] {
        let jit = Jit::builder().jobs(2).baseline(baseline);
        let jit = jit.build().expect("a session");
        let g = |value: i32| format!("define i32 @g(i32 %x) alwaysinline {{ ret i32 {value} }}\n");
        let f = "define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }";
        jit.add_ir("m", &(g(1) + f)).expect("valid IR");
        jit.compile_at("f", tier).expect("compiles");
        assert_eq!(call(&jit, "f", 0), 1);
        assert_eq!(replace(&jit, &g(2)), dependents);
        assert_eq!(call(&jit, "f", 0), 2);
        jit.compile_at("f", Tier::Optimized).expect("compiles");
        assert_eq!(call(&jit, "f", 0), 2);
    }
}

#[test]
fn a_constant_that_was_propagated() {
    let step = "store volatile i32 OLD, ptr @sink\nNEW = add i32 OLD, 1";
    let (one, two) = (long("g", step, "ret i32 1"), long("g", step, "ret i32 2"));
    let own = one.replace("@sink = external global i32", "@sink = global i32 0");
    let jit = jit(&(own + "define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }"));
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 1);
    assert_eq!(replace(&jit, &two), ["f"]);
    assert_eq!(call(&jit, "f", 0), 2);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 2);
}

#[test]
fn an_attribute_that_was_inferred() {
    let pure = long("g", "NEW = mul i32 OLD, 3", "ret i32 LAST");
    let counting = long(
        "g",
        "NEW = mul i32 OLD, 3",
        "%s = load i32, ptr @sink\n%t = add i32 %s, 1\nstore i32 %t, ptr @sink\nret i32 LAST",
    );
    let own = pure.replace("@sink = external global i32", "@sink = global i32 0");
    let jit = jit(&(own
        + "
        define i32 @f(i32 %n) {
        entry: br label %loop
        loop:
          %i = phi i32 [ 0, %entry ], [ %j, %loop ]
          %y = call i32 @g(i32 7)
          %j = add i32 %i, 1
          %more = icmp slt i32 %j, %n
          br i1 %more, label %loop, label %done
        done:
          ret i32 %y
        }
        define i32 @calls(i32 %x) { %s = load i32, ptr @sink ret i32 %s }"));
    // `g` reads and writes nothing: one call does for all rounds.
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    call(&jit, "f", 10);
    assert_eq!(replace(&jit, &counting), ["f"]);
    call(&jit, "f", 10);
    assert_eq!(call(&jit, "calls", 0), 10);
    // Nor does a later compile believe what was said of the old body.
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    call(&jit, "f", 10);
    assert_eq!(call(&jit, "calls", 0), 20);
}

#[test]
fn an_attribute_that_was_declared() {
    let jit = jit("@sink = global i32 0
        define i32 @g(i32 %x) memory(none) willreturn nounwind { ret i32 %x }
        define i32 @f(i32 %x) { %a = call i32 @g(i32 %x) ret i32 5 }
        define i32 @calls(i32 %x) { %s = load i32, ptr @sink ret i32 %s }");
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 5);
    let new = "@sink = external global i32
        define i32 @g(i32 %x) { store i32 %x, ptr @sink ret i32 %x }";
    assert_eq!(replace(&jit, new), ["f"]);
    call(&jit, "f", 3);
    assert_eq!(call(&jit, "calls", 0), 3);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    call(&jit, "f", 4);
    assert_eq!(call(&jit, "calls", 0), 4);
}

#[test]
fn a_copy_for_the_optimizer_in_another_module() {
    let jit = jit("define i32 @g(i32 %x) { ret i32 1 }");
    jit.add_ir(
        "n",
        "define available_externally i32 @g(i32 %x) { ret i32 1 }
         define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }",
    )
    .expect("valid");
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 1);
    assert_eq!(replace(&jit, "define i32 @g(i32 %x) { ret i32 2 }"), ["f"]);
    assert_eq!(call(&jit, "f", 0), 2);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 2);
}

#[test]
fn members_of_a_set_are_inlined_into_each_other() {
    let set = |n: i32| {
        format!(
            "define i32 @g(i32 %x) {{ ret i32 {n} }}
        define i32 @f(i32 %x) {{ %y = call i32 @g(i32 %x) ret i32 %y }}"
        )
    };
    let jit = jit(&set(1));
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert!(replace(&jit, &set(2)).is_empty());
    assert_eq!(jit.tier("f").expect("known"), Some(Tier::Optimized));
    assert_eq!(call(&jit, "f", 0), 2);
    assert_eq!(replace(&jit, "define i32 @g(i32 %x) { ret i32 3 }"), ["f"]);
    assert_eq!(call(&jit, "f", 0), 3);
    jit.rollback().expect("the latest");
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 2);
    jit.rollback().expect("the first");
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 0), 1);
}
