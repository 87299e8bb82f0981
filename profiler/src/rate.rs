//! Computes the sampling rate from measured costs.
//!
//! Let `c` be the cost of a sample (seconds of the interrupted thread's CPU time, measured by the
//! source). Let `h` be the rate (samples per second of a thread's CPU time). Sampling slows every
//! thread by `h * c`, for any number of threads. With `d` the CPU time of a drain and `w` the time
//! between drains, draining takes
//!
//! ```text
//! own = d / (w * p),   p = max(1, CPU time of the process / wall time)
//! ```
//!
//! of the process's CPU time. (`p` is at least 1: a program that mostly sleeps is not slowed by a
//! thread beside it that wakes now and then.) `d` and `p` are means over the last intervals, each
//! counting 3/4 of the one after it. The overhead is `h * c + own`.
//!
//! - **Burst**: the first [`Settings::burst_ns`] at `min(burst_hz, 0.55 * burst_budget
//!   / c)`, drained every [`BURST_WAIT_NS`], to find code that is hot from the start:
//!   499 Hz for 200 ms gives a thread 100 samples. A loss ends the burst.
//! - **Steady**: `h = (0.8 * budget - own) / c`, at most `steady_hz`; down at once, up
//!   by a quarter for each interval. Below 1 Hz sampling pauses.
//! - **Slowed** ([`RateControl::slow_down`]): `steady_hz` is divided. It ends at once.
//! - **Loss**: the rate is halved, and drains come twice as often.
//! - **Drains**: every [`STEADY_WAIT_NS`]; intervals without a sample double up to
//!   [`IDLE_WAIT_NS`]. Never so often that `own` exceeds 0.4 of the budget, unless
//!   that would take more than [`MAX_WAIT_NS`].
//!
//! The resulting overhead is measured by `cargo xtask bench --only overhead`.
//!
//! 97 and 499 are prime, so that sampling does not stay in phase with a program that repeats
//! something a hundred times a second.

use crate::source::Rates;

/// Time between drains in the burst.
pub const BURST_WAIT_NS: u64 = 20_000_000;

/// Time between drains afterwards.
pub const STEADY_WAIT_NS: u64 = 100_000_000;

/// Shortest time between drains.
pub const MIN_WAIT_NS: u64 = 5_000_000;

/// Longest time between drains because no samples arrive.
pub const IDLE_WAIT_NS: u64 = 1_000_000_000;

/// Longest time between drains because drains are expensive.
pub const MAX_WAIT_NS: u64 = 4_000_000_000;

/// Weight of the past against one new interval.
const PAST: f64 = 0.75;

/// Budgets and rates that a caller may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Samples per second of a thread's CPU time at the start.
    pub burst_hz: u32,
    /// Length of the burst, nanoseconds; 0 for none.
    pub burst_ns: u64,
    /// Share of CPU time sampling may take in the burst.
    pub burst_budget: f64,
    /// The highest rate afterwards.
    pub steady_hz: u32,
    /// Share of CPU time sampling may take afterwards.
    pub budget: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            burst_hz: 499,
            burst_ns: 200_000_000,
            burst_budget: 0.02,
            steady_hz: 97,
            budget: 0.005,
        }
    }
}

/// Measurements of the interval between two drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Wall time, nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the process, nanoseconds.
    pub process_ns: u64,
    /// CPU time of draining and attributing, nanoseconds.
    pub own_ns: u64,
    /// Samples taken, those of excluded threads included.
    pub samples: u64,
    /// Samples lost.
    pub lost: u64,
}

/// The rate and the wait that follow from an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Samples per second of a thread's CPU time; 0 is a pause.
    pub hz: u32,
    /// Time until the next drain, nanoseconds.
    pub wait_ns: u64,
}

/// The controller. It has no clock: intervals come in, decisions go out.
#[derive(Clone, Debug)]
pub struct RateControl {
    settings: Settings,
    /// Cost of a sample, seconds.
    cost: f64,
    /// Rest of the burst, nanoseconds; 0 after it.
    burst_left_ns: u64,
    hz: f64,
    /// Time between drains, without the limit for expensive ones.
    wait_ns: u64,
    /// Divisor of `steady_hz`.
    slowed: u32,
    past: Past,
}

/// Decayed sums over the past intervals.
#[derive(Clone, Debug, Default)]
struct Past {
    intervals: f64,
    wall_ns: f64,
    process_ns: f64,
    own_ns: f64,
}

impl Past {
    fn add(&mut self, interval: &Interval) {
        self.intervals = PAST * self.intervals + 1.0;
        self.wall_ns = PAST * self.wall_ns + interval.wall_ns as f64;
        self.process_ns = PAST * self.process_ns + interval.process_ns as f64;
        self.own_ns = PAST * self.own_ns + interval.own_ns as f64;
    }

    /// CPU time of a drain over the number of busy CPUs. The least time between drains is this
    /// value over the share that drains may take.
    fn drain_ns(&self) -> f64 {
        let busy = self.process_ns.max(self.wall_ns).max(1.0) / self.wall_ns.max(1.0);
        self.own_ns / self.intervals.max(1.0) / busy
    }
}

impl RateControl {
    /// A controller for a source whose samples cost `cost_ns` each.
    #[must_use]
    pub fn new(settings: Settings, cost_ns: u64) -> RateControl {
        let cost = cost_ns.max(1) as f64 / 1e9;
        let mut control = RateControl {
            settings,
            cost,
            burst_left_ns: 0,
            hz: 0.0,
            wait_ns: STEADY_WAIT_NS,
            slowed: 1,
            past: Past::default(),
        };
        control.hz = control.affordable();
        let burst = (0.55 * settings.burst_budget / cost).min(f64::from(settings.burst_hz));
        if settings.burst_ns > 0 && burst > control.hz {
            control.burst_left_ns = settings.burst_ns;
            control.hz = burst;
            control.wait_ns = BURST_WAIT_NS;
        }
        control
    }

    /// The rates at which to start the source.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates {
            burst_hz: (self.hz as u32).max(1),
            steady_hz: (self.affordable() as u32).max(1),
        }
    }

    /// Limits the rate to `steady_hz / by`, from the next step on. The burst is not changed.
    pub fn slow_down(&mut self, by: u32) {
        let by = by.max(1);
        if by < std::mem::replace(&mut self.slowed, by) && !self.in_burst() {
            self.hz = self.affordable();
        }
    }

    /// Computes the decision that follows an interval.
    pub fn step(&mut self, interval: &Interval) -> Decision {
        self.past.add(interval);
        if self.in_burst() {
            self.burst_left_ns = self.burst_left_ns.saturating_sub(interval.wall_ns);
            if interval.lost > 0 || self.burst_left_ns == 0 {
                self.burst_left_ns = 0;
                self.wait_ns = STEADY_WAIT_NS;
                self.hz = self.affordable();
            }
        } else {
            self.steady(interval);
        }
        Decision {
            hz: self.hz as u32,
            wait_ns: self.wait(),
        }
    }

    /// The share of CPU time that sampling takes at the present rate.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        self.hz * self.cost + self.own_share()
    }

    /// Whether the burst is running.
    #[must_use]
    pub fn in_burst(&self) -> bool {
        self.burst_left_ns > 0
    }

    fn budget(&self) -> f64 {
        if self.in_burst() {
            self.settings.burst_budget
        } else {
            self.settings.budget
        }
    }

    /// The time between drains, nanoseconds.
    fn wait(&self) -> u64 {
        let least = self.past.drain_ns() / (0.4 * self.budget()).max(1e-9);
        self.wait_ns.max(least.min(MAX_WAIT_NS as f64) as u64)
    }

    fn own_share(&self) -> f64 {
        self.past.drain_ns() / self.wait() as f64
    }

    /// The steady rate that the budget allows, independent of the present one.
    fn affordable(&self) -> f64 {
        let left = 0.8 * self.settings.budget - self.own_share();
        let usual = f64::from(self.settings.steady_hz);
        let most = (usual / f64::from(self.slowed)).max(1.0).min(usual);
        let hz = (left / self.cost).min(most);
        if hz < 1.0 { 0.0 } else { hz }
    }

    fn steady(&mut self, interval: &Interval) {
        if interval.lost > 0 {
            self.hz /= 2.0;
            self.wait_ns = (self.wait_ns / 2).max(MIN_WAIT_NS);
            return;
        }
        self.hz = self.affordable().min(1.25 * self.hz.max(1.0));
        // A slowed source is off for most intervals, so an interval without samples is no idleness.
        let idle = match self.slowed {
            1 => interval.samples == 0,
            _ => interval.samples == 0 && interval.process_ns < interval.wall_ns / 8,
        };
        self.wait_ns = match self.wait_ns {
            wait if idle => (wait * 2).min(IDLE_WAIT_NS),
            // After rare drains the usual wait returns at once, after frequent drains step by step.
            wait => STEADY_WAIT_NS.min(wait + wait / 4),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a program of `threads` busy threads on a machine where a sample costs `cost_ns`
    /// and a drain `drain_ns` plus 1 us for each sample. Returns the overhead of each second.
    fn simulate(control: &mut RateControl, threads: u64, cost_ns: u64, drain_ns: u64) -> Vec<f64> {
        let mut decision = Decision {
            hz: control.rates().burst_hz,
            wait_ns: control.wait_ns,
        };
        let (mut shares, mut spent, mut time) = (Vec::new(), 0, 0);
        while shares.len() < 20 {
            let process_ns = decision.wait_ns * threads;
            let samples = u64::from(decision.hz) * process_ns / 1_000_000_000;
            let own_ns = drain_ns + samples * 1_000;
            spent += samples * cost_ns + own_ns;
            time += decision.wait_ns;
            decision = control.step(&Interval {
                wall_ns: decision.wait_ns,
                process_ns,
                own_ns,
                samples,
                lost: 0,
            });
            if time >= 1_000_000_000 {
                shares.push(spent as f64 / (time * threads) as f64);
                (spent, time) = (0, 0);
            }
        }
        shares
    }

    #[test]
    fn overhead_stays_in_the_budget() {
        for threads in [1, 2, 16, 1_000] {
            for cost_ns in [2_000, 15_000, 40_000, 200_000, 2_000_000] {
                for drain_ns in [5_000, 100_000, 2_000_000] {
                    let mut control = RateControl::new(Settings::default(), cost_ns);
                    let shares = simulate(&mut control, threads, cost_ns, drain_ns);
                    let case = format!("{threads} threads, {cost_ns} ns, {drain_ns} ns");
                    assert!(shares[0] < 0.02, "{case}: burst {}", shares[0]);
                    for share in &shares[2..] {
                        assert!(*share < 0.005, "{case}: {shares:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_cheap_source_is_used_to_the_full() {
        let mut control = RateControl::new(Settings::default(), 10_000);
        let rates = control.rates();
        assert_eq!((rates.burst_hz, rates.steady_hz), (499, 97));
        simulate(&mut control, 1, 10_000, 20_000);
        assert_eq!(control.hz as u32, 97);
        assert_eq!(control.wait_ns, STEADY_WAIT_NS);
        assert!(control.overhead() < 0.005);
    }

    #[test]
    fn the_burst_ends_by_time_or_by_a_loss() {
        let mut control = RateControl::new(Settings::default(), 10_000);
        let interval = Interval {
            wall_ns: 50_000_000,
            samples: 1,
            ..Interval::default()
        };
        for _ in 0..3 {
            assert_eq!(control.step(&interval).hz, 499);
            assert!(control.in_burst());
        }
        assert_eq!(control.step(&interval).hz, 97);
        assert!(!control.in_burst());

        let mut control = RateControl::new(Settings::default(), 10_000);
        let lost = Interval {
            lost: 1,
            ..interval
        };
        assert_eq!(control.step(&lost).hz, 97);
    }

    #[test]
    fn losses_halve_the_rate_and_it_recovers() {
        let settings = Settings {
            burst_ns: 0,
            ..Settings::default()
        };
        let mut control = RateControl::new(settings, 10_000);
        let interval = |lost| Interval {
            wall_ns: STEADY_WAIT_NS,
            process_ns: STEADY_WAIT_NS,
            own_ns: 10_000,
            samples: 10,
            lost,
        };
        let hurt = control.step(&interval(5));
        assert_eq!((hurt.hz, hurt.wait_ns), (48, STEADY_WAIT_NS / 2));
        let mut last = hurt;
        for _ in 0..8 {
            let next = control.step(&interval(0));
            assert!(next.hz >= last.hz && next.wait_ns >= last.wait_ns);
            last = next;
        }
        assert_eq!((last.hz, last.wait_ns), (97, STEADY_WAIT_NS));
    }

    #[test]
    fn slowed_it_samples_more_rarely_until_it_no_longer_is() {
        let settings = Settings {
            burst_ns: 0,
            ..Settings::default()
        };
        let mut control = RateControl::new(settings, 10_000);
        let interval = Interval {
            wall_ns: STEADY_WAIT_NS,
            process_ns: STEADY_WAIT_NS,
            own_ns: 10_000,
            samples: 10,
            lost: 0,
        };
        let full = Decision {
            hz: 97,
            wait_ns: STEADY_WAIT_NS,
        };
        assert_eq!(control.step(&interval), full);
        control.slow_down(4);
        let off = Interval {
            samples: 0,
            ..interval
        };
        for interval in [interval, off, off] {
            let slowed = control.step(&interval);
            assert_eq!((slowed.hz, slowed.wait_ns), (24, STEADY_WAIT_NS));
        }
        let asleep = Interval {
            process_ns: 0,
            ..off
        };
        assert!(control.step(&asleep).wait_ns > STEADY_WAIT_NS);
        control.slow_down(100);
        assert_eq!(control.step(&interval).hz, 1);
        control.slow_down(1);
        assert_eq!(control.step(&interval), full);
        // A rate that the budget keeps below that is not changed.
        let mut control = RateControl::new(settings, 400_000);
        let affordable = control.rates().steady_hz;
        assert!(affordable < 20);
        control.slow_down(2);
        assert_eq!(control.step(&interval).hz, affordable - 1);
    }

    #[test]
    fn a_sleeping_program_is_looked_at_rarely() {
        let mut control = RateControl::new(Settings::default(), 10_000);
        let asleep = |wall_ns| Interval {
            wall_ns,
            own_ns: 20_000,
            ..Interval::default()
        };
        let mut wait = BURST_WAIT_NS;
        for _ in 0..40 {
            wait = control.step(&asleep(wait)).wait_ns;
        }
        assert_eq!(wait, IDLE_WAIT_NS);
    }

    #[test]
    fn a_hopeless_cost_pauses() {
        let mut control = RateControl::new(Settings::default(), 50_000_000);
        assert_eq!(control.hz as u32, 0);
        let decision = control.step(&Interval {
            wall_ns: STEADY_WAIT_NS,
            process_ns: STEADY_WAIT_NS,
            own_ns: 20_000,
            samples: 0,
            lost: 0,
        });
        assert_eq!(decision.hz, 0);
    }

    #[test]
    fn an_expensive_drain_now_and_then_does_no_lasting_harm() {
        let mut control = RateControl::new(Settings::default(), 10_000);
        let interval = |own_ns| Interval {
            wall_ns: STEADY_WAIT_NS,
            process_ns: STEADY_WAIT_NS,
            own_ns,
            samples: 10,
            lost: 0,
        };
        // The burst, then a drain of 5 ms.
        (0..3).for_each(|_| _ = control.step(&interval(20_000)));
        let hurt = control.step(&interval(5_000_000));
        assert!(hurt.wait_ns > STEADY_WAIT_NS, "{hurt:?}");
        let healed = (0..20).map(|_| control.step(&interval(20_000))).last();
        assert_eq!(
            healed.unwrap(),
            Decision {
                hz: 97,
                wait_ns: STEADY_WAIT_NS
            }
        );
    }
}
