//! Memory of the tables of a session, for reports.
//!
//! Vectors are counted by their length: pages behind it were never written. Memory that a unit or a
//! resource points to is not known here.

use uruk_base::allocated::{of_block, of_map, of_set, of_slice};

use super::trackers::TrackerState;
use super::{DylibState, UnitCell};
use crate::shared::DylibShared;

impl UnitCell {
    pub(super) fn bytes(&self) -> usize {
        let unit = self
            .unit
            .as_deref()
            .map_or(0, |unit| of_block(size_of_val(unit)));
        // A unit of fixed addresses has a list of them of the same length.
        unit + 2 * of_slice(&self.symbols) + of_slice(&self.discards)
    }
}

impl TrackerState {
    pub(super) fn bytes(&self) -> usize {
        let resources = self.resources.iter();
        let resources: usize = resources.map(|held| of_block(size_of_val(&**held))).sum();
        resources
            + of_slice(&self.resources)
            + of_slice(&self.symbols)
            + of_set(&self.responsibilities)
    }
}

impl DylibState {
    pub(super) fn bytes(&self) -> usize {
        of_block(size_of::<DylibShared>())
            + self.shared.ready.bytes()
            + of_map(&self.symbols)
            + of_set(&self.trackers)
            + of_set(&self.searchers)
            + of_slice(&self.link_order)
            + of_slice(&self.inits)
    }
}
