//! Digests of records against hashes of LLVM's text: both distinguish the same definitions of two
//! versions.

use std::collections::{BTreeSet, HashMap};

use super::super::bodies::{Compared, of_text};
use super::compared;
use crate::bitcode::Bitcode;

const OLD: &str = r#"
%struct.pair = type { i32, ptr }
%struct.later = type { ptr, [2 x i64] }
$shared = comdat any
@.str = private unnamed_addr constant [3 x i8] c"a@\00", align 1
@.str.1 = private unnamed_addr constant [5 x i8] c"four\00", align 1
@names = internal constant [2 x ptr] [ptr @.str, ptr @.str.1], align 8
@ring = internal constant { ptr, i32 } { ptr @gnir, i32 4 }
@gnir = internal constant { ptr, i32 } { ptr @ring, i32 5 }
@count = internal global i32 1, align 4
@table = internal constant [2 x ptr] [ptr blockaddress(@jumps, %one), ptr blockaddress(@jumps, %two)]
@far = global ptr getelementptr inbounds ({ ptr, i32 }, ptr @ring, i64 0, i32 1)
@_ZTV3one = constant { [3 x ptr] } { [3 x ptr] [ptr null, ptr @first, ptr @shared] }
@alias = alias i32, ptr @count
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @first, ptr @count }]

declare i32 @outside(ptr, ...)
declare i32 @__gxx_personality_v0(...)
declare i64 @llvm.read_register.i64(metadata)
declare void @llvm.assume(i1)

define i32 @first(ptr %p) #0 {
  %a = load i32, ptr @count, align 4, !tbaa !2
  %b = load i32, ptr %p, align 4, !tbaa !2, !range !6
  %c = add nsw i32 %a, %b
  ret i32 %c
}

define ptr @second(i64 %n) #1 {
  %p = getelementptr inbounds %struct.pair, ptr @names, i64 %n
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %j, %next ]
  %j = add nuw i64 %i, 12345
  %m = icmp ult i64 %j, %n
  br i1 %m, label %next, label %end, !llvm.loop !4
end:
  ret ptr %p
}

define i64 @third(ptr %p, i64 %q) personality ptr @__gxx_personality_v0 {
  %s = alloca %struct.later, align 16
  %r = call i64 @llvm.read_register.i64(metadata !5)
  %v = invoke i32 (ptr, ...) @outside(ptr nonnull @.str.1, i64 %r, double 2.5)
       to label %good unwind label %bad
good:
  %x = atomicrmw add ptr %p, i64 %q seq_cst, align 8
  %y = cmpxchg ptr %p, i64 %x, i64 7 acq_rel monotonic, align 8
  %z = extractvalue { i64, i1 } %y, 0
  call void @llvm.assume(i1 true) [ "align"(ptr %p, i64 16) ]
  switch i64 %z, label %other [ i64 1, label %other
    i64 300, label %more ]
more:
  %w = call fastcc i64 asm sideeffect "mov $1, $0", "=r,r"(i64 %z)
  ret i64 %w
other:
  %f = freeze i64 %z
  %g = select i1 false, i64 %f, i64 add (i64 ptrtoint (ptr @count to i64), i64 9)
  ret i64 %g
bad:
  %l = landingpad { ptr, i32 } cleanup catch ptr @far
  resume { ptr, i32 } %l
}

define linkonce_odr void @shared(ptr byval(%struct.pair) align 8 %p) section ".text.x" comdat {
  store volatile ptr @gnir, ptr %p, align 8
  fence syncscope("singlethread") release
  ret void
}

define void @jumps(i64 %n) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %n
  %l = load ptr, ptr %p
  indirectbr ptr %l, [label %one, label %two]
one:
  store float 0x3FB99999A0000000, ptr @far
  ret void
two:
  %v = load <4 x float>, ptr @far
  %w = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> <i32 3, i32 2, i32 1, i32 0>
  %x = fadd fast <4 x float> %v, %w
  %y = insertelement <4 x float> %x, float 1.0, i32 2
  store <4 x float> %y, ptr @far
  ret void
}

define i32 @_ZZ1fvENKUlvE_clEv() {
  ret i32 5
}

define i32 @_ZZ1fvENKUlvE0_clEv() {
  ret i32 6
}

define i32 @branches(i32 %x) {
  %o = callbr i32 asm "test $1, $1; jz ${2:l}", "=r,r,!i"(i32 %x) to label %a [label %b]
a:
  ret i32 %o
b:
  ret i32 77
}

attributes #0 = { nounwind }
attributes #1 = { noinline "x"="@names" }
!2 = !{!3, !3, i64 0}
!3 = !{!"int", !8, i64 0}
!4 = distinct !{!4, !7}
!5 = !{!"rsp"}
!6 = !{i32 0, i32 9}
!7 = !{!"llvm.loop.mustprogress"}
!8 = !{!"root"}
"#;

/// Changes of the text, one by one.
const EDITS: &[(&str, &str)] = &[
    ("#1", "#7"),
    ("!3", "!9"),
    ("@.str", "@.str.5"),
    ("internal global i32 1", "internal global i32 2"),
    ("c\"a@", "c\"b@"),
    ("c\"four", "c\"five"),
    ("pair = type { i32", "pair = type { i64"),
    ("later = type { ptr", "later = type { i32"),
    ("!\"int\"", "!\"any\""),
    ("!\"root\"", "!\"tree\""),
    ("#0 = { nounwind }", "#0 = { cold }"),
    ("\"x\"=\"@names\"", "\"x\"=\"y\""),
    ("@count", "@other"),
    ("@alias", "@another"),
    ("ret i32 %c", "ret i32 0"),
    ("add nsw i32", "add i32"),
    ("add nsw i32", "sub nsw i32"),
    ("add nuw i64", "add nuw nsw i64"),
    ("inbounds %struct.pair", "%struct.pair"),
    ("12345", "12346"),
    ("icmp ult", "icmp slt"),
    ("!4 = distinct !{!4, !7}", "!4 = distinct !{!4}"),
    ("loop.mustprogress", "loop.vectorize"),
    ("!\"rsp\"", "!\"rbp\""),
    ("i32 0, i32 9}", "i32 0, i32 8}"),
    (", !range !6", ""),
    (
        "alloca %struct.later, align 16",
        "alloca %struct.later, align 32",
    ),
    ("double 2.5", "double 2.25"),
    ("ptr nonnull @.str.1", "ptr @.str.1"),
    (
        "to label %good unwind label %bad",
        "to label %other unwind label %bad",
    ),
    ("atomicrmw add", "atomicrmw xor"),
    ("seq_cst", "monotonic"),
    ("acq_rel monotonic", "acq_rel acquire"),
    ("\"align\"(ptr %p, i64 16)", "\"align\"(ptr %p, i64 32)"),
    ("i64 300", "i64 301"),
    ("fastcc i64 asm", "i64 asm"),
    ("mov $1", "add $1"),
    ("jz ${2", "jnz ${2"),
    ("to label %a [label %b]", "to label %b [label %a]"),
    ("ret i32 %o", "ret i32 0"),
    ("ret i32 77", "ret i32 78"),
    ("asm sideeffect", "asm"),
    ("i64 9)", "i64 10)"),
    ("select i1 false", "select i1 true"),
    ("landingpad { ptr, i32 } cleanup", "landingpad { ptr, i32 }"),
    ("catch ptr @far", "catch ptr null"),
    ("linkonce_odr void", "weak_odr void"),
    ("byval(%struct.pair)", "byval(%struct.later)"),
    (
        "byval(%struct.pair) align 8",
        "byval(%struct.pair) align 16",
    ),
    ("section \".text.x\"", "section \".text.y\""),
    ("\" comdat {", "\" {"),
    ("store volatile", "store"),
    ("syncscope(\"singlethread\") ", ""),
    ("i32 4 }", "i32 40 }"),
    ("i32 5 }", "i32 50 }"),
    ("%one), ptr", "%two), ptr"),
    ("i64 0, i32 1)", "i64 0, i32 0)"),
    ("0x3FB99999A0000000", "0x3FB99999C0000000"),
    ("i32 3, i32 2, i32 1, i32 0", "i32 3, i32 2, i32 1, i32 1"),
    ("fadd fast", "fadd nnan"),
    ("float 1.0, i32 2", "float 1.0, i32 3"),
    ("ret i32 5", "ret i32 6"),
    (
        "[ptr null, ptr @first, ptr @shared]",
        "[ptr null, ptr @shared, ptr @first]",
    ),
    ("i32 65535, ptr @first", "i32 65535, ptr @jumps"),
    (
        "declare i32 @outside(ptr, ...)",
        "declare i32 @outside(ptr, ...)\n@new = internal global i64 0\n@also = private constant [9 x i8] c\"12345678\\00\"",
    ),
    (
        "define i32 @first",
        "define void @new(ptr %p) {\n  store ptr @.str.1, ptr %p, !tbaa !2\n  ret void\n}\ndefine i32 @first",
    ),
    (
        "(ptr %p) #0 {",
        "(ptr %p) #0 personality ptr @__gxx_personality_v0 {",
    ),
];

/// The contents of a text by both methods.
fn both(text: &str) -> (Compared, Compared) {
    let made = Bitcode::from_ir_text("it", text).unwrap_or_else(|cause| panic!("{cause}"));
    let context = crate::context::LlvmContext::new().expect("a context");
    let module = super::super::read(&context, "it", made.bytes()).expect("a module");
    let of_text = of_text(&module.text());
    let of_records = compared(made.bytes()).expect("known records");
    (of_text, of_records)
}

/// Names of which two versions differ, or that only one of them has.
fn differing<T: PartialEq>(old: &HashMap<String, T>, new: &HashMap<String, T>) -> BTreeSet<String> {
    let names = old.keys().chain(new.keys());
    names
        .filter(|&it| old.get(it) != new.get(it))
        .cloned()
        .collect()
}

#[derive(Debug, Default, PartialEq)]
struct Differences([BTreeSet<String>; 5]);

fn differences(old: &Compared, new: &Compared) -> Differences {
    Differences([
        differing(&old.functions, &new.functions),
        differing(&old.values, &new.values),
        differing(&old.code, &new.code),
        differing(&old.aliases, &new.aliases),
        differing(&old.tables, &new.tables),
    ])
}

#[test]
fn records_tell_apart_what_the_text_tells_apart() {
    let (text, records) = both(OLD);
    assert_eq!(text.constructors, records.constructors);
    assert_eq!(text.tables, records.tables);
    let mut wrong = Vec::new();
    for (old, new) in EDITS {
        let edited = OLD.replace(old, new);
        assert_ne!(edited, OLD, "{old}");
        let (new_text, new_records) = both(&edited);
        let expected = differences(&text, &new_text);
        let found = differences(&records, &new_records);
        if found != expected {
            wrong.push(format!(
                "`{old}` becomes `{new}`: {found:?}, not {expected:?}"
            ));
        }
        assert_eq!(new_text.constructors, new_records.constructors, "{old}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_change_behind_a_circle_is_seen_by_all_that_reach_it() {
    let (_, old) = both(OLD);
    let (_, new) = both(&OLD.replace("i32 4 }", "i32 40 }"));
    let changed = differing(&old.functions, &new.functions);
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["shared"]);
    // By the text, the values of a circle depend on which of them is met first.
    for edit in [
        ("volatile ptr @gnir", "volatile ptr @ring"),
        ("$shared = comdat any", "$shared = comdat largest"),
    ] {
        let (_, new) = both(&OLD.replace(edit.0, edit.1));
        let changed = differences(&old, &new);
        let mut expected = Differences::default();
        expected.0[0].insert("shared".to_owned());
        assert_eq!(changed, expected, "{}", edit.0);
    }
}

#[test]
fn a_body_with_an_unknown_instruction_depends_on_all_of_the_file() {
    let text = format!(
        "{OLD}define void @label() personality ptr @__gxx_personality_v0 {{\n  invoke void @jumps(i64 0) to label %a unwind label %b\na:\n  ret void\nb:\n  %c = cleanuppad within none []\n  cleanupret from %c unwind to caller\n}}\n"
    );
    let (_, old) = both(&text);
    let (_, new) = both(&text.replace("ret i32 5", "ret i32 6"));
    let changed = differing(&old.functions, &new.functions);
    let changed: Vec<String> = changed.into_iter().collect();
    assert_eq!(changed, ["_ZZ1fvENKUlvE_clEv", "label"]);
    assert_eq!(both(&text).1, old);
}

#[test]
fn damage_is_refused_or_read_and_never_panics() {
    let made = Bitcode::from_ir_text("it", OLD).expect("valid");
    let mut bytes = made.bytes().to_vec();
    for at in 0..bytes.len() {
        let before = bytes[at];
        for change in [1_u8 << (at % 8), 0xff] {
            bytes[at] = before ^ change;
            let _ = compared(&bytes);
        }
        bytes[at] = before;
    }
    for end in (0..bytes.len()).step_by(7) {
        let _ = compared(&bytes[..end]);
    }
}
