//! Copies of dylibs' link orders, read by ready lookups without a lock.
//!
//! The link order itself is under the session's lock (`state.rs`). This is a copy of it with the
//! dylibs' shared parts, replaced as a whole when the order changes. A reader sees the old or the
//! new one.
//!
//! Two dylibs may be in each other's order, so the copies can form a reference cycle: they are
//! emptied when their dylib is removed, and with the session.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::ready::{Ready, ReadyTable};
use crate::shared::{DylibShared, Visibility};
use crate::symbol::Symbol;

/// See the module text.
#[derive(Default)]
pub(crate) struct Order(ArcSwap<Vec<(Arc<DylibShared>, Visibility)>>);

impl fmt::Debug for Order {
    /// Prints no dylibs: they may be in each other's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({} dylibs)", self.0.load().len())
    }
}

impl Order {
    /// Replaces the copy.
    pub(crate) fn set(&self, order: Vec<(Arc<DylibShared>, Visibility)>) {
        self.0.store(Arc::new(order));
    }

    /// Drops the references to the dylibs.
    pub(crate) fn clear(&self) {
        self.0.store(Arc::default());
    }
}

impl DylibShared {
    /// The address of a ready symbol that a lookup starting here finds: in this dylib or in its
    /// link order. `None` if it is not ready, or if a generator would have to be asked before.
    #[inline]
    pub(crate) fn ready_in_order(&self, symbol: Symbol) -> Option<u64> {
        let spot = ReadyTable::spot(symbol);
        let step = |shared: &DylibShared, seen: Visibility| match shared.ready.get_at(&spot) {
            Ready::At(address, flags) if seen.sees(flags) => Some(Some(address)),
            Ready::Defined(flags) if seen.sees(flags) => Some(None),
            Ready::Undefined if shared.has_generators() => Some(None),
            _ => None,
        };
        if let Some(answer) = step(self, Visibility::All) {
            return answer;
        }
        let order = self.order.0.load();
        order
            .iter()
            .find_map(|(shared, seen)| step(shared, *seen))?
    }
}
