//! The body of the bitcode fuzzer: an ordinary function, which the tests run briefly
//! and a fuzzer for long.

use crate::compile::{Compile, Counters, Tier};
use crate::plan::{Access, Import, ModulePlan};
use crate::reader::{Bitcode, Reader};
use crate::summary::{Kind, ModuleSummary, Placement, SymbolId};

/// Does with unknown bytes all that the entry points do: reads them, compiles the data
/// and every function, with and without passes. Whatever the bytes are, this returns.
pub fn compile_any(bytes: &[u8]) {
    let bitcode = Bitcode::new("fuzz.bc", bytes);
    let Ok(mut reader) = Reader::new(&bitcode) else {
        return;
    };
    let summary = reader.summary().clone();
    let plan = plan_alone(&summary);
    // Errors are answers too.
    let _ = reader.compile_data(&plan);
    for (index, symbol) in summary.symbols.iter().enumerate() {
        for tier in [Tier::Baseline, Tier::Optimized] {
            if symbol.placement == Placement::Own && reader.is_sound() {
                let how = Compile::at(tier).counting(Counters::Entry);
                let _ = reader.compile(&plan, SymbolId(index as u32), &how);
            }
        }
    }
}

/// The plan of a module that is bound to nothing else: every name means itself.
pub fn plan_alone(summary: &ModuleSummary) -> ModulePlan {
    let imports = summary.symbols.iter().map(|symbol| {
        let defined = symbol.linkage.is_definition();
        let near = defined && symbol.kind == Kind::Data;
        Import {
            name: symbol.name.clone().into(),
            access: if near { Access::Near } else { Access::Indirect },
            defined,
            bound: defined,
        }
    });
    ModulePlan {
        imports: imports.collect(),
    }
}
