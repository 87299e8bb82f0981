//! Code that comes, is replaced, moves and goes under eight threads, for as long as one likes:
//!
//! ```text
//! cargo run --release -p uruk --example stress -- --publications 1000000 --seed 7
//! ```
//!
//! Prints what happened, and the memory of code at the start, in the middle and in the
//! end; a wrong result or freed code that is executed ends it.

#[path = "../tests/exceptions/stress_reclaim/body.rs"]
mod body;

use std::ffi::c_void;
use std::process::ExitCode;
use std::time::Duration;

/// Exceptions pass through JIT'd frames.
///
/// # Safety
/// As libgcc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_Find_FDE(
    pc: *mut c_void,
    bases: *mut uruk::DwarfEhBases,
) -> *const c_void {
    // SAFETY: by the caller's promise.
    unsafe { uruk::find_fde(pc, bases) }
}

fn main() -> ExitCode {
    let mut plan = body::Plan {
        publications: 1_000_000,
        seed: 1,
        sets: 2,
        wide: 1,
        replacements: 0,
        limit: Duration::from_secs(7 * 86_400),
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let value = pair.get(1).and_then(|value| value.parse().ok());
        match (pair[0].as_str(), value) {
            ("--publications", Some(value)) => plan.publications = value,
            ("--seed", Some(value)) => plan.seed = value,
            ("--sets", Some(value)) => plan.sets = value,
            ("--wide", Some(value)) => plan.wide = value,
            ("--replacements", Some(value)) => plan.replacements = value,
            ("--seconds", Some(value)) => plan.limit = Duration::from_secs(value),
            _ => {
                eprintln!(
                    "usage: stress [--publications N] [--seed N] [--sets N] [--wide N] [--replacements N] [--seconds N]"
                );
                return ExitCode::from(2);
            }
        }
    }
    match body::run(&plan) {
        Ok(outcome) => {
            println!("seed {}: {outcome:#?}", plan.seed);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stress: {error}");
            ExitCode::FAILURE
        }
    }
}
