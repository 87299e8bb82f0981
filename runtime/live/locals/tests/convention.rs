//! LLVM compiles calls of the convention `fastcc`, which optimizers give to local functions, as those of C: the record
//! has functions of both.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Types of arguments and results.
const TYPES: [&str; 18] = [
    "i1 zeroext",
    "i8 signext",
    "i16 zeroext",
    "i32",
    "i64",
    "i128",
    "float",
    "double",
    "x86_fp80",
    "fp128",
    "ptr",
    "<4 x float>",
    "<8 x float>",
    "<2 x i64>",
    "{ i64, i64 }",
    "{ i64, double }",
    "{ ptr, i32, float }",
    "[3 x i64]",
];

/// Arguments that attributes place.
const PLACED: [&str; 4] = [
    "ptr byval({ i64, i64, i64 }) align 8",
    "ptr byval({ i32, i8 }) align 32",
    "ptr sret({ i64, i64, i64 })",
    "ptr nest",
];

/// A function of the convention with these arguments, and one that calls it and uses its result.
fn pair(number: usize, convention: &str, result: &str, arguments: &[&str]) -> String {
    // Attributes of results precede their type.
    let (kind, extended) = result.split_once(' ').unwrap_or((result, ""));
    let (kind, extended) = match extended {
        "zeroext" | "signext" => (kind, extended),
        _ => (result, ""),
    };
    let named = |prefix: &str| -> String {
        let all = arguments.iter().enumerate();
        let all: Vec<String> = all.map(|(at, it)| format!("{it} %{prefix}{at}")).collect();
        all.join(", ")
    };
    let sources = arguments.iter().position(|it| *it == result);
    let returned = match sources {
        Some(at) => format!("ret {kind} %a{at}"),
        None => format!("ret {kind} zeroinitializer"),
    };
    let stores: String = arguments
        .iter()
        .enumerate()
        .map(|(at, it)| {
            let kind = match it.split_once(' ') {
                Some((kind, "zeroext" | "signext")) => kind,
                _ if it.starts_with("ptr") => "ptr",
                _ => it,
            };
            format!("  store volatile {kind} %a{at}, ptr @kept, align 1\n")
        })
        .collect();
    let passed = named("a");
    format!(
        "define internal {convention} {extended} {kind} @callee{number}({passed}) noinline {{\n{stores}  {returned}\n}}\n\
         define void @caller{number}({passed}) {{\n  \
         %result = call {convention} {extended} {kind} @callee{number}({passed})\n  \
         store volatile {kind} %result, ptr @kept, align 1\n  ret void\n}}\n"
    )
}

/// Functions of each type, of many arguments of one type, and of all types together.
fn module(convention: &str) -> String {
    let mut text = String::from(
        "target triple = \"x86_64-pc-linux-gnu\"\n@kept = global [64 x i8] zeroinitializer\n",
    );
    let mut number = 0;
    let mut add = |result: &str, arguments: &[&str]| {
        text += &pair(number, convention, result, arguments);
        number += 1;
    };
    for kind in TYPES {
        add(kind, &[kind]);
        add(kind, &[kind; 12]);
        for placed in PLACED {
            // Only `sret` has to come first, and such a function returns nothing of its own.
            if !placed.contains("sret") {
                add(kind, &["i32", kind, placed, kind]);
            }
        }
    }
    add("i32", &TYPES);
    add(
        "ptr",
        &[
            "ptr",
            "double",
            "ptr byval({ i64, i64, i64 }) align 8",
            "i64",
            "i64",
            "i64",
            "i64",
            "i64",
            "i64",
        ],
    );
    text
}

/// The assembly of a module for a processor; `None` without clang.
fn assembly(text: &str, level: &str, features: &str) -> Option<String> {
    let beside = Path::new(option_env!("LLVM_SYS_221_PREFIX").unwrap_or("/usr/lib/llvm-22"));
    let mut command = Command::new(beside.join("bin/clang"));
    command.args(["-x", "ir", "-w", "-S", "-o", "-", level, features, "-"]);
    // Passes would change conventions and calls.
    command.args(["-Xclang", "-disable-llvm-passes"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    stdin.write_all(text.as_bytes()).ok()?;
    drop(stdin);
    let output = child.wait_with_output().ok()?;
    assert!(output.status.success(), "the module is not valid");
    String::from_utf8(output.stdout).ok()
}

#[test]
fn fast_calls_are_those_of_c() {
    for level in ["-O0", "-O2"] {
        for features in ["-mno-avx", "-mavx2", "-mavx512f"] {
            let code = |convention| assembly(&module(convention), level, features);
            let (Some(c), Some(fast)) = (code("ccc"), code("fastcc")) else {
                eprintln!("clang is not installed");
                return;
            };
            assert!(c.contains("caller50"), "no functions were made");
            assert!(c == fast, "{level} {features}: another convention");
            // The comparison can fail.
            assert!(code("coldcc").is_some_and(|other| other != c));
        }
    }
}
