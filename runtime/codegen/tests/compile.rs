//! Settings of a compile, and the results of each tier.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use object::Object;
use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{
    COUNTERS, CodegenError, Compile, Compiled, Counters, Dependence, DependenceKind, ModulePlan,
    Profile, Reader, Tier,
};

fn compile(ir: &str, function: &str, how: &Compile) -> Compiled {
    let mut reader = reader(ir);
    let (plan, function) = (plan(&reader), id(&reader, function));
    reader.compile(&plan, function, how).expect("compiles")
}

const TWO_LOOPS: &str = "
    define i32 @f(i32 %n) {
    entry:
      %slot = alloca i32
      store i32 0, ptr %slot
      br label %outer
    outer:
      %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
      br label %inner
    inner:
      %j = phi i32 [ 0, %outer ], [ %j2, %inner ]
      %old = load i32, ptr %slot
      %new = add i32 %old, %j
      store i32 %new, ptr %slot
      %j2 = add i32 %j, 1
      %c = icmp slt i32 %j2, %i
      br i1 %c, label %inner, label %latch
    latch:
      %i2 = add i32 %i, 1
      %d = icmp slt i32 %i2, %n
      br i1 %d, label %outer, label %out
    out:
      %r = load i32, ptr %slot
      ret i32 %r
    }";

#[test]
fn shape_is_told() {
    let out = compile(TWO_LOOPS, "f", &Compile::baseline());
    assert_eq!((out.instructions, out.loops, out.nested), (17, 2, true));
    assert!(!out.counts && !describe(&out.object).contains(COUNTERS));
    let out = compile("define void @f() { ret void }", "f", &Compile::baseline());
    assert_eq!((out.instructions, out.loops, out.nested), (1, 0, false));
}

#[test]
fn entries_and_back_edges_are_counted_relative_to_the_program_counter() {
    let how = Compile::baseline().counting(Counters::Entry);
    let out = compile(TWO_LOOPS, "f", &how);
    assert!(out.counts);
    let text = describe(&out.object);
    // A load and a store (2, PC32) for the entry and for either latch.
    assert_eq!(text.matches("uruk.counters by type 2").count(), 6, "{text}");
    assert!(!text.contains("uruk.counters by type 42"), "{text}");
    // The alloca is still static: the only arithmetic on the stack pointer is the frame's.
    let code = disassemble(&out.object);
    assert!(!code.contains("mov rsp"), "{code}");
}

#[test]
fn what_cannot_count_does_not() {
    let how = Compile::baseline().counting(Counters::Entry);
    let ir = "define void @f() naked { call void asm sideeffect \"ret\", \"\"() unreachable }";
    let out = compile(ir, "f", &how);
    assert!(!out.counts && !describe(&out.object).contains(COUNTERS));
}

fn at(tier: Tier) -> Compile {
    Compile::at(tier)
}

/// The symbols a version depends on, with `body` or `fact`.
fn depends(reader: &Reader, compiled: &Compiled) -> Vec<String> {
    let symbols = &reader.summary().symbols;
    let name = |d: &Dependence| {
        let kind = match d.kind {
            DependenceKind::Body => "body",
            DependenceKind::Fact => "fact",
        };
        format!("{} {kind}", symbols[d.symbol.index()].name)
    };
    compiled.depends.iter().map(name).collect()
}

const CHAIN: &str = "
    @limit = constant i32 40
    @state = global i32 0
    declare void @far(i32)
    define internal i32 @leaf(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
    define i32 @middle(i32 %x) { %y = call i32 @leaf(i32 %x) %z = add i32 %y, 2 ret i32 %z }
    define void @kept(i32 %x) noinline { call void @far(i32 %x) ret void }
    define i32 @f(i32 %x) {
      %a = call i32 @middle(i32 %x)
      %b = load i32, ptr @limit
      %c = add i32 %a, %b
      store i32 %c, ptr @state
      call void @kept(i32 %c)
      ret i32 %c
    }";

#[test]
fn callees_are_inlined_and_recorded() {
    let mut reader = reader(CHAIN);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    for tier in [Tier::Optimized, Tier::Guided] {
        let out = reader.compile(&plan, f, &at(tier)).expect("compiles");
        // 41 GOTPCRELX: through the slot. 2 PC32: data in reach.
        assert_eq!(
            describe(&out.object),
            "defines uruk.body.f\nkept by type 41\nstate by type 2"
        );
        assert_eq!(
            depends(&reader, &out),
            ["leaf body", "middle body", "kept fact", "limit fact"]
        );
        assert!(out.unit_instructions > out.instructions);
    }
    let alone = {
        let mut how = at(Tier::Optimized);
        how.alone = true;
        reader.compile(&plan, f, &how).expect("compiles")
    };
    assert!(describe(&alone.object).contains("middle by type 41"));
    let first = reader
        .compile(&plan, f, &Compile::baseline())
        .expect("compiles");
    assert!(first.depends.is_empty());
}

#[test]
fn only_bound_definitions_are_looked_into() {
    let ir = "
        define weak i32 @weak() { ret i32 5 }
        @value = weak constant i32 7
        define i32 @f() { %a = call i32 @weak() %b = load i32, ptr @value %c = add i32 %a, %b ret i32 %c }";
    let mut reader = reader(ir);
    let (mut plan, f) = (plan(&reader), id(&reader, "f"));
    let compile = |reader: &mut Reader, plan: &ModulePlan| {
        let out = reader
            .compile(plan, f, &at(Tier::Optimized))
            .expect("compiles");
        describe(&out.object)
    };
    assert_eq!(compile(&mut reader, &plan), "defines uruk.body.f");
    for import in &mut plan.imports {
        import.defined = &*import.name == "f";
    }
    let out = compile(&mut reader, &plan);
    assert!(
        out.contains("weak by type 41") && out.contains("value by"),
        "{out}"
    );
}

#[test]
fn a_candidate_that_is_not_inlined_stays_behind_its_slot() {
    // Too large to be inlined, small enough to be scanned.
    let mut body = String::new();
    for i in 0..80 {
        body += &format!("store volatile i32 {i}, ptr @state\n");
    }
    let ir = format!(
        "@state = global i32 0
         define internal i32 @big(i32 %x) {{ {body} ret i32 9 }}
         define i32 @f() {{ %a = call i32 @big(i32 1) ret i32 %a }}
         define i32 @g() {{ %a = call i32 @big(i32 2) %p = ptrtoint ptr @big to i64
                            %q = trunc i64 %p to i32 %r = add i32 %a, %q ret i32 %r }}"
    );
    let mut reader = reader(&ir);
    let plan = plan(&reader);
    let f = id(&reader, "f");
    let out = reader
        .compile(&plan, f, &at(Tier::Optimized))
        .expect("compiles");
    assert_eq!(describe(&out.object), "big by type 41\ndefines uruk.body.f");
    // Results inferred from its simplified body are not used: other code may be behind the slot.
    assert!(!disassemble(&out.object).contains("mov eax,9"));
    assert_eq!(depends(&reader, &out), ["big body"]);
    let g = id(&reader, "g");
    let out = reader
        .compile(&plan, g, &at(Tier::Optimized))
        .expect("compiles");
    // Its address is the canonical one, loaded from the GOT.
    assert!(
        describe(&out.object).contains("big by type 4"),
        "{}",
        describe(&out.object)
    );
}

#[test]
fn recursion_is_direct_from_tier_two_on() {
    let ir = "define i64 @f(i64 %n) noinline {
          %small = icmp ult i64 %n, 2
          br i1 %small, label %out, label %more
        more:
          %n1 = sub i64 %n, 1  %n2 = sub i64 %n, 2
          %a = call i64 @f(i64 %n1)  %b = call i64 @f(i64 %n2)
          %s = add i64 %a, %b
          ret i64 %s
        out: ret i64 %n
        }";
    let first = compile(ir, "f", &Compile::baseline());
    assert!(describe(&first.object).contains("f by type 41"));
    let second = compile(ir, "f", &at(Tier::Optimized));
    assert_eq!(describe(&second.object), "defines uruk.body.f");
}

#[test]
fn optnone_goes_and_the_noinline_that_came_with_it() {
    let ir = |attributes: &str| {
        format!(
            "define internal i32 @callee() {attributes} {{ %p = alloca i32 store i32 3, ptr %p %v = load i32, ptr %p ret i32 %v }}
             define i32 @f() noinline optnone {{ %a = call i32 @callee() ret i32 %a }}"
        )
    };
    let out = compile(&ir("noinline optnone"), "f", &at(Tier::Optimized));
    assert_eq!(disassemble(&out.object), "mov eax,3\nret\n");
    // The user's own `noinline` is kept.
    let out = compile(&ir("noinline"), "f", &at(Tier::Optimized));
    assert!(describe(&out.object).contains("callee by type 41"));
}

#[test]
fn floating_point_is_fused_only_when_asked() {
    let ir = "
        declare double @llvm.fmuladd.f64(double, double, double)
        define double @f(double %a, double %b, double %c) \"target-features\"=\"+fma\" {
          %m = call double @llvm.fmuladd.f64(double %a, double %b, double %c)
          %p = fmul contract double %m, %b
          %s = fadd contract double %p, %c
          ret double %s
        }";
    let fused = |how: &Compile| disassemble(&compile(ir, "f", how).object).contains("vfm");
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        assert!(!fused(&at(tier)), "{tier:?}");
    }
    assert!(fused(&at(Tier::Optimized).contracting(true)));
}

#[test]
fn wide_vectors_keep_their_registers() {
    let ir = "
        declare <8 x double> @far(<8 x double>)
        define <8 x double> @wide(<8 x double> %x) { %y = fadd <8 x double> %x, %x ret <8 x double> %y }
        define void @caller(ptr %p) {
          %x = load <8 x double>, ptr %p
          %y = call <8 x double> @far(<8 x double> %x)
          store <8 x double> %y, ptr %p
          ret void
        }
        define void @inside(ptr %p) {
          %x = load <8 x double>, ptr %p, align 8
          %y = fadd <8 x double> %x, %x
          store <8 x double> %y, ptr %p, align 8
          ret void
        }";
    for name in ["wide", "caller"] {
        let code = disassemble(&compile(ir, name, &at(Tier::Guided)).object);
        assert!(
            !code.contains("ymm") && !code.contains("zmm"),
            "{name}: {code}"
        );
    }
    if std::is_x86_feature_detected!("avx2") {
        let code = disassemble(&compile(ir, "inside", &at(Tier::Guided)).object);
        assert!(code.contains("ymm") || code.contains("zmm"), "{code}");
    }
}

#[test]
fn the_programs_own_memcpy_does_not_call_itself() {
    let ir = "define ptr @memcpy(ptr noalias %to, ptr noalias %from, i64 %n) {
        entry: br label %loop
        loop:
          %i = phi i64 [ 0, %entry ], [ %j, %loop ]
          %a = getelementptr i8, ptr %from, i64 %i
          %b = getelementptr i8, ptr %to, i64 %i
          %v = load i8, ptr %a
          store i8 %v, ptr %b
          %j = add i64 %i, 1
          %c = icmp ult i64 %j, %n
          br i1 %c, label %loop, label %out
        out: ret ptr %to
        }";
    for tier in [Tier::Optimized, Tier::Guided] {
        let out = compile(ir, "memcpy", &at(tier));
        assert_eq!(
            describe(&out.object),
            "defines uruk.body.memcpy",
            "{tier:?}"
        );
    }
    // Under another name the same loop becomes one call.
    let out = compile(
        &ir.replace("@memcpy", "@copy"),
        "copy",
        &at(Tier::Optimized),
    );
    assert!(describe(&out.object).contains("memcpy by type"));
}

#[test]
fn different_settings_at_once_do_not_mix() {
    let ir = "declare double @llvm.fmuladd.f64(double, double, double)
        define double @f(double %a, double %b, double %c) \"target-features\"=\"+fma\" {
          %m = call double @llvm.fmuladd.f64(double %a, double %b, double %c)
          ret double %m
        }";
    let ways = [
        Compile::baseline(),
        at(Tier::Optimized),
        at(Tier::Guided),
        at(Tier::Optimized).contracting(true),
    ];
    let alone: Vec<Vec<u8>> = ways
        .iter()
        .map(|how| compile(ir, "f", how).object)
        .collect();
    assert_ne!(alone[1], alone[3]);
    std::thread::scope(|scope| {
        for (how, expected) in ways.iter().zip(&alone) {
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(&compile(ir, "f", how).object, expected);
                }
            });
        }
    });
}

#[test]
fn kept_pipelines_leave_no_trace_at_any_tier() {
    let functions = ["f", "middle", "leaf", "kept", "f"];
    let ways = [at(Tier::Optimized), Compile::baseline(), at(Tier::Guided)];
    let mut kept = reader(CHAIN);
    let plan = plan(&kept);
    for name in functions {
        for how in &ways {
            let expected = compile(CHAIN, name, how).object;
            let function = id(&kept, name);
            let object = kept.compile(&plan, function, how).expect("compiles").object;
            assert_eq!(object, expected, "{name} {how:?}");
        }
    }
}

#[test]
fn a_broken_callee_does_not_fail_its_caller() {
    // A constant that extraction refuses, in the callee only.
    let ir = "
        declare void @far()
        define ptr @callee() { call void @far() ret ptr ptrauth (ptr @far, i32 0) }
        define ptr @f() { %a = call ptr @callee() ret ptr %a }";
    let mut reader = reader(ir);
    let plan = plan(&reader);
    let (f, callee) = (id(&reader, "f"), id(&reader, "callee"));
    assert!(matches!(
        reader.compile(&plan, callee, &at(Tier::Optimized)),
        Err(CodegenError::Unsupported { .. })
    ));
    let out = reader
        .compile(&plan, f, &at(Tier::Optimized))
        .expect("compiles");
    assert!(describe(&out.object).contains("callee by type 41"));
}

#[test]
fn tables_of_labels_stay_with_their_function_at_every_tier() {
    let ir = "
        @table = internal constant [2 x ptr] [ptr blockaddress(@run, %a), ptr blockaddress(@run, %b)]
        define i32 @run(i64 %i) {
          %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
          %t = load ptr, ptr %p
          indirectbr ptr %t, [label %a, label %b]
        a: ret i32 1
        b: ret i32 2
        }
        define i32 @f(i64 %i) { %r = call i32 @run(i64 %i) ret i32 %r }";
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let out = compile(ir, "run", &at(tier));
        assert!(describe(&out.object).contains("defines uruk.body.run"));
        let out = compile(ir, "f", &at(tier));
        assert!(describe(&out.object).contains("run by type 41"), "{tier:?}");
    }
}

#[test]
fn an_alias_has_the_address_of_what_it_names() {
    let ir = "
        @data = global [2 x i32] zeroinitializer
        @end = alias i32, getelementptr ([2 x i32], ptr @data, i64 0, i64 1)
        @other = alias i32 (), ptr @real
        define i32 @real() { ret i32 3 }
        define i1 @f() {
          %p = getelementptr [2 x i32], ptr @data, i64 0, i64 1
          %a = icmp eq ptr %p, @end
          %b = icmp eq ptr @real, @other
          %c = and i1 %a, %b
          ret i1 %c
        }
        define i32 @g() { %r = call i32 @other() ret i32 %r }";
    let out = compile(ir, "f", &at(Tier::Optimized));
    assert_eq!(disassemble(&out.object), "mov al,1\nret\n");
    let out = compile(ir, "g", &at(Tier::Optimized));
    assert_eq!(disassemble(&out.object), "mov eax,3\nret\n");
}

const APPLY: &str = "
    define i32 @twice(i32 %x) { %y = shl i32 %x, 1 ret i32 %y }
    define i32 @apply(ptr %f, i32 %x) {
      %c = icmp eq i32 %x, 7
      br i1 %c, label %a, label %b
    a: ret i32 0
    b:
      %r = call i32 %f(i32 %x)
      ret i32 %r
    }";

#[test]
fn full_counters_are_described_and_their_profile_fits_the_same_function() {
    let mut reader = reader(APPLY);
    let (plan, apply) = (plan(&reader), id(&reader, "apply"));
    let how = at(Tier::Optimized).counting(Counters::Full);
    let out = reader.compile(&plan, apply, &how).expect("compiles");
    let probes = out.probes.expect("probes");
    // Two words belong to the number argument.
    assert_eq!((probes.words(), out.counts), (8, false));
    assert!(describe(&out.object).contains("uruk.probes by type 2"));
    let profile = Profile::new(&probes, &[100, 100, 0, 0x40, 99, 100, 0, 0]).expect("as long");
    assert_eq!(profile.observed_targets(), [0x40]);
    let how = at(Tier::Guided).guided(
        HashMap::from([(apply, Arc::new(profile))]),
        HashMap::from([(0x40, id(&reader, "twice"))]),
    );
    let out = reader.compile(&plan, apply, &how).expect("compiles");
    assert_eq!((out.guided, out.promoted, out.refused.len()), (1, 1, 0));
    // 42 REX_GOTPCRELX: the canonical address, for the comparison; no call of it.
    assert_eq!(
        describe(&out.object),
        "defines uruk.body.apply\ntwice by type 42"
    );
    assert_eq!(depends(&reader, &out), ["twice body"]);
    let code = disassemble(&out.object);
    // The target's body, and one jump through the pointer.
    assert!(code.contains("add esi,esi"), "{code}");
    assert_eq!(code.matches("jmp rax").count(), 1, "{code}");
}

#[test]
fn what_cannot_count_has_no_probes() {
    let how = Compile::at(Tier::Optimized).counting(Counters::Full);
    let ir = "define void @f() naked { call void asm sideeffect \"ret\", \"\"() unreachable }";
    let out = compile(ir, "f", &how);
    assert!(out.probes.is_none() && !describe(&out.object).contains("uruk.probes"));
    let out = compile("define void @f() { ret void }", "f", &at(Tier::Optimized));
    assert!(out.probes.is_none());
}

#[test]
fn guided_compiles_leave_no_trace_in_the_kept_pipeline() {
    let ir = "
        declare void @far()
        define void @f(i1 %c) {
          br i1 %c, label %a, label %b
        a: call void @far() ret void
        b: ret void
        }";
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let counting = at(Tier::Optimized).counting(Counters::Full);
    let probed = reader.compile(&plan, f, &counting).expect("compiles");
    let probes = probed.probes.expect("probes");
    let profile = Arc::new(Profile::new(&probes, &[9000, 9000, 8000, 0, 0]).expect("as long"));
    let how = at(Tier::Guided).guided(HashMap::from([(f, profile)]), HashMap::new());
    let first = reader.compile(&plan, f, &how).expect("compiles");
    let second = reader.compile(&plan, f, &how).expect("compiles");
    assert_eq!((first.guided, &first.object), (1, &second.object));
    // Only static linkers use it, and the streamer never drops its entries.
    let file = object::File::parse(&*first.object).expect("an object");
    assert!(file.section_by_name(".llvm.call-graph-profile").is_none());
}
