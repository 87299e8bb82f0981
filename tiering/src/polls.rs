//! Sets the time of the next poll of the counters.
//!
//! Something is *new* when a function gets its first code, a candidate is found, code is
//! published, or a function's score has doubled since it was last found new; the last one
//! happens to a function a bounded number of times per version. From then on the interval
//! grows as `policy::poll_interval` says.
//!
//! For a candidate that is not worth its compile yet, the time at which it will be is known, if its
//! rate stays the same: the next poll is due then, even in quiet times. Each poll drops the
//! expectations of the one before: they are renewed if they still hold.
//!
//! The time of polls is paid from an account: `poll_overhead` of all time flows in, and at most
//! `poll_credit` is kept, which is also the initial balance. With credit, polls are as frequent as
//! the news demands; without it they become as rare as the inflow allows:
//!
//! ```text
//! time of all polls until t  <=  poll_credit + poll_overhead * t + one poll
//! ```

use crate::config::Config;
use crate::ids::Nanos;
use crate::policy::poll_interval;

#[derive(Debug)]
pub(crate) struct Polls {
    new_at: Nanos,
    /// Mean time of a poll, in ns.
    look: f64,
    /// Balance of the account, in ns, as of `at`.
    credit: f64,
    at: Nanos,
    /// Time at which a candidate will be worth its compile.
    due: Option<Nanos>,
    /// The same time, from the poll in progress.
    expected: Option<Nanos>,
}

impl Polls {
    pub(crate) fn new(config: &Config) -> Polls {
        Polls {
            new_at: Nanos::ZERO,
            look: 0.0,
            credit: config.poll_credit.as_f64(),
            at: Nanos::ZERO,
            due: None,
            expected: None,
        }
    }

    pub(crate) fn note(&mut self, now: Nanos) {
        self.new_at = self.new_at.max(now);
    }

    /// The time since the last news.
    pub(crate) fn quiet(&self, now: Nanos) -> Nanos {
        now - self.new_at
    }

    /// Records that a candidate will be worth its compile at `then`, if its rate stays the same.
    pub(crate) fn expect(&mut self, then: Nanos) {
        self.expected = Some(self.expected.map_or(then, |sooner| sooner.min(then)));
    }

    /// Records a poll that took so long.
    pub(crate) fn looked(&mut self, now: Nanos, took: Nanos, config: &Config) {
        self.look += (took.as_f64() - self.look) / 8.0;
        self.credit = self.credit_at(now, config) - took.as_f64();
        self.at = self.at.max(now);
        self.due = self.expected.take();
    }

    fn credit_at(&self, now: Nanos, config: &Config) -> f64 {
        let inflow = (now - self.at).as_f64() * config.poll_overhead;
        (self.credit + inflow).min(config.poll_credit.as_f64())
    }

    pub(crate) fn interval(&self, now: Nanos, config: &Config) -> Nanos {
        let missing = (self.look - self.credit_at(now, config)).max(0.0);
        let due = self.due.map(|due| due - now);
        poll_interval(self.quiet(now), due, missing, config)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn looks_double_until_something_is_new() {
        let config = Config {
            poll_min: Nanos::from_ms(1),
            ..Config::default()
        };
        let mut polls = Polls::new(&config);
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
    }

    #[test]
    fn a_look_comes_when_a_candidate_is_due() {
        let config = Config::default();
        let mut polls = Polls::new(&config);
        let now = Nanos::from_ms(1000);
        let look = Nanos::from_us(5);
        for ms in [70, 30, 50] {
            polls.expect(now + Nanos::from_ms(ms));
        }
        polls.looked(now, look, &config);
        assert_eq!(polls.interval(now, &config), Nanos::from_ms(30));
        assert_eq!(
            polls.interval(now + Nanos::from_ms(30), &config),
            config.poll_min
        );
        // Its rate did not stay the same, or was never measured.
        polls.looked(now, look, &config);
        assert_eq!(polls.interval(now, &config), config.poll_max);
        // News is polled sooner.
        polls.expect(now + Nanos::from_ms(30));
        polls.note(now);
        polls.looked(now, look, &config);
        assert_eq!(polls.interval(now, &config), config.poll_min);
    }

    /// News all the time: polls are first frequent, then limited by the account.
    #[test]
    fn looks_are_paid_for() {
        let config = Config::default();
        let mut polls = Polls::new(&config);
        let look = Nanos::from_us(40);
        let (mut now, mut looks) = (Nanos::ZERO, 0u64);
        let mut early = 0;
        while now < Nanos::from_ms(10_000) {
            polls.note(now);
            polls.looked(now, look, &config);
            looks += 1;
            early += u64::from(now < Nanos::from_ms(5));
            now = now + polls.interval(now, &config);
        }
        assert!(early >= 5, "{early} looks in the first 5 ms");
        let may = config.poll_credit.as_f64() + config.poll_overhead * now.as_f64();
        let took = looks as f64 * look.as_f64();
        assert!(took <= may + 2.0 * look.as_f64(), "{took} of {may}");
        assert!(took > 0.9 * may, "{took} of {may}");
    }
}
