//! The second half of a commit: publishes the staged code.
//!
//! Publications are excluded meanwhile ([`Committing`]). Nothing here can fail, with one exception:
//! a function that was removed is left out. While the gate is closed, the stores of the set are
//! done. No LLVM, no callback, and no work that grows with the number of functions runs then,
//! except [`Move::fill`](super::migrate::Move::fill) of an embedder, where storage changes. Callers
//! at the gate wait for that long.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uruk_base::{FunctionId, Tier, VersionId};
use uruk_stubs::{Gate, ReadyGate};
use uruk_tiering::{CommitError, Committed, EntryAddress, FirstCode, Next, Stage};

use crate::code::publications::Committing;
use crate::code::records::Versions;
use crate::error::Error;
use crate::events::Event;
use crate::host::clock::nanos;
use crate::replace::state::Replacing;
use crate::version::counts::Count;
use crate::version::request::Made;

use super::commit::{Change, Way, What};
use super::dependents::Plans;
use super::prepare::BuiltCode;
use super::state::{Old, PriorState};
use crate::error::replace::ReplaceError;

/// The barrier that holds back calls of a set.
pub(super) enum Barrier {
    /// No barrier: the set is one slot.
    Store,
    Ready(ReadyGate),
    Closed(Gate, Instant),
}

impl Barrier {
    pub(super) fn close(self) -> Barrier {
        match self {
            Barrier::Ready(gate) => {
                let since = Instant::now();
                Barrier::Closed(gate.close(), since)
            }
            other => other,
        }
    }

    /// Opens the gate; returns how long it was closed.
    fn open(self) -> Duration {
        match self {
            Barrier::Closed(gate, since) => {
                // Every member is named once and gated, so opening without changes cannot fail.
                let _ = gate.open(&[]);
                since.elapsed()
            }
            Barrier::Store | Barrier::Ready(_) => Duration::ZERO,
        }
    }
}

/// A staged set: its code is exchanged by this commit only.
pub(super) struct Staged {
    stages: HashMap<FunctionId, Stage>,
    pub(super) barrier: Barrier,
}

/// A function that is about to be committed.
struct PendingCommit {
    id: FunctionId,
    stage: Stage,
    next: Next,
    /// The new version.
    fresh: Option<VersionId>,
    news: Option<News>,
}

/// A function that was committed.
struct Stepped {
    id: FunctionId,
    outcome: Result<Committed, CommitError>,
    fresh: Option<VersionId>,
    news: Option<News>,
}

/// Code that a commit leaves unused; retired once the gate is open.
#[derive(Default)]
pub(super) struct Garbage {
    pub(super) released: Vec<(FunctionId, VersionId)>,
    pub(super) old: Vec<Old>,
}

impl Garbage {
    /// Takes the fallback versions of these functions.
    pub(super) fn release_fallbacks(
        &mut self,
        versions: &Versions,
        of: impl IntoIterator<Item = FunctionId>,
    ) {
        for id in of {
            let released = versions.seen(id).release_fallback();
            self.released.extend(released.map(|version| (id, version)));
        }
    }
}

impl Replacing {
    /// Stages functions, and makes ready the gate before them if they need one.
    pub(super) fn stage(&self, mut ids: Vec<FunctionId>, alone: bool) -> Result<Staged, Error> {
        ids.sort_unstable_by_key(|id| id.index());
        let mut stages = HashMap::with_capacity(ids.len());
        for &id in &ids {
            let stage = self.versions.of(id).stage().map_err(|cause| {
                Error::from(ReplaceError::Protocol {
                    function: self.name_of(id).to_owned(),
                    cause,
                })
            })?;
            stages.insert(id, stage);
        }
        let barrier = match alone && ids.len() == 1 {
            true => Barrier::Store,
            false => Barrier::Ready(self.stubs.ready_gate(&ids)?),
        };
        Ok(Staged { stages, barrier })
    }

    /// Opens the gate to the old code, and drops the publications that were held back.
    pub(super) fn abandon(self: &Arc<Self>, staged: Staged) {
        drop(staged.barrier);
        for (id, stage) in staged.stages {
            let versions = self.versions.of(id);
            for ticket in stage.abandon() {
                // The thread that made it was told that it is late; a better version is requested
                // again.
                versions.cancel(ticket.version);
                self.retire_version(id, ticket.version);
            }
        }
    }

    /// Steps 4 to 8.
    #[expect(clippy::too_many_arguments, reason = "what a commit is about")]
    pub(super) fn publish_set(
        self: &Arc<Self>,
        changes: Vec<Change>,
        staged: Staged,
        way: &Way,
        members: &HashSet<FunctionId>,
        plans: &Plans,
        committing: &mut Committing<'_>,
        garbage: &mut Garbage,
    ) -> Published {
        let Staged {
            mut stages,
            barrier,
        } = staged;
        let mut before = Vec::new();
        for change in &changes {
            let old = self.body(change.id);
            self.set_body(change.id, change.body.clone());
            self.speculation.forget(change.id);
            before.extend(old.map(|body| (change.id, body)));
        }
        for (module, plan) in plans {
            module.set_plan(Arc::clone(plan));
        }
        let number = committing.outdate(members.iter().copied());
        let steps = changes.into_iter().filter_map(|change| {
            let stage = stages.remove(&change.id)?;
            Some(self.ready(change.id, stage, change.next))
        });
        let steps: Vec<PendingCommit> = steps.collect();
        let mut stepped = Vec::with_capacity(steps.len());
        let barrier = barrier.close();
        stepped.extend(steps.into_iter().map(|step| {
            Stepped {
                id: step.id,
                outcome: step
                    .stage
                    .commit(step.next, |entry| self.store(step.id, entry)),
                fresh: step.fresh,
                news: step.news,
            }
        }));
        way.moves.iter().for_each(|step| self.relocate(&step.moved));
        way.back.iter().for_each(|moved| self.move_back(moved));
        let closed = barrier.open();
        let (told, mut kept) = self.settle(stepped, garbage);
        let before = before
            .into_iter()
            .filter(|(id, _)| members.contains(id))
            .map(|(id, body)| PriorState {
                id,
                body,
                kept: kept.remove(&id),
            });
        let before = before.collect();
        // Code that dependents ran before: no rollback restores it.
        garbage.old.extend(kept.into_values());
        Published {
            before,
            number,
            told,
            closed,
        }
    }

    fn ready(&self, id: FunctionId, stage: Stage, what: What) -> PendingCommit {
        let (next, news) = self.next(id, what);
        let fresh = match &next {
            Next::Code { version, .. } => Some(*version),
            _ => None,
        };
        PendingCommit {
            id,
            stage,
            next,
            fresh,
            news,
        }
    }

    /// Settles each function: the event to report, and the code that it ran before.
    fn settle(
        self: &Arc<Self>,
        stepped: Vec<Stepped>,
        garbage: &mut Garbage,
    ) -> (Vec<Told>, HashMap<FunctionId, Old>) {
        let mut told = Vec::with_capacity(stepped.len());
        let mut kept: HashMap<FunctionId, Old> = HashMap::new();
        for one in stepped {
            let id = one.id;
            let Ok(committed) = one.outcome else {
                // The function was removed meanwhile.
                let fresh = one.fresh.map(|version| (id, version));
                garbage.released.extend(fresh);
                continue;
            };
            self.under_way.cancel(&committed.dropped);
            let old = committed.kept.map(|kept| Old::new(self, id, kept));
            told.push((id, one.news, old.as_ref().and_then(Old::version)));
            kept.extend(old.map(|old| (id, old)));
            let released = committed.released.map(|version| (id, version));
            garbage.released.extend(released);
        }
        (told, kept)
    }

    /// Puts an entry into a slot, or the trampoline.
    fn store(&self, id: FunctionId, entry: Option<EntryAddress>) -> bool {
        match entry {
            Some(entry) => self.stubs.publish(id, entry),
            None => {
                // Callers that wait already get code of the new body.
                self.stubs.unpublish(id);
                true
            }
        }
    }

    /// Files code that is about to be published. Returns the step for the protocol, and the news
    /// for the controller.
    fn next(&self, id: FunctionId, what: What) -> (Next, Option<News>) {
        match what {
            What::Code(code) => {
                let BuiltCode {
                    request,
                    built,
                    depends,
                } = *code;
                let Some(built) = built.take() else {
                    return (Next::Unbound, None);
                };
                let made = self.made(request, &built);
                let next = Next::Code {
                    version: request.version,
                    tier: request.tier,
                    entry: EntryAddress(built.entry),
                };
                self.note_code(id, built.bytes);
                self.file_version(request, built, depends);
                (next, Some(News::Made(request.tier, Box::new(made))))
            }
            What::Object(code) => {
                let version = self.versions.ids.next();
                let entry = EntryAddress(code.range.start);
                self.objects.file(version, id, code);
                let tier = Tier::Baseline;
                let next = Next::Code {
                    version,
                    tier,
                    entry,
                };
                (next, None)
            }
            What::Restored(old) => {
                let Some(kept) = old.into_kept() else {
                    return (Next::Unbound, None);
                };
                let (version, tier) = (kept.version(), kept.view().tier);
                let counts = tier == Tier::Baseline
                    && self.choices.counts_at_baseline()
                    && self.function(id).is_some();
                self.tiers.profiles.forget(id);
                self.tuning.forget(id);
                let improves = self.unit_of(id).is_some_and(|unit| unit.improver.is_some());
                if self.objects.has(version) && !improves {
                    return (Next::Restored(kept), None);
                }
                (
                    Next::Restored(kept),
                    Some(News::Restored(version, tier, counts)),
                )
            }
            What::Unbound => (Next::Unbound, None),
        }
    }

    pub(super) fn tell_replaced(
        &self,
        id: FunctionId,
        news: Option<News>,
        replaced: Option<VersionId>,
    ) {
        let now = self.events.now();
        self.tiers.profiles.forget(id);
        self.tuning.forget(id);
        let body = self.function(id);
        let module = body.as_ref().map(|function| &function.module);
        self.continuations.settle(id, module);
        let mut control = self.tiers.control();
        control.controller.replaced(id);
        let (version, tier) = match news {
            None => {
                control.watch(id, false, Count::default());
                return;
            }
            Some(News::Made(tier, made)) => {
                control.watch(id, made.counts, self.counts.now(id));
                let first = FirstCode {
                    version: made.version,
                    tier,
                    facts: made.facts,
                    compile: nanos(made.compiling + made.linking),
                    counters: made.counts,
                };
                if self.choices.is_auto() {
                    control.controller.on_compiled(nanos(now), id, &first);
                }
                (made.version, tier)
            }
            Some(News::Restored(version, tier, counts)) => {
                control.watch(id, counts, self.counts.now(id));
                let controller = &mut control.controller;
                controller.reverted(nanos(now), id, version, tier, counts);
                (version, tier)
            }
        };
        drop(control);
        self.events.tell(|| Event::Published {
            id,
            function: self.name_of(id),
            version: version.0,
            tier,
            replaced: replaced.and_then(|before| Some((before.0, self.tier_of(id, before)?))),
            at: now,
        });
    }
}

/// The result of publishing a set.
pub(super) struct Published {
    pub(super) before: Vec<PriorState>,
    pub(super) number: u64,
    pub(super) told: Vec<Told>,
    pub(super) closed: Duration,
}

/// Data of the event for a function, once the set is published: new code, and the old version.
pub(super) type Told = (FunctionId, Option<News>, Option<VersionId>);

/// News for the controller.
pub(super) enum News {
    Made(Tier, Box<Made>),
    /// Version, tier, and whether it counts.
    Restored(VersionId, Tier, bool),
}
