//! Random functions of all operations that IR has: the baseline compiler, LLVM at each tier, and
//! `clang -O0` must leave the same bytes.
//!
//! A seed is one function. `URUK_OPERATIONS_SEEDS` is how many seeds run (100 by itself),
//! `URUK_OPERATIONS_FIRST` the first (1); `cargo xtask operations` sets both. A seed that fails is
//! repeated alone by `cargo xtask operations --first SEED --seeds 1`; its text is left in a file.
//!
//! The functions of [`BATCH`] seeds form one module. Functions that the baseline compiler does not
//! cover are LLVM's in its session, too: the test fails if they are more than [`LEAST_COMPILED`]
//! allows.

use crate::clang;
mod control;
mod floats;
mod generate;
mod integers;
mod lanes;
mod memory;
mod places;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use generate::{INPUTS, MEMORY, Made, RESULTS, SLOT, function};
use uruk::{Baseline, Func, Jit, Tier, Tiers};
use uruk_testing::Random;

/// Seeds of an ordinary run.
const SEEDS: u64 = 100;

/// Functions of one module.
const BATCH: u64 = 25;

/// Calls of each function, each with other inputs.
const CALLS: u64 = 6;

/// How many of 100 functions the baseline compiler must compile.
const LEAST_COMPILED: u64 = 70;

/// The memory that a function reads and writes, always at the same addresses.
#[repr(C, align(64))]
struct Room {
    inputs: [u8; INPUTS * SLOT],
    memory: [u8; MEMORY],
    results: [u8; RESULTS * SLOT],
}

type Body = extern "C" fn(*const u8, *mut u8, *mut u8);

/// The compilers, the one that the others are compared with first.
const COMPILERS: [&str; 5] = ["clang -O0", "baseline", "tier 1", "tier 2", "tier 3"];

fn session(compiler: &str, text: &str, seeds: &str) -> Jit {
    let (baseline, tier) = match compiler {
        "tier 2" => (Baseline::On, Tier::Optimized),
        "tier 3" => (Baseline::On, Tier::Guided),
        "tier 1" => (Baseline::Off, Tier::Baseline),
        _ => (Baseline::On, Tier::Baseline),
    };
    let builder = Jit::builder().baseline(baseline).tiers(Tiers::Fixed(tier));
    let jit = builder.build().expect("a session");
    let added = match compiler {
        "clang -O0" => {
            let flags = ["-O0", "-fPIC", "-w"];
            jit.main().add_object(
                seeds,
                clang::compile("operations", "seeds.ll", text, &flags),
            )
        }
        _ => jit.add_ir(seeds, text),
    };
    if let Err(cause) = added {
        panic!("seeds {seeds}, {compiler}: {cause}");
    }
    jit
}

/// Bytes of random inputs: edges of numbers among them.
fn fill(bytes: &mut [u8], random: &mut Random) {
    for slot in bytes.chunks_mut(8) {
        let word = random.wide() as u64;
        let word = match random.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => word & 0xff,
            3 => (word as i8 as f64).to_bits(),
            4 => {
                u64::from((word as i8 as f32).to_bits()) << 32 | u64::from((word as f32).to_bits())
            }
            5 => 1 << (word % 64),
            _ => word,
        };
        slot.copy_from_slice(&word.to_le_bytes());
    }
}

/// The bytes that a call leaves.
fn outcome(room: &mut Room, body: &Func<Body>, seed: u64, call: u64) -> Vec<u8> {
    let mut random = Random::new(seed << 8 | call);
    fill(&mut room.inputs, &mut random);
    fill(&mut room.memory, &mut random);
    room.results.fill(0xa5);
    body.call(
        room.inputs.as_ptr(),
        room.memory.as_mut_ptr(),
        room.results.as_mut_ptr(),
    );
    [&room.results[..], &room.memory[..]].concat()
}

/// Where two outcomes differ, in words.
fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    let at = expected.iter().zip(found).position(|(a, b)| a != b)?;
    let slot = at / SLOT * SLOT..at / SLOT * SLOT + SLOT;
    let place = match at.checked_sub(RESULTS * SLOT) {
        None => format!("result {}", at / SLOT),
        Some(at) => format!("memory {}", at / SLOT * SLOT),
    };
    let (a, b) = (&expected[slot.clone()], &found[slot]);
    Some(format!("{place}:\n  {a:02x?}\n  {b:02x?}"))
}

/// The totals of all seeds.
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    compiled: u64,
    uncovered: BTreeMap<&'static str, u64>,
}

fn text_of(made: &[&Made]) -> String {
    let declares: BTreeSet<&String> = made.iter().flat_map(|it| &it.declares).collect();
    let declares = declares.into_iter().map(|it| &**it);
    let texts = made.iter().map(|it| &*it.text);
    declares.chain(texts).collect::<Vec<_>>().join("\n")
}

fn batch(first: u64, seeds: u64, found: &mut Found) {
    let made: Vec<Made> = (first..first + seeds).map(function).collect();
    let text = text_of(&made.iter().collect::<Vec<_>>());
    let name = format!("{first} to {}", first + seeds - 1);
    // Past the capture of the harness, for a crash.
    let _ = writeln!(std::io::stderr(), "seeds {name}");
    let sessions = COMPILERS.map(|compiler| session(compiler, &text, &name));
    let mut room = Box::new(Room {
        inputs: [0; INPUTS * SLOT],
        memory: [0; MEMORY],
        results: [0; RESULTS * SLOT],
    });
    for (seed, made) in (first..).zip(&made) {
        let bodies = sessions.each_ref().map(|jit| {
            // SAFETY: a function of the generator's, which stays within the room.
            let body: Func<Body> =
                unsafe { jit.function(&format!("f{seed}")) }.expect("a function");
            body
        });
        for call in 0..CALLS {
            let [expected, others @ ..] = bodies
                .each_ref()
                .map(|body| outcome(&mut room, body, seed, call));
            let differ = others.iter().zip(&COMPILERS[1..]);
            let differ: Vec<_> = differ
                .filter_map(|(it, name)| Some((name, difference(&expected, it)?)))
                .collect();
            if !differ.is_empty() {
                let path = std::env::temp_dir().join(format!("operations-{seed}.ll"));
                let _ = std::fs::write(&path, text_of(&[made]));
                let who: Vec<_> = differ
                    .iter()
                    .map(|(name, it)| format!("{name} in {it}"))
                    .collect();
                let (who, path) = (who.join("\n"), path.display());
                found
                    .wrong
                    .push(format!("seed {seed}, call {call} ({path}): {who}"));
                break;
            }
        }
    }
    let stats = sessions[1].stats().baseline;
    found.compiled += stats.compiled;
    for (what, count) in stats.uncovered {
        *found.uncovered.entry(what).or_default() += count;
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |text| text.parse().expect(variable))
}

#[test]
fn all_compilers_agree() {
    let first = number("URUK_OPERATIONS_FIRST", 1);
    let seeds = number("URUK_OPERATIONS_SEEDS", SEEDS);
    let mut found = Found::default();
    for start in (first..first + seeds).step_by(BATCH as usize) {
        batch(start, BATCH.min(first + seeds - start), &mut found);
    }
    let left: Vec<_> = found
        .uncovered
        .iter()
        .map(|(what, count)| format!("{count:6} {what}"))
        .collect();
    let compiled = found.compiled;
    println!(
        "seeds {first} to {}: the baseline compiler compiled {compiled} of {seeds} functions; \
         LLVM compiled\n{}",
        first + seeds - 1,
        left.join("\n")
    );
    assert!(
        found.wrong.is_empty(),
        "{} of {seeds} functions differ:\n{}",
        found.wrong.len(),
        found.wrong[..found.wrong.len().min(12)].join("\n")
    );
    // Of few functions, none may be covered.
    assert!(
        seeds < BATCH || compiled * 100 >= seeds * LEAST_COMPILED,
        "only {compiled} of {seeds} functions were compiled by the baseline compiler"
    );
}
