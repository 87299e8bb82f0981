//! The parts of a session, wired together, and the table of its functions.
//!
//! Locks are `std`'s, of one word: a forked child can use them (`fork::gate` lets no worker hold one).

mod addresses;
mod body;
mod module_size;
mod session;
mod static_names;
mod table;

pub(crate) use body::{Body, Function};
use session::EndedLast;
pub(crate) use session::{SessionEnd, sessions};
pub(crate) use static_names::{static_bytes, static_name};
pub(crate) use table::FunctionTable;

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, RwLock};
use uruk_codegen::{
    Bitcode, CodegenError, FactStore, ModulePlan, ReaderPool, ReadingRoom, SymbolId,
};
use uruk_heap::{Heap, HeapConfig};
use uruk_session::Dylib;
use uruk_stubs::StubTable;
use uruk_unwind::{RegionHandle, Row};

use crate::api::layers::Layers;
use crate::calls::asked::Asked;
use crate::calls::bound::{HostFunctions, State};
use crate::error::Error;
use crate::events::Events;
use crate::fork::sacrificial::sacrificial;
use crate::fork::thread::rest;
use crate::fork::thread::serving::Serving;
use crate::fork::{self, gate};
use crate::host::process::Process;
use crate::load::hooks::{Destructors, Schedule};
use crate::load::labels::Labels;
use crate::load::names::Reporter;
use crate::load::names::{Definition, Name, Names};
use crate::load::objects::{ObjectCode, Objects};
use crate::load::untrusted::InputLimits;
use crate::load::waiting::Waiting;
use crate::loops::Continuations;
use crate::reclaim::Reclaim;
use crate::removal::Owners;
use crate::removal::life::Life;
use crate::removal::removed::Removed;
use crate::replace::{Locals, Replacing};
use crate::speculation::Speculation;
use crate::tiers::eviction::Eviction;
use crate::tiers::{TierSettings, TierState};
use crate::told::holdings::Modules;
use crate::told::stats::Counters;
use crate::told::tools::Tools;
use crate::tuning::Tuning;
use crate::units::hands::Hands;
use crate::version::Parcels;
use crate::version::baseline::Compilers;
use crate::version::bodies::Bodies;
use crate::version::constants::Shared;
use crate::version::failed::{Causes, Context};
use uruk_base::Tiers;

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
    /// Code that it offers to the inliners of other modules.
    pub(crate) parcels: Parcels,
    /// Constants that LLVM made for its functions, and that outlive their versions.
    pub(crate) constants: Shared,
    /// State of the host that its functions refer to, kept for them and for their code.
    pub(crate) state: Option<State>,
    /// Labels of its assembly, once its data is linked.
    pub(crate) labels: OnceLock<Labels>,
    pub(crate) spaces: crate::load::spaces::LabelSpaces,
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
    /// Reads the symbol table of `bitcode`. The number of workers that can compile from it at once
    /// is `core`'s.
    pub(crate) fn new(bitcode: Bitcode, core: &Core, dylib: &Dylib) -> Result<Module, Error> {
        let read = match core.baseline.is_on() {
            true => ReaderPool::without_llvm,
            false => ReaderPool::new,
        };
        let bitcode = core.layers.looking(bitcode)?;
        let readers = read(bitcode, core.readers(), &core.reading_room)?;
        Ok(Module::read_by(readers, core, dylib))
    }

    /// Like [`Module::new`], for IR text.
    pub(crate) fn of_text(
        file: &str,
        text: &str,
        core: &Core,
        dylib: &Dylib,
    ) -> Result<Module, Error> {
        if core.layers.look.is_some() {
            return Module::new(Bitcode::from_ir_text(file, text)?, core, dylib);
        }
        let limit = core.readers();
        let readers = ReaderPool::from_ir_text(file, text, limit, &core.reading_room)?;
        Ok(Module::read_by(readers, core, dylib))
    }

    fn read_by(readers: ReaderPool, core: &Core, dylib: &Dylib) -> Module {
        Module {
            state: core.host.state_for(readers.bitcode().name()),
            readers,
            plan: RwLock::default(),
            facts: RwLock::default(),
            dylib: dylib.clone(),
            life: Arc::default(),
            inherited: Locals::default(),
            parcels: Parcels::default(),
            constants: Shared::default(),
            labels: OnceLock::new(),
            spaces: Default::default(),
            definitions: OnceLock::new(),
            interprocedural: OnceLock::new(),
            types: OnceLock::new(),
            end: gate::End::default(),
        }
    }

    /// The plan at this moment; binding has happened before any compile.
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

/// Everything a session owns.
pub(crate) struct Core {
    pub(crate) process: Arc<RwLock<Process>>,
    pub(crate) names: Names,
    /// The dylib of programs, and of modules added to no other.
    pub(crate) main: Dylib,
    /// Counts images: local names carry the number of their image, or of a removed one.
    pub(crate) images: AtomicU64,
    pub(crate) functions: RwLock<FunctionTable>,
    /// Modules that were read.
    pub(crate) modules: Modules,
    pub(crate) objects: Objects,
    /// Counts units with stubs.
    pub(crate) units: AtomicU64,
    /// Code that units linked for functions, until their first call finds it ready.
    pub(crate) linked: Mutex<HashMap<FunctionId, ObjectCode>>,
    pub(crate) layers: Layers,
    /// Functions of the host that have types.
    pub(crate) host: HostFunctions,
    pub(crate) baseline: Compilers,
    /// Why functions have no code.
    pub(crate) causes: Causes,
    pub(crate) on_failure: OnceLock<Box<Context>>,
    /// Handles memory faults as long as the session lives.
    pub(crate) asked: OnceLock<Asked>,
    /// Inputs that were added before the definitions that they need.
    pub(crate) waiting: Waiting,
    /// Threads for code of embedders.
    pub(crate) hands: Arc<Hands>,
    /// Threads of this session.
    pub(crate) serving: Arc<Serving>,
    reading_room: Arc<ReadingRoom>,
    bodies: RwLock<Bodies>,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) tiers: TierState,
    pub(crate) tuning: Tuning,
    pub(crate) eviction: Eviction,
    pub(crate) continuations: Continuations,
    pub(crate) speculation: Speculation,
    pub(crate) replacing: Replacing,
    pub(crate) tools: Tools,
    pub(crate) owners: Arc<Owners>,
    pub(crate) removed: Removed,
    pub(crate) reclaim: Reclaim,
    pub(crate) dump_asm: RwLock<Vec<String>>,
    /// Constructors of images.
    pub(crate) schedule: Mutex<Schedule>,
    pub(crate) destructors: Mutex<Destructors>,
    /// True once a whole program is loaded: this process is that program.
    program: AtomicBool,
    /// Images are in the list of `dl_iterate_phdr`.
    pub(crate) lists: AtomicBool,
    /// Inputs are first read in another process, within these limits.
    pub(crate) untrusted: OnceLock<InputLimits>,
    stopping: AtomicBool,
    pub(crate) jobs: usize,
    // Field order is drop order: rows are unregistered before their memory is unmapped,
    // when another session may get the same addresses.
    pub(crate) region: Arc<RegionHandle>,
    pub(crate) stubs: Arc<StubTable>,
    pub(crate) heap: Heap,
    _session: EndedLast,
    end: gate::End,
}

/// Takes a pass: a session's fields take locks of the process when they are dropped. The thread
/// that drops the last handle keeps the pass until all fields are gone.
impl Drop for Core {
    fn drop(&mut self) {
        self.end.begin();
        self.reclaim.notes.end();
    }
}

impl Core {
    /// Reserves memory and makes the stub table; starts nothing.
    pub(crate) fn new(
        config: HeapConfig,
        jobs: usize,
        tiers: TierSettings,
        tools: Tools,
        reclaim: uruk_reclaim::Config,
        reporter: Option<Reporter>,
        layers: Layers,
    ) -> Result<Arc<Core>, Error> {
        let heap = Heap::new(config)?;
        let speculate = tiers.speculate && tiers.tiers != Tiers::Churn;
        let cpus = tiers.policy.cpus as usize;
        let (region, stubs) = stub_table(&heap)?;
        tools.place_stubs(&heap.stub_region(), stubs.resolver());
        let process = Arc::new(RwLock::new(Process::new()));
        let names = Names::new(&stubs, Arc::clone(&process), reporter)?;
        let main = names.create_dylib("main")?;
        let overrides = crate::guest::overrides().into_iter();
        let overrides = overrides.map(|(name, at)| Name::strong(name, Definition::Address(at)));
        names.define(&names.host().default_tracker()?, overrides.collect())?;
        let code = heap.pool_range(uruk_heap::Pool::Code);
        let core = Core {
            _session: EndedLast(names.session().clone()),
            heap,
            stubs,
            region,
            process,
            names,
            main,
            images: AtomicU64::new(0),
            untrusted: OnceLock::new(),
            functions: RwLock::default(),
            modules: Modules::default(),
            objects: Objects::default(),
            units: AtomicU64::new(0),
            linked: Mutex::default(),
            waiting: Waiting::default(),
            layers,
            host: HostFunctions::default(),
            causes: Causes::default(),
            on_failure: OnceLock::new(),
            asked: OnceLock::new(),
            hands: Arc::default(),
            serving: Arc::default(),
            reading_room: ReadingRoom::new(),
            bodies: RwLock::default(),
            counters: Counters::default(),
            events: Events::default(),
            eviction: Eviction::new(tiers.code_budget),
            continuations: Continuations::default(),
            speculation: Speculation::new(speculate, jobs, cpus),
            baseline: Compilers::new(tiers.baseline),
            tuning: Tuning::new(&tiers.tuning),
            tiers: TierState::new(tiers, code),
            replacing: Replacing::default(),
            tools,
            removed: Removed::default(),
            owners: Arc::default(),
            reclaim: Reclaim::new(&reclaim),
            dump_asm: RwLock::default(),
            schedule: Mutex::default(),
            destructors: Mutex::default(),
            program: AtomicBool::new(false),
            lists: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            jobs,
            end: gate::End::default(),
        };
        Ok(Arc::new(core))
    }

    /// Readers that a module may have: one for each worker, so that no kind waits for another.
    pub(crate) fn readers(&self) -> usize {
        self.jobs + self.tiers.background_jobs() + self.speculation.threads()
    }

    /// Sets the function behind stub `id`.
    pub(crate) fn set_function(&self, id: FunctionId, function: Function) {
        self.set_body(id, Body::Module(function));
    }

    /// Like [`Core::set_function`], for any kind of body.
    pub(crate) fn set_body(&self, id: FunctionId, body: Body) {
        let mut functions = self.functions.write();
        let before = functions.set(id.index(), body);
        drop(functions);
        // It may hold the last reference to an object of an embedder.
        drop(before);
    }

    /// The function behind stub `id`, if it is compiled; `None` also for functions of object files.
    pub(crate) fn function(&self, id: FunctionId) -> Option<Function> {
        match self.body(id)? {
            Body::Module(function) => Some(function),
            Body::Object(_) | Body::Unit(_) => None,
        }
    }

    /// The body behind stub `id`; `None` if a resolver chose its code.
    pub(crate) fn body(&self, id: FunctionId) -> Option<Body> {
        let functions = self.functions.read();
        functions.get(id.index()).cloned()
    }

    /// The display name of stub `id`, also for a while after its function was removed.
    pub(crate) fn display_name_of(&self, id: FunctionId) -> Option<&'static CStr> {
        let functions = self.functions.read();
        functions.name(id.index())
    }
}

impl Core {
    /// The error of a function in whose compile LLVM gave up.
    pub(crate) fn fatal(&self, id: FunctionId, message: &str) -> Error {
        let function = self.function(id);
        Error::Codegen(CodegenError::Fatal {
            module: function.as_ref().map_or_else(String::new, |f| {
                f.module.readers.bitcode().name().to_owned()
            }),
            unit: function.map_or_else(String::new, |f| f.name.to_string_lossy().into_owned()),
            message: crate::load::room::with_limits(message),
        })
    }

    /// Marks `id` as failed; in a program the reason is printed here.
    pub(crate) fn fail(&self, id: FunctionId, cause: &Error) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        if self.is_program() {
            uruk_files::say!("uruk: {cause}");
            // The reservation is low already if that was requested.
            if cause.wants_low_addresses() && self.heap.base() >= 1 << 31 {
                uruk_files::say!("  tip: {}", crate::load::room::LOW_ADDRESSES);
            }
        }
        self.note_cause(id, cause);
        self.removed.note_failed(id, cause);
        self.stubs.fail(id);
        // A definition may have been added between the two.
        if self.removed.was_noted(id, cause) {
            self.stubs.retry(id);
        }
    }

    /// From now on the process is the program: failed compiles are reported on
    /// standard error, and thread-locals may use static storage.
    pub(crate) fn become_program(&self) {
        rest::for_ever();
        self.program.store(true, Ordering::Relaxed);
        self.lists.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_program(&self) -> bool {
        self.program.load(Ordering::Relaxed)
    }

    /// Names of functions to disassemble once they are compiled.
    pub(crate) fn set_dump_asm(&self, names: &[String]) {
        *self.dump_asm.write() = names.to_vec();
    }
}

/// Registers the heap with the unwinder, and makes the stub table, whose pages are registered too.
fn stub_table(heap: &Heap) -> Result<(Arc<RegionHandle>, Arc<StubTable>), Error> {
    let region = uruk_unwind::register_region(heap.base(), heap.size())?;
    let region = Arc::new(region);
    let for_stubs = Arc::clone(&region);
    let stubs = StubTable::with_hook(heap, move |row| {
        let row = Row {
            start: row.start,
            end: row.end,
            fde: row.fde,
        };
        // A stub page without rows only shortens walks that start in it.
        // SAFETY: the record is the stub table's own, in the heap it belongs to.
        let _ = unsafe { for_stubs.insert(&[row], &[]) };
    })?;
    stubs.set_attendance(fork::unseen::attend);
    Ok((region, stubs))
}
