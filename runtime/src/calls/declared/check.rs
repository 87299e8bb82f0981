//! Declarations of modules against the types of functions of the host.

use super::compare;
use super::declared;
use crate::calls::types::FunctionType;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::error::Error;
use crate::session::Session;
use std::sync::Arc;
use uruk_session::Dylib as Names;

impl Session {
    /// Compares the declarations of an image's modules with the host's functions of these names.
    pub(crate) fn check_host_types(&self, modules: &[(usize, Arc<Module>)]) -> Result<(), Error> {
        for (_, module) in modules {
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

    /// Compares the declarations of modules that wait for a name with the function it will be in
    /// `dylib`.
    pub(in crate::calls) fn check_waiting_types(
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
