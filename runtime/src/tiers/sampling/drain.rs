//! Opens, pauses and drains the source of samples.

use super::SampleSource;
use crate::Event;
use crate::fork::thread;
use crate::tiers::TierState;
use crate::tiers::gate;
use crate::tiers::nanos;
use crate::tiers::process_time;
use crate::tiers::sampling::Heap;
use crate::tiers::sampling::NEIGHBOURS;
use crate::tiers::sampling::Rarer;
use crate::tiers::sampling::START_AFTER;
use crate::tiers::sampling::SamplingState;
use crate::tiers::sampling::TELL_EVERY;
use crate::tiers::sampling::thread_time;
use crate::tiers::sampling::threads;
use crate::tiers::sampling::untag;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::info;
use uruk_base::locks::MutexGuard;
use uruk_base::{Nanos, Tier};
use uruk_profiler::{Choice, Found, Sampler, Summary};

impl TierState {
    /// Pauses sampling. Under a pass.
    pub(crate) fn pause_sampling(&self) {
        let mut state = self.sampling.lock();
        state.pause(self.events.now());
        // Under the lock, since drains call it too.
        self.on_sampling(None);
    }

    /// Ends [`TierState::pause_sampling`]. Under a pass.
    pub(crate) fn resume_sampling(&self) {
        let mut state = self.sampling.lock();
        state.resume(self.events.now());
    }

    /// Drains all pending samples.
    pub(crate) fn drain_all_samples(&self) {
        self.sampling.lock().clock.hurry();
        self.drain_samples();
    }

    /// Drains all pending samples and reports them, at the end of a recording.
    pub(crate) fn tell_all_samples(&self) {
        {
            let mut state = self.sampling.lock();
            if state.source.sampler().is_none() {
                return;
            }
            state.tell_now = true;
        }
        self.drain_all_samples();
    }

    /// Opens a source once the program has run for long enough. A thread of its own does it: the
    /// kernel takes 10 to 30 ms, in which the controller's thread could not read the counters.
    pub(in crate::tiers) fn open_samples(self: &Arc<Self>) {
        let sampling = &self.sampling;
        if sampling.choice == Choice::Off {
            return;
        }
        {
            let mut state = sampling.lock();
            state.follow_fork();
            let later = matches!(state.source, SampleSource::Later) && !state.clock.is_paused();
            if !later || !has_run() {
                return;
            }
            state.source = SampleSource::Opening;
        }
        let name = String::from("uruk-samples");
        let open = self
            .serving
            .work(self, self.engines(), |tiers: &Arc<TierState>| {
                let _pass = gate::enter();
                let source = tiers.open_sampler();
                tiers.sampling.lock().opened(source);
                tiers.counters.spent_aside(thread_time());
            });
        if let Err(cause) = thread::spawn(name, open) {
            info!(%cause, "no samples: counters alone say what is hot");
            sampling.lock().source = SampleSource::Nothing;
        }
    }

    /// Drains samples, if it is time, and reports them to the controller.
    pub(crate) fn drain_samples(&self) {
        let sampling = &self.sampling;
        let mut state = sampling.lock();
        // Under the lock: a drain that waited for another one is later than that.
        let now = self.events.now();
        if sampling.choice == Choice::Off {
            return;
        }
        let rarer = Rarer::after(self.quiet(now));
        if rarer < state.rarer {
            state.clock.hurry();
        }
        if !state.clock.is_due(now) {
            return;
        }
        state.follow_fork();
        let weight = std::mem::replace(&mut state.rarer, rarer).times();
        let SamplingState {
            source,
            clock,
            last,
            neighbours,
            shared,
            ..
        } = &mut *state;
        let SampleSource::Open(sampler) = source else {
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
            &mut |sample| match self.sampled.find(sample.pc, sample.time) {
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
        self.sampled.forget_before(uruk_profiler::now());
        clock.drained(now, wait);
        self.tell_controller(&mut state, found, now);
        state.hits.extend(elsewhere.hits(&self.events, now, None));
        let period = (summary.hz > 0).then(|| Nanos(1_000_000_000 / u64::from(summary.hz)));
        self.on_sampling(period);
        if std::mem::take(&mut state.tell_now) || now - state.told >= TELL_EVERY {
            self.tell_samples(state, now, &summary);
        }
    }

    /// Adds samples, by the tags of their versions, to statistics and to the controller's facts.
    fn tell_controller(&self, state: &mut SamplingState, found: HashMap<u64, Heap>, now: Duration) {
        let engines = self.engines();
        for (tag, heap) in found {
            let (id, version) = untag(tag);
            let Some(id) = self.stubs.function(id) else {
                continue;
            };
            self.pass_samples_on(state, id, version);
            if let Some(tier) = self.versions.add_samples(id, version, heap.usual()) {
                if tier == Tier::Native && !self.versions.runs(id, version) {
                    let samples = u64::from(heap.usual());
                    let stayed = state.stayed.entry(id.index());
                    stayed.and_modify(|it| *it += samples).or_default();
                }
                let code = Some((version, tier));
                state.hits.extend(heap.hits(&self.events, now, code));
            }
            let time = Nanos(heap.time);
            self.on_samples(nanos(now), id, version, heap.samples, time);
            engines.sampled(id);
        }
    }

    /// Reports the samples that were not reported yet, as of `now`.
    fn tell_samples(
        &self,
        mut state: MutexGuard<'_, SamplingState>,
        now: Duration,
        summary: &Summary,
    ) {
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
                queue: self.queue_length(),
            }
        });
    }

    pub(in crate::tiers) fn open_sampler(&self) -> SampleSource {
        let sampling = &self.sampling;
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
        sampler.map_or(SampleSource::Nothing, |sampler| {
            SampleSource::Open(Box::new(sampler))
        })
    }
}

/// Whether the program's threads have used the processor time after which sampling starts.
fn has_run() -> bool {
    let all = process_time();
    // Clocks of threads are read only where it may be so.
    all >= START_AFTER && all.saturating_sub(threads::own_time()) >= START_AFTER
}
