//! Images: files that were bound together. Their parts that are not compiled function by function,
//! the data of modules and the object files, are linked as one.
//!
//! # Why
//! Eager mode takes the same path with everything in one unit per module: thread-locals use the
//! general-dynamic model there too, whatever the bitcode's PIE level says.

mod link;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::SymbolId;

use crate::code::bonds::Remaining;
use crate::code::holding::Holding;
use crate::code::life::Life;
use crate::code::module::Module;
use crate::host::mapping::Mapping;
use crate::load::hooks::{Hook, Target};
use crate::load::input::function_base;
use crate::load::started::Started;

/// Files that were bound together.
#[derive(Default)]
pub(crate) struct Image {
    /// Its number in the session.
    pub(crate) number: u64,
    pub(crate) life: Arc<Life>,
    /// Destination of names that may remain when it is removed.
    pub(crate) remaining: Option<Arc<Remaining>>,
    /// Whether threads of the program may already run.
    pub(crate) late: bool,
    pub(crate) modules: Vec<(usize, Arc<Module>)>,
    pub(crate) objects: Vec<(String, Arc<[u8]>)>,
    /// By object: index of its input.
    pub(crate) object_inputs: Vec<usize>,
    /// Functions that objects define.
    pub(crate) object_functions: Vec<Box<str>>,
    /// Definitions in objects that were not chosen.
    pub(crate) discarded: Vec<Box<str>>,
    pub(crate) constructors: Vec<Hook>,
    pub(crate) destructors: Vec<Hook>,
    /// Functions selected at start by a resolver: the function and its resolver's name.
    pub(crate) ifuncs: Vec<(FunctionId, Target)>,
    /// Memory of variables in separate mappings.
    pub(crate) apart: Arc<[Mapping]>,
}

impl Image {
    /// The number in the suffix of its local names.
    pub(crate) fn suffix(&self) -> u64 {
        let suffix = self.life.suffix();
        suffix.map_or(self.number, |suffix| suffix.number())
    }

    /// Names that its modules hide from other dylibs.
    pub(crate) fn hidden(&self) -> HashSet<Box<str>> {
        let mut hidden = HashSet::new();
        for (_, module) in &self.modules {
            let plan = module.plan();
            for (index, info) in module.readers.summary().symbols.iter().enumerate() {
                let import = plan.import(SymbolId(index as u32));
                if info.hidden && import.defined {
                    hidden.insert(import.name.clone());
                }
            }
        }
        hidden
    }

    /// True if `name` is a function that some file of the image defines.
    pub(crate) fn is_function(&self, name: &str) -> bool {
        let in_module = |module: &Module| {
            let summary = module.readers.summary();
            let mut symbols = summary.symbols.iter().enumerate();
            symbols.any(|(index, info)| {
                info.name == name
                    && info.linkage.is_definition()
                    && function_base(summary, SymbolId(index as u32)).is_some()
            })
        };
        self.modules.iter().any(|(_, module)| in_module(module))
            || self
                .object_functions
                .iter()
                .any(|function| &**function == name)
    }
}

/// An image that is linked: its names are defined, and nothing has run.
pub(crate) struct LinkedImage {
    pub(crate) started: Started,
    pub(crate) bodies: BodyRanges,
    pub(crate) holding: Arc<Holding>,
    /// Names of functions by address, for an image that may be freed.
    pub(crate) functions: HashMap<u64, String>,
    /// Variables that yielded to existing ones, with their initial bytes.
    pub(crate) yielded: YieldedVariables,
}

/// Functions behind stubs, by name.
pub(super) type BodyRanges = HashMap<Box<str>, Range<u64>>;

/// Variables that yielded, with their initial bytes.
pub(super) type YieldedVariables = Vec<(Box<str>, Vec<u8>)>;

/// The names of an image's files, for messages.
pub(super) fn names_of_files(image: &Image) -> String {
    let modules = image.modules.iter();
    let modules = modules.map(|(_, module)| module.readers.bitcode().name());
    let objects = image.objects.iter().map(|(name, _)| name.as_str());
    let all: Vec<&str> = modules.chain(objects).collect();
    all.join(", ")
}
