//! Native callers that a new version of what they call does not fit.
//!
//! Threads may be in native code for as long as they like: a `main` that loops is never left. What it
//! calls is redirected at its entry, and reaches new code at once. That is right unless the compiler
//! made the caller for the body that the callee had ([`uruk::rebound::outdated`]): then the exchange
//! waits until no thread is in native code that is concerned, or is refused.
//!
//! Where the new bodies only have instructions added that change nothing for callers
//! ([`uruk::rebound::only_added`]), one question remains: whether calls may be missing natively, as the
//! old body had no effect. Its native code tells that ([`acting`](crate::acting)).
//!
//! Only functions that native code of the file calls by their address count. The compiler knows
//! nothing of what an indirect call reaches, and callers of other files know its type only.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uruk::rebound::{Additions, Outdated};
use uruk::{Activation, Error, Level, ReplaceError};

use crate::acting::Acting;
use crate::choose::stem;
use crate::meaning::Versions;
use crate::program::loaded;
use crate::session::Live;
use crate::swap::{Exchange, SwapError};

/// How long an exchange that was to take place at once may hold calls up.
const WAIT: Duration = Duration::from_millis(100);

/// Native callers that are not right for an exchange.
pub(crate) struct Unfit {
    callers: Vec<String>,
    too_large: bool,
}

impl Unfit {
    /// How the exchange is made, so that no thread is in one of them.
    pub(crate) fn exchange(&self, asked: Exchange) -> Exchange {
        let all_fit = self.callers.is_empty() && !self.too_large;
        match asked.level {
            Level::Immediate if !all_fit => Exchange {
                level: Level::Quiescent { wait: WAIT },
                at_loops: false,
                ..asked
            },
            _ => asked,
        }
    }

    /// The error of an exchange that was asked to take place at once, and had to wait.
    pub(crate) fn explain(&self, asked: Exchange, cause: Error) -> SwapError {
        let running = match &cause {
            Error::Replace(inner) => match &**inner {
                ReplaceError::StillRunning { activations } => activations.iter().map(told),
                _ => return SwapError::Session(cause),
            },
            _ => return SwapError::Session(cause),
        };
        let running = running.collect::<Vec<_>>().join("; ");
        if self.exchange(asked) == asked {
            return SwapError::Session(cause);
        }
        let named = self.callers.iter().map(|name| format!("`{name}`"));
        let callers = match self.too_large {
            true => {
                "more than counters and lines is new, the file is too large to tell whether native callers fit the new bodies".into()
            }
            false => {
                let all = named.collect::<Vec<_>>().join(", ");
                format!("native code of {all} was made for the old bodies of what it calls")
            }
        };
        SwapError::Callers { callers, running }
    }
}

/// A thread, and the functions that it is in.
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
    /// Looks which native callers fit a file that replaces a module.
    pub(crate) fn unfit(
        &self,
        name: &str,
        number: usize,
        new: Vec<u8>,
        versions: &Versions,
        exchange: Exchange,
    ) -> Result<Unfit, Error> {
        let mut unfit = Unfit {
            callers: Vec::new(),
            too_large: false,
        };
        if exchange.level != Level::Immediate {
            return Ok(unfit);
        }
        let called = self.called(number);
        if called.is_empty() {
            return Ok(unfit);
        }
        if self.only_adds(name, number, &new, versions, &called)? {
            return Ok(unfit);
        }
        if self.large.with(|large| large.contains(&number)) {
            unfit.too_large = true;
            return Ok(unfit);
        }
        let native = self.modules[number].clone();
        match self.jit.outdated(name, native, new, called)? {
            Outdated::Callers(callers) => unfit.callers = callers,
            Outdated::TooLarge { native } => {
                unfit.too_large = true;
                if native {
                    self.large.with(|large| large.insert(number));
                }
            }
        }
        Ok(unfit)
    }

    /// Whether functions of a new file have only instructions added of which their native callers need
    /// not know.
    fn only_adds(
        &self,
        name: &str,
        number: usize,
        new: &[u8],
        versions: &Versions,
        called: &HashSet<String>,
    ) -> Result<bool, Error> {
        let native = self.contents.with(|all| all.get(&number).cloned());
        let Some(native) = native else {
            return Ok(false);
        };
        // Native callers were made for the native bodies, whatever was exchanged since.
        let bodies = versions.new.functions.iter();
        let changed = bodies.filter(|(name, body)| native.functions.get(*name) != Some(body));
        let changed: HashSet<String> = changed.map(|(name, _)| name.clone()).collect();
        let (before, new) = (Arc::from(&*self.modules[number]), Arc::from(new));
        let Some(additions) = self.jit.only_added(name, before, new, changed)? else {
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

    /// Whether no pointer of the program leads to variables that are added, and the functions that are
    /// called are the C library's.
    fn are_apart(&self, number: usize, additions: &Additions) -> bool {
        let known = &self.known[number];
        let image = &known.program.image;
        let is_apart = |name: &String| {
            // The program may have it in another file.
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

    /// Functions of a module that calls are led away from, and that native code calls by address.
    fn called(&self, number: usize) -> HashSet<String> {
        let image = &self.known[number].program.image;
        let functions = self.functions();
        let led = functions
            .iter()
            .filter(|it| it.module == number && it.is_led());
        let by_entry: HashMap<u64, &str> = led
            .filter_map(|it| Some((it.native()?.0, stem(&it.chosen.name))))
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

/// Targets of whatever looks like a call or a jump with a distance of four bytes.
fn calls(text: &Range<u64>) -> impl Iterator<Item = u64> {
    let (start, size) = (text.start, (text.end - text.start) as usize);
    // SAFETY: text of a file that stays loaded, which is only changed at entries.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
    (start..).zip(bytes.windows(5)).filter_map(|(at, code)| {
        let [opcode, distance @ ..] = code else {
            return None;
        };
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        // A call, a jump, and the second byte of a jump that depends on something.
        let is_call = matches!(opcode, 0xe8 | 0xe9 | 0x80..=0x8f);
        is_call.then(|| (at + 5).wrapping_add_signed(i64::from(distance)))
    })
}
