//! Compares compiled code of random functions with the interpreter.
//!
//! `URUK_SEEDS=from..to` selects the seeds; a failing function is printed with its seed, reduced.

use std::collections::BTreeMap;

use crate::ir::{self, Function};
use uruk_baseline::{Features, Options};

use crate::chance::Chance;
use crate::generate;
use crate::reduce::reduce;
use crate::trial::{Outcome, pieces, random_input, try_inputs};

/// Inputs of one function.
const INPUTS: usize = 12;

fn attempt(function: &Function, seed: u64) -> Outcome {
    let mut chance = Chance::new(seed ^ 0x1234_5678);
    let mut inputs = Vec::new();
    let mut memory = pieces(&mut chance);
    for nth in 0..INPUTS {
        if nth % 4 == 3 {
            memory = pieces(&mut chance);
        }
        inputs.push(random_input(function, &memory, &mut chance));
    }
    let is = seed.is_multiple_of(2);
    let features = Features {
        popcnt: is,
        lzcnt: is,
        bmi1: is,
        ..Features::default()
    };
    try_inputs(function, inputs, &Options { features })
}

/// Seeds that the environment asks for.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("URUK_SEEDS").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    match asked.map(|(from, to)| (from.parse(), to.parse())) {
        Some((Ok(from), Ok(to))) => from..to,
        _ => 0..1500,
    }
}

#[test]
fn functions_do_what_they_say() {
    let mut uncovered = BTreeMap::<&'static str, usize>::new();
    let (mut functions, mut runs, mut wrong) = (0, 0, Vec::new());
    for seed in seeds() {
        let function = generate::function(seed);
        functions += 1;
        match attempt(&function, seed) {
            Outcome::Same(same) => runs += same,
            Outcome::Uncovered(what) => *uncovered.entry(what).or_default() += 1,
            Outcome::Wrong(what) => {
                let small = reduce(&function, &mut |one| attempt(one, seed).is_wrong());
                let why = attempt(&small, seed);
                let small = ir::text(&small);
                wrong.push(format!("seed {seed}: {what}\nsmall: {why:?}\n{small}"));
            }
        }
        if wrong.len() >= 5 {
            break;
        }
    }
    println!("{functions} functions, {runs} runs, not covered: {uncovered:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(runs > 2 * functions, "most inputs are undefined");
}

#[test]
fn what_is_made_is_read_as_it_is_written() {
    for seed in 0..200 {
        let function = generate::function(seed);
        let text = ir::text(&function).to_string();
        assert_eq!(ir::check(&function), Ok(()), "seed {seed}\n{text}");
        let again = ir::parse(&text).map(|function| ir::text(&function).to_string());
        assert_eq!(again.as_ref(), Ok(&text), "seed {seed}");
    }
}

#[test]
#[ignore = "prints functions"]
fn print() {
    for seed in seeds() {
        println!("seed {seed}\n{}", ir::text(&generate::function(seed)));
    }
}
