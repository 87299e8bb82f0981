//! Types of the host's functions, against declarations.
//!
//! A declaration is compared when it and the function meet: when a module is added that declares a
//! name which means a function of the host, or when the function is defined and a module was added
//! before that waits for it. A module is not asked for its types if it declares no such name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use uruk_base::locks::RwLock;
use uruk_codegen::{Kind, Linkage, SymbolId};
use uruk_session::Dylib as Names;

use super::types::FunctionType;
use crate::api::error::Error;
use crate::core::{Core, Module};
use crate::load::image::Image;
use crate::load::names::Definition;

/// By name: the addresses it has in dylibs, and how what is there is called.
#[derive(Default)]
struct Types {
    named: HashMap<Box<str>, Vec<Typed>>,
    /// Entries when those of names that are gone were last dropped, twice and some.
    next_look: usize,
    entries: usize,
}

pub(super) struct Typed {
    pub(super) dylib: Names,
    pub(super) address: u64,
    pub(super) ty: FunctionType,
}

/// Types of the host's functions of a session.
#[derive(Default)]
pub(super) struct HostTypes(RwLock<Types>);

impl Types {
    /// Drops entries of names that are gone, now and then: as often as there are twice as many.
    fn prune(&mut self, is_there: impl Fn(&str, &Typed) -> bool) {
        const SOME: usize = 64;
        if self.entries < self.next_look.max(SOME) {
            return;
        }
        self.named.retain(|name, all| {
            all.retain(|one| is_there(name, one));
            !all.is_empty()
        });
        self.named.shrink_to(2 * self.named.len());
        self.entries = self.named.values().map(Vec::len).sum();
        self.next_look = 2 * self.entries;
    }
}

impl HostTypes {
    /// Notes how what `name` means in a dylib is called.
    pub(super) fn note(&self, name: &str, typed: Typed, names: &crate::load::names::Names) {
        let mut types = self.0.write().unwrap_or_else(PoisonError::into_inner);
        types.prune(|name, typed| names.exports(&typed.dylib, name));
        types.entries += 1;
        types.named.entry(name.into()).or_default().push(typed);
    }

    /// The type of what `name` means, if that is a function of the host at `address`.
    fn type_at(&self, name: &str, address: u64) -> Option<FunctionType> {
        let types = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // The last of them: an address may be used again.
        let of_name = types.named.get(name)?.iter().rev();
        let mut found = of_name.filter(|typed| typed.address == address);
        found.next().map(|typed| typed.ty.clone())
    }

    fn is_name(&self, name: &str) -> bool {
        let types = self.0.read().unwrap_or_else(PoisonError::into_inner);
        types.named.contains_key(name)
    }
}

/// A function that `module` declares under a name that `wanted` says yes to.
fn declared(module: &Module, wanted: impl Fn(&str) -> bool) -> Vec<(SymbolId, String)> {
    let symbols = module.readers.summary().symbols.iter().enumerate();
    let functions = symbols.filter(|(_, info)| {
        info.kind == Kind::Function && info.linkage == Linkage::Declared && wanted(&info.name)
    });
    functions
        .map(|(index, info)| (SymbolId(index as u32), info.name.clone()))
        .collect()
}

/// Compares a declaration with what the host has.
fn compare(
    module: &Arc<Module>,
    symbol: SymbolId,
    name: &str,
    ty: &FunctionType,
) -> Result<(), Error> {
    let declared = Module::type_of(module, symbol)?;
    match ty.agrees_with_declared(&declared) {
        true => Ok(()),
        false => Err(Error::HostSignature {
            file: module.readers.bitcode().name().to_owned(),
            function: name.to_owned(),
            declared: declared.to_string(),
            defined: ty.to_string(),
        }),
    }
}

impl Core {
    /// Compares what the modules of an image declare with the host's functions of these names.
    pub(crate) fn check_host_types(&self, image: &Image) -> Result<(), Error> {
        for (_, module) in &image.modules {
            for (symbol, name) in declared(module, |name| self.host.types().is_name(name)) {
                let Some(found) = self.names.find(&module.dylib, &name) else {
                    continue;
                };
                let address = match found {
                    Definition::Function { id } => self.stubs.stub_address(id).0,
                    Definition::Address(address) => address,
                    Definition::Tls { .. } => continue,
                };
                if let Some(ty) = self.host.types().type_at(&name, address) {
                    compare(module, symbol, &name, &ty)?;
                }
            }
        }
        Ok(())
    }

    /// Compares what modules declare that wait for a name with the function it is to mean in
    /// `dylib`.
    pub(super) fn check_waiting_types(
        &self,
        dylib: &Names,
        name: &str,
        ty: &FunctionType,
    ) -> Result<(), Error> {
        for module in self.modules.live() {
            let order = module.dylib.search_order();
            if !order.iter().any(|(searched, _)| searched == dylib) {
                continue;
            }
            for (symbol, name) in declared(&module, |declared| declared == name) {
                if self.names.find(&module.dylib, &name).is_none() {
                    compare(&module, symbol, &name, ty)?;
                }
            }
        }
        Ok(())
    }
}
