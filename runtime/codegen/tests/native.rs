//! Modules of a native program, rebound to the program's symbols.

mod support;

use support::{bitcode, text};
use uruk_codegen::native::{
    Choices, FunctionChoice, Keep, Method, Survey, VariableChoice, rebind, renew, source,
};
use uruk_codegen::{Bitcode, fatal};

/// Everything stays, under its own name; functions with `mark` have native addresses.
fn as_it_is(survey: &Survey) -> Choices {
    Choices {
        functions: survey
            .functions
            .iter()
            .map(|info| FunctionChoice {
                name: info.name.clone(),
                keep: Keep::Body,
                address: Some(format!("at.{}", info.name)),
            })
            .collect(),
        variables: survey
            .variables
            .iter()
            .map(|info| match info.thread_local {
                true => VariableChoice::ThreadLocal(-16),
                false => VariableChoice::Named(format!("its.{}", info.name)),
            })
            .collect(),
    }
}

fn rebound(ir: &str, choose: impl FnMut(&Survey) -> Choices) -> String {
    let bytes = bitcode(ir);
    let made = fatal::guard(|_| {}, || rebind("m", &bytes, choose));
    text(&made.expect("it can be rebound"))
}

#[test]
fn variables_become_the_programs() {
    let out = rebound(
        "@counter = internal global i32 3
         @limit = constant i32 7
         define i32 @f() {
           %a = load i32, ptr @counter
           %b = load i32, ptr @limit
           %c = add i32 %a, %b
           ret i32 %c
         }",
        as_it_is,
    );
    assert!(out.contains("@its.counter = external"), "{out}");
    // Its value is still known to the optimizer.
    assert!(
        out.contains("@its.limit = available_externally constant i32 7"),
        "{out}"
    );
}

#[test]
fn calls_stay_and_addresses_are_the_programs() {
    let out = rebound(
        "@table = constant [1 x ptr] [ptr @f]
         define i32 @f(i32 %x) { ret i32 %x }
         define i1 @g(ptr %p) {
           %a = call i32 @f(i32 1)
           %b = icmp eq ptr %p, @f
           ret i1 %b
         }",
        as_it_is,
    );
    assert!(out.contains("call i32 @f(i32 1)"), "{out}");
    assert!(out.contains("icmp eq ptr %p, @at.f"), "{out}");
    assert!(out.contains("[1 x ptr] [ptr @at.f]"), "{out}");
    assert!(out.contains("declare i32 @at.f(i32)"), "{out}");
}

#[test]
fn labels_stay_labels_of_their_function() {
    let out = rebound(
        "@labels = internal constant [2 x ptr] [ptr blockaddress(@f, %a), ptr blockaddress(@f, %b)]
         define i32 @f(i64 %x) {
           %p = getelementptr ptr, ptr @labels, i64 %x
           %l = load ptr, ptr %p
           indirectbr ptr %l, [label %a, label %b]
         a:
           ret i32 1
         b:
           ret i32 2
         }",
        |survey| {
            assert!(survey.variables[0].labels && !survey.functions[0].labels);
            let mut choices = as_it_is(survey);
            choices.variables[0] = VariableChoice::Own;
            choices
        },
    );
    assert!(out.contains("blockaddress(@f, %a)"), "{out}");
}

#[test]
fn thread_locals_become_distances() {
    let out = rebound(
        "@t = internal thread_local global i32 0
         declare ptr @llvm.threadlocal.address.p0(ptr)
         define void @f() {
           %p = call ptr @llvm.threadlocal.address.p0(ptr @t)
           store i32 1, ptr %p
           ret void
         }",
        |survey| {
            assert!(!survey.variables[0].odd_thread_local);
            as_it_is(survey)
        },
    );
    assert!(out.contains("@llvm.thread.pointer.p0()"), "{out}");
    assert!(out.contains("i64 -16"), "{out}");
}

#[test]
fn what_had_its_effect_goes() {
    let out = rebound(
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
         @llvm.compiler.used = appending global [1 x ptr] [ptr @kept]
         @kept = internal global i32 0
         @other = alias i32 (), ptr @one
         module asm \".globl nothing\"
         define internal void @start() { ret void }
         define i32 @one() { ret i32 1 }
         define i32 @two() { %a = call i32 @other() ret i32 %a }",
        |survey| {
            let start = survey.functions.iter().find(|info| info.name == "start");
            assert!(!start.expect("listed").address_taken);
            let mut choices = as_it_is(survey);
            choices.functions.iter_mut().for_each(|choice| choice.address = None);
            choices
        },
    );
    assert!(
        !out.contains("llvm.global_ctors") && !out.contains("module asm"),
        "{out}"
    );
    assert!(out.contains("call i32 @one()"), "{out}");
}

#[test]
fn bodies_can_be_copies_or_go() {
    let out = rebound(
        "define linkonce_odr i32 @copy() { ret i32 1 }
         define i32 @gone() { ret i32 2 }
         define i32 @f() { %a = call i32 @copy() %b = call i32 @gone() ret i32 %b }",
        |survey| {
            let mut choices = as_it_is(survey);
            choices.functions[0].keep = Keep::Copy;
            choices.functions[1].keep = Keep::Nothing;
            choices
        },
    );
    assert!(
        out.contains("define available_externally i32 @copy()"),
        "{out}"
    );
    assert!(out.contains("declare i32 @gone()"), "{out}");
}

#[test]
fn a_survey_tells_what_the_optimizer_may_have_changed() {
    let mut seen = Survey::default();
    rebound(
        "@flag = internal global i8 97
         @byte = internal global i8 0
         define void @set() { store i8 98, ptr @flag store i8 1, ptr @byte ret void }
         define i8 @get() { %a = load i8, ptr @flag %b = load i8, ptr @byte %c = add i8 %a, %b ret i8 %c }
         define i64 @late() { %a = call i64 asm \"call somewhere\", \"=r\"() ret i64 %a }
         define i64 @plain() { %a = call i64 asm \"movl $$1, $0\", \"=r\"() ret i64 %a }",
        |survey| {
            seen = survey.clone();
            as_it_is(survey)
        },
    );
    let variable = |name: &str| {
        seen.variables
            .iter()
            .find(|info| info.name == name)
            .expect(name)
    };
    let function = |name: &str| {
        seen.functions
            .iter()
            .find(|info| info.name == name)
            .expect(name)
    };
    assert!(variable("flag").flag && variable("flag").size == 1);
    // A flag has the same bytes.
    assert!(!variable("byte").flag);
    assert!(function("late").assembly && !function("plain").assembly);
    assert_eq!(function("set").variables, [0, 1]);
}

#[test]
fn damage_is_an_error() {
    let mut bytes = bitcode("source_filename = \"a/b.c\" define void @f() { ret void }");
    let found = fatal::guard(|_| {}, || source("m", &bytes));
    assert_eq!(found.expect("bitcode"), "a/b.c");
    bytes.truncate(bytes.len() / 2);
    assert!(fatal::guard(|_| {}, || rebind("m", &bytes, as_it_is)).is_err());
    let few = |_: &Survey| Choices::default();
    let whole = bitcode("define void @f() { ret void }");
    assert!(fatal::guard(|_| {}, || rebind("m", &whole, few)).is_err());
    // The same bytes can be read as a module of the session.
    let _ = Bitcode::new("m", whole);
}

/// Keeps bodies of functions, and of those that they are said to call, as far as `wanted` says.
fn kept(survey: &Survey, wanted: &[&str]) -> Choices {
    let mut choices = as_it_is(survey);
    let is_called = |number: usize| {
        let mut callers = survey.functions.iter();
        callers.any(|it| wanted.contains(&&*it.name) && it.functions.contains(&(number as u32)))
    };
    for (number, info) in survey.functions.iter().enumerate() {
        if !(wanted.contains(&&*info.name) || is_called(number)) {
            choices.functions[number].keep = Keep::Nothing;
        }
    }
    choices
}

#[test]
fn a_renewed_module_has_the_bodies_that_are_kept_and_no_other() {
    let ir = "@labels = internal constant [2 x ptr] [ptr blockaddress(@jumps, %a), ptr blockaddress(@jumps, %b)]
         @counter = internal global i32 3
         @second = alias i32 (i32), ptr @called
         define i32 @changed(i32 %x) { %y = call i32 @second(i32 %x) ret i32 %y }
         define i32 @called(i32 %x) { %y = load i32, ptr @counter ret i32 %y }
         define i32 @unchanged(i32 %x) { %y = call i32 @called(i32 7) ret i32 %y }
         define void @jumps(i32 %x) {
           %p = getelementptr [2 x ptr], ptr @labels, i32 0, i32 %x
           %l = load ptr, ptr %p
           indirectbr ptr %l, [label %a, label %b]
         a: ret void
         b: ret void
         }";
    let bytes = bitcode(ir);
    for method in [Method::Records, Method::Text] {
        let (mut compared, mut asked) = (None, 0);
        let renewed = fatal::guard(
            |_| {},
            || {
                let compare = |contents| {
                    compared = Some(contents);
                    true
                };
                renew("m", &bytes, method, compare, |survey| {
                    asked += 1;
                    kept(survey, &["changed"])
                })
            },
        );
        let contents = compared.expect("it was compared");
        assert_eq!(contents.method, method);
        assert_eq!(contents.functions.len(), 4);
        let out = text(&renewed.expect("it can be renewed"));
        assert!(out.contains("define i32 @changed"), "{out}");
        assert!(out.contains("define i32 @called"), "{out}");
        assert!(out.contains("call i32 @called(i32 %x)"), "{out}");
        assert!(out.contains("@its.counter = external"), "{out}");
        assert!(!out.contains("define i32 @unchanged"), "{out}");
        assert!(!out.contains("define void @jumps"), "{out}");
        // Of unread bodies nothing is known: that of `called` is met once `changed` was read.
        let most = if method == Method::Records { 3 } else { 1 };
        assert_eq!(asked, most);
    }
}
