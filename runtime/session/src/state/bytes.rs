//! Memory of the tables of a session, for reports.
//!
//! Vectors are counted by their length: pages behind it were never written. Memory that a unit or a
//! resource points to is not known here.

use uruk_base::allocated::{of_block, of_map, of_set, of_slice};

use super::{DylibState, State, TrackerState, UnitCell};
use crate::shared::DylibShared;

impl UnitCell {
    fn bytes(&self) -> usize {
        let unit = self
            .unit
            .as_deref()
            .map_or(0, |unit| of_block(size_of_val(unit)));
        // A unit of fixed addresses has a list of them of the same length.
        unit + 2 * of_slice(&self.symbols) + of_slice(&self.discards)
    }
}

impl TrackerState {
    fn bytes(&self) -> usize {
        let resources = self.resources.iter();
        let resources: usize = resources.map(|held| of_block(size_of_val(&**held))).sum();
        resources
            + of_slice(&self.resources)
            + of_slice(&self.symbols)
            + of_set(&self.responsibilities)
    }
}

impl DylibState {
    fn bytes(&self) -> usize {
        of_block(size_of::<DylibShared>())
            + self.shared.ready.bytes()
            + of_map(&self.symbols)
            + of_set(&self.trackers)
            + of_set(&self.searchers)
            + of_slice(&self.link_order)
            + of_slice(&self.inits)
    }
}

impl State {
    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        let units: usize = self.units.iter().map(UnitCell::bytes).sum();
        let trackers: usize = self.trackers.values().map(TrackerState::bytes).sum();
        let dylibs: usize = self.dylibs.values().map(DylibState::bytes).sum();
        let tables = of_map(&self.dylibs) + of_map(&self.names) + of_map(&self.trackers);
        let slabs = self.units.bytes() + self.responsibilities.bytes() + self.queries.bytes();
        self.pool.bytes() + units + trackers + dylibs + tables + slabs
    }
}
