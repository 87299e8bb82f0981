//! Functions read for the baseline compiler: IR text in, the function's text out. Each file of
//! `baseline/` is a module whose functions are followed by comments with the expected output;
//! `URUK_BLESS=1` writes these anew.

#[path = "../../baseline/tests/ir/mod.rs"]
mod ir;
mod support;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use support::{Bare, id};
use uruk_codegen::{Compile, Counters, Head, NotPlain, Read, Tier, Transform};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/baseline")
        .join(name)
}

/// The text of a module's function as read, or the reason for refusal; checks the reader's
/// invariants.
fn text(module: &mut Bare, name: &str, how: &Compile) -> String {
    match module.read_exits(name, how) {
        Ok(Read { function, .. }) => {
            let text = ir::text(&function).to_string();
            if let Err(broken) = ir::check(&function) {
                panic!("{name}: {broken}\n{text}");
            }
            text
        }
        Err(NotPlain::Invalid(what)) => panic!("{name}: {what}"),
        Err(reason) => format!("{reason}\n"),
    }
}

/// Checks the comments behind each function of a file.
fn check(name: &str, how: &Compile) {
    let path = file(name);
    let source = std::fs::read_to_string(&path).expect("the file");
    let mut module = Bare::new(&source);
    let mut out = String::new();
    for line in source.lines().filter(|line| !line.starts_with(";>")) {
        writeln!(out, "{line}").expect("a string");
        if let Some(rest) = line.strip_prefix("define ") {
            let name = rest
                .split_once('@')
                .and_then(|(_, rest)| rest.split_once('('));
            let (name, _) = name.expect("a name");
            for line in text(&mut module, name, how).lines() {
                // Behind the line that begins the function: a comment is allowed inside of it.
                writeln!(out, ";> {line}").expect("a string");
            }
        }
    }
    if std::env::var_os("URUK_BLESS").is_some() {
        std::fs::write(&path, &out).expect("written");
        return;
    }
    if source != out {
        let mut lines = source.lines().zip(out.lines());
        let first = lines.find(|(old, new)| old != new);
        panic!("{name}: {first:#?}");
    }
}

#[test]
fn integers_and_floating_point() {
    check("arithmetic.ll", &Compile::baseline());
}

#[test]
fn integers_of_128_bits() {
    check("wide.ll", &Compile::baseline());
}

#[test]
fn memory_addresses_and_aggregates() {
    check("memory.ll", &Compile::baseline());
}

#[test]
fn calls_and_how_values_are_passed() {
    check("calls.ll", &Compile::baseline());
}

#[test]
fn blocks_and_exceptions() {
    check("control.ll", &Compile::baseline());
}

#[test]
fn intrinsics() {
    check("intrinsics.ll", &Compile::baseline());
}

#[test]
fn vectors_by_lanes() {
    check("vectors.ll", &Compile::baseline());
}

#[test]
fn what_is_not_covered_is_named() {
    check("uncovered.ll", &Compile::baseline());
}

#[test]
fn counters_and_loops_that_are_left() {
    let mut how = Compile::baseline().counting(Counters::Entry);
    how.leaves = true;
    check("loops.ll", &how);
}

#[test]
fn settings_that_ask_for_more_are_refused() {
    let mut module = Bare::new("define void @f() {\n  ret void\n}\n");
    let mut changed = Compile::baseline();
    changed.transform = Some(Transform::new(|_| Ok(())));
    let cases = [
        (
            Compile::at(Tier::Optimized),
            "a higher tier is not covered\n",
        ),
        (
            Compile::baseline().counting(Counters::Full),
            "probes is not covered\n",
        ),
        (
            changed,
            "a change of the code by the embedder is not covered\n",
        ),
    ];
    for (how, told) in cases {
        assert_eq!(text(&mut module, "f", &how), told);
    }
}

#[test]
fn what_is_found_out_is_what_a_copy_says() {
    let mut how = Compile::baseline().counting(Counters::Entry);
    how.leaves = true;
    for name in [
        "arithmetic.ll",
        "memory.ll",
        "vectors.ll",
        "calls.ll",
        "control.ll",
        "loops.ll",
    ] {
        let source = std::fs::read_to_string(file(name)).expect("the file");
        let mut module = Bare::new(&source);
        let names: Vec<String> = source
            .lines()
            .filter_map(|line| {
                let rest = line.strip_prefix("define ")?.split_once('@')?.1;
                Some(rest.split_once('(')?.0.to_owned())
            })
            .collect();
        for name in names {
            let Ok(read) = module.read(&name, &how) else {
                continue;
            };
            let id = id(&module.reader, &name);
            let copied = module.reader.compile(&module.plan, id, &how);
            let copied = copied.expect("compiles");
            let read = read.compiled;
            assert_eq!(read.instructions, copied.instructions, "{name}");
            assert_eq!(read.loops, copied.loops, "{name}");
            assert_eq!(read.nested, copied.nested, "{name}");
            assert_eq!(read.calls, copied.calls, "{name}");
            // The reader does not check whether they stay inside.
            assert!(read.labels >= copied.labels, "{name}");
            assert_eq!(read.counts, copied.counts, "{name}");
            let exits = module.read_exits(&name, &how).expect("it was read");
            let known = exits.compiled.heads;
            assert_eq!(known.refused, copied.heads.refused, "{name}");
            let sorted = |heads: &[Head]| {
                let exits = heads
                    .iter()
                    .filter_map(|it| Some((it.block, it.fingerprint?)));
                exits.collect::<BTreeSet<_>>()
            };
            assert_eq!(
                sorted(&known.counted),
                sorted(&copied.heads.counted),
                "{name}"
            );
            // All loops are counted, whether or not they can be left.
            assert_eq!(read.heads.counted.len(), known.counted.len(), "{name}");
            assert_eq!(read.heads.counted.len() as u32, read.loops, "{name}");
            // The reader does not check a copy's assembly; here it is known to be empty.
            let keeps = copied.keeps_stack || ["barrier", "tied"].contains(&&*name);
            assert_eq!(read.keeps_stack, keeps, "{name}");
        }
    }
}
