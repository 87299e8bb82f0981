//! Cycles that leave a session as it was leave its memory as it was, counted in bytes that Rust code
//! has allocated and in [`uruk::Jit::memory`]. One test, in a process of its own. The benchmark
//! `soak` measures more cycles, by resident memory.

use crate::counting;

use crate::cycles::{Cycle, Cycles};
use uruk_testing::in_own_process;

/// Cycles before the first count, and between the two.
const WARM: usize = 600;
const COUNTED: usize = 1500;
/// Bytes that a table may grow by meanwhile without growing with the cycles.
const TABLES: usize = 40 << 10;

/// Bytes that may stay of a cycle.
fn allowed(cycle: Cycle) -> usize {
    match cycle {
        Cycle::Replace | Cycle::Lazy | Cycle::Alias | Cycle::Dylib | Cycle::EmptyDylib => 30,
        // The tracker's data about the image stays: some closures and numbers.
        Cycle::Undefine => 1500,
        // A name that was not there before stays, in the session and for the tools.
        Cycle::Module | Cycle::Error | Cycle::Panic => 110,
        // So does the stub of an object's function whose address was asked for.
        Cycle::Object => 150,
    }
}

#[test]
fn cycles_leave_memory_as_it_was() {
    if !in_own_process(module_path!(), "cycles_leave_memory_as_it_was") {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<i64>().is_none() {
            eprintln!("{info}");
        }
    }));
    for cycle in Cycle::ALL {
        let others = if cycle == Cycle::Object { 500 } else { 0 };
        let cycles = Cycles::new(cycle, others);
        (0..WARM).for_each(|number| cycles.run(number));
        cycles.settle();
        let before = (
            counting::allocated(),
            cycles.jit().memory().total() as usize,
        );
        (WARM..WARM + COUNTED).for_each(|number| cycles.run(number));
        cycles.settle();
        let after = (
            counting::allocated(),
            cycles.jit().memory().total() as usize,
        );
        let most = COUNTED * allowed(cycle) + TABLES;
        let name = cycle.name();
        assert!(after.0 <= before.0 + most, "{name}: {before:?}, {after:?}");
        assert!(
            after.1 <= before.1 + COUNTED * allowed(cycle).max(70) + TABLES,
            "{name}: {before:?}, {after:?}"
        );
    }
}
