//! The session that compiles functions of the program it lives in.
//!
//! ```text
//! files -> images -> modules, rebound -> added -> native code adopted as first versions
//! publication of a version -> entry redirected; of native code -> entry restored
//! ```
//!
//! # Invariants
//! - Until a version is published, the program runs as before: none of its memory was written to.
//! - A redirected entry leads to the function's stub. The stub's slot leads to native code, or to the
//!   published version. So an entry is right at any time, in either state.
//! - A failure costs a module or a function: it stays native, with the reason in the table.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uruk::live::NativeFiles;
use uruk::live::rebound::{Contents, Method, NativeCallers};
use uruk::{Dylib, Error, Event, Jit, PolicyConfig, SamplingSettings, Tier, ToolSettings};

use crate::allocation::CPP_ALLOCATION;
use crate::choose::{Fate, Outcome, Reason, choose};
use crate::entries::EntryError;
use crate::exchanges::Exchanges;
use crate::function::{Function, Functions, listen};
use crate::known::{Module, Program};
use crate::locked::{Locked, Turn};
use crate::program::headers::carries_bitcode;
use crate::program::image::{Image, ImageError};
use crate::program::loaded::{self, Loaded};
use crate::settings::{Force, Settings, budget};

/// The program stays native.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The file has nothing to compile again.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The program's own allocator would be used by this library.
    #[error("the program defines `{name}` itself, which the compiler would have to use")]
    Allocator {
        /// The function.
        name: &'static str,
    },
    /// No session can be created here.
    #[error(transparent)]
    Session(#[from] Error),
}

/// Share of the program's time for trials that win nothing, and their time before it has run for long:
/// less than a session's usual, since less can be won.
const TRIALS: (f64, Duration) = (0.01, Duration::from_millis(20));

/// Samples per second once the program has run for a while.
const STEADY_HZ: u32 = 49;

fn policy(settings: &Settings) -> PolicyConfig {
    PolicyConfig {
        overhead: f64::from(settings.overhead) / 100.0,
        ..PolicyConfig::default()
    }
}

fn sampling() -> SamplingSettings {
    SamplingSettings {
        steady_hz: STEADY_HZ,
        ..SamplingSettings::default()
    }
}

fn tools(settings: &Settings) -> ToolSettings {
    let mut tools = ToolSettings::default();
    tools.perf_map = settings.perf_map;
    tools
}

/// A program whose functions can be compiled again while it runs.
pub struct Live {
    /// The session.
    pub jit: Jit,
    /// The dylib that has the program's functions.
    pub dylib: Dylib,
    /// Facts about the files, the executable first.
    pub programs: Vec<Arc<Program>>,
    functions: Arc<Functions>,
    /// The files that were loaded at the program's start.
    began: Vec<PathBuf>,
    /// Files and modules that could not be added, with the reason.
    pub failed: Vec<(String, String)>,
    /// Sources of the modules.
    pub sources: Vec<String>,
    /// The bitcode of the modules, unchanged.
    pub(crate) modules: Vec<Vec<u8>>,
    /// Facts about each of them.
    pub(crate) known: Vec<Module>,
    /// Contents by which exchanged modules are compared.
    pub(crate) contents: Locked<HashMap<(usize, Method), Arc<Contents>>>,
    /// Modules that are too large to be optimized for a comparison.
    pub(crate) large: Locked<HashSet<usize>>,
    /// Facts about native callers of some functions of a module.
    pub(crate) callers: Locked<HashMap<usize, CallersOf>>,
    /// Exchanges that were not rolled back.
    pub(crate) exchanges: Locked<Exchanges>,
    /// Held by a thread that exchanges functions, or rolls back.
    pub(crate) exchanging: Turn,
    /// Names defined as addresses.
    defined: Locked<HashSet<String>>,
    /// The program runs already.
    started: bool,
}

/// Called functions, and facts about their native callers.
type CallersOf = (HashSet<String>, Arc<NativeCallers>);

impl Live {
    /// Reads the program, and those of its libraries that carry bitcode, and adopts their functions.
    /// Nothing is compiled, and nothing of the program is changed, until samples, or [`Live::compile`],
    /// ask for it.
    ///
    /// `loaded` are files that are never unloaded, the executable first. The executable may be unusable
    /// if a library is usable. Call it on a thread that runs no code of them.
    ///
    /// # Errors
    /// [`LiveError`]; the program runs on as it did.
    pub fn start(loaded: &[Loaded], settings: &Settings) -> Result<Live, LiveError> {
        let (mut images, mut failed) = (Vec::new(), Vec::new());
        let mut of_executable = None;
        let blocks = loaded::thread_blocks();
        for loaded in loaded {
            if !loaded.executable && !carries_bitcode(&loaded.file) {
                continue;
            }
            let image = Image::read(&loaded.file, loaded.base, loaded.executable);
            let image = image.map_err(LiveError::from).and_then(no_allocator);
            match image {
                Ok(mut image) => {
                    if !image.executable {
                        image.threads = blocks.get(&image.base).copied();
                    }
                    images.push(image);
                }
                Err(cause @ LiveError::Allocator { .. }) if loaded.executable => return Err(cause),
                Err(cause) => {
                    failed.push((loaded.file.display().to_string(), cause.to_string()));
                    of_executable = of_executable.or(loaded.executable.then_some(cause));
                }
            }
        }
        match of_executable {
            Some(cause) if images.is_empty() => Err(cause),
            _ => {
                let live = Live::of(images, failed, settings);
                let began = loaded.iter().map(|it| it.file.clone()).collect();
                live.map(|live| Live { began, ..live })
            }
        }
    }

    /// Files with bitcode that the program opened after its start, and has open now: they stay native,
    /// as they may be closed again.
    pub fn opened_later(&self) -> Vec<PathBuf> {
        let mut files = loaded::loaded();
        files.retain(|it| !it.executable && !self.began.contains(&it.file));
        let files = files.into_iter().map(|it| it.file);
        files.filter(|file| carries_bitcode(file)).collect()
    }

    /// Compiles functions that a function's new code may call and that have no code yet, so that no
    /// caller waits for it.
    pub fn compile_inner(&self, function: &Function) {
        let inner = function.chosen.holds.iter();
        let inner = inner.chain(function.chosen.relies.iter());
        for name in inner {
            let inner = self
                .function(name)
                .filter(|found| found.chosen.fate == Fate::WithCallers);
            let Some(inner) = inner else {
                continue;
            };
            if let Err(cause) = self.dylib.compile(name) {
                inner.fail(cause);
            }
        }
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<Arc<Function>> {
        self.functions
            .with(|functions| functions.get(name).cloned())
    }

    fn of(
        mut images: Vec<Image>,
        failed: Vec<(String, String)>,
        settings: &Settings,
    ) -> Result<Live, LiveError> {
        let modules = images.iter_mut();
        let modules: Vec<_> = modules.map(|it| std::mem::take(&mut it.modules)).collect();
        let counts: Vec<usize> = modules.iter().map(Vec::len).collect();
        let modules = modules.concat();
        let numbered = images.into_iter().enumerate();
        // SAFETY: the files are loaded at the given bases, by the caller's promise, and stay so.
        let programs = numbered.map(|(number, image)| unsafe { Program::new(image, number) });
        let programs: Vec<Arc<Program>> = programs.map(Arc::new).collect();
        let functions: Arc<Functions> = Arc::default();
        let listener = {
            let functions = Arc::clone(&functions);
            let verbose = settings.verbose;
            move |event: &Event| listen(event, &functions, verbose)
        };
        let (share, credit) = settings.tuning_percent.map_or(TRIALS, budget);
        let mut builder = Jit::builder()
            .over_native(true)
            .policy(policy(settings))
            .tools(tools(settings))
            .sampling_settings(sampling())
            .tune(settings.tune)
            .tuning_budget(share, credit)
            .record(settings.records())
            .on_event(listener);
        if let Some(jobs) = settings.jobs {
            builder = builder.jobs(jobs);
        }
        // An empty file was just created.
        let before = settings.tuning.as_ref();
        let before = before.and_then(|file| uruk_files::read_left(file).ok());
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            builder = builder.tuned_before(String::from_utf8_lossy(&before).into_owned());
        }
        let jit = builder.build()?;
        for text in programs.iter().flat_map(|program| &program.image.text) {
            NativeFiles::of(&jit).attend(text.clone());
        }
        let dylib = jit.create_dylib("program")?;
        // Modules are added one after the other, and refer to each other.
        dylib.allow_missing(true);
        let mut live = Live {
            jit,
            dylib,
            programs,
            functions,
            began: Vec::new(),
            failed,
            sources: Vec::new(),
            modules: modules.clone(),
            known: Vec::new(),
            contents: Locked::default(),
            large: Locked::default(),
            callers: Locked::default(),
            exchanges: Locked::default(),
            exchanging: Turn::default(),
            defined: Locked::default(),
            started: settings.force == Force::No,
        };
        live.sources = NativeFiles::of(&live.jit).sources(modules.clone())?;
        live.known = live.known(&counts);
        live.add(modules);
        live.adopt_all();
        Ok(live)
    }

    /// Facts about each module, given the number of modules of each file.
    fn known(&self, counts: &[usize]) -> Vec<Module> {
        let executable = self.programs.iter().find(|it| it.image.executable);
        let mut all: Vec<Module> = Vec::new();
        for (program, count) in self.programs.iter().zip(counts) {
            let sources = &self.sources[all.len()..all.len() + count];
            let objects = program.image.symbols.files_of(sources).into_iter();
            for (object, kept) in objects.zip(&program.image.kept) {
                all.push(Module {
                    program: Arc::clone(program),
                    executable: executable.cloned(),
                    object,
                    number: all.len(),
                    kept: Arc::clone(kept),
                });
            }
        }
        all
    }

    /// Rebinds all modules, and adds them.
    fn add(&mut self, modules: Vec<Vec<u8>>) {
        let mut ready = Vec::new();
        let mut addresses: HashMap<String, u64> = HashMap::new();
        let mut wanted = HashMap::new();
        for (bytes, module) in modules.into_iter().zip(self.known.clone()) {
            let number = module.number;
            let name = format!("{}.{number}", self.sources[number]);
            let program = Arc::clone(&module.program);
            match rebind(&self.jit, &name, bytes, module) {
                Ok((bitcode, outcome)) => {
                    let bodies = outcome.functions.iter();
                    let bodies = bodies.filter(|f| !matches!(f.fate, Fate::Refused(_)));
                    let bodies: Vec<String> = bodies.map(|f| f.name.clone()).collect();
                    program.taken.with(|taken| taken.extend(bodies));
                    program.note_missing(number, &outcome.missing);
                    addresses.extend(outcome.addresses.iter().cloned());
                    wanted.extend(outcome.wanted.iter().cloned());
                    ready.push((number, name, bitcode, outcome));
                }
                Err(cause) => self.failed.push((name, cause.to_string())),
            }
        }
        self.define(addresses, wanted);
        for (number, name, bitcode, outcome) in ready {
            match self.dylib.add_bitcode(&name, bitcode) {
                Ok(()) => self.list(outcome, number),
                Err(cause) => self.failed.push((name, cause.to_string())),
            }
        }
    }

    /// Defines names as their addresses. A `wanted` name without a body in the session gets its given
    /// address, or else that of the executable or the libraries. A name without any stays undefined, and
    /// is null where that is allowed.
    pub(crate) fn define(
        &self,
        addresses: impl IntoIterator<Item = (String, u64)>,
        wanted: impl IntoIterator<Item = (String, Option<u64>)>,
    ) {
        let executable = self.programs.iter().find(|it| it.image.executable);
        let found = wanted.into_iter().filter_map(|(name, known)| {
            if self.programs.iter().any(|it| it.is_taken(&name)) {
                return None;
            }
            let place = || executable.and_then(|it| it.image.symbols.global(&name));
            let known = known.or_else(|| place().map(|place| place.address));
            let address = known.or_else(|| loaded::find(&name))?;
            Some((name, address))
        });
        for (name, address) in addresses.into_iter().chain(found) {
            if self.defined.with(|defined| defined.insert(name.clone())) {
                // SAFETY: the program's own definition under that name, valid for as long as it runs.
                let done = unsafe { self.dylib.define_address(&name, address as *const ()) };
                // Only code that refers to it fails, with an error.
                drop(done);
            }
        }
    }

    /// Redirects all calls of a function to its stub, whose target stays the same.
    ///
    /// # Errors
    /// The entry cannot be redirected.
    pub(crate) fn lead(&self, function: &Function) -> Result<(), EntryError> {
        let (Some(entry), Some(&stub)) = (function.entry(), function.stub.get()) else {
            return Ok(());
        };
        // SAFETY: the stub is never freed, and leads to code of the same function.
        unsafe { function.program.entries.redirect(entry, stub) }
    }

    fn list(&self, outcome: Outcome, number: usize) {
        for mut chosen in outcome.functions {
            let module = &self.known[number];
            let is_main = module.program.image.executable && chosen.name == "main";
            if is_main && self.started && matches!(chosen.fate, Fate::Adopted { .. }) {
                chosen.rests = chosen.rests.or(Some(Reason::Once));
            }
            let source = &self.sources[number];
            let source = match module.program.library() {
                "" => source.clone(),
                library => format!("{library}: {source}"),
            };
            let function = Function::new(chosen, source, module);
            let name = function.chosen.name.clone();
            drop(
                self.functions
                    .with(|functions| functions.insert(name, function)),
            );
        }
    }

    /// The functions, by name.
    pub fn functions(&self) -> Vec<Arc<Function>> {
        let mut all: Vec<Arc<Function>> = self
            .functions
            .with(|functions| functions.values().cloned().collect());
        all.sort_unstable_by(|a, b| a.chosen.name.cmp(&b.chosen.name));
        all
    }

    /// Functions whose native code is a version, and that may be compiled.
    pub fn adopted(&self) -> Vec<Arc<Function>> {
        let mut all = self.functions();
        all.retain(|function| function.entry().is_some() && !function.rests());
        all
    }

    fn adopt_all(&self) {
        let all = self.functions();
        for function in all.iter().filter(|it| it.entry().is_some()) {
            let stub = self.dylib.lookup(&function.chosen.name);
            let adopted = stub.and_then(|stub| {
                let _ = function.stub.set(stub);
                self.take_back(function)
            });
            if let Err(cause) = adopted {
                function.fail(cause);
            }
        }
        self.rest(&all);
    }

    /// Pins functions to native code that are to stay native and are not redirected. Makes functions
    /// depend on the bodies they hold only, unless a new body outdates them.
    pub(crate) fn rest(&self, functions: &[Arc<Function>]) {
        for function in functions.iter().filter(|it| !it.is_outdated()) {
            self.set_relies(function, None);
        }
        for function in functions.iter().filter(|it| it.rests()) {
            let pin = || self.dylib.pin(&function.chosen.name, Some(Tier::Native));
            // Its native code is not current after an exchange that was rolled back. A function without
            // a version is listed in the table.
            let _ = pin().or_else(|_| self.take_back(function).and_then(|()| pin()));
        }
    }

    /// Makes a function's native code depend on all that it relies on, and on the `changed` functions
    /// that it does not fit; or, with none, only on the bodies it holds.
    pub(crate) fn set_relies(&self, function: &Function, changed: Option<&[String]>) {
        let relied = function.relies.swap(changed.is_some(), Ordering::AcqRel);
        if relied || changed.is_some() {
            let mut depends = function.depends(&self.dylib);
            let changed = changed.into_iter().flatten();
            depends.extend(changed.filter_map(|name| self.dylib.number_of(name).ok()));
            // A function without a version is adopted without the changed ones.
            let _ = self.dylib.set_holds(&function.chosen.name, &depends);
        }
    }

    /// Lets calls reach a function's native code, whatever version is current.
    ///
    /// # Errors
    /// The session's: it was replaced meanwhile.
    pub fn take_back(&self, function: &Function) -> Result<(), Error> {
        let Some(native) = function.native(&self.dylib) else {
            return Ok(());
        };
        // SAFETY: the code was made of the same body, by the same types, and is the program's.
        unsafe { self.dylib.adopt(&function.chosen.name, &native) }.map(drop)
    }

    /// Compiles a function at a tier now; calls reach the new code.
    ///
    /// # Errors
    /// The compile's; calls reach what they reached.
    pub fn compile(&self, function: &Function, tier: Tier) -> Result<(), Error> {
        let compiled = self.dylib.compile_at(&function.chosen.name, tier);
        if let Err(cause) = &compiled {
            function.fail(cause);
        }
        compiled
    }

    /// Number of redirected entries.
    pub fn redirected(&self) -> usize {
        let functions = self.functions();
        let is_redirected = |function: &&Arc<Function>| {
            let entry = function.entry();
            entry.is_some_and(|entry| function.program.entries.is_redirected(entry))
        };
        functions.iter().filter(is_redirected).count()
    }
}

/// A file, unless it defines functions with which C++ programs allocate.
fn no_allocator(image: Image) -> Result<Image, LiveError> {
    let defined = |name: &&&str| image.symbols.global(name).is_some();
    match CPP_ALLOCATION.iter().find(defined) {
        Some(name) => Err(LiveError::Allocator { name }),
        None => Ok(image),
    }
}

/// Rebinds a module: its new bitcode, and what was chosen.
pub(crate) fn rebind(
    jit: &Jit,
    name: &str,
    bytes: Vec<u8>,
    module: Module,
) -> Result<(Vec<u8>, Outcome), Error> {
    let chosen: Arc<Mutex<Outcome>> = Arc::default();
    let told = Arc::clone(&chosen);
    let bitcode = NativeFiles::of(jit).rebind(name, bytes, move |survey| {
        let outcome = choose(survey, &module);
        let choices = outcome.choices.clone();
        *told.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        choices
    })?;
    let outcome = std::mem::take(&mut *chosen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((bitcode, outcome))
}
