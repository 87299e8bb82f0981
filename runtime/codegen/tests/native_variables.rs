//! The survey's information on a variable's uses, and variables that become parts or constants.

mod support;

use support::{bitcode, text};
use uruk_codegen::fatal;
use uruk_codegen::native::{
    Choices, FunctionChoice, Keep, Part, Survey, Uses, VariableAccess, VariableChoice, rebind,
};

/// Choices that keep functions and make variables the module's own, except the first variable.
fn first(survey: &Survey, choice: VariableChoice) -> Choices {
    let functions = survey.functions.iter().map(|info| FunctionChoice {
        name: info.name.clone(),
        keep: Keep::Body,
        address: None,
    });
    let mut variables = vec![VariableChoice::Own; survey.variables.len()];
    variables[0] = choice;
    Choices {
        functions: functions.collect(),
        variables,
    }
}

/// The survey's information on the first variable: its uses, and whether it may be a flag.
fn told(ir: &str) -> (Uses, bool) {
    let mut told = None;
    let bytes = bitcode(ir);
    let choose = |survey: &Survey| {
        let info = &survey.variables[0];
        told = Some((info.uses.clone(), info.flag));
        first(survey, VariableChoice::Own)
    };
    fatal::guard(|_| {}, || rebind("m", &bytes, choose)).expect("it can be rebound");
    told.expect("it was asked")
}

/// The uses of `@v`, of two numbers and then four bytes, by the body of a function.
fn uses(body: &str) -> Uses {
    let ir = format!(
        "target datalayout = \"e-m:e-i64:64-n8:16:32:64-S128\"
         %s = type {{ i32, i64, [4 x i8] }}
         @v = internal global %s zeroinitializer
         @other = global ptr null
         declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
         declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
         declare void @give(ptr)
         define void @f(i64 %x, ptr %p) {{ {body} ret void }}"
    );
    told(&ir).0
}

fn access(offset: u64, size: u64) -> VariableAccess {
    VariableAccess {
        offset,
        size,
        flag: false,
    }
}

const FIELD: &str = "%q = getelementptr inbounds %s, ptr @v, i32 0, i32 1 ";
const VARYING: &str = "%q = getelementptr inbounds %s, ptr @v, i32 0, i32 2, i64 %x ";

#[test]
fn loads_and_copies_from_it_are_reads() {
    assert_eq!(uses(""), Uses::Read);
    assert_eq!(uses(&format!("{VARYING} %a = load i8, ptr %q")), Uses::Read);
    let copy = "call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr @v, i64 16, i1 false)";
    assert_eq!(uses(copy), Uses::Read);
}

#[test]
fn what_is_only_written_is_told() {
    assert_eq!(uses("store i32 1, ptr @v"), Uses::Written);
    let varying = format!("{VARYING} store i8 1, ptr %q");
    assert_eq!(uses(&varying), Uses::Written);
    let fill = "call void @llvm.memset.p0.i64(ptr @v, i8 0, i64 24, i1 false)";
    assert_eq!(uses(fill), Uses::Written);
}

#[test]
fn plain_accesses_at_fixed_places_are_listed() {
    let body = format!(
        "{FIELD} store i64 %x, ptr %q
         %a = load i32, ptr @v
         %b = load i64, ptr getelementptr (i8, ptr @v, i64 8)
         %r = getelementptr i8, ptr %q, i64 8
         store i16 1, ptr %r"
    );
    let expected = vec![access(0, 4), access(8, 8), access(16, 2)];
    assert_eq!(uses(&body), Uses::Accessed(expected));
    // The caller of the survey sees that these overlap.
    let both = "%a = load i32, ptr @v store i64 %x, ptr @v";
    let expected = vec![access(0, 4), access(0, 8)];
    assert_eq!(uses(both), Uses::Accessed(expected));
}

#[test]
fn what_else_is_done_with_it_is_not_followed() {
    let bodies = [
        "%a = load volatile i32, ptr @v",
        "%a = load atomic i32, ptr @v seq_cst, align 4",
        "store volatile i32 1, ptr @v",
        "store ptr @v, ptr @other",
        "store ptr @v, ptr @v",
        "call void @give(ptr @v)",
        "%a = icmp eq ptr @v, %p",
        "%a = atomicrmw add ptr @v, i32 1 seq_cst",
        "call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr @v, i64 16, i1 true)",
        // A read and a write, the latter of unknown size.
        "%a = load i32, ptr @v call void @llvm.memset.p0.i64(ptr @v, i8 0, i64 24, i1 false)",
        // A read and a write of bits that do not fill the memory.
        "%a = load i1, ptr @v store i1 %a, ptr @v",
        // A read and a write in front of it.
        "%q = getelementptr i8, ptr @v, i64 -4 %a = load i32, ptr %q store i32 %a, ptr %q",
    ];
    for body in bodies {
        assert_eq!(uses(body), Uses::Any, "{body}");
    }
    let varying = format!("{VARYING} %a = load i8, ptr %q store i8 %a, ptr %q");
    assert_eq!(uses(&varying), Uses::Any);
}

#[test]
fn only_plain_local_variables_are_told_of() {
    let read = "define i32 @f() { %a = load i32, ptr @v ret i32 %a }";
    let uses = |variable: &str| told(&format!("{variable} {read}")).0;
    assert_eq!(uses("@v = internal global i32 1"), Uses::Read);
    for variable in [
        "@v = global i32 1",
        "@v = external global i32",
        "@v = internal global i32 1, section \"mine\"",
        "@v = internal thread_local global i32 1",
        "@v = internal externally_initialized global i32 1",
        "@v = internal global i32 1 @p = global ptr @v",
        "@v = internal global i32 1 @llvm.used = appending global [1 x ptr] [ptr @v], section \"llvm.metadata\"",
        "@v = internal global i32 1 @llvm.compiler.used = appending global [1 x ptr] [ptr @v], section \"llvm.metadata\"",
    ] {
        assert_eq!(uses(variable), Uses::Any, "{variable}");
    }
}

#[test]
fn constructors_write_as_all_functions_do() {
    let (uses, _) = told(
        "@v = internal global i32 1
         @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
         define internal void @start() { store i32 2, ptr @v ret void }
         define i32 @f() { %a = load i32, ptr @v ret i32 %a }",
    );
    assert_eq!(uses, Uses::Accessed(vec![access(0, 4)]));
}

#[test]
fn bytes_are_flags_unless_they_are_bits_from_the_start() {
    let get = "define i8 @get() { %a = load i8, ptr @v ret i8 %a }";
    let flag = |first: u8, set: &str| {
        let (_, flag) = told(&format!(
            "@v = internal global i8 {first} {get}
             declare void @give(ptr)
             define void @set(i8 %x, i1 %b) {{ {set} ret void }}"
        ));
        flag
    };
    assert!(!flag(0, "store i8 1, ptr @v"));
    assert!(!flag(0, "%z = zext i1 %b to i8 store i8 %z, ptr @v"));
    assert!(flag(0, "store i8 5, ptr @v"));
    // After inlining it may store one number only.
    assert!(flag(0, "store i8 %x, ptr @v"));
    // A flag would begin as 0, and mean 1 by that.
    assert!(flag(1, "store i8 0, ptr @v"));
    assert!(flag(97, "store i8 1, ptr @v"));
    assert!(flag(1, "call void @give(ptr @v)"));
    assert!(!flag(0, "call void @give(ptr @v)"));
    let (_, volatile) = told(
        "@v = internal global i8 1
         define void @set() { store volatile i8 0, ptr @v ret void }",
    );
    assert!(!volatile);
}

#[test]
fn bytes_of_a_larger_variable_may_be_flags() {
    let flags = |first: &str| {
        let (uses, _) = told(&format!(
            "@v = internal global [2 x i8] {first}
             define void @f(i1 %b) {{
               %a = load i8, ptr @v
               %z = zext i1 %b to i8
               store i8 %z, ptr @v
               %q = getelementptr i8, ptr @v, i64 1
               %c = load i8, ptr %q
               store i8 2, ptr %q
               ret void
             }}"
        ));
        let Uses::Accessed(accesses) = uses else {
            panic!("{uses:?}");
        };
        accesses
            .iter()
            .map(|access| access.flag)
            .collect::<Vec<_>>()
    };
    assert_eq!(flags("zeroinitializer"), [false, true]);
    assert_eq!(flags("[i8 1, i8 0]"), [true, true]);
}

#[test]
fn values_of_variables_mention_others() {
    let bytes = bitcode(
        "@v = internal global { ptr, ptr, ptr } { ptr @w, ptr @f, ptr getelementptr (i8, ptr @w, i64 1) }
         @w = internal global [2 x i8] zeroinitializer
         define void @f() { ret void }",
    );
    let choose = |survey: &Survey| {
        let info = &survey.variables[0];
        assert_eq!((&info.variables, &info.functions), (&vec![1], &vec![0]));
        first(survey, VariableChoice::Constant)
    };
    let made = fatal::guard(|_| {}, || rebind("m", &bytes, choose));
    let out = text(&made.expect("it can be rebound"));
    assert!(out.contains("@v = internal constant {"), "{out}");
}

const SPLIT: &str = "target datalayout = \"e-m:e-i64:64-n8:16:32:64-S128\"
    %s = type { i32, i64 }
    @v = internal global %s { i32 1, i64 2 }, align 16
    define i64 @f(i64 %x) {
      %q = getelementptr inbounds %s, ptr @v, i32 0, i32 1
      %a = load i64, ptr %q, align 8
      store i32 1, ptr @v, align 16
      store i64 %x, ptr getelementptr (i8, ptr @v, i64 8), align 8
      ret i64 %a
    }";

fn parts(sizes: &[(u64, u64)]) -> VariableChoice {
    let parts = sizes.iter().enumerate();
    let parts = parts.map(|(number, &(offset, size))| Part {
        offset,
        size,
        align: 4,
        name: format!("its.{number}"),
    });
    VariableChoice::Parts(parts.collect())
}

#[test]
fn accesses_mean_the_parts() {
    let bytes = bitcode(SPLIT);
    let choose = |survey: &Survey| first(survey, parts(&[(0, 4), (8, 8)]));
    let made = fatal::guard(|_| {}, || rebind("m", &bytes, choose));
    let out = text(&made.expect("it can be rebound"));
    for line in [
        "@its.0 = external global [4 x i8], align 4",
        "@its.1 = external global [8 x i8], align 4",
        "load i64, ptr @its.1, align 4",
        "store i32 1, ptr @its.0, align 4",
        "store i64 %x, ptr @its.1, align 4",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("getelementptr"), "{out}");
}

#[test]
fn parts_that_lack_an_access_are_an_error() {
    let bytes = bitcode(SPLIT);
    for sizes in [&[(0, 4)][..], &[(0, 4), (8, 4)], &[]] {
        let choose = |survey: &Survey| first(survey, parts(sizes));
        assert!(fatal::guard(|_| {}, || rebind("m", &bytes, choose)).is_err());
    }
}

#[test]
fn a_byte_whose_address_callers_keep_is_no_flag() {
    let flag = |keep: &str| {
        let (_, flag) = told(&format!(
            "@v = internal global i8 0
             define internal ptr @of() {{ ret ptr @v }}
             define void @keep(ptr %p) {{
               %c = call ptr @of()
               %own = alloca ptr
               %place = load ptr, ptr %p
               %field = getelementptr i8, ptr %place, i64 8
               {keep}
               ret void
             }}"
        ));
        flag
    };
    assert!(!flag("store ptr %c, ptr %field"));
    // The uses of its address may become visible.
    assert!(flag("store ptr %c, ptr %own"));
    assert!(flag("store i8 5, ptr %c"));
}
