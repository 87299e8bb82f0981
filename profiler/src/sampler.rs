//! A running source with its rate control; a profiling thread calls it in a loop.
//!
//! [`Sampler::pause`] stops the samples and the clocks of the rate control. An interval between two
//! steps consists of running time only. So a pause does not count as idle time, the burst goes on
//! after it, and a share of CPU time is a share of the sampled time.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use uruk_profiler::{Choice, Excluded, Sampler, Settings, Sizes, open};
//! let excluded = Arc::new(Excluded::new());
//! let opened = open(Choice::Auto, Sizes::default(), &excluded);
//! if let Some(source) = opened.source {
//!     let mut sampler = Sampler::start(source, Settings::default())?;
//!     loop {
//!         let wait = sampler.tick(&mut |sample| println!("{:#x}", sample.pc));
//!         std::thread::sleep(wait);
//!     }
//! }
//! # Ok::<(), uruk_profiler::SourceError>(())
//! ```

use std::time::Duration;

use crate::rate::{IDLE_WAIT_NS, Interval, RateControl, Settings};
use crate::sample::{Kind, Sample};
use crate::source::{Coverage, Drained, Rates, Source, SourceError};
use crate::threads;

/// Numbers of a run so far.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The source.
    pub kind: Kind,
    /// Present rate, samples per second of a thread's CPU time; 0 in a pause.
    pub hz: u32,
    /// Samples given to sinks, samples of excluded threads, and lost samples.
    pub drained: Drained,
    /// Measured CPU time of one sample, nanoseconds.
    pub cost_ns: u64,
    /// CPU time of all samples by that cost, nanoseconds.
    pub sampling_ns: u64,
    /// CPU time of draining and the sinks, nanoseconds.
    pub draining_ns: u64,
    /// CPU time of the process since the start, without that in pauses, nanoseconds.
    pub process_ns: u64,
    /// Threads that are sampled, and resources in use.
    pub coverage: Coverage,
}

impl Summary {
    /// Share of the process's CPU time that profiling took.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        (self.sampling_ns + self.draining_ns) as f64 / self.process_ns.max(1) as f64
    }
}

/// A started source and its rate control.
pub struct Sampler {
    source: Box<dyn Source>,
    control: RateControl,
    settings: Settings,
    hz: u32,
    clock: Clock,
    /// Measurements since the last step of the control, up to where `clock` began.
    interval: Interval,
    /// CPU time of the process from the start up to where `clock` began.
    process_ns: u64,
    drained: Drained,
    draining_ns: u64,
}

/// The state of the clocks: in a pause no time is counted.
#[derive(Clone, Copy)]
enum Clock {
    /// The readings from which time counts.
    Running(Readings),
    Paused,
}

/// The clocks at one moment.
#[derive(Clone, Copy)]
struct Readings {
    wall_ns: u64,
    process_ns: u64,
}

impl Readings {
    fn take() -> Readings {
        Readings {
            wall_ns: threads::now(),
            process_ns: threads::read_clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0),
        }
    }
}

fn own_cpu() -> u64 {
    threads::read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

impl Sampler {
    /// Starts a source.
    ///
    /// # Errors
    /// The source does not start.
    pub fn start(mut source: Box<dyn Source>, settings: Settings) -> Result<Sampler, SourceError> {
        let control = RateControl::new(settings, source.cost_ns());
        let rates = control.rates();
        source.start(rates)?;
        Ok(Sampler {
            source,
            control,
            settings,
            hz: rates.burst_hz,
            clock: Clock::Running(Readings::take()),
            interval: Interval::default(),
            process_ns: 0,
            drained: Drained::default(),
            draining_ns: 0,
        })
    }

    /// Drains into `sink`, covers new threads and adapts the rate. Call it again after the time it
    /// returns; earlier calls do no harm. In a pause it only drains, and one call is enough.
    pub fn tick(&mut self, sink: &mut dyn FnMut(Sample)) -> Duration {
        let own = own_cpu();
        let drained = self.source.drain(sink);
        let running = !self.is_paused();
        if running {
            self.source.refresh();
        }
        self.count_time();
        let own_ns = own_cpu() - own;
        self.drained.add(drained);
        self.draining_ns += own_ns;
        self.interval.own_ns += own_ns;
        self.interval.samples += drained.samples + drained.excluded;
        self.interval.lost += drained.lost;
        if !running {
            return Duration::from_nanos(IDLE_WAIT_NS);
        }
        let decision = self.control.step(&std::mem::take(&mut self.interval));
        if decision.hz != self.hz {
            self.source.set_rate(decision.hz);
            self.hz = decision.hz;
        }
        Duration::from_nanos(decision.wait_ns)
    }

    /// Divides the rate of the settings by `by`, from the next [`Sampler::tick`] on; that call
    /// drains the samples taken until then. 1 ends the slow-down.
    pub fn slow_down(&mut self, by: u32) {
        self.control.slow_down(by);
    }

    /// Takes no samples until [`Sampler::resume`]; [`Sampler::tick`] still drains samples taken
    /// before.
    pub fn pause(&mut self) {
        self.source.pause();
        self.count_time();
        self.clock = Clock::Paused;
    }

    /// Ends [`Sampler::pause`], also for threads that began during the pause. The rate is that from
    /// before the pause.
    pub fn resume(&mut self) {
        if self.is_paused() {
            self.source.resume();
            self.source.refresh();
            self.clock = Clock::Running(Readings::take());
        }
    }

    /// Whether no samples are taken.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        matches!(self.clock, Clock::Paused)
    }

    /// Adds the time since the last call to the interval, if the clock is running.
    fn count_time(&mut self) {
        if let Clock::Running(since) = self.clock {
            let now = Readings::take();
            let process_ns = now.process_ns.saturating_sub(since.process_ns);
            self.interval.wall_ns += now.wall_ns - since.wall_ns;
            self.interval.process_ns += process_ns;
            self.process_ns += process_ns;
            self.clock = Clock::Running(now);
        }
    }

    /// The numbers of the run so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Drained {
            samples,
            excluded,
            lost,
        } = self.drained;
        let cost_ns = self.source.cost_ns();
        let (hz, uncounted_ns) = match self.clock {
            Clock::Running(since) => {
                let now = Readings::take();
                (self.hz, now.process_ns.saturating_sub(since.process_ns))
            }
            Clock::Paused => (0, 0),
        };
        Summary {
            kind: self.source.kind(),
            hz,
            drained: self.drained,
            cost_ns,
            sampling_ns: (samples + excluded + lost) * cost_ns,
            draining_ns: self.draining_ns,
            process_ns: self.process_ns + uncounted_ns,
            coverage: self.source.coverage(),
        }
    }

    /// Starts over in the child of a fork, on its only thread, at the steady rate; paused if the
    /// parent was. Totals begin at zero. The parent's sampler must not have been in use at the
    /// fork.
    ///
    /// # Errors
    /// The source does not start in the child.
    pub fn restart_in_child(&mut self) -> Result<(), SourceError> {
        self.source.after_fork_child();
        let settings = Settings {
            burst_ns: 0,
            ..self.settings
        };
        self.control = RateControl::new(settings, self.source.cost_ns());
        let Rates { steady_hz, .. } = self.control.rates();
        self.hz = steady_hz;
        self.source.start(Rates {
            burst_hz: steady_hz,
            steady_hz,
        })?;
        if !self.is_paused() {
            self.clock = Clock::Running(Readings::take());
        }
        self.interval = Interval::default();
        self.process_ns = 0;
        self.drained = Drained::default();
        self.draining_ns = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn sample(pc: u64) -> Sample {
        Sample {
            pc,
            tid: 1,
            time: pc,
            weight: 1,
        }
    }

    #[test]
    fn samples_pass_through_and_are_counted() {
        let (fake, feed) = Fake::new(3, 10_000);
        let mut sampler = Sampler::start(Box::new(fake), Settings::default()).unwrap();
        (0..5).for_each(|pc| feed.push(sample(pc)));
        let mut got = Vec::new();
        sampler.tick(&mut |sample| got.push(sample.pc));
        assert_eq!(got, [0, 1, 2]);
        let summary = sampler.summary();
        assert_eq!(summary.drained.samples, 3);
        assert_eq!(summary.drained.lost, 2);
        assert_eq!(summary.sampling_ns, 50_000);
        // The loss ended the burst.
        assert_eq!(summary.hz, 97);
        feed.push(sample(9));
        sampler.tick(&mut |sample| got.push(sample.pc));
        assert_eq!(got, [0, 1, 2, 9]);
    }

    #[test]
    fn a_pause_keeps_what_was_taken_and_takes_nothing() {
        let (fake, feed) = Fake::new(16, 10_000);
        let mut sampler = Sampler::start(Box::new(fake), Settings::default()).unwrap();
        let mut got = Vec::new();
        feed.push(sample(1));
        sampler.pause();
        assert!(sampler.is_paused() && sampler.summary().hz == 0);
        feed.push(sample(2));
        sampler.tick(&mut |sample| got.push(sample.pc));
        feed.push(sample(3));
        sampler.resume();
        feed.push(sample(4));
        sampler.tick(&mut |sample| got.push(sample.pc));
        assert_eq!(got, [1, 4]);
        assert_eq!(sampler.summary().hz, 499);
    }

    /// Takes processor time of the thread.
    fn run(ns: u64) {
        let begin = own_cpu();
        while own_cpu() - begin < ns {}
    }

    #[test]
    fn paused_time_counts_for_nothing() {
        let settings = Settings {
            burst_ns: 100_000_000,
            ..Settings::default()
        };
        // The burst ends by wall time, so an attempt says nothing if this thread was without a
        // processor for that long.
        let attempt = |_| {
            let begin = threads::now();
            let mut sampler = Sampler::start(Box::new(Fake::default()), settings).unwrap();
            sampler.pause();
            let running_ns = threads::now() - begin;
            let before = sampler.summary().process_ns;
            run(120_000_000);
            sampler.tick(&mut |_| ());
            sampler.pause();
            assert_eq!(sampler.summary().process_ns, before);
            let begin = threads::now();
            sampler.resume();
            sampler.tick(&mut |_| ());
            let running_ns = running_ns + threads::now() - begin;
            (running_ns < settings.burst_ns).then_some(sampler)
        };
        let tried = (0..100).find_map(attempt);
        let mut sampler = tried.expect("a processor for a moment");
        assert_eq!(sampler.summary().hz, 499, "the burst goes on");
        // Two stretches of running time, with a pause between them, end the burst.
        run(60_000_000);
        sampler.pause();
        sampler.resume();
        run(60_000_000);
        sampler.tick(&mut |_| ());
        assert_eq!(sampler.summary().hz, 97, "the burst is over");
        assert!(sampler.summary().process_ns >= 120_000_000);
    }
}
