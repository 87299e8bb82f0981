//! Names that an image needs and that have no definition, and warnings about others.

use std::collections::HashSet;

use tracing::warn;
use uruk_codegen::{Kind, Linkage, SymbolId};
use uruk_link::Need;
use uruk_session::{Dylib, Lookup, Symbol};

use super::image::Image;
use crate::code::module::Module;
use crate::error::{Error, Missing};
use crate::load::loader::Loader;

/// Functions and variables of libraries that programs are known to replace.
const INTERPOSERS: [&str; 12] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "environ",
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdaPv",
];

impl Loader {
    /// Warns of definitions that would replace those of libraries in a natively linked program, and
    /// do not in this one, except names that libraries `see`. The process's libraries keep calling
    /// their own.
    pub(crate) fn warn_of_interposers(&self, image: &Image, see: impl Fn(&str) -> bool) {
        for (_, module) in &image.modules {
            for info in &module.readers.summary().symbols {
                let defined = matches!(info.linkage, Linkage::Strong | Linkage::Weak);
                if defined && INTERPOSERS.contains(&&*info.name) && !see(&info.name) {
                    let file = module.readers.bitcode().name();
                    let symbol = &info.name;
                    warn!(
                        file,
                        symbol, "libraries of the process do not see this definition"
                    );
                }
            }
        }
    }

    /// Reports every symbol that the modules need and that has no definition, before any of it is
    /// linked; names that only linking defines are left to the linker's own report.
    pub(crate) fn check_missing(&self, image: &Image) -> Result<(), Error> {
        let mut missing: Vec<Missing> = Vec::new();
        // Assembly may define symbols that the symbol tables do not show.
        let has_asm = image
            .modules
            .iter()
            .any(|(_, m)| m.readers.summary().has_inline_asm);
        for (_, module) in &image.modules {
            let summary = module.readers.summary();
            let suspects = self.undefined_in(module)?;
            if suspects.is_empty() || has_asm {
                continue;
            }
            // An unused declaration needs nothing: only references from bodies or data count.
            let users = module.readers.reader()?.users(&suspects)?;
            for (symbol, users) in suspects.iter().zip(users) {
                if users.is_empty() {
                    continue;
                }
                let file = module.readers.bitcode().name();
                let users = users.iter().map(|user| format!("{file}: {user}"));
                let name = &summary.symbols[symbol.index()].name;
                match missing.iter_mut().find(|m| m.symbol == *name) {
                    Some(known) => known.needed_by.extend(users),
                    None => missing.push(Missing {
                        symbol: name.clone(),
                        needed_by: users.collect(),
                    }),
                }
            }
        }
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Error::MissingSymbols { missing })
        }
    }

    /// Those of `names` without a definition in the search order of `dylib`. Materializes nothing.
    pub(crate) fn undefined_of<'n>(
        &self,
        dylib: &Dylib,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Vec<Symbol>, Error> {
        let session = self.names.session();
        let symbols: Vec<Symbol> = names
            .filter(|name| !self.is_own(dylib, name))
            .map(|name| session.intern(name))
            .collect();
        let order = Lookup::new(dylib.search_order());
        let lookup = symbols.iter().fold(order, |lookup, &s| lookup.weak(s));
        let found: HashSet<Symbol> = session
            .lookup_flags(lookup)?
            .into_iter()
            .map(|(symbol, _)| symbol)
            .collect();
        let process = self.process();
        let missing = symbols.into_iter().filter(|symbol| !found.contains(symbol));
        // Thread-locals of libraries are no symbols of the session.
        let missing = missing.filter(|symbol| process.find_tls(session.name(*symbol)).is_none());
        Ok(missing.collect())
    }

    /// Symbols without a definition that a module refers to; or the error of a generator or unit
    /// during the search.
    fn undefined_in(&self, module: &Module) -> Result<Vec<SymbolId>, Error> {
        let summary = module.readers.summary();
        let plan = module.plan();
        let undefined = |(index, info): (usize, &uruk_codegen::SymbolInfo)| {
            let id = SymbolId(index as u32);
            let import = plan.import(id);
            let is_reference = info.linkage == Linkage::Declared
                || (info.linkage.is_definition() && !import.defined);
            let bounds = info.name.starts_with("__start_") || info.name.starts_with("__stop_");
            let bounds = bounds || self.is_linkers(&module.dylib, &info.name);
            if !is_reference || import.bound || bounds || info.name.starts_with("llvm.") {
                return Ok(None);
            }
            let thread_local = info.kind == Kind::ThreadLocal;
            let mut need = Need::default();
            need.thread_local = thread_local;
            let meaning = match self.names.try_find(&module.dylib, &info.name) {
                Err(error) if !error.is_missing() => return Err(Error::Session(error)),
                found => found.ok().flatten(),
            };
            let resolved = self.resolve_as(meaning, &info.name, need);
            Ok(resolved.is_none().then_some(id))
        };
        let symbols = summary.symbols.iter().enumerate();
        symbols
            .map(undefined)
            .filter_map(Result::transpose)
            .collect()
    }
}
