//! A module as the reader of bitcode has it, beside what LLVM says of the same bytes: which number
//! there is which symbol here.
//!
//! Bitcode numbers variables, functions, aliases and ifuncs in the order of their lists; a
//! [`ModuleSummary`] has functions first. LLVM may have changed declarations of intrinsics while it
//! read them, so names are compared, and a module with a difference is LLVM's alone.

use std::sync::{Arc, OnceLock};

use uruk_bitcode::Source;
use uruk_bitcode::ir::GlobalKind;
use uruk_lower::Lowering;

use crate::bitcode::Bitcode;
use crate::summary::{Kind, ModuleSummary, SymbolId};

mod lower;

pub use lower::Plain;

/// A module, and whose numbers are whose.
pub struct Numbered {
    /// The module.
    pub source: Source,
    bitcode: Bitcode,
    summary: Arc<ModuleSummary>,
    lowering: OnceLock<Lowering>,
    /// By the numbers of bitcode.
    symbols: Box<[SymbolId]>,
    /// By symbol.
    globals: Box<[u32]>,
}

impl Numbered {
    /// Reads the module; `None` if it is LLVM's alone.
    pub fn read(bitcode: &Bitcode, summary: &Arc<ModuleSummary>) -> Option<Arc<Numbered>> {
        let source = Source::read(bitcode.bytes()).ok()?;
        let module = &source.module;
        let all = summary.symbols.len();
        if module.globals.len() != all {
            return None;
        }
        let mut symbols = vec![SymbolId(0); all];
        let mut globals = vec![0; all];
        let mut place = 0;
        let order = [
            GlobalKind::Function,
            GlobalKind::Variable,
            GlobalKind::Alias,
            GlobalKind::Ifunc,
        ];
        for kind in order {
            for (number, global) in module.globals.iter().enumerate() {
                if global.kind != kind {
                    continue;
                }
                let info = &summary.symbols[place];
                let is_kind = match info.kind {
                    Kind::Function => kind == GlobalKind::Function,
                    Kind::Data | Kind::ThreadLocal => kind == GlobalKind::Variable,
                    Kind::Alias { .. } => kind == GlobalKind::Alias,
                    Kind::Ifunc { .. } => kind == GlobalKind::Ifunc,
                };
                if !is_kind || module.name(global) != info.name {
                    return None;
                }
                symbols[number] = SymbolId(place as u32);
                globals[place] = number as u32;
                place += 1;
            }
        }
        Some(Arc::new(Numbered {
            source,
            bitcode: bitcode.clone(),
            summary: Arc::clone(summary),
            lowering: OnceLock::new(),
            symbols: symbols.into(),
            globals: globals.into(),
        }))
    }

    /// The symbol of a global.
    pub fn symbol(&self, global: u32) -> SymbolId {
        self.symbols[global as usize]
    }

    /// The global of a symbol.
    pub fn global(&self, symbol: SymbolId) -> u32 {
        self.globals[symbol.index()]
    }

    /// The module's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bitcode.bytes()
    }

    /// Which body is that of a function, if it has any.
    pub fn body(&self, symbol: SymbolId) -> Option<usize> {
        self.source.body_of(self.global(symbol))
    }
}

#[cfg(test)]
mod oracle;
