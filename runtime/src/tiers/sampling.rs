//! Samples: from the profiler's source to the controller and to statistics.
//!
//! Sampling starts once the program has used some processor time: for a short run, opening a source
//! takes too long (milliseconds), and entry counters already find hot functions by then. The
//! controller's thread and the reclaiming thread drain samples. Any thread may pause and resume
//! them, under a lock and a pass of the gate.
//!
//! A pause stops the clock of the drains as well: one that was due in `left` is due in `left` after
//! the pause. Samples from before a pause are drained once it has lasted for `REST_AFTER`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::info;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, Nanos, VersionId};
use uruk_profiler::{Choice, Found, Sampler, Settings, Sizes, Summary};
use uruk_reclaim::Edge;

mod clock;
mod heap;
mod maps;
mod shared;
#[cfg(test)]
mod tests;

use clock::{Clock, Rarer};
use heap::Heap;
use maps::{Maps, untag};
use shared::Shared;

use crate::core::Core;
use crate::events::{Event, Events, Hit};
use crate::fork::{gate, thread, threads};
use crate::host::clock::thread_time;
use crate::host::clock::{nanos, process_time};
use crate::tiers::TierSettings;
use uruk_base::Tiers;

/// Processor time of the process after which sampling starts.
const START_AFTER: Duration = Duration::from_millis(60);

/// Largest number of neighbour pairs, and of threads, that are kept.
const NEIGHBOURS: usize = 1 << 14;

/// Time between two [`Event::Samples`].
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Samples in the same code that were taken within such a time are reported together.
const TOGETHER_NS: u64 = 1_000_000;

/// The sampling state of a session.
pub(crate) struct Sampling {
    choice: Choice,
    sizes: Sizes,
    rates: Settings,
    maps: Maps,
    /// Samples in functions of the session.
    taken: AtomicU64,
    /// The same, with those elsewhere, scaled to the usual rate.
    pub(crate) usual: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    source: Source,
    /// The process is a fork's child since.
    forked: bool,
    clock: Clock,
    /// Factor by which samples are rarer than usual.
    rarer: Rarer,
    told: Duration,
    /// Report all samples at the next drain.
    tell_now: bool,
    /// Samples that were not reported yet.
    hits: Vec<Hit>,
    /// Lost samples that were reported.
    lost: u64,
    /// Threads that are not sampled though they should be, as reported.
    uncovered: usize,
    /// The function last seen, by thread; emptied when it grows.
    last: HashMap<i32, u32>,
    /// How often one function was seen after another in a thread, the lesser first.
    neighbours: HashMap<(u32, u32), u64>,
    /// Native code of several functions.
    shared: Shared,
}

/// The source of samples.
#[derive(Default)]
enum Source {
    /// Not opened yet.
    #[default]
    Later,
    /// A thread is opening one.
    Opening,
    Open(Box<Sampler>),
    /// No source works here.
    Nothing,
}

impl Source {
    fn sampler(&self) -> Option<&Sampler> {
        match self {
            Source::Open(sampler) => Some(sampler),
            Source::Later | Source::Opening | Source::Nothing => None,
        }
    }
}

impl Sampling {
    /// The state of a session whose code lies at `code`; off where nothing moves between tiers.
    pub(crate) fn new(settings: &TierSettings, code: Range<u64>) -> Sampling {
        let choice = match settings.tiers {
            Tiers::Auto => settings.sampling,
            Tiers::Fixed(_) | Tiers::Churn | Tiers::Leave(_) => Choice::Off,
        };
        Sampling {
            choice,
            sizes: settings.sizes,
            rates: settings.rates,
            maps: Maps::new(&code),
            taken: AtomicU64::new(0),
            usual: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Notes the version at `range`, before it can run.
    pub(crate) fn add_code(&self, range: Range<u64>, id: FunctionId, version: VersionId) {
        if self.choice != Choice::Off {
            self.maps.insert(range, id, version);
        }
    }

    /// [`Sampling::add_code`] for several versions.
    pub(crate) fn add_codes(
        &self,
        codes: impl IntoIterator<Item = (Range<u64>, FunctionId, VersionId)>,
    ) {
        if self.choice != Choice::Off {
            self.maps.insert_all(codes.into_iter());
        }
    }

    /// Notes that the code in these ranges was freed.
    pub(crate) fn remove_codes(&self, ranges: &[Range<u64>]) {
        if self.choice != Choice::Off {
            self.maps.retire_all(ranges);
        }
    }

    /// Attributes samples of native code in a part of the address space.
    pub(crate) fn attend(&self, text: Range<u64>) {
        if self.choice != Choice::Off {
            self.maps.attend(text);
        }
    }

    /// Functions that were sampled one after the other.
    pub(crate) fn neighbours(&self) -> Vec<Edge<FunctionId>> {
        let state = self.lock();
        let edge = |(&(a, b), &weight): (&(u32, u32), &u64)| Edge {
            from: FunctionId(a),
            to: FunctionId(b),
            weight,
        };
        state.neighbours.iter().map(edge).collect()
    }

    /// Ends sampling. Under a pass.
    pub(crate) fn close(&self) {
        self.lock().source = Source::Nothing;
    }

    /// In the child of a fork.
    pub(crate) fn after_fork_child(&self) {
        self.lock().forked = true;
    }

    /// Samples that were taken in functions of the session so far. The statistics of functions are
    /// scaled to the usual rate.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The counts and the cost of sampling so far; `None` if nothing is sampled.
    pub(crate) fn summary(&self) -> Option<Summary> {
        Some(self.lock().source.sampler()?.summary())
    }
}

impl State {
    /// In the child of a fork, starts over before anything else.
    fn follow_fork(&mut self) {
        if !std::mem::take(&mut self.forked) {
            return;
        }
        self.rarer = Rarer::default();
        match &mut self.source {
            // The thread that was opening a source is not in the child.
            Source::Opening => self.source = Source::Later,
            Source::Open(sampler) => {
                if let Err(cause) = sampler.restart_in_child() {
                    tracing::debug!(%cause, "no samples in the child of a fork");
                    self.source = Source::Nothing;
                }
            }
            Source::Later | Source::Nothing => {}
        }
    }

    /// Makes the source that a thread opened the session's, paused if the session is.
    fn opened(&mut self, source: Source) {
        self.source = source;
        if self.clock.is_paused()
            && let Source::Open(sampler) = &mut self.source
        {
            sampler.pause();
        }
    }

    fn pause(&mut self, now: Duration) {
        self.follow_fork();
        self.clock.pause(now);
        if let Source::Open(sampler) = &mut self.source {
            sampler.pause();
        }
    }

    fn resume(&mut self, now: Duration) {
        self.follow_fork();
        self.clock.resume(now);
        if let Source::Open(sampler) = &mut self.source {
            sampler.resume();
        }
    }
}

impl Core {
    /// Pauses sampling. Under a pass.
    pub(crate) fn pause_sampling(&self) {
        let mut state = self.tiers.sampling.lock();
        state.pause(self.events.now());
        // Under the lock, since drains call it too.
        self.tiers.on_sampling(None);
    }

    /// Ends [`Core::pause_sampling`]. Under a pass.
    pub(crate) fn resume_sampling(&self) {
        let mut state = self.tiers.sampling.lock();
        state.resume(self.events.now());
    }

    /// Drains all pending samples.
    pub(crate) fn drain_all_samples(&self) {
        self.tiers.sampling.lock().clock.hurry();
        self.drain_samples();
    }

    /// Drains all pending samples and reports them, at the end of a recording.
    pub(crate) fn tell_all_samples(&self) {
        {
            let mut state = self.tiers.sampling.lock();
            if state.source.sampler().is_none() {
                return;
            }
            state.tell_now = true;
        }
        self.drain_all_samples();
    }

    /// Opens a source once the program has run for long enough. A thread of its own does it: the
    /// kernel takes 10 to 30 ms, in which the controller's thread could not read the counters.
    pub(crate) fn open_samples(self: &Arc<Self>) {
        let sampling = &self.tiers.sampling;
        if sampling.choice == Choice::Off {
            return;
        }
        {
            let mut state = sampling.lock();
            state.follow_fork();
            let later = matches!(state.source, Source::Later) && !state.clock.is_paused();
            if !later || process_time() < START_AFTER {
                return;
            }
            state.source = Source::Opening;
        }
        let name = String::from("uruk-samples");
        let open = self.serving.work(self, |core: &Arc<Core>| {
            let _pass = gate::enter();
            let source = core.open_sampler();
            core.tiers.sampling.lock().opened(source);
            core.tiers.spent_aside(thread_time());
        });
        if let Err(cause) = thread::spawn(name, open) {
            info!(%cause, "no samples: counters alone say what is hot");
            sampling.lock().source = Source::Nothing;
        }
    }

    /// Drains samples, if it is time, and reports them to the controller.
    pub(crate) fn drain_samples(&self) {
        let sampling = &self.tiers.sampling;
        let mut state = sampling.lock();
        // Under the lock: a drain that waited for another one is later than that.
        let now = self.events.now();
        if sampling.choice == Choice::Off {
            return;
        }
        let rarer = Rarer::after(self.tiers.quiet(now));
        if rarer < state.rarer {
            state.clock.hurry();
        }
        if !state.clock.is_due(now) {
            return;
        }
        state.follow_fork();
        let weight = std::mem::replace(&mut state.rarer, rarer).times();
        let State {
            source,
            clock,
            last,
            neighbours,
            shared,
            ..
        } = &mut *state;
        let Source::Open(sampler) = source else {
            return;
        };
        if last.len() > NEIGHBOURS {
            last.clear();
        }
        let mut found: HashMap<u64, Heap> = HashMap::new();
        let mut elsewhere = Heap::of(weight);
        sampler.slow_down(rarer.times());
        let mut taken = 0;
        let wait = sampler.tick(
            &mut |sample| match sampling.maps.find(sample.pc, sample.time) {
                Found::Tag(tag) => {
                    let heap = found.entry(tag).or_insert_with(|| Heap::of(weight));
                    heap.add(&sample);
                    taken += 1;
                    shared.count(sample.pc);
                    let (function, _) = untag(tag);
                    let before = last.insert(sample.tid, function);
                    if let Some(before) = before.filter(|&before| before != function) {
                        let pair = (before.min(function), before.max(function));
                        if neighbours.len() < NEIGHBOURS || neighbours.contains_key(&pair) {
                            *neighbours.entry(pair).or_default() += 1;
                        }
                    }
                }
                Found::Unknown => elsewhere.add(&sample),
                Found::Stale => {}
            },
        );
        let summary = sampler.summary();
        sampling.taken.fetch_add(taken, Ordering::Relaxed);
        let usual: u32 = found.values().chain([&elsewhere]).map(Heap::usual).sum();
        sampling.usual.fetch_add(usual.into(), Ordering::Relaxed);
        sampling.maps.forget_before(uruk_profiler::now());
        clock.drained(now, wait);
        for (tag, heap) in found {
            let (id, version) = untag(tag);
            let Some(id) = self.stubs.function(id) else {
                continue;
            };
            self.pass_samples_on(&mut state, id, version);
            if let Some(tier) = self.tiers.versions.add_samples(id, version, heap.usual()) {
                let code = Some((version, tier));
                state.hits.extend(heap.hits(&self.events, now, code));
            }
            let time = Nanos(heap.time);
            let at = nanos(now);
            self.tiers.on_samples(at, id, version, heap.samples, time);
            self.bring_up_early(id);
        }
        state.hits.extend(elsewhere.hits(&self.events, now, None));
        let period = (summary.hz > 0).then(|| Nanos(1_000_000_000 / u64::from(summary.hz)));
        self.tiers.on_sampling(period);
        if std::mem::take(&mut state.tell_now) || now - state.told >= TELL_EVERY {
            self.tell_samples(state, now, &summary);
        }
    }

    /// Reports the samples that were not reported yet, as of `now`.
    fn tell_samples(&self, mut state: MutexGuard<'_, State>, now: Duration, summary: &Summary) {
        let mut hits = std::mem::take(&mut state.hits);
        let lost = summary.drained.lost - state.lost;
        state.lost = summary.drained.lost;
        state.told = now;
        let uncovered = summary.coverage.uncovered;
        let uncovered_before = std::mem::replace(&mut state.uncovered, uncovered);
        drop(state);
        if lost > 0 {
            info!(lost, "samples were lost: no room for them");
        }
        if uncovered != uncovered_before {
            info!(
                threads = uncovered,
                "not sampled: blocked signals or a limit"
            );
        }
        self.events.tell(|| {
            hits.sort_unstable_by_key(|hit| hit.at);
            Event::Samples {
                at: now,
                hits,
                lost,
                uncovered,
                rate: summary.hz,
                overhead: summary.overhead(),
                queue: self.tiers.queue_length(),
            }
        });
    }

    fn open_sampler(&self) -> Source {
        let sampling = &self.tiers.sampling;
        let opened = uruk_profiler::open(sampling.choice, sampling.sizes, &threads::EXCLUDED);
        let mut rejected: Vec<_> = opened
            .rejected
            .iter()
            .map(|(kind, cause)| (kind.to_string(), cause.to_string()))
            .collect();
        let mut source = None;
        let sampler = opened.source.and_then(|opened| {
            let kind = opened.kind();
            match Sampler::start(opened, sampling.rates) {
                Ok(sampler) => {
                    source = Some(kind.to_string());
                    Some(sampler)
                }
                Err(cause) => {
                    rejected.push((kind.to_string(), cause.to_string()));
                    None
                }
            }
        });
        for (kind, cause) in &rejected {
            info!(%kind, %cause, "cannot be sampled with");
        }
        match &source {
            Some(source) => info!(%source, "sampling"),
            None => info!("no samples: counters alone say what is hot"),
        }
        self.events.tell(|| Event::Sampling {
            source,
            rejected,
            at: self.events.now(),
        });
        sampler.map_or(Source::Nothing, |sampler| Source::Open(Box::new(sampler)))
    }
}
