//! Weak definitions that remain, and those that yield.

use super::SearchScope;
use super::Surroundings;
use super::reach_of_object;
use super::reach_of_symbol;
use crate::code::bonds::Remaining;
use crate::code::names::Definition;
use crate::error::Error;
use crate::fork::sacrificial;
use crate::load::image::Image;
use crate::load::input::ObjectSymbol;
use crate::load::loader::Loader;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uruk_codegen::{CodegenError, Kind, Linkage, SymbolId, SymbolInfo};
use uruk_session::Dylib;

impl Loader {
    /// Finds the definitions to which weak ones yield, in modules and objects that are added to
    /// `dylib`.
    pub(in crate::load) fn surroundings<'a>(
        &self,
        dylib: &Dylib,
        symbols: impl Iterator<Item = &'a SymbolInfo>,
        objects: impl Iterator<Item = &'a ObjectSymbol>,
        remaining: Option<&Remaining>,
    ) -> Surroundings {
        let program = self.is_program();
        let mut wanted: [HashSet<&str>; 4] = Default::default();
        let reached = symbols.map(|info| (reach_of_symbol(info, program), &*info.name));
        let of_objects = objects.map(|one| (reach_of_object(one, program), &*one.name));
        for (reach, name) in reached.chain(of_objects) {
            if let Some(reach) = reach {
                wanted[reach as usize].insert(name);
            }
        }
        if let Some(remaining) = remaining {
            remaining.note_asked(wanted.iter().flatten());
        }
        if program {
            // No definitions of a program exist before it.
            wanted[SearchScope::Own as usize].clear();
            wanted[SearchScope::Linked as usize].clear();
        }
        let order = dylib.search_order();
        let linked = order.iter().filter(|(d, _)| d != self.names.host());
        let linked: Vec<_> = linked.cloned().collect();
        let [own, of_linked, all, thread_locals] = wanted;
        let mut found = Surroundings {
            own: self.names.find_all(&linked[..1], own),
            linked: self.names.find_all(&linked, of_linked),
            all: self.names.find_all(&order, all),
            thread_locals: self.names.find_all(&linked, thread_locals.clone()),
            program,
        };
        for name in thread_locals {
            let process = || self.process();
            if !found.thread_locals.contains_key(name)
                && let Some(it) = process().find_tls(name)
            {
                let (module, offset) = (it.module, it.offset);
                let definition = Definition::Tls { module, offset };
                found.thread_locals.insert(name.into(), definition);
            }
        }
        found
    }
}

/// A definition that yielded.
struct YieldedDefinition<'a> {
    file: &'a str,
    name: &'a str,
    /// False if the existing definition is of another kind.
    fits: bool,
    /// Its size, for a tentative definition.
    size: Option<u64>,
}

impl Loader {
    /// Checks that a yielding definition has the kind of the existing one, and that a tentative
    /// definition is no larger.
    pub(in crate::load) fn check_yielded(
        self: &Arc<Self>,
        dylib: &Dylib,
        image: &Image,
        object_symbols: &[(usize, Vec<ObjectSymbol>)],
        yielded: &[(Box<str>, Definition)],
    ) -> Result<(), Error> {
        let found = yielded.iter().map(|(name, meaning)| (&**name, *meaning));
        let found: HashMap<&str, Definition> = found.collect();
        for (_, module) in &image.modules {
            let summary = module.readers.summary();
            for (index, info) in summary.symbols.iter().enumerate() {
                let definition = match found.get(&*info.name) {
                    Some(&meaning) if info.linkage.is_definition() && !is_local(info) => meaning,
                    _ => continue,
                };
                let id = SymbolId(index as u32);
                let fits = match (info.kind, definition) {
                    (Kind::ThreadLocal, found) => matches!(found, Definition::Tls { .. }),
                    (Kind::Data, found) => matches!(found, Definition::Address(_)),
                    (Kind::Function | Kind::Ifunc { .. }, Definition::Tls { .. }) => false,
                    _ => true,
                };
                let size = match info.linkage {
                    Linkage::Common => Some(module.readers.faithful()?.layout(id).size),
                    _ => None,
                };
                let file = module.readers.bitcode().name();
                let name = &info.name;
                self.check_one(
                    dylib,
                    &YieldedDefinition {
                        file,
                        name,
                        fits,
                        size,
                    },
                )?;
            }
        }
        for ((_, symbols), (file, _)) in object_symbols.iter().zip(&image.objects) {
            for symbol in symbols {
                let Some(definition) = found.get(&*symbol.name) else {
                    continue;
                };
                let fits = match definition {
                    Definition::Function { .. } => !symbol.data && !symbol.thread_local,
                    Definition::Address(_) => !symbol.thread_local,
                    Definition::Tls { .. } => symbol.thread_local,
                };
                let size = symbol.common.then_some(symbol.size);
                let name = &symbol.name;
                self.check_one(
                    dylib,
                    &YieldedDefinition {
                        file,
                        name,
                        fits,
                        size,
                    },
                )?;
            }
        }
        Ok(())
    }

    fn check_one(
        self: &Arc<Self>,
        dylib: &Dylib,
        yielded: &YieldedDefinition<'_>,
    ) -> Result<(), Error> {
        let YieldedDefinition {
            file, name, fits, ..
        } = *yielded;
        if !fits {
            return Err(Error::DuplicateSymbol {
                symbol: name.to_owned(),
                first: format!("{} (something else)", dylib.name()),
                second: file.to_owned(),
            });
        }
        let Some(size) = yielded.size else {
            return Ok(());
        };
        let defined = match self.objects.variable(dylib, name) {
            Some(variable) => Some(variable.size),
            // `None` for a name that the host defined: the host guarantees the size.
            None => self.size_of(dylib, name)?,
        };
        match defined {
            Some(defined) if defined < size => Err(Error::CommonSize {
                file: file.to_owned(),
                symbol: name.to_owned(),
                size,
                defined,
            }),
            _ => Ok(()),
        }
    }
}

impl Loader {
    /// The size of a module's variable, which LLVM computes.
    fn size_of(self: &Arc<Self>, dylib: &Dylib, name: &str) -> Result<Option<u64>, Error> {
        let (loader, dylib, name) = (Arc::clone(self), dylib.clone(), name.to_owned());
        let symbol = name.clone();
        let lost = move |message: &str| {
            Error::Codegen(CodegenError::Fatal {
                module: symbol.clone(),
                unit: String::from("its size"),
                message: message.to_owned(),
            })
        };
        sacrificial::sacrificial("uruk-size", lost, move || {
            let layout = loader.layout_of(&dylib, &name)?;
            Ok(layout.map(|layout| layout.size))
        })
    }
}

fn is_local(info: &SymbolInfo) -> bool {
    info.linkage == Linkage::Local
}
