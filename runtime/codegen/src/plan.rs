//! Names of the symbols of one module and ways to reach them once the image is bound.
//!
//! Binding is decided outside (all modules of an image together); codegen only obeys. An import
//! that is [`Access::Near`] becomes a `dso_local` declaration and is addressed directly, everything
//! else goes through the GOT.
//!
//! # Why
//! `dso_local` through visibility. LLVM-C has no setter; `hidden` implies the flag, and it
//! stays when the visibility goes back to default.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk_base::allocated::{of_slice, of_vec};

use crate::summary::{Kind, ModuleSummary, SymbolId};

/// How code addresses a symbol that is not in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Calls through the slot or GOT word, addresses through the GOT: functions,
    /// and data that may be anywhere.
    Indirect,
    /// Data inside the reservation: addressed directly.
    Near,
}

/// One symbol in the form that units use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Link name, unique in the image.
    pub name: Box<str>,
    /// The access to it.
    pub access: Access,
    /// True if this module's definition is the bound one.
    pub defined: bool,
    /// True if some file of the image defines it.
    pub bound: bool,
    /// True if this module's definition was replaced: neither its body nor its attributes are used
    /// any more.
    pub replaced: bool,
}

/// The bound symbol table of one module, indexed by [`SymbolId`].
#[derive(Debug, Clone, Default)]
pub struct ModulePlan {
    /// One import per symbol of the summary.
    pub imports: Vec<Import>,
    /// Identifies the plan among those of its module: readers keep bodies for one plan.
    pub number: u64,
    /// Hash of the imports, once computed: they do not change after that.
    digest: OnceLock<[u8; 32]>,
}

impl ModulePlan {
    /// A copy that may become another plan.
    #[must_use]
    pub fn successor(&self) -> ModulePlan {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        ModulePlan {
            imports: self.imports.clone(),
            number: LATEST.fetch_add(1, Ordering::Relaxed) + 1,
            digest: OnceLock::new(),
        }
    }

    /// The first plan of a module.
    pub fn new(imports: Vec<Import>) -> ModulePlan {
        ModulePlan {
            imports,
            ..ModulePlan::default()
        }
    }

    /// A hash of the imports, the same in all processes.
    pub(crate) fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| {
            let mut hash = blake3::Hasher::new();
            for import in &self.imports {
                hash.update(&(import.name.len() as u64).to_le_bytes());
                hash.update(import.name.as_bytes());
                let near = import.access == Access::Near;
                let bits = [near, import.defined, import.bound, import.replaced];
                hash.update(&bits.map(u8::from));
            }
            *hash.finalize().as_bytes()
        })
    }

    /// The import of `symbol`.
    pub fn import(&self, symbol: SymbolId) -> &Import {
        &self.imports[symbol.index()]
    }

    /// Bytes allocated for the plan, without itself.
    pub fn bytes(&self) -> usize {
        let names = self
            .imports
            .iter()
            .map(|import| of_slice(import.name.as_bytes()));
        of_vec(&self.imports) + names.sum::<usize>()
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
            replaced: false,
        }
    });
    ModulePlan::new(imports.collect())
}
