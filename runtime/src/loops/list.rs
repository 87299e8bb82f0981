//! The loops of all versions, and the loops that were passed since the last look.
//!
//! A program may have ten thousand functions with loops of which one runs. So a look reads two
//! words of each version, one of them its own, and goes on only if a count changed:
//!
//! ```text
//! sum of the counts == what it was, and nothing was going on  =>  nothing to do
//! ```
//!
//! Versions leave the list when they are gone (`Continuations::remove_ended`), whatever the tiers: nothing
//! else reads all of them meanwhile.

use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_reclaim::IdMap;

use super::watch::WatchedLoops;
use crate::code::loop_words::Passes;
use crate::code::loops::Loops;

/// The list of loops; see the module.
#[derive(Default)]
pub(crate) struct List {
    entries: Vec<WatchedEntry>,
    /// The loops of a function's versions, and of its continuations', by its index.
    of: IdMap<u32, Vec<Weak<Loops>>>,
}

struct WatchedEntry {
    passes: Passes,
    /// Whether a loop is running, or was until the last look.
    busy: bool,
    watched: Box<WatchedLoops>,
}

impl List {
    pub(super) fn push(&mut self, loops: &Arc<Loops>, watched: WatchedLoops) {
        let of = self.of.entry(loops.whose.index()).or_default();
        of.push(Arc::downgrade(loops));
        let passes = loops.counts();
        self.entries.push(WatchedEntry {
            passes,
            busy: false,
            watched: Box::new(watched),
        });
    }

    /// The loops of all versions of a function, and of its continuations.
    pub(super) fn of(&self, function: FunctionId) -> Vec<Arc<Loops>> {
        let of = self.of.get(&function.index()).into_iter().flatten();
        of.filter_map(Weak::upgrade).collect()
    }

    /// The loops of all versions.
    pub(super) fn all(&self) -> Vec<Arc<Loops>> {
        let all = self.of.values().flatten();
        all.filter_map(Weak::upgrade).collect()
    }

    /// Drops loops of freed versions of `functions`.
    pub(super) fn forget_gone(&mut self, functions: &[FunctionId]) {
        let there = |loops: &Weak<Loops>| loops.strong_count() != 0;
        for function in functions {
            if let Some(of) = self.of.get_mut(&function.index()) {
                of.retain(there);
                if of.is_empty() {
                    self.of.remove(&function.index());
                }
            }
        }
        self.entries.retain(|entry| there(&entry.watched.loops));
    }

    /// Calls `each` for all versions.
    pub(super) fn each(&mut self, mut each: impl FnMut(&mut WatchedLoops)) {
        for entry in &mut self.entries {
            each(&mut entry.watched);
        }
    }

    /// Calls `each` for versions whose heads were passed since the last time, and for those that it
    /// reported as busy then.
    pub(super) fn look(&mut self, mut each: impl FnMut(&mut WatchedLoops) -> bool) {
        for entry in &mut self.entries {
            if !entry.passes.have_changed() && !entry.busy {
                continue;
            }
            entry.passes.settle();
            entry.busy = each(&mut entry.watched);
        }
    }

    /// Number of versions in the list.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use crate::fork::gate;
    use crate::{Jit, ReclaimKind, Tiers};

    /// No thread watches loops unless functions move up automatically.
    #[test]
    fn loops_leave_the_list_with_their_versions_whatever_the_tiers() {
        const LOOP: &str = "define i64 @f(i64 %n) {
            entry:
              br label %loop
            loop:
              %i = phi i64 [ 0, %entry ], [ %j, %loop ]
              %j = add i64 %i, 1
              %again = icmp ult i64 %j, %n
              br i1 %again, label %loop, label %done
            done:
              ret i64 %j
            }";
        for tiers in [Tiers::Leave(3), Tiers::Auto] {
            let jit = Jit::builder().tiers(tiers).build().expect("a session");
            let versions = || {
                let _busy = gate::enter();
                jit.session().continuations.watched().len()
            };
            for _ in 0..3 {
                let tracker = jit.main().create_tracker().expect("a tracker");
                tracker.add_ir("loop", LOOP).expect("added");
                // SAFETY: the function has this type.
                let f = unsafe { jit.function::<extern "C" fn(i64) -> i64>("f") };
                assert_eq!(f.expect("a function").call(9), 9);
                assert_eq!(versions(), 1);
                // SAFETY: no thread is inside, and nothing keeps an address.
                unsafe { tracker.remove() }.expect("removed");
                while versions() != 0 {
                    jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(120));
                }
            }
        }
    }

    /// A loop is left for better code in a process that may not read the cycle counter.
    #[test]
    fn loops_are_left_without_the_cycle_counter() {
        // It ends when the first cell is not zero.
        const SPIN: &str = "define i64 @spin(ptr %cell) {
            entry:
              br label %loop
            loop:
              %x = phi i64 [ 1, %entry ], [ %y, %loop ]
              %d = or i64 %x, 3
              %q = udiv i64 -1, %d
              %y = add i64 %q, 1
              %last = getelementptr i64, ptr %cell, i64 1
              store atomic i64 1, ptr %last monotonic, align 8
              %stop = load atomic i64, ptr %cell monotonic, align 8
              %over = icmp ne i64 %stop, 0
              br i1 %over, label %done, label %loop
            done:
              ret i64 1
            }";
        let test = "loops_are_left_without_the_cycle_counter";
        if !uruk_testing::in_own_process(module_path!(), test) {
            return;
        }
        crate::fork::confine::end_cycles();
        let jit = Jit::new().expect("a session");
        jit.add_ir("spin", SPIN).expect("added");
        let cells: [AtomicI64; 2] = Default::default();
        // SAFETY: it has this type.
        let spin = unsafe { jit.function::<extern "C" fn(*const AtomicI64) -> i64>("spin") };
        let spin = spin.expect("a function");
        let left = || jit.stats().continuations.left;
        std::thread::scope(|scope| {
            let cells = &cells;
            let looping = scope.spawn(move || spin.call(cells.as_ptr()));
            let wait = |done: &dyn Fn() -> bool| {
                let start = std::time::Instant::now();
                while !done() && start.elapsed() < Duration::from_secs(120) {
                    std::thread::yield_now();
                }
                assert!(done());
            };
            wait(&|| cells[1].load(Ordering::Relaxed) == 1);
            wait(&|| left() != 0);
            cells[0].store(1, Ordering::Relaxed);
            assert_eq!(looping.join().expect("it ends"), 1);
        });
    }
}
