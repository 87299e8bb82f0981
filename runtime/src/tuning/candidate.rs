//! Candidates: their choice, compile and trial.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{debug, warn};
use uruk_base::{FunctionId, Inlining, Nanos, Tier};
use uruk_codegen::{Cancellation, Compile, Counters, fatal};
use uruk_tiering::tuning::{Arm, Arms, Candidate, Possible, Root, Shape};
use uruk_tiering::{Publication, Purpose};

use super::short::Shorts;
use crate::error::Error;
use crate::fork::{gate, panics};
use crate::host::clock::nanos;
use crate::host::clock::thread_time;
use crate::tuning::Tuning;
use crate::version::request::Made;
use crate::version::request::Request;

/// Minimal expected cost of a compile.
const COMPILE: Nanos = Nanos::from_ms(15);

/// Maximal callees that are compiled at tier 2 before a function that calls them is tried.
const CALLEES: usize = 8;

/// The progress of a trial from its candidate to its result.
struct Ongoing {
    candidate: Candidate,
    shape: Shape,
    /// Which of the two versions is native code.
    native: Option<Arm>,
    /// Processor time that the trial is expected to cost.
    expected: Nanos,
    /// Processor time of the tuner's thread before it began.
    before: Duration,
}

impl Ongoing {
    /// Whether native code is the candidate. Code slower than native code must be replaced in any
    /// case, so such a trial needs no credit.
    fn is_free(&self) -> bool {
        self.native == Some(Arm::Candidate)
    }

    /// Processor time of the tuner's thread so far.
    fn cost(&self) -> Nanos {
        nanos(thread_time().saturating_sub(self.before))
    }
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
        let Some(trial) = self.plan_trial(&root) else {
            return;
        };
        if !self.tiers.control().controller.hold(root.id) {
            return;
        }
        self.state().held = Some(root.id);
        let made = match trial.is_free() {
            true => self.make_native(root.id),
            false => self.make_candidate(root.id, trial.candidate),
        };
        if !trial.is_free() {
            self.note_compile(root.id, trial.candidate.tier, trial.cost());
        }
        match made {
            Some(made) => {
                drop(pass);
                self.compare(root, &made, &trial, shorts);
            }
            None => {
                self.state().account.lost(trial.cost());
                self.note_untried(root.id, trial.candidate);
            }
        }
        let _pass = gate::enter();
        self.unhold(root.id);
    }

    /// The next trial of a root, if there is a candidate that the account affords.
    fn plan_trial(&self, root: &Root) -> Option<Ongoing> {
        let before = thread_time();
        let shape = self.shape_of(root.id);
        let candidate = self.next_candidate(root, shape)?;
        let native = match root.tier == Tier::Native {
            true => Some(Arm::Incumbent),
            false => (candidate.tier == Tier::Native).then_some(Arm::Candidate),
        };
        // About ten slices of a candidate that is a tenth slower.
        let expected = self.expected_compile(root.id, candidate.tier);
        let expected = Nanos(expected.0 + nanos(root.slice()).0);
        let trial = Ongoing {
            candidate,
            shape,
            native,
            expected,
            before,
        };
        let affordable = trial.is_free() || self.state().account.affords(expected);
        affordable.then_some(trial)
    }

    /// Compares a candidate, which is published if no other version came first, with the root's
    /// version, and takes the result. Not under a pass.
    fn compare(self: &Arc<Self>, root: Root, made: &Made, trial: &Ongoing, shorts: &mut Shorts) {
        let mut root = root;
        let contested = trial.native == Some(Arm::Incumbent);
        let pass = gate::enter();
        self.note_callees(root.id, made.callees);
        let is_known = self.is_known_code(&root, trial, made.object);
        let retired = match made.publication {
            Publication::Published { retired, .. } => retired,
            _ => None,
        };
        let ended = match retired {
            Some(held) if held == root.version && made.counts && !is_known => {
                let beside = match contested {
                    true => self.count_beside(root, made.version),
                    false => Some(root),
                };
                drop(pass);
                root = beside.unwrap_or(root);
                let arms = Arms {
                    root,
                    candidate: made.version,
                    native: trial.native,
                };
                let ended = beside.and_then(|_| self.take_turns(arms, trial.expected, shorts));
                let _pass = gate::enter();
                self.end_turns(root, made.version, ended)
            }
            Some(held) if held == root.version => {
                // Not new, or without a count of entries, as coroutines: it cannot be judged.
                self.note_untried(root.id, trial.candidate);
                self.end_turns(root, made.version, None)
            }
            // Another publication came first: that version stays.
            _ => None,
        };
        let _pass = gate::enter();
        match ended {
            Some(ended) => {
                self.note_trial(
                    &root,
                    trial.candidate,
                    trial.shape,
                    made,
                    &ended,
                    trial.cost(),
                );
            }
            None => {
                let mut state = self.state();
                state.account.lost(trial.cost());
                // Its entries are not counted, so it would not be noticed if they ended.
                let region = state.regions.get_mut(&root.id.index());
                if let Some(region) = region.filter(|_| contested && !is_known) {
                    region.leave("it could not be compared with native code");
                }
            }
        }
        if contested {
            self.go_on_natively(root.id, root.version);
        }
    }

    /// Whether the code made for a trial is identical to the current code or to code tried before.
    fn is_known_code(&self, root: &Root, trial: &Ongoing, object: Option<u64>) -> bool {
        let running = self.versions.object_of(root.id, root.version);
        let mut state = self.state();
        let Some(region) = state.regions.get_mut(&root.id.index()) else {
            return false;
        };
        let known = region.knows_code(running, object.filter(|_| !self.same));
        if known {
            state.equal += 1;
            if let Some(change) = trial.candidate.change {
                state.advice.learn(trial.shape, change, 1.0);
            }
        }
        known
    }

    /// The expected cost of compiling a root: that of its last compile for a trial, or if there was
    /// none, the policy's estimate.
    pub(super) fn expected_compile(&self, id: FunctionId, tier: Tier) -> Nanos {
        let last = {
            let state = self.state();
            let region = state.regions.get(&id.index());
            let last = region.and_then(|region| region.compile_time(tier));
            last.unwrap_or_default()
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
            region.compiled(tier, cost);
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

    /// The next candidate on a root. Without one it is settled, and the next run knows that.
    fn next_candidate(&self, root: &Root, shape: Shape) -> Option<Candidate> {
        let native = self.has_native(root.id);
        let possible = Possible {
            native,
            // A function with native code has its guided code compared with that.
            guided: !native && self.may_be_guided(root.id),
            contracted: self.choices.how(Tier::Optimized).contract,
            values: !self.steady(root.id).is_empty(),
            same: self.same,
        };
        let fingerprint = self.fingerprint(root.id);
        let mut state = self.state();
        let state = &mut *state;
        let region = state.regions.get_mut(&root.id.index())?;
        let next = region.next(root, shape, possible, &mut state.advice);
        if next.is_none()
            && let Some((fingerprint, known)) = fingerprint.zip(region.settled())
        {
            state.known.insert(fingerprint, known);
        }
        next
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
