//! The choice of the next function to tune.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::tuning::{Before, Check, Region, Root, RootFacts, TuningUnit};

use super::clock::{GuestClock, Reading};
use super::short::Shorts;
use crate::events::Event;
use crate::fork::gate;
use crate::tuning::Tuning;

/// Minimal share of the samples since the last checks for a root.
pub(super) const HOT: f64 = 0.05;

/// Number of samples after which a function's heat has decayed to 1/e, however long they took.
const FADE: f64 = 25.0;

/// Minimal share of the samples for comparing code with the native code it replaced.
const WARM: f64 = 0.01;

/// Minimal decayed samples before functions are ranked.
const ENOUGH: f64 = 4.0;

/// Minimal age of a version before it is tuned: the policy may still replace it, and its first
/// entries find cold caches.
const AGE: Duration = Duration::from_millis(150);

/// The thread's state between checks.
#[derive(Default)]
pub(super) struct Looks {
    /// Samples by function so far.
    samples: HashMap<u32, u64>,
    /// Number of all samples taken.
    taken: u64,
    /// Decayed samples by function.
    heat: HashMap<u32, f64>,
    /// The published version of each function, and the time of its first check.
    since: HashMap<u32, (VersionId, Duration)>,
    clock: Option<(GuestClock, Reading)>,
    /// Entries of roots at the last look.
    entries: HashMap<u32, u32>,
    work: u64,
    shorts: Shorts,
}

/// The result of a check.
#[derive(Debug, Clone, Copy)]
pub(super) enum CheckResult {
    /// A candidate was tried.
    Root,
    /// Hot functions exist, but no candidate is left.
    Hot,
    Nothing,
}

/// A function that was sampled.
struct Sampled {
    index: u32,
    version: VersionId,
    tier: Tier,
}

impl Tuning {
    /// Does one check, and one trial if a candidate is left.
    pub(super) fn tune_once(self: &Arc<Self>, looks: &mut Looks) -> CheckResult {
        let (root, found) = {
            let _pass = gate::enter();
            let now = self.events.now();
            let hottest = self.hottest_now(looks, now);
            let found = match hottest.is_empty() {
                true => CheckResult::Nothing,
                false => CheckResult::Hot,
            };
            (self.look_for_root(looks, now, hottest), found)
        };
        if let Some(root) = root {
            let (clock, before) = {
                let _pass = gate::enter();
                (GuestClock::new(), self.state().account.time())
            };
            let begin = clock.read();
            self.tune_root(root, &mut looks.shorts);
            let _pass = gate::enter();
            // The program ran on during the compile; turns are charged when they end.
            let ran = clock.read().since(&begin);
            let account = &mut self.state().account;
            let counted = account.time().0.saturating_sub(before.0);
            account.ran(Nanos(ran.0.saturating_sub(counted)));
            // The interval before the trial is no valid reading any more.
            looks.clock = None;
            return CheckResult::Root;
        }
        found
    }

    fn look_for_root(
        self: &Arc<Self>,
        looks: &mut Looks,
        now: Duration,
        hottest: Vec<Sampled>,
    ) -> Option<Root> {
        let (ran, work) = self.read_clocks(looks);
        self.state().account.ran(ran);
        self.send_short_home(&mut looks.shorts);
        // Entries of a root that was no candidate at the last check cover a longer time than `ran`.
        let entries = std::mem::take(&mut looks.entries);
        let mut found: Option<(Root, bool)> = None;
        for it in hottest {
            let Sampled {
                index,
                version,
                tier,
            } = it;
            let id = self.stubs.function(index)?;
            let count = self.counts.now(id).entries;
            looks.entries.insert(index, count);
            let before = entries.get(&index);
            let entered = before.map_or(0, |&before| count.wrapping_sub(before));
            if ran == Nanos::ZERO || entered > u32::MAX / 2 {
                continue;
            }
            let (unit, units) = match work {
                0 => (TuningUnit::Entries, u64::from(entered)),
                work => (TuningUnit::Work, work),
            };
            let per = |units| Nanos(ran.0.checked_div(units).unwrap_or(u64::MAX));
            let (per_unit, per_entry) = (per(units), per(u64::from(entered)));
            let root = Root {
                id,
                version,
                tier,
                per_unit,
                unit,
                per_entry,
            };
            // Native code counts nothing: its entry rate is taken from the comparison.
            let (root, entered) = match tier {
                Tier::Native => match self.as_it_was_compared(&root) {
                    Some(root) => (root, 1),
                    None => continue,
                },
                _ => (root, entered),
            };
            let since = looks.since.get(&index).map(|&(_, since)| since);
            let old = since.is_some_and(|since| now.saturating_sub(since) >= AGE);
            if !self.is_open(&root, entered, old) {
                continue;
            }
            // Code that may be slower than the program's native code has priority over code that
            // may get faster.
            let urgent = tier > Tier::Native && self.awaits_native(id);
            if found.is_none_or(|(_, before)| urgent && !before) {
                found = Some((root, urgent));
            }
        }
        found.map(|(root, _)| root)
    }

    /// Time of the program and units of work since the last check.
    fn read_clocks(&self, looks: &mut Looks) -> (Nanos, u64) {
        let ran = looks
            .clock
            .as_ref()
            .map_or(Nanos::ZERO, |(clock, before)| clock.read().since(before));
        let clock = GuestClock::new();
        let reading = clock.read();
        let fresh = looks.clock.replace((clock, reading)).is_none();
        if fresh {
            looks.entries.clear();
        }
        let total = self.work.load(std::sync::atomic::Ordering::Relaxed);
        let work = total - std::mem::replace(&mut looks.work, total);
        (ran, if fresh { 0 } else { work })
    }

    /// Recently sampled functions above tier 1, the hottest first, and those with native code over
    /// which candidates are left.
    fn hottest_now(&self, looks: &mut Looks, now: Duration) -> Vec<Sampled> {
        let mut sampled = Vec::new();
        let contested: HashSet<u32> = {
            let mut state = self.state();
            let now = state.account.time();
            for region in state.regions.values_mut() {
                region.reopen_in_time(now);
            }
            let all = state.regions.iter();
            let open = all.filter(|(_, region)| region.is_contested());
            open.map(|(&index, _)| index).collect()
        };
        let taken = self.tiers.sampling.taken();
        let new = taken - std::mem::replace(&mut looks.taken, taken);
        let keep = (-(new as f64) / FADE).exp();
        for (&index, record) in self.versions.lock().iter() {
            let live: u64 = record.built.iter().map(|version| version.samples).sum();
            let all = live + record.past.samples;
            if all == 0 {
                continue;
            }
            let before = looks.samples.insert(index, all).unwrap_or(0);
            let heat = looks.heat.entry(index).or_default();
            *heat = *heat * keep + all.saturating_sub(before) as f64;
            let Some(view) = record.versions.published() else {
                continue;
            };
            let since = looks.since.entry(index).or_insert((view.id, now));
            if since.0 != view.id {
                *since = (view.id, now);
            }
            if view.tier > Tier::Baseline || view.tier == Tier::Native && contested.contains(&index)
            {
                let (version, tier) = (view.id, view.tier);
                sampled.push((
                    *heat,
                    Sampled {
                        index,
                        version,
                        tier,
                    },
                ));
            }
        }
        let total: f64 = looks.heat.values().sum();
        if total < ENOUGH {
            return Vec::new();
        }
        let is_hot = |heat: f64, it: &Sampled| {
            let id = || self.stubs.function(it.index);
            let awaits = || id().is_some_and(|id| self.awaits_native(id));
            heat >= HOT * total || it.tier != Tier::Native && heat >= WARM * total && awaits()
        };
        sampled.retain(|(heat, it)| is_hot(*heat, it));
        sampled.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        sampled.into_iter().map(|(_, it)| it).collect()
    }

    /// Whether a function's code replaced native code, and was not compared with it yet.
    pub(super) fn awaits_native(&self, id: FunctionId) -> bool {
        let compared = || {
            let state = self.state();
            let region = state.regions.get(&id.index());
            let before = || state.compared.contains(&id.index());
            region.map_or_else(before, Region::is_compared_with_native)
        };
        self.has_native(id) && !compared()
    }

    /// A root whose native code runs, with the measures of its comparison.
    fn as_it_was_compared(&self, root: &Root) -> Option<Root> {
        self.state()
            .regions
            .get(&root.id.index())?
            .as_compared(root)
    }

    /// Whether candidates are left for a root.
    fn is_open(self: &Arc<Self>, root: &Root, entered: u32, old: bool) -> bool {
        let id = root.id;
        // Continuations are code of other functions, and run once.
        if self.function(id).is_none_or(|it| it.origin.is_some()) {
            return false;
        }
        let fit = !self.versions.is_fixed(id);
        let free = {
            let control = self.tiers.control();
            let view = control.controller.view(id);
            view.is_some_and(|view| !view.in_progress && view.pinned.is_none())
        };
        let fingerprint = self.fingerprint(id);
        let profiled = self.tiers.profiles.knows(id);
        let has_native = self.has_native(id);
        let mut state = self.state();
        let progress = fingerprint.and_then(|it| state.progress.remove(&it));
        let compared_before = state.compared.contains(&id.index());
        let before = Before {
            profiled,
            compared_with_native: compared_before,
            progress: progress.as_ref(),
            known: fingerprint.and_then(|it| state.known.get(&it).copied()),
        };
        let variant = state.variants.get(&id.index()).copied();
        let variant = variant.unwrap_or(self.choices.variant());
        let regions = &mut state.regions;
        let region = regions
            .entry(id.index())
            .or_insert_with(|| Region::new(root, variant, &before));
        let facts = RootFacts {
            entered,
            has_native,
            compared_before,
            is_free: fit && free && old,
        };
        let check = region.check(root, facts);
        if check == Check::Drifted {
            state.drifted += 1;
            drop(state);
            let (at, function) = (self.events.now(), self.name_of(id));
            self.events.tell(|| Event::Drifted { id, function, at });
        }
        check == Check::Due
    }
}
