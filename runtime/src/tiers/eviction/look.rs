//! Looks for cold code, and its eviction.

use super::EvictedFunction;
use crate::events::Event;
use crate::tiers::Control;
use crate::tiers::TierState;
use crate::tiers::eviction::ARRIVALS;
use crate::tiers::eviction::EvictionCandidate;
use crate::tiers::eviction::EvictionState;
use crate::tiers::eviction::LEFT;
use crate::tiers::eviction::Looking;
use crate::version::counts::Count;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::debug;
use uruk_base::FunctionId;
use uruk_tiering::{Cold, Resident};

impl TierState {
    /// Notes that calls of a function are about to reach new code; returns whether it had code that
    /// was evicted. Under a pass.
    pub(crate) fn note_code(&self, id: FunctionId, bytes: u64) -> bool {
        let eviction = &self.eviction;
        if eviction.is_idle() {
            return false;
        }
        let mut arrivals = eviction.arrivals();
        arrivals.push((id, bytes));
        eviction.arrived.fetch_add(bytes, Ordering::Relaxed);
        let many = arrivals.len() >= ARRIVALS;
        drop(arrivals);
        if many {
            drop(eviction.state());
        }
        let returned = eviction.away().remove(&id);
        eviction
            .returned
            .fetch_add(u64::from(returned), Ordering::Relaxed);
        returned
    }

    /// Evicts code over the budget, unless another thread is doing so and little new code came.
    /// Under a pass, with nothing locked.
    pub(crate) fn keep_budget(self: &Arc<Self>) {
        let eviction = &self.eviction;
        let Some(budget) = eviction.budget else {
            return;
        };
        let busy = eviction.looking.swap(true, Ordering::Relaxed);
        if busy && eviction.arrived.load(Ordering::Relaxed) <= budget / LEFT {
            return;
        }
        let _looking = Looking(&eviction.looking);
        let mut state = eviction.state();
        if state.cold.is_due() {
            let gone = self.look_for_cold(&mut state, None);
            drop(state);
            self.tell_evicted(&gone);
        }
    }

    /// Evicts the coldest code until no more than `most` bytes are left; returns the number of
    /// functions.
    pub(crate) fn evict_down_to(self: &Arc<Self>, most: u64) -> u64 {
        let gone = self.look_for_cold(&mut self.eviction.state(), Some(most));
        self.tell_evicted(&gone);
        gone.iter().map(|one| one.bytes).sum()
    }

    /// Evicts one function's code now, if that is allowed; returns whether it did.
    pub(crate) fn evict_one(self: &Arc<Self>, id: FunctionId) -> bool {
        let gone = {
            let mut state = self.eviction.state();
            let found = self.candidates().into_iter().find(|one| one.id == id);
            found.and_then(|found| self.evict(&mut state.cold, &found))
        };
        self.tell_evicted(gone.as_slice());
        gone.is_some()
    }

    fn look_for_cold(
        self: &Arc<Self>,
        state: &mut EvictionState,
        most: Option<u64>,
    ) -> Vec<EvictedFunction> {
        self.eviction.looks.fetch_add(1, Ordering::Relaxed);
        let mut found: HashMap<FunctionId, EvictionCandidate> = HashMap::new();
        let mut residents = Vec::new();
        let before = std::mem::take(&mut state.samples);
        for one in self.candidates() {
            let sampled = before.get(&one.id).is_some_and(|&(version, samples)| {
                version != one.version || samples != one.samples
            });
            residents.push(Resident {
                function: one.id,
                bytes: one.bytes,
                used: sampled || !self.stubs.rests(one.id),
            });
            self.stubs.rest(one.id);
            state.samples.insert(one.id, (one.version, one.samples));
            found.insert(one.id, one);
        }
        let cold = state.cold.look(&residents, most).into_iter();
        let gone = cold.filter_map(|id| self.evict(&mut state.cold, found.get(&id)?));
        let gone: Vec<EvictedFunction> = gone.collect();
        let (functions, evicted) = (residents.len(), gone.len());
        debug!(functions, evicted, "looked for cold code");
        gone
    }

    /// The functions whose code may be evicted.
    fn candidates(&self) -> Vec<EvictionCandidate> {
        let mut all = self.versions.all_published(|id, version| {
            let id = self.stubs.function(id)?;
            Some(EvictionCandidate {
                id,
                version: version.id,
                bytes: version.bytes,
                samples: version.samples,
            })
        });
        all.retain(|one| {
            let stays = self.choices.is_entry_point(one.id) || self.versions.is_fixed(one.id);
            !stays && self.function(one.id).is_some()
        });
        let control = self.control();
        all.retain(|one| {
            let view = control.controller.view(one.id);
            view.is_none_or(|view| view.pinned.is_none())
        });
        all
    }

    /// Evicts the code of a function, unless it is being compiled or replaced.
    fn evict(
        self: &Arc<Self>,
        cold: &mut Cold,
        one: &EvictionCandidate,
    ) -> Option<EvictedFunction> {
        let id = one.id;
        let versions = self.versions.seen(id);
        // Before another thread can compile it again.
        self.eviction.away().insert(id);
        self.eviction.begun.store(true, Ordering::Relaxed);
        let gone = {
            // A thread that compiles it again tells the controller, after this.
            let mut control = self.control();
            let gone = versions.evict(|| self.stubs.unpublish(id));
            if gone.is_some() {
                control.forget_code(id, &self.counts);
            }
            gone
        };
        let Some(gone) = gone else {
            self.eviction.away().remove(&id);
            return None;
        };
        for version in [Some(gone.version), gone.released].into_iter().flatten() {
            self.retire_version(id, version);
        }
        cold.went(id, one.bytes);
        let counters = &self.eviction;
        counters.evicted.fetch_add(1, Ordering::Relaxed);
        counters
            .evicted_bytes
            .fetch_add(one.bytes, Ordering::Relaxed);
        Some(EvictedFunction {
            id,
            version: gone.version,
            bytes: one.bytes,
        })
    }

    fn tell_evicted(&self, gone: &[EvictedFunction]) {
        for &EvictedFunction { id, version, bytes } in gone {
            self.events.tell(|| Event::Evicted {
                id,
                function: self.name_of(id),
                version: version.0,
                bytes,
                at: self.events.now(),
            });
        }
    }
}

impl Control {
    /// Drops the controller's data of evicted code; the next code counts from zero.
    fn forget_code(&mut self, id: FunctionId, counts: &crate::version::counts::Counts) {
        let now = counts.now(id);
        if let Some(seen) = self.watched.seen(id) {
            *self.entries.entry(id).or_default() += u64::from(now.since(seen).entries);
        }
        counts.clear(id);
        self.watch(id, false, Count::default());
        self.controller.replaced(id);
    }
}
