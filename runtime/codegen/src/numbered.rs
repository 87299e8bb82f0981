//! A module read by our reader of bitcode, beside LLVM's reading of the same bytes: maps the
//! reader's numbers to symbols.
//!
//! `numbering` gives each global its symbol. If LLVM has read the module before, it may have changed
//! declarations of intrinsics. So names are compared, and a module with a difference is left to
//! LLVM. Otherwise the summary is made here (`summarize`), and LLVM is compared with it if it reads
//! the module later.

use std::sync::{Arc, OnceLock};

use uruk_bitcode::Source;
use uruk_bitcode::ir::{Global, GlobalKind, Module};
use uruk_lower::Lowering;

use crate::bitcode::Bitcode;
use crate::numbering::order;
use crate::summary::{Kind, ModuleSummary, SymbolId};

mod constants;
mod data;
pub(crate) mod interface;
mod lower;
mod summarize;

pub use lower::{Plain, Read};

/// A module, and the mapping between its globals and symbols.
pub struct Numbered {
    /// The module.
    pub source: Source,
    bitcode: Bitcode,
    summary: Arc<ModuleSummary>,
    lowering: OnceLock<Lowering>,
    /// Symbols by the numbers of bitcode.
    symbols: Box<[SymbolId]>,
    /// Globals by symbol.
    globals: Box<[u32]>,
}

impl Numbered {
    /// Reads the module; `None` if it is left to LLVM.
    pub fn read(bitcode: &Bitcode, summary: &Arc<ModuleSummary>) -> Option<Arc<Numbered>> {
        let source = Source::read(bitcode.bytes()).ok()?;
        let module = &source.module;
        if module.globals.len() != summary.symbols.len() {
            return None;
        }
        let symbols = order(module);
        let agrees = |(global, id): (&Global, &SymbolId)| {
            let info = &summary.symbols[id.index()];
            is_kind(info.kind, global.kind) && plain_name(module, global) == Some(&info.name)
        };
        if !module.globals.iter().zip(&symbols).all(agrees) {
            return None;
        }
        Some(Numbered::of(source, bitcode, Arc::clone(summary), symbols))
    }

    /// Reads a module that LLVM has not seen; `None` if LLVM has to read it.
    pub(crate) fn alone(bitcode: &Bitcode) -> Option<Arc<Numbered>> {
        let source = Source::read(bitcode.bytes()).ok()?;
        let (summary, symbols) = summarize::summarize(&source)?;
        Some(Numbered::of(source, bitcode, Arc::new(summary), symbols))
    }

    fn of(
        source: Source,
        bitcode: &Bitcode,
        summary: Arc<ModuleSummary>,
        symbols: Box<[SymbolId]>,
    ) -> Arc<Numbered> {
        let mut globals = vec![0; symbols.len()];
        for (number, symbol) in symbols.iter().enumerate() {
            globals[symbol.index()] = number as u32;
        }
        Arc::new(Numbered {
            source,
            bitcode: bitcode.clone(),
            summary,
            lowering: OnceLock::new(),
            symbols,
            globals: globals.into(),
        })
    }

    /// Whether it was read of these bytes.
    pub(crate) fn is_of(&self, bitcode: &Bitcode) -> bool {
        self.bitcode.is(bitcode)
    }

    /// The summary of the module.
    pub(crate) fn summary(&self) -> &Arc<ModuleSummary> {
        &self.summary
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

    /// The number of a function's body, if it has any.
    pub fn body(&self, symbol: SymbolId) -> Option<usize> {
        self.source.body_of(self.global(symbol))
    }
}

fn is_kind(theirs: Kind, ours: GlobalKind) -> bool {
    match theirs {
        Kind::Function => ours == GlobalKind::Function,
        Kind::Data | Kind::ThreadLocal => ours == GlobalKind::Variable,
        Kind::Alias { .. } => ours == GlobalKind::Alias,
        Kind::Ifunc { .. } => ours == GlobalKind::Ifunc,
    }
}

/// The name of a global; `None` for one that is not text.
fn plain_name<'m>(module: &'m Module, global: &Global) -> Option<&'m str> {
    let name = std::str::from_utf8(module.raw_name(global)).ok()?;
    // The byte marks a name that is not to be mangled, which ELF never does.
    let name = name.strip_prefix('\u{1}').unwrap_or(name);
    (!name.contains('\0')).then_some(name)
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod summaries;
