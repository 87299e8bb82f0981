//! When to look at the counters again.
//!
//! Something is *new* when a function gets its first code, a candidate is found, code is
//! published, or a function's score has doubled since it was last found new; the last one
//! happens to a function a bounded number of times per version. From then on the interval
//! grows as `policy::poll_interval` says.

use crate::config::Config;
use crate::ids::Nanos;
use crate::policy::poll_interval;

#[derive(Debug)]
pub(crate) struct Polls {
    new_at: Nanos,
    /// Mean time of a look, in ns.
    look: f64,
}

impl Polls {
    pub(crate) fn new() -> Polls {
        Polls {
            new_at: Nanos::ZERO,
            look: 0.0,
        }
    }

    pub(crate) fn note(&mut self, now: Nanos) {
        self.new_at = self.new_at.max(now);
    }

    /// A look took so long.
    pub(crate) fn looked(&mut self, took: Nanos) {
        self.look += (took.as_f64() - self.look) / 8.0;
    }

    pub(crate) fn interval(&self, now: Nanos, config: &Config) -> Nanos {
        poll_interval(now - self.new_at, self.look, config)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn looks_double_until_something_is_new() {
        let config = Config::default();
        let mut polls = Polls::new();
        let mut now = Nanos::from_ms(1000);
        polls.note(now);
        let mut intervals = Vec::new();
        for _ in 0..10 {
            let interval = polls.interval(now, &config);
            intervals.push(interval.0 / 1_000_000);
            now = now + interval;
        }
        assert_eq!(intervals, [1, 1, 2, 4, 8, 16, 32, 64, 100, 100]);
        polls.note(now);
        assert_eq!(polls.interval(now, &config), config.poll_min);
        for _ in 0..100 {
            polls.looked(Nanos::from_us(100));
        }
        let interval = polls.interval(now, &config);
        assert!(
            interval > Nanos::from_ms(49),
            "0.2 % of the time: {interval}"
        );
    }
}
