//! Extraction and emission: IR in, the object's symbols and relocations out.

#[path = "support/any.rs"]
mod any;
mod support;

use any::compile_any;
use object::{Object, ObjectSection, ObjectSymbol};
use support::{describe, id, plan, reader};
use uruk_codegen::{Bitcode, CodegenError, Compile, Labels, Placement, Reader, Tier};
use uruk_testing::Random;

fn check(ir: &str, function: &str) -> String {
    let mut reader = reader(ir);
    let plan = plan(&reader);
    let function = id(&reader, function);
    describe(&reader.compile_function(&plan, function).expect("compiles"))
}

#[test]
fn calls_go_through_the_got_and_near_data_is_direct() {
    let out = check(
        "@near = global i32 1
         @far = external global i32
         declare i32 @callee(i32)
         define i32 @f() {
           %a = load i32, ptr @near
           %b = load i32, ptr @far
           %c = add i32 %a, %b
           %d = call i32 @callee(i32 %c)
           ret i32 %d
         }",
        "f",
    );
    // 41 GOTPCRELX, 42 REX_GOTPCRELX, 2 PC32.
    assert_eq!(
        out,
        "callee by type 41\ndefines uruk.body.f\nfar by type 42\nnear by type 2"
    );
}

#[test]
fn a_function_that_mentions_itself_means_its_canonical_address() {
    let out = check("define ptr @f() { ret ptr @f }", "f");
    assert_eq!(out, "defines uruk.body.f\nf by type 42");
}

#[test]
fn phis_switches_and_loops_survive_the_copy() {
    let out = check(
        "define i32 @f(i32 %n) {
         entry: br label %loop
         loop:
           %i = phi i32 [ 0, %entry ], [ %next, %more ]
           %s = phi i32 [ 1, %entry ], [ %t, %more ]
           switch i32 %i, label %more [ i32 7, label %out i32 9, label %out ]
         more:
           %t = mul i32 %s, 3
           %next = add i32 %i, 1
           %c = icmp slt i32 %next, %n
           br i1 %c, label %loop, label %out
         out:
           %r = phi i32 [ %s, %loop ], [ %s, %loop ], [ %t, %more ]
           ret i32 %r
         }",
        "f",
    );
    assert_eq!(out, "defines uruk.body.f");
}

#[test]
fn alwaysinline_callees_leave_nothing_behind() {
    let out = check(
        "declare void @leaf()
         define internal void @inner() alwaysinline { call void @leaf() ret void }
         define internal void @outer() alwaysinline { call void @inner() ret void }
         define void @f() { call void @outer() call void @outer() ret void }",
        "f",
    );
    assert_eq!(out, "defines uruk.body.f\nleaf by type 41\nleaf by type 41");
}

const COMPUTED_GOTO: &str = "
    @table = internal constant [2 x ptr] [ptr blockaddress(@f, %a), ptr blockaddress(@f, %b)]
    define i32 @f(i64 %i) {
      %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
      %t = load ptr, ptr %p
      indirectbr ptr %t, [label %a, label %b]
    a: ret i32 1
    b: ret i32 2
    }";

#[test]
fn labels_in_data_are_places_in_the_space_of_their_function() {
    for linkage in ["internal constant", "internal global", "global"] {
        let ir = COMPUTED_GOTO.replace("internal constant", linkage);
        let mut reader = reader(&ir);
        let f = id(&reader, "f");
        assert_eq!(
            reader.summary().symbols[f.index()].placement,
            Placement::Own
        );
        let plan = plan(&reader);
        let data = reader.compile_data(&plan).expect("compiles");
        let out = describe(&data.expect("some data"));
        assert!(out.contains("defines table"), "{out}");
        assert!(!out.contains("defines f"), "{out}");
        assert!(out.contains("uruk.labels.f"), "{out}");
    }
}

/// Optimized code has its own copy of a table that only it reads, constant or not.
#[test]
fn tables_of_labels_that_stay_inside_are_copied() {
    let stored = "define void @other(ptr %p) { store ptr %p, ptr @table ret void }";
    let shared = "define ptr @other() { ret ptr blockaddress(@f, %a) }";
    for (linkage, rest, inside) in [
        ("internal constant", "", true),
        ("internal global", "", true),
        ("global", "", false),
        ("internal global", stored, false),
        ("internal constant", shared, false),
    ] {
        let ir = COMPUTED_GOTO.replace("internal constant", linkage) + rest;
        let mut reader = reader(&ir);
        let plan = plan(&reader);
        let f = id(&reader, "f");
        let how = Compile::at(Tier::Optimized);
        let compiled = reader.compile(&plan, f, &how).expect("compiles");
        let labels = if inside {
            Labels::Inside
        } else {
            Labels::Escape
        };
        assert_eq!(compiled.labels, labels, "{linkage} {rest}");
        let out = describe(&compiled.object);
        assert_eq!(
            out.contains("uruk.labels.f"),
            !inside,
            "{linkage} {rest}: {out}"
        );
    }
}

#[test]
fn data_of_a_line_or_more_begins_at_one() {
    let mut reader = reader(
        "@first = global i8 1
         @line = global [16 x i32] [i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9,
             i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16], align 4
         @zeros = internal global [9 x i64] zeroinitializer, align 16
         @less = global [63 x i8] zeroinitializer, align 1
         @row0 = global [65 x i8] zeroinitializer, section \"rows\", align 1
         @row1 = global [65 x i8] zeroinitializer, section \"rows\", align 1
         define ptr @f() { ret ptr @zeros }",
    );
    let plan = plan(&reader);
    let data = reader.compile_data(&plan).expect("compiles").expect("some");
    let file = object::File::parse(&data[..]).expect("an object");
    let place = |name: &str| {
        let symbol = file.symbols().find(|it| it.name() == Ok(name));
        let symbol = symbol.unwrap_or_else(|| panic!("no symbol {name}"));
        let section = symbol.section_index().expect("defined");
        let section = file.section_by_index(section).expect("a section");
        (symbol.address(), section.align())
    };
    for name in ["line", "zeros"] {
        let (at, align) = place(name);
        assert_eq!((at % 64, align), (0, 64), "{name}");
    }
    // A smaller variable stays in its place; a table has no gaps.
    assert_eq!(place("less").0 % 64, 8);
    assert_eq!(place("row1"), (65, 1));
}

#[test]
fn data_refers_to_functions_by_their_plain_names() {
    let mut reader = reader(
        "@vtable = constant { [2 x ptr] } { [2 x ptr] [ptr @f, ptr getelementptr (i8, ptr @d, i64 4)] }
         @d = internal global [2 x i32] [i32 1, i32 2]
         @a = alias i32, getelementptr ([2 x i32], ptr @d, i64 0, i64 1)
         define void @f() { ret void }",
    );
    let plan = plan(&reader);
    let data = reader
        .compile_data(&plan)
        .expect("compiles")
        .expect("some data");
    assert_eq!(
        describe(&data),
        "d by type 1\ndefines a\ndefines d\ndefines vtable\nf by type 1"
    );
}

#[test]
fn coroutines_are_split_in_their_unit() {
    let ir = "declare token @llvm.coro.id(i32, ptr, ptr, ptr)
         declare ptr @llvm.coro.begin(token, ptr)
         declare i64 @llvm.coro.size.i64()
         declare i8 @llvm.coro.suspend(token, i1)
         declare void @llvm.coro.end(ptr, i1, token)
         declare ptr @malloc(i64)
         declare void @print(i32)
         define ptr @f(i32 %n) presplitcoroutine {
           %id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)
           %size = call i64 @llvm.coro.size.i64()
           %memory = call ptr @malloc(i64 %size)
           %handle = call ptr @llvm.coro.begin(token %id, ptr %memory)
           call void @print(i32 %n)
           %s = call i8 @llvm.coro.suspend(token none, i1 false)
           switch i8 %s, label %out [ i8 0, label %resume i8 1, label %out ]
         resume:
           call void @print(i32 %n)
           br label %out
         out:
           call void @llvm.coro.end(ptr %handle, i1 false, token none)
           ret ptr %handle
         }";
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let mut reader = reader(ir);
        let (plan, f) = (plan(&reader), id(&reader, "f"));
        let how = Compile::at(tier);
        let out = reader.compile(&plan, f, &how).expect("compiles");
        let resume = object::File::parse(&*out.object)
            .expect("an object")
            .symbols()
            .any(|symbol| symbol.name().is_ok_and(|name| name.ends_with(".resume")));
        assert!(resume, "{tier:?}");
        let out = describe(&out.object);
        assert!(out.contains("defines uruk.body.f"), "{tier:?}: {out}");
        assert!(out.contains("print by type 41"), "{tier:?}: {out}");
    }
}

#[test]
fn multiply_add_is_never_fused() {
    let ir = "declare double @llvm.fmuladd.f64(double, double, double)
        define double @f(double %a, double %b, double %c) \"target-features\"=\"+fma\" {
          %r = call double @llvm.fmuladd.f64(double %a, double %b, double %c)
          ret double %r
        }";
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let object = reader.compile_function(&plan, f).expect("compiles");
    let file = object::File::parse(&*object).expect("an object");
    let text = file
        .section_by_name(".text")
        .expect("text")
        .data()
        .expect("bytes")
        .to_vec();
    let mut decoder = iced_x86::Decoder::new(64, &text, iced_x86::DecoderOptions::NONE);
    let names: Vec<String> = decoder
        .iter()
        .map(|i| format!("{:?}", i.mnemonic()).to_lowercase())
        .collect();
    assert!(names.iter().any(|n| n.contains("mulsd")), "{names:?}");
    assert!(!names.iter().any(|n| n.starts_with("vfm")), "{names:?}");
}

#[test]
fn the_same_reader_compiles_a_function_again() {
    let mut reader = reader("define i32 @f() { ret i32 3 }");
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let first = reader.compile_function(&plan, f).expect("compiles");
    assert_eq!(
        first,
        reader.compile_function(&plan, f).expect("compiles again")
    );
}

#[test]
fn what_was_compiled_before_leaves_no_trace_in_an_object() {
    let ir = "
        @s = private constant [3 x i8] c\"ab\\00\"
        declare i32 @puts(ptr)
        declare i32 @__gxx_personality_v0(...)
        define i32 @a(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define i32 @b() { %r = call i32 @puts(ptr @s) ret i32 %r }
        define i32 @c() personality ptr @__gxx_personality_v0 {
          %r = invoke i32 @b() to label %ok unwind label %caught
        ok: ret i32 %r
        caught:
          %p = landingpad { ptr, i32 } catch ptr null
          ret i32 -1
        }
        define double @d(double %x) { %y = fadd double %x, 1.5 ret double %y }
        define void @labels() {
          call void asm sideeffect \"jmp 2f\\0A1: nop\\0A2: jne 1b\", \"\"()
          ret void
        }
        define void @more_labels() {
          call void asm sideeffect \"1: jne 1b\\0A1: jne 1b\\0Ajmp 2f\\0A2:\", \"\"()
          ret void
        }";
    let names = [
        "a",
        "labels",
        "b",
        "more_labels",
        "c",
        "d",
        "labels",
        "more_labels",
        "c",
        "a",
    ];
    let mut kept = reader(ir);
    let plan = plan(&kept);
    for name in names {
        let mut fresh = reader(ir);
        let function = id(&fresh, name);
        let expected = fresh.compile_function(&plan, function).expect("compiles");
        assert_eq!(
            kept.compile_function(&plan, function).expect("compiles"),
            expected,
            "{name}"
        );
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    let Err(error) = Bitcode::from_ir_text("bad.ll", "define void @f() {\n  wrong\n}") else {
        panic!("parsed");
    };
    assert!(
        error.to_string().starts_with("bad.ll:2:3: error:"),
        "{error}"
    );
}

#[test]
fn other_machines_are_refused() {
    let bitcode = Bitcode::from_ir_text("arm.ll", "target triple = \"aarch64-linux-gnu\"").unwrap();
    assert!(matches!(
        Reader::new(&bitcode),
        Err(CodegenError::Target { .. })
    ));
    let layout = "target datalayout = \"e-m:e-p:32:32-i64:64-n8:16:32-S128\"";
    let bitcode = Bitcode::from_ir_text("small.ll", layout).unwrap();
    let Err(error) = Reader::new(&bitcode) else {
        panic!("pointers of 32 bits are read");
    };
    assert_eq!(
        error.to_string(),
        "small.ll: data layout `e-m:e-p:32:32-i64:64-n8:16:32-S128` is not that of x86_64 Linux: \
         `p:32:32`"
    );
}

#[test]
fn modules_that_name_no_machine_are_taken() {
    let text = "target triple = \"unknown-unknown-unknown\"\n define i32 @f() { ret i32 1 }";
    let bitcode = Bitcode::from_ir_text("any.ll", text).unwrap();
    assert!(Reader::new(&bitcode).is_ok());
}

#[test]
fn damaged_bitcode_is_an_error_or_compiles() {
    let text =
        format!("{COMPUTED_GOTO}\n define i32 @g(i32 %x) {{ %y = add i32 %x, 1 ret i32 %y }}");
    let good = Bitcode::from_ir_text("good.ll", &text).unwrap();
    let mut random = Random::new(1);
    for _ in 0..300 {
        let mut bytes = good.bytes().to_vec();
        match random.below(2) {
            0 => bytes.truncate(random.below(bytes.len())),
            _ => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        compile_any(&bytes);
    }
}

#[test]
fn whole_modules_compile_and_report_errors() {
    let compile = |ir| {
        let mut reader = reader(ir);
        let plan = plan(&reader);
        reader.compile_everything(&plan)
    };
    let good = "@d = global i32 1\ndefine i32 @f() { ret i32 3 }\n@a = alias i32 (), ptr @f";
    let object = compile(good).expect("compiles").expect("something");
    assert_eq!(describe(&object), "defines a\ndefines d\ndefines f");
    let bad = "module asm \"not an instruction\"\ndefine void @f() { ret void }";
    assert!(matches!(compile(bad), Err(CodegenError::Emit { .. })));
}

#[test]
fn what_is_no_function_is_refused() {
    let mut reader = reader("@data = global i32 1 define void @f() { ret void }");
    let plan = plan(&reader);
    let data = id(&reader, "data");
    let how = Compile::at(Tier::Optimized);
    let answers = [
        reader.compile_function(&plan, data).map(drop),
        reader.compile(&plan, data, &how).map(drop),
        reader.measure(data).map(drop),
        reader.wanted(&plan, data, &how).map(drop),
        reader.parcel(&plan, data, &how).map(drop),
    ];
    for answer in answers {
        assert!(
            matches!(answer, Err(CodegenError::NoFunction { number: 1, .. })),
            "{answer:?}"
        );
    }
    assert_eq!(reader.signature(data), "");
}

/// LLVM-C shows this constant as an instruction.
#[test]
fn users_are_found_through_a_no_cfi_constant() {
    let mut reader = reader("declare void @far() define ptr @f() { ret ptr no_cfi @far }");
    let far = id(&reader, "far");
    assert_eq!(reader.users(&[far]).expect("readable"), [["f"]]);
    let f = id(&reader, "f");
    assert_eq!(reader.mentions(far).expect("readable"), [f]);
}

#[test]
fn what_may_lead_to_another_stack_is_known_by_its_ir() {
    let functions = [
        (
            "plain",
            "define i64 @plain(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }",
            true,
        ),
        (
            "array",
            "declare void @use(ptr)
             define void @array(i64 %n) { %a = alloca i8, i64 %n call void @use(ptr %a) ret void }",
            true,
        ),
        (
            "assembly",
            "define void @assembly(ptr %to) {
               call void asm sideeffect \"mov $0, %rsp\", \"r\"(ptr %to) ret void }",
            false,
        ),
        (
            "through_callee",
            "define internal void @inner(ptr %to) alwaysinline {
               call void asm sideeffect \"mov $0, %rsp\", \"r\"(ptr %to) ret void }
             define void @through_callee(ptr %to) { call void @inner(ptr %to) ret void }",
            false,
        ),
        (
            "restored",
            "declare void @llvm.stackrestore.p0(ptr)
             define void @restored(ptr %to) { call void @llvm.stackrestore.p0(ptr %to) ret void }",
            false,
        ),
        (
            "written",
            "declare void @llvm.write_register.i64(metadata, i64)
             define void @written(i64 %to) {
               call void @llvm.write_register.i64(metadata !0, i64 %to) ret void }
             !0 = !{!\"rsp\"}",
            false,
        ),
        (
            "jumps",
            "declare void @llvm.eh.sjlj.longjmp(ptr)
             define void @jumps(ptr %to) {
               call void @llvm.eh.sjlj.longjmp(ptr %to) unreachable }",
            false,
        ),
        (
            "returns",
            "declare void @llvm.eh.return.i64(i64, ptr)
             declare void @llvm.eh.unwind.init()
             define void @returns(i64 %by, ptr %to) {
               call void @llvm.eh.unwind.init()
               call void @llvm.eh.return.i64(i64 %by, ptr %to) unreachable }",
            false,
        ),
        (
            "begins",
            "define void @begins() prologue i32 -1869574000 { ret void }",
            false,
        ),
    ];
    for (name, ir, keeps) in functions {
        for tier in [Tier::Baseline, Tier::Optimized] {
            let mut reader = reader(ir);
            let (plan, function) = (plan(&reader), id(&reader, name));
            let compiled = reader.compile(&plan, function, &Compile::at(tier));
            let compiled = compiled.unwrap_or_else(|cause| panic!("{name}: {cause:?}"));
            assert_eq!(compiled.keeps_stack, keeps, "{name} at {tier:?}");
        }
    }
}
