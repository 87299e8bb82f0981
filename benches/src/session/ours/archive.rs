//! An archive of which little is used, by a generator that an embedder would write: it has the
//! archive's index, and adds the member that defines what is missing.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use object::read::archive::{ArchiveFile, ArchiveOffset};
use uruk::{Ask, Jit};

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
        open(&jit, path)?;
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

/// Has the main dylib find what the archive defines.
fn open(jit: &Jit, path: &str) -> Result<()> {
    let bytes: Arc<[u8]> = std::fs::read(path)
        .with_context(|| format!("reading {path}"))?
        .into();
    let archive = ArchiveFile::parse(&*bytes)?;
    let mut index: HashMap<Box<[u8]>, ArchiveOffset> = HashMap::new();
    for symbol in archive.symbols()?.context("the archive has no index")? {
        let symbol = symbol?;
        index.entry(symbol.name().into()).or_insert(symbol.offset());
    }
    jit.main().add_generator(move |ask: &Ask| {
        for (symbol, _) in ask.missing() {
            let name = ask.jit().name_of(*symbol);
            let member = index.get(name.as_bytes()).and_then(|offset| {
                let archive = ArchiveFile::parse(&*bytes).ok()?;
                archive.member(*offset).ok()?.data(&*bytes).ok()
            });
            if let Some(member) = member {
                ask.dylib().add_object(name, member)?;
            }
        }
        Ok(())
    })?;
    Ok(())
}
