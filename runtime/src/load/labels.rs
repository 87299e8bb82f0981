//! Labels that module-level assembly does not export, and their use by the functions of its module.
//!
//! Natively a module is one object, and the assembler knows its local labels wherever the module
//! uses them: C declares and calls them, and so does the assembly in functions. Here the assembly
//! lies in the data unit's object, and each function is one of its own. So, once the data is
//! linked, the local symbols of its object are made known to the module:
//!
//! - A symbol that the module declares and its assembly defines locally gets a link name that is
//!   unique in the session, like a local variable's ([`ModulePlan`]). It refers to the label
//!   wherever a body is compiled, also in other modules, even if another file defines the same
//!   name.
//! - Names in the assembly text of a function have no declaration. They are looked up among the
//!   module's labels first, when the function is linked ([`CodeDirectory::find_for`]). They are unknown
//!   elsewhere: a body with such text is not inlined into other modules (`Reader::parcel`), nor one
//!   with any into a module with labels (`version::offers`).
//!
//! Compiled eagerly, a module is one object here too, and needs none of this.
//!
//! A body that refers by name to a symbol that is a label here is not inlined here, either.
//!
//! Limit: names that begin with `.L` are not among an object's symbols.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use uruk_codegen::{Access, Import, ModulePlan, SymbolId};
use uruk_link::{Kind as LinkKind, Placed};

use crate::code::module::Module;
use crate::code::names::Labels;
use crate::code::names::{Definition, NewName};
use crate::load::bind::local_link_name;
use crate::load::own;

/// A module with assembly whose data is about to be linked.
pub(crate) struct AssemblyModule {
    pub(crate) module: Arc<Module>,
    /// Its number among the files of its image.
    pub(crate) file: usize,
    /// The number of its object in the link.
    pub(crate) object: usize,
}

/// The labels of a module, and the plan by which its functions reach them.
pub(super) struct Labelled {
    module: Arc<Module>,
    labels: Labels,
    plan: ModulePlan,
    /// Definitions of the plan's new names.
    names: Vec<NewName>,
}

impl Labelled {
    /// Finds the labels of a module of image `image`, whose thread-locals have the module word
    /// `tls`.
    pub(crate) fn new(
        assembled: &AssemblyModule,
        image: u64,
        placed: &Placed<'_>,
        tls: Option<u64>,
    ) -> Labelled {
        let AssemblyModule {
            module,
            file,
            object,
        } = assembled;
        let mut plan = module.plan().successor();
        let mut names = Vec::new();
        let declared = declarations(module);
        let mut labels = Labels::new();
        for (label, address) in placed.locals(*object) {
            let meaning = match (label.kind, tls) {
                (LinkKind::Tls, Some(module)) => Definition::Tls {
                    module,
                    offset: address,
                },
                _ => Definition::Address(address),
            };
            if let Some(&id) = declared.get(label.name)
                && !labels.contains_key(label.name)
            {
                let name: Box<str> = local_link_name(label.name, image, *file, id).into();
                plan.imports[id.index()] = Import {
                    name: name.clone(),
                    access: match label.kind {
                        // Data of an image is in the reservation.
                        LinkKind::Data => Access::Near,
                        _ => Access::Indirect,
                    },
                    defined: false,
                    bound: true,
                    replaced: false,
                };
                names.push(NewName::strong(name, meaning).hidden(true));
            }
            labels.insert(label.name.into(), meaning);
        }
        Labelled {
            module: Arc::clone(module),
            labels,
            plan,
            names,
        }
    }

    /// Takes the names to be defined.
    pub(super) fn take_names(&mut self) -> Vec<NewName> {
        std::mem::take(&mut self.names)
    }

    /// Gives the functions of the module access to the labels, whose names are defined.
    pub(crate) fn publish(self) {
        if self.labels.is_empty() {
            return;
        }
        self.module.set_plan(Arc::new(self.plan));
        // Set only once: a module's data is linked once.
        let _ = self.module.labels.set(self.labels);
    }
}

/// The symbols of a module that it does not define, by name.
fn declarations(module: &Module) -> HashMap<&str, SymbolId> {
    let symbols = module.readers.summary().symbols.iter().enumerate();
    let declared = symbols.filter(|(_, info)| !info.linkage.is_definition());
    declared
        .map(|(index, info)| (info.name.as_str(), SymbolId(index as u32)))
        .collect()
}

/// Link names, by name, of symbols that modules declare and that their assembly, or that of a
/// module they replaced, defines locally.
pub(crate) fn declared_labels(modules: &[Arc<Module>]) -> BTreeMap<Box<str>, Vec<Box<str>>> {
    let mut all: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
    for module in modules {
        let plan = module.plan();
        for (name, id) in declarations(module) {
            let link_name = &plan.import(id).name;
            if **link_name != *name && !own::is_link_name(link_name) {
                let known = all.entry(name.into()).or_default();
                if !known.contains(link_name) {
                    known.push(link_name.clone());
                }
            }
        }
    }
    all
}

/// The labels of a module that replaces functions of `modules`: those of all of them, except names
/// with several meanings.
pub(crate) fn inherited(modules: &[Arc<Module>]) -> OnceLock<Labels> {
    let mut all: HashMap<Box<str>, Option<Definition>> = HashMap::new();
    for labels in modules.iter().filter_map(|module| module.labels.get()) {
        for (name, &meaning) in labels {
            let known = all.entry(name.clone()).or_insert(Some(meaning));
            if *known != Some(meaning) {
                *known = None;
            }
        }
    }
    let sure = all.into_iter();
    let sure: Labels = sure
        .filter_map(|(name, meaning)| Some((name, meaning?)))
        .collect();
    // It has no assembly of its own. Without labels it may be offered bodies that have some.
    let some = Some(sure).filter(|all| !all.is_empty());
    some.map_or_else(OnceLock::new, OnceLock::from)
}
