//! All entry points on any bytes: for tests with damaged bitcode, and for the fuzzer.

#[path = "../../../baseline/tests/ir/mod.rs"]
mod ir;

use std::collections::HashMap;
use std::sync::Arc;

use uruk_codegen::plan::plan_alone;
use uruk_codegen::{
    Bitcode, Compile, Compiled, Counters, ModuleSummary, Numbered, Placement, Plain, Profile,
    Reader, Site, SymbolId, Tier,
};

/// Passes unknown bytes through all entry points: reads them, compiles the data and every function,
/// counted and guided. For any bytes, this returns.
pub fn compile_any(bytes: &[u8]) {
    let bitcode = Bitcode::new("fuzz.bc", bytes);
    let Ok(mut reader) = Reader::new(&bitcode) else {
        return;
    };
    let summary = reader.summary().clone();
    let plan = plan_alone(&summary);
    let numbered = Numbered::read(&bitcode, &summary);
    let mut plain = Plain::default();
    // Errors are valid results too.
    let _ = reader.compile_data(&plan);
    for (index, symbol) in summary.symbols.iter().enumerate() {
        if symbol.placement != Placement::Own {
            continue;
        }
        let function = SymbolId(index as u32);
        if reader.is_sound() {
            let mut how = Compile::baseline().counting(Counters::Entry);
            how.leaves = true;
            let read = numbered.as_deref().and_then(|numbered| {
                numbered.read_into(function, &mut plain).ok()?;
                numbered.baseline(&plan, function, &how, &mut plain).ok()
            });
            if let Some(read) = read {
                let kept = ir::check(&read.function);
                assert!(kept.is_ok(), "{kept:?}: {}", ir::text(&read.function));
            }
            let _ = reader.compile(&plan, function, &how);
        }
        if reader.is_sound() {
            let how = Compile::at(Tier::Optimized).counting(Counters::Full);
            let probed = reader.compile(&plan, function, &how);
            if let Some(how) = probed
                .ok()
                .and_then(|made| guided(&summary, function, &made))
            {
                let _ = reader.compile(&plan, function, &how);
            }
        }
    }
}

/// Settings guided by a made-up profile: word `i` counted `i`, but calls counted enough and met
/// every function of the module in turn.
fn guided(summary: &ModuleSummary, function: SymbolId, made: &Compiled) -> Option<Compile> {
    let probes = made.probes.as_ref()?;
    let mut words: Vec<u64> = (0..u64::from(probes.words())).collect();
    let functions = summary.symbols.len() as u64;
    for (site, first) in probes.places() {
        if site == Site::Call {
            let target = u64::from(first) % functions;
            words[first as usize..][..3].copy_from_slice(&[target, 1000, 1000]);
        }
    }
    let profile = Profile::new(probes, &words).ok()?;
    let targets = (0..functions).map(|i| (i, SymbolId(i as u32))).collect();
    let profiles = HashMap::from([(function, Arc::new(profile))]);
    Some(Compile::at(Tier::Guided).guided(profiles, targets))
}
