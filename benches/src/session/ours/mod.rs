//! Our side of the scenarios: `benches/orc` does the same, word for word. All goes
//! through [`uruk::Jit`], except for what `alone` says of itself.

mod alone;
mod archive;
mod code;
mod lookups;
mod symbols;

use anyhow::{Context, Result, bail};

use super::readings::Meter;

/// Carries out the scenario of these words and prints its readings.
///
/// # Errors
/// Unknown words, what the library reports, a value that is not the expected one.
pub fn run(words: &[String]) -> Result<()> {
    let mut meter = Meter::new();
    let meter = &mut meter;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| {
        word.parse::<usize>()
            .with_context(|| format!("{word} is no number"))
    };
    match words[..] {
        ["lookups", rounds, count] => lookups::run(meter, number(rounds)?, number(count)?)?,
        ["publish", rounds, count] => symbols::publish(meter, number(rounds)?, number(count)?)?,
        ["publish-alone", rounds, count] => {
            alone::publish(meter, number(rounds)?, number(count)?)?;
        }
        ["pending", kind, others, small] => {
            symbols::pending(meter, kind == "working", number(others)?, number(small)?)?;
        }
        ["aliases", rounds, length] => symbols::aliases(meter, number(rounds)?, number(length)?)?,
        ["graph", units, shape, count] => {
            symbols::graph(meter, units == "unit", shape == "ring", number(count)?)?;
        }
        ["archive", path, rounds, members, used] => {
            let [rounds, members, used] = [number(rounds)?, number(members)?, number(used)?];
            archive::run(meter, path, rounds, members, used)?;
        }
        ["object-graph", path, count] => code::object_graph(meter, path, number(count)?)?,
        #[cfg(feature = "cranelift")]
        ["modules", "ir", super::modules::CRANELIFT, live, ..] => {
            super::cranelift::modules(meter, number(live)?)?;
        }
        #[cfg(not(feature = "cranelift"))]
        ["modules", "ir", super::modules::CRANELIFT, ..] => {
            bail!("built without cranelift-jit: `cargo xtask bench` has it");
        }
        ["modules", kind, path, live, cycles, seconds] => {
            let limits = code::Limits {
                live: number(live)?,
                cycles: number(cycles)?,
                seconds: number(seconds)?,
            };
            code::modules(meter, kind == "object", path, &limits)?;
        }
        ["lazy", path, kind, count] => {
            code::lazy(meter, path, kind == "together", number(count)?)?;
        }
        _ => bail!("unknown scenario {}", words.join(" ")),
    }
    // Taking sessions apart and unloading LLVM is no part of a row.
    // SAFETY: ends the process; what was printed went through line buffering.
    unsafe { libc::_exit(0) }
}

extern "C" fn number<const N: i32>() -> i32 {
    N
}

/// In one place: a function may have an address in each unit of code that mentions it.
static TARGETS: [extern "C" fn() -> i32; 4] = [number::<0>, number::<1>, number::<2>, number::<3>];

/// Function n is the one that returns `n % 4`.
fn target(n: usize) -> u64 {
    TARGETS[n % 4] as usize as u64
}

/// The result of the function without arguments at `address`.
///
/// # Safety
/// There is such a function, and it may be called.
pub(super) unsafe fn call(address: u64) -> i32 {
    // SAFETY: by the caller's promise.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address as usize) };
    function()
}

/// Fails unless `address` is that of function n.
fn answers(address: u64, n: usize) -> Result<()> {
    // An address of anything else is not called.
    if (0..4).all(|other| target(other) != address) {
        bail!("address {address:#x} is no target's");
    }
    // SAFETY: one of the functions of `target`.
    let value = unsafe { call(address) };
    if value != (n % 4) as i32 {
        bail!("function {n} returns {value}");
    }
    Ok(())
}
