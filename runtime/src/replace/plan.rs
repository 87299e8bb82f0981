//! Binds a module that replaces functions, by names.
//!
//! | the new module has | it exists as | it gets |
//! |---|---|---|
//! | a function | a function behind a stub | its link name: its stub is found by name; a *member* |
//! | a function | nothing | a stub of its own |
//! | a variable | a variable | its link name, as an import: contents and address stay |
//! | a variable | nothing | storage of its own |
//! | a local constant | whatever | storage of its own: strings and tables have no identity |
//! | a declaration | a label of the old module's assembly | its link name |
//! | a declaration | whatever else | what any declaration gets |
//!
//! External names are looked up in the dylib. Local ones are looked up among the local names of the
//! modules whose functions are replaced, and of modules that these replaced ([`Locals`]). A local
//! function whose name is ambiguous is new; for a local variable that is an error.
//!
//! # Why
//! Names bind a replacement. The new module's plan gives existing definitions their old link name
//! and makes data an import; stubs and storage are then found as by any other module. Local names
//! are looked up in the modules that are replaced, local constants are always new.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::{
    Access, Import, Kind, Linkage, ModulePlan, ModuleSummary, Placement, SymbolId, SymbolInfo,
};
use uruk_session::Dylib;

use crate::code::body::ModuleFunction;
use crate::code::locals::Locals;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::error::Error;
use crate::load::bind::local_link_name;
use crate::load::choose::is_data;
use crate::load::input::function_base;
use crate::load::labels::declared_labels;
use crate::replace::state::Replacing;

use super::migrate::{Migrating, Migration};
use crate::error::replace::ReplaceError;

/// How a module that replaces functions is bound.
pub(super) struct Planned {
    /// Number of the image.
    pub(super) image: u64,
    pub(super) plan: ModulePlan,
    pub(super) locals: Locals,
    /// Functions that exist and get another body.
    pub(super) members: Vec<(FunctionId, SymbolId)>,
    /// Functions that get a stub of their own.
    pub(super) added: Vec<SymbolId>,
    /// Variables that exist and keep their storage.
    pub(super) kept: Vec<SymbolId>,
    /// Variables that get storage of their own, local constants aside.
    pub(super) new_data: Vec<SymbolId>,
    /// Variables that get new storage instead of their old.
    pub(super) migrating: Vec<Migrating>,
    /// Modules whose functions are replaced.
    pub(super) old: Vec<Arc<Module>>,
}

/// A plan under construction.
struct Planner<'a> {
    replacing: &'a Replacing,
    module: &'a Module,
    file: &'a str,
    image: u64,
    migrations: &'a [Migration],
    planned: Planned,
    /// Labels that the old modules' assembly defines for these modules only.
    labels: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// Members found so far, to detect two symbols for one function.
    seen: HashMap<FunctionId, SymbolId>,
}

impl Replacing {
    /// The present meaning of a name for which a function without a body was found. `None` if the
    /// name still means that function: a resolver chooses its body. A removed function loses its
    /// name first.
    pub(super) fn found_anew(
        &self,
        dylib: &Dylib,
        name: &str,
        id: FunctionId,
    ) -> Option<Option<Definition>> {
        let found = self.names.find_own(dylib, name);
        let is_same = found == Some(Definition::Function { id }) && self.body(id).is_none();
        (!is_same).then_some(found)
    }

    /// Binds `module`, which has no bindings yet.
    pub(super) fn plan_replacement(
        &self,
        module: &Module,
        migrations: &[Migration],
    ) -> Result<Planned, Error> {
        let summary = module.readers.summary();
        if summary.has_inline_asm {
            return Err(construct(module, "module-level assembly"));
        }
        let image = self.next_image();
        let mut planner = Planner {
            replacing: self,
            module,
            file: module.readers.bitcode().name(),
            image,
            migrations,
            planned: Planned {
                image,
                plan: ModulePlan::default(),
                locals: Locals::default(),
                members: Vec::new(),
                added: Vec::new(),
                kept: Vec::new(),
                new_data: Vec::new(),
                migrating: Vec::new(),
                old: Vec::new(),
            },
            labels: BTreeMap::new(),
            seen: HashMap::new(),
        };
        planner.find_old_modules(summary);
        planner.labels = declared_labels(&planner.planned.old);
        planner.planned.locals = all_locals(&planner.planned.old);
        for index in 0..summary.symbols.len() {
            let import = planner.import(SymbolId(index as u32))?;
            planner.planned.plan.imports.push(import);
        }
        planner.check_aliases(summary)?;
        Ok(planner.planned)
    }
}

impl Planner<'_> {
    /// The modules whose external functions the new one defines.
    fn find_old_modules(&mut self, summary: &ModuleSummary) {
        for info in &summary.symbols {
            let external = info.linkage.is_definition() && info.linkage != Linkage::Local;
            if info.kind != Kind::Function || !external || info.linkage == Linkage::Available {
                continue;
            }
            let found = self
                .replacing
                .names
                .find_own(&self.module.dylib, &info.name);
            let Some(Definition::Function { id }) = found else {
                continue;
            };
            if let Some(ModuleFunction { module, .. }) = self.replacing.function(id)
                && !self.planned.old.iter().any(|old| Arc::ptr_eq(old, &module))
            {
                self.planned.old.push(module);
            }
        }
    }

    fn import(&mut self, id: SymbolId) -> Result<Import, Error> {
        let info = &self.module.readers.summary().symbols[id.index()];
        if !info.linkage.is_definition() {
            let name = match self.labels.get(&*info.name).map(Vec::as_slice) {
                None | Some([]) => info.name.as_str().into(),
                Some([label]) => label.clone(),
                Some(several) => return Err(self.ambiguous(&info.name, several.len())),
            };
            return Ok(Import {
                access: self.access(self.replacing.names.find_own(&self.module.dylib, &name)),
                defined: false,
                // The meaning is known only under the session's own name.
                bound: *name != *info.name,
                name,
                replaced: false,
            });
        }
        let link_name = match info.linkage {
            Linkage::Local => self.local(id)?,
            Linkage::Available => {
                let provided = self.replacing.names.find(&self.module.dylib, &info.name);
                if let Some(found) = provided {
                    return Ok(self.existing(&info.name, found));
                }
                None
            }
            _ => Some(Box::from(&*info.name)),
        };
        let found = link_name
            .as_ref()
            .and_then(|name| self.replacing.names.find_own(&self.module.dylib, name));
        match (link_name, found) {
            (Some(name), Some(found)) => self.redefinition(id, &name, found),
            (name, _) => self.new_definition(id, name),
        }
    }

    /// The link name a local symbol has already, if it has one.
    fn local(&self, id: SymbolId) -> Result<Option<Box<str>>, Error> {
        let info = &self.module.readers.summary().symbols[id.index()];
        if !is_lasting(self.module.readers.summary(), id) {
            return Ok(None);
        }
        match self.planned.locals.get(&info.name) {
            [] => Ok(None),
            [only] => Ok(Some(only.clone())),
            _ if info.kind == Kind::Function => Ok(None),
            several => Err(self.ambiguous(&info.name, several.len())),
        }
    }

    fn ambiguous(&self, name: &str, count: usize) -> Error {
        Error::from(ReplaceError::Ambiguous {
            file: self.file.to_owned(),
            name: name.to_owned(),
            count,
        })
    }

    fn redefinition(
        &mut self,
        id: SymbolId,
        name: &str,
        found: Definition,
    ) -> Result<Import, Error> {
        let summary = Arc::clone(self.module.readers.summary());
        let info = &summary.symbols[id.index()];
        match (info.kind, found) {
            (Kind::Function, Definition::Function { id: stub }) => {
                if info.placement != Placement::Own {
                    return Err(self.fixed(id, "it now has to be compiled together with data"));
                }
                if self.replacing.body(stub).is_none() {
                    return match self.replacing.found_anew(&self.module.dylib, name, stub) {
                        Some(Some(found)) => self.redefinition(id, name, found),
                        Some(None) => self.new_definition(id, Some(name.into())),
                        None => Err(self.fixed(id, "a resolver chooses what it is")),
                    };
                }
                if self.seen.insert(stub, id).is_some() {
                    return Err(self.fixed(id, "it shares its address with another function"));
                }
                self.planned.members.push((stub, id));
                Ok(Import {
                    name: name.into(),
                    access: Access::Indirect,
                    defined: true,
                    bound: true,
                    replaced: false,
                })
            }
            (Kind::Function, _) => Err(self.fixed(
                id,
                "it is the host's, a label of an object file, or compiled together with data",
            )),
            (Kind::Data, Definition::Address(old)) if self.is_migrated(&info.name) => {
                self.planned.migrating.push(Migrating {
                    symbol: id,
                    old_link_name: name.into(),
                    old,
                });
                let elsewhere = local_link_name(&info.name, self.image, 0, id);
                self.new_definition(id, Some(elsewhere.into()))
            }
            (Kind::Ifunc { .. }, Definition::Function { .. })
            | (Kind::Data, Definition::Address(_))
            | (Kind::ThreadLocal, Definition::Tls { .. }) => {
                if !matches!(info.kind, Kind::Ifunc { .. }) {
                    self.planned.kept.push(id);
                }
                Ok(self.existing(name, found))
            }
            (Kind::Alias { .. }, _) => Ok(self.existing(name, found)),
            _ => Err(self.fixed(id, "it was something else before")),
        }
    }

    fn new_definition(&mut self, id: SymbolId, name: Option<Box<str>>) -> Result<Import, Error> {
        let summary = self.module.readers.summary();
        let info = &summary.symbols[id.index()];
        let name = name.unwrap_or_else(|| match info.linkage {
            Linkage::Local => local_link_name(&info.name, self.image, 0, id).into(),
            _ => info.name.clone().into(),
        });
        match info.kind {
            Kind::Function if info.placement == Placement::Own => self.planned.added.push(id),
            Kind::Ifunc { .. } => return Err(construct(self.module, "a new ifunc")),
            Kind::Data | Kind::ThreadLocal if is_lasting(summary, id) => {
                self.planned.new_data.push(id);
            }
            _ => {}
        }
        let near = is_data(summary, id, 0);
        let access = if near { Access::Near } else { Access::Indirect };
        Ok(Import {
            name,
            access,
            defined: true,
            bound: true,
            replaced: false,
        })
    }

    fn is_migrated(&self, name: &str) -> bool {
        self.migrations.iter().any(|wanted| wanted.global == name)
    }

    fn existing(&self, name: &str, found: Definition) -> Import {
        Import {
            name: name.into(),
            access: self.access(Some(found)),
            defined: false,
            bound: true,
            replaced: false,
        }
    }

    /// Data in the reservation is within reach of near accesses.
    fn access(&self, found: Option<Definition>) -> Access {
        let heap = &self.replacing.heap;
        match found {
            Some(Definition::Address(at))
                if (heap.base()..heap.base() + heap.size() as u64).contains(&at) =>
            {
                Access::Near
            }
            _ => Access::Indirect,
        }
    }

    /// Checks that an alias keeps its target: the same function, or data.
    fn check_aliases(&self, summary: &ModuleSummary) -> Result<(), Error> {
        for (index, info) in summary.symbols.iter().enumerate() {
            let id = SymbolId(index as u32);
            let import = self.planned.plan.import(id);
            if !matches!(info.kind, Kind::Alias { .. }) || import.defined {
                continue;
            }
            let dylib = &self.module.dylib;
            let names_now = self.replacing.names.find_own(dylib, &import.name);
            let names_then = function_base(summary, id)
                .map(|base| &self.planned.plan.import(base).name)
                .and_then(|base| self.replacing.names.find_own(dylib, base));
            let function = matches!(names_now, Some(Definition::Function { .. }));
            if (function || names_then.is_some()) && names_now != names_then {
                return Err(self.fixed(id, "the alias would name another function"));
            }
        }
        Ok(())
    }

    fn fixed(&self, id: SymbolId, why: &'static str) -> Error {
        let symbol = &self.module.readers.summary().symbols[id.index()].name;
        Error::from(ReplaceError::Fixed {
            file: self.file.to_owned(),
            symbol: symbol.clone(),
            why,
        })
    }
}

fn construct(module: &Module, construct: &'static str) -> Error {
    Error::from(ReplaceError::Construct {
        file: module.readers.bitcode().name().to_owned(),
        construct,
    })
}

/// True for symbols with an identity of their own: functions, variables, thread-locals.
pub(super) fn is_lasting(summary: &ModuleSummary, id: SymbolId) -> bool {
    is_identity(&summary.symbols[id.index()])
}

fn is_identity(info: &SymbolInfo) -> bool {
    let local_constant = info.linkage == Linkage::Local && info.constant;
    match info.kind {
        Kind::Function | Kind::ThreadLocal => !info.name.is_empty(),
        Kind::Data => !local_constant && !info.name.is_empty(),
        Kind::Alias { .. } | Kind::Ifunc { .. } => false,
    }
}

/// The meanings of local names in `modules`, and in modules that these replaced.
fn all_locals(modules: &[Arc<Module>]) -> Locals {
    let all = modules.iter().map(|module| module.locals(is_identity));
    all.fold(Locals::default(), Locals::union)
}
