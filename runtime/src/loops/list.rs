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
use crate::code::loops::{Loops, Passes};

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
}
