//! Trackers: the handles by which definitions are removed or transferred.
//!
//! Each dylib has a default tracker. Dropping the last handle of another one moves its definitions
//! to the default tracker; of a tentative one, undoes them. Resources (memory, stubs, unwind rows)
//! are attached to trackers and released on removal, after the symbols and outside of any lock.

use std::fmt;
use std::sync::Arc;

use crate::alias::{self, Alias};
use crate::dylib::Dylib;
use crate::error::SessionError;
use crate::flags::Flags;
use crate::number::TrackerKey;
use crate::resource::Resource;
use crate::responsibility::Responsibility;
use crate::session::Session;
use crate::shared::{DylibShared, Visibility};
use crate::symbol::Symbol;
use crate::unit::Unit;

struct Handle {
    session: Session,
    shared: Arc<DylibShared>,
    key: TrackerKey,
    default: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.default {
            self.session.drop_tracker(&self.shared, self.key);
        }
    }
}

/// A handle to a set of definitions; the clones are one tracker.
#[derive(Clone)]
pub struct Tracker(Arc<Handle>);

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker")
            .field("dylib", &self.0.shared.name)
            .field("key", &self.0.key)
            .finish_non_exhaustive()
    }
}

impl Tracker {
    pub(crate) fn new(
        session: &Session,
        shared: &Arc<DylibShared>,
        key: TrackerKey,
        default: bool,
    ) -> Self {
        Self(Arc::new(Handle {
            session: session.clone(),
            shared: Arc::clone(shared),
            key,
            default,
        }))
    }

    /// Its key.
    pub fn key(&self) -> TrackerKey {
        self.0.key
    }

    /// Its dylib.
    pub fn dylib(&self) -> Dylib {
        Dylib::new(&self.0.session, &self.0.shared)
    }

    /// Whether it was removed or transferred.
    pub fn is_defunct(&self) -> bool {
        !self.0.session.lock().trackers.contains_key(&self.0.key)
    }

    /// Defines a unit's symbols under this tracker.
    ///
    /// # Errors
    /// `Duplicate` if a strong symbol is defined or was searched for already;
    /// `TrackerDefunct`, `DylibDefunct`, `Ended`. Nothing is changed then.
    pub fn define(&self, unit: impl Unit + 'static) -> Result<(), SessionError> {
        let handle = &self.0;
        handle
            .session
            .define(&handle.shared, Some(handle.key), Box::new(unit))
    }

    /// Defines symbols under this tracker whose production begins now, on the calling thread, and
    /// returns the responsibility for them. It is like a unit that is looked up as soon as it is
    /// defined, for symbols that only the caller knows. Weak symbols that are defined elsewhere are
    /// left out, see [`Responsibility::symbols`].
    ///
    /// # Errors
    /// Those of [`Tracker::define`].
    pub fn begin(&self, symbols: &[(Symbol, Flags)]) -> Result<Responsibility, SessionError> {
        let handle = &self.0;
        let begun = handle
            .session
            .change(|state, effects| state.begin(&handle.shared, handle.key, symbols, effects));
        Ok(Responsibility::new(&handle.session, begun?))
    }

    /// Like [`Dylib::reexport`], under this tracker; for its own dylib, like [`Dylib::alias`].
    ///
    /// # Errors
    /// Those of [`Dylib::reexport`], and `TrackerDefunct`.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), SessionError> {
        let Handle {
            session,
            shared,
            key,
            ..
        } = &*self.0;
        session.own(source)?;
        let source = alias::Source::new(source.shared(), seen);
        alias::define(session, shared, Some(*key), source, aliases)
            .map_err(|error| shared.named(error))
    }

    /// Keeps a resource until the definitions are removed.
    ///
    /// # Errors
    /// `TrackerDefunct`; the resource was released.
    pub fn attach(&self, resource: Box<dyn Resource>) -> Result<(), SessionError> {
        let handle = &self.0;
        handle.session.attach(&handle.shared, resource, |state| {
            state
                .trackers
                .contains_key(&handle.key)
                .then_some(handle.key)
        })
    }

    /// Removes the definitions, in whatever state they are, fails waiting lookups and dependents,
    /// and releases the resources. Work in flight gets an error at its next step. The tracker is
    /// defunct from then on.
    ///
    /// # Errors
    /// `TrackerDefunct`.
    pub fn remove(&self) -> Result<(), SessionError> {
        let handle = &self.0;
        handle
            .session
            .change(|state, effects| state.remove_tracker(handle.key, effects))
            .map_err(|error| handle.shared.named(error))
    }

    /// Moves definitions of its dylib from their trackers to this one, so that they are removed
    /// with it. Names that are not defined, and those in production, are left as they are.
    ///
    /// # Errors
    /// `TrackerDefunct`.
    pub fn adopt(&self, symbols: &[Symbol]) -> Result<(), SessionError> {
        let handle = &self.0;
        handle
            .session
            .change(|state, _| state.adopt(handle.key, symbols))
            .map_err(|error| handle.shared.named(error))
    }

    /// Moves everything to another tracker of the same dylib, including work in flight and
    /// resources. This one is defunct from then on.
    ///
    /// # Errors
    /// `TrackerDefunct`; `ForeignTracker` if it belongs to another dylib, `ForeignDylib` if
    /// to another session.
    pub fn transfer_to(&self, other: &Tracker) -> Result<(), SessionError> {
        let handle = &self.0;
        handle.session.own(&other.dylib())?;
        handle
            .session
            .change(|state, effects| state.transfer(handle.key, other.0.key, effects))
            .map_err(|error| handle.shared.named(error))
    }
}
