//! Labels that module-level assembly does not export: whose they are, and where a body that
//! names one may go.

use uruk::{Error, Jit, ReplaceError, Replacement, Tier};

fn jit() -> Jit {
    Jit::builder().jobs(2).build().expect("a session")
}

fn call(jit: &Jit, name: &str, argument: i32) -> i32 {
    // SAFETY: functions of the tests' modules, which only compute.
    let function = unsafe { jit.function::<extern "C" fn(i32) -> i32>(name) };
    function.expect("typed").call(argument)
}

/// A module whose assembly has a function that multiplies, and a number, both by names that
/// it does not export; `f` makes use of both, and `text` of the function by assembly.
fn module(f: &str, text: &str, factor: u32) -> String {
    format!(
        "module asm \".text\"
         module asm \"scale: imull ${factor}, %edi, %eax\"
         module asm \"ret\"
         module asm \".data\"
         module asm \"number: .long {factor}\"
         module asm \".text\"
         declare i32 @scale(i32)
         @number = external global i32
         define i32 @{f}(i32 %x) {{
           %s = call i32 @scale(i32 %x)
           %n = load i32, ptr @number
           %r = add i32 %s, %n
           ret i32 %r
         }}
         define i32 @{text}(i32 %x) noinline {{
           %r = call i32 asm \"subq $$128, %rsp; call scale; addq $$128, %rsp\",
             \"={{ax}},{{di}},~{{memory}}\"(i32 %x)
           ret i32 %r
         }}"
    )
}

const TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

#[test]
fn a_label_is_its_modules_own() {
    let jit = jit();
    jit.add_ir("a", &module("f", "ft", 2)).expect("valid");
    jit.add_ir("b", &module("g", "gt", 3)).expect("valid");
    for tier in TIERS {
        for name in ["f", "ft", "g", "gt"] {
            jit.compile_at(name, tier).expect("compiles");
        }
        let answers = ["f", "ft", "g", "gt"].map(|name| call(&jit, name, 10));
        assert_eq!(answers, [22, 20, 33, 30], "{tier:?}");
    }
    assert!(jit.lookup("scale").is_err() && jit.lookup("number").is_err());
    let user = "declare i32 @scale(i32)
        define i32 @h(i32 %x) { %r = call i32 @scale(i32 %x) ret i32 %r }";
    let cause = jit.add_ir("c", user).expect_err("nobody exports it");
    assert!(matches!(cause, Error::MissingSymbols { .. }), "{cause}");
}

#[test]
fn a_body_that_is_inlined_elsewhere_means_the_labels_of_its_own_module() {
    for tier in TIERS {
        let jit = jit();
        jit.add_ir("a", &module("f", "ft", 2)).expect("valid");
        let user = module("g", "gt", 3)
            + "declare i32 @f(i32)
               declare i32 @ft(i32)
               define i32 @all(i32 %x) {
                 %a = call i32 @f(i32 %x)
                 %b = call i32 @g(i32 %a)
                 %c = call i32 @ft(i32 %b)
                 %d = call i32 @gt(i32 %c)
                 ret i32 %d
               }";
        jit.add_ir("b", &user).expect("valid");
        jit.compile_at("all", tier).expect("compiles");
        assert_eq!(call(&jit, "all", 10), 414, "{tier:?}");
    }
}

#[test]
fn a_global_of_that_name_is_somebody_elses() {
    let jit = jit();
    let scale = "define i32 @scale(i32 %x) { %r = sub i32 %x, 1 ret i32 %r }";
    jit.add_ir("c", scale).expect("valid");
    jit.add_ir("a", &module("f", "ft", 2)).expect("valid");
    let answers = ["f", "ft", "scale"].map(|name| call(&jit, name, 10));
    assert_eq!(answers, [22, 20, 9]);
}

/// `plain` calls the global `scale`; the module that calls `plain` has a label of that name, which
/// only its assembly knows.
#[test]
fn a_body_that_is_inlined_where_its_global_is_a_label_means_the_global() {
    let scale = "define i32 @scale(i32 %x) noinline { %r = sub i32 %x, 1 ret i32 %r }
        define i32 @plain(i32 %x) { %r = call i32 @scale(i32 %x) ret i32 %r }";
    let user = "module asm \".text\"
        module asm \"scale: imull $7, %edi, %eax\"
        module asm \"ret\"
        declare i32 @plain(i32)
        define i32 @all(i32 %x) { %r = call i32 @plain(i32 %x) ret i32 %r }";
    for tier in TIERS {
        let jit = jit();
        jit.add_ir("c", scale).expect("valid");
        jit.add_ir("a", user).expect("valid");
        jit.compile_at("all", tier).expect("compiles");
        assert_eq!(call(&jit, "all", 10), 9, "{tier:?}");
    }
}

#[test]
fn what_replaces_a_function_means_the_label_too() {
    let jit = jit();
    jit.add_ir("a", &module("f", "ft", 2)).expect("valid");
    jit.add_ir("b", &module("g", "gt", 3)).expect("valid");
    let body = |name: &str, plus: i32| {
        format!(
            "define i32 @{name}(i32 %x) {{
               %s = call i32 @scale(i32 %x) %r = add i32 %s, {plus} ret i32 %r
             }}"
        )
    };
    let replace = |functions: &str| {
        let ir = format!("declare i32 @scale(i32) {functions}");
        jit.main().replace(Replacement::ir("new", &ir))
    };
    assert_eq!(call(&jit, "f", 10), 22);
    // Twice: what a replacement declares is what the next one finds.
    for plus in [100, 200] {
        replace(&body("f", plus)).expect("replaceable");
        for tier in TIERS {
            jit.compile_at("f", tier).expect("compiles");
            assert_eq!(call(&jit, "f", 10), 20 + plus);
        }
    }
    match replace(&format!("{} {}", body("f", 1), body("g", 1))) {
        Err(Error::Replace(cause)) => assert!(
            matches!(&*cause, ReplaceError::Ambiguous { name, count: 2, .. } if name == "scale"),
            "{cause}"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!((call(&jit, "f", 10), call(&jit, "g", 10)), (220, 33));
}
