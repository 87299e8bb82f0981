//! Publishes prepared code, all of it at one instant, together with the versions that depend on the
//! code it replaces.
//!
//! # Dependents
//! A published version that took a body or a fact from a member is compiled again, at the first
//! tier and under the plans that will hold, and is part of the set; the policy promotes it later.
//! The dependents are determined twice: before they are compiled, and once publications are
//! excluded. Dependents that appeared in between need another round.
//!
//! # Order
//! 1. compile dependents; nothing has changed if that fails
//! 2. stage every function of the set, and make the gate before all of them ready; if no thread may
//!    run old code, close it and wait for that
//! 3. keep publications away ([`Replacing::commit`](super::state::Replacing::commit))
//! 4. bodies and plans: compiles that begin from now on use the new ones
//! 5. raise the epoch: compiles that began before, and depend on a member, are stale
//! 6. close the gate, unless it is closed already
//! 7. commit every function: behind the gate, this changes the entry that it opens to
//! 8. open the gate
//!
//! No step after the third can fail, with one exception: a function that was removed meanwhile is
//! left out. Slow work, and work that grows with the number of functions, is done before the sixth
//! step or after the eighth.
//!
//! A thread that runs old code may need the first body of a function (`calls::lazy`), which is
//! published in a turn of its own: step 2 then begins anew after it.
//!
//! A set of one function needs no gate, if old code may run on and no storage changes: the
//! store into its slot is the instant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_base::FunctionId;
use uruk_stubs::StubError;

use crate::code::body::Body;
use crate::code::objects::ObjectCode;
use crate::code::publications::Committing;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::panics::caught;
use crate::replace::state::Replacing;

use super::dependents::Plans;
use super::migrate::{Move, Moved};
use super::old::ReplacedCode;
use super::prepare::BuiltCode;
use super::publish::{Barrier, Garbage, Published, Staged};
use super::state::{Manner, Old, Set};
use super::withdrawal::Withdrawal;
use crate::error::replace::ReplaceError;
use uruk_base::Level;

/// Rounds of compiling dependents while others publish.
const ROUNDS: u32 = 8;

/// A change of one function: its new body and the code that it gets.
pub(super) struct Change {
    pub(super) id: FunctionId,
    pub(super) body: Body,
    pub(super) next: What,
}

/// Options and data of a commit, besides the functions of the set.
#[derive(Default)]
pub(super) struct Way {
    /// Variables that get other storage. Filling it runs code of the embedder's, which is
    /// done while nothing has changed: it may panic.
    pub(super) moves: Vec<Move>,
    /// Variables that go back to their old storage.
    pub(super) back: Vec<Moved>,
    /// Ends the wait for old code to be left, and any set that is not committed yet.
    pub(super) withdrawal: Option<Withdrawal>,
}

impl Way {
    /// Whether only code is exchanged, no storage.
    fn is_code(&self) -> bool {
        self.moves.is_empty() && self.back.is_empty()
    }

    /// Fails if the set is not wanted any more.
    fn still_wanted(&self) -> Result<(), Error> {
        match caught(|| Ok(self.withdrawal.as_ref().is_some_and(Withdrawal::is_given)))? {
            true => Err(ReplaceError::Withdrawn.into()),
            false => Ok(()),
        }
    }
}

/// The code that a function gets.
pub(super) enum What {
    Code(Box<BuiltCode>),
    /// Code of an object file.
    Object(ObjectCode),
    Restored(Old),
    /// No code: the next call requests it.
    Unbound,
}

/// The outcome of a commit.
pub(super) struct CommittedSet {
    pub(super) set: Set,
    pub(super) dependents: Vec<FunctionId>,
    /// How long no call of a member could begin.
    pub(super) closed: Duration,
    /// Code that the set replaced, and code that depended on it.
    pub(super) old: ReplacedCode,
    /// Time at which calls reached new code, in the session's time.
    pub(super) at: Duration,
}

/// The functions that a set affects: its members and their dependents.
struct AffectedFunctions {
    members: HashSet<FunctionId>,
    /// Plans that hold after the commit.
    plans: Plans,
    /// Dependents that were found so far, compiled again.
    recompiled: HashMap<FunctionId, BuiltCode>,
}

impl Replacing {
    /// Commits a set; see the module. If it fails, the changes come back.
    pub(super) fn commit_set(
        self: &Arc<Self>,
        changes: Vec<Change>,
        way: Way,
        level: Level,
    ) -> Result<CommittedSet, (Error, Vec<Change>)> {
        let mut reach = {
            let _pass = gate::enter();
            AffectedFunctions {
                members: changes.iter().map(|change| change.id).collect(),
                plans: self.next_plans(&changes),
                recompiled: HashMap::new(),
            }
        };
        let deadline = level.wait().map(|wait| Instant::now() + wait);
        let mut round = 0;
        while round <= ROUNDS {
            // Publications are excluded in the last round, so it finds all dependents.
            let pass = gate::enter();
            let early = (round == ROUNDS).then(|| self.publications.commit());
            let staged = self
                .recompile_dependents(&mut reach)
                .and_then(|()| self.stage_rest(&mut reach, &way, deadline, early.is_some()));
            let staged = match staged {
                Ok(Some(staged)) => staged,
                Ok(None) => {
                    drop((early, pass));
                    deadline.inspect(|&it| self.give_way(it));
                    gate::give_way_to_forks();
                    continue;
                }
                Err(cause) => return Err((told_by_name(cause, &changes), changes)),
            };
            if let Err(cause) = way.still_wanted() {
                self.abandon(staged);
                return Err((cause, changes));
            }
            round += 1;
            let committing = early.unwrap_or_else(|| self.publications.commit());
            let dependents = self.dependents(&reach.members);
            let known = |id: &FunctionId| reach.recompiled.contains_key(id);
            if dependents.published.iter().all(known) {
                let fallback = dependents.fallback;
                return Ok(self.commit_staged(changes, way, reach, staged, committing, fallback));
            }
            drop(committing);
            self.abandon(staged);
        }
        // Reached only if a function that depends on a member was removed without its versions.
        let function = changes
            .first()
            .map_or("?", |change| self.name_of(change.id));
        let cause = Error::from(ReplaceError::Dependents {
            function: function.to_owned(),
        });
        Err((cause, changes))
    }

    /// Step 1: compiles the dependents that appeared since.
    fn recompile_dependents(self: &Arc<Self>, reach: &mut AffectedFunctions) -> Result<(), Error> {
        let dependents = self.dependents(&reach.members).published.into_iter();
        let missing: Vec<FunctionId> = dependents
            .filter(|id| !reach.recompiled.contains_key(id))
            .collect();
        if !missing.is_empty() {
            reach
                .recompiled
                .extend(self.recompile(missing, &reach.plans)?);
        }
        Ok(())
    }

    /// Step 2. Dependents that were removed since they were compiled are left out: nothing calls
    /// them any more. `None` if a first body needs the turn, a fork waits, or more functions depend
    /// on a member by now.
    fn stage_rest(
        self: &Arc<Self>,
        reach: &mut AffectedFunctions,
        way: &Way,
        deadline: Option<Instant>,
        none_publish: bool,
    ) -> Result<Option<Staged>, Error> {
        loop {
            let staged = self.stage_reach(reach, way, deadline, none_publish);
            let gone = match &staged {
                Err(Error::Stub(cause)) => match **cause {
                    StubError::Released(gone) => gone,
                    _ => return staged,
                },
                _ => return staged,
            };
            if reach.recompiled.remove(&gone).is_none() {
                return staged;
            }
        }
    }

    /// Step 2: stages the set. With a deadline, its gate is closed until no thread runs old code,
    /// at most until then. That cannot be waited for while `none_publish`. `None` as for
    /// `stage_rest`.
    fn stage_reach(
        self: &Arc<Self>,
        reach: &AffectedFunctions,
        way: &Way,
        deadline: Option<Instant>,
        none_publish: bool,
    ) -> Result<Option<Staged>, Error> {
        let ids = reach.members.iter().chain(reach.recompiled.keys()).copied();
        let alone = deadline.is_none() && way.is_code();
        let mut staged = self.stage(ids.collect(), alone)?;
        let Some(deadline) = deadline else {
            return Ok(Some(staged));
        };
        staged.barrier = staged.barrier.close();
        let quiet = match &staged.barrier {
            Barrier::Closed(gate, _) if !none_publish => {
                // Code of a new dependent, with a member in it, was published meanwhile: its
                // callers would enter old code again and again.
                let is_short = || {
                    let dependents = self.dependents(&reach.members).published;
                    !dependents
                        .iter()
                        .all(|id| reach.recompiled.contains_key(id))
                };
                let withdrawal = way.withdrawal.as_ref();
                self.wait_until_quiet(gate, &reach.members, deadline, withdrawal, is_short)
            }
            // A thread that must leave old code may need a publication.
            _ => Err(Error::from(ReplaceError::StillRunning {
                activations: Vec::new(),
            })),
        };
        match quiet {
            Ok(true) => Ok(Some(staged)),
            Ok(false) => {
                self.abandon(staged);
                Ok(None)
            }
            Err(cause) => {
                self.abandon(staged);
                Err(cause)
            }
        }
    }

    /// Steps 4 to 8, and then the slow work that callers need not wait for. Functions of `fallback`
    /// keep a fallback version that depends on a member.
    fn commit_staged(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        way: Way,
        reach: AffectedFunctions,
        mut staged: Staged,
        mut committing: Committing<'_>,
        fallback: HashSet<FunctionId>,
    ) -> CommittedSet {
        let AffectedFunctions {
            members,
            plans,
            recompiled,
        } = reach;
        let mut garbage = Garbage::default();
        garbage.release_fallbacks(&self.versions, fallback);
        let mut old = ReplacedCode::of(self, &members);
        if !way.moves.is_empty() {
            staged.barrier = staged.barrier.close();
            way.moves.iter().for_each(Move::fill);
        }
        let mut dependents: Vec<FunctionId> = recompiled.keys().copied().collect();
        dependents.sort_unstable_by_key(|id| id.index());
        for (id, code) in recompiled {
            let next = What::Code(Box::new(code));
            changes.extend(self.body(id).map(|body| Change { id, body, next }));
        }
        let Published {
            before,
            number,
            told,
            closed,
        } = self.publish_set(
            changes,
            staged,
            &way,
            &members,
            &plans,
            &mut committing,
            &mut garbage,
        );
        let at = self.events.now();
        let published = |id: &FunctionId| Some(self.versions.seen(*id).published()?.id);
        old.published(members.iter().chain(&dependents).filter_map(published));
        drop(committing);
        for (id, news, replaced) in told {
            self.tell_replaced(id, news, replaced);
        }
        for (id, version) in garbage.released {
            self.retire_version(id, version);
        }
        drop(garbage.old);
        self.keep_budget();
        self.notes.start();
        CommittedSet {
            set: Set {
                number,
                before,
                manner: Manner::default(),
                moved: way.moves.into_iter().map(|step| step.moved).collect(),
            },
            dependents,
            closed,
            old,
            at,
        }
    }
}

/// Names a member that was removed meanwhile in the error, which has only its number.
fn told_by_name(cause: Error, changes: &[Change]) -> Error {
    let Error::Stub(stub) = &cause else {
        return cause;
    };
    let StubError::Released(gone) = **stub else {
        return cause;
    };
    let Some(change) = changes.iter().find(|change| change.id == gone) else {
        return cause;
    };
    let function = change.body.name().to_string_lossy().into_owned();
    ReplaceError::Removed { function }.into()
}
