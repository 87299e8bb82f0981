//! Code of native programs that is too short for the way to it.
//!
//! Native callers reach code that was compiled for a function through its entry's jump, the room's
//! and the stub's. That is [`WAY`] for each entry: nothing beside a loop, and a third of a function
//! that compares two keys. A trial would tell, but only what is hot gets one, and a flat profile
//! has dozens of such functions, each with a hundredth of the time: SQLite's took 3 % more in all than
//! natively. So whoever is entered often, is short by the samples that its code has, and is not hot
//! enough for a trial goes back to native code without one. The next run knows it, as after a trial.
//!
//! How long an entry takes is bounded from above: by so many samples as there may be by chance where
//! few were seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::debug;
use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::tuning::KnownNative;

use super::choose::HOT;
use super::native::WAY;
use super::region::Phase;
use crate::core::Core;
use crate::tiers::{nanos, process_time};

/// An entry that takes less has nothing to gain that is worth its way.
const SHORT: f64 = 30.0;

/// Part of the program's time that its way has to take for a function to be sent home.
const COSTS: f64 = 0.0005;

/// Least time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Samples of the program before anything is said.
const ENOUGH: u64 = 64;

/// What was seen of the versions that run.
#[derive(Default)]
pub(super) struct Shorts {
    seen: HashMap<u32, Seen>,
    /// Looks so far, and when the last one was.
    looks: u64,
    last: Duration,
    /// Samples of the program then.
    all: u64,
    /// The process's time then.
    time: Nanos,
}

/// Of one version, since it was first looked at.
struct Seen {
    version: VersionId,
    /// The last look at it, and what was read then.
    look: u64,
    count: u32,
    own: u64,
    /// Of what lies between looks that follow each other.
    sums: Sums,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    entries: u64,
    /// Samples in its code, and all.
    own: u64,
    all: u64,
    /// Processor time of the process, ours included: that of threads which begin and end between two
    /// looks is in it, too.
    ran: Nanos,
}

impl Sums {
    /// Whether its entries cost more than they can gain.
    fn is_short(&self) -> bool {
        if self.all < ENOUGH || self.entries == 0 {
            return false;
        }
        let (own, all) = (self.own as f64, self.all as f64);
        let (entries, ran) = (self.entries as f64, self.ran.as_f64());
        // Two deviations above what was seen, and where nothing was, what nine of ten times is.
        let most = ((own + 2.0 * own.sqrt() + 2.0) / all).min(1.0);
        let entry = most * ran / entries;
        entry < SHORT && own < HOT * all && entries * WAY > COSTS * ran
    }
}

impl Core {
    /// Sends the functions home whose code was seen to be short. Under a pass.
    ///
    /// Trials of others may have gone on since the last look, which is most of the time: they say
    /// little less about how often the rest is entered.
    pub(super) fn send_short_home(self: &Arc<Self>, shorts: &mut Shorts) {
        let now = self.events.now();
        if now.saturating_sub(shorts.last) < LOOK {
            return;
        }
        shorts.last = now;
        let time = nanos(process_time());
        let ran = Nanos(
            time.0
                .saturating_sub(std::mem::replace(&mut shorts.time, time).0),
        );
        let all = self.tiers.sampling.usual.load(Ordering::Relaxed);
        let mut running = Vec::new();
        for (&index, record) in self.tiers.versions.lock().iter() {
            let Some(view) = record.versions.published() else {
                continue;
            };
            if view.tier >= Tier::Optimized {
                let own = record.built.iter().filter(|it| it.id == view.id);
                running.push((index, view.id, own.map(|it| it.samples).sum()));
            }
        }
        let new = all.saturating_sub(std::mem::replace(&mut shorts.all, all));
        shorts.looks += 1;
        let look = shorts.looks;
        for (index, version, own) in running {
            // What a trial found out holds.
            let awaits = |id: &FunctionId| self.awaits_native(*id);
            let Some(id) = self.stubs.function(index).filter(awaits) else {
                continue;
            };
            let count = self.tiers.counts.now(id).entries;
            let fresh = || Seen {
                version,
                look,
                count,
                own,
                sums: Sums::default(),
            };
            let seen = shorts.seen.entry(index).or_insert_with(fresh);
            if seen.version != version {
                *seen = fresh();
            }
            let entries = count.wrapping_sub(std::mem::replace(&mut seen.count, count));
            let samples = own.saturating_sub(std::mem::replace(&mut seen.own, own));
            let before = std::mem::replace(&mut seen.look, look);
            // What went on since the last look went on without it, or nobody knows how much of it.
            if before + 1 != look || entries > u32::MAX / 2 {
                continue;
            }
            let sums = &mut seen.sums;
            sums.entries += u64::from(entries);
            sums.own += samples;
            sums.all += new;
            sums.ran = Nanos(sums.ran.0 + ran.0);
            if sums.is_short() && self.send_home(id, version) {
                shorts.seen.remove(&index);
            }
        }
    }

    /// Has native code of a function run again in place of `version`, unless somebody else has to do
    /// with it.
    fn send_home(self: &Arc<Self>, id: FunctionId, version: VersionId) -> bool {
        let _held = {
            let mut control = self.tiers.control();
            let free = control.controller.view(id).is_some_and(|view| {
                let runs = view.version.is_some_and(|(runs, _)| runs == version);
                runs && view.pinned.is_none() && !control.controller.is_paused()
            });
            if !free || !control.controller.hold(id) {
                return false;
            }
            Held(self, id)
        };
        let made = match self.adopt_again(id, false) {
            Ok(made) => made,
            Err(cause) => {
                debug!(%cause, "short code stays");
                return false;
            }
        };
        {
            let mut control = self.tiers.control();
            let runs = self.tiers.versions.seen(id).published();
            if runs.is_none_or(|runs| runs.id != made.version) {
                // Whoever published over it tells, and may have replaced the body.
                return true;
            }
            control.watch(id, false, self.tiers.counts.now(id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, id, made.version, Tier::Native, false);
            controller.bar(id, Tier::Optimized);
            controller.bar(id, Tier::Guided);
        }
        self.note_short(id, made.version);
        true
    }

    /// Keeps it for this run and the next.
    fn note_short(&self, id: FunctionId, version: VersionId) {
        let fingerprint = self.fingerprint(id);
        let bytes = self.native_bytes(id);
        let mut state = self.tuning.state();
        if let (Some(fingerprint), Some(bytes)) = (fingerprint, bytes) {
            let stays = true;
            let known = KnownNative { bytes, stays };
            state.natives.entry(fingerprint).or_insert(known);
        }
        state.compared.insert(id.index());
        if let Some(region) = state.regions.get_mut(&id.index()) {
            (region.version, region.tier) = (version, Tier::Native);
            region.native = true;
            region.phase =
                Phase::Left("it takes less than the way to code that is compiled is worth");
        }
    }
}

/// A function that the policy leaves as it is, until this is dropped.
struct Held<'c>(&'c Core, FunctionId);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.tiers.control().controller.release(self.1);
        self.0.tiers.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::{Nanos, Sums};

    /// Seen for two seconds, at 48 samples a second.
    fn seen(entries: u64, own: u64) -> Sums {
        Sums {
            entries,
            own,
            all: 96,
            ran: Nanos::from_ms(2000),
        }
    }

    #[test]
    fn what_is_entered_often_and_seen_rarely_is_short() {
        // 1.4 ns an entry, of 6 million a second.
        assert!(seen(12_000_000, 1).is_short());
        assert!(seen(12_000_000, 0).is_short());
    }

    #[test]
    fn what_is_long_or_hot_or_hardly_entered_is_not() {
        // A microsecond.
        assert!(!seen(40_000, 2).is_short());
        // As short as above, and a tenth of the time: a trial tells.
        assert!(!seen(100_000_000, 10).is_short());
        // A ten-thousandth of the time at most is to be had.
        assert!(!seen(100_000, 0).is_short());
        assert!(!seen(0, 0).is_short());
        // Too few samples to tell.
        let early = Sums {
            all: 30,
            ..seen(12_000_000, 0)
        };
        assert!(!early.is_short());
    }
}
