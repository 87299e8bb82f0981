//! Objects and modules that are added, linked or compiled, and called.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use uruk::{Baseline, Jit, ReclaimKind, Tracker};
use uruk_codegen::Bitcode;

use super::super::inputs::{self, Template};
use super::super::modules::BASELINE;
use super::super::readings::Meter;
use super::call;
use crate::clock;
use crate::reclaim::held_bytes;

/// Memory at which no more modules are added.
const MEMORY_LIMIT: f64 = 6e9;

/// How far a scenario of modules goes.
pub struct Limits {
    /// Modules that stay.
    pub live: usize,
    /// How often another one comes and goes.
    pub cycles: usize,
    /// Adding ends after this much processor time.
    pub seconds: usize,
}

/// The inputs of a scenario: objects made from one template, or modules of bitcode.
enum Inputs {
    Objects(Template),
    Modules(Vec<Arc<[u8]>>),
}

impl Inputs {
    /// Input `n`, under a tracker.
    fn add(&mut self, n: usize, tracker: &Tracker) -> Result<()> {
        let name = inputs::numbered(n);
        match self {
            Inputs::Objects(template) => tracker.add_object(&name, template.number(n))?,
            Inputs::Modules(all) => tracker.add_bitcode(&name, Arc::clone(&all[n]))?,
        }
        Ok(())
    }
}

/// Calls what input `n` defines.
fn called(jit: &Jit, n: usize) -> Result<()> {
    let address = jit.lookup(&inputs::numbered(n))?;
    // SAFETY: an input's function, which takes nothing and returns its number.
    let value = unsafe { call(address) };
    ensure!(
        usize::try_from(value) == Ok(n),
        "function {n} returns {value}"
    );
    Ok(())
}

/// Adds, calls and keeps some objects or modules, then adds, calls and removes one again and
/// again.
///
/// # Errors
/// What the library reports, another value.
pub fn modules(meter: &mut Meter, objects: bool, path: &str, limits: &Limits) -> Result<()> {
    let Limits {
        live,
        cycles,
        seconds,
    } = *limits;
    let baseline = match path {
        BASELINE => Baseline::On,
        _ => Baseline::Off,
    };
    let jit = Jit::builder().baseline(baseline).build()?;
    let mut inputs = if objects {
        let bytes = std::fs::read(path).with_context(|| format!("reading {path}"))?;
        Inputs::Objects(Template::new(bytes)?)
    } else {
        let all = (0..=live).map(|n| Ok(bitcode(&inputs::small_module(n))?.into()));
        Inputs::Modules(all.collect::<Result<_>>()?)
    };
    // One-time setup is not part of a module's cost.
    cycle(&jit, &mut inputs, live)?;
    jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(10));
    meter.phase("setup", 1);
    let (before, start) = (held_bytes(), clock::process_ns());
    let main = jit.main();
    let kept = main.create_tracker()?;
    let mut done = 0;
    while done < live {
        if clock::process_ns() - start > seconds as f64 * 1e9 {
            meter.reached("live", done, "by its limit of time");
            break;
        }
        if done % 256 == 255 && clock::resident_bytes() > MEMORY_LIMIT {
            meter.reached("live", done, "by its limit of memory, 6 GB");
            break;
        }
        inputs.add(done, &kept)?;
        called(&jit, done)?;
        done += 1;
    }
    meter.phase("live", done.max(1));
    if done != 0 {
        meter.value("live_bytes", (held_bytes() - before) / done as f64);
    }
    if cycles != 0 {
        let before = held_bytes();
        for _ in 0..cycles {
            cycle(&jit, &mut inputs, live)?;
        }
        meter.phase("cycle", cycles);
        ensure!(
            jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(10)),
            "nothing is freed"
        );
        // All removed modules are freed together; each counts for an equal part.
        meter.phase("free", cycles);
        meter.value("cycle_bytes", (held_bytes() - before) / cycles as f64);
    }
    Ok(())
}

/// Adds, calls and removes input `n`.
fn cycle(jit: &Jit, inputs: &mut Inputs, n: usize) -> Result<()> {
    let tracker = jit.main().create_tracker()?;
    inputs.add(n, &tracker)?;
    called(jit, n)?;
    // SAFETY: no address of it is kept.
    unsafe { tracker.remove()? };
    Ok(())
}

/// Bitcode of IR text.
fn bitcode(text: &str) -> Result<Vec<u8>> {
    Ok(Bitcode::from_ir_text("small", text)?.bytes().to_vec())
}

/// An object of functions that call each other; the first is called.
///
/// # Errors
/// What the library reports, another value.
pub fn object_graph(meter: &mut Meter, path: &str, count: usize) -> Result<()> {
    let jit = Jit::new()?;
    let bytes = std::fs::read(path).with_context(|| format!("reading {path}"))?;
    meter.phase("setup", 1);
    jit.main().add_object("chain.o", bytes)?;
    let address = jit.lookup("f0")?;
    meter.phase("graph", count);
    // SAFETY: the object's first function, of this type; it calls itself count - 1 deep.
    let value = unsafe {
        let first: extern "C" fn(i32) -> i32 = std::mem::transmute(address as usize);
        first(i32::try_from(count)? - 1)
    };
    ensure!(
        usize::try_from(value) == Ok(count - 1),
        "the first returns {value}"
    );
    meter.phase("check", 1);
    Ok(())
}

/// A module of functions each of which calls the next, or as many modules of one function;
/// calling the first compiles all.
///
/// # Errors
/// What the library reports, another value.
pub fn lazy(meter: &mut Meter, path: &str, together: bool, count: usize) -> Result<()> {
    let jit = Jit::new()?;
    let inputs: Vec<Vec<u8>> = if together {
        vec![std::fs::read(path).with_context(|| format!("reading {path}"))?]
    } else {
        // The last is first: what a module refers to is there.
        let all = (0..count).rev();
        all.map(|n| bitcode(&inputs::chain_module(n..n + 1, count)))
            .collect::<Result<_>>()?
    };
    meter.phase("setup", 1);
    for input in inputs {
        jit.main().add_bitcode("chain", input)?;
    }
    let address = jit.lookup("f0")?;
    meter.phase("add", count);
    for phase in ["call", "again"] {
        // SAFETY: the chain's first function.
        let value = unsafe { call(address) };
        ensure!(
            usize::try_from(value) == Ok(count),
            "the first returns {value}"
        );
        meter.phase(phase, count);
    }
    Ok(())
}
