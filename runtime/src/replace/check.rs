//! Checks whether a module bound by names may replace their definitions: functions keep their
//! signatures and variables their types, unless the embedder allows changes. Functions that were
//! optimized together are replaced together.

use uruk_base::FunctionId;
use uruk_codegen::{Kind, Linkage, SymbolId};
use uruk_session::Dylib;

use crate::code::body::ModuleFunction;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::error::Error;
use crate::replace::state::Replacing;

use super::plan::Planned;
use super::prepare::Allowed;
use crate::error::replace::ReplaceError;

impl Replacing {
    /// Checks whether a bound module may replace the definitions of its names.
    pub(super) fn check_replacement(
        &self,
        module: &Module,
        planned: &Planned,
        allowed: &Allowed,
    ) -> Result<(), Error> {
        self.check_members(module, planned, allowed.signatures)?;
        self.check_kept(module, planned)?;
        let members = planned.members.iter();
        let members: Vec<(FunctionId, &str)> = members
            .map(|&(id, symbol)| (id, &*planned.plan.import(symbol).name))
            .collect();
        self.check_whole(&members, &module.dylib, allowed.parts)?;
        self.check_users(module, planned, &allowed.migrations)
    }

    /// Checks that modules that were optimized as a whole are replaced as a whole.
    pub(super) fn check_whole(
        &self,
        members: &[(FunctionId, &str)],
        dylib: &Dylib,
        allow_parts: bool,
    ) -> Result<(), Error> {
        self.check_objects(members, allow_parts)?;
        let replaced = |id| members.iter().any(|&(member, _)| member == id);
        let holds_member = |module: &Module| {
            let mut names = members.iter().map(|&(_, name)| name);
            names.any(|name| module.definition(name).is_some())
        };
        for old in self.bound.modules(dylib) {
            if !holds_member(&old) {
                continue;
            }
            let Some(evidence) = old.interprocedural()? else {
                continue;
            };
            let summary = old.readers.summary();
            let plan = old.plan();
            let mut missing = Vec::new();
            for (index, info) in summary.symbols.iter().enumerate() {
                let import = plan.import(SymbolId(index as u32));
                let counts =
                    info.kind == Kind::Function && info.linkage != Linkage::Local && import.defined;
                let found = self.names.find_own(dylib, &import.name);
                if let (true, Some(Definition::Function { id })) = (counts, found)
                    && !replaced(id)
                {
                    missing.push(info.name.clone());
                }
            }
            if !missing.is_empty() {
                return Err(Error::from(ReplaceError::Interprocedural {
                    old: old.readers.bitcode().name().to_owned(),
                    evidence: evidence.to_owned(),
                    missing,
                }));
            }
        }
        Ok(())
    }

    /// Checks that members are functions that can get other bodies, and keep their signatures.
    fn check_members(
        &self,
        module: &Module,
        planned: &Planned,
        allow_signatures: bool,
    ) -> Result<(), Error> {
        let summary = module.readers.summary();
        let file = || module.readers.bitcode().name().to_owned();
        if planned.members.is_empty() {
            let symbols = summary.symbols.iter();
            let functions =
                symbols.filter(|s| s.kind == Kind::Function && s.linkage.is_definition());
            return Err(Error::from(ReplaceError::Nothing {
                file: file(),
                functions: functions.map(|s| s.name.clone()).collect(),
            }));
        }
        for &(id, symbol) in &planned.members {
            let keeps_labels = match self.function(id) {
                Some(old) => old.module.readers.keeps_labels(old.symbol)?,
                None => false,
            };
            if keeps_labels || self.versions.is_fixed(id) {
                return Err(Error::from(ReplaceError::Labels {
                    file: file(),
                    function: summary.symbols[symbol.index()].name.clone(),
                }));
            }
        }
        if allow_signatures {
            return Ok(());
        }
        for &(id, symbol) in &planned.members {
            let Some(ModuleFunction {
                module: owner,
                symbol: at,
                ..
            }) = self.function(id)
            else {
                continue;
            };
            let old = owner.readers.signature(at)?;
            let new = module.readers.signature(symbol)?;
            if old != new {
                return Err(Error::from(ReplaceError::Signature {
                    file: file(),
                    function: summary.symbols[symbol.index()].name.clone(),
                    old,
                    new,
                }));
            }
        }
        Ok(())
    }

    /// Checks that existing variables keep their types, since they keep their contents, and
    /// constants their values, which code that is not replaced may hold.
    fn check_kept(&self, module: &Module, planned: &Planned) -> Result<(), Error> {
        let summary = module.readers.summary();
        for &symbol in &planned.kept {
            let link_name = &planned.plan.import(symbol).name;
            let owner = self.owner_of(&module.dylib, link_name);
            let info = &summary.symbols[symbol.index()];
            let Some((owner, at)) = owner else {
                // Data of an object file has no type, but a size.
                let old = self.objects.variable(&module.dylib, link_name);
                let new = module.readers.faithful()?.layout(symbol);
                if let Some(old) = old
                    && info.kind == Kind::Data
                    && old.size != new.size
                {
                    return Err(Error::from(ReplaceError::Global {
                        file: module.readers.bitcode().name().to_owned(),
                        global: info.name.clone(),
                        old: String::from("data of an object file"),
                        old_size: old.size,
                        new: new.ty,
                        new_size: new.size,
                    }));
                }
                continue;
            };
            let (old, old_value) = {
                let reader = owner.readers.faithful()?;
                (reader.layout(at), reader.initializer(at))
            };
            let reader = module.readers.faithful()?;
            let new = reader.layout(symbol);
            let file = module.readers.bitcode().name().to_owned();
            if old != new {
                return Err(Error::from(ReplaceError::Global {
                    file,
                    global: info.name.clone(),
                    old: old.ty,
                    old_size: old.size,
                    new: new.ty,
                    new_size: new.size,
                }));
            }
            let was_constant = owner.readers.summary().symbols[at.index()].constant;
            if (info.constant || was_constant) && reader.initializer(symbol) != old_value {
                return Err(Error::from(ReplaceError::Constant {
                    file,
                    constant: info.name.clone(),
                }));
            }
        }
        Ok(())
    }
}
