//! The directory of a session's code: where each function and each version is, by name, by number
//! and by address.
//!
//! Everything that is compiled, linked or freed is entered here and taken out here. Rooms above hold
//! the directory; it knows none of them.
//!
//! # Invariants
//! - Rows of unwinding are unregistered before their memory is unmapped, when another session may
//!   get the same addresses: the order of the fields is the order of their drop.
//! - Locks are `std`'s, of one word. A forked child can use them: they are taken under a pass, and
//!   `fork` waits until no thread has one (`fork::gate`).

use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, RwLock, ranks};
use uruk_codegen::{CodegenError, ReadingRoom};
use uruk_heap::{Heap, HeapConfig};
use uruk_session::Dylib;
use uruk_stubs::StubTable;
use uruk_unwind::{RegionHandle, Row};

use crate::code::blocks::LinkedCode;
use crate::code::blocks::NewBlock;
use crate::code::bodies::Bodies;
use crate::code::body::{Body, ModuleFunction};
use crate::code::bound::BoundModules;
use crate::code::causes::Causes;
use crate::code::counters::Counters;
use crate::code::holding::Owners;
use crate::code::holding::Retire;
use crate::code::modules::Modules;
use crate::code::names::{Names, Reporter};
use crate::code::notes::Notes;
use crate::code::objects::{ObjectCode, Objects};
use crate::code::publications::Publications;
use crate::code::records::BodyTracker;
use crate::code::records::Version;
use crate::code::records::Versions;
use crate::code::removed::Removed;
use crate::code::sampled::SampleMap;
use crate::code::service::CallService;
use crate::code::table::FunctionTable;
use crate::code::tools::Tools;
use crate::error::Error;
use crate::events::Events;
use crate::fork::hands::EmbedderThreads;
use crate::fork::thread::rest;
use crate::fork::thread::serving::Serving;
use crate::fork::{self, gate};
use crate::host::process::{Library, Process};
use crate::stacks::search::StackSearch;
use uruk_base::VersionId;

/// All code of a session; see the module.
pub(crate) struct CodeDirectory {
    process: Arc<RwLock<Process, ranks::CodeDirectoryProcess>>,
    pub(crate) names: Names,
    /// The dylib of programs, and of modules added to no other.
    pub(crate) main: Dylib,
    /// Number of images so far. Local names carry the number of their image, or the number of a
    /// removed image, used again (`code::suffix`).
    images: AtomicU64,
    pub(super) functions: RwLock<FunctionTable, ranks::CodeDirectoryFunctions>,
    /// Modules that were read.
    pub(crate) modules: Modules,
    pub(crate) objects: Objects,
    /// Counts units with stubs.
    units: AtomicU64,
    /// Code that units linked for functions, until their first call finds it ready.
    linked: Mutex<HashMap<FunctionId, ObjectCode>, ranks::CodeDirectoryLinked>,
    /// Why functions have no code.
    pub(super) causes: Causes,
    /// Whether workers answer first calls.
    pub(crate) service: CallService,
    /// Threads for code of embedders.
    pub(crate) hands: Arc<EmbedderThreads>,
    /// Threads of this session.
    pub(crate) serving: Arc<Serving>,
    pub(crate) reading_room: Arc<ReadingRoom>,
    pub(super) bodies: RwLock<Bodies>,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) tools: Tools,
    pub(crate) owners: Arc<Owners>,
    pub(crate) removed: Removed,
    dump_asm: RwLock<Vec<String>, ranks::CodeDirectoryDumpAsm>,
    /// True once a whole program is loaded: this process is that program.
    program: AtomicBool,
    /// Whether images are in the list of `dl_iterate_phdr`.
    lists: AtomicBool,
    stopping: AtomicBool,
    pub(crate) jobs: usize,
    /// Largest number of readers of a module: one for each worker, so that no kind of worker waits
    /// for another.
    pub(crate) readers: usize,
    /// Versions of every function.
    pub(crate) versions: Arc<Versions>,
    /// Modules of images that were bound.
    pub(crate) bound: BoundModules,
    /// Publications of versions, against commits of replacements.
    pub(crate) publications: Publications,
    /// Code by address, for samples.
    pub(crate) sampled: SampleMap,
    /// Notes to the thread that frees code.
    pub(crate) notes: Arc<Notes>,
    /// The search for the program's stacks.
    pub(crate) stacks: StackSearch,
    // Field order is drop order: rows are unregistered before their memory is unmapped, when
    // another session may get the same addresses.
    pub(crate) region: Arc<RegionHandle>,
    pub(crate) stubs: Arc<StubTable>,
    pub(crate) heap: Heap,
    _session: EndedLast,
    end: gate::End,
}

/// Takes a pass: the fields take locks of the process when they are dropped. The thread that drops
/// the last handle keeps the pass until all fields are gone.
impl Drop for CodeDirectory {
    fn drop(&mut self) {
        self.end.begin();
        self.notes.end();
    }
}

/// Ends a session when all other fields are gone. Trackers hold modules, whose names are handles of
/// the session: without its end they would hold each other.
struct EndedLast(uruk_session::Session);

impl Drop for EndedLast {
    fn drop(&mut self) {
        // It fails if it was ended before.
        let _ = self.0.end();
    }
}

/// The directories of the present sessions.
static DIRECTORIES: Mutex<Vec<Weak<CodeDirectory>>> = Mutex::new(Vec::new());

/// The directories of the present sessions; the list is unlocked on return. Under a pass.
pub(crate) fn directories() -> Vec<Arc<CodeDirectory>> {
    let held = DIRECTORIES.lock();
    held.iter().filter_map(Weak::upgrade).collect()
}

/// Settings of a [`CodeDirectory`].
pub(crate) struct DirectorySettings<'c> {
    pub(crate) heap: HeapConfig,
    pub(crate) jobs: usize,
    pub(crate) readers: usize,
    /// Whether samples are taken.
    pub(crate) sampled: bool,
    pub(crate) tools: Tools,
    pub(crate) reclaim: &'c uruk_reclaim::Config,
    pub(crate) reporter: Option<Reporter>,
}

impl CodeDirectory {
    /// Enters the directory into the list of present sessions. Under a pass.
    pub(crate) fn announce(self: &Arc<Self>) {
        let mut present = DIRECTORIES.lock();
        present.retain(|session| session.strong_count() != 0);
        present.push(Arc::downgrade(self));
    }

    /// Reserves memory and makes the stub table; starts nothing.
    pub(crate) fn new(settings: DirectorySettings<'_>) -> Result<Arc<CodeDirectory>, Error> {
        let heap = Heap::new(settings.heap)?;
        let (region, stubs) = stub_table(&heap)?;
        let tools = settings.tools;
        tools.place_stubs(&heap.stub_region(), stubs.resolver());
        let process = Arc::new(RwLock::new(Process::new()));
        let names = Names::new(&stubs, Arc::clone(&process), settings.reporter)?;
        let main = names.create_dylib("main")?;
        let sampled = match settings.sampled {
            true => SampleMap::new(&heap.pool_range(uruk_heap::Pool::Code)),
            false => SampleMap::default(),
        };
        Ok(Arc::new(CodeDirectory {
            _session: EndedLast(names.session().clone()),
            heap,
            stubs,
            region,
            process,
            names,
            main,
            images: AtomicU64::new(0),
            functions: RwLock::default(),
            modules: Modules::default(),
            objects: Objects::default(),
            units: AtomicU64::new(0),
            linked: Mutex::default(),
            causes: Causes::default(),
            service: CallService::default(),
            hands: Arc::default(),
            serving: Arc::default(),
            reading_room: ReadingRoom::new(),
            bodies: RwLock::default(),
            counters: Counters::default(),
            events: Events::default(),
            tools,
            owners: Arc::default(),
            removed: Removed::default(),
            dump_asm: RwLock::default(),
            program: AtomicBool::new(false),
            lists: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            jobs: settings.jobs,
            readers: settings.readers,
            versions: Arc::default(),
            bound: BoundModules::default(),
            publications: Publications::default(),
            sampled,
            notes: Arc::default(),
            stacks: StackSearch::new(settings.reclaim),
            end: gate::End::default(),
        }))
    }

    /// Sets the function behind stub `id`.
    pub(crate) fn set_function(&self, id: FunctionId, function: ModuleFunction) {
        self.set_body(id, Body::Module(function));
    }

    /// Like [`CodeDirectory::set_function`], for any kind of body.
    pub(crate) fn set_body(&self, id: FunctionId, body: Body) {
        let mut functions = self.functions.write();
        let before = functions.set(id.index(), body);
        drop(functions);
        // It may hold the last reference to an object of an embedder.
        drop(before);
    }

    /// The function behind stub `id`, if it is compiled; `None` also for functions of object files.
    pub(crate) fn function(&self, id: FunctionId) -> Option<ModuleFunction> {
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

    /// Functions whose bodies are `wanted`, in the order of their stubs.
    pub(crate) fn functions_where(&self, wanted: impl Fn(&Body) -> bool) -> Vec<FunctionId> {
        let functions = self.functions.read();
        let chosen = functions.iter().filter(|(_, body)| wanted(body));
        let ids = chosen.filter_map(|(index, _)| self.stubs.function(index));
        ids.collect()
    }

    /// Calls `with` with the body behind stub `id`; no body changes meanwhile.
    pub(crate) fn with_body<R>(&self, id: FunctionId, with: impl FnOnce(Option<&Body>) -> R) -> R {
        with(self.functions.read().get(id.index()))
    }

    /// Takes the body behind stub `id` out.
    pub(crate) fn take_body(&self, id: FunctionId) -> Option<Body> {
        self.functions.write().take(id.index())
    }

    /// The libraries in which names are searched.
    pub(crate) fn process(&self) -> impl Deref<Target = Process> {
        self.process.read()
    }

    /// Adds a library in which names are searched.
    pub(crate) fn add_library(&self, library: Library) {
        self.process.write().add(library);
    }

    /// A number for a new image.
    pub(crate) fn next_image(&self) -> u64 {
        self.images.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a new unit with stubs.
    pub(crate) fn next_unit(&self) -> u64 {
        self.units.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps code that a unit linked, until the first calls of its functions find it ready.
    pub(crate) fn keep_linked(&self, code: impl Iterator<Item = (FunctionId, ObjectCode)>) {
        self.linked.lock().extend(code);
    }

    /// The code that is kept for a function's first call.
    pub(crate) fn linked_code(&self, id: FunctionId) -> Option<ObjectCode> {
        self.linked.lock().get(&id).cloned()
    }

    /// Takes out the code that is kept for a function's first call. Its destructors are to run
    /// without a lock.
    pub(crate) fn take_linked(&self, id: FunctionId) -> Option<ObjectCode> {
        self.linked.lock().remove(&id)
    }

    /// Sets whether images are in the list of `dl_iterate_phdr`.
    pub(crate) fn set_lists_images(&self, lists: bool) {
        self.lists.store(lists, Ordering::Relaxed);
    }

    /// Whether images are in the list of `dl_iterate_phdr`.
    pub(crate) fn lists_images(&self) -> bool {
        self.lists.load(Ordering::Relaxed)
    }

    /// Whether a function is to be disassembled once it is compiled.
    pub(crate) fn wants_disassembly(&self, name: &str) -> bool {
        self.dump_asm.read().iter().any(|wanted| wanted == name)
    }

    /// Tells the workers to end.
    pub(crate) fn set_stopping(&self) {
        // Relaxed: workers look at it after a wake-up, which orders enough.
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

impl CodeDirectory {
    /// The error of a function whose compile ended with a fatal error of LLVM.
    pub(crate) fn fatal(&self, id: FunctionId, message: &str) -> Error {
        let function = self.function(id);
        Error::Codegen(CodegenError::Fatal {
            module: function.as_ref().map_or_else(String::new, |f| {
                f.module.readers.bitcode().name().to_owned()
            }),
            unit: function.map_or_else(String::new, |f| f.name.to_string_lossy().into_owned()),
            message: crate::host::room::with_limits(message),
        })
    }

    /// Marks `id` as failed; in a program the reason is printed here.
    pub(crate) fn fail(&self, id: FunctionId, cause: &Error) {
        self.counters.failed();
        if self.is_program() {
            uruk_files::say!("uruk: {cause}");
            // The reservation is low already if that was requested.
            if cause.wants_low_addresses() && self.heap.base() >= 1 << 31 {
                uruk_files::say!("  tip: {}", crate::host::room::LOW_ADDRESSES);
            }
        }
        self.note_cause(id, cause);
        self.removed.note_failed(id, cause);
        self.stubs.fail(id);
        // The function may have been retried after `note_failed`, but before `fail`: too early.
        if self.removed.was_noted(id, cause) {
            self.stubs.retry(id);
        }
    }

    /// The cause of a function's failed compile, or of a call that no worker answers.
    pub(crate) fn cause_of(&self, id: FunctionId) -> Option<Arc<Error>> {
        let own = self.causes.lock().get(&id).cloned();
        own.or_else(|| self.service.cause().filter(|_| self.body(id).is_some()))
    }

    pub(crate) fn note_cause(&self, id: FunctionId, cause: &Error) {
        let cause = Arc::new(cause.clone());
        let mut causes = self.causes.lock();
        causes.insert(id, cause);
    }

    pub(crate) fn forget_cause(&self, id: FunctionId) {
        let mut causes = self.causes.lock();
        causes.remove(&id);
    }

    /// Removes the unit of a version that has no further use, and retires its code.
    pub(crate) fn retire(&self, version: Version) {
        if let Some(unit) = version.unit {
            self.remove_unit(unit);
        }
        self.notes.retire(version.id);
        self.notes.start();
    }

    /// Retires a version by its number, if it is still known.
    pub(crate) fn retire_version(&self, id: FunctionId, version: VersionId) {
        let found = self.versions.take(id, version);
        let found = match found {
            Some(found) if found.escapes => self.versions.keep(id, found),
            found => found,
        };
        if let Some(found) = found {
            self.retire(found);
        }
        if let Some(code) = self.objects.take(version) {
            // The last one of an object retires its memory.
            drop(code);
            self.notes.start();
        }
    }

    /// Retires exits of loops whose version was freed.
    pub(crate) fn retire_exits(&self, version: VersionId) {
        self.notes.retire(version);
        self.notes.start();
    }

    /// Retires code that was compiled and never filed.
    pub(crate) fn discard(&self, id: FunctionId, unit: Option<BodyTracker>, code: LinkedCode) {
        if let Some(unit) = unit {
            self.remove_unit(unit);
        }
        let version = self.versions.ids.next();
        let notes = &self.notes;
        notes.live(NewBlock {
            function: Some(id),
            version,
            depends: Arc::default(),
            fixed: None,
            code,
        });
        notes.retire(version);
        self.notes.start();
    }

    /// Delays a thread that published a change without a waiting caller, if the reclaiming thread
    /// falls behind.
    pub(crate) fn pay_for_reclaim(&self) {
        if self.notes.is_started() && !self.is_stopping() {
            self.notes.pay();
        }
    }

    /// Removes the unit of a version.
    pub(super) fn remove_unit(&self, unit: BodyTracker) {
        // Fails only if the tracker was removed already.
        if let Err(cause) = unit.tracker.remove() {
            self.names.session().report(&cause);
        }
        self.versions.give_number(unit.number);
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
    stubs.set_attendance(fork::attend_call);
    Ok((region, stubs))
}
