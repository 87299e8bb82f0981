//! A module that was read: its readers, how it is bound, and data that its functions share.

use crate::code::constants::SharedConstants;
use crate::code::host_state::HostState;
use crate::code::life::Life;
use crate::code::locals::{CountedLocals, Locals};
use crate::code::names::Labels;
use crate::code::parcels::Parcels;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::sacrificial::sacrificial;
use crate::host::clock;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use uruk_base::allocated::{of_arc, of_block, of_map, of_vec};
use uruk_base::locks::{Mutex, RwLock};
use uruk_codegen::pool::Lent;
use uruk_codegen::{
    CodegenError, FactStore, Linkage, ModulePlan, ReaderPool, SymbolId, SymbolInfo,
};
use uruk_session::Dylib;

/// One module of the program.
pub(crate) struct Module {
    pub(crate) readers: ReaderPool,
    /// Set once the image it belongs to is bound; another one after a replacement.
    plan: RwLock<Arc<ModulePlan>>,
    /// Facts inferred for its functions, under `plan`.
    facts: RwLock<Arc<FactStore>>,
    /// The dylib in which its names are defined and looked up.
    pub(crate) dylib: Dylib,
    /// The life of its image.
    pub(crate) life: Arc<Life>,
    /// Meanings of local names in the modules whose functions this one replaced.
    pub(crate) inherited: Locals,
    /// These, and those of its own local names, as of the last replacement of its functions.
    locals: Mutex<Option<Locals>>,
    /// Bodies that it offers to the inliners of other modules.
    pub(crate) parcels: Parcels,
    /// Constants that LLVM made for its functions, and that outlive their versions.
    pub(crate) constants: SharedConstants,
    /// State of the host that its functions refer to, kept for them and for their code.
    pub(crate) state: Option<HostState>,
    /// Labels of its assembly, once its data is linked.
    pub(crate) labels: OnceLock<Labels>,
    pub(super) spaces: crate::code::spaces::LabelSpaces,
    definitions: OnceLock<HashMap<Box<str>, SymbolId>>,
    interprocedural: OnceLock<Option<String>>,
    /// The types of its symbols as LLVM writes them, once requested.
    types: OnceLock<Vec<Arc<str>>>,
    end: gate::End,
}

/// Takes a pass: a module's fields take locks of the session when they are dropped. The thread that
/// drops the last handle keeps the pass until all fields are gone.
impl Drop for Module {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Module {
    /// Borrows a reader for a compile. Where LLVM has to read the module first (30 ms for a Rust
    /// program with its library), that is not time of this compile.
    ///
    /// # Errors
    /// As [`ReaderPool::reader`].
    pub(crate) fn reader(&self) -> Result<Lent, CodegenError> {
        clock::apart(|| self.readers.reader())
    }

    /// The module that `readers` read, in `dylib`. Its functions refer to `state` of the host, if
    /// there is any.
    pub(crate) fn new(readers: ReaderPool, dylib: &Dylib, state: Option<HostState>) -> Module {
        Module {
            state,
            readers,
            plan: RwLock::default(),
            facts: RwLock::default(),
            dylib: dylib.clone(),
            life: Arc::default(),
            inherited: Locals::default(),
            locals: Mutex::default(),
            parcels: Parcels::default(),
            constants: SharedConstants::default(),
            labels: OnceLock::new(),
            spaces: Default::default(),
            definitions: OnceLock::new(),
            interprocedural: OnceLock::new(),
            types: OnceLock::new(),
            end: gate::End::default(),
        }
    }

    /// The current plan. A module is bound before any compile of its functions.
    pub(crate) fn plan(&self) -> Arc<ModulePlan> {
        Arc::clone(&self.plan.read())
    }

    /// Facts inferred for its functions, under its plan.
    pub(crate) fn facts(&self) -> Arc<FactStore> {
        Arc::clone(&self.facts.read())
    }

    /// Sets how symbols are named and reached from now on. Their names stay.
    pub(crate) fn set_plan(&self, plan: Arc<ModulePlan>) {
        // Facts may have been inferred from a body that is replaced.
        *self.facts.write() = Arc::default();
        *self.plan.write() = plan;
    }

    /// The meanings of its local symbols that are `wanted`, and of inherited local names. The result
    /// shares its nodes with the last one.
    pub(crate) fn locals(&self, wanted: impl Fn(&SymbolInfo) -> bool) -> Locals {
        let plan = self.plan();
        let mut kept = self.locals.lock();
        let locals = kept.get_or_insert_with(|| self.inherited.clone());
        for (info, import) in self.readers.summary().symbols.iter().zip(&plan.imports) {
            if info.linkage == Linkage::Local && wanted(info) {
                locals.set(&info.name, &import.name);
            }
        }
        locals.clone()
    }

    /// The symbol that this module defines under a link name, also if its definition is not used.
    pub(crate) fn definition(&self, link_name: &str) -> Option<SymbolId> {
        let definitions = self.definitions.get_or_init(|| {
            let plan = self.plan();
            let symbols = self.readers.summary().symbols.iter().enumerate();
            symbols
                .filter(|(_, info)| info.linkage.is_definition())
                .map(|(index, _)| SymbolId(index as u32))
                .map(|id| (plan.import(id).name.clone(), id))
                .collect()
        });
        definitions.get(link_name).copied()
    }

    /// The type of a symbol as LLVM writes it. If LLVM is needed, it prints all types of the
    /// module, on a thread that it can take down; the caller may be any thread.
    pub(crate) fn type_of(module: &Arc<Module>, symbol: SymbolId) -> Result<Arc<str>, Error> {
        if module.types.get().is_none() {
            if let Some(known) = module.readers.type_of(symbol) {
                return Ok(known.into());
            }
            let name = module.readers.bitcode().name().to_owned();
            let lost = move |message: &str| {
                Error::Codegen(CodegenError::Fatal {
                    module: name.clone(),
                    unit: String::from("its types"),
                    message: message.to_owned(),
                })
            };
            let of = Arc::clone(module);
            let found = sacrificial("uruk-types", lost, move || {
                Ok(of.readers.faithful()?.types())
            })?;
            let _ = module.types.set(found);
        }
        let types = module.types.get().map_or(&[][..], Vec::as_slice);
        Ok(types.get(symbol.index()).cloned().unwrap_or_default())
    }

    /// Why bodies of this module may hold parts of each other, if they may.
    pub(crate) fn interprocedural(&self) -> Result<Option<&str>, Error> {
        if self.interprocedural.get().is_none() {
            let found = self.readers.interprocedural()?;
            let _ = self.interprocedural.set(found);
        }
        Ok(self
            .interprocedural
            .get()
            .and_then(|found| found.as_deref()))
    }
}

impl Module {
    /// Bytes that the allocator took for the module's records, without the bytes of its bitcode and
    /// without its constants. Names that it shares with modules in `counted` are left out.
    pub(crate) fn bytes(&self, counted: &mut CountedLocals) -> usize {
        let definitions = self.definitions.get();
        let names = definitions.into_iter().flat_map(HashMap::keys);
        let types = self.types.get().into_iter().flatten();
        of_arc::<Module>()
            + self.readers.bytes()
            + of_arc::<ModulePlan>()
            + self.plan().bytes()
            + of_arc::<FactStore>()
            + self.facts().bytes()
            + self.constants.bytes_of_table()
            + self.inherited.bytes(counted)
            + self
                .locals
                .lock()
                .as_ref()
                .map_or(0, |it| it.bytes(counted))
            + definitions.map_or(0, of_map)
            + names.map(|name| of_block(name.len())).sum::<usize>()
            + self.types.get().map_or(0, of_vec)
            + types.map(|text| of_block(text.len() + 16)).sum::<usize>()
    }
}
