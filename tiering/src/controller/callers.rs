//! Callers before small callees.
//!
//! Tier 2 inlines small functions into their callers. Code of their own is hardly called then: where a
//! small function is hot, its caller is compiled in its place, if most of its calls come from there.
//! The time of the callee counts as time of the caller from then on. If the caller is small, too, its
//! own caller is next, and so on. While the caller is compiled, the callee waits. A callee that was not
//! inlined stays hot, and is compiled by itself: a caller at tier 2 leads nowhere.
//!
//! ```text
//! small:   instructions <= SMALL, time per entry <= SHORT
//! leads:   at tier 1 with counters, entered again (entered >= AGAIN), and
//!          entered * calls + passes of loops >= PART * entered by the callee
//! ```
//!
//! The controller does not know the callers of a function. It asks for them
//! ([`Controller::questions`](super::Controller::questions)), and puts the function aside until it was
//! answered ([`Controller::callers_told`](super::Controller::callers_told)).
//!
//! # Why
//! The unoptimized code of a Rust program calls ten functions of a few instructions for one element of
//! a loop. Each took 1 to 3 ms at tier 2 by itself, and all of them again when their caller was
//! compiled: 25 compiles for a hash table, where 9 do. To measure callees anew when their caller is
//! published was tried, and short runs took longer: callees that are called from elsewhere, too, lose
//! their record.

use std::collections::HashMap;

use crate::activity::{Activity, Place, Wish};
use crate::config::Config;
use crate::ids::{FunctionId, Tier};
use crate::queue::Queue;

use super::pages::Pages;

/// Instructions of IR up to which a function is likely to be inlined.
const SMALL: u32 = 100;
/// Time of an entry in ns, up to which it is.
const SHORT: f64 = 500.0;
/// Entries of a caller within the window. One that is entered no more would not reach its new code.
const AGAIN: f64 = 3.0;
/// Part of the callee's entries that come from the caller, by its counters.
const PART: f64 = 0.3;
/// Callers of callers, at most.
const DEEPEST: usize = 12;
/// Functions whose callers are remembered, at most; then all are forgotten.
const MOST: usize = 4096;

/// Callers of functions, as far as they were told.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// Whether questions are answered.
    asks: bool,
    known: HashMap<FunctionId, Vec<FunctionId>>,
    questions: Vec<FunctionId>,
    /// Callers that were told of a function whose answer is not complete.
    told: HashMap<FunctionId, Vec<FunctionId>>,
}

impl Callers {
    /// Whether the callers of functions can be told.
    pub(super) fn ask(&mut self, asks: bool) {
        self.asks = asks;
    }

    /// Takes the functions whose callers are needed.
    pub(super) fn questions(&mut self) -> Vec<FunctionId> {
        std::mem::take(&mut self.questions)
    }

    /// Adds a caller of a function.
    pub(super) fn add(&mut self, function: FunctionId, caller: FunctionId) {
        self.told.entry(function).or_default().push(caller);
    }

    /// Ends the list of callers of a function.
    pub(super) fn complete(&mut self, function: FunctionId) {
        let callers = self.told.remove(&function).unwrap_or_default();
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(function, callers);
    }

    /// Forgets the callers of a function.
    pub(super) fn forget(&mut self, function: FunctionId) {
        self.known.remove(&function);
        self.told.remove(&function);
    }

    /// The function to be compiled for the sake of `function`, a candidate that is in no queue: itself,
    /// or a caller, which is taken out of the queue. `None` if it is put aside: until its callers are
    /// known, or while the caller is compiled.
    pub(super) fn leading(
        &mut self,
        functions: &mut Pages,
        queue: &mut Queue,
        config: &Config,
        mut function: FunctionId,
    ) -> Option<FunctionId> {
        if !self.asks || config.max_tier < Tier::Optimized {
            return Some(function);
        }
        for _ in 0..DEEPEST {
            let small = functions
                .get(function)
                .is_some_and(|it| is_small(it, config));
            if !small {
                break;
            }
            let Some(callers) = self.known.get(&function) else {
                self.questions.push(function);
                return None;
            };
            let Some(caller) = leading_caller(functions, config, function, callers) else {
                break;
            };
            let (window, spent) = functions.get_mut(function)?.give_time();
            let activity = functions.get_mut(caller)?;
            activity.take_time(window, spent);
            match activity.place {
                Place::Compiling => return None,
                Place::Queued => {
                    activity.place = Place::Idle;
                    queue.remove(caller);
                }
                Place::Idle | Place::Requested => {}
            }
            function = caller;
        }
        Some(function)
    }
}

/// The caller from which most calls of a function come, if one leads.
fn leading_caller(
    functions: &Pages,
    config: &Config,
    function: FunctionId,
    callers: &[FunctionId],
) -> Option<FunctionId> {
    let entered = functions.get(function)?.entered();
    let calls = callers.iter().filter_map(|&caller| {
        let calls = leads(functions.get(caller)?, config)?;
        (caller != function).then_some((caller, calls))
    });
    let most = calls.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= PART * entered).then_some(most.0)
}

/// Whether a function is likely to be inlined into its callers.
fn is_small(activity: &Activity, config: &Config) -> bool {
    let counted = activity.tier() == Some(Tier::Baseline) && activity.counters;
    counted
        && activity.facts().instructions <= SMALL
        && activity.window().0 <= SHORT * activity.entered()
        && activity.entry_rate(config) > 0.0
}

/// The calls that a function made within the window, at most, if it can take the place of a callee.
fn leads(activity: &Activity, config: &Config) -> Option<f64> {
    let can = activity.tier() == Some(Tier::Baseline)
        && activity.counters
        && activity.wish == Wish::Free
        && !activity.is_barred(Tier::Optimized)
        && activity.place != Place::Requested
        && activity.entered() >= AGAIN;
    if !can {
        return None;
    }
    let facts = activity.facts();
    let passes = match facts.loops {
        0 => activity.entered(),
        _ => activity
            .entered()
            .max(activity.window().0 / activity.event_time(1.0, config)),
    };
    Some(passes * f64::from(facts.calls.max(1)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{controller, first};
    use super::super::{Decision, Outcome};
    use super::*;
    use crate::controller::Controller;
    use crate::ids::Nanos;
    use crate::policy::Facts;

    const CALLEE: FunctionId = FunctionId(1);
    const CALLER: FunctionId = FunctionId(2);

    /// A controller with a small function, and a larger one that calls it.
    fn pair(asks: bool) -> Controller {
        let mut controller = controller(|config| config.jobs = 2);
        controller.ask_callers(asks);
        for (function, instructions) in [(CALLEE, 10), (CALLER, 300)] {
            first(&mut controller, Nanos::ZERO, function, instructions);
        }
        controller
    }

    /// Milliseconds from `from` in which the callee is entered often, and the caller so many times
    /// in each; answers questions. Returns the functions that are compiled, with the milliseconds.
    fn run(
        controller: &mut Controller,
        from: u64,
        callers: &[FunctionId],
        entries: u64,
    ) -> Vec<(u64, FunctionId, crate::ids::VersionId)> {
        let mut compiled = Vec::new();
        for ms in from..from + 100 {
            let now = Nanos::from_ms(ms);
            controller.on_counters(now, CALLEE, 100_000, 0);
            controller.on_counters(now, CALLER, entries, 0);
            for _ in 0..3 {
                while let Some(decision) = controller.next(now) {
                    let Decision::Compile {
                        function, version, ..
                    } = decision
                    else {
                        panic!("{decision:?}")
                    };
                    compiled.push((ms, function, version));
                }
                for asked in controller.questions() {
                    for &caller in callers.iter().filter(|_| asked == CALLEE) {
                        controller.on_caller(asked, caller);
                    }
                    controller.callers_told(asked);
                }
            }
        }
        compiled
    }

    fn functions(compiled: &[(u64, FunctionId, crate::ids::VersionId)]) -> Vec<FunctionId> {
        compiled.iter().map(|it| it.1).collect()
    }

    #[test]
    fn a_caller_is_compiled_in_place_of_its_callee_which_waits() {
        let mut controller = pair(true);
        let compiled = run(&mut controller, 1, &[CALLER], 100_000);
        assert_eq!(functions(&compiled), [CALLER]);
        let compile = Nanos::from_ms(10);
        let published = Outcome::Published {
            compile,
            counters: false,
        };
        controller.finished(Nanos::from_ms(101), compiled[0].2, published);
        // It was not inlined after all.
        let compiled = run(&mut controller, 101, &[CALLER], 0);
        assert_eq!(functions(&compiled), [CALLEE]);
    }

    #[test]
    fn a_function_is_compiled_itself_without_a_caller_that_leads() {
        // Callers are not told, or there is none, or it is never entered again, or calls it rarely.
        for (asks, callers, entries) in [
            (false, &[][..], 100_000),
            (true, &[], 100_000),
            (true, &[CALLER], 0),
            (true, &[CALLER], 100),
            (true, &[CALLEE], 0),
        ] {
            let mut controller = pair(asks);
            let compiled = run(&mut controller, 1, callers, entries);
            let first = compiled.iter().find(|it| it.1 == CALLEE);
            assert!(first.is_some(), "{asks} {callers:?} {entries}");
        }
    }

    #[test]
    fn large_functions_and_long_ones_lead_themselves() {
        let mut activity = Activity::default();
        let config = Config::default();
        activity.run(Nanos::ZERO, crate::ids::VersionId(1), Tier::Baseline, true);
        let mut spend = |instructions, time: f64| {
            activity.set_facts(&Facts {
                instructions,
                ..Facts::default()
            });
            activity.spend(Nanos::from_ms(1), time, 1000.0, &config);
            is_small(&activity, &config)
        };
        assert!(spend(SMALL, 1e3));
        assert!(!spend(SMALL + 1, 1e3));
        assert!(!spend(SMALL, 10e6));
    }
}
