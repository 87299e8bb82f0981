//! Which functions are watched, and since when.

use std::collections::HashMap;

use uruk_heap::{Heap, HeapConfig};
use uruk_stubs::StubTable;

use super::{Count, CountedFunctions};

#[test]
fn what_is_watched_is_what_was_set_last() {
    // Other tests have sessions, and locks are checked from then on.
    let _pass = crate::fork::gate::enter();
    let heap = Heap::new(HeapConfig::default()).expect("a heap");
    let table = StubTable::new(&heap).expect("stubs");
    let ids: Vec<_> = (0..64).map(|_| table.allocate().expect("room")).collect();
    let mut watched = CountedFunctions::default();
    let mut model: HashMap<u32, u32> = HashMap::new();
    let mut state = 1_u32;
    for _ in 0..2_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (id, entries) = (ids[(state >> 16 & 63) as usize], state >> 8);
        let index = id.index();
        if state >> 30 == 0 {
            watched.remove(id);
            model.remove(&index);
        } else {
            watched.set(id, Count { entries, loops: 0 });
            model.insert(index, entries);
        }
        let list = watched.list().iter();
        let found: HashMap<u32, u32> = list.map(|(id, c)| (id.index(), c.entries)).collect();
        assert_eq!(found, model);
        assert_eq!(watched.list().len(), model.len(), "each once");
    }
}
