//! Going back to what ran before the latest replacement.
//!
//! A rollback is a commit of the code that was kept; should it fail, the set is filed again. Who
//! changed to new code while it looped changes back likewise.

use std::sync::Arc;

use uruk_base::FunctionId;

use crate::api::error::Error;
use crate::core::Core;
use crate::fork::gate;

use super::commit::{Change, Way, What};
use super::error::ReplaceError;
use super::{Level, quiet, state};

/// The changes of a rollback.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolledBack {
    /// Functions that run the code which they ran before the replacement.
    pub functions: Vec<String>,
    /// Functions that were compiled again, because their code held, or relied on, a body of the
    /// replacement.
    pub dependents: Vec<String>,
}

impl Core {
    pub(crate) fn roll_back(self: &Arc<Self>, number: Option<u64>) -> Result<RolledBack, Error> {
        let back = self.roll_back_in_turn(number);
        quiet::scrub_stack();
        back
    }

    #[inline(never)]
    fn roll_back_in_turn(self: &Arc<Self>, number: Option<u64>) -> Result<RolledBack, Error> {
        let _turn = self.replacing.turn()?;
        let begun = self.events.now();
        let taken = loop {
            let _pass = gate::enter();
            let taken = self.replacing.take(number);
            let mut taken = taken.ok_or_else(|| match number {
                None => ReplaceError::NothingToRollBack,
                Some(number) => ReplaceError::NotLatest {
                    number,
                    latest: self.replacing.latest().unwrap_or(0),
                },
            })?;
            taken.before.retain(|before| self.body(before.id).is_some());
            if !taken.before.is_empty() {
                break taken;
            }
            // All of its functions were removed.
            match number {
                None => drop(taken),
                Some(_) => return Ok(RolledBack::default()),
            }
        };
        let state::Set {
            number,
            before,
            at_loops,
            moved,
            _tracker: tracker,
        } = taken;
        let members: Vec<FunctionId> = before.iter().map(|before| before.id).collect();
        let looping = self.looping(at_loops, &members);
        let changes = before.into_iter().map(|before| Change {
            id: before.id,
            body: before.body,
            next: before.kept.map_or(What::Unbound, What::Restored),
        });
        let way = Way {
            back: moved.clone(),
            ..Way::default()
        };
        let committed = self.commit_set(changes.collect(), way, Level::Immediate);
        if let Ok(done) = &committed {
            quiet::scrub_stack();
            self.lead(at_loops, members, looping, &done.old);
        }
        let _pass = gate::enter();
        match committed {
            Ok(done) => Ok(self.tell_back(number, &done, begun)),
            Err((cause, changes)) => {
                let before = changes.into_iter().map(|change| state::Before {
                    id: change.id,
                    body: change.body,
                    kept: match change.next {
                        What::Restored(kept) => Some(kept),
                        What::Code(_) | What::Object(_) | What::Unbound => None,
                    },
                });
                self.replacing.file(state::Set {
                    number,
                    before: before.collect(),
                    at_loops,
                    moved,
                    _tracker: tracker,
                });
                Err(cause)
            }
        }
    }
}
