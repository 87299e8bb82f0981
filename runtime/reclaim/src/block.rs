//! Blocks: the record of one allocation of code memory, and the steps of its life.
//!
//! A block is in one [`State`]; [`State::step`] is the only function that changes it.
//!
//! | state \ event | `Swung` | `Refused` | `Retire` | `Found` | `Absent` | `Free` |
//! |---|---|---|---|---|---|---|
//! | `Draft`: a copy that no slot holds yet | `Live` | `Dead` | - | - | - | - |
//! | `Live`: a slot holds it, or it is kept as a fallback | - | - | `Retired` | - | - | - |
//! | `Retired`: it cannot be started | - | - | - | `Pinned` | `Dead` | - |
//! | `Pinned`: the last scan found it on a stack | - | - | - | `Pinned` | `Dead` | - |
//! | `Dead`: no thread executes it or returns into it | - | - | - | - | - | `Freed` |
//! | `Freed`: its memory may have been reused | - | - | - | - | - | - |
//!
//! `-` is an error that changes nothing. Two ways lead to `Dead`: a scan ([`State::Retired`],
//! [`State::Pinned`]), or a copy whose address was never stored where a thread could load it.

use thiserror::Error;

use crate::ids::{BlockId, FunctionId, Nanos, Space, Span, ThreadId, VersionId};

/// Reason for which a block must stay in place. It can be retired and freed like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fixed {
    /// The program may have stored the address of a label in it.
    Labels,
    /// Data outside of it holds its addresses.
    Referenced,
    /// It has no relocation records for its fields.
    Unrecorded,
    /// At another place one of its fields would not reach its target.
    OutOfReach,
    /// The embedder requested it.
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

/// The runtime's description of a block that becomes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub id: BlockId,
    /// Its address range.
    pub span: Span,
    /// The space that holds it.
    pub space: Space,
    /// Its function; for orders and statistics.
    pub function: FunctionId,
    /// Its version of the function.
    pub version: VersionId,
    /// `None` if it may be evacuated, else the reason.
    pub fixed: Option<Fixed>,
}

/// The state of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A copy that no slot holds yet.
    Draft,
    /// It can be started.
    Live,
    /// It cannot be started; threads may be in it.
    Retired {
        /// Time of retirement.
        since: Nanos,
    },
    /// The last scan that searched for it found it.
    Pinned {
        /// Time of retirement.
        since: Nanos,
        /// Number of scans that found it.
        tries: u32,
        /// Time of the next search.
        due: Nanos,
        /// The threads that held it, as far as listed.
        by: Vec<ThreadId>,
    },
    /// No thread is in it or can return into it.
    Dead,
    /// Its memory belongs to the heap again.
    Freed,
}

/// An event of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The draft replaced the original in the slot and in all other references that start the
    /// version.
    Swung,
    /// The version was superseded before the draft could replace the original.
    Refused,
    /// The last reference that could start it was removed.
    Retire {
        /// Time of the event.
        now: Nanos,
    },
    /// A scan that began after it was retired found it.
    Found {
        /// Time of the next search.
        due: Nanos,
        /// The threads that held it.
        by: Vec<ThreadId>,
    },
    /// A complete scan that began after it was retired did not find it.
    Absent,
    /// It was given to the heap.
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
    /// The refused event.
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

/// A dead block. Only the engine makes one, so its holder may rely on three facts. No thread
/// executes the block or can return into it. A complete scan that began after the block was
/// unreachable did not find it, or no thread ever saw its address. Samples taken in it were
/// drained. It was unregistered everywhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Dead {
    pub(crate) id: BlockId,
    pub(crate) span: Span,
    pub(crate) space: Space,
    pub(crate) frozen: bool,
}

impl Dead {
    /// Its number.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Its address range.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The space that holds it.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Whether its pages are shared with another process since a `fork`, so that they must not be
    /// written.
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
