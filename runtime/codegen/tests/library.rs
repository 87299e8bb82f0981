//! The callees that a unit sees, and those kept between units.

mod support;

use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{Compile, Compiled, DependenceKind, Rare, Reader, Tier};

fn compile(reader: &mut Reader, function: &str) -> Compiled {
    let (plan, function) = (plan(reader), id(reader, function));
    let how = Compile::at(Tier::Optimized);
    reader.compile(&plan, function, &how).expect("compiles")
}

fn depends(reader: &Reader, compiled: &Compiled) -> Vec<String> {
    let name = |index: usize| reader.summary().symbols[index].name.clone();
    let all = compiled.depends.iter();
    all.map(|one| name(one.symbol.index())).collect()
}

#[test]
fn callees_of_always_inline_functions_are_candidates() {
    let ir = "
        define internal i32 @leaf(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define internal i32 @template(i32 %x) alwaysinline { %y = call i32 @leaf(i32 %x) ret i32 %y }
        define i32 @f(i32 %x) { %y = call i32 @template(i32 %x) ret i32 %y }";
    let mut reader = reader(ir);
    let out = compile(&mut reader, "f");
    assert_eq!(disassemble(&out.object), "lea eax,[rdi+rdi*2]\nret\n");
    assert_eq!(depends(&reader, &out), ["leaf", "template"]);
}

#[test]
fn functions_in_small_tables_are_candidates() {
    let ir = "
        define internal i32 @method(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        @table = private unnamed_addr constant { i64, ptr } { i64 7, ptr @method }
        define internal i32 @dispatch(ptr %table, i32 %x) {
          %place = getelementptr { i64, ptr }, ptr %table, i32 0, i32 1
          %method = load ptr, ptr %place
          %y = call i32 %method(i32 %x)
          ret i32 %y
        }
        define i32 @f(i32 %x) { %y = call i32 @dispatch(ptr @table, i32 %x) ret i32 %y }
        define i32 @g(i32 %x) { %y = call i32 @dispatch(ptr @method, i32 %x) ret i32 %y }";
    let mut reader = reader(ir);
    let out = compile(&mut reader, "f");
    assert_eq!(disassemble(&out.object), "lea eax,[rdi+rdi*2]\nret\n");
    let used = depends(&reader, &out);
    assert!(used.contains(&"method".to_owned()), "{used:?}");
}

#[test]
fn what_one_unit_wanted_serves_the_next_and_is_recorded_there_too() {
    let ir = "
        @limit = internal constant i32 40
        define internal i32 @leaf(i32 %x) { %l = load i32, ptr @limit %y = add i32 %x, %l ret i32 %y }
        define internal i32 @middle(i32 %x) { %y = call i32 @leaf(i32 %x) %z = add i32 %y, 2 ret i32 %z }
        define i32 @f(i32 %x) { %y = call i32 @middle(i32 %x) ret i32 %y }
        define i32 @g(i32 %x) { %y = call i32 @middle(i32 %x) %z = mul i32 %y, 2 ret i32 %z }";
    let mut shared = reader(ir);
    let first = compile(&mut shared, "f");
    let second = compile(&mut shared, "g");
    let alone = compile(&mut reader(ir), "g");
    assert_eq!(describe(&first.object), "defines uruk.body.f");
    assert_eq!(second.object, alone.object);
    for out in [&first, &second, &alone] {
        assert_eq!(depends(&shared, out), ["leaf", "middle", "limit"]);
    }
}

#[test]
fn a_plan_that_binds_otherwise_gets_other_bodies() {
    let ir = "
        define i32 @leaf(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define i32 @middle(i32 %x) { %y = call i32 @leaf(i32 %x) ret i32 %y }
        define i32 @f(i32 %x) { %y = call i32 @middle(i32 %x) ret i32 %y }";
    let mut reader = reader(ir);
    assert_eq!(
        describe(&compile(&mut reader, "f").object),
        "defines uruk.body.f"
    );
    let (mut plan, f, leaf) = (plan(&reader), id(&reader, "f"), id(&reader, "leaf"));
    plan.imports[leaf.index()].defined = false;
    let how = Compile::at(Tier::Optimized);
    let out = reader.compile(&plan, f, &how).expect("compiles");
    // `middle` was simplified with the other `leaf` in it.
    assert!(!disassemble(&out.object).contains("lea eax,[rdi+rdi*2]"));
    assert!(!depends(&reader, &out).contains(&"leaf".to_owned()));
}

#[test]
fn bodies_with_strings_that_passes_made_are_not_kept() {
    let ir = "
        @text = private unnamed_addr constant [4 x i8] c\"hi\\0A\\00\"
        declare i32 @printf(ptr, ...)
        define internal void @greet() { %n = call i32 (ptr, ...) @printf(ptr @text) ret void }
        define void @f() { call void @greet() ret void }";
    let mut reader = reader(ir);
    let out = compile(&mut reader, "f");
    assert_eq!(
        describe(&out.object),
        "defines uruk.body.f\ngreet by type 41"
    );
    let greet = compile(&mut reader, "greet");
    assert!(describe(&greet.object).contains("puts by type 41"));
}

#[test]
fn unoptimized_functions_that_ask_for_their_frame_are_not_inlined() {
    let ir = |attributes: &str| {
        format!(
            "declare ptr @llvm.returnaddress(i32)
             define internal ptr @caller() {attributes} {{ %p = call ptr @llvm.returnaddress(i32 0) ret ptr %p }}
             define ptr @f() {{ %p = call ptr @caller() %q = getelementptr i8, ptr %p, i64 1 ret ptr %q }}"
        )
    };
    for (attributes, inlined) in [
        ("noinline optnone", false),
        ("noinline", false),
        ("", true),
        ("noinline optnone sspreq", false),
    ] {
        let out = compile(&mut reader(&ir(attributes)), "f");
        let calls = describe(&out.object).contains("caller by type 41");
        assert_eq!(calls, !inlined, "{attributes}");
    }
}

/// A body of `count` multiplications: tiny with only a few.
fn long(name: &str, count: usize) -> String {
    let mut text = format!("define internal i32 @{name}(i32 %x) {{\n%v0 = mul i32 %x, 3\n");
    for i in 1..count {
        let before = i - 1;
        text += &format!("%v{i} = mul i32 %v{before}, %x\n");
    }
    text + &format!("ret i32 %v{}\n}}\n", count - 1)
}

#[test]
fn rare_callees_are_called_unless_they_are_tiny() {
    let ir = long("large", 30)
        + &long("tiny", 5)
        + "define internal i32 @middle(i32 %x) {
             %y = call i32 @large(i32 %x) %z = add i32 %y, 7 ret i32 %z
           }
           define i32 @f(i32 %x) {
             %y = call i32 @middle(i32 %x) %z = call i32 @tiny(i32 %y) ret i32 %z
           }
           define i32 @g(i32 %x) {
             %y = call i32 @large(i32 %x) %z = call i32 @middle(i32 %y) ret i32 %z
           }";
    let mut reader = reader(&ir);
    let (plan, large) = (plan(&reader), id(&reader, "large"));
    let tiny = id(&reader, "tiny");
    let mut made = |function: &str, rare: Rare| {
        let how = Compile::at(Tier::Optimized).sparing(rare);
        let function = id(&reader, function);
        let mut out = reader.compile(&plan, function, &how).expect("compiles");
        out.depends.retain(|on| on.kind == DependenceKind::Body);
        (describe(&out.object), depends(&reader, &out))
    };
    let all_are = || Rare::new(|_| true);
    let calls_large = "defines uruk.body.f\nlarge by type 41";
    let (object, used) = made("f", all_are());
    assert_eq!(object, calls_large);
    assert_eq!(used, ["tiny", "middle"]);
    // An entry made without it is usable as long as it is rare.
    let (object, _) = made("f", Rare::new(move |id| id == large || id == tiny));
    assert_eq!(object, calls_large);
    // If it is not rare, it is inlined; also into the existing entry of `middle`.
    let (object, used) = made("g", Rare::new(move |id| id == tiny));
    assert_eq!(object, "defines uruk.body.g");
    assert_eq!(used, ["large", "middle"]);
    // It is in the library now, and still not worth inlining for a rare caller.
    let (object, _) = made("g", all_are());
    assert!(object.contains("large by type 41"), "{object}");
}

/// `middle` calls `leaf`. The budget of `wide` and `wider` is spent on other callees by the
/// time it comes to `leaf`, that of `narrow` is not.
fn layers() -> String {
    let numbers = |count: usize, first: &str| -> String {
        let step = |i: usize| match i {
            0 => format!("%n0 = mul i32 {first}, 3\n"),
            _ => format!("%n{i} = xor i32 %n{0}, {i}{i}\n", i - 1),
        };
        (0..count).map(step).collect()
    };
    // `wider` comes when the library knows the callees of `wide`, so it has callees of its own.
    // Freezes cost nothing to inline, but are instructions that a budget counts.
    let freezes: String = (0..2_470)
        .map(|i| format!("%f{i} = freeze i32 %x\n"))
        .collect();
    let heavy = format!("{freezes} ret i32 %n14");
    let callee = |name: &str, body: &str| {
        let text = numbers(15, "%x");
        format!("define internal i32 @{name}(i32 %x) {{ {text} {body} }}\n")
    };
    let root = |name: &str, others: &[&str]| {
        let call = |other: &&str| format!("%{other} = call i32 @{other}(i32 %x)\n");
        let others: String = others.iter().map(call).collect();
        format!(
            "define i32 @{name}(i32 %x) {{ {others} %y = call i32 @middle(i32 %x) ret i32 %y }}\n"
        )
    };
    [
        callee("leaf", "ret i32 %n14"),
        callee("one", &heavy),
        callee("two", &heavy),
        callee("three", &heavy),
        callee("four", &heavy),
        callee("middle", "%y = call i32 @leaf(i32 %n14) ret i32 %y"),
        root("wide", &["one", "two"]),
        root("wider", &["three", "four"]),
        root("narrow", &[]),
    ]
    .concat()
}

#[test]
fn what_a_budget_left_out_is_made_up_for_once() {
    let calls = |out: &Compiled| describe(&out.object).contains("leaf by type 41");
    let ir = layers();
    // A unit with enough budget inlines both.
    assert!(!calls(&compile(&mut reader(&ir), "narrow")));

    let mut shared = reader(&ir);
    assert!(calls(&compile(&mut shared, "wide")), "its budget is spent");
    assert!(!calls(&compile(&mut shared, "narrow")), "made again");
    // The remade entry also serves units that could not have made it.
    assert!(!calls(&compile(&mut shared, "wider")));

    // A second try that has no better budget is the last.
    let mut shared = reader(&ir);
    assert!(calls(&compile(&mut shared, "wide")));
    assert!(calls(&compile(&mut shared, "wider")));
    assert!(calls(&compile(&mut shared, "narrow")), "made again twice");
}

/// A function of `count` multiplications and calls, too large to be inlined at each call.
fn large(name: &str, linkage: &str, count: usize) -> String {
    let step = |at: usize| {
        let next = at + 1;
        format!("  %m{at} = mul i32 %x{at}, %x{at}\n  %x{next} = call i32 @far(i32 %m{at})\n")
    };
    let body: String = (0..count).map(step).collect();
    format!("define {linkage} i32 @{name}(i32 %x0) {{\n{body}  ret i32 %x{count}\n}}\n")
}

#[test]
fn the_only_call_of_a_local_function_is_inlined_though_it_is_large() {
    let body = |linkage: &str| large("big", linkage, 12);
    let called = |text: &str| {
        let ir = format!("declare i32 @far(i32)\n{text}");
        let mut reader = reader(&ir);
        let out = compile(&mut reader, "f");
        describe(&out.object).contains("big by type 41")
    };
    let once = "define i32 @f(i32 %x) { %y = call i32 @big(i32 %x) ret i32 %y }\n";
    assert!(!called(&format!("{}{once}", body("internal"))));
    let again = "define i32 @g(i32 %x) { %y = call i32 @big(i32 %x) ret i32 %y }\n";
    assert!(called(&format!("{}{once}{again}", body("internal"))));
    let listed = "@list = global ptr @big\n";
    assert!(called(&format!("{}{once}{listed}", body("internal"))));
    // Other modules may call it.
    assert!(called(&format!("{}{once}", body(""))));
}
