//! Compares types of the host's functions with declarations.
//!
//! A declaration is compared when a module is added that declares a name of a host function, or
//! when the function is defined after a module that waits for it. The types of a module are not
//! read if it declares no such name.

mod check;

use std::collections::HashMap;
use std::sync::Arc;

use uruk_base::locks::RwLock;
use uruk_codegen::{Kind, Linkage, SymbolId};
use uruk_session::Dylib as Names;

use super::types::FunctionType;
use crate::code::module::Module;
use crate::error::Error;

/// By name: its addresses in dylibs, and the types of the functions there.
#[derive(Default)]
struct Types {
    named: HashMap<Box<str>, Vec<Typed>>,
    /// Number of entries at which removed names are dropped next: somewhat over twice that of the
    /// last time.
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
pub(crate) struct HostTypes(RwLock<Types>);

impl Types {
    /// Drops entries of removed names each time the number of entries has doubled.
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
    /// Notes the type of the function `name` in a dylib.
    pub(super) fn note(&self, name: &str, typed: Typed, names: &crate::code::names::Names) {
        let mut types = self.0.write();
        types.prune(|name, typed| names.exports(&typed.dylib, name));
        types.entries += 1;
        types.named.entry(name.into()).or_default().push(typed);
    }

    /// The type of the host function `name`, if it is at `address`.
    fn type_at(&self, name: &str, address: u64) -> Option<FunctionType> {
        let types = self.0.read();
        // The last one: an address may be reused.
        let of_name = types.named.get(name)?.iter().rev();
        let mut found = of_name.filter(|typed| typed.address == address);
        found.next().map(|typed| typed.ty.clone())
    }

    fn is_name(&self, name: &str) -> bool {
        let types = self.0.read();
        types.named.contains_key(name)
    }
}

/// Functions that `module` declares under names that `wanted` selects.
fn declared(module: &Module, wanted: impl Fn(&str) -> bool) -> Vec<(SymbolId, String)> {
    let symbols = module.readers.summary().symbols.iter().enumerate();
    let functions = symbols.filter(|(_, info)| {
        info.kind == Kind::Function && info.linkage == Linkage::Declared && wanted(&info.name)
    });
    functions
        .map(|(index, info)| (SymbolId(index as u32), info.name.clone()))
        .collect()
}

/// Compares a declaration with the host's type.
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
