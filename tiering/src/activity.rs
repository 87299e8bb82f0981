//! The controller's record of each function: 72 bytes, updated only when an input names the
//! function, so that an idle function costs nothing.

use crate::config::Config;
use crate::ids::{Nanos, Tier, VersionId};
use crate::policy::{Facts, Measured, RELUCTANCE_LIMIT, event_time, share};

/// Progress of a function towards better code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not queued, requested or compiling.
    Idle,
    /// In the queue of candidates.
    Queued,
    /// Requested by the embedder.
    Requested,
    /// A compile is in progress.
    Compiling,
}

/// The tier that the embedder demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The policy decides.
    Free,
    /// This tier and no other.
    Pinned(Tier),
}

/// The record of a function.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    /// The running version; `None` before there is code.
    pub(crate) version: Option<(VersionId, Tier)>,
    /// Time of its publication.
    published: Nanos,
    /// Time of the last update of `window` and `spent`.
    updated: Nanos,
    /// Instructions and loops, and calls up to the number that matters.
    instructions: u32,
    loops: u16,
    calls: u8,
    /// Time over the last window, decaying.
    window: f32,
    /// Entries over the last window, decaying.
    entered: f32,
    /// Time in this version, slowly decaying.
    spent: f32,
    sampled: f32,
    counted: f32,
    /// Entries while `sampled` was taken.
    entries: f32,
    samples: u16,
    /// Logarithm of the score at which the function last counted as new.
    pub(crate) noted: i8,
    pub(crate) place: Place,
    pub(crate) wish: Wish,
    /// The running version has counters.
    pub(crate) counters: bool,
    /// Tiers that failed, a bit each.
    barred: u8,
    reluctance: u8,
    /// Hundredths by which the running version is faster than native code, as a comparison showed.
    pub(crate) gained: u8,
}

const _: () = assert!(size_of::<Activity>() <= 72);

/// No score was noted yet.
pub(crate) const UNNOTED: i8 = i8::MIN;

/// Time in ns at which records of samples and counters are halved, so that they follow changes.
const LONG: f32 = 10e9;

impl Default for Activity {
    fn default() -> Activity {
        Activity {
            version: None,
            published: Nanos::ZERO,
            updated: Nanos::ZERO,
            instructions: 0,
            loops: 0,
            calls: 0,
            window: 0.0,
            entered: 0.0,
            spent: 0.0,
            sampled: 0.0,
            counted: 0.0,
            entries: 0.0,
            samples: 0,
            noted: UNNOTED,
            place: Place::Idle,
            wish: Wish::Free,
            counters: false,
            barred: 0,
            reluctance: 0,
            gained: 0,
        }
    }
}

impl Activity {
    /// Starts the record of another version; measurements of the old one are dropped.
    pub(crate) fn run(&mut self, now: Nanos, version: VersionId, tier: Tier, counters: bool) {
        self.version = Some((version, tier));
        self.counters = counters;
        self.published = now;
        self.updated = now;
        (self.window, self.entered, self.spent) = (0.0, 0.0, 0.0);
        (self.sampled, self.counted, self.entries) = (0.0, 0.0, 0.0);
        (self.samples, self.gained) = (0, 0);
        self.noted = UNNOTED;
    }

    /// Starts the record of another body: measurements of the old one do not apply.
    pub(crate) fn replace(&mut self) {
        *self = Activity {
            place: self.place,
            wish: self.wish,
            ..Activity::default()
        };
    }

    pub(crate) fn tier(&self) -> Option<Tier> {
        self.version.map(|(_, tier)| tier)
    }

    pub(crate) fn set_facts(&mut self, facts: &Facts) {
        self.instructions = facts.instructions;
        self.loops = u16::try_from(facts.loops).unwrap_or(u16::MAX);
        self.calls = u8::try_from(facts.calls).unwrap_or(u8::MAX);
    }

    /// The facts of the body; whether loops nest is not stored.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            instructions: self.instructions,
            loops: u32::from(self.loops),
            calls: u32::from(self.calls),
            ..Facts::default()
        }
    }

    /// Time of `events` at tier 1, before correction.
    pub(crate) fn event_time(&self, events: f64, config: &Config) -> f64 {
        events * event_time(&self.facts(), config)
    }

    /// Adds `time` and `entries` since the last update, as if they had been spread evenly.
    pub(crate) fn spend(&mut self, now: Nanos, time: f64, entries: f64, config: &Config) {
        let elapsed = (now - self.updated).as_f64();
        let aged = |constant: Nanos| (-elapsed / constant.as_f64()).exp();
        let lost = elapsed / config.window.as_f64();
        // (1 - e^-x) / x, the part of an even stream that is left at its end.
        let left = match lost > 1e-6 {
            true => -(-lost).exp_m1() / lost,
            false => 1.0,
        };
        let kept = aged(config.window);
        self.window = (f64::from(self.window) * kept + time * left) as f32;
        self.entered = (f64::from(self.entered) * kept + entries * left) as f32;
        self.spent = (f64::from(self.spent) * aged(config.memory) + time) as f32;
        self.updated = self.updated.max(now);
    }

    /// Time since the last update.
    pub(crate) fn unheard(&self, now: Nanos) -> Nanos {
        now - self.updated
    }

    /// The time that this version has been running.
    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now - self.published
    }

    /// Adds both measures of the same stretch of time.
    pub(crate) fn measure(&mut self, samples: u32, sampled: f64, counted: f64) {
        self.sampled += sampled as f32;
        self.counted += counted as f32;
        let samples = u16::try_from(samples).unwrap_or(u16::MAX);
        self.samples = self.samples.saturating_add(samples);
        if self.sampled.max(self.counted) > LONG {
            self.sampled /= 2.0;
            self.counted /= 2.0;
            self.entries /= 2.0;
            self.samples /= 2;
        }
    }

    /// Adds entries of the same stretch.
    pub(crate) fn enter(&mut self, entries: u64) {
        self.entries += entries as f32;
    }

    /// Time by samples, with entries as the work: the same unit, whether or not the version counts
    /// loops, too.
    pub(crate) fn per_entry(&self) -> Measured {
        Measured {
            counted: f64::from(self.entries),
            ..self.measured()
        }
    }

    /// The function's own time by samples from one entry to the next, in ns; `None` without samples
    /// or entries.
    pub(crate) fn own_time(&self) -> Option<f64> {
        let known = self.samples > 0 && self.entries > 0.0;
        known.then(|| f64::from(self.sampled) / f64::from(self.entries))
    }

    pub(crate) fn measured(&self) -> Measured {
        Measured {
            sampled: f64::from(self.sampled),
            counted: f64::from(self.counted),
            samples: u32::from(self.samples),
        }
    }

    /// Time in this version as of the last update.
    pub(crate) fn spent(&self) -> f64 {
        f64::from(self.spent)
    }

    /// The decayed sum as of the last update, and the time of that.
    pub(crate) fn window(&self) -> (f64, Nanos) {
        (f64::from(self.window), self.updated)
    }

    /// Processors that the function occupies, as of the last update. A run shorter than a poll is
    /// taken as a part of one: shorter times are not measured.
    pub(crate) fn share(&self, config: &Config) -> f64 {
        self.rate(self.window, config).min(f64::from(config.cpus))
    }

    /// Entries in the last window, decaying, as of the last update.
    pub(crate) fn entered(&self) -> f64 {
        f64::from(self.entered)
    }

    /// Takes the time of the last window, and all time spent in this version, out of the record.
    pub(crate) fn give_time(&mut self) -> (f64, f64) {
        let given = (f64::from(self.window), f64::from(self.spent));
        (self.window, self.spent) = (0.0, 0.0);
        self.noted = UNNOTED;
        given
    }

    /// Adds time that another function gave.
    pub(crate) fn take_time(&mut self, window: f64, spent: f64) {
        self.window += window as f32;
        self.spent += spent as f32;
    }

    /// Entries per nanosecond, as of the last update.
    pub(crate) fn entry_rate(&self, config: &Config) -> f64 {
        self.rate(self.entered, config)
    }

    /// Time of the last update.
    pub(crate) fn updated(&self) -> Nanos {
        self.updated
    }

    fn rate(&self, decayed: f32, config: &Config) -> f64 {
        let age = self.updated - self.published;
        let age = age.max(config.poll_min).as_f64();
        share(f64::from(decayed), age, config.window.as_f64())
    }

    pub(crate) fn bar(&mut self, tier: Tier) {
        self.barred |= 1 << tier.index();
    }

    pub(crate) fn is_barred(&self, tier: Tier) -> bool {
        self.barred & (1 << tier.index()) != 0
    }

    pub(crate) fn hesitate(&mut self, times: u8) {
        self.reluctance = (self.reluctance + times).min(RELUCTANCE_LIMIT);
    }

    pub(crate) fn reluctance(&self) -> u8 {
        self.reluctance
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn running() -> Activity {
        let mut activity = Activity::default();
        activity.run(Nanos::ZERO, VersionId(1), Tier::Baseline, true);
        activity
    }

    /// The share of an even stream does not depend on how often it is measured.
    #[test]
    fn shares_do_not_depend_on_the_interval() {
        let config = Config::default();
        for every in [1, 7, 50] {
            let mut activity = running();
            for look in 1..=100 {
                let now = Nanos::from_ms(look * every);
                activity.spend(now, every as f64 * 0.6e6, 0.0, &config);
            }
            let share = activity.share(&config);
            assert!((share - 0.6).abs() < 0.01, "every {every} ms: {share}");
        }
    }

    #[test]
    fn the_past_is_forgotten_slowly() {
        let config = Config::default();
        let mut activity = running();
        activity.spend(Nanos::from_ms(1), 1e6, 0.0, &config);
        activity.spend(Nanos(config.memory.0 * 3), 0.0, 0.0, &config);
        assert!(activity.spent() < 0.06e6 && activity.share(&config) < 1e-9);
        // A burst is no whole processor as long as it is shorter than a poll.
        let mut activity = running();
        activity.spend(Nanos::from_us(10), 9e3, 0.0, &config);
        assert!(activity.share(&config) < 0.02);
    }

    #[test]
    fn a_replaced_body_starts_anew() {
        let mut activity = running();
        activity.bar(Tier::Optimized);
        activity.hesitate(200);
        activity.wish = Wish::Pinned(Tier::Guided);
        assert_eq!(activity.reluctance(), RELUCTANCE_LIMIT);
        activity.replace();
        assert!(!activity.is_barred(Tier::Optimized));
        assert_eq!((activity.reluctance(), activity.tier()), (0, None));
        assert_eq!(activity.wish, Wish::Pinned(Tier::Guided));
    }

    #[test]
    fn long_records_are_halved() {
        let mut activity = running();
        for _ in 0..40 {
            activity.measure(1000, 1e9, 2e9);
        }
        let measured = activity.measured();
        assert!(measured.counted < 12e9);
        assert!((measured.sampled / measured.counted - 0.5).abs() < 1e-3);
    }
}
