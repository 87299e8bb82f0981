//! An archive of which little is used.

use std::path::Path;

use anyhow::{Result, ensure};
use uruk::{Jit, Members};

use super::super::inputs;
use super::super::readings::Meter;
use super::call;

/// Each round opens the archive in a session of its own and calls `used` of its members.
///
/// # Errors
/// What the library reports, another value.
pub fn run(
    meter: &mut Meter,
    path: &str,
    rounds: usize,
    members: usize,
    used: usize,
) -> Result<()> {
    for _ in 0..rounds {
        let jit = Jit::new()?;
        meter.phase("setup", 1);
        jit.main().add_archive(Path::new(path), Members::Needed)?;
        meter.phase("open", 1);
        for n in 0..used {
            let member = n * (members / used) + 1;
            let address = jit.lookup(&inputs::numbered(member))?;
            // SAFETY: the member's function, which takes nothing.
            let value = unsafe { call(address) };
            ensure!(usize::try_from(value) == Ok(member), "{member} is {value}");
        }
        meter.phase("use", used);
        drop(jit);
        meter.phase("teardown", 1);
    }
    Ok(())
}
