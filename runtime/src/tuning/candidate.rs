//! Candidates: their choice, compile and trial.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{debug, warn};
use uruk_base::{Change, FunctionId, Inlining, Nanos, Tier, Variant};
use uruk_codegen::{Cancellation, Compile, Counters, fatal};
use uruk_tiering::tuning::{Arm, Known, Shape};
use uruk_tiering::{Publication, Purpose};

use super::region::{Phase, Region};
use super::short::Shorts;
use crate::error::Error;
use crate::fork::{gate, panics};
use crate::host::clock::nanos;
use crate::host::clock::thread_time;
use crate::tuning::Tuning;
use crate::tuning::region::Root;
use crate::version::request::Made;
use crate::version::request::Request;

/// Minimal expected cost of a compile.
const COMPILE: Nanos = Nanos::from_ms(15);

/// Maximal trials of one root, after which it is settled, even if candidates are left.
const TRIALS: usize = 80;

/// Maximal callees that are compiled at tier 2 before a function that calls them is tried.
const CALLEES: usize = 8;

/// A version to try on a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) tier: Tier,
    pub(super) variant: Variant,
    /// The change of the variant; `None` for code of tier 2 in place of tier 3's, for the reverse,
    /// and for native code.
    pub(super) change: Option<Change>,
}

impl Tuning {
    /// Tries the next candidate on `root`, if there is one and the account affords its expected
    /// cost.
    pub(super) fn tune_root(self: &Arc<Self>, root: Root, shorts: &mut Shorts) {
        let pass = gate::enter();
        let contested = root.tier == Tier::Native;
        let compared = !contested && !self.awaits_native(root.id);
        if compared && !self.was_counted(root.id) {
            drop(pass);
            return self.count_root(root);
        }
        let before = thread_time();
        let shape = self.shape_of(root.id);
        let Some(candidate) = self.next_candidate(root, shape) else {
            return;
        };
        let native = match contested {
            true => Some(Arm::Incumbent),
            false => (candidate.tier == Tier::Native).then_some(Arm::Candidate),
        };
        let slice = super::trial::slice(root.per_unit);
        // About ten slices of a candidate that is a tenth slower.
        let expected = self.expected_compile(root.id, candidate.tier);
        let expected = Nanos(expected.0 + nanos(slice).0);
        // Code slower than native code must be replaced in any case.
        let free = native == Some(Arm::Candidate);
        if !free && !self.state().account.affords(expected) {
            return;
        }
        if !self.tiers.control().controller.hold(root.id) {
            return;
        }
        self.state().held = Some(root.id);
        let made = match free {
            true => self.make_native(root.id),
            false => self.make_candidate(root.id, candidate),
        };
        if !free {
            let cost = nanos(thread_time().saturating_sub(before));
            self.note_compile(root.id, candidate.tier, cost);
        }
        let Some(made) = made else {
            let cost = nanos(thread_time().saturating_sub(before));
            self.state().account.lost(cost);
            self.unhold(root.id);
            return self.note_untried(root.id, candidate);
        };
        self.note_callees(root.id, made.callees);
        let is_known = self.is_known_code(root, shape, candidate, made.object);
        let retired = match made.publication {
            Publication::Published { retired, .. } => retired,
            _ => None,
        };
        let mut root = root;
        let ended = match retired {
            Some(held) if held == root.version && made.counts && !is_known => {
                let beside = match contested {
                    true => self.count_beside(root, made.version),
                    false => Some(root),
                };
                drop(pass);
                root = beside.unwrap_or(root);
                let ended = beside.and_then(|root| {
                    self.take_turns(root, made.version, slice, expected, native, shorts)
                });
                let _pass = gate::enter();
                self.end_turns(root, made.version, ended)
            }
            Some(held) if held == root.version => {
                // Not new, or without a count of entries, as coroutines: it cannot be judged.
                self.note_untried(root.id, candidate);
                self.end_turns(root, made.version, None)
            }
            // Another publication came first: that version stays.
            _ => None,
        };
        let _pass = gate::enter();
        let cost = nanos(thread_time().saturating_sub(before));
        match ended {
            Some(ended) => self.note_trial(root, candidate, shape, &made, &ended, cost),
            None => {
                let mut state = self.state();
                state.account.lost(cost);
                // Its entries are not counted, so it would not be noticed if they ended.
                let region = state.regions.get_mut(&root.id.index());
                if let Some(region) = region.filter(|_| contested && !is_known) {
                    region.phase = Phase::Left("it could not be compared with native code");
                }
            }
        }
        if contested {
            self.go_on_natively(root.id, root.version);
        }
        self.unhold(root.id);
    }

    /// The expected cost of compiling a root: that of its last compile for a trial, or if there was
    /// none, the policy's estimate.
    pub(super) fn expected_compile(&self, id: FunctionId, tier: Tier) -> Nanos {
        let last = {
            let state = self.state();
            let region = state.regions.get(&id.index());
            let last = region.and_then(|region| region.compile.get(&tier));
            last.copied().unwrap_or_default()
        };
        let expected = match last {
            Nanos::ZERO => {
                let control = self.tiers.control();
                control.controller.expected_cost(id, tier)
            }
            last => last,
        };
        COMPILE.max(expected)
    }

    pub(super) fn note_compile(&self, id: FunctionId, tier: Tier, cost: Nanos) {
        if let Some(region) = self.state().regions.get_mut(&id.index()) {
            region.compile.insert(tier, cost);
        }
    }

    /// Returns control of a function to the policy.
    pub(super) fn unhold(&self, id: FunctionId) {
        self.state().held = None;
        self.tiers.control().controller.release(id);
        self.tiers.wake();
    }

    /// The function's shape, by which results are generalized.
    fn shape_of(&self, id: FunctionId) -> Shape {
        let control = self.tiers.control();
        let facts = control.controller.facts(id);
        Shape::of(&facts.unwrap_or_default())
    }

    /// Whether code of tier 3 can be made of a root.
    fn may_be_guided(&self, id: FunctionId) -> bool {
        let most = self.tiers.control().controller.config().max_tier;
        most == Tier::Guided && self.tiers.profiles.knows(id)
    }

    fn next_candidate(&self, root: Root, shape: Shape) -> Option<Candidate> {
        let contract = self.choices.how(Tier::Optimized).contract;
        let steady = !self.steady(root.id).is_empty();
        let fingerprint = self.fingerprint(root.id);
        let is_native = self.has_native(root.id);
        // A function with native code has its guided code compared with that.
        let guidable = !is_native && self.may_be_guided(root.id);
        let mut state = self.state();
        let state = &mut *state;
        let (advice, known) = (&mut state.advice, &mut state.known);
        let region = state.regions.get_mut(&root.id.index())?;
        // Candidates over native code have the tier of the slower code.
        let contested = root.tier == Tier::Native;
        let tier = match region.lost.filter(|_| contested) {
            Some(lost) => lost.root.tier,
            // The function was replaced meanwhile, or reset: the slower code is forgotten.
            None if contested => return None,
            None => root.tier,
        };
        if is_native && !region.native && !contested {
            return Some(Candidate {
                tier: Tier::Native,
                variant: region.variant,
                change: None,
            });
        }
        if self.same && (tier != Tier::Guided || region.lowered) {
            return Some(Candidate {
                tier: root.tier,
                variant: region.variant,
                change: None,
            });
        }
        let full = region.trials.len() >= TRIALS;
        let (variant, callees) = (region.variant, region.callees);
        // A change without effect is not worth a trial.
        let allowed = |change| match change {
            Change::Contract => contract,
            Change::Start(_) => shape.loops > 0,
            Change::Values => steady || variant.values,
            Change::Order => tier == Tier::Guided || variant.static_order,
            Change::Callee(number) => {
                u32::from(number) < callees && variant.inlining != Inlining::None
            }
            _ => true,
        };
        loop {
            let other = match () {
                () if guidable && !contested && !region.raised => Some(Tier::Guided),
                () if tier == Tier::Guided && !region.lowered => Some(Tier::Optimized),
                () => None,
            };
            if let Some(tier) = other {
                return Some(Candidate {
                    tier,
                    variant,
                    change: None,
                });
            }
            let next = advice.next(shape, variant, &region.tried, allowed);
            if let Some((change, variant)) = next.filter(|_| !full) {
                return Some(Candidate {
                    tier,
                    variant,
                    change: Some(change),
                });
            }
            let rolled = region.rolled_apart(tier, shape.loops);
            if let Some(variant) = rolled.filter(|_| !full && !contested) {
                return Some(Candidate {
                    tier: Tier::Optimized,
                    variant,
                    change: None,
                });
            }
            if full || !region.goes_on_finely() {
                break;
            }
        }
        region.phase = Phase::Settled;
        region.drift = Default::default();
        if let Some(fingerprint) = fingerprint.filter(|_| region.lost.is_none()) {
            let Region { variant, ratio, .. } = *region;
            let settled = true;
            known.insert(
                fingerprint,
                Known {
                    variant,
                    ratio,
                    settled,
                },
            );
        }
        None
    }

    /// Compiles and publishes a candidate, under a pass; `None` if that failed.
    fn make_candidate(self: &Arc<Self>, id: FunctionId, candidate: Candidate) -> Option<Made> {
        let request = Request {
            ahead: false,
            function: id,
            version: self.versions.ids.next(),
            tier: candidate.tier,
            purpose: Purpose::Change,
        };
        let mut how = self.choices.how(candidate.tier).counting(Counters::Entry);
        if candidate.tier == Tier::Guided {
            how = self.guide(id, how);
        }
        let how = how.varied(candidate.variant);
        let apart = candidate.variant.inlining == Inlining::None || candidate.variant.apart != 0;
        self.make_for_trial(request, how, apart)
    }

    /// Compiles and publishes code for a measurement, under a pass, after its callees if it will
    /// call them; `None` if that failed.
    pub(super) fn make_for_trial(
        self: &Arc<Self>,
        request: Request,
        how: Compile,
        apart: bool,
    ) -> Option<Made> {
        let cancel = Cancellation::new();
        self.state().cancel = Some(cancel.clone());
        let on_fatal = {
            let tuning = Arc::clone(self);
            move |message: &str| {
                tuning.versions.of(request.function).fail(request.version);
                tuning.lost.store(true, Ordering::Relaxed);
                warn!(message, "LLVM gave up; nothing is tuned any more");
                panics::contained(|| tuning.tell_lost(message));
                gate::leave_lost();
            }
        };
        let made: Result<Made, Error> = fatal::guard(on_fatal, || {
            panics::caught(|| {
                if apart {
                    self.bring_callees_up(request.function);
                }
                self.make_as(request, how, None, &cancel)
            })
        });
        self.state().cancel = None;
        made.inspect_err(|cause| debug!(%cause, "a candidate was not made"))
            .ok()
    }

    /// Compiles the callees of a function at tier 2. Functions that are inlined in it may never
    /// have been worth a tier of their own: a candidate that calls them would be measured with
    /// their code of tier 1.
    fn bring_callees_up(self: &Arc<Self>, id: FunctionId) {
        for &callee in self.versions.bodies(id).iter().take(CALLEES) {
            let tier = self.versions.tier(callee);
            if callee == id || tier.is_some_and(|tier| tier > Tier::Baseline) {
                continue;
            }
            let version = self.versions.ids.next();
            if let Err(cause) = self.compile_at(callee, version, Tier::Optimized) {
                debug!(%cause, "a callee stays where it is");
            }
        }
    }
}

/// A fraction of a time.
pub(super) fn part(time: Duration, part: f64) -> Nanos {
    Nanos::from_f64(nanos(time).as_f64() * part.max(0.0))
}
