//! Scans of threads for code that they may return into.

use crate::events::Event;
use crate::reclaim::Reclaim;
use std::time::Duration;
use uruk_heap::Pool;
use uruk_reclaim::Stacks;
use uruk_roots::{Report, Roots, Wanted};

impl Reclaim {
    /// Whether memory is searched for unregistered stacks: the program switches stacks by itself.
    pub(crate) fn searches_stacks(&self) -> bool {
        self.stacks.is_searching()
    }

    /// Scans for threads that may return into `wanted`, and through all memory if the program has
    /// unregistered stacks. `None` if it got such stacks meanwhile: the scan proves nothing.
    pub(crate) fn scan_stacks(
        &self,
        roots: &Roots,
        wanted: &Wanted,
        within: Duration,
    ) -> Option<Report> {
        let search = &self.stacks;
        self.look_for_switches();
        let searching = self.searches_stacks();
        let report = self.scan_searching(roots, wanted, within);
        if self.keeps_all() {
            return None;
        }
        if report.unknown_stack.is_some() && search.choice() == Stacks::Told {
            return None;
        }
        self.tell_of_search();
        (search.is_searching() == searching).then_some(report)
    }

    /// Checks whether new code of the process switches stacks.
    pub(crate) fn look_for_switches(&self) {
        self.stacks.look_at_process(|at: u64| {
            let data = [Pool::ReadOnly, Pool::ReadWrite].map(|pool| self.heap.pool_range(pool));
            self.heap.contains(at) && !data.iter().any(|data| data.contains(&at))
        });
    }

    /// Scans, with all memory if it is searched. Then checks for new code, and for threads on
    /// unknown stacks: if there are any, memory is searched from then on.
    pub(crate) fn scan_searching(
        &self,
        roots: &Roots,
        wanted: &Wanted,
        within: Duration,
    ) -> Report {
        let search = &self.stacks;
        roots.search_memory(search.limit(), search.choice() == Stacks::Always);
        let report = roots.scan(wanted, within);
        self.look_for_switches();
        if let Some(sp) = report.unknown_stack {
            match search.choice() {
                Stacks::Told => self.keep_code(&format!(
                    "a thread runs on a stack at {sp:#x} that was not registered (see \
                     `Jit::register_stack`)"
                )),
                _ => search.begin(|| format!("a thread is on one at {sp:#x}")),
            }
        }
        report
    }

    /// Reports why memory is searched, once.
    fn tell_of_search(&self) {
        if let Some(cause) = self.stacks.take_cause() {
            tracing::info!(
                "the program has stacks that were not registered ({cause}): \
                 all memory is searched before code is freed"
            );
            let at = self.events.now();
            self.events.tell(|| Event::StacksSearched { cause, at });
        }
    }
}
