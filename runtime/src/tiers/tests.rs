//! Which functions are watched, and since when.

use std::collections::HashMap;
use std::time::Duration;

use uruk_heap::{Heap, HeapConfig};
use uruk_stubs::StubTable;
use uruk_tiering::{Facts, Late, Publication};

use super::{Count, CountedFunctions};
use crate::Jit;
use crate::version::request::Made;

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

/// Two threads make first code of a function, one of them for a call that is expected. Code that comes
/// second changes nothing of what is counted.
#[test]
fn first_code_that_comes_second_leaves_counters_watched() {
    let jit = Jit::new().expect("a session");
    let ir = "define i32 @one() { ret i32 1 }\ndefine i32 @two() { ret i32 2 }";
    jit.add_ir("numbers", ir).expect("a module");
    for name in ["one", "two"] {
        // SAFETY: functions of that type.
        let function = unsafe { jit.function::<extern "C" fn() -> i32>(name) };
        function.expect("it is there").call();
    }
    let _pass = crate::fork::gate::enter();
    let session = jit.session();
    let ids = ["one", "two"].map(|name| jit.main().id_of(name).expect("a function"));
    let runs = ids.map(|id| {
        session
            .versions
            .seen(id)
            .published()
            .expect("it was called")
    });
    let late = |counts, runs| Made {
        version: session.versions.ids.next(),
        compiling: Duration::ZERO,
        linking: Duration::ZERO,
        facts: Facts::default(),
        counts,
        callees: 0,
        object: None,
        words: None,
        publication: Publication::Dropped(Late::Overtaken(runs)),
    };
    let is_watched = |id| {
        let mut control = session.tiers.control();
        control.watched.list().iter().any(|(it, _)| *it == id)
    };
    for (id, runs) in ids.into_iter().zip(runs) {
        // The caller is woken before the code is reported.
        while !is_watched(id) {
            std::thread::yield_now();
        }
        for counts in [false, true] {
            let made = late(counts, runs.id);
            let now = session.events.now();
            session.tiers.on_compiled(now, id, runs.tier, &made);
            assert!(is_watched(id));
            let view = session.tiers.control().controller.view(id);
            assert_eq!(view.and_then(|it| it.version), Some((runs.id, runs.tier)));
        }
    }
}
