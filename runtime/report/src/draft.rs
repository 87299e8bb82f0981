//! A recording under construction: the data under the recorder's lock.
//!
//! Invariants:
//! - Times become times of the run here, and spans never end before they start; lists and texts are
//!   cut to their limits here and nowhere else.
//! - Totals are counted before data is omitted.
//! - At most one version of a function is published: a publication retires the other.

use std::collections::HashMap;

use crate::limits::{Limits, without_end, without_middle};
use crate::recorder::{Drain, Ending};
use crate::recording::{
    Compile, Event, EventKind, Exchange, Function, FunctionId, Link, Lookup, Nanos, Recording,
    State, Tier, Variant, Version, VersionId,
};
use crate::timeline::Timeline;

/// Sort key: the hottest first, then the most compiled, then by number.
fn heat(function: &Function) -> impl Ord + use<> {
    let hot = std::cmp::Reverse((function.samples, function.compile()));
    (hot, function.id)
}

/// A recording under construction.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) recording: Recording,
    origin: Nanos,
    limits: Limits,
    timeline: Timeline,
    /// Index into `recording.functions`.
    functions: HashMap<FunctionId, usize>,
    /// Index into `recording.functions`, and into that function's versions.
    versions: HashMap<VersionId, (usize, usize)>,
    /// Bytes of disassembly so far.
    listings: usize,
}

/// Appends to the list; if it is full, counts an omission.
fn keep<T>(list: &mut Vec<T>, limit: usize, omitted: &mut u64, item: T) {
    if list.len() < limit {
        list.push(item);
    } else {
        *omitted += 1;
    }
}

impl Draft {
    pub(crate) fn new(recording: Recording, origin: Nanos, limits: Limits) -> Draft {
        Draft {
            recording,
            origin,
            limits,
            timeline: Timeline::default(),
            functions: HashMap::new(),
            versions: HashMap::new(),
            listings: 0,
        }
    }

    /// Converts the caller's time to time of the run.
    fn at(&self, time: Nanos) -> Nanos {
        time.since(self.origin)
    }

    /// A span in times of the run, whose end is not before its start.
    fn span(&self, start: Nanos, end: Nanos) -> (Nanos, Nanos) {
        let start = self.at(start);
        (start, self.at(end).max(start))
    }

    fn short(&self, text: &str) -> String {
        without_end(text, self.limits.text_bytes).0.to_owned()
    }

    fn event(&mut self, time: Nanos, kind: EventKind) {
        let time = self.at(time);
        let record = &mut self.recording;
        let omitted = &mut record.omitted.events;
        keep(
            &mut record.events,
            self.limits.events,
            omitted,
            Event { time, kind },
        );
    }

    fn function(&mut self, id: FunctionId) -> Option<&mut Function> {
        let index = *self.functions.get(&id)?;
        Some(&mut self.recording.functions[index])
    }

    fn version(&mut self, id: VersionId) -> Option<&mut Version> {
        let (function, version) = *self.versions.get(&id)?;
        Some(&mut self.recording.functions[function].versions[version])
    }

    pub(crate) fn looked_up(&mut self, lookup: &Lookup) {
        let (start, end) = self.span(lookup.start, lookup.end);
        let lookup = Lookup {
            name: without_middle(&lookup.name, self.limits.name_bytes),
            start,
            end,
            ..*lookup
        };
        let record = &mut self.recording;
        let omitted = &mut record.omitted.lookups;
        keep(&mut record.lookups, self.limits.spans, omitted, lookup);
    }

    pub(crate) fn linked(&mut self, link: &Link) {
        let (start, end) = self.span(link.start, link.end);
        let link = Link {
            start,
            end,
            ..*link
        };
        let record = &mut self.recording;
        let omitted = &mut record.omitted.links;
        keep(&mut record.links, self.limits.spans, omitted, link);
    }

    pub(crate) fn compiled(&mut self, name: &str, compile: &Compile) {
        let (start, end) = self.span(compile.start, compile.end);
        let tier = compile.tier.rank();
        let totals = &mut self.recording.totals;
        totals.compiled[tier] += 1;
        totals.compile[tier] = totals.compile[tier] + end.since(start);
        totals.code_bytes[tier] += compile.code_bytes;
        let function = self.add_version(
            name,
            compile.function,
            Version {
                id: compile.version,
                tier: compile.tier,
                state: State::Ready,
                compile: end.since(start),
                instructions: compile.instructions,
                code_bytes: compile.code_bytes,
                samples: 0,
                disassembly: None,
            },
        );
        if let Some(function) = function {
            function.continues = compile.continues;
        }
        let compile = Compile {
            start,
            end,
            ..*compile
        };
        let record = &mut self.recording;
        let omitted = &mut record.omitted.compiles;
        keep(&mut record.compiles, self.limits.spans, omitted, compile);
    }

    /// Adds native code as a version of a function.
    pub(crate) fn adopted(&mut self, name: &str, function: FunctionId, id: VersionId, bytes: u64) {
        let version = Version {
            id,
            tier: Tier::Native,
            state: State::Ready,
            compile: Nanos(0),
            instructions: 0,
            code_bytes: bytes,
            samples: 0,
            disassembly: None,
        };
        self.recording.totals.code_bytes[Tier::Native.rank()] += bytes;
        self.add_version(name, function, version);
    }

    /// Adds a version to its function, if there is room for both.
    fn add_version(
        &mut self,
        name: &str,
        id: FunctionId,
        version: Version,
    ) -> Option<&mut Function> {
        let is_full = self.versions.len() >= self.limits.functions;
        let index = if is_full { None } else { self.index(name, id) };
        let Some(index) = index else {
            self.recording.omitted.versions += 1;
            return None;
        };
        let function = &mut self.recording.functions[index];
        let place = (index, function.versions.len());
        self.versions.insert(version.id, place);
        function.versions.push(version);
        Some(function)
    }

    /// The index of the function in the table; adds the function if it fits.
    fn index(&mut self, name: &str, id: FunctionId) -> Option<usize> {
        if let Some(index) = self.functions.get(&id) {
            return Some(*index);
        }
        let functions = &mut self.recording.functions;
        if functions.len() >= self.limits.functions {
            return None;
        }
        self.functions.insert(id, functions.len());
        functions.push(Function {
            id,
            name: without_middle(name, self.limits.name_bytes),
            entries: None,
            samples: 0,
            failures: 0,
            continues: false,
            versions: Vec::new(),
            variants: Vec::new(),
        });
        Some(functions.len() - 1)
    }

    pub(crate) fn published(&mut self, time: Nanos, id: FunctionId, version: VersionId, to: Tier) {
        let now = self.at(time);
        let from = self.function(id).and_then(|function| retire(function, now));
        if let Some(version) = self.version(version) {
            version.state = State::Published { at: now };
        }
        let kind = EventKind::Published {
            function: id,
            version,
            from,
            to,
        };
        self.event(time, kind);
    }

    pub(crate) fn failed(
        &mut self,
        time: Nanos,
        name: &str,
        id: FunctionId,
        tier: Tier,
        reason: &str,
    ) {
        self.recording.totals.failed += 1;
        if let Some(index) = self.index(name, id) {
            self.recording.functions[index].failures += 1;
        }
        let kind = EventKind::Failed {
            function: id,
            tier,
            reason: self.short(reason),
        };
        self.event(time, kind);
    }

    pub(crate) fn dropped(
        &mut self,
        time: Nanos,
        id: FunctionId,
        version: VersionId,
        reason: &str,
    ) {
        let at = self.at(time);
        self.recording.totals.dropped += 1;
        let tier = self.version(version).map(|version| {
            version.state = State::Dropped { at };
            version.tier
        });
        let kind = EventKind::Dropped {
            function: id,
            tier,
            reason: self.short(reason),
        };
        self.event(time, kind);
    }

    pub(crate) fn drained(&mut self, drain: &Drain<'_>) {
        let Drain {
            rate_hz,
            overhead,
            queue,
            lost,
            uncovered,
            ..
        } = *drain;
        let now = self.at(drain.time);
        self.timeline.gauge(now, rate_hz, overhead, queue, lost);
        let totals = &mut self.recording.totals;
        totals.lost += lost;
        totals.uncovered = totals.uncovered.max(uncovered);
        for hit in drain.hits {
            let (time, count) = (self.at(hit.time), u64::from(hit.count));
            let limit = self.limits.versions_in_period;
            self.timeline.hit(time, hit.code, count, limit);
            let tier = hit.code.map_or(0, |(_, tier)| tier.rank());
            self.recording.totals.samples[tier] += count;
            let place = hit.code.and_then(|(id, _)| self.versions.get(&id).copied());
            if let Some((function, version)) = place {
                let function = &mut self.recording.functions[function];
                function.samples += count;
                function.versions[version].samples += count;
            }
        }
    }

    pub(crate) fn exchanged(&mut self, time: Nanos, exchange: &Exchange, back: bool) {
        let Limits {
            exchanged,
            name_bytes,
            ..
        } = self.limits;
        let mut unnamed = exchange.unnamed;
        let mut names = |all: &[String]| -> Vec<String> {
            unnamed += all.len().saturating_sub(exchanged) as u64;
            let kept = all.iter().take(exchanged);
            kept.map(|name| without_middle(name, name_bytes)).collect()
        };
        let kept = Exchange {
            functions: names(&exchange.functions),
            added: names(&exchange.added),
            dependents: names(&exchange.dependents),
            unnamed,
            level: self.short(&exchange.level),
            ..*exchange
        };
        let kind = match back {
            true => EventKind::RolledBack(kept),
            false => EventKind::Replaced(kept),
        };
        self.event(time, kind);
    }

    pub(crate) fn noted(&mut self, time: Nanos, function: Option<FunctionId>, text: &str) {
        let text = self.short(text);
        self.event(time, EventKind::Policy { function, text });
    }

    pub(crate) fn tried(&mut self, id: FunctionId, variant: &Variant) {
        let short = Variant {
            words: self.short(&variant.words),
            verdict: self.short(&variant.verdict),
            ..variant.clone()
        };
        let limit = self.limits.variants;
        let Some(&index) = self.functions.get(&id) else {
            self.recording.omitted.variants += 1;
            return;
        };
        let record = &mut self.recording;
        let omitted = &mut record.omitted.variants;
        keep(&mut record.functions[index].variants, limit, omitted, short);
    }

    pub(crate) fn entries(&mut self, id: FunctionId, count: u64) {
        if let Some(function) = self.function(id) {
            function.entries = Some(count);
        }
    }

    pub(crate) fn hottest(&self, functions: usize) -> Vec<(FunctionId, Vec<VersionId>)> {
        let mut sorted: Vec<&Function> = self.recording.functions.iter().collect();
        sorted.sort_by_key(|function| heat(function));
        let versions = |f: &Function| f.versions.iter().map(|version| version.id).collect();
        let first = sorted.into_iter().take(functions);
        first.map(|f| (f.id, versions(f))).collect()
    }

    pub(crate) fn disassembled(&mut self, version: VersionId, text: &str) {
        let room = self.limits.listings_bytes - self.listings;
        let (kept, cut) = without_end(text, self.limits.listing_bytes.min(room));
        let Some(version) = self.version(version) else {
            return;
        };
        if !kept.is_empty() {
            version.disassembly = Some(kept.to_owned());
        }
        self.listings += kept.len();
        self.recording.omitted.listings += u64::from(cut);
    }

    pub(crate) fn finish(self, ending: Ending) -> Recording {
        let wall = self.at(ending.time);
        let mut recording = self.recording;
        let (functions, versions) = (&recording.functions, &self.versions);
        let settled = |id: VersionId| {
            let place = versions.get(&id);
            place.is_some_and(|(function, version)| {
                let state = &functions[*function].versions[*version].state;
                matches!(state, State::Published { .. })
            })
        };
        recording.periods = self.timeline.finish(wall, settled);
        recording.functions.sort_by_key(heat);
        recording.events.sort_by_key(|event| event.time);
        Recording {
            wall,
            cpu: ending.cpu,
            exit: ending.exit,
            defined: ending.defined,
            ..recording
        }
    }
}

/// Retires the published version of `function`; returns its tier.
fn retire(function: &mut Function, now: Nanos) -> Option<Tier> {
    let published = function.versions.iter_mut().find_map(|version| {
        let State::Published { at } = version.state else {
            return None;
        };
        Some((version, at))
    });
    let (version, at) = published?;
    version.state = State::Retired { at, until: now };
    Some(version.tier)
}
