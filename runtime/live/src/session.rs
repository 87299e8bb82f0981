//! The session that compiles functions of the program it lives in.
//!
//! ```text
//! files -> images -> modules, rebound -> added -> native code adopted as first versions
//! publication of a version -> entry redirected; of native code -> entry restored
//! ```
//!
//! # Invariants
//! - Until a version is published, the program runs as it did: nothing of it was written to.
//! - An entry that is redirected leads to the function's stub, whose slot leads to native code, or
//!   to what the session published. So an entry is right at any time, in either state.
//! - What fails costs a module, or a function: it stays native, with the reason in the table.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use uruk::rebound::Body;
use uruk::{Dylib, Error, Event, Jit, NativeCode, PolicyConfig, SamplingSettings, Tier};

use crate::choose::{Chosen, Fate, HOP, Outcome, choose};
use crate::entries::{Entries, EntryError};
use crate::known::{Module, Program, Strings};
use crate::locked::Locked;
use crate::program::image::{Image, ImageError};
use crate::program::loaded::{self, Loaded};
use crate::settings::Settings;

/// The program stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The file is not one that can be helped.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What the library allocates would be the program's affair.
    #[error("the program defines `{name}` itself, which the compiler would have to use")]
    Allocator {
        /// The function.
        name: &'static str,
    },
    /// No session can be had here.
    #[error(transparent)]
    Session(#[from] Error),
}

/// A function of the program, as the session has it.
#[derive(Debug)]
pub struct Function {
    /// What is known of it.
    pub chosen: Chosen,
    /// Its module's source.
    pub source: String,
    /// Its module's number, in link order.
    pub module: usize,
    /// Its stub.
    stub: OnceLock<u64>,
    /// Publications of compiled code, and of native code after such.
    pub published: AtomicU64,
    /// How often native code was gone back to.
    pub taken_back: AtomicU64,
    /// The tier of what runs; 0 for native code.
    pub tier: AtomicU64,
    /// Why it could not be compiled, or redirected.
    pub failure: Locked<Option<String>>,
}

impl Function {
    fn new(chosen: Chosen, source: &str, module: usize) -> Arc<Function> {
        Arc::new(Function {
            chosen,
            source: source.to_owned(),
            module,
            stub: OnceLock::new(),
            published: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            tier: AtomicU64::new(0),
            failure: Locked::default(),
        })
    }

    fn fail(&self, why: impl ToString) {
        let why = why.to_string();
        self.failure.with(|failure| *failure = Some(why));
    }

    fn native(&self) -> Option<(u64, NativeCode)> {
        match &self.chosen.fate {
            Fate::Adopted {
                entry,
                code,
                beside,
            } => Some((
                *entry,
                NativeCode {
                    entry: entry + HOP,
                    code: code.clone(),
                    beside: beside.clone(),
                    holds: self.chosen.holds.clone(),
                },
            )),
            _ => None,
        }
    }
}

/// What better code of a native function promises: somebody optimized it before.
const SPEEDUP: f64 = 1.1;

/// Part of the program's time that trials which win nothing may take, and what they may before it
/// has run for long: less than a session's usual, as what there is to win is less.
const TRIALS: (f64, Duration) = (0.01, Duration::from_millis(100));

/// Samples a second, once the program runs for a while.
const STEADY_HZ: u32 = 49;

fn sampling() -> SamplingSettings {
    SamplingSettings {
        steady_hz: STEADY_HZ,
        ..SamplingSettings::default()
    }
}

fn policy() -> PolicyConfig {
    PolicyConfig {
        speedup_optimized: SPEEDUP,
        ..PolicyConfig::default()
    }
}

type Functions = Locked<HashMap<String, Arc<Function>>>;

/// C++'s functions by which programs give out and take back memory of their own (C's are looked
/// for before the library begins). The library and LLVM would use them, from threads that the
/// program does not know of, and while such a function is itself compiled. Those that hand on to
/// another of the list unless they are replaced, arrays' and the ones that do not throw, matter
/// for themselves, too.
const ALLOCATORS: [&str; 10] = [
    "_Znwm",
    "_Znam",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdlPvm",
    "_ZdaPv",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
];

/// A program whose functions can be compiled again while it runs.
pub struct Live {
    /// The session.
    pub jit: Jit,
    /// The dylib that has the program's functions.
    pub dylib: Dylib,
    /// What is known of the file.
    pub program: Arc<Program>,
    functions: Arc<Functions>,
    /// Modules that could not be added, and why.
    pub failed: Vec<(String, String)>,
    /// Sources of the modules.
    pub sources: Vec<String>,
    /// The bitcode of the modules, as it came.
    pub(crate) modules: Vec<Vec<u8>>,
    /// The bodies that came by exchanges of which nobody went back, by module.
    pub(crate) exchanges: Locked<Vec<(usize, HashMap<String, Body>)>>,
    /// Names that are addresses.
    defined: Locked<HashSet<String>>,
}

impl Live {
    /// Reads the program and has its functions adopted. Nothing is compiled, and nothing of the
    /// program is changed, until samples, or [`Live::compile`], ask for it.
    ///
    /// # Errors
    /// [`LiveError`]; the program runs on as it did.
    pub fn start(loaded: &Loaded, settings: &Settings) -> Result<Live, LiveError> {
        let image = Image::read(&loaded.file, loaded.base, loaded.executable)?;
        let defined = |name: &&&str| image.symbols.global(name).is_some();
        if let Some(name) = ALLOCATORS.iter().find(defined) {
            return Err(LiveError::Allocator { name });
        }
        Live::of(image, settings)
    }

    /// Compiles what a function's new code may call and that has no code yet, so that no caller
    /// waits for it.
    pub fn compile_inner(&self, function: &Function) {
        for name in &function.chosen.holds {
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

    fn of(mut image: Image, settings: &Settings) -> Result<Live, LiveError> {
        let modules = std::mem::take(&mut image.modules);
        // SAFETY: the file is loaded, as whoever gives its base says, and stays so: it is the
        // executable.
        let (rooms, strings, entries) = unsafe {
            (
                image.rooms(),
                Strings::of(&image.constants),
                Entries::new(image.text.clone()),
            )
        };
        let text = image.text.clone();
        let program = Arc::new(Program {
            image,
            strings,
            rooms,
            entries,
            taken: Locked::default(),
            missing: Locked::default(),
        });
        let functions: Arc<Functions> = Arc::default();
        let listener = {
            let (functions, program) = (Arc::clone(&functions), Arc::clone(&program));
            let verbose = settings.verbose;
            Arc::new(move |event: &Event| listen(event, &functions, &program, verbose))
        };
        let mut builder = Jit::builder()
            .over_native(true)
            .policy(policy())
            .sampling_settings(sampling())
            .tune(settings.tune)
            .tuning_budget(TRIALS.0, TRIALS.1)
            .record(settings.records())
            .on_event(listener);
        if let Some(jobs) = settings.jobs {
            builder = builder.jobs(jobs);
        }
        let jit = builder.build()?;
        for text in text {
            jit.attend(text);
        }
        let dylib = jit.create_dylib("program")?;
        // Modules are added one after the other, and mention each other.
        dylib.allow_missing(true);
        let mut live = Live {
            jit,
            dylib,
            program,
            functions,
            failed: Vec::new(),
            sources: Vec::new(),
            modules: modules.clone(),
            exchanges: Locked::default(),
            defined: Locked::default(),
        };
        live.sources = live.jit.sources(modules.clone())?;
        live.add(modules);
        live.adopt_all();
        Ok(live)
    }

    /// Rebinds all modules, and adds them.
    fn add(&mut self, modules: Vec<Vec<u8>>) {
        let objects = self.program.image.symbols.files_of(&self.sources);
        let mut ready = Vec::new();
        let mut addresses: HashMap<String, u64> = HashMap::new();
        let mut wanted = HashSet::new();
        for (number, (bytes, object)) in modules.into_iter().zip(objects).enumerate() {
            let module = Module {
                program: Arc::clone(&self.program),
                object,
            };
            let name = format!("{}.{number}", self.sources[number]);
            match rebind(&self.jit, &name, bytes, module, number) {
                Ok((bitcode, outcome)) => {
                    let bodies = outcome.functions.iter();
                    let bodies = bodies.filter(|f| !matches!(f.fate, Fate::Refused(_)));
                    let bodies: Vec<String> = bodies.map(|f| f.name.clone()).collect();
                    self.program.taken.with(|taken| taken.extend(bodies));
                    self.program.note_missing(number, &outcome.missing);
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

    /// Gives names their addresses; to those that are `wanted`, unless the session has a body of that
    /// name, what the program or its libraries have. What nobody has stays undefined, and is null
    /// where that is allowed.
    pub(crate) fn define(
        &self,
        addresses: impl IntoIterator<Item = (String, u64)>,
        wanted: impl IntoIterator<Item = String>,
    ) {
        let symbols = &self.program.image.symbols;
        let found = wanted.into_iter().filter_map(|name| {
            if self.program.is_taken(&name) {
                return None;
            }
            let place = symbols.global(&name).map(|place| place.address);
            let address = place.or_else(|| loaded::find(&name))?;
            Some((name, address))
        });
        for (name, address) in addresses.into_iter().chain(found) {
            if self.defined.with(|defined| defined.insert(name.clone())) {
                // SAFETY: what the program itself has under that name, for as long as it runs.
                let done = unsafe { self.dylib.define_address(&name, address as *const ()) };
                // Only who refers to it fails, and says so.
                drop(done);
            }
        }
    }

    /// Has all calls of a function come through its stub, which leads where it led.
    ///
    /// # Errors
    /// The entry cannot be redirected.
    pub(crate) fn lead(&self, function: &Function) -> Result<(), EntryError> {
        let (Some((entry, _)), Some(&stub)) = (function.native(), function.stub.get()) else {
            return Ok(());
        };
        // SAFETY: the stub is for ever, and leads to code of the same function.
        unsafe { self.program.entries.redirect(entry, stub) }
    }

    fn list(&self, outcome: Outcome, number: usize) {
        for chosen in outcome.functions {
            let function = Function::new(chosen, &self.sources[number], number);
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

    /// Those whose native code is a version.
    pub fn adopted(&self) -> Vec<Arc<Function>> {
        let mut all = self.functions();
        all.retain(|function| function.native().is_some());
        all
    }

    fn adopt_all(&self) {
        for function in self.adopted() {
            let stub = self.dylib.lookup(&function.chosen.name);
            let adopted = stub.and_then(|stub| {
                let _ = function.stub.set(stub);
                self.take_back(&function)
            });
            if let Err(cause) = adopted {
                function.fail(cause);
            }
        }
    }

    /// Has calls reach a function's native code, whatever runs.
    ///
    /// # Errors
    /// The session's: it was replaced meanwhile.
    pub fn take_back(&self, function: &Function) -> Result<(), Error> {
        let Some((_, native)) = function.native() else {
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

    /// How many entries lead elsewhere.
    pub fn redirected(&self) -> usize {
        let adopted = self.adopted();
        let entries = adopted.iter().filter_map(|f| f.native());
        entries
            .filter(|(entry, _)| self.program.entries.is_redirected(*entry))
            .count()
    }
}

/// Says what holds for all functions: that the kernel refuses what is needed to redirect one.
fn say_once(cause: &EntryError) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: who is first says it, whatever it has seen.
    if matches!(cause, EntryError::Refused { .. }) && !SAID.swap(true, Ordering::Relaxed) {
        eprintln!("uruk live: {cause}; functions that are not redirected yet run as they are");
    }
}

/// Follows the session: redirects the entry of what was published, restores that of what went back.
fn listen(event: &Event, functions: &Functions, program: &Program, verbose: bool) {
    let (name, tier) = match event {
        Event::Published { function, tier, .. } | Event::Reverted { function, tier, .. } => {
            (*function, *tier)
        }
        Event::Failed {
            function, message, ..
        } => {
            if verbose {
                eprintln!("uruk live: {function}: {message}");
            }
            // Whoever asked for it: samples tell nobody else.
            if let Some(found) = functions.with(|functions| functions.get(*function).cloned()) {
                found.fail(message);
            }
            return;
        }
        _ => return,
    };
    let Some(function) = functions.with(|functions| functions.get(name).cloned()) else {
        return;
    };
    let is_native = tier == Tier::Native;
    let Some((entry, _)) = function.native() else {
        return;
    };
    match is_native {
        true => {
            program.entries.restore(entry);
            if function.tier.swap(0, Ordering::Relaxed) != 0 {
                function.taken_back.fetch_add(1, Ordering::Relaxed);
            }
        }
        false => {
            let Some(&stub) = function.stub.get() else {
                return;
            };
            // SAFETY: the stub is for ever, and leads to code of the same function.
            match unsafe { program.entries.redirect(entry, stub) } {
                Ok(()) => {
                    // What failed before was another attempt.
                    drop(function.failure.with(Option::take));
                    function.published.fetch_add(1, Ordering::Relaxed);
                    let tier = u64::from(tier.number());
                    function.tier.store(tier, Ordering::Relaxed);
                }
                Err(cause) => {
                    say_once(&cause);
                    function.fail(cause);
                }
            }
        }
    }
    if verbose {
        let state = if is_native {
            "native again"
        } else {
            "redirected"
        };
        eprintln!("uruk live: {name}: tier {}, {state}", tier.number());
    }
}

/// Rebinds a module: its new bitcode, and what was chosen.
pub(crate) fn rebind(
    jit: &Jit,
    name: &str,
    bytes: Vec<u8>,
    module: Module,
    number: usize,
) -> Result<(Vec<u8>, Outcome), Error> {
    let chosen: Arc<Mutex<Outcome>> = Arc::default();
    let told = Arc::clone(&chosen);
    let bitcode = jit.rebind(name, bytes, move |survey| {
        let outcome = choose(survey, &module, number);
        let choices = outcome.choices.clone();
        *told.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        choices
    })?;
    let outcome = std::mem::take(&mut *chosen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((bitcode, outcome))
}
