//! Random sequences of what can be done to a session, against a model of its rules: after each
//! step both are in the same state, have told units the same things in the same order, and have
//! answered the same lookups in the same way.
//!
//! The session is `uruk::Jit`, with a compile thread; the model is `rules`, which is as simple as
//! it is slow. One thread takes the steps: what several do at once is for `session/tests/loom.rs`
//! and the stress tests. A sequence that fails is made shorter before it is shown; it is run again
//! with `URUK_MODEL_SEED=N cargo test -p uruk --test generated model::`.

mod answers;
mod asking;
mod changes;
mod compare;
mod ops;
mod rules;
mod steps;
mod system;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ops::{Draw, Op};
use rules::Rules;
use system::System;

/// How long a session may take to come to where the rules are. Whatever is right is there long
/// before, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for attempts to show a fault in fewer steps: there a wrong guess does no harm.
const HASTE: Duration = Duration::from_secs(2);

const SEQUENCES: u64 = 500;
const STEPS: usize = 120;

/// Takes the steps; what differs, and after which.
fn replay(ops: &[Op], patience: Duration) -> Result<(), (usize, String)> {
    let (mut rules, mut system) = (Rules::default(), System::new());
    for (at, op) in ops.iter().enumerate() {
        step(&mut rules, &mut system, op, patience).map_err(|what| (at, what))?;
    }
    Ok(())
}

fn step(rules: &mut Rules, system: &mut System, op: &Op, patience: Duration) -> Result<(), String> {
    let taken = catch_unwind(AssertUnwindSafe(|| system.step(rules, op)));
    taken.map_err(|_| "a step panicked".to_owned())??;
    system.wait_for(rules, patience)
}

/// Leaves steps out as long as something differs without them.
fn shortest(mut ops: Vec<Op>) -> Vec<Op> {
    let mut size = ops.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + size).min(ops.len()));
            match replay(&fewer, HASTE) {
                Err((last, _)) => {
                    fewer.truncate(last + 1);
                    ops = fewer;
                }
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    ops
}

fn run(seed: u64) {
    let mut random = Draw::new(seed);
    let (mut rules, mut system) = (Rules::default(), System::new());
    let mut ops = Vec::new();
    for _ in 0..STEPS {
        ops.push(random.op(&rules));
        let op = ops.last().expect("it was pushed");
        if let Err(what) = step(&mut rules, &mut system, op, PATIENCE) {
            let ops = shortest(ops);
            let less = replay(&ops, HASTE).err().map(|(_, what)| what);
            let steps: Vec<String> = ops.iter().map(|op| format!("  {op:?}")).collect();
            panic!(
                "seed {seed}: {}\nafter these steps (at first: {what}):\n{}",
                less.unwrap_or_default(),
                steps.join("\n")
            );
        }
    }
}

/// How many are tried: `URUK_MODEL_SEQUENCES`, or what takes a few seconds.
fn sequences() -> u64 {
    let given = std::env::var("URUK_MODEL_SEQUENCES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(SEQUENCES)
}

#[test]
fn a_session_does_what_the_rules_say() {
    match std::env::var("URUK_MODEL_SEED").map(|seed| seed.parse()) {
        Ok(Ok(seed)) => run(seed),
        Ok(Err(error)) => panic!("URUK_MODEL_SEED: {error}"),
        Err(_) => (1..=sequences()).for_each(run),
    }
}
