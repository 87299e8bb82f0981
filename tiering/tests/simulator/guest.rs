//! The simulated program's side of the machine: the running tier of each function, and the counters
//! and samples since the last poll.

use std::collections::BTreeMap;
use std::sync::Arc;

use uruk_tiering::stream::Input;
use uruk_tiering::{Facts, FirstCode, FunctionId, Nanos, Tier, VersionId, VersionIds};

use super::Truth;

/// The running code of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) version: VersionId,
    pub(super) tier: Tier,
    pub(super) counters: bool,
    pub(super) facts: Facts,
}

/// The environment of a [`Workload`](super::Workload).
#[derive(Debug)]
pub struct Guest {
    ids: Arc<VersionIds>,
    truth: Truth,
    pub(super) bodies: BTreeMap<FunctionId, Body>,
    /// The code that ran before the present body.
    before: BTreeMap<FunctionId, Body>,
    /// Inputs with times of their own.
    pub(super) inputs: Vec<(Nanos, Input)>,
    counts: BTreeMap<FunctionId, (u64, u64)>,
    samples: BTreeMap<(FunctionId, VersionId), (u32, Nanos)>,
    /// Time that first compiles took.
    pub(super) first_time: Nanos,
}

impl Guest {
    pub(super) fn new(ids: Arc<VersionIds>, truth: Truth) -> Guest {
        Guest {
            ids,
            truth,
            bodies: BTreeMap::new(),
            before: BTreeMap::new(),
            inputs: Vec::new(),
            counts: BTreeMap::new(),
            samples: BTreeMap::new(),
            first_time: Nanos::ZERO,
        }
    }

    /// The tier that a function runs at; `None` before its first call.
    pub fn tier(&self, function: FunctionId) -> Option<Tier> {
        self.bodies.get(&function).map(|body| body.tier)
    }

    /// Compiles a function for its first call, at `now`. Returns the time that it takes.
    pub fn first_call(&mut self, now: Nanos, function: FunctionId, facts: Facts) -> Nanos {
        let tier = Tier::Baseline;
        let compile = self.truth.compile(tier, &facts);
        let first = FirstCode {
            version: self.ids.next(),
            tier,
            facts,
            compile,
            counters: true,
        };
        self.install(now + compile, function, first);
        compile
    }

    /// Installs first code that a recorded stream reports at `now`.
    pub(super) fn install(&mut self, now: Nanos, function: FunctionId, first: FirstCode) {
        self.first_time = self.first_time + first.compile;
        self.bodies.insert(
            function,
            Body {
                version: first.version,
                tier: first.tier,
                counters: first.counters,
                facts: first.facts,
            },
        );
        self.inputs.push((now, Input::Compiled(function, first)));
    }

    /// Publishes other code of a function.
    pub(super) fn publish(
        &mut self,
        function: FunctionId,
        version: VersionId,
        tier: Tier,
        counters: bool,
    ) {
        let old = self.bodies.get(&function).copied();
        let body = Body {
            version,
            tier,
            counters,
            facts: old.map_or(Facts::default(), |old| old.facts),
        };
        self.bodies.insert(function, body);
        self.before.extend(old.map(|old| (function, old)));
    }

    /// Goes back to the code before `version`, if `version` is running. Returns that code.
    pub(super) fn revert(&mut self, function: FunctionId, version: VersionId) -> Option<Body> {
        let running = self.bodies.get_mut(&function)?;
        if running.version != version {
            return None;
        }
        let before = self.before.remove(&function)?;
        *running = before;
        Some(before)
    }

    /// The number of a first version.
    pub(super) fn next_version(&self) -> VersionId {
        self.ids.next()
    }

    /// Counts entries and, at tier 1, back edges, if the code has counters.
    pub fn count(&mut self, function: FunctionId, entries: u64, loops: u64) {
        let body = self.bodies.get(&function);
        let counted = body.is_some_and(|body| body.counters);
        let loops = match body.map(|body| body.tier) {
            Some(Tier::Baseline) => loops,
            _ => 0,
        };
        if counted && entries + loops > 0 {
            let counts = self.counts.entry(function).or_default();
            counts.0 += entries;
            counts.1 += loops;
        }
    }

    /// Takes samples of the running version of a function.
    pub fn sample(&mut self, function: FunctionId, samples: u32, time: Nanos) {
        if let Some(body) = self.bodies.get(&function)
            && samples > 0
        {
            let entry = self.samples.entry((function, body.version)).or_default();
            entry.0 += samples;
            entry.1 = entry.1 + time;
        }
    }

    /// Adds an input for the controller with a time of its own.
    pub fn tell(&mut self, now: Nanos, input: Input) {
        self.inputs.push((now, input));
    }

    /// The inputs of a poll at `now`: samples first.
    pub(super) fn poll(&mut self) -> Vec<Input> {
        let samples = std::mem::take(&mut self.samples).into_iter();
        let samples = samples.map(|((function, version), (count, time))| {
            Input::Samples(function, version, count, time)
        });
        let counts = std::mem::take(&mut self.counts).into_iter();
        let counts =
            counts.map(|(function, (entries, loops))| Input::Counters(function, entries, loops));
        samples.chain(counts).collect()
    }
}
