//! Code of native programs that is too short for the cost of its stub.
//!
//! Native callers reach compiled code of a function through its entry's jump, the room's and the
//! stub's. That costs [`WAY`] for each entry: negligible for a loop, and a third of a function that
//! compares two keys. A trial would show it, but only hot functions get one, and a flat profile has
//! dozens of such functions, each with a hundredth of the time: SQLite's took 3 % more in all than
//! natively. So a function returns to native code without a trial if it is entered often, is short
//! by the samples in its code, and is not hot enough for a trial. The next run knows it, as after a
//! trial.
//!
//! The time of an entry is bounded from above: by the number of samples possible by chance if few
//! were seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::debug;
use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::tuning::{KnownNative, WAY};

use super::choose::HOT;
use crate::host::clock::{nanos, process_time};
use crate::tuning::Tuning;

/// Below this time, an entry's possible gain is less than its way.
const SHORT: f64 = 30.0;

/// Minimal share of the program's time that its way takes, for a return to native code.
const COSTS: f64 = 0.0005;

/// Minimal time between two checks.
const LOOK: Duration = Duration::from_millis(100);

/// Minimal samples of the program for a decision.
const ENOUGH: u64 = 64;

/// Measures of the current versions.
#[derive(Default)]
pub(super) struct Shorts {
    seen: HashMap<u32, Seen>,
    /// Number of checks so far, and the time of the last one.
    looks: u64,
    last: Duration,
    /// Samples of the program at that time.
    all: u64,
    /// The process's processor time at that time.
    time: Nanos,
}

/// Measures of one version, since its first check.
struct Seen {
    version: VersionId,
    /// Its last check, and the count read then.
    look: u64,
    count: u32,
    own: u64,
    /// Sums over intervals between successive checks.
    sums: Sums,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    entries: u64,
    /// Samples in its code, and all samples.
    own: u64,
    all: u64,
    /// Processor time of the process, the runtime's included: threads that begin and end between
    /// two checks are counted, too.
    ran: Nanos,
}

impl Sums {
    /// Whether the way of its entries costs more than they can gain.
    fn is_short(&self) -> bool {
        if self.all < ENOUGH || self.entries == 0 {
            return false;
        }
        let (own, all) = (self.own as f64, self.all as f64);
        let (entries, ran) = (self.entries as f64, self.ran.as_f64());
        // Two deviations above the count; without samples, the bound that holds in nine of ten
        // cases.
        let most = ((own + 2.0 * own.sqrt() + 2.0) / all).min(1.0);
        let entry = most * ran / entries;
        entry < SHORT && own < HOT * all && entries * WAY > COSTS * ran
    }
}

impl Tuning {
    /// Returns functions to native code whose code is short. Under a pass.
    ///
    /// Trials of others may have run since the last check, which is most of the time: the entry
    /// rates of other functions are little affected.
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
        let all = self.tiers.sampling.usual();
        let mut running = Vec::new();
        for (&index, record) in self.versions.lock().iter() {
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
            // The result of a trial has precedence.
            let awaits = |id: &FunctionId| self.awaits_native(*id);
            let Some(id) = self.stubs.function(index).filter(awaits) else {
                continue;
            };
            let count = self.counts.now(id).entries;
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
            // The version missed the last check, or the counter may have wrapped.
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

    /// Restores native code of a function in place of `version`, unless another operation is in
    /// progress on it.
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
            PolicyHold(self, id)
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
            let runs = self.versions.seen(id).published();
            if runs.is_none_or(|runs| runs.id != made.version) {
                // The later publication reports itself, and may have replaced the body.
                return true;
            }
            control.watch(id, false, self.counts.now(id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, id, made.version, Tier::Native, false);
            controller.bar(id, Tier::Optimized);
            controller.bar(id, Tier::Guided);
        }
        self.note_short(id, made.version);
        true
    }

    /// Keeps the decision for this run and the next.
    fn note_short(&self, id: FunctionId, version: VersionId) {
        let fingerprint = self.fingerprint(id);
        let bytes = self.native_bytes(id);
        let mut state = self.state();
        if let (Some(fingerprint), Some(bytes)) = (fingerprint, bytes) {
            let stays = true;
            let known = KnownNative { bytes, stays };
            state.natives.entry(fingerprint).or_insert(known);
        }
        state.compared.insert(id.index());
        if let Some(region) = state.regions.get_mut(&id.index()) {
            let why = "it takes less than the way to code that is compiled is worth";
            region.leave_to_native(version, why);
        }
    }
}

/// A function that the policy must leave unchanged, until this is dropped.
struct PolicyHold<'c>(&'c Tuning, FunctionId);

impl Drop for PolicyHold<'_> {
    fn drop(&mut self) {
        self.0.tiers.control().controller.release(self.1);
        self.0.tiers.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::{Nanos, Sums};

    /// Measures of two seconds, at 48 samples a second.
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
        // 1.4 ns an entry, at 6 million a second.
        assert!(seen(12_000_000, 1).is_short());
        assert!(seen(12_000_000, 0).is_short());
    }

    #[test]
    fn what_is_long_or_hot_or_hardly_entered_is_not() {
        // A microsecond an entry.
        assert!(!seen(40_000, 2).is_short());
        // As short as above, and a tenth of the time: a trial decides.
        assert!(!seen(100_000_000, 10).is_short());
        // At most a ten-thousandth of the time can be gained.
        assert!(!seen(100_000, 0).is_short());
        assert!(!seen(0, 0).is_short());
        // Too few samples for a decision.
        let early = Sums {
            all: 30,
            ..seen(12_000_000, 0)
        };
        assert!(!early.is_short());
    }
}
