//! Commands of the embedder and the rest of the runtime, which take precedence over the policy:
//! requests, pins, replacement, pause, recording, and the child of a `fork`.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::activity::{Activity, Place, Wish};
use crate::ids::{FunctionId, Nanos, Tier, VersionId};
use crate::policy::Facts;
use crate::stream::Input;

use super::overhead::Overhead;
use super::{Controller, Decision, Job, Reason};

impl Controller {
    /// Writes all inputs from now on to `out`, in the form of [`stream`](crate::stream), up to
    /// about `limit` bytes. A recording in progress is ended.
    ///
    /// # Errors
    /// The writer's, of the first line or at the end of the recording before.
    pub fn record(&mut self, out: Box<dyn Write + Send>, limit: u64) -> io::Result<()> {
        self.diary.begin(out, limit)
    }

    /// Ends [`Controller::record`]; does nothing without a recording.
    ///
    /// # Errors
    /// The first of the writer's.
    pub fn end_recording(&mut self) -> io::Result<()> {
        self.diary.end()
    }

    /// Compiles a function at a tier as soon as a job is free, before all candidates, also while
    /// paused. False if too many requests wait or the function is not tracked. Does nothing if it
    /// runs at that tier already, or is pinned to another.
    pub fn request(&mut self, function: FunctionId, tier: Tier) -> bool {
        self.diary
            .note(Nanos::ZERO, || Input::Request(function, tier));
        self.want(function, tier, Reason::Requested)
    }

    /// Pins a function to a tier, or returns it to the policy (`None`). If it runs at another tier
    /// it is compiled anew. False if that could not be requested; the pin still holds for later
    /// compiles.
    pub fn pin(&mut self, function: FunctionId, tier: Option<Tier>) -> bool {
        self.diary.note(Nanos::ZERO, || Input::Pin(function, tier));
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

    /// Records that the runtime went back to an earlier version, for [`Decision::Revert`] or the
    /// embedder.
    pub fn reverted(
        &mut self,
        now: Nanos,
        function: FunctionId,
        version: VersionId,
        tier: Tier,
        counters: bool,
    ) {
        self.diary
            .note(now, || Input::Reverted(function, version, tier, counters));
        self.trials.remove(&function);
        if let Some(activity) = self.functions.get_mut(function) {
            activity.run(now, version, tier, counters);
        }
    }

    /// Records a comparison: tier 2 was so many thousandths as fast as a function's native code.
    pub fn compared_with_native(&mut self, thousandths: u32) {
        self.diary
            .note(Nanos::ZERO, || Input::ComparedWithNative(thousandths));
        self.speedups.learn_native(f64::from(thousandths) / 1000.0);
    }

    /// Records a comparison: the running version of a function is so many thousandths as fast as its
    /// native code.
    pub fn faster_than_native(&mut self, function: FunctionId, thousandths: u32) {
        self.diary.note(Nanos::ZERO, || {
            Input::FasterThanNative(function, thousandths)
        });
        if let Some(activity) = self.functions.get_mut(function) {
            let hundredths = thousandths.saturating_sub(1000) / 10;
            activity.gained = u8::try_from(hundredths).unwrap_or(u8::MAX);
        }
    }

    /// Bars a function from promotion to `tier` by the policy: its code there was found slower.
    pub fn bar(&mut self, function: FunctionId, tier: Tier) {
        self.diary.note(Nanos::ZERO, || Input::Bar(function, tier));
        if let Some(activity) = self.functions.get_mut(function) {
            activity.bar(tier);
        }
    }

    /// Keeps a function as it is, as if a compile of it were in progress, until it is
    /// [released](Controller::release), so that two versions of it can be compared. False, and no
    /// change, if one is in progress or requested.
    pub fn hold(&mut self, function: FunctionId) -> bool {
        self.diary.note(Nanos::ZERO, || Input::Hold(function));
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

    /// Ends [`hold`](Controller::hold); a request that came meanwhile is queued.
    pub fn release(&mut self, function: FunctionId) {
        self.diary.note(Nanos::ZERO, || Input::Release(function));
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

    /// The facts of a function at its first compile.
    pub fn facts(&self, function: FunctionId) -> Option<Facts> {
        self.functions.get(function).map(Activity::facts)
    }

    /// The expected compile time of a function; zero if it is not tracked.
    pub fn expected_cost(&self, function: FunctionId, tier: Tier) -> Nanos {
        Nanos::from_f64(self.cost(function, tier))
    }

    /// Processor time of the program from one entry of a function to the next, in the recent past,
    /// if its present version counts entries at tier 1.
    pub fn entry_time(&self, function: FunctionId) -> Option<Nanos> {
        let activity = self.functions.get(function)?;
        let rate = activity.entry_rate(&self.config);
        let load = self.load.at(activity.updated(), self.config.window);
        (rate > 0.0).then(|| Nanos::from_f64(load / rate))
    }

    /// Whether the callers of functions can be told. Without them each function is a candidate by
    /// itself.
    pub fn ask_callers(&mut self, asks: bool) {
        self.callers.ask(asks);
    }

    /// Takes the functions whose callers are needed: answer with [`Controller::on_caller`] for each
    /// function that calls it by name and has code, then [`Controller::callers_told`].
    pub fn questions(&mut self) -> Vec<FunctionId> {
        self.callers.questions()
    }

    /// Tells a caller of a function.
    pub fn on_caller(&mut self, function: FunctionId, caller: FunctionId) {
        self.diary
            .note(Nanos::ZERO, || Input::Caller(function, caller));
        self.callers.add(function, caller);
    }

    /// Ends the answer to a question: the function is a candidate again.
    pub fn callers_told(&mut self, function: FunctionId) {
        self.diary
            .note(Nanos::ZERO, || Input::CallersTold(function));
        self.callers.complete(function);
        let Some(now) = self.functions.get(function).map(Activity::updated) else {
            return;
        };
        let chance = self.chance(now, function, 0.0);
        if let (Some(chance), Some(activity)) = (chance, self.functions.get_mut(function))
            && activity.place == Place::Idle
        {
            activity.place = Place::Queued;
            self.enqueue(function, chance.heat);
        }
    }

    /// Records that the body of a function was replaced, or its code withdrawn. Its measurements
    /// are dropped, and compiles in progress are cancelled. Pins and requests stay. The next code
    /// is reported by `on_compiled`, or by `finished` if it was requested.
    pub fn replaced(&mut self, function: FunctionId) {
        self.diary.note(Nanos::ZERO, || Input::Replaced(function));
        self.stats.replaced += 1;
        self.trials.remove(&function);
        self.callers.forget(function);
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

    /// Records that a function was removed: like [`Controller::replaced`], and its record is
    /// removed, unless a compile or request is pending or it is pinned.
    pub fn removed(&mut self, function: FunctionId) {
        self.replaced(function);
        let activity = self.functions.get(function);
        if activity.is_some_and(|it| it.place == Place::Idle && it.wish == Wish::Free) {
            self.functions.forget(function);
        }
    }

    /// Pauses the policy: from now on only requests are served; measuring goes on.
    pub fn pause(&mut self) {
        self.diary.note(Nanos::ZERO, || Input::Pause);
        self.paused = true;
    }

    /// Ends a pause.
    pub fn resume(&mut self) {
        self.diary.note(Nanos::ZERO, || Input::Resume);
        self.paused = false;
    }

    /// Whether the policy is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Resets the compiles in the child of a `fork`: the workers do not exist there, and their
    /// compiles never finish. The functions may be compiled again.
    pub fn abandon(&mut self) {
        self.diary.forget();
        self.orders.clear();
        self.overhead = Overhead::default();
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

    /// Records a request; it is queued at once, or when the compile in progress has ended.
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

    /// Queues a requested function, unless it is compiling or queued already.
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

    /// Takes the first request that is not yet fulfilled.
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
                // It was unpinned since.
                Wish::Free => reason == Reason::Pinned,
            };
            if activity.tier() == Some(tier) || elsewhere {
                continue;
            }
            return Some(self.compile(function, tier, reason));
        }
        None
    }

    /// Drops the coldest candidates, if they were idle for long.
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

    /// Cancels compiles of `function` at other tiers than `tier`.
    fn cancel_others(&mut self, function: FunctionId, tier: Tier) {
        for job in &mut self.outstanding {
            if job.function == function && !job.stale && job.tier != tier {
                cancel(job, &mut self.orders);
            }
        }
    }
}

/// Orders the cancellation of a compile, once.
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

    /// The entry rate of a function is known from the program's time, whatever share of it the
    /// function takes itself: most of it may pass in its callees.
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
