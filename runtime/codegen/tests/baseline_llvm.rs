//! Random functions, written as LLVM IR. LLVM's code must behave as the interpreter of the baseline
//! compiler's functions predicts. Functions read from LLVM IR and compiled by the baseline compiler
//! must do so too.
#![allow(
    dead_code,
    reason = "it uses a part of the proof of the baseline compiler"
)]

#[path = "../../baseline/tests/proof/chance.rs"]
mod chance;
#[path = "../../baseline/tests/proof/draft.rs"]
mod draft;
#[path = "../../baseline/tests/proof/effects.rs"]
mod effects;
#[path = "../../baseline/tests/proof/eval.rs"]
mod eval;
#[path = "../../baseline/tests/proof/generate/mod.rs"]
mod generate;
#[path = "../../baseline/tests/proof/interpret.rs"]
mod interpret;
#[path = "../../baseline/tests/ir/mod.rs"]
mod ir;
#[path = "../../baseline/tests/proof/llvm/mod.rs"]
mod llvm;
#[path = "../../baseline/tests/proof/memory.rs"]
mod memory;
#[path = "../../baseline/tests/proof/native/mod.rs"]
mod native;
#[path = "../../baseline/tests/proof/oracle/mod.rs"]
mod oracle;
#[path = "../../baseline/tests/proof/reduce.rs"]
mod reduce;
mod support;
#[path = "../../baseline/tests/proof/trial.rs"]
mod trial;
#[path = "../../baseline/tests/proof/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::process::Command;

use uruk_baseline::Code;
use uruk_codegen::{Compile, NotPlain, Read};

use crate::chance::Chance;
use crate::interpret::{Input, Ran};
use crate::ir::Function;
use crate::llvm::Text;
use crate::trial::{pieces, random_input};

/// Inputs of one function.
const INPUTS: usize = 8;

/// Functions of one module.
const EACH: u64 = 100;

/// Runs of a function with defined behaviour.
fn runs(function: &Function, seed: u64) -> Vec<(Input, Ran)> {
    let mut chance = Chance::new(seed ^ 0x77);
    let memory = pieces(&mut chance);
    let layout = native::layout();
    let runs = (0..INPUTS).filter_map(|_| {
        let input = random_input(function, &memory, &mut chance);
        let ran = interpret::run(function, &input, &layout).ok()?;
        Some((input, ran))
    });
    runs.collect()
}

/// Functions that LLVM IR can express, by their seeds, and their module.
fn module(seeds: std::ops::Range<u64>) -> (Vec<(u64, Function)>, String) {
    let (mut text, mut all) = (Text::default(), Vec::new());
    for seed in seeds {
        let function = generate::function(seed);
        let name = format!("f{seed}");
        if text.add(&name, &function, &native::layout()).is_some() {
            all.push((seed, function));
        }
    }
    (all, text.finish())
}

/// Seeds from the environment.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("URUK_SEEDS").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    match asked.map(|(from, to)| (from.parse(), to.parse())) {
        Some((Ok(from), Ok(to))) => from..to,
        _ => 0..600,
    }
}

/// Calls `work` with each module.
fn each(mut work: impl FnMut(Vec<(u64, Function)>, String)) {
    let all = seeds();
    let mut from = all.start;
    while from < all.end {
        let (functions, text) = module(from..(from + EACH).min(all.end));
        work(functions, text);
        from += EACH;
    }
}

fn told(wrong: &[String]) {
    let shown: Vec<_> = wrong.iter().take(6).cloned().collect();
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

/// LLVM's own compiler, if it is installed.
fn clang() -> Option<String> {
    let prefix = std::env::var("LLVM_SYS_221_PREFIX").unwrap_or_default();
    let names = [format!("{prefix}/bin/clang"), "clang-22".to_string()];
    let runs = |name: &String| Command::new(name).arg("--version").output().is_ok();
    names.into_iter().find(runs)
}

#[test]
fn llvm_does_what_the_interpreter_says() {
    let Some(clang) = clang() else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("uruk-baseline-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (mut wrong, mut count) = (Vec::new(), 0);
    each(|functions, text| {
        let (source, library) = (folder.join("m.ll"), folder.join(format!("{count}.so")));
        std::fs::write(&source, &text).expect("written");
        let mut command = Command::new(&clang);
        command
            .args(["-O0", "-w", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source)
            .args(["-lm", "-lgcc_s"]);
        let output = command.output().expect("clang runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let path = CString::new(library.to_string_lossy().into_owned()).expect("a path");
        // SAFETY: the library has functions only, and nothing runs when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: the text is the one of the call just before.
            let why = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
            panic!("{}", why.to_string_lossy());
        }
        for (seed, function) in functions {
            let name = CString::new(format!("f{seed}")).expect("a name");
            // SAFETY: the handle is of a library that is loaded.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) } as u64;
            let runs = runs(&function, seed);
            count += runs.len();
            if let Err((nth, what)) = native::compare_at(&function, at, &runs) {
                wrong.push(format!(
                    "seed {seed}: {what}\nwith {:x?}\n{}",
                    runs[nth].0.arguments,
                    ir::text(&function)
                ));
            }
        }
    });
    std::fs::remove_dir_all(&folder).expect("removed");
    println!("{count} runs");
    told(&wrong);
    assert!(
        count > 1000 || seeds() != (0..600),
        "hardly anything was tried"
    );
}

#[test]
fn what_is_read_and_compiled_does_what_the_interpreter_says() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut uncovered = BTreeMap::<&'static str, usize>::new();
    each(|functions, text| {
        let mut module = support::Bare::new(&text);
        for (seed, function) in functions {
            let read = match module.read(&format!("f{seed}"), &Compile::baseline()) {
                Ok(Read { function, .. }) => function,
                Err(NotPlain::Uncovered(reason)) => {
                    *uncovered.entry(reason.what).or_default() += 1;
                    continue;
                }
                Err(reason) => panic!("seed {seed}: {reason}"),
            };
            let runs = runs(&function, seed);
            let done = match uruk_baseline::compile(&read, &Default::default()) {
                Err(reason) => {
                    *uncovered.entry(reason.what).or_default() += 1;
                    continue;
                }
                Ok(code) => ir::check(&read)
                    .map_err(|broken| broken.to_string())
                    .and_then(|()| oracle::check(&read, &code, &Code::default()))
                    .and_then(|()| {
                        native::compare(&read, &code, &Code::default(), &runs)
                            .map_err(|(_, what)| what)
                    }),
            };
            count += runs.len();
            if let Err(what) = done {
                let (function, read) = (ir::text(&function), ir::text(&read));
                wrong.push(format!("seed {seed}: {what}\n{function}\nread:\n{read}"));
            }
        }
    });
    println!("{count} runs, not covered: {uncovered:?}");
    told(&wrong);
    assert!(
        count > 1000 || seeds() != (0..600),
        "hardly anything was tried"
    );
}
