//! One run as plain data.
//!
//! Invariants of a recording that came out of [`crate::Recorder::finish`]:
//! - Times are nanoseconds since the run began; no span ends before it starts.
//! - Periods are sorted and do not overlap.
//! - Functions are sorted by samples, then by compile time, most first; a function
//!   has at most one version that is [`State::Published`].
//! - [`Totals`] count everything, including items that did not fit into the lists.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use uruk_base::{FunctionId, Nanos, Tier, VersionId};

use crate::limits::Omitted;

/// The thread of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A compile worker, numbered from 0.
    Worker(u32),
    /// A thread of the program, by its kernel id.
    Thread(u32),
}

/// The program of a run, its machine and its settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The program, as named on the command line.
    pub program: String,
    /// The program's own arguments.
    pub args: Vec<String>,
    /// The runtime's version.
    pub uruk: String,
    /// LLVM's version.
    pub llvm: String,
    /// The processor's name, as LLVM reports it.
    pub processor: String,
    /// Limit of compile workers.
    pub jobs: u32,
    /// The allowed tiers: `auto`, or a number.
    pub tiers: String,
    /// Wall-clock start, milliseconds since 1970 in UTC.
    pub started_unix_ms: u64,
}

/// The source of samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sampling {
    /// The source in use; none if there were no samples at all.
    pub source: Option<String>,
    /// The sources that were tried before, each with the reason for its rejection.
    pub rejected: Vec<(String, String)>,
}

/// The compile of one version, including emission and linking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compile {
    /// The compiled function.
    pub function: FunctionId,
    /// The resulting version.
    pub version: VersionId,
    /// The tier.
    pub tier: Tier,
    /// Whether it is a continuation of a loop of another function, whose costs include it.
    pub continues: bool,
    /// The compiling thread.
    pub place: Place,
    /// Time from the request to the start.
    pub waited: Nanos,
    /// When work began.
    pub start: Nanos,
    /// When the code was ready to be published.
    pub end: Nanos,
    /// Size of the IR before optimisation.
    pub instructions: u32,
    /// Size of the machine code with its data.
    pub code_bytes: u64,
}

/// A link of a version (inside its compile), or of an image's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The function, unless it is data.
    pub function: Option<FunctionId>,
    /// The linking thread.
    pub place: Place,
    /// Start of linking.
    pub start: Nanos,
    /// End of linking.
    pub end: Nanos,
}

/// The reason of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupKind {
    /// A request for an address by name.
    Symbol,
    /// A thread called a function without code, and waited for its compile.
    FirstCall,
}

/// A lookup, from the request to the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lookup {
    /// The symbol.
    pub name: String,
    /// The reason.
    pub kind: LookupKind,
    /// The requesting thread.
    pub place: Place,
    /// Time of the request.
    pub start: Nanos,
    /// Time of the answer.
    pub end: Nanos,
}

/// An event at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its time.
    pub time: Nanos,
    /// Its kind.
    pub kind: EventKind,
}

/// Functions whose bodies were exchanged, all at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// The replacement's number; its rollback has the same.
    pub number: u64,
    /// Functions with other bodies.
    pub functions: Vec<String>,
    /// Functions that are new.
    pub added: Vec<String>,
    /// Functions that were recompiled along with them.
    pub dependents: Vec<String>,
    /// Number of functions of any kind that are not named above, because there were too many.
    pub unnamed: u64,
    /// The kind of instant, in words.
    pub level: String,
    /// Time from the request until all functions were exchanged.
    pub took: Nanos,
    /// Time during which no call of the functions could begin.
    pub closed: Nanos,
}

impl Exchange {
    /// The number of affected functions, including unnamed ones.
    pub fn reached(&self) -> u64 {
        let named = self.functions.len() + self.added.len() + self.dependents.len();
        named as u64 + self.unnamed
    }
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum EventKind {
    /// A version was stored in a function's slot.
    Published {
        /// The function.
        function: FunctionId,
        /// The version that is published now.
        version: VersionId,
        /// The tier of the version published before; none at a first call.
        from: Option<Tier>,
        /// The tier of the version published now.
        to: Tier,
    },
    /// A compile failed; the published version stays.
    Failed {
        /// The function.
        function: FunctionId,
        /// The tier.
        tier: Tier,
        /// The message of the compiler or the linker.
        reason: String,
    },
    /// A compile was finished, but its result was discarded.
    Dropped {
        /// The function.
        function: FunctionId,
        /// The tier of the result, if it is known.
        tier: Option<Tier>,
        /// The reason.
        reason: String,
    },
    /// Functions were replaced, by hand.
    Replaced(Exchange),
    /// A replacement was rolled back.
    RolledBack(Exchange),
    /// A decision of the controller, or another note.
    Policy {
        /// The function it concerns, if any.
        function: Option<FunctionId>,
        /// The decision, in words.
        text: String,
    },
}

impl EventKind {
    /// The exchange, and whether it is a rollback, if the event is one.
    pub fn exchange(&self) -> Option<(&Exchange, bool)> {
        match self {
            EventKind::Replaced(exchange) => Some((exchange, false)),
            EventKind::RolledBack(exchange) => Some((exchange, true)),
            _ => None,
        }
    }
}

/// Samples of one period of time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Period {
    /// Its start.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// Samples in code outside of functions, at tiers 1, 2 and 3, and in native code.
    pub samples: [u64; Tier::RANKS],
    /// Samples of these in versions that were still published when the run ended.
    pub settled: u64,
    /// Samples that the source lost.
    pub lost: u64,
    /// Requested samples per second; the last setting of the period.
    pub rate_hz: f64,
    /// Measured cost of sampling until then, as a share of the program's CPU time until then.
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

/// The state of a version in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Compiled, and not published yet.
    Ready,
    /// In the slot when the run ended.
    Published {
        /// The time of publication.
        at: Nanos,
    },
    /// Was in the slot; another version is now.
    Retired {
        /// The time of its last publication.
        at: Nanos,
        /// The time of its replacement.
        until: Nanos,
    },
    /// Never published: the function had changed, or the result came too late.
    Dropped {
        /// The time of the decision.
        at: Nanos,
    },
}

/// One compiled body of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Its id.
    pub id: VersionId,
    /// Its tier.
    pub tier: Tier,
    /// Its state.
    pub state: State,
    /// Time to compile and link it.
    pub compile: Nanos,
    /// Size of the IR before optimisation.
    pub instructions: u32,
    /// Size of the machine code with its data.
    pub code_bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Its disassembly; only for the hottest.
    pub disassembly: Option<String>,
}

/// The result of a compile variant, which was compared with the running version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The tier.
    pub tier: Tier,
    /// The variant, in words.
    pub words: String,
    /// The result, in words.
    pub verdict: String,
    /// Its relative speed: lower bound, estimate, upper bound.
    pub ratio: [f64; 3],
    /// Pairs of slices that were measured.
    pub pairs: u32,
    /// Whether it runs from then on.
    pub stays: bool,
}

/// One function of the program that was compiled, or whose compile failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its id.
    pub id: FunctionId,
    /// Its name, shortened if very long.
    pub name: String,
    /// Counted calls (only code with counters counts); none without a report.
    pub entries: Option<u64>,
    /// Samples in all its versions.
    pub samples: u64,
    /// Compiles that failed.
    pub failures: u32,
    /// Whether it is a continuation of another function's loop; the program does not define it.
    pub continues: bool,
    /// Oldest first.
    pub versions: Vec<Version>,
    /// Compile variants, in the order of their trials.
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

/// Sums over the whole run, including items that did not fit into the lists.
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
    /// Results that were discarded.
    pub dropped: u64,
    /// Samples in code outside of functions, at tiers 1, 2 and 3, and in native code.
    pub samples: [u64; Tier::RANKS],
    /// Samples that the source lost.
    pub lost: u64,
    /// Most threads that could not be sampled at the same time.
    pub uncovered: u64,
}

/// One run, from start to end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The program and its settings.
    pub run: Run,
    /// The source of samples.
    pub sampling: Sampling,
    /// Its wall time.
    pub wall: Nanos,
    /// CPU time of the whole process, compile workers included.
    pub cpu: Nanos,
    /// The exit status, if the program ended by itself.
    pub exit: Option<i32>,
    /// Functions the program defines, compiled or not.
    pub defined: u64,
    /// Lookups, in the order of their reports.
    pub lookups: Vec<Lookup>,
    /// Compiles, in the order of their reports.
    pub compiles: Vec<Compile>,
    /// Links, in the order of their reports.
    pub links: Vec<Link>,
    /// Events, in the order of time.
    pub events: Vec<Event>,
    /// Samples over time.
    pub periods: Vec<Period>,
    /// The functions that were compiled, the hottest first.
    pub functions: Vec<Function>,
    /// Sums over the whole run.
    pub totals: Totals,
    /// Counts of omitted items.
    pub omitted: Omitted,
}

/// Names by function: a search of the recording for each name would be slow.
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
