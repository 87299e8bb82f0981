//! Short-term profiling of a root: nearly constant arguments, and the directions of branches.
//!
//! Its code takes the slot as a candidate does, and the previous version returns afterwards in any
//! case. Its cost is charged to the account: probes gain nothing by themselves.

use std::sync::Arc;
use std::time::Duration;

use uruk_base::{FunctionId, Nanos, Tier};
use uruk_codegen::Counters;
use uruk_tiering::tuning::{Region, Root};
use uruk_tiering::{Publication, Purpose};

use crate::fork::gate;
use crate::host::clock::nanos;
use crate::host::clock::thread_time;
use crate::tuning::Tuning;
use crate::version::request::Made;
use crate::version::request::Request;

/// Time between two checks of the counts.
const LOOK: Duration = Duration::from_millis(10);

/// Assumed share of the program's time that probes cost while they count.
const PROBES: f64 = 0.3;

impl Tuning {
    /// Whether a root was profiled, or cannot be.
    pub(super) fn was_counted(&self, id: FunctionId) -> bool {
        let state = self.state();
        let region = state.regions.get(&id.index());
        self.same || region.is_none_or(Region::is_profiled)
    }

    /// Profiles a root, if the account affords the expected cost.
    pub(super) fn count_root(self: &Arc<Self>, root: Root) {
        let pass = gate::enter();
        let before = thread_time();
        let expected = self.expected_compile(root.id, Tier::Optimized);
        let affords = self.state().account.affords(expected);
        if !affords || !self.tiers.control().controller.hold(root.id) {
            return;
        }
        self.state().held = Some(root.id);
        if let Some(region) = self.state().regions.get_mut(&root.id.index()) {
            region.profile();
        }
        let request = Request {
            ahead: false,
            function: root.id,
            version: self.versions.ids.next(),
            tier: Tier::Optimized,
            purpose: Purpose::Change,
        };
        let how = self.choices.how(Tier::Optimized).counting(Counters::Full);
        let made = self.make_for_trial(request, how, false);
        let cost = nanos(thread_time().saturating_sub(before));
        self.note_compile(root.id, Tier::Optimized, cost);
        drop(pass);
        let published = made.filter(|made| match made.publication {
            Publication::Published { retired, .. } => retired == Some(root.version),
            _ => false,
        });
        let age = published.map_or(Duration::ZERO, |made| self.let_count(root, &made));
        let _pass = gate::enter();
        let own = nanos(thread_time().saturating_sub(before));
        let probed = nanos(age).as_f64() * PROBES;
        let cost = Nanos::from_f64(own.as_f64() + probed);
        self.state().account.lost(cost);
        self.unhold(root.id);
    }

    /// Waits until a version with probes has counted enough, then restores the previous one;
    /// returns the time it took.
    fn let_count(self: &Arc<Self>, root: Root, made: &Made) -> Duration {
        let mut age = Duration::ZERO;
        if let Some(words) = &made.words {
            loop {
                let pass = gate::enter();
                if self.is_stopping() || self.tiers.profiles.take_up(root.id, words, age) {
                    break;
                }
                drop(pass);
                self.let_run(LOOK);
                age += LOOK;
            }
        }
        let _pass = gate::enter();
        self.end_turns(root, made.version, None);
        age
    }
}
