//! Compiles a module's data without LLVM: like
//! [`Reader::compile_data`](crate::Reader::compile_data), from the module's bytes, but it returns
//! sections and symbols, not an object file.

use std::cell::RefCell;

use uruk_bitcode::ir::{GlobalKind, Linkage as IrLinkage};
use uruk_lower::Refused;
use uruk_lower::data::{Binding, Chosen, Data};

use super::Numbered;
use super::lower::ModuleNames;
use crate::plan::ModulePlan;
use crate::summary::{Kind, Linkage, Placement, SymbolId, SymbolInfo};

impl Numbered {
    /// The data of the module: every variable the plan says is defined here, and aliases of them.
    /// `None` if there is nothing.
    ///
    /// # Errors
    /// The reason why LLVM has to compile it.
    pub fn data(&self, plan: &ModulePlan) -> Result<Option<Data>, Refused> {
        if self.summary.has_inline_asm {
            return Err(Refused::Unread("assembly"));
        }
        let chosen = self.choose(plan)?;
        let Chosen {
            variables,
            mentioned,
            ..
        } = &chosen;
        if variables.is_empty() && mentioned.is_empty() {
            return Ok(None);
        }
        let names = ModuleNames {
            numbered: self,
            plan,
            inlined: RefCell::default(),
        };
        self.lowering().data(&chosen, &names).map(Some)
    }

    /// Chooses as `DataPlan` and `Copying::mention_section_bounds` do.
    fn choose(&self, plan: &ModulePlan) -> Result<Chosen, Refused> {
        let mut chosen = Chosen::default();
        let symbols = &self.summary.symbols;
        let is_here = |id: SymbolId| symbols[id.index()].placement == Placement::DataUnit;
        for (index, info) in symbols.iter().enumerate() {
            let id = SymbolId(index as u32);
            let global = self.global(id);
            let is_bound = info.name.starts_with("__start_") || info.name.starts_with("__stop_");
            if is_bound && !info.linkage.is_definition() {
                chosen.mentioned.push(global);
            }
            if !is_here(id) || !plan.import(id).defined {
                continue;
            }
            let binding = self.binding(global, info);
            match self.source.module.globals[global as usize].kind {
                GlobalKind::Function => return Err(Refused::Unread("a function with its data")),
                GlobalKind::Variable => chosen.variables.push((global, binding)),
                GlobalKind::Alias => {
                    if let Kind::Alias {
                        base: Some(base), ..
                    } = info.kind
                        && is_here(base)
                    {
                        chosen.aliases.push((global, binding));
                    }
                }
                GlobalKind::Ifunc => {}
            }
        }
        Ok(chosen)
    }

    fn binding(&self, global: u32, info: &SymbolInfo) -> Binding {
        match (
            self.source.module.details[global as usize].linkage,
            info.linkage,
        ) {
            (IrLinkage::Common, _) => Binding::Common,
            (_, Linkage::Weak) => Binding::Weak,
            _ => Binding::Strong,
        }
    }
}

#[cfg(test)]
mod tests;
