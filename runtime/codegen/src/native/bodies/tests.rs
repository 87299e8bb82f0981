//! Bodies and values of texts with one difference.

use super::of_text;

const OLD: &str = r#"
%struct.pair = type { i32, ptr }
@.str = private unnamed_addr constant [3 x i8] c"a@\00", align 1
@names = internal constant [1 x ptr] [ptr @.str], align 8
@count = internal global i32 1, align 4

; Function Attrs: nounwind
define i32 @first(ptr %0) #0 {
  %2 = load i32, ptr @count, align 4, !tbaa !2
  ret i32 %2
}

define ptr @second(i64 %0) #1 {
  %2 = getelementptr %struct.pair, ptr @names, i64 %0
  br label %3, !llvm.loop !4
3:
  ret ptr %2
}

attributes #0 = { nounwind }
attributes #1 = { noinline "x"="@names" }
!2 = !{!3, !3, i64 0}
!3 = !{!"int"}
!4 = distinct !{!4, !3}
"#;

/// The names of functions whose bodies change if each `old` is written as `new`.
fn changed(changes: &[(&str, &str)]) -> Vec<String> {
    let before = of_text(OLD).functions;
    let text = changes
        .iter()
        .fold(OLD.to_owned(), |text, (old, new)| text.replace(old, new));
    assert!(changes.is_empty() || text != OLD);
    let after = of_text(&text).functions;
    let names = before.iter().filter(|(name, body)| after[*name] != **body);
    let mut names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

#[test]
fn numbers_and_private_names_mean_nothing() {
    assert!(changed(&[]).is_empty());
    assert!(changed(&[("#1", "#7"), ("!3", "!9"), ("!4", "!11")]).is_empty());
    assert!(changed(&[("@.str", "@.str.5")]).is_empty());
    // A module's text may end without a newline.
    assert_eq!(of_text(OLD.trim_end()).functions, of_text(OLD).functions);
    assert!(changed(&[("internal global i32 1", "internal global i32 2")]).is_empty());
}

#[test]
fn constants_are_told_with_all_that_their_values_mention() {
    let of = |old: &str, new: &str| of_text(&OLD.replace(old, new)).values["names"];
    let same = of("", "");
    assert_eq!(of("@.str", "@.str.7"), same);
    assert_eq!(of("internal global i32 1", "internal global i32 2"), same);
    assert_ne!(of("c\"a@", "c\"b@"), same);
    assert_ne!(of("[ptr @.str]", "[ptr null]"), same);
    let text = of_text(
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @f, ptr @v }]\ndefine void @f() {\n  ret void\n}\n",
    );
    assert_eq!(text.constructors, ["f"]);
}

#[test]
fn what_a_body_uses_is_part_of_it() {
    assert_eq!(changed(&[("c\"a@", "c\"b@")]), ["second"]);
    assert_eq!(changed(&[("type { i32", "type { i64")]), ["second"]);
    assert_eq!(changed(&[("!\"int\"", "!\"any\"")]), ["first", "second"]);
    assert_eq!(
        changed(&[("#0 = { nounwind }", "#0 = { cold }")]),
        ["first"]
    );
    assert_eq!(changed(&[("@count", "@other")]), ["first"]);
    assert_eq!(changed(&[("ret i32 %2", "ret i32 0")]), ["first"]);
}
