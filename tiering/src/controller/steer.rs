//! What the embedder and the rest of the runtime want of the controller, whatever the
//! policy says: requests, pins, replacement, pause, and the child of a `fork`.

use std::collections::VecDeque;

use crate::activity::{Activity, Place, Wish};
use crate::ids::{FunctionId, Nanos, Tier, VersionId};
use crate::policy::Facts;
use crate::stream::Input;

use super::{Controller, Decision, Job, Reason};

/// How much more a function must promise after it was taken down: 2 to this times.
const DEMOTION: u8 = 2;

impl Controller {
    /// Compiles a function at a tier as soon as a job is free, before all candidates, also
    /// while paused. False if too many requests wait or the function is not watched.
    /// Nothing happens if it runs at that tier already, or is pinned to another.
    pub fn request(&mut self, function: FunctionId, tier: Tier) -> bool {
        self.note(Nanos::ZERO, || Input::Request(function, tier));
        self.want(function, tier, Reason::Requested)
    }

    /// Pins a function to a tier, or leaves it to the policy again (`None`). If it runs at
    /// another tier it is compiled anew. False if that could not be asked for; the pin
    /// holds all the same for what is compiled later.
    pub fn pin(&mut self, function: FunctionId, tier: Option<Tier>) -> bool {
        self.note(Nanos::ZERO, || Input::Pin(function, tier));
        let Some(activity) = self.functions.make(function) else {
            self.stats.untracked += 1;
            return false;
        };
        activity.wish = tier.map_or(Wish::Free, Wish::Pinned);
        let runs = activity.tier().is_some();
        match tier {
            Some(tier) => {
                if activity.place == Place::Queued {
                    activity.place = Place::Idle;
                    self.queue.remove(function);
                }
                self.cancel_others(function, tier);
                !runs || self.want(function, tier, Reason::Pinned)
            }
            None => true,
        }
    }

    /// Takes a function one tier down; it needs four times as good reasons to come up
    /// again. False if it is at the lowest, has no code, or too many requests wait.
    pub fn demote(&mut self, function: FunctionId) -> bool {
        self.note(Nanos::ZERO, || Input::Demote(function));
        let Some(activity) = self.functions.get_mut(function) else {
            return false;
        };
        let Some(below) = activity.tier().and_then(Tier::below) else {
            return false;
        };
        activity.hesitate(DEMOTION);
        self.cancel_others(function, below);
        self.want(function, below, Reason::Demoted)
    }

    /// The runtime went back to an earlier version, as [`Decision::Revert`] or the
    /// embedder asked.
    pub fn reverted(
        &mut self,
        now: Nanos,
        function: FunctionId,
        version: VersionId,
        tier: Tier,
        counters: bool,
    ) {
        self.note(now, || Input::Reverted(function, version, tier, counters));
        self.trials.remove(&function);
        if let Some(activity) = self.functions.get_mut(function) {
            activity.run(now, version, tier, counters);
        }
    }

    /// Code of tier 2 was so many thousandths as fast as a function's native code.
    pub fn compared_with_native(&mut self, thousandths: u32) {
        self.note(Nanos::ZERO, || Input::ComparedWithNative(thousandths));
        self.speedups.learn_native(f64::from(thousandths) / 1000.0);
    }

    /// A function does not go up to `tier` by itself any more: its code there was found slower.
    pub fn bar(&mut self, function: FunctionId, tier: Tier) {
        self.note(Nanos::ZERO, || Input::Bar(function, tier));
        if let Some(activity) = self.functions.get_mut(function) {
            activity.bar(tier);
        }
    }

    /// Leaves a function as it is, as if a compile of it were under way, until it is
    /// [released](Controller::release): two versions of it are compared. False if one is under
    /// way, or wanted; nothing changed then.
    pub fn hold(&mut self, function: FunctionId) -> bool {
        self.note(Nanos::ZERO, || Input::Hold(function));
        let Some(activity) = self.functions.get_mut(function) else {
            return false;
        };
        if matches!(activity.place, Place::Compiling | Place::Requested) {
            return false;
        }
        if activity.place == Place::Queued {
            self.queue.remove(function);
        }
        activity.place = Place::Compiling;
        true
    }

    /// Ends what [`hold`](Controller::hold) began; what was wanted meanwhile is lined up.
    pub fn release(&mut self, function: FunctionId) {
        self.note(Nanos::ZERO, || Input::Release(function));
        // Its body may have been replaced, and a compile of the new one begun.
        if self.outstanding.iter().any(|job| job.function == function) {
            return;
        }
        if let Some(activity) = self.functions.get_mut(function)
            && activity.place == Place::Compiling
        {
            activity.place = Place::Idle;
            self.enlist(function);
        }
    }

    /// What was seen of a function when it was first compiled.
    pub fn facts(&self, function: FunctionId) -> Option<Facts> {
        self.functions.get(function).map(Activity::facts)
    }

    /// What a compile of a function is expected to take; nothing if it is not watched.
    pub fn expected_cost(&self, function: FunctionId, tier: Tier) -> Nanos {
        let facts = self.facts(function);
        let cost = facts.map(|facts| self.costs.expect(tier, &facts));
        cost.map_or(Nanos::ZERO, Nanos::from_f64)
    }

    /// Processor time of the program from one entry of a function to the next, lately, as far as its
    /// present version counts them at tier 1.
    pub fn entry_time(&self, function: FunctionId) -> Option<Nanos> {
        let activity = self.functions.get(function)?;
        let rate = activity.entry_rate(&self.config);
        let load = self.load.at(activity.updated(), self.config.window);
        (rate > 0.0).then(|| Nanos::from_f64(load / rate))
    }

    /// The body of a function was replaced, or its code withdrawn: what was learned of it
    /// is forgotten, and what is under way is cancelled. Pins and requests stay. The next
    /// code is reported by `on_compiled`, or by `finished` if it was requested.
    pub fn replaced(&mut self, function: FunctionId) {
        self.note(Nanos::ZERO, || Input::Replaced(function));
        self.stats.replaced += 1;
        self.trials.remove(&function);
        let Some(activity) = self.functions.get_mut(function) else {
            return;
        };
        activity.replace();
        match activity.place {
            Place::Queued => {
                activity.place = Place::Idle;
                self.queue.remove(function);
            }
            Place::Compiling => {
                activity.place = Place::Idle;
                let mut jobs = self.outstanding.iter_mut();
                if let Some(job) = jobs.find(|job| job.function == function && !job.stale) {
                    job.stale = true;
                    cancel(job, &mut self.orders);
                }
                self.enlist(function);
            }
            Place::Idle | Place::Requested => {}
        }
    }

    /// A function was removed: as [`Controller::replaced`], and its record goes, unless something is under
    /// way for it or it is pinned.
    pub fn removed(&mut self, function: FunctionId) {
        self.replaced(function);
        let activity = self.functions.get(function);
        if activity.is_some_and(|it| it.place == Place::Idle && it.wish == Wish::Free) {
            self.functions.forget(function);
        }
    }

    /// Starts nothing by itself from now on; requests are still served, and measuring goes
    /// on.
    pub fn pause(&mut self) {
        self.note(Nanos::ZERO, || Input::Pause);
        self.paused = true;
    }

    /// Ends a pause.
    pub fn resume(&mut self) {
        self.note(Nanos::ZERO, || Input::Resume);
        self.paused = false;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// In the child of a `fork`: the workers are gone, and what they had under way will
    /// never finish. Their functions may be compiled again.
    pub fn abandon(&mut self) {
        self.forget_recording();
        self.orders.clear();
        for job in std::mem::take(&mut self.outstanding) {
            self.stats.cancelled += 1;
            if job.stale {
                continue;
            }
            if let Some(activity) = self.functions.get_mut(job.function) {
                activity.place = Place::Idle;
            }
            self.enlist(job.function);
        }
    }

    /// Records a wish; it is enlisted at once, or when the compile under way has ended.
    pub(super) fn want(&mut self, function: FunctionId, tier: Tier, reason: Reason) -> bool {
        let full = self.wanted.len() >= self.config.request_capacity as usize;
        if full && !self.wanted.contains_key(&function) {
            self.stats.refused += 1;
            return false;
        }
        let Some(activity) = self.functions.make(function) else {
            self.stats.untracked += 1;
            return false;
        };
        if activity.place == Place::Idle && activity.tier() == Some(tier) {
            return true;
        }
        if activity.place == Place::Queued {
            activity.place = Place::Idle;
            self.queue.remove(function);
        }
        self.wanted.insert(function, (tier, reason));
        self.enlist(function);
        true
    }

    /// Lines a wanted function up, unless it is busy or in line already.
    pub(super) fn enlist(&mut self, function: FunctionId) {
        if !self.wanted.contains_key(&function) {
            return;
        }
        let Some(activity) = self.functions.get_mut(function) else {
            return;
        };
        if activity.place == Place::Idle {
            activity.place = Place::Requested;
            self.requests.push_back(function);
        }
    }

    /// The first request that is not yet fulfilled.
    pub(super) fn next_request(&mut self) -> Option<Decision> {
        while let Some(function) = self.requests.pop_front() {
            let wanted = self.wanted.remove(&function);
            let Some(activity) = self.functions.get_mut(function) else {
                continue;
            };
            activity.place = Place::Idle;
            let Some((tier, reason)) = wanted else {
                continue;
            };
            let elsewhere = match activity.wish {
                Wish::Pinned(pinned) => pinned != tier,
                // Unpinned since.
                Wish::Free => reason == Reason::Pinned,
            };
            if activity.tier() == Some(tier) || elsewhere {
                continue;
            }
            return Some(self.compile(function, tier, reason));
        }
        None
    }

    /// Drops the coldest candidates that did nothing for long.
    pub(super) fn drop_stale(&mut self, now: Nanos) {
        while let Some(function) = self.queue.coldest() {
            let Some(activity) = self.functions.get_mut(function) else {
                return;
            };
            if activity.unheard(now) <= self.config.stale_after {
                return;
            }
            activity.place = Place::Idle;
            self.queue.remove(function);
            self.stats.dropped_stale += 1;
        }
    }

    /// Asks for the end of a compile of `function` at another tier than `tier`.
    fn cancel_others(&mut self, function: FunctionId, tier: Tier) {
        for job in &mut self.outstanding {
            if job.function == function && !job.stale && job.tier != tier {
                cancel(job, &mut self.orders);
            }
        }
    }
}

/// Orders the end of a compile, once.
fn cancel(job: &mut Job, orders: &mut VecDeque<Decision>) {
    if !std::mem::replace(&mut job.cancelled, true) {
        let (function, version) = (job.function, job.version);
        orders.push_back(Decision::Cancel { function, version });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use crate::config::Config;
    use crate::ids::{FunctionId, Nanos, Tier, VersionIds};
    use crate::policy::Facts;
    use crate::{Controller, FirstCode};

    /// How often a function is entered is told by the program's time, whatever part of that it takes itself:
    /// most of it may pass in those it calls.
    #[test]
    fn entries_are_told_by_the_time_of_the_program() {
        let mut controller = Controller::new(&Config::default(), Arc::new(VersionIds::default()));
        let [caller, callee] = [FunctionId(1), FunctionId(2)];
        let first = [caller, callee].map(|function| {
            let first = FirstCode {
                version: controller.ids.next(),
                tier: Tier::Baseline,
                facts: Facts::default(),
                compile: Nanos::ZERO,
                counters: true,
            };
            controller.on_compiled(Nanos::ZERO, function, &first);
            first
        });
        assert_eq!(controller.entry_time(caller), None);
        controller.on_sampling(Some(Nanos::from_ms(1)));
        for ms in (10..=1000).step_by(10) {
            let now = Nanos::from_ms(ms);
            controller.on_processor_time(now, Nanos::from_ms(10));
            if ms % 500 == 0 {
                let time = Nanos::from_ms(1);
                controller.on_samples(now, caller, first[0].version, 1, time);
            }
            controller.on_samples(now, callee, first[1].version, 10, Nanos::from_ms(10));
            controller.on_counters(now, caller, 200, 0);
            controller.on_counters(now, callee, 200_000, 0);
        }
        let time = |function| controller.entry_time(function).expect("counted").as_f64();
        assert!((40e3..60e3).contains(&time(caller)), "{}", time(caller));
        assert!((40.0..60.0).contains(&time(callee)), "{}", time(callee));
    }
}
