//! Makes prepared code the program, all of it at one instant, together with the versions
//! that depend on what it replaces.
//!
//! # Dependents
//! A published version that took a body or a fact from a member is compiled again, at the
//! first tier and under the plans that will hold, and is part of the set; the policy
//! promotes it later. Which ones there are is looked at twice: before compiling them, and
//! once nobody publishes any more. Those that came between make another round.
//!
//! # Order
//! 1. compile dependents; nothing has changed if that fails
//! 2. stage every function of the set, and close the gate before all of them; if nobody
//!    may run old code, wait for that
//! 3. keep publications away ([`Replacing::commit`](super::state::Replacing::commit))
//! 4. bodies and plans: what is compiled from now on is new
//! 5. raise the epoch: what was begun before, and depends on a member, is stale
//! 6. commit every function: behind the gate, that changes what it opens to
//! 7. open the gate
//!
//! No step after the third can fail, but that a function was removed meanwhile: it is left
//! out then.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_session::Tracker;
use uruk_stubs::{FunctionId, Gate};
use uruk_tiering::{Entry, FirstCode, Next, Stage, Tier, VersionId};

use crate::core::{Body, Core};
use crate::counts::Count;
use crate::error::Error;
use crate::event::Event;
use crate::objects::ObjectCode;
use crate::service;
use crate::tiers::{key, nanos};
use crate::versions::Made;

use super::Level;
use super::dependents::Plans;
use super::error::ReplaceError;
use super::migrate::{Move, Moved};
use super::prepare::Code;
use super::quiet::OldCode;
use super::state::{Before, Committing, Old, Set};

/// Rounds of compiling dependents while others publish.
const ROUNDS: u32 = 8;

/// What a function becomes.
pub(super) struct Change {
    pub(super) id: FunctionId,
    pub(super) body: Body,
    pub(super) next: What,
}

/// What goes with the functions of a set.
#[derive(Default)]
pub(super) struct Way {
    /// By which data and names that came along can be removed.
    pub(super) tracker: Option<Tracker>,
    /// Variables that get other storage. Filling it runs code of the embedder's, which is
    /// done while nothing has changed: it may panic.
    pub(super) moves: Vec<Move>,
    /// Variables that go back to their old storage.
    pub(super) back: Vec<Moved>,
}

/// The code a function gets.
pub(super) enum What {
    Code(Box<Code>),
    /// Of an object file.
    Object(ObjectCode),
    Restored(Old),
    /// None: the next call asks.
    Unbound,
}

/// What a commit did.
pub(super) struct Done {
    pub(super) set: Set,
    pub(super) dependents: Vec<FunctionId>,
    /// How long no call of a member could begin.
    pub(super) closed: Duration,
    /// What the set replaced, and what depended on it.
    pub(super) old: OldCode,
}

/// A set before a closed gate.
struct Closed {
    stages: HashMap<FunctionId, Stage>,
    gate: Gate,
    since: Instant,
}

/// Code that a commit leaves without use; retired once the gate is open.
#[derive(Default)]
struct Garbage {
    released: Vec<(FunctionId, VersionId)>,
    old: Vec<Old>,
}

impl Core {
    /// Commits a set; see the module. If it fails, the changes come back.
    pub(super) fn commit_set(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        way: Way,
        level: Level,
    ) -> Result<Done, (Error, Vec<Change>)> {
        let members: HashSet<FunctionId> = changes.iter().map(|change| change.id).collect();
        let plans = {
            let _pass = service::enter();
            self.next_plans(&changes)
        };
        let deadline = match level {
            Level::Immediate => None,
            Level::Quiescent { wait } => Some(Instant::now() + wait),
        };
        let mut recompiled: HashMap<FunctionId, Code> = HashMap::new();
        for round in 0..=ROUNDS {
            // Nobody publishes during the last round: it finds all there are.
            let _pass = service::enter();
            let early = (round == ROUNDS).then(|| self.replacing.commit());
            let dependents = self.dependents(&members).published;
            let missing: Vec<FunctionId> = dependents
                .into_iter()
                .filter(|id| !recompiled.contains_key(id))
                .collect();
            if !missing.is_empty() {
                match self.recompile(missing, &plans) {
                    Ok(codes) => recompiled.extend(codes),
                    Err(cause) => return Err((cause, changes)),
                }
            }
            let ids = members.iter().chain(recompiled.keys()).copied();
            let mut closed = match self.close(ids.collect()) {
                Ok(closed) => closed,
                Err(cause) => return Err((cause, changes)),
            };
            let quiet = match (deadline, &early) {
                (None, _) => Ok(()),
                (Some(deadline), None) => self.wait_until_quiet(&closed.gate, &members, deadline),
                // Whoever must leave old code may need a publication.
                (Some(_), Some(_)) => Err(Error::from(ReplaceError::StillRunning {
                    activations: Vec::new(),
                })),
            };
            if let Err(cause) = quiet {
                self.reopen(closed);
                return Err((cause, changes));
            }
            let mut committing = early.unwrap_or_else(|| self.replacing.commit());
            let dependents = self.dependents(&members);
            if !dependents
                .published
                .iter()
                .all(|id| recompiled.contains_key(id))
            {
                drop(committing);
                self.reopen(closed);
                continue;
            }
            let mut garbage = Garbage::default();
            for &id in &dependents.fallback {
                let released = self.tiers.versions.of(id).release_fallback();
                garbage
                    .released
                    .extend(released.map(|version| (id, version)));
            }
            way.moves.iter().for_each(Move::fill);
            let old = self.old_code(&members);
            let mut named: Vec<FunctionId> = recompiled.keys().copied().collect();
            named.sort_unstable_by_key(|id| id.index());
            for (id, code) in recompiled {
                let next = What::Code(Box::new(code));
                changes.extend(self.body(id).map(|body| Change { id, body, next }));
            }
            let stages = std::mem::take(&mut closed.stages);
            let (before, number, told) = self.publish_set(
                changes,
                stages,
                &members,
                &plans,
                &mut committing,
                &mut garbage,
            );
            way.moves.iter().for_each(|step| self.relocate(&step.moved));
            way.back.iter().for_each(|moved| self.move_back(moved));
            // All members are named once, and gated: it can only open to what is kept.
            let _ = closed.gate.open(&[]);
            let since = closed.since.elapsed();
            drop(committing);
            for (id, news, replaced) in told {
                self.tell_replaced(id, news, replaced);
            }
            for (id, version) in garbage.released {
                self.retire_version(id, version);
            }
            drop(garbage.old);
            self.start_reclaim();
            return Ok(Done {
                set: Set {
                    number,
                    before,
                    moved: way.moves.into_iter().map(|step| step.moved).collect(),
                    _tracker: way.tracker,
                },
                dependents: named,
                closed: since,
                old,
            });
        }
        // Only if a function that depends on a member was removed without its versions.
        let function = changes
            .first()
            .map_or("?", |change| self.name_of(change.id));
        let cause = Error::from(ReplaceError::Protocol {
            function: function.to_owned(),
            message: String::from("what depends on it cannot be compiled again"),
        });
        Err((cause, changes))
    }

    /// Stages functions and closes the gate before them.
    fn close(&self, mut ids: Vec<FunctionId>) -> Result<Closed, Error> {
        ids.sort_unstable_by_key(|id| id.index());
        let mut stages = HashMap::with_capacity(ids.len());
        for &id in &ids {
            let stage = self.tiers.versions.of(id).stage().map_err(|cause| {
                Error::from(ReplaceError::Protocol {
                    function: self.name_of(id).to_owned(),
                    message: cause.to_string(),
                })
            })?;
            stages.insert(id, stage);
        }
        let since = Instant::now();
        let gate = self.stubs.close_gate(&ids)?;
        Ok(Closed {
            stages,
            gate,
            since,
        })
    }

    /// Opens the gate to the old code, and publishes what was held back.
    fn reopen(self: &Arc<Self>, closed: Closed) {
        drop(closed.gate);
        for (id, stage) in closed.stages {
            let versions = self.tiers.versions.of(id);
            for ticket in stage.abandon() {
                // Whoever made it was told that it is late: a better one is asked for again.
                versions.cancel(ticket.version);
                self.retire_version(id, ticket.version);
            }
        }
    }

    /// Steps 4 to 6.
    fn publish_set(
        self: &Arc<Self>,
        changes: Vec<Change>,
        mut stages: HashMap<FunctionId, Stage>,
        members: &HashSet<FunctionId>,
        plans: &Plans,
        committing: &mut Committing<'_>,
        garbage: &mut Garbage,
    ) -> (Vec<Before>, u64, Vec<Told>) {
        let mut before = Vec::new();
        for change in &changes {
            let old = self.body(change.id);
            self.set_body(change.id, change.body.clone());
            before.extend(old.map(|body| (change.id, body)));
        }
        for (module, plan) in plans {
            module.set_plan(Arc::clone(plan));
        }
        let number = committing.outdate(members.iter().copied());
        let mut told = Vec::with_capacity(changes.len());
        let mut kept: HashMap<FunctionId, Old> = HashMap::new();
        for change in changes {
            let id = change.id;
            let Some(stage) = stages.remove(&id) else {
                continue;
            };
            let (next, news) = self.next(id, change.next);
            let fresh = match &next {
                Next::Code { version, .. } => Some(*version),
                _ => None,
            };
            let committed = stage.commit(next, |entry| self.store(id, entry));
            let Ok(committed) = committed else {
                // The function was removed meanwhile.
                garbage.released.extend(fresh.map(|version| (id, version)));
                continue;
            };
            let old = committed.kept.map(|kept| Old::new(self, id, kept));
            told.push((id, news, old.as_ref().and_then(Old::version)));
            kept.extend(old.map(|old| (id, old)));
            let released = committed.released;
            garbage
                .released
                .extend(released.map(|version| (id, version)));
        }
        let before = before
            .into_iter()
            .filter(|(id, _)| members.contains(id))
            .map(|(id, body)| Before {
                id,
                body,
                kept: kept.remove(&id),
            });
        let before = before.collect();
        // What dependents ran: nobody goes back to it.
        garbage.old.extend(kept.into_values());
        (before, number, told)
    }

    /// Puts an entry into a slot, or the trampoline.
    fn store(&self, id: FunctionId, entry: Option<Entry>) -> bool {
        match entry {
            Some(entry) => self.stubs.publish(id, entry.0),
            None => {
                // Whoever waits already is answered with code of the new body.
                self.stubs.unpublish(id);
                true
            }
        }
    }

    /// Files code that is about to be published; what it is for the protocol, and for the
    /// controller.
    fn next(&self, id: FunctionId, what: What) -> (Next, Option<News>) {
        match what {
            What::Code(code) => {
                let Code {
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
                    entry: Entry(built.entry),
                };
                self.file(request, built, depends);
                (next, Some(News::Made(request.tier, Box::new(made))))
            }
            What::Object(code) => {
                let version = self.tiers.versions.ids.next();
                let entry = Entry(code.range.start);
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
                let counts = tier == Tier::Baseline && self.tiers.counts_at_baseline();
                self.tiers.profiles.forget(id);
                if self.objects.has(version) {
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

    fn tell_replaced(&self, id: FunctionId, news: Option<News>, replaced: Option<VersionId>) {
        let now = self.events.now();
        self.tiers.profiles.forget(id);
        let mut control = self.tiers.control();
        control.controller.replaced(key(id));
        let (version, tier) = match news {
            None => {
                control.watch(id, false, Count::default());
                return;
            }
            Some(News::Made(tier, made)) => {
                control.watch(id, made.counts, self.tiers.counts.now(id));
                let first = FirstCode {
                    version: made.version,
                    tier,
                    facts: made.facts,
                    compile: nanos(made.compiling + made.linking),
                    counters: made.counts,
                };
                if self.tiers.is_auto() {
                    control.controller.on_compiled(nanos(now), key(id), &first);
                }
                (made.version, tier)
            }
            Some(News::Restored(version, tier, counts)) => {
                control.watch(id, counts, self.tiers.counts.now(id));
                let controller = &mut control.controller;
                controller.reverted(nanos(now), key(id), version, tier, counts);
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

/// What is said of a function once the set is there: what runs, and what ran.
type Told = (FunctionId, Option<News>, Option<VersionId>);

/// What the controller is told.
enum News {
    Made(Tier, Box<Made>),
    /// Version, tier, and whether it counts.
    Restored(VersionId, Tier, bool),
}
