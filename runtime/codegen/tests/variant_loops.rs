//! Effects of a variant on loops, switches and arithmetic: widths, copies, tables, fusing.

mod support;

use std::sync::{Arc, OnceLock};

use support::{disassemble, id, plan, reader};
use uruk_codegen::{Compile, Tier};

/// The machine code of `f`, and the IR from which it is made.
fn compiled(ir: &str, how: Compile) -> (String, String) {
    let mut how = how;
    let listing = Arc::new(OnceLock::new());
    how.listing = Some(Arc::clone(&listing));
    let mut reader = reader(ir);
    let (plan, function) = (plan(&reader), id(&reader, "f"));
    let out = reader.compile(&plan, function, &how).expect("compiles");
    let ir = listing.get().expect("what was emitted").clone();
    (disassemble(&out.object), ir)
}

fn varied(words: &str) -> Compile {
    Compile::at(Tier::Optimized).varied(words.parse().expect("words of a variant"))
}

/// A sum of products in floats, of arrays.
const PRODUCTS: &str = "define void @f(ptr noalias %a, ptr noalias %b, i64 %n) {
    entry: br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %more, %loop ]
      %from = getelementptr float, ptr %a, i64 %i
      %to = getelementptr float, ptr %b, i64 %i
      %x = load float, ptr %from
      %y = load float, ptr %to
      %product = fmul float %x, 3.0
      %sum = fadd float %product, %y
      store float %sum, ptr %to
      %more = add nuw i64 %i, 1
      %again = icmp ult i64 %more, %n
      br i1 %again, label %loop, label %done
    done: ret void
    }";

/// Bits of the widest vectors of floats in IR.
fn widest(ir: &str) -> u32 {
    let types = ir.match_indices(" x float>").map(|(at, _)| {
        let before = &ir[..at];
        let begin = before.rfind('<').expect("of a type") + 1;
        32 * before[begin..].parse::<u32>().expect("a count")
    });
    types.max().unwrap_or(0)
}

#[test]
fn vectors_are_as_wide_as_said_and_as_the_processor_has() {
    let most = match () {
        () if is_x86_feature_detected!("avx512f") => 512,
        () if is_x86_feature_detected!("avx") => 256,
        () => 128,
    };
    for width in [128, 256, 512] {
        let (code, ir) = compiled(PRODUCTS, varied(&format!("vectors={width}")));
        let said = format!("\"prefer-vector-width\"=\"{width}\"");
        assert!(ir.contains(&said), "{ir}");
        assert_eq!(widest(&ir), most.min(width), "{ir}");
        let has = |register: &str| code.contains(register);
        assert_eq!(has("zmm"), most.min(width) == 512, "{code}");
        assert!(width != 128 || !has("ymm"), "{code}");
    }
    let (_, plain) = compiled(PRODUCTS, varied("plain"));
    assert!(widest(&plain) >= 128 && !plain.contains("prefer-vector-width"));
    // The remainder of a loop is not packed here.
    let (_, none) = compiled(PRODUCTS, varied("vectors=none no-slp"));
    assert_eq!(widest(&none), 0, "{none}");
}

#[test]
fn vector_loops_work_on_one_vector_at_a_time() {
    // Loops for the remainder use narrower vectors.
    let products = |words: &str| {
        let (_, ir) = compiled(PRODUCTS, varied(words));
        let wide = format!("fmul <{} x float>", widest(&ir) / 32);
        ir.matches(&wide).count()
    };
    assert!(products("no-unroll") > 1);
    assert_eq!(products("no-unroll no-interleave"), 1);
}

#[test]
fn switches_become_branches() {
    let each = |line: &dyn Fn(u32) -> String| (0..16).map(line).collect::<String>();
    // Each calls another function: LLVM turns calls of one function with sixteen numbers into a
    // table.
    let declared = each(&|case| format!("declare void @far{case}()\n"));
    let cases = each(&|case| format!("i32 {case}, label %case{case}\n"));
    // Then it goes on, so that no jump leads to a called function.
    let blocks = each(&|case| {
        format!("case{case}:\n call void @far{case}()\n call void @far0()\n br label %none\n")
    });
    let ir = format!(
        "{declared}define void @f(i32 %x, ptr %after) {{
         entry: switch i32 %x, label %none [ {cases} ]
         {blocks}
         none:
           store volatile i32 %x, ptr %after
           ret void
         }}"
    );
    // A jump through a table goes through a register or memory, one to a label does not.
    let by_table = |words: &str| {
        let (code, ir) = compiled(&ir, varied(words));
        let mut jumps = code.lines().filter_map(|line| line.strip_prefix("jmp "));
        let found = jumps.any(|to| to.starts_with('r') || to.contains('['));
        assert!(!code.is_empty() && code.contains("call"), "{code}");
        (found, ir.contains("\"no-jump-tables\"=\"true\""))
    };
    assert_eq!(by_table("plain"), (true, false));
    assert_eq!(by_table("no-tables"), (false, true));
}

#[test]
fn the_thorough_pipeline_takes_choices_out_of_loops() {
    // Its direction is known before the loop: tier 2's own pipeline leaves the branch in it.
    let ir = "
        declare void @always()
        declare void @sometimes()
        define void @f(i32 %n, i1 %chosen) {
        entry: br label %loop
        loop:
          %i = phi i32 [ 0, %entry ], [ %more, %latch ]
          call void @always()
          br i1 %chosen, label %then, label %latch
        then:
          call void @sometimes()
          br label %latch
        latch:
          %more = add i32 %i, 1
          %again = icmp ult i32 %more, %n
          br i1 %again, label %loop, label %done
        done: ret void
        }";
    let loops = |words: &str| {
        let (_, ir) = compiled(ir, varied(words));
        ir.matches("call void @always()").count()
    };
    assert_eq!(loops("no-unroll"), 1);
    assert_eq!(loops("thorough no-unroll"), 2);
}

#[test]
fn products_and_sums_are_fused_where_that_is_allowed_and_wanted() {
    if !is_x86_feature_detected!("fma") {
        eprintln!("this processor cannot fuse: not tried");
        return;
    }
    let ir = "define double @f(double %a, double %b, double %c) {
        %product = fmul double %a, %b
        %sum = fadd double %product, %c
        ret double %sum
        }";
    let fuses = |allowed: bool, words: &str| {
        let how = Compile::at(Tier::Optimized).contracting(allowed);
        let (code, _) = compiled(ir, how.varied(words.parse().expect("words of a variant")));
        code.contains("vfmadd")
    };
    assert!(fuses(true, "plain"));
    assert!(!fuses(true, "no-contract"));
    assert!(!fuses(false, "plain") && !fuses(false, "no-contract"));
}
