//! The part of a dylib that its handles share, and the visibility of its symbols.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::SessionError;
use crate::flags::Flags;
use crate::number::DylibId;
use crate::order::Order;
use crate::ready::ReadyTable;

/// The symbols of a dylib that a search sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Visibility {
    /// The exported symbols.
    #[default]
    Exported,
    /// All, as the dylib itself does.
    All,
}

impl Visibility {
    #[inline]
    pub(crate) fn sees(self, flags: Flags) -> bool {
        self == Visibility::All || flags.is_exported()
    }
}

/// The part that all handles of a dylib share, and that is read without the lock.
///
/// `generators` is written under the session's lock, with release, and read with acquire by ready
/// lookups: if it is 0, an undefined symbol is not in this dylib.
#[derive(Debug)]
pub(crate) struct DylibShared {
    pub id: DylibId,
    pub name: Arc<str>,
    pub ready: ReadyTable,
    pub order: Order,
    generators: AtomicUsize,
}

impl DylibShared {
    pub(crate) fn new(id: DylibId, name: &str) -> Self {
        Self {
            id,
            name: name.into(),
            ready: ReadyTable::new(),
            order: Order::default(),
            generators: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set_generators(&self, count: usize) {
        self.generators.store(count, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_generators(&self) -> bool {
        self.generators.load(Ordering::Acquire) != 0
    }

    /// Adds the dylib's name to an error that was made without it.
    pub(crate) fn named(&self, error: SessionError) -> SessionError {
        match error {
            SessionError::TrackerDefunct { .. } => SessionError::TrackerDefunct {
                dylib: Arc::clone(&self.name),
            },
            other => other,
        }
    }
}
