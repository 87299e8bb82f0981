//! Signatures by chance, their callers and callees compiled by both compilers, in all pairings.
//!
//! A caller passes values of which bits above are any, a callee notes what it gets and gives what
//! it is told to. Compared are all arguments and results, copies of memory, registers that the
//! convention preserves, the stack's alignment and what the callee takes of it, flags and control
//! words.
//!
//! `boundary` sees registers, `signature` draws, `text` and `body` write the IR, `trial` runs and
//! compares.
//!
//! `URUK_ABI_SEEDS` says how many signatures (500), `URUK_ABI_FIRST` the first seed (1), as `cargo
//! xtask abi --first N --seeds N` does.

mod body;
mod boundary;
mod conventions;
mod crash;
mod signature;
mod text;
mod trial;
mod types;

use std::collections::BTreeMap;

use signature::Signature;
use text::Text;
use trial::{Outcome, Sessions, summary};

/// Signatures of an ordinary run.
const SEEDS: u64 = 500;

/// Kinds of which more than one in a hundred signatures is an example, with the baseline compiler's code
/// on both sides.
const KINDS: [&str; 21] = [
    "ccc",
    "fastcc",
    "x86_64_sysvcc",
    "zeroext",
    "signext",
    "byval",
    "sret",
    "nest",
    "variable arguments",
    "aggregates",
    "i1",
    "i128",
    "odd integers",
    "floating point",
    "x86_fp80",
    "vectors",
    "no result",
    "many arguments",
    "indirect calls",
    "invokes",
    "tail calls",
];

/// Signatures of one module.
const BATCH: u64 = 50;

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |text| text.parse().expect(variable))
}

/// The totals.
#[derive(Default)]
struct Totals {
    /// Signatures of which the baseline compiler made caller and callee, one of them, or none.
    both: u64,
    one: u64,
    none: u64,
    /// The kinds of signatures that both compiled.
    kinds: BTreeMap<&'static str, u64>,
    /// Those that LLVM has no code for, by what it says.
    refused: BTreeMap<String, u64>,
    wrong: Vec<String>,
    /// Differences between code of LLVM's, of signatures that the baseline compiler leaves to it.
    of_llvm: Vec<String>,
}

impl Totals {
    fn add(&mut self, signature: &Signature, outcome: Outcome) {
        let (ours, faults) = match outcome {
            Outcome::Refused(what) => {
                let what = what.split_once(": ").map_or(&*what, |(_, what)| what);
                *self.refused.entry(what.to_owned()).or_default() += 1;
                return;
            }
            Outcome::Compared { ours, faults } => (ours, faults),
        };
        match ours {
            [true, true] => {
                self.both += 1;
                for kind in signature.kinds() {
                    *self.kinds.entry(kind).or_default() += 1;
                }
            }
            [false, false] => self.none += 1,
            _ => self.one += 1,
        }
        if faults.is_empty() {
            return;
        }
        let shown = match ours {
            [false, false] => 1,
            _ => 6,
        };
        let what = format!(
            "seed {}: {}\n  {}\n",
            signature.seed,
            summary(signature),
            faults[..faults.len().min(shown)].join("\n  ")
        );
        match ours {
            [false, false] => self.of_llvm.push(what),
            _ => self.wrong.push(what),
        }
    }
}

#[test]
fn signatures_are_the_same_to_both() {
    let first = number("URUK_ABI_FIRST", 1);
    let seeds = number("URUK_ABI_SEEDS", SEEDS);
    crash::install();
    let sessions = Sessions::new();
    let mut totals = Totals::default();
    for start in (first..first + seeds).step_by(BATCH as usize) {
        let seeds = start..(start + BATCH).min(first + seeds);
        let all = seeds.map(|seed| {
            let signature = Signature::draw(seed);
            let text = Text::of(&signature);
            (signature, text)
        });
        let all: Vec<_> = all.collect();
        sessions.add(&all);
        for (signature, text) in &all {
            totals.add(signature, sessions.try_one(signature, text));
        }
    }
    let Totals {
        both,
        one,
        none,
        kinds,
        refused,
        wrong,
        of_llvm,
    } = totals;
    println!(
        "seeds {first} to {}: the baseline compiler made caller and callee of {both}, one of them \
         of {one}, none of {none}; LLVM has no code for {}",
        first + seeds - 1,
        refused.values().sum::<u64>()
    );
    println!(
        "of both: {kinds:?}\nleft to LLVM: {:?}",
        sessions.uncovered()
    );
    for (what, count) in refused {
        println!("{count} times: {}", what.lines().next().unwrap_or_default());
    }
    println!(
        "{} of LLVM's differ from each other:\n{}",
        of_llvm.len(),
        of_llvm.join("")
    );
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    if seeds >= SEEDS {
        assert!(
            both * 2 > seeds,
            "too few are compiled by the baseline compiler"
        );
        for kind in KINDS {
            let count = kinds.get(kind).copied().unwrap_or_default();
            assert!(
                count * 100 > seeds,
                "{count} of {seeds} are examples of {kind}"
            );
        }
    }
}

#[test]
#[ignore = "prints IR"]
fn print() {
    let first = number("URUK_ABI_FIRST", 1);
    for seed in first..first + number("URUK_ABI_SEEDS", SEEDS) {
        println!("; seed {seed}\n{}", Text::of(&Signature::draw(seed)).ir);
    }
}
