//! Memory of the tables of a session, for reports.
//!
//! Tables by hash are counted with all their places, vectors by what is in them: pages behind that were
//! never written. Blocks are counted as glibc's allocator hands them out. What a unit or a resource
//! points to is not known here.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use super::{DylibState, State, TrackerState, UnitCell};
use crate::dylib::DylibShared;

/// Bytes that the allocator takes for a block.
fn block(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        _ => (bytes + 8).next_multiple_of(16).max(32),
    }
}

fn of_vec<T>(items: &[T]) -> usize {
    block(size_of_val(items))
}

fn places(capacity: usize) -> usize {
    match capacity {
        0 => 0,
        1..=7 => capacity + 1,
        _ => (capacity * 8 / 7).next_power_of_two(),
    }
}

fn of_map<K, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> usize {
    block(places(map.capacity()) * (size_of::<(K, V)>() + 1))
}

fn of_set<K, S: BuildHasher>(set: &HashSet<K, S>) -> usize {
    block(places(set.capacity()) * (size_of::<K>() + 1))
}

impl UnitCell {
    fn bytes(&self) -> usize {
        let unit = self
            .unit
            .as_deref()
            .map_or(0, |unit| block(size_of_val(unit)));
        // A unit that knows its addresses has a list of them as long.
        unit + 2 * of_vec(&self.symbols) + of_vec(&self.discards)
    }
}

impl TrackerState {
    fn bytes(&self) -> usize {
        let resources = self.resources.iter();
        let resources: usize = resources.map(|held| block(size_of_val(&**held))).sum();
        resources + of_vec(&self.resources) + of_vec(&self.symbols) + of_set(&self.responsibilities)
    }
}

impl DylibState {
    fn bytes(&self) -> usize {
        block(size_of::<DylibShared>())
            + self.shared.ready.bytes()
            + of_map(&self.symbols)
            + of_set(&self.trackers)
            + of_set(&self.searchers)
            + of_vec(&self.link_order)
            + of_vec(&self.inits)
    }
}

impl State {
    /// Bytes that the tables take.
    pub(crate) fn bytes(&self) -> usize {
        let units: usize = self.units.iter().map(UnitCell::bytes).sum();
        let trackers: usize = self.trackers.values().map(TrackerState::bytes).sum();
        let dylibs: usize = self.dylibs.values().map(DylibState::bytes).sum();
        let tables = of_map(&self.dylibs) + of_map(&self.names) + of_map(&self.trackers);
        let slabs = self.units.bytes() + self.responsibilities.bytes() + self.queries.bytes();
        self.pool.bytes() + units + trackers + dylibs + tables + slabs
    }
}
