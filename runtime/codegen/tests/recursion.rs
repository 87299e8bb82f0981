//! Functions that call themselves: at tier 3 one body has several levels.

mod support;

use std::sync::{Arc, OnceLock};

use support::{id, plan, reader};
use uruk_codegen::{Compile, Tier};

/// How often the emitted `f` calls itself.
fn calls(ir: &str, tier: Tier, variant: &str) -> usize {
    let mut how = Compile::at(tier).varied(variant.parse().expect("a variant"));
    let listing = Arc::new(OnceLock::new());
    how.listing = Some(Arc::clone(&listing));
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    reader.compile(&plan, f, &how).expect("compiles");
    let text = listing.get().expect("what was emitted");
    assert!(!text.contains("@uruk.again"), "a copy is left:\n{text}");
    text.matches("call i64 ").count()
}

/// A function that calls itself twice. `attributes` are its own, `weights` those of its branch;
/// `before` comes first in the block of the calls. The difference keeps LLVM from making one a loop.
fn twice(attributes: &str, weights: &str, before: &str) -> String {
    format!(
        "declare ptr @llvm.frameaddress.p0(i32)
         declare void @use(ptr)
         define i64 @f(i64 %n) {attributes} {{
           %small = icmp ult i64 %n, 2
           br i1 %small, label %done, label %more{weights}
         more:
           {before}
           %a = sub i64 %n, 1
           %fa = call i64 @f(i64 %a)
           %b = sub i64 %n, 2
           %fb = call i64 @f(i64 %b)
           %sum = sub i64 %fa, %fb
           br label %done
         done:
           %result = phi i64 [ %n, %0 ], [ %sum, %more ]
           ret i64 %result
         }}
         !0 = !{{!\"branch_weights\", i32 1000, i32 10}}
         !1 = !{{!\"branch_weights\", i32 10, i32 1000}}"
    )
}

#[test]
fn a_small_function_has_several_levels_of_itself() {
    // Calls without effects that are made twice would be made once.
    let effect = "call void @use(ptr null)";
    let plain = twice("", "", effect);
    assert_eq!(calls(&plain, Tier::Guided, "plain"), 16);
    assert_eq!(calls(&plain, Tier::Guided, "inline=none"), 2);
    assert_eq!(calls(&plain, Tier::Optimized, "thorough"), 16);
    assert_eq!(calls(&plain, Tier::Optimized, "plain"), 2);
    let likely = twice("", ", !prof !1", effect);
    assert_eq!(calls(&likely, Tier::Guided, "plain"), 16);
}

#[test]
fn others_call_themselves_as_they_were_written() {
    let alone = |ir: &str| assert_eq!(calls(ir, Tier::Guided, "plain"), 2, "{ir}");
    // Its author wants that.
    alone(&twice("noinline", "", ""));
    // It hardly ever does.
    alone(&twice("", ", !prof !0", ""));
    // It looks at its own frame.
    let frame = "%frame = call ptr @llvm.frameaddress.p0(i32 0)
                 call void @use(ptr %frame)";
    alone(&twice("", "", frame));
    // The variables of all levels would be in one frame.
    let variable = |bytes: u32| {
        format!(
            "%room = alloca [{bytes} x i8]
             call void @use(ptr %room)"
        )
    };
    let in_entry = |bytes: u32| {
        let ir = twice("", "", "call void @use(ptr %room)");
        let room = format!("{{\n%room = alloca [{bytes} x i8]\n%small");
        ir.replacen("{\n           %small", &room, 1)
    };
    alone(&in_entry(100));
    assert_eq!(calls(&in_entry(60), Tier::Guided, "plain"), 4);
    alone(&twice("", "", &variable(8)));
    // It is large.
    let long: String = (0..80)
        .map(|at| {
            format!(
                "%x{at} = mul i64 %n, {}\nstore volatile i64 %x{at}, ptr null\n",
                at + 3
            )
        })
        .collect();
    alone(&twice("", "", &long));
}
