//! Finds the few functions that a program spends most of its time in.
//!
//! A function's `share` bounds the gain of compiling it, and so the price of idle time for it
//! (`policy`). Four functions of a quarter each bring as much as one that the program is in all the
//! time, but only together. So idle time has the same price for each of them as for all. That holds
//! for leaders only, of which there are few by definition. A function with a tenth of a short run
//! is no leader: the gain of many such functions is not known before most of them are compiled.
//!
//! ```text
//! leader: at tier 1, share >= LEADING, spent >= LEAST_SPENT
//! common share of a leader = sum of the shares of leaders heard of within the window
//! ```

use crate::activity::Activity;
use crate::config::Config;
use crate::ids::{FunctionId, Nanos, Tier};

/// Processors that a leader occupies at least.
const LEADING: f64 = 0.15;

/// Time in ns that it has run at least: shares of less are guesses.
const LEAST_SPENT: f64 = 1e6;

/// The present leaders.
#[derive(Debug, Default)]
pub(crate) struct Leaders(Vec<Leader>);

#[derive(Debug)]
struct Leader {
    function: FunctionId,
    share: f64,
    heard: Nanos,
}

impl Leaders {
    /// Updates the entry of a function whose share changed.
    pub(crate) fn note(
        &mut self,
        now: Nanos,
        function: FunctionId,
        activity: &Activity,
        config: &Config,
    ) {
        self.0
            .retain(|it| it.function != function && now - it.heard <= config.window);
        let share = activity.share(config);
        let leads = activity.tier().is_some_and(|tier| tier <= Tier::Baseline)
            && share >= LEADING
            && activity.spent() >= LEAST_SPENT;
        // Clocks that go back leave old entries; the number of entries is bounded.
        if leads && self.0.len() < (f64::from(config.cpus) / LEADING) as usize {
            let heard = now;
            self.0.push(Leader {
                function,
                share,
                heard,
            });
        }
    }

    /// The share that sets the price of idle time, for a function that occupies `share` by itself.
    pub(crate) fn common(&self, function: FunctionId, share: f64) -> f64 {
        let leads = self.0.iter().any(|it| it.function == function);
        match leads {
            true => self.0.iter().map(|it| it.share).sum::<f64>().max(share),
            false => share,
        }
    }
}
