//! Every instruction at every width, one function each, by the baseline compiler and by LLVM: the
//! same bits for values at the edges and some by random.
//!
//! Undefined results are not asked for: a case says which operands it is for. A list names the
//! instructions that are not covered, so that nothing falls back unseen.

mod cases;
mod more;
mod types;
mod vectors;

use std::collections::BTreeSet;

use cases::Case;
use types::APART;
use uruk::{Baseline, Func, Jit, Tier, Tiers};
use uruk_testing::Random;

/// Results of one function, at most.
const RESULTS: usize = 4;

/// Operands of one function, at most.
const OPERANDS: usize = 4;

/// Calls of one function, at most.
const CALLS: usize = 400;

#[repr(C, align(64))]
struct Operands([[u8; APART]; OPERANDS]);

type Call = extern "C" fn(*const Operands, *mut u8);

/// A session that has the cases, with the baseline compiler on or off.
fn session(baseline: Baseline, cases: &[Case]) -> Jit {
    let jit = Jit::builder()
        .baseline(baseline)
        .tiers(Tiers::Fixed(Tier::Baseline))
        .build()
        .expect("a session");
    let text: String = cases.iter().map(|case| &*case.text).collect();
    let declared: BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.declares.iter().map(|it| &**it))
        .collect();
    let declared: Vec<&str> = declared.into_iter().collect();
    let text = declared.join("\n") + "\n" + &text;
    if let Err(cause) = jit.add_ir("cases", &text) {
        panic!("{cause}");
    }
    jit
}

/// All combinations of operands that a case is for, or so many by random.
fn operands(case: &Case, random: &mut Random) -> Vec<Operands> {
    let values: Vec<_> = case.operands.iter().map(|ty| ty.values(random)).collect();
    let all: usize = values.iter().map(Vec::len).product();
    let mut found = Vec::new();
    for number in 0..all.min(CALLS) {
        let mut at = match all <= CALLS {
            true => number,
            false => random.next() as usize % all,
        };
        let mut one = Operands([[0x5a; APART]; OPERANDS]);
        for (to, from) in one.0.iter_mut().zip(&values) {
            *to = from[at % from.len()];
            at /= from.len();
        }
        if (case.is_for)(&one.0) {
            found.push(one);
        }
    }
    found
}

/// Compares what both make of cases; `left` are the reasons why some are left to LLVM.
fn compare(cases: &[Case], left: &[&str]) {
    let sessions = [Baseline::Off, Baseline::On].map(|baseline| session(baseline, cases));
    let mut random = Random::new(1);
    let (mut wrong, mut calls) = (Vec::new(), 0);
    for case in cases {
        let functions = sessions.each_ref().map(|jit| {
            // SAFETY: a function of the cases, which reads operands and writes results.
            let function: Func<Call> = unsafe { jit.function(&case.name) }.expect("typed");
            function
        });
        let mut asked = 0;
        for operands in operands(case, &mut random) {
            let results = functions.each_ref().map(|function| {
                let mut results = [0xa5_u8; APART * RESULTS];
                function.call(&operands, results.as_mut_ptr());
                results
            });
            asked += 1;
            if results[0] != results[1] {
                let shown = case.operands.len();
                wrong.push(format!(
                    "{}of {:02x?}\nLLVM {:02x?}\nours {:02x?}\n",
                    case.text,
                    &operands.0[..shown],
                    &results[0][..APART],
                    &results[1][..APART]
                ));
                break;
            }
        }
        assert!(asked > 0, "nothing was asked of\n{}", case.text);
        calls += asked;
    }
    let uncovered = sessions[1].stats().baseline.uncovered;
    let uncovered: BTreeSet<&str> = uncovered.iter().map(|(what, _)| *what).collect();
    let compiled = sessions[1].stats().baseline.compiled;
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(6)].join("\n")
    );
    let left: BTreeSet<&str> = left.iter().copied().collect();
    assert_eq!(uncovered, left, "{compiled} of {} are covered", cases.len());
    println!("{} functions, {calls} calls", cases.len());
}

#[test]
fn integers() {
    compare(&cases::integers(), &[]);
}

#[test]
fn comparisons_and_choices() {
    compare(&cases::comparisons(), &["a switch of more than 64 bits"]);
}

#[test]
fn conversions() {
    compare(&cases::conversions(), &[]);
}

#[test]
fn intrinsics_of_integers() {
    compare(
        &more::integer_intrinsics(),
        &[
            "a signed product of 128 bits that may overflow",
            "an intrinsic of 128 bits",
            "funnel shifts of odd sizes",
            "saturated arithmetic of 128 bits",
        ],
    );
}

#[test]
fn floating_point() {
    compare(
        &more::floats(),
        &["an operation on x86_fp80 that is none of the processor's"],
    );
}

#[test]
fn memory() {
    compare(&more::memory(), &[]);
}

#[test]
fn vectors() {
    compare(&vectors::vectors(), &[]);
}
