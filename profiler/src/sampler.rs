//! A running source with its rate control: what a profiling thread calls in a loop.
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

use crate::rate::{Interval, RateControl, Settings};
use crate::sample::{Kind, Sample};
use crate::source::{Coverage, Drained, Rates, Source, SourceError};
use crate::threads;

/// Numbers of a run so far.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The source.
    pub kind: Kind,
    /// Present rate, samples per second of a thread's CPU time.
    pub hz: u32,
    /// Samples given to sinks, of excluded threads, and lost.
    pub drained: Drained,
    /// Measured CPU time of one sample, nanoseconds.
    pub cost_ns: u64,
    /// CPU time of all samples by that cost, nanoseconds.
    pub sampling_ns: u64,
    /// CPU time of draining and the sinks, nanoseconds.
    pub draining_ns: u64,
    /// CPU time of the process since the start, nanoseconds.
    pub process_ns: u64,
    /// What is reached.
    pub coverage: Coverage,
}

impl Summary {
    /// Share of the process's CPU time that profiling took.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        (self.sampling_ns + self.draining_ns) as f64 / self.process_ns.max(1) as f64
    }
}

/// A started source and its control.
pub struct Sampler {
    source: Box<dyn Source>,
    control: RateControl,
    settings: Settings,
    hz: u32,
    at: Readings,
    began_ns: u64,
    drained: Drained,
    draining_ns: u64,
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
        let at = Readings::take();
        Ok(Sampler {
            source,
            control,
            settings,
            hz: rates.burst_hz,
            at,
            began_ns: at.process_ns,
            drained: Drained::default(),
            draining_ns: 0,
        })
    }

    /// Drains into `sink`, covers new threads and adapts the rate. To be called again
    /// after the time it returns; calls before that do no harm.
    pub fn tick(&mut self, sink: &mut dyn FnMut(Sample)) -> Duration {
        let own = own_cpu();
        let drained = self.source.drain(sink);
        self.source.refresh();
        let now = Readings::take();
        let own_ns = own_cpu() - own;
        let decision = self.control.step(&Interval {
            wall_ns: now.wall_ns - self.at.wall_ns,
            process_ns: now.process_ns.saturating_sub(self.at.process_ns),
            own_ns,
            samples: drained.samples + drained.excluded,
            lost: drained.lost,
        });
        self.at = now;
        self.drained.add(drained);
        self.draining_ns += own_ns;
        if decision.hz != self.hz {
            self.source.set_rate(decision.hz);
            self.hz = decision.hz;
        }
        Duration::from_nanos(decision.wait_ns)
    }

    /// Numbers so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Drained {
            samples,
            excluded,
            lost,
        } = self.drained;
        let cost_ns = self.source.cost_ns();
        Summary {
            kind: self.source.kind(),
            hz: self.hz,
            drained: self.drained,
            cost_ns,
            sampling_ns: (samples + excluded + lost) * cost_ns,
            draining_ns: self.draining_ns,
            process_ns: Readings::take().process_ns.saturating_sub(self.began_ns),
            coverage: self.source.coverage(),
        }
    }

    /// In the child of a fork, on the thread that is left: starts over, with the
    /// steady rate. Totals begin at zero. The parent's sampler must not have been in
    /// use at the fork.
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
        self.at = Readings::take();
        self.began_ns = self.at.process_ns;
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
}
