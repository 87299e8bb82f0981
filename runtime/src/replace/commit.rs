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
//! 2. stage every function of the set, and make the gate before all of them ready; if
//!    nobody may run old code, close it and wait for that
//! 3. keep publications away ([`Replacing::commit`](super::state::Replacing::commit))
//! 4. bodies and plans: what is compiled from now on is new
//! 5. raise the epoch: what was begun before, and depends on a member, is stale
//! 6. close the gate, unless it is
//! 7. commit every function: behind the gate, that changes what it opens to
//! 8. open the gate
//!
//! No step after the third can fail, but that a function was removed meanwhile: it is left
//! out then. What takes long, or as long as there are functions, is done before the sixth
//! or after the eighth.
//!
//! A set of one function needs no gate, if old code may run on and no storage changes: the
//! store into its slot is the instant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_base::FunctionId;

use crate::api::error::Error;
use crate::api::tracker::Tracked;
use crate::core::{Body, Core};
use crate::fork::gate;
use crate::load::objects::ObjectCode;

use super::Level;
use super::error::ReplaceError;
use super::migrate::{Move, Moved};
use super::prepare::Code;
use super::publish::{Barrier, Garbage, Published};
use super::quiet::OldCode;
use super::state::{Old, Set};

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
    pub(super) tracker: Option<Tracked>,
    /// Variables that get other storage. Filling it runs code of the embedder's, which is
    /// done while nothing has changed: it may panic.
    pub(super) moves: Vec<Move>,
    /// Variables that go back to their old storage.
    pub(super) back: Vec<Moved>,
}

impl Way {
    /// Nothing goes with them but code.
    fn is_code(&self) -> bool {
        self.moves.is_empty() && self.back.is_empty()
    }
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
            let _pass = gate::enter();
            self.next_plans(&changes)
        };
        let deadline = match level {
            Level::Immediate => None,
            Level::Quiescent { wait } => Some(Instant::now() + wait),
        };
        let mut recompiled: HashMap<FunctionId, Code> = HashMap::new();
        for round in 0..=ROUNDS {
            // Nobody publishes during the last round: it finds all there are.
            let _pass = gate::enter();
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
            let alone = matches!(level, Level::Immediate) && way.is_code();
            let mut staged = match self.stage(ids.collect(), alone) {
                Ok(staged) => staged,
                Err(cause) => return Err((cause, changes)),
            };
            if let Some(deadline) = deadline {
                staged.barrier = staged.barrier.close();
                let quiet = match (&staged.barrier, &early) {
                    (Barrier::Closed(gate, _), None) => {
                        self.wait_until_quiet(gate, &members, deadline)
                    }
                    // Whoever must leave old code may need a publication.
                    _ => Err(Error::from(ReplaceError::StillRunning {
                        activations: Vec::new(),
                    })),
                };
                if let Err(cause) = quiet {
                    self.abandon(staged);
                    return Err((cause, changes));
                }
            }
            let mut committing = early.unwrap_or_else(|| self.replacing.commit());
            let dependents = self.dependents(&members);
            if !dependents
                .published
                .iter()
                .all(|id| recompiled.contains_key(id))
            {
                drop(committing);
                self.abandon(staged);
                continue;
            }
            let mut garbage = Garbage::default();
            for &id in &dependents.fallback {
                let released = self.tiers.versions.of(id).release_fallback();
                garbage
                    .released
                    .extend(released.map(|version| (id, version)));
            }
            let old = self.old_code(&members);
            if !way.moves.is_empty() {
                staged.barrier = staged.barrier.close();
                way.moves.iter().for_each(Move::fill);
            }
            let mut named: Vec<FunctionId> = recompiled.keys().copied().collect();
            named.sort_unstable_by_key(|id| id.index());
            for (id, code) in recompiled {
                let next = What::Code(Box::new(code));
                changes.extend(self.body(id).map(|body| Change { id, body, next }));
            }
            let published = self.publish_set(
                changes,
                staged,
                &way,
                &members,
                &plans,
                &mut committing,
                &mut garbage,
            );
            let Published {
                before,
                number,
                told,
                closed,
            } = published;
            drop(committing);
            for (id, news, replaced) in told {
                self.tell_replaced(id, news, replaced);
            }
            for (id, version) in garbage.released {
                self.retire_version(id, version);
            }
            drop(garbage.old);
            self.keep_budget();
            self.start_reclaim();
            return Ok(Done {
                set: Set {
                    number,
                    before,
                    moved: way.moves.into_iter().map(|step| step.moved).collect(),
                    _tracker: way.tracker,
                },
                dependents: named,
                closed,
                old,
            });
        }
        // Only if a function that depends on a member was removed without its versions.
        let function = changes
            .first()
            .map_or("?", |change| self.name_of(change.id));
        let cause = Error::from(ReplaceError::Dependents {
            function: function.to_owned(),
        });
        Err((cause, changes))
    }
}
