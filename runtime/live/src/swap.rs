//! Exchanges functions of a running native program for those of a file.
//!
//! The file is an object of `uruk cc`, or bitcode: a new version of one of the program's sources. Its
//! functions are matched with the program's by name, local ones by their names without the suffixes that
//! make them unique, within the module that defines most of the file's functions. Existing definitions
//! keep their address; variables keep their contents. Functions with unchanged bodies stay as they are
//! ([`uruk::live::rebound::bodies`]). So a quiescent exchange does not wait for `main`, or for an
//! endless loop, unless that function changed or may hold a copy of a changed one.
//!
//! # When calls reach the new code
//! First the entries of all exchanged functions, and of native code that may hold copies of them, are
//! redirected: calls still reach the old code, but through stubs. Then the session exchanges the bodies,
//! at one instant and all or nothing, and compiles dependents again. So native code that had a function
//! inlined is left at the same instant.
//!
//! A thread in a loop of an exchanged function continues in the new body, if that is requested
//! ([`Exchange::osr`]) and the code has OSR points. Native code has none, and is listed.
//!
//! # What is refused
//! A function whose calls cannot be redirected: one that is refused itself ([`SwapError::Stays`]), or
//! whose native copies are in a refused one ([`SwapError::Held`]). A variable or constructor that does
//! not fit the running program (`meaning`).

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use uruk::live::NativeFiles;
use uruk::live::rebound::{Contents, Keep, Method, Survey};
use uruk::{
    Activation, Error, Level, LoopStays, OldLoop, ReplaceError, Replaced, Replacement, Rollback,
    RolledBack,
};

use crate::choose::{Fate, stem};
use crate::exchanges::{Exchanged, Exchanges, by_stem};
use crate::function::{Function, Led};
use crate::meaning::{Meant, homes, mean};
use crate::misfits;
pub use crate::refused::SwapError;
pub use crate::sent::{NewVersion, seal};
use crate::session::Live;
use crate::versions::Versions;

/// How functions are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// When calls reach the new bodies.
    pub level: Level,
    /// Threads in loops continue in new code where possible; for [`Level::Immediate`] only
    /// ([`Replacement::osr`]).
    pub osr: bool,
    /// Functions may have other types than before ([`Replacement::allow_signatures`]).
    pub allow_signatures: bool,
}

/// The result of an exchange.
#[derive(Debug, Clone, Default)]
pub struct Swapped {
    /// Functions with new bodies.
    pub exchanged: Vec<String>,
    /// Functions that are new.
    pub added: Vec<String>,
    /// Functions that were compiled again because their code held one of those.
    pub dependents: Vec<String>,
    /// Loops of compiled code that threads were in, if OSR was requested.
    pub loops: Vec<OldLoop>,
    /// Functions with new bodies whose native code threads are in, if OSR was requested: native loops
    /// cannot be left.
    pub native: Vec<String>,
    /// Threads that still run old code.
    pub activations: Vec<Activation>,
    /// Parts of the file that do not take effect, or not everywhere.
    pub notes: Vec<String>,
}

impl Swapped {
    fn of(replaced: &Replaced, osr: bool, notes: Vec<String>) -> Swapped {
        let activations = replaced.activations().unwrap_or_default();
        let in_old_code = |name: &&String| activations.iter().any(|it| it.functions.contains(name));
        let is_told = |name: &&String| replaced.loops.iter().any(|it| it.function == **name);
        let native = replaced.functions.iter();
        let native = native.filter(|it| osr && in_old_code(it) && !is_told(it));
        Swapped {
            native: native.cloned().collect(),
            exchanged: replaced.functions.clone(),
            added: replaced.added.clone(),
            dependents: replaced.dependents.clone(),
            loops: replaced.loops.clone(),
            activations,
            notes,
        }
    }
}

impl fmt::Display for Swapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.exchanged {
            writeln!(f, "exchanged: {}", stem(name))?;
        }
        for name in &self.added {
            writeln!(f, "added: {}", stem(name))?;
        }
        for name in &self.dependents {
            writeln!(f, "with it: {}", stem(name))?;
        }
        for one in &self.loops {
            let mut one = one.clone();
            one.function = stem(&one.function).to_owned();
            writeln!(f, "loop: {one}")?;
        }
        for name in &self.native {
            let why = LoopStays::NoWayOut;
            writeln!(f, "loop: {}: goes on in the old body: {why}", stem(name))?;
        }
        for activation in &self.activations {
            writeln!(f, "{}", still_there(activation))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Text about a thread that runs old code, or may.
fn still_there(activation: &Activation) -> String {
    let functions = activation.functions.iter().map(|name| stem(name));
    let functions = functions.collect::<Vec<_>>().join(", ");
    let (thread, tid) = (&activation.thread, activation.tid);
    match (functions.is_empty(), &activation.why) {
        (true, Some(why)) => {
            format!("may be in old code: thread {thread} ({tid}) does not answer: {why}")
        }
        (true, None) => format!("may be in old code: thread {thread} ({tid}) does not answer"),
        (false, _) => format!("still in old code: thread {thread} ({tid}): {functions}"),
    }
}

impl Live {
    /// Exchanges functions for those of a new version of a source; see the module. A quiescent exchange
    /// gives up once `given_up` is true. One exchange runs at a time.
    ///
    /// # Errors
    /// [`SwapError`]; nothing has changed then.
    pub fn swap(
        &self,
        version: &NewVersion,
        mut exchange: Exchange,
        given_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Swapped, SwapError> {
        let _turn = self.exchanging.take();
        still_wanted(&given_up)?;
        let NewVersion { file, bitcode } = version;
        let bytes = bitcode.clone();
        let name = file.display().to_string();
        let unknown = || SwapError::Unknown { file: file.clone() };
        let defined = NativeFiles::of(&self.jit).defined(&name, bytes.clone())?;
        let number = match *homes(defined.iter(), &self.functions()) {
            [] => return Err(unknown()),
            [only] => only,
            ref several => self.home_by_source(several, version)?,
        };
        let Renewed {
            meant,
            bitcode,
            versions,
            ..
        } = self.renewed(file, bytes.clone(), number)?;
        let led = self.lead_away(&meant.members)?;
        let functions = led.functions().to_vec();
        let unfit = self.unfit(&name, number, bytes, &versions, &meant.members, exchange);
        let fit = unfit.map_err(SwapError::from).and_then(|unfit| {
            let (led, outdated) = self.lead_from_callers(led, &unfit, &meant.changed())?;
            Ok((unfit, led, outdated))
        });
        let (unfit, led, outdated) = fit.inspect_err(|_| self.rest(&functions))?;
        let asked = exchange;
        exchange = unfit.exchange(asked);
        self.define(meant.addresses, meant.wanted);
        let replacement = Replacement::bitcode(&name, bitcode)
            .level(exchange.level)
            .osr(exchange.osr)
            .allow_signatures(exchange.allow_signatures)
            .withdraw_when(given_up);
        let replaced = match self.dylib.replace(replacement) {
            Ok(replaced) => replaced,
            Err(cause) => {
                let functions = led.functions().to_vec();
                drop((led, outdated));
                self.rest(&functions);
                return Err(unfit.explain(asked, cause));
            }
        };
        self.exchanges.with(|all| {
            all.push(Exchanged {
                module: number,
                level: asked.level,
                bodies: versions.changed_bodies(),
                variables: versions.new.variables,
                code: versions.new.code,
                written: meant.written,
                led,
                outdated,
                dependents: replaced.dependents.clone(),
            });
        });
        Ok(Swapped::of(&replaced, exchange.osr, meant.notes))
    }

    /// Of several modules that a file may be a new version of, the one with the same source file.
    fn home_by_source(&self, homes: &[usize], version: &NewVersion) -> Result<usize, SwapError> {
        let NewVersion { file, bitcode } = version;
        let own = NativeFiles::of(&self.jit).sources(vec![bitcode.clone()])?;
        let own = Path::new(own.first().map_or("", String::as_str));
        let source = |number: usize| Path::new(&self.sources[number]);
        let only = |is_own: &dyn Fn(&Path) -> bool| {
            let mut same = homes.iter().copied().filter(|&it| is_own(source(it)));
            same.next().filter(|_| same.next().is_none())
        };
        let found = only(&|it| it == own).or_else(|| only(&|it| it.file_name() == own.file_name()));
        found.ok_or_else(|| SwapError::Ambiguous {
            file: file.clone(),
            sources: homes.iter().map(|&it| self.sources[it].clone()).collect(),
        })
    }

    /// Compares a file with the current bodies of a module, and binds its names to the program's
    /// definitions. The file is read once.
    fn renewed(&self, file: &Path, bytes: Vec<u8>, number: usize) -> Result<Renewed, SwapError> {
        let renewed = self.renewed_by(Method::Records, file, bytes.clone(), number)?;
        let renewed = match renewed {
            Some(renewed) => renewed,
            // The records of one of the two are not all known.
            None => {
                let renewed = self.renewed_by(Method::Text, file, bytes, number)?;
                renewed.unwrap_or_default()
            }
        };
        let counts = renewed.meant.choices.functions.iter();
        let counts = counts.filter(|choice| choice.keep == Keep::Body).count();
        if counts != 0 && !renewed.versions.changed.is_empty() {
            return Ok(renewed);
        }
        Err(match renewed.meant.overridden.first() {
            Some(function) => SwapError::Stays {
                function: function.clone(),
                why: "is weak, and the program's is another file's".to_owned(),
            },
            None => SwapError::Same {
                file: file.to_owned(),
            },
        })
    }

    /// Like [`renewed`](Live::renewed), by hashes of one method; `None` if the file's hashes use another
    /// method.
    fn renewed_by(
        &self,
        method: Method,
        file: &Path,
        bytes: Vec<u8>,
        number: usize,
    ) -> Result<Option<Renewed>, SwapError> {
        let name = file.display().to_string();
        let (old, added) = self.contents_of(number, method)?;
        let brought = self.exchanges.with(|all| all.brought());
        let told: Arc<Mutex<Renewed>> = Arc::default();
        let (compared, tell) = (Arc::clone(&told), Arc::clone(&told));
        let (known, functions) = (self.known[number].clone(), self.functions());
        let compare = move |new: Contents| {
            if new.method != old.method {
                return false;
            }
            lock(&compared).is_comparable = true;
            let versions = Versions::of(old, added, brought, by_stem(new));
            let differ = !versions.changed.is_empty();
            lock(&compared).versions = versions;
            differ
        };
        let choose = move |survey: &Survey| {
            let mut told = lock(&tell);
            told.meant = mean(survey, &known, &functions, &told.versions);
            told.meant.choices.clone()
        };
        let bitcode = NativeFiles::of(&self.jit).renew(&name, bytes, method, compare, choose);
        let mut renewed = std::mem::take(&mut *lock(&told));
        if !renewed.is_comparable {
            return bitcode.map(|_| None).map_err(SwapError::from);
        }
        misfits::check(&renewed.versions)?;
        if let Some(refused) = renewed.meant.refused.take() {
            return Err(refused);
        }
        renewed.bitcode = bitcode?;
        Ok(Some(renewed))
    }

    /// Rolls back the latest exchange, at the level of that exchange unless `level` is given. A
    /// quiescent rollback gives up once `given_up` is true.
    ///
    /// # Errors
    /// [`SwapError::Older`], [`SwapError::InUse`], and the session's; nothing has changed then.
    pub fn roll_back(
        &self,
        level: Option<Level>,
        given_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<RolledBack, SwapError> {
        let _turn = self.exchanging.take();
        still_wanted(&given_up)?;
        // Functions that return to native code get their entry back at the instant of the rollback:
        // until then native code is stale, and its entry stays redirected.
        let latest = self.exchanges.with(Exchanges::pop).map(|mut it| {
            let functions = it.led.functions().to_vec();
            let outdated = it.outdated.functions().to_vec();
            it.led = Led::new(Vec::new());
            it.outdated = Led::outdated(Vec::new());
            (it, functions, outdated)
        });
        let latest_level = latest.as_ref().map(|(it, ..)| it.level);
        let how = Rollback::new().withdraw_when(given_up);
        let how = match level.or(latest_level) {
            Some(level) => how.level(level),
            None => how,
        };
        let mut back = self.jit.rollback_at(how);
        match (&mut back, latest) {
            (Err(_), Some((mut latest, functions, outdated))) => {
                latest.led = Led::new(functions);
                latest.outdated = Led::outdated(outdated);
                self.exchanges.with(|all| all.push(latest));
            }
            (Ok(back), Some((latest, functions, _))) => {
                self.rest(&functions);
                // Compiled code calls functions of which native code had a copy.
                let with_it = latest.dependents.into_iter();
                let is_new = |it: &String| !back.dependents.contains(it);
                let with_it: Vec<String> = with_it.filter(is_new).collect();
                back.dependents.extend(with_it);
            }
            (Err(_), None) => {
                let functions = self.exchanges.with(|all| all.settled());
                if !functions.is_empty() {
                    return Err(SwapError::Older { functions });
                }
            }
            (Ok(_), None) => {}
        }
        back.map_err(|cause| match cause {
            Error::Replace(cause) if matches!(*cause, ReplaceError::StillRunning { .. }) => {
                SwapError::InUse(cause)
            }
            cause => SwapError::Session(cause),
        })
    }

    /// The current bodies of a module's functions, and its variables in the program: the original ones
    /// first, as their memory stays. Also the variables that came with exchanges.
    fn contents_of(
        &self,
        number: usize,
        method: Method,
    ) -> Result<(Contents, HashSet<String>), Error> {
        let (name, bytes) = (&self.sources[number], &self.modules[number]);
        let key = (number, method);
        let first = self.contents.with(|all| all.get(&key).cloned());
        let first = match first {
            Some(first) => first,
            None => {
                let first = Arc::new(by_stem(NativeFiles::of(&self.jit).contents(
                    name,
                    bytes.clone(),
                    method,
                )?));
                let kept = Arc::clone(&first);
                self.contents.with(|all| all.insert(key, kept));
                first
            }
        };
        let mut contents = (*first).clone();
        self.exchanges.with(|all| all.apply(number, &mut contents));
        let added = contents.variables.keys();
        let added = added.filter(|name| !first.variables.contains_key(*name));
        let added = added.cloned().collect();
        Ok((contents, added))
    }

    /// Redirects every call of members, and of native code that may hold copies of them, to stubs, for
    /// as long as the returned value is kept.
    fn lead_away(&self, members: &[Arc<Function>]) -> Result<Led, SwapError> {
        let names: HashSet<&str> = members.iter().map(|f| f.chosen.name.as_str()).collect();
        let mut led = Vec::new();
        for function in self.functions() {
            let own = names.contains(function.chosen.name.as_str());
            let held = function
                .chosen
                .holds
                .iter()
                .find(|held| names.contains(held));
            if !own && held.is_none() {
                continue;
            }
            match &function.chosen.fate {
                Fate::Adopted { .. } => led.push(function),
                Fate::WithCallers if own && function.chosen.called => {
                    return Err(SwapError::Stays {
                        function: stem(&function.chosen.name).to_owned(),
                        why: "has no room for a jump in front of its native code".to_owned(),
                    });
                }
                // Called natively by its holders as well, which are redirected themselves.
                Fate::WithCallers => {}
                Fate::Refused(reason) => {
                    let shown = |name: &str| stem(name).to_owned();
                    let (holder, why) = (shown(&function.chosen.name), reason.to_string());
                    return Err(match held {
                        Some(function) if !own => SwapError::Held {
                            function: shown(function),
                            holder,
                            why,
                        },
                        _ => SwapError::Stays {
                            function: holder,
                            why,
                        },
                    });
                }
            }
        }
        self.check_apart(members)?;
        self.lead_all(led)
    }

    /// Refuses functions that share their native code with others.
    fn check_apart(&self, members: &[Arc<Function>]) -> Result<(), SwapError> {
        let entry = |function: &Arc<Function>| function.entry();
        let functions = self.functions();
        for member in members {
            let own = entry(member);
            let is_same =
                |it: &&Arc<Function>| it.chosen.name != member.chosen.name && entry(it) == own;
            let mut others = functions.iter().filter(|_| own.is_some());
            let other = others.find(is_same).map(|it| &it.chosen.name);
            if let Some(other) = member.chosen.merged.as_ref().or(other) {
                return Err(SwapError::Merged {
                    function: stem(&member.chosen.name).to_owned(),
                    other: stem(other).to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Redirects every call of functions to stubs, for as long as the returned value is kept.
    pub(crate) fn lead_all(&self, functions: Vec<Arc<Function>>) -> Result<Led, SwapError> {
        let led = Led::new(functions);
        for function in led.functions() {
            if function.chosen.rests.is_some() {
                self.dylib.pin(&function.chosen.name, None)?;
            }
            self.lead(function).map_err(|cause| SwapError::Stays {
                function: stem(&function.chosen.name).to_owned(),
                why: format!("cannot be led away from ({cause})"),
            })?;
        }
        Ok(led)
    }
}

/// Refuses a question whose client went away while others had the turn.
fn still_wanted(given_up: &impl Fn() -> bool) -> Result<(), SwapError> {
    match given_up() {
        true => Err(SwapError::Session(ReplaceError::Withdrawn.into())),
        false => Ok(()),
    }
}

/// A file that was compared, with its names bound to the program's definitions.
#[derive(Default)]
struct Renewed {
    /// The hashes of both versions were made by the same method.
    is_comparable: bool,
    meant: Meant,
    bitcode: Vec<u8>,
    versions: Versions,
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
