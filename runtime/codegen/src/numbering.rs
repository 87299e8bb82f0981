//! The numbers of a module's globals in bitcode, and as symbols.
//!
//! Bitcode numbers variables, functions, aliases and ifuncs in the order of their lists; a
//! [`ModuleSummary`](crate::ModuleSummary) has functions first.

use uruk_bitcode::ir::{GlobalKind, Module};

use crate::summary::SymbolId;

/// The symbol of each global: functions come first, then variables, aliases and ifuncs.
pub(crate) fn order(module: &Module) -> Box<[SymbolId]> {
    const ORDER: [GlobalKind; 4] = [
        GlobalKind::Function,
        GlobalKind::Variable,
        GlobalKind::Alias,
        GlobalKind::Ifunc,
    ];
    let mut symbols = vec![SymbolId(0); module.globals.len()];
    let mut place = 0;
    for kind in ORDER {
        let all = module.globals.iter().zip(&mut symbols);
        for (_, symbol) in all.filter(|(global, _)| global.kind == kind) {
            *symbol = SymbolId(place);
            place += 1;
        }
    }
    symbols.into()
}
