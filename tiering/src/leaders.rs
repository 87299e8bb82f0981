//! The few functions that a program spends most of its time in.
//!
//! A function's `share` says what it can bring by itself, and so what idle time is worth to it
//! (`policy`). Four functions of a quarter each bring as much as one that the program is in all
//! the time, but only together: what idle time is worth to each of them is what it is worth to all.
//! That holds for leaders only, of which there are few by definition. A tenth of a short run is
//! none: what many such functions would bring is not known before most of them are compiled.
//!
//! ```text
//! leader: at tier 1, share >= LEADING, spent >= LEAST_SPENT
//! common share of a leader = sum of the shares of leaders heard of within the window
//! ```

use crate::activity::Activity;
use crate::config::Config;
use crate::ids::{FunctionId, Nanos, Tier};

/// Processors a leader occupies at least.
const LEADING: f64 = 0.15;

/// Time it has run at least: shares of less are guesses.
const LEAST_SPENT: f64 = 1e6;

/// The leaders at present.
#[derive(Debug, Default)]
pub(crate) struct Leaders(Vec<Leader>);

#[derive(Debug)]
struct Leader {
    function: FunctionId,
    share: f64,
    heard: Nanos,
}

impl Leaders {
    /// Notes what became of a function's share.
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
        // Clocks that go back leave entries behind; there are never more than have room.
        if leads && self.0.len() < (f64::from(config.cpus) / LEADING) as usize {
            let heard = now;
            self.0.push(Leader {
                function,
                share,
                heard,
            });
        }
    }

    /// The share that idle time is priced by, for a function that occupies `share` by itself.
    pub(crate) fn common(&self, function: FunctionId, share: f64) -> f64 {
        let leads = self.0.iter().any(|it| it.function == function);
        match leads {
            true => self.0.iter().map(|it| it.share).sum::<f64>().max(share),
            false => share,
        }
    }
}
