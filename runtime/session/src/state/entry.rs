//! The symbols of a dylib's table: their entries, and definitions that others displaced.

use smallvec::SmallVec;

use crate::error::SessionError;
use crate::flags::{Flags, SymbolState};
use crate::graph::NodeId;
use crate::lookup::{Found, Required};
use crate::number::{DylibId, TrackerKey};
use crate::slab::Key;
use crate::symbol::Symbol;

/// A symbol of a dylib.
pub(crate) type Place = (DylibId, Symbol);

/// The owner that has to produce an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Nobody,
    Unit(Key),
    Responsibility(Key),
}

/// One symbol of a dylib.
#[derive(Debug)]
pub(crate) struct Entry {
    pub flags: Flags,
    pub state: SymbolState,
    pub address: u64,
    pub tracker: TrackerKey,
    pub owner: Owner,
    pub node: Option<NodeId>,
    /// The waiting queries, each with the slot of the symbol in it.
    pub queries: SmallVec<[(Key, u32); 1]>,
    /// The error of a failed entry.
    pub error: Option<Box<SessionError>>,
}

impl Entry {
    pub(crate) fn found(&self, (dylib, symbol): Place) -> Found {
        Found {
            symbol,
            address: self.address,
            flags: self.flags,
            dylib,
            ready: self.state == SymbolState::Ready,
        }
    }

    /// Whether a lookup with this requirement need not wait.
    pub(crate) fn satisfies(&self, required: Required) -> bool {
        match required {
            _ if self.state == SymbolState::Failed => false,
            Required::Resolved => {
                self.state >= SymbolState::Resolved
                    && !self.flags.contains(Flags::SIDE_EFFECTS_ONLY)
            }
            Required::Ready => self.state == SymbolState::Ready,
        }
    }
}

/// A definition that was displaced.
#[derive(Debug)]
pub(crate) struct Displaced {
    pub symbol: Symbol,
    pub flags: Flags,
    pub unit: Key,
    pub tracker: TrackerKey,
    /// Its target, if it is an alias.
    pub alias: Option<Place>,
}
