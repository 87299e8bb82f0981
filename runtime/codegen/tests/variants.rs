//! Effects of a variant on the code of a function.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use object::{Object, ObjectSection, ObjectSymbol};
use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{Compile, Compiled, Counters, DependenceKind, Profile, Steady, Tier, Variant};

fn varied(words: &str) -> Compile {
    Compile::at(Tier::Optimized).varied(words.parse().expect("words of a variant"))
}

fn compile(ir: &str, how: &Compile) -> Compiled {
    let mut reader = reader(ir);
    let (plan, function) = (plan(&reader), id(&reader, "f"));
    reader.compile(&plan, function, how).expect("compiles")
}

/// The code, and the IR from which it is made.
fn listed(ir: &str, how: &Compile) -> (Compiled, String) {
    let mut how = how.clone();
    let listing = Arc::new(OnceLock::new());
    how.listing = Some(Arc::clone(&listing));
    let out = compile(ir, &how);
    (out, listing.get().expect("what was emitted").clone())
}

fn steady(argument: u32, bits: u64) -> Vec<Steady> {
    vec![Steady { argument, bits }]
}

/// The sum of a number's digits in a base. (For a lone division LLVM sees that both arms are the
/// same.)
const DIGITS: &str = "define i64 @f(i64 %x, i64 %y) {
    entry: br label %loop
    loop:
      %left = phi i64 [ %x, %entry ], [ %rest, %loop ]
      %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
      %digit = urem i64 %left, %y
      %rest = udiv i64 %left, %y
      %more = add i64 %sum, %digit
      %is = icmp ne i64 %rest, 0
      br i1 %is, label %loop, label %done
    done: ret i64 %more
    }";

#[test]
fn a_usual_value_has_code_of_its_own_behind_a_comparison() {
    let how = varied("values").assuming(steady(1, 10));
    let out = compile(DIGITS, &how);
    assert_eq!(out.assumed, 1);
    assert_eq!(describe(&out.object), "defines uruk.body.f");
    let code = disassemble(&out.object);
    let divisions = |code: &str| code.lines().filter(|it| it.starts_with("div ")).count();
    // LLVM has the shorter one where the numbers are small.
    let plain = divisions(&disassemble(&compile(DIGITS, &varied("plain")).object));
    assert!(code.contains(",0Ah") && code.contains("mul"), "{code}");
    assert_eq!(divisions(&code), plain, "{code}");
    // The variant must request it, and a value must be given.
    for how in [varied("plain").assuming(steady(1, 10)), varied("values")] {
        assert_eq!(compile(DIGITS, &how).assumed, 0);
    }
    // No such argument, or one of another kind.
    for values in [steady(2, 10), steady(7, 0)] {
        let out = compile(DIGITS, &varied("values").assuming(values));
        assert_eq!(out.assumed, 0);
    }
    let ir = "define double @f(double %x, float %y) {
        %z = fpext float %y to double %r = fmul double %x, %z ret double %r }";
    let half = steady(1, u64::from(0.5f32.to_bits()));
    let out = compile(ir, &varied("values").assuming(half));
    assert_eq!(out.assumed, 1);
}

#[test]
fn tier_3_has_such_code_by_itself_for_a_small_limit_of_a_loop() {
    let guided = |ir: &str, bits| {
        let how = Compile::at(Tier::Guided).assuming(steady(1, bits));
        compile(ir, &how).assumed
    };
    assert_eq!(guided(DIGITS, 10), 1);
    for no_limit in [0, 1, 100, u64::MAX] {
        assert_eq!(guided(DIGITS, no_limit), 0, "{no_limit}");
    }
    let no_loop = "define i64 @f(i64 %x, i64 %y) { %z = udiv i64 %x, %y ret i64 %z }";
    assert_eq!(guided(no_loop, 10), 0);
}

#[test]
fn what_cannot_be_had_twice_stays_one() {
    for ir in [
        "define i64 @f(i64 %x, ...) { %y = add i64 %x, 1 ret i64 %y }",
        "declare i64 @g(i64)
         define i64 @f(i64 %x) { %y = musttail call i64 @g(i64 %x) ret i64 %y }",
        "declare i32 @_setjmp(ptr) returns_twice
         define i64 @f(i64 %x) {
           %there = alloca [32 x i64]
           %again = call i32 @_setjmp(ptr %there)
           %wide = zext i32 %again to i64
           %y = add i64 %x, %wide
           ret i64 %y }",
    ] {
        let how = varied("values").assuming(steady(0, 7));
        let out = compile(ir, &how);
        assert_eq!((out.assumed, out.callees), (0, 0), "{ir}");
    }
}

#[test]
fn one_callee_stays_apart() {
    let ir = "
        define internal i64 @first(i64 %x) { %y = mul i64 %x, 11 ret i64 %y }
        define internal i64 @second(i64 %x) { %y = xor i64 %x, 99 ret i64 %y }
        define i64 @f(i64 %x) {
          %a = call i64 @first(i64 %x)
          %b = call i64 @second(i64 %a)
          %c = call i64 @first(i64 %b)
          ret i64 %c
        }";
    let relies = |words: &str| {
        let mut reader = reader(ir);
        let (plan, function) = (plan(&reader), id(&reader, "f"));
        let out = reader
            .compile(&plan, function, &varied(words))
            .expect("compiles");
        assert_eq!(out.callees, 2);
        let bodies = out
            .depends
            .iter()
            .filter(|it| it.kind == DependenceKind::Body);
        let count = ["first", "second"].map(|name| {
            let symbol = id(&reader, name);
            bodies.clone().filter(|it| it.symbol == symbol).count()
        });
        let object = describe(&out.object);
        let called = ["first", "second"].map(|name| object.contains(&format!("{name} by type")));
        (count, called)
    };
    assert_eq!(relies("plain"), ([1, 1], [false, false]));
    assert_eq!(relies("apart=0"), ([0, 1], [true, false]));
    assert_eq!(relies("apart=1"), ([1, 0], [false, true]));
    assert_eq!(relies("apart=0 apart=1"), ([0, 0], [true, true]));
    assert_eq!(relies("apart=5"), ([1, 1], [false, false]));
}

/// A function of so many steps, none of which LLVM can remove, with a caller, and a caller of that.
fn long_callee(steps: u32) -> String {
    let step = |number: u32| {
        let odd = 2 * number + 3;
        format!(
            "%m{number} = mul i64 %x{number}, {odd}
             %s{number} = lshr i64 %m{number}, {}
             %x{} = xor i64 %s{number}, %m{number}\n",
            number % 40 + 7,
            number + 1
        )
    };
    let steps_of_it: String = (0..steps).map(step).collect();
    format!(
        "define i64 @long(i64 %x0) {{ {steps_of_it} ret i64 %x{steps} }}
         define internal i64 @between(i64 %x) {{ %y = call i64 @long(i64 %x) ret i64 %y }}
         define i64 @f(i64 %x) {{ %a = call i64 @between(i64 %x)
           %b = call i64 @between(i64 %a) ret i64 %b }}"
    )
}

#[test]
fn eager_inlining_lets_in_what_is_large_and_called_by_what_comes_along() {
    let calls = |steps, words: &str| {
        let object = describe(&compile(&long_callee(steps), &varied(words)).object);
        ["long", "between"].map(|name| object.contains(&format!("{name} by type")))
    };
    // With 120 instructions, which cost five each.
    assert_eq!(calls(40, "plain"), [true, false]);
    assert_eq!(calls(40, "inline=eager"), [false, false]);
    assert_eq!(calls(400, "inline=eager"), [true, false]);
}

#[test]
fn a_rolled_loop_is_neither_vectorized_nor_unrolled() {
    let bytes = "define void @f(ptr noalias %a, ptr noalias %b, i64 %n) {
        entry: br label %loop
        loop:
          %i = phi i64 [ 0, %entry ], [ %more, %loop ]
          %from = getelementptr i8, ptr %a, i64 %i
          %to = getelementptr i8, ptr %b, i64 %i
          %byte = load i8, ptr %from
          %other = xor i8 %byte, 85
          store i8 %other, ptr %to
          %more = add nuw i64 %i, 1
          %again = icmp ult i64 %more, %n
          br i1 %again, label %loop, label %done
        done: ret void
        }";
    let found = |words: &str| {
        let (_, text) = listed(bytes, &varied(words));
        (text.matches("xor i8").count(), text.contains(" x i8>"))
    };
    assert_eq!(found("rolled"), (1, false));
    // Without vectors it is unrolled, and the parts are packed.
    assert!(found("vectors=none").1 && found("no-unroll").1);
    assert!(found("vectors=none no-slp").0 > 4);
}

const LOOP: &str = "
    declare void @far()
    define void @f(i32 %n) {
    entry: br label %head
    head:
      %i = phi i32 [ 0, %entry ], [ %more, %latch ]
      %odd = and i32 %i, 1
      %is = icmp eq i32 %odd, 0
      br i1 %is, label %rare, label %latch
    rare:
      call void @far()
      br label %latch
    latch:
      %more = add i32 %i, 1
      %again = icmp ult i32 %more, %n
      br i1 %again, label %head, label %done
    done: ret void
    }";

#[test]
fn loops_are_aligned() {
    let (_, plain) = listed(LOOP, &varied("plain"));
    assert!(!plain.contains("llvm.loop.align"), "{plain}");
    let (out, aligned) = listed(LOOP, &varied("aligned-loops"));
    assert!(
        aligned.contains("!\"llvm.loop.align\", i32 64"),
        "{aligned}"
    );
    assert!(!out.object.is_empty());
}

/// The offset of a body in its section, and the section's alignment.
fn begins(ir: &str, words: &str) -> (u64, u64) {
    let out = compile(ir, &varied(words));
    let file = object::File::parse(&out.object[..]).expect("an object");
    let mut symbols = file.symbols();
    let body = symbols.find(|it| it.name() == Ok("uruk.body.f"));
    let body = body.expect("a body");
    let section = body.section_index().expect("defined");
    let section = file.section_by_index(section).expect("a section");
    (body.address() - section.address(), section.align())
}

#[test]
fn a_function_with_loops_begins_where_it_is_to() {
    let words = ["plain", "start=16", "start=32", "start=48"];
    let found = words.map(|words| begins(LOOP, words));
    assert_eq!(found, [0, 16, 32, 48].map(|offset| (offset, 64)));
    let (offset, align) = begins(LOOP, "packed");
    assert!(offset == 0 && align < 64, "{align}");
    // Without loops it is not aligned, and prefix data of the source stays before it.
    let straight = "define i64 @f(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }";
    assert_eq!(begins(straight, "start=16"), begins(straight, "packed"));
    let own = LOOP.replace("(i32 %n) {", "(i32 %n) prefix i64 7 {");
    assert_eq!(begins(&own, "start=32"), begins(&own, "packed"));
}

#[test]
fn blocks_are_placed_without_counts() {
    let mut reader = reader(LOOP);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let counting = Compile::at(Tier::Optimized).counting(Counters::Full);
    let probed = reader.compile(&plan, f, &counting).expect("compiles");
    let probes = probed.probes.expect("probes");
    let words = vec![1000; probes.words() as usize];
    let profile = Arc::new(Profile::new(&probes, &words).expect("as long"));
    let listed = |words: &str| {
        let variant: Variant = words.parse().expect("words of a variant");
        let guided = Compile::at(Tier::Guided).varied(variant);
        listed(
            LOOP,
            &guided.guided(HashMap::from([(f, Arc::clone(&profile))]), HashMap::new()),
        )
        .1
    };
    assert!(listed("plain").contains("branch_weights"));
    assert!(!listed("static-order").contains("branch_weights"));
}
