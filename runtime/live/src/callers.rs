//! Native callers that do not fit a new version of their callee.
//!
//! Threads may stay in native code: a `main` that loops is never left. Its callees are redirected at
//! their entries, so its calls reach new code at once. That is wrong if the compiler made the caller for
//! the callee's old body ([`uruk::live::rebound::outdated`]). Then the exchange waits until no thread is
//! in the native code concerned, or is refused. Such callers are exchanged along, and stay compiled for
//! as long as the new body stays.
//!
//! A quiescent exchange waits for native code that may *hold* a body in any case. Callers that may only
//! rely on a body (`reach`) are checked at either level.
//!
//! New bodies that only add instructions which change nothing for callers
//! ([`uruk::live::rebound::only_added`]) leave one question: calls may be missing natively because the
//! old body had no effect. Its native code tells ([`acting`](crate::acting)).
//!
//! The check covers functions that native code of the file calls by address, and functions all of whose
//! calls it may have left out. Indirect calls are compiled without knowledge of the callee, and callers
//! in other files know only its type.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uruk::live::NativeFiles;
use uruk::live::rebound::{Additions, NativeCallers, Outdated};
use uruk::{Activation, Error, Level, ReplaceError};

use crate::acting::Acting;
use crate::choose::{Fate, stem};
use crate::function::{Function, Led};
use crate::program::loaded;
use crate::session::Live;
use crate::swap::{Exchange, SwapError};
use crate::versions::Versions;

/// Longest time that an exchange asked for as immediate may delay calls.
const WAIT: Duration = Duration::from_millis(100);

/// Native callers that are not right for an exchange.
#[derive(Default)]
pub(crate) struct Unfit {
    callers: Vec<String>,
    /// The callers, or all functions that may be callers.
    functions: Vec<Arc<Function>>,
    too_large: bool,
}

impl Unfit {
    fn is_none(&self) -> bool {
        self.callers.is_empty() && !self.too_large
    }

    /// The exchange to make, so that no thread is in one of these callers.
    pub(crate) fn exchange(&self, asked: Exchange) -> Exchange {
        match asked.level {
            Level::Immediate if !self.is_none() => Exchange {
                level: Level::Quiescent { wait: WAIT },
                osr: false,
                ..asked
            },
            _ => asked,
        }
    }

    /// The error of an exchange that had to wait for these callers, or for other code.
    pub(crate) fn explain(&self, asked: Exchange, cause: Error) -> SwapError {
        let activations = match &cause {
            Error::Replace(inner) => match &**inner {
                ReplaceError::StillRunning { activations } => activations,
                _ => return SwapError::Session(cause),
            },
            _ => return SwapError::Session(cause),
        };
        let is_one = |name: &String| self.functions.iter().any(|it| it.chosen.name == *name);
        let mut names = activations.iter().flat_map(|it| &it.functions);
        let waited = asked.level == Level::Immediate || names.any(is_one);
        if self.is_none() || !waited {
            return SwapError::Session(cause);
        }
        let running = activations.iter().map(told).collect::<Vec<_>>().join("; ");
        let callers = self.told();
        let lasting = activations.iter().any(|it| it.lasting);
        SwapError::Callers {
            callers,
            running,
            lasting,
        }
    }

    fn told(&self) -> String {
        if self.too_large {
            return "more than counters and lines is new, the file is too large to tell whether native callers fit the new bodies".into();
        }
        let named = self.callers.iter().map(|name| format!("`{name}`"));
        let all = named.collect::<Vec<_>>().join(", ");
        format!("native code of {all} was made for the old bodies of what it calls")
    }
}

/// A thread, and the functions on its stack, as text.
fn told(activation: &Activation) -> String {
    let functions = activation.functions.iter().map(|name| stem(name));
    let functions = functions.collect::<Vec<_>>().join(", ");
    match (functions.is_empty(), &activation.why) {
        (true, Some(why)) => format!("thread {} does not answer: {why}", activation.thread),
        (true, None) => format!("thread {} does not answer", activation.thread),
        (false, _) => format!("thread {} is in {functions}", activation.thread),
    }
}

impl Live {
    /// Finds the native callers that do not fit a file that replaces a module.
    pub(crate) fn unfit(
        &self,
        name: &str,
        number: usize,
        new: Vec<u8>,
        versions: &Versions,
        members: &[Arc<Function>],
        exchange: Exchange,
    ) -> Result<Unfit, Error> {
        let mut unfit = Unfit::default();
        let relying = self.relying(number, members);
        if exchange.level != Level::Immediate && relying.is_empty() {
            return Ok(unfit);
        }
        let mut called = self.called(number);
        called.extend(self.relied_on(number));
        if called.is_empty() {
            return Ok(unfit);
        }
        if self.only_adds(name, number, &new, versions, &called)? {
            return Ok(unfit);
        }
        if self.large.with(|large| large.contains(&number)) {
            unfit.too_large = true;
            unfit.functions = relying;
            return Ok(unfit);
        }
        let Some(callers) = self.native_callers(name, number, &called)? else {
            self.large.with(|large| large.insert(number));
            unfit.too_large = true;
            unfit.functions = relying;
            return Ok(unfit);
        };
        let native = self.modules[number].clone();
        match NativeFiles::of(&self.jit).outdated(name, callers, native, new, called)? {
            Outdated::Callers(callers) => {
                unfit.functions = self.functions();
                let is_one = |it: &Arc<Function>| {
                    let name = stem(&it.chosen.name);
                    it.module == number && callers.iter().any(|caller| stem(caller) == name)
                };
                unfit.functions.retain(is_one);
                unfit.callers = callers;
            }
            Outdated::TooLarge => {
                unfit.too_large = true;
                unfit.functions = relying;
            }
        }
        Ok(unfit)
    }

    /// Facts about a module's native code. Those of the latest exchange are cached: the next exchange of
    /// the same functions takes half the time.
    fn native_callers(
        &self,
        name: &str,
        number: usize,
        called: &HashSet<String>,
    ) -> Result<Option<Arc<NativeCallers>>, Error> {
        let known = self.callers.with(|all| {
            let (known, callers) = all.get(&number)?;
            (known == called).then(|| Arc::clone(callers))
        });
        if known.is_some() {
            return Ok(known);
        }
        let native = self.modules[number].clone();
        let found = NativeFiles::of(&self.jit).native_callers(name, native, called.clone())?;
        let found = found.map(Arc::new);
        if let Some(found) = &found {
            let kept = (called.clone(), Arc::clone(found));
            self.callers.with(|all| all.insert(number, kept));
        }
        Ok(found)
    }

    /// Functions of a module whose native code may rely on a body of `members` without holding it.
    fn relying(&self, number: usize, members: &[Arc<Function>]) -> Vec<Arc<Function>> {
        let members: HashSet<&str> = members.iter().map(|it| it.chosen.name.as_str()).collect();
        let mut functions = self.functions();
        functions.retain(|it| {
            let mut relies = it.chosen.relies.iter();
            it.module == number && relies.any(|name| members.contains(name))
        });
        functions
    }

    /// Redirects the entries of native callers that do not fit, and adds these callers, and the
    /// functions that hold them, to the exchange of the `changed` functions. Returns all redirected and
    /// all outdated functions.
    pub(crate) fn lead_from_callers(
        &self,
        led: Led,
        unfit: &Unfit,
        changed: &[String],
    ) -> Result<(Led, Led), SwapError> {
        let names: HashSet<&str> = unfit.functions.iter().map(|f| &*f.chosen.name).collect();
        if names.is_empty() {
            return Ok((led, Led::outdated(Vec::new())));
        }
        let mut outdated = self.functions();
        outdated.retain(|it| {
            let mut held = it.chosen.holds.iter();
            names.contains(&*it.chosen.name) || held.any(|name| names.contains(name))
        });
        for function in &outdated {
            if let Fate::Refused(reason) = &function.chosen.fate {
                return Err(SwapError::Relies {
                    callers: unfit.told(),
                    holder: stem(&function.chosen.name).to_owned(),
                    why: reason.to_string(),
                });
            }
        }
        outdated.retain(|it| it.entry().is_some());
        let more = self.lead_all(outdated.clone())?;
        let led = led.and(more.functions());
        let outdated = Led::outdated(outdated);
        for function in outdated.functions() {
            self.set_relies(function, Some(changed));
        }
        Ok((led, outdated))
    }

    /// Whether functions of a new file only add instructions that their native callers need not know of.
    fn only_adds(
        &self,
        name: &str,
        number: usize,
        new: &[u8],
        versions: &Versions,
        called: &HashSet<String>,
    ) -> Result<bool, Error> {
        let key = (number, versions.new.method);
        let native = self.contents.with(|all| all.get(&key).cloned());
        let Some(native) = native else {
            return Ok(false);
        };
        // Native callers were compiled for the native bodies, not for those of earlier exchanges.
        let bodies = versions.new.functions.iter();
        let changed = bodies.filter(|(name, body)| native.functions.get(*name) != Some(body));
        let changed: HashSet<String> = changed.map(|(name, _)| name.clone()).collect();
        let (before, new) = (Arc::from(&*self.modules[number]), Arc::from(new));
        let Some(additions) = NativeFiles::of(&self.jit).only_added(name, before, new, changed)?
        else {
            return Ok(false);
        };
        if !self.are_apart(number, &additions) {
            return Ok(false);
        }
        let functions = self.functions();
        let own = functions.iter().filter(|it| it.module == number);
        let mut acting = Acting::new(&self.known[number], own, &additions.pure);
        Ok(acting.all(called))
    }

    /// Whether no pointer of the program leads to added variables, and the functions that are called are
    /// the C library's.
    fn are_apart(&self, number: usize, additions: &Additions) -> bool {
        let known = &self.known[number];
        let image = &known.program.image;
        let is_apart = |name: &String| {
            // The program may define it in another file.
            let place = image.symbols.global(name);
            let is_named = place.is_some() || loaded::find(name).is_some();
            let is_pointed_to = place.is_some_and(|place| {
                let bytes = place.address..place.address + place.size.max(1);
                !image.mentions.within(&bytes).is_empty()
            });
            match image.executable {
                true => !is_pointed_to && loaded::find(name).is_none(),
                false => !is_named,
            }
        };
        let mut files = self.programs.iter().map(|it| &it.image.symbols);
        let mut writers = additions.writers.iter();
        additions.shared.iter().all(is_apart)
            && writers.all(|name| files.all(|symbols| symbols.global(name).is_none()))
    }

    /// Redirected functions of a module, and functions on whose bodies their native code may rely. If
    /// all calls of a function without effect were left out, native code does not call it.
    fn relied_on(&self, number: usize) -> HashSet<String> {
        let functions = self.functions();
        let own = || functions.iter().filter(|it| it.module == number);
        let led: HashSet<&str> = own()
            .filter(|it| it.is_led())
            .map(|it| it.chosen.name.as_str())
            .collect();
        let relied = own().flat_map(|it| it.chosen.relies.iter());
        let relied = relied.filter(|name| led.contains(name));
        relied.map(|name| stem(name).to_owned()).collect()
    }

    /// Redirected functions of a module that native code calls by address.
    fn called(&self, number: usize) -> HashSet<String> {
        let image = &self.known[number].program.image;
        let functions = self.functions();
        let led = functions
            .iter()
            .filter(|it| it.module == number && it.is_led());
        let by_entry: HashMap<u64, &str> = led
            .filter_map(|it| Some((it.entry()?, stem(&it.chosen.name))))
            .collect();
        // Libraries call their own functions through tables.
        if !image.executable {
            return by_entry.values().map(|name| (*name).to_owned()).collect();
        }
        let targets = image.text.iter().flat_map(calls);
        let named = targets.filter_map(|target| by_entry.get(&target));
        named.map(|name| (*name).to_owned()).collect()
    }
}

/// Targets of all bytes that look like a call or a jump with a distance of four bytes.
fn calls(text: &Range<u64>) -> impl Iterator<Item = u64> {
    let (start, size) = (text.start, (text.end - text.start) as usize);
    // SAFETY: text of a file that stays loaded, which is only changed at entries.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
    (start..).zip(bytes.windows(5)).filter_map(|(at, code)| {
        let [opcode, distance @ ..] = code else {
            return None;
        };
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        // A call, a jump, and the second byte of a conditional jump.
        let is_call = matches!(opcode, 0xe8 | 0xe9 | 0x80..=0x8f);
        is_call.then(|| (at + 5).wrapping_add_signed(i64::from(distance)))
    })
}
