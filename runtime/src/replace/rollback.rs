//! Rolls back the latest replacement.
//!
//! A rollback is a commit of the code that was kept, at the level of the replacement unless the
//! caller asks for another. If it fails, the set is filed again. Loops that continued in new code
//! are moved back likewise.
//!
//! # Why
//! The functions of a set that was exchanged at [`Level::Quiescent`] must not be mixed: a rollback
//! at once would let a thread between two of them use one of each version.
//!
//! At that level a thread of the session does all the work, from the moment at which the set is
//! taken: the set holds addresses of code, which must not lie on the stack of the thread that waits
//! (`quiet`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uruk_base::FunctionId;

use crate::error::Error;
use crate::fork::gate;
use crate::fork::shield::Shield;
use crate::replace::state::Replacing;

use super::commit::{Change, Way, What};
use super::withdrawal::Withdrawal;
use uruk_base::Level;

use super::{Replaced, quiet, state};
use crate::error::replace::ReplaceError;

/// How a replacement is rolled back: [`Jit::rollback_at`](crate::Jit::rollback_at). A [`Level`] is
/// one, too.
#[derive(Clone, Default)]
pub struct Rollback {
    level: Option<Level>,
    withdrawal: Option<Withdrawal>,
}

impl Rollback {
    /// At the level of the replacement, with the same longest wait.
    pub fn new() -> Rollback {
        Rollback::default()
    }

    /// At another level.
    #[must_use]
    pub fn level(mut self, level: Level) -> Rollback {
        self.level = Some(level);
        self
    }

    /// Ends the wait before its time is over, once `given_up` is true; see
    /// [`Replacement::withdraw_when`](crate::Replacement::withdraw_when).
    #[must_use]
    pub fn withdraw_when(
        mut self,
        given_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Rollback {
        self.withdrawal = Some(Withdrawal(Arc::new(given_up)));
        self
    }
}

impl From<Level> for Rollback {
    fn from(level: Level) -> Rollback {
        Rollback::new().level(level)
    }
}

impl fmt::Debug for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rollback")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// The functions that a rollback concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolledBack {
    /// Functions that run the code which they ran before the replacement.
    pub functions: Vec<String>,
    /// Functions that were compiled again, because their code held, or relied on, a body of the
    /// replacement.
    pub dependents: Vec<String>,
}

impl Replaced {
    /// Restores the code from before this replacement, which must be the latest; see
    /// [`Jit::rollback`](crate::Jit::rollback).
    ///
    /// # Errors
    /// [`ReplaceError::NotLatest`], also if it was rolled back already.
    pub fn rollback(&self) -> Result<RolledBack, Error> {
        self.rollback_at(Rollback::new())
    }

    /// Like [`Replaced::rollback`], at a given level; see
    /// [`Jit::rollback_at`](crate::Jit::rollback_at).
    ///
    /// # Errors
    /// The errors of [`Replaced::rollback`].
    pub fn rollback_at(&self, how: impl Into<Rollback>) -> Result<RolledBack, Error> {
        let number = Some(self.number);
        self.replacing.roll_back(number, how.into())
    }
}

impl Replacing {
    pub(crate) fn roll_back(
        self: &Arc<Self>,
        number: Option<u64>,
        how: Rollback,
    ) -> Result<RolledBack, Error> {
        // As in a replacement: the frames of a wait lie on memory that is clear.
        let shield = Shield::raise();
        quiet::scrub_stack();
        let back = self.roll_back_in_turn(number, how, shield);
        quiet::scrub_stack();
        back
    }

    #[inline(never)]
    fn roll_back_in_turn(
        self: &Arc<Self>,
        number: Option<u64>,
        how: Rollback,
        shield: Shield,
    ) -> Result<RolledBack, Error> {
        drop(shield);
        let _turn = self.turn()?;
        let begun = self.events.now();
        let waits = match how.level {
            Some(level) => level != Level::Immediate,
            // Earlier sets count too: all functions of the latest may be removed by now.
            None => {
                let _pass = gate::enter();
                self.may_wait()
            }
        };
        if !waits {
            return self.take_back(number, how, begun);
        }
        let _shield = Shield::raise();
        quiet::scrub_stack();
        let what = String::from("a rollback");
        self.on_compile_thread(what, move |replacing| {
            replacing.take_back(number, how, begun)
        })
    }

    /// Takes the latest set that has functions; none if those of the requested set were removed.
    fn take_latest(&self, number: Option<u64>) -> Result<Option<state::Set>, ReplaceError> {
        loop {
            let _pass = gate::enter();
            let taken = self.take(number);
            let mut taken = taken.ok_or_else(|| match number {
                None => ReplaceError::NothingToRollBack,
                Some(number) => ReplaceError::NotLatest {
                    number,
                    latest: self.latest().unwrap_or(0),
                },
            })?;
            taken.before.retain(|before| self.body(before.id).is_some());
            if !taken.before.is_empty() {
                return Ok(Some(taken));
            }
            if number.is_some() {
                return Ok(None);
            }
        }
    }

    fn take_back(
        self: &Arc<Self>,
        number: Option<u64>,
        how: Rollback,
        begun: Duration,
    ) -> Result<RolledBack, Error> {
        let Some(taken) = self.take_latest(number)? else {
            return Ok(RolledBack::default());
        };
        let state::Set {
            number,
            before,
            manner,
            moved,
        } = taken;
        let level = how.level.unwrap_or(manner.level);
        let osr = manner.osr && level == Level::Immediate;
        let members: Vec<FunctionId> = before.iter().map(|before| before.id).collect();
        let looping = self.looping(osr, &members);
        let changes = before.into_iter().map(|before| Change {
            id: before.id,
            body: before.body,
            next: before.kept.map_or(What::Unbound, What::Restored),
        });
        let way = Way {
            back: moved.clone(),
            withdrawal: how.withdrawal,
            ..Way::default()
        };
        let committed = self.commit_set(changes.collect(), way, level);
        if let Ok(done) = &committed {
            quiet::scrub_stack();
            self.lead(osr, members, looping, &done.old);
        }
        let _pass = gate::enter();
        match committed {
            Ok(done) => Ok(self.tell_back(number, &done, begun)),
            Err((cause, changes)) => {
                let before = changes.into_iter().map(|change| state::PriorState {
                    id: change.id,
                    body: change.body,
                    kept: match change.next {
                        What::Restored(kept) => Some(kept),
                        What::Code(_) | What::Object(_) | What::Unbound => None,
                    },
                });
                self.file(state::Set {
                    number,
                    before: before.collect(),
                    manner,
                    moved,
                });
                Err(cause)
            }
        }
    }
}
