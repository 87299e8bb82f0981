//! Blocks: what is known of one allocation of code memory, and the steps of its life.
//!
//! A block is in one [`State`]; [`State::step`] is the only function that changes it.
//!
//! | state \ event | `Swung` | `Refused` | `Retire` | `Found` | `Absent` | `Free` |
//! |---|---|---|---|---|---|---|
//! | `Draft`: a copy that no slot holds yet | `Live` | `Dead` | - | - | - | - |
//! | `Live`: a slot holds it, or it is kept to go back to | - | - | `Retired` | - | - | - |
//! | `Retired`: nobody can start it | - | - | - | `Pinned` | `Dead` | - |
//! | `Pinned`: the last scan found it on a stack | - | - | - | `Pinned` | `Dead` | - |
//! | `Dead`: nobody executes it or returns into it | - | - | - | - | - | `Freed` |
//! | `Freed`: its memory may hold anything | - | - | - | - | - | - |
//!
//! `-` is an error that changes nothing. Two ways lead to `Dead`: a scan ([`State::Retired`],
//! [`State::Pinned`]), or a copy whose address was never stored where a thread could load it.

use thiserror::Error;

use crate::ids::{BlockId, FunctionId, Nanos, Space, Span, ThreadId, VersionId};

/// Why a block must stay where it is. It can be retired and freed like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fixed {
    /// The program may have stored the address of a label in it.
    Labels,
    /// Data outside of it holds its addresses.
    Referenced,
    /// Nothing is recorded by which its fields could be relocated.
    Unrecorded,
    /// At another place one of its fields would not reach its target.
    OutOfReach,
    /// The embedder asked for it.
    Requested,
}

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fixed::Labels => "addresses of its labels may be stored",
            Fixed::Referenced => "data refers to it by address",
            Fixed::Unrecorded => "its relocations are not recorded",
            Fixed::OutOfReach => "its targets would be out of reach",
            Fixed::Requested => "the embedder fixed it",
        })
    }
}

/// What the runtime says of a block when it becomes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name.
    pub id: BlockId,
    /// Where it lies.
    pub span: Span,
    /// The space that holds it.
    pub space: Space,
    /// Whose code it is; for orders and statistics.
    pub function: FunctionId,
    /// Which code of the function.
    pub version: VersionId,
    /// Whether it may be evacuated, or why not.
    pub fixed: Option<Fixed>,
}

/// Where a block is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A copy that was made and that no slot holds yet.
    Draft,
    /// Something can start it.
    Live,
    /// Nothing can start it; threads may be in it.
    Retired {
        /// Since when.
        since: Nanos,
    },
    /// The last scan that looked for it found it.
    Pinned {
        /// Since when it is retired.
        since: Nanos,
        /// How often it was found.
        tries: u32,
        /// When it is looked for again.
        due: Nanos,
        /// Who held it, as far as listed.
        by: Vec<ThreadId>,
    },
    /// Nobody is in it or can come back.
    Dead,
    /// Its memory is the heap's again.
    Freed,
}

/// What happens to a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The slot of a draft's version, and everything else that starts it, holds the draft.
    Swung,
    /// The version was superseded before the draft could take its place.
    Refused,
    /// The last thing that could start it is gone.
    Retire {
        /// When.
        now: Nanos,
    },
    /// A scan that began after it was retired found it.
    Found {
        /// When it is looked for again.
        due: Nanos,
        /// Who held it.
        by: Vec<ThreadId>,
    },
    /// A complete scan that began after it was retired did not find it.
    Absent,
    /// It was handed to the heap.
    Free,
}

/// An event that the state does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {block} is {state:?}, which {event:?} does not fit")]
pub struct StepError {
    /// The block.
    pub block: BlockId,
    /// Its state, unchanged.
    pub state: State,
    /// What was tried.
    pub event: Event,
}

impl State {
    /// The state after an event; see the table above.
    ///
    /// # Errors
    /// The event does not fit.
    pub fn step(&self, block: BlockId, event: Event) -> Result<State, StepError> {
        match (self, event) {
            (State::Draft, Event::Swung) => Ok(State::Live),
            (State::Draft, Event::Refused) => Ok(State::Dead),
            (State::Live, Event::Retire { now }) => Ok(State::Retired { since: now }),
            (&State::Retired { since }, Event::Found { due, by }) => Ok(State::Pinned {
                since,
                tries: 1,
                due,
                by,
            }),
            (&State::Pinned { since, tries, .. }, Event::Found { due, by }) => Ok(State::Pinned {
                since,
                tries: tries.saturating_add(1),
                due,
                by,
            }),
            (State::Retired { .. } | State::Pinned { .. }, Event::Absent) => Ok(State::Dead),
            (State::Dead, Event::Free) => Ok(State::Freed),
            (state, event) => Err(StepError {
                block,
                state: state.clone(),
                event,
            }),
        }
    }
}

/// A block that is dead. Only the engine makes one, so whoever holds one may rely on it:
/// no thread executes the block or can return into it (a complete scan that began after
/// the block was unreachable did not find it, or no thread ever saw its address); samples
/// taken in it were drained; it was unregistered everywhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Dead {
    pub(crate) id: BlockId,
    pub(crate) span: Span,
    pub(crate) space: Space,
    pub(crate) frozen: bool,
}

impl Dead {
    /// The block.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Where it lies.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The space that holds it.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Whether its pages are shared with another process since a `fork`, so that nothing
    /// may be written to them.
    pub fn frozen(&self) -> bool {
        self.frozen
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The table of the module, cell by cell.
    #[test]
    fn steps_are_those_of_the_table() {
        let now = Nanos(5);
        let retired = State::Retired { since: now };
        let pinned = |tries| State::Pinned {
            since: now,
            tries,
            due: Nanos(9),
            by: vec![],
        };
        let found = Event::Found {
            due: Nanos(9),
            by: vec![],
        };
        let events = [
            Event::Swung,
            Event::Refused,
            Event::Retire { now },
            found,
            Event::Absent,
            Event::Free,
        ];
        let rows = [
            (
                State::Draft,
                [Some(State::Live), Some(State::Dead), None, None, None, None],
            ),
            (
                State::Live,
                [None, None, Some(retired.clone()), None, None, None],
            ),
            (
                retired,
                [None, None, None, Some(pinned(1)), Some(State::Dead), None],
            ),
            (
                pinned(1),
                [None, None, None, Some(pinned(2)), Some(State::Dead), None],
            ),
            (
                State::Dead,
                [None, None, None, None, None, Some(State::Freed)],
            ),
            (State::Freed, [None, None, None, None, None, None]),
        ];
        for (state, row) in rows {
            for (event, next) in events.iter().zip(row) {
                let got = state.step(BlockId(1), event.clone());
                assert_eq!(got.ok(), next, "{state:?} {event:?}");
            }
        }
    }
}
