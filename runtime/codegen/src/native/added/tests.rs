//! Changes of a function, and whether they are pure additions.

use std::collections::HashSet;

use super::{Additions, only_added};
use crate::bitcode::Bitcode;

const OLD: &str = r#"
@effects = global i64 0
@table = internal global [2 x ptr] [ptr @f, ptr @before]
declare i32 @printf(ptr, ...)
declare void @other(ptr)
define internal i32 @before() { ret i32 1 }
define i32 @f(i32 %0, ptr %1) nounwind {
  %3 = alloca i32
  store i32 %0, ptr %3
  %4 = load i32, ptr %3
  %5 = icmp sgt i32 %4, 3
  br i1 %5, label %6, label %9
6:
  %7 = load i64, ptr @effects
  %8 = add nsw i64 %7, 1
  store i64 %8, ptr @effects
  br label %9
9:
  %10 = phi i32 [ 1, %6 ], [ %4, %2 ]
  switch i32 %10, label %12 [
    i32 5, label %11
    i32 6, label %12
  ]
11:
  call void @other(ptr %1)
  br label %12
12:
  ret i32 %10
}
define i64 @pure() memory(none) { ret i64 5 }
define void @after() { ret void }
"#;

/// The additions to `f` if `more` is inserted before the load of its second block, and `data`
/// beside the variables.
fn added(data: &str, more: &str) -> Option<Additions> {
    let load = "  %7 = load i64, ptr @effects\n";
    let names = |text: &str| {
        // As LLVM numbers them.
        let text = text.replace("%7", "%old").replace("%8", "%sum");
        let text = text.replace("%9", "%end").replace("\n9:", "\nend:");
        let text = text.replace("%10", "%phi").replace("%11", "%five");
        let text = text.replace("\n11:", "\nfive:");
        text.replace("%12", "%last").replace("\n12:", "\nlast:")
    };
    let new = OLD.replace(load, &format!("{more}{load}"));
    let new = names(&format!("{data}\n{new}"));
    let (old, new) = (bitcode(&names(OLD)), bitcode(&new));
    only_added("it", &old, &new, &HashSet::from(["f".to_owned()])).expect("bitcode")
}

fn bitcode(text: &str) -> Vec<u8> {
    let made = Bitcode::from_ir_text("it", text).expect("valid");
    made.bytes().to_vec()
}

const HITS: &str = "@hits = external global i64";
const COUNT: &str = "  %a = load volatile i64, ptr @hits\n  %b = add i64 %a, 1\n  store volatile i64 %b, ptr @hits\n";

#[test]
fn counters_and_lines_are_only_added() {
    let counter = added(HITS, COUNT).expect("only added");
    assert_eq!(counter.shared, ["hits"]);
    assert_eq!(counter.pure, HashSet::from(["pure".to_owned()]));
    let atomic = "  %a = atomicrmw add ptr @own, i64 1 seq_cst, align 8\n";
    let own = added("@own = internal global i64 0", atomic).expect("only added");
    let kept = "  %a = alloca i64\n  store i64 1, ptr %a\n  %b = load i64, ptr %a\n";
    let kept = format!("{kept}  store i64 %b, ptr @own\n");
    assert_eq!(
        added("@own = internal global i64 0", &kept).as_ref(),
        Some(&own)
    );
    assert!(own.shared.is_empty());
    let line = "  %a = call i32 (ptr, ...) @printf(ptr @text, i64 7)\n";
    let text = "@text = private constant [3 x i8] c\"a\\0A\\00\"";
    assert_eq!(added(text, line).expect("only added").writers, ["printf"]);
    assert!(added("", "").expect("nothing").shared.is_empty());
}

#[test]
fn whatever_else_differs_is_not_only_added() {
    let refused = |data: &str, more: &str| assert_eq!(added(data, more), None, "{more}");
    // An argument, a result, an old variable, its address.
    refused(
        HITS,
        "  %a = zext i32 %4 to i64\n  store i64 %a, ptr @hits\n",
    );
    refused("", "  store i64 7, ptr @effects\n");
    refused("", "  %a = load i64, ptr @effects\n");
    refused(
        "@kept = external global ptr",
        "  store ptr @effects, ptr @kept\n",
    );
    refused(
        "@kept = external global ptr\n@own = internal global i64 0",
        "  store i64 1, ptr @own\n  store ptr @own, ptr @kept\n",
    );
    refused(
        "@own = internal global i64 0\n@kept = global ptr @own",
        "  store i64 1, ptr @own\n",
    );
    // A pointer that leads anywhere.
    let own = "@own = internal global ptr null";
    let through = "  %a = load ptr, ptr @own\n";
    refused(own, &format!("{through}  store i64 1, ptr %a\n"));
    refused(own, &format!("{through}  %b = load i64, ptr %a\n"));
    refused("", "  store i64 1, ptr null\n");
    // Instructions that trap, and calls with unknown effects.
    refused(HITS, "  %a = load i64, ptr @hits\n  %b = sdiv i64 7, %a\n");
    refused("", "  call void @other(ptr null)\n");
    refused("", "  call void @after()\n");
    refused("", "  %a = call i32 (ptr, ...) @printf(ptr %1)\n");
    refused("", "  call void asm sideeffect \"\", \"\"()\n");
    // Blocks.
    refused("", "  br label %more\nmore:\n");
    refused(HITS, "  store i64 1, ptr %1\n");
}

#[test]
fn old_instructions_stay_as_they_are() {
    let changed = |old: &str, new: &str| {
        assert!(OLD.contains(old));
        let new = bitcode(&OLD.replacen(old, new, 1));
        only_added("it", &bitcode(OLD), &new, &HashSet::from(["f".to_owned()])).expect("bitcode")
    };
    assert_eq!(changed("icmp sgt", "icmp slt"), None);
    assert_eq!(
        changed("i1 %5, label %6, label %9", "i1 %5, label %9, label %6"),
        None
    );
    assert_eq!(changed("add nsw", "add"), None);
    assert_eq!(changed("store i64 %8", "store i64 %7"), None);
    assert_eq!(changed("i32 6, label %12", "i32 7, label %12"), None);
    assert_eq!(changed("[ 1, %6 ]", "[ 2, %6 ]"), None);
    assert_eq!(changed("ptr %1) nounwind", "ptr %1)"), None);
    assert_eq!(changed("  call void @other(ptr %1)\n", ""), None);
    // A function that differs from the native one, and is not compared.
    assert!(changed("ret void", "unreachable").is_some());
}
