//! A function of the program, and the state of its entry as the session publishes code of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uruk::{Dylib, Event, FunctionId, NativeCode, Tier};

use crate::choose::{Chosen, Fate};
use crate::entries::EntryError;
use crate::known::{Module, Program};
use crate::locked::Locked;

/// A function of the program, with its state in the session.
#[derive(Debug)]
pub struct Function {
    /// The choices for it.
    pub chosen: Chosen,
    /// Its module's source.
    pub source: String,
    /// Its module's number, in link order, the executable's first.
    pub module: usize,
    /// Its file.
    pub(crate) program: Arc<Program>,
    /// Its stub.
    pub(crate) stub: OnceLock<u64>,
    /// Publications of compiled code, and of native code after such.
    pub published: AtomicU64,
    /// Number of returns to native code.
    pub taken_back: AtomicU64,
    /// Tier of the current code; 0 for native code.
    pub tier: AtomicU64,
    /// Exchanges, not rolled back, of this function or of functions that its native code may hold. While
    /// there is one, native callers come through the stub, also after an earlier version is published.
    led: AtomicU32,
    /// Exchanges, not rolled back, whose new bodies its native code does not fit.
    outdated: AtomicU32,
    /// In the session, its native code depends on all functions that it relies on.
    pub(crate) relies: AtomicBool,
    /// Why it could not be compiled, or redirected.
    pub failure: Locked<Option<String>>,
}

impl Function {
    pub(crate) fn new(chosen: Chosen, source: String, module: &Module) -> Arc<Function> {
        Arc::new(Function {
            chosen,
            source,
            module: module.number,
            program: Arc::clone(&module.program),
            stub: OnceLock::new(),
            published: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            led: AtomicU32::new(0),
            outdated: AtomicU32::new(0),
            relies: AtomicBool::new(false),
            tier: AtomicU64::new(0),
            failure: Locked::default(),
        })
    }

    pub(crate) fn fail(&self, why: impl ToString) {
        let why = why.to_string();
        self.failure.with(|failure| *failure = Some(why));
    }

    /// The first instruction of its native code, if that is a version.
    pub(crate) fn entry(&self) -> Option<u64> {
        match &self.chosen.fate {
            Fate::Adopted { entry, .. } => Some(*entry),
            _ => None,
        }
    }

    /// Its native code, if that is a version.
    pub(crate) fn native(&self, dylib: &Dylib) -> Option<NativeCode> {
        match &self.chosen.fate {
            Fate::Adopted {
                entry,
                code,
                beside,
            } => Some(NativeCode {
                entry: self.program.entries.behind(*entry),
                code: code.clone(),
                beside: beside.clone(),
                holds: self.depends(dylib),
            }),
            _ => None,
        }
    }
}

impl Function {
    /// Whether it stays native, as no exchange concerns it.
    pub(crate) fn rests(&self) -> bool {
        self.chosen.rests.is_some() && !self.is_led()
    }

    pub(crate) fn is_led(&self) -> bool {
        self.led.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire) > 0
    }

    /// Functions on whose bodies its native code depends, by number in the session.
    pub(crate) fn depends(&self, dylib: &Dylib) -> Vec<FunctionId> {
        let mut depends = self.chosen.holds.numbers(dylib);
        if self.relies.load(Ordering::Acquire) {
            depends.extend(self.chosen.relies.numbers(dylib));
        }
        depends
    }
}

/// Functions that are redirected, or whose native code is outdated, until this is dropped.
pub(crate) struct Led {
    functions: Vec<Arc<Function>>,
    count: fn(&Function) -> &AtomicU32,
}

impl Led {
    pub(crate) fn new(functions: Vec<Arc<Function>>) -> Led {
        Led::counted(functions, |function| &function.led)
    }

    /// Marks the native code of functions as outdated.
    pub(crate) fn outdated(functions: Vec<Arc<Function>>) -> Led {
        Led::counted(functions, |function| &function.outdated)
    }

    fn counted(functions: Vec<Arc<Function>>, count: fn(&Function) -> &AtomicU32) -> Led {
        for function in &functions {
            count(function).fetch_add(1, Ordering::AcqRel);
        }
        Led { functions, count }
    }

    pub(crate) fn functions(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// Includes more functions, each once.
    pub(crate) fn and(&self, more: &[Arc<Function>]) -> Led {
        let mut functions = self.functions.clone();
        for function in more {
            if !functions.iter().any(|known| Arc::ptr_eq(known, function)) {
                functions.push(Arc::clone(function));
            }
        }
        Led::counted(functions, self.count)
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        for function in &self.functions {
            (self.count)(function).fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Functions by their names in the session.
pub(crate) type Functions = Locked<HashMap<String, Arc<Function>>>;

/// Prints once an error that holds for all functions: the kernel refuses a redirection.
fn say_once(cause: &EntryError) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: the first thread prints it, and reads nothing else.
    if matches!(cause, EntryError::Refused { .. }) && !SAID.swap(true, Ordering::Relaxed) {
        uruk_files::say!(
            "uruk live: {cause}; functions that are not redirected yet run as they are"
        );
    }
}

/// Listener of the session: redirects the entry of a published function, and restores the entry of one
/// that returned to native code.
pub(crate) fn listen(event: &Event, functions: &Functions, verbose: bool) {
    let (name, tier) = match event {
        Event::Published { function, tier, .. } | Event::Reverted { function, tier, .. } => {
            (*function, *tier)
        }
        Event::Failed {
            function, message, ..
        } => {
            if verbose {
                uruk_files::say!("uruk live: {function}: {message}");
            }
            // For a request of any caller: samples report failures only here.
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
    let Some(entry) = function.entry() else {
        return;
    };
    match is_native {
        true => {
            function
                .program
                .entries
                .restore_unless(entry, || function.is_led());
            if function.tier.swap(0, Ordering::Relaxed) == 0 {
                return;
            }
            function.taken_back.fetch_add(1, Ordering::Relaxed);
        }
        false => {
            let Some(&stub) = function.stub.get() else {
                return;
            };
            // SAFETY: the stub is never freed, and leads to code of the same function.
            match unsafe { function.program.entries.redirect(entry, stub) } {
                Ok(()) => {
                    // An earlier failure was another attempt.
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
        uruk_files::say!("uruk live: {name}: tier {}, {state}", tier.number());
    }
}
