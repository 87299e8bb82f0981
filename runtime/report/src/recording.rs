//! One run as plain data.
//!
//! Invariants of a recording that came out of [`crate::Recorder::finish`]:
//! - Times are nanoseconds since the run began; no span ends before it starts.
//! - Periods are sorted and do not overlap.
//! - Functions are sorted by samples, then by compile time, most first; a function
//!   has at most one version that is [`State::Published`].
//! - [`Totals`] count everything, also what did not fit into the lists.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use uruk_base::{FunctionId, Nanos, Tier, VersionId};

use crate::limits::Omitted;

/// Which thread a span belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A compile worker, numbered from 0.
    Worker(u32),
    /// A thread of the program, by its kernel id.
    Thread(u32),
}

/// What ran, where, and how it was set up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The program, as it was named on the command line.
    pub program: String,
    /// The program's own arguments.
    pub args: Vec<String>,
    /// The runtime's version.
    pub uruk: String,
    /// LLVM's version.
    pub llvm: String,
    /// The processor's name, as the compiler knows it.
    pub processor: String,
    /// Compile workers, at most.
    pub jobs: u32,
    /// Which tiers were allowed: `auto`, or a number.
    pub tiers: String,
    /// Wall-clock start, milliseconds since 1970 in UTC.
    pub started_unix_ms: u64,
}

/// Where samples came from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sampling {
    /// The source that was used; none if there were no samples at all.
    pub source: Option<String>,
    /// The sources that were tried before, each with the reason it was not used.
    pub rejected: Vec<(String, String)>,
}

/// A compile of one version, emission and linking together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compile {
    /// What was compiled.
    pub function: FunctionId,
    /// The version that came out.
    pub version: VersionId,
    /// At which tier.
    pub tier: Tier,
    /// Whether it goes on with a loop of another function, as part of which it counts.
    pub continues: bool,
    /// Who compiled.
    pub place: Place,
    /// From the request to the start.
    pub waited: Nanos,
    /// When work began.
    pub start: Nanos,
    /// When the code was ready to be published.
    pub end: Nanos,
    /// Size of the IR before optimisation.
    pub instructions: u32,
    /// Size of the machine code and what belongs to it.
    pub code_bytes: u64,
}

/// A link of something: a version (inside its compile), or an image's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The function, unless it is data.
    pub function: Option<FunctionId>,
    /// Who linked.
    pub place: Place,
    /// When linking began.
    pub start: Nanos,
    /// When it was done.
    pub end: Nanos,
}

/// Why something was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupKind {
    /// Someone asked for an address by name.
    Symbol,
    /// A thread called a function that had no code yet, and waited for it.
    FirstCall,
}

/// A lookup, from the question to the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lookup {
    /// The symbol.
    pub name: String,
    /// Why.
    pub kind: LookupKind,
    /// Who asked.
    pub place: Place,
    /// When it was asked.
    pub start: Nanos,
    /// When it was answered.
    pub end: Nanos,
}

/// Something that happened at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub time: Nanos,
    /// What.
    pub kind: EventKind,
}

/// Functions that got other bodies, all at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// The replacement's number; its rollback has the same.
    pub number: u64,
    /// Functions with other bodies.
    pub functions: Vec<String>,
    /// Functions that are new.
    pub added: Vec<String>,
    /// Functions that were compiled again along with them.
    pub dependents: Vec<String>,
    /// Functions of any kind that are not named above, because there were too many.
    pub unnamed: u64,
    /// At which instant, in words.
    pub level: String,
    /// From the wish until everything was exchanged.
    pub took: Nanos,
    /// How long no call of the functions could begin.
    pub closed: Nanos,
}

impl Exchange {
    /// How many functions it reached, those included that are not named.
    pub fn reached(&self) -> u64 {
        let named = self.functions.len() + self.added.len() + self.dependents.len();
        named as u64 + self.unnamed
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum EventKind {
    /// A version went into a function's slot.
    Published {
        /// The function.
        function: FunctionId,
        /// What is published now.
        version: VersionId,
        /// The tier of what was published before; none at a first call.
        from: Option<Tier>,
        /// The tier of what is published now.
        to: Tier,
    },
    /// A compile failed; what was published stays.
    Failed {
        /// The function.
        function: FunctionId,
        /// At which tier.
        tier: Tier,
        /// What the compiler or the linker said.
        reason: String,
    },
    /// A compile was finished, and its result not used.
    Dropped {
        /// The function.
        function: FunctionId,
        /// The tier of the result, if it is known.
        tier: Option<Tier>,
        /// Why it was not used.
        reason: String,
    },
    /// Functions were replaced, by hand.
    Replaced(Exchange),
    /// What ran before a replacement runs again.
    RolledBack(Exchange),
    /// A decision of the controller, or anything else of note.
    Policy {
        /// The function it concerns, if it is about one.
        function: Option<FunctionId>,
        /// What was decided, in words.
        text: String,
    },
}

impl EventKind {
    /// The exchange, and whether it went back, if it is one.
    pub fn exchange(&self) -> Option<(&Exchange, bool)> {
        match self {
            EventKind::Replaced(exchange) => Some((exchange, false)),
            EventKind::RolledBack(exchange) => Some((exchange, true)),
            _ => None,
        }
    }
}

/// What was sampled in one stretch of time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Period {
    /// Where it begins.
    pub start: Nanos,
    /// Where it ends.
    pub end: Nanos,
    /// Samples in code that is no function's, at tiers 1, 2 and 3, and in native code.
    pub samples: [u64; Tier::RANKS],
    /// Of those, samples in versions that were still published when the run ended.
    pub settled: u64,
    /// Samples the source lost.
    pub lost: u64,
    /// Samples per second that were asked for; the last setting of the period.
    pub rate_hz: f64,
    /// Measured cost of sampling until then, as a part of the program's CPU time until then.
    pub overhead: f64,
    /// Longest compile queue.
    pub queue: u64,
}

impl Period {
    /// Samples in the runtime's code.
    pub fn own(&self) -> u64 {
        self.samples[1..].iter().sum()
    }
}

/// Where a version is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Compiled, and not published yet.
    Ready,
    /// In the slot when the run ended.
    Published {
        /// Since when.
        at: Nanos,
    },
    /// Was in the slot, and another is now.
    Retired {
        /// When it had been published, the last time.
        at: Nanos,
        /// When it was replaced.
        until: Nanos,
    },
    /// Never published: the function had changed, or the result came too late.
    Dropped {
        /// When that was found.
        at: Nanos,
    },
}

/// One compiled body of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Which.
    pub id: VersionId,
    /// How it was compiled.
    pub tier: Tier,
    /// Where it is in its life.
    pub state: State,
    /// How long it took to compile and link.
    pub compile: Nanos,
    /// Size of the IR before optimisation.
    pub instructions: u32,
    /// Size of the machine code and what belongs to it.
    pub code_bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Its machine code as text; only for the hottest.
    pub disassembly: Option<String>,
}

/// What came of another way to compile a function, which was compared with what ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// At which tier.
    pub tier: Tier,
    /// In which way, in words.
    pub words: String,
    /// What was found, in words.
    pub verdict: String,
    /// How many times as fast it was: at least, most likely, at most.
    pub ratio: [f64; 3],
    /// Pairs of slices that were measured.
    pub pairs: u32,
    /// Whether it is what runs from then on.
    pub stays: bool,
}

/// One function of the program that was compiled, or should have been.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Which.
    pub id: FunctionId,
    /// Its name, shortened if it was very long.
    pub name: String,
    /// Calls that were counted (only code with counters counts); none if nobody told.
    pub entries: Option<u64>,
    /// Samples in all its versions.
    pub samples: u64,
    /// Compiles that failed.
    pub failures: u32,
    /// Whether it goes on with a loop of another one; it is none that the program defines.
    pub continues: bool,
    /// Oldest first.
    pub versions: Vec<Version>,
    /// Other ways to compile it, in the order they were tried.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

impl Function {
    /// The version in the slot when the run ended.
    pub fn published(&self) -> Option<&Version> {
        let is_published = |version: &&Version| matches!(version.state, State::Published { .. });
        self.versions.iter().find(is_published)
    }

    /// Time spent on compiling all its versions.
    pub fn compile(&self) -> Nanos {
        self.versions.iter().map(|version| version.compile).sum()
    }
}

/// Sums over the whole run, whatever did not fit elsewhere included.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Compiles by tier; index 0 stays zero, as in the other counts by tier.
    pub compiled: [u64; Tier::RANKS],
    /// Time of those compiles by tier, summed over workers.
    pub compile: [Nanos; Tier::RANKS],
    /// Machine code by tier.
    pub code_bytes: [u64; Tier::RANKS],
    /// Compiles that failed.
    pub failed: u64,
    /// Results that were not used.
    pub dropped: u64,
    /// Samples in code that is no function's, at tiers 1, 2 and 3, and in native code.
    pub samples: [u64; Tier::RANKS],
    /// Samples the source lost.
    pub lost: u64,
    /// Threads that could not be sampled at the same time, at most.
    pub uncovered: u64,
}

/// One run, from start to end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recording {
    /// What ran.
    pub run: Run,
    /// Where samples came from.
    pub sampling: Sampling,
    /// How long it took.
    pub wall: Nanos,
    /// CPU time of the whole process, compile workers included.
    pub cpu: Nanos,
    /// The exit status, if the program came to an end by itself.
    pub exit: Option<i32>,
    /// Functions the program defines, compiled or not.
    pub defined: u64,
    /// Lookups, in the order they were told.
    pub lookups: Vec<Lookup>,
    /// Compiles, in the order they were told.
    pub compiles: Vec<Compile>,
    /// Links, in the order they were told.
    pub links: Vec<Link>,
    /// Events, in the order of time.
    pub events: Vec<Event>,
    /// Samples over time.
    pub periods: Vec<Period>,
    /// The functions that were compiled, the hottest first.
    pub functions: Vec<Function>,
    /// Sums over the whole run.
    pub totals: Totals,
    /// What did not fit.
    pub omitted: Omitted,
}

/// Names by function: looking many of them up in a recording would be slow.
pub(crate) struct Names<'a>(HashMap<FunctionId, &'a str>);

impl<'a> Names<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Names<'a> {
        let named = recording.functions.iter().map(|f| (f.id, f.name.as_str()));
        Names(named.collect())
    }

    /// The name, or the function's number if its name did not fit.
    pub(crate) fn get(&self, id: FunctionId) -> Cow<'a, str> {
        let known = self.0.get(&id).map(|name| Cow::Borrowed(*name));
        known.unwrap_or_else(|| Cow::Owned(format!("function {}", id.0)))
    }
}
