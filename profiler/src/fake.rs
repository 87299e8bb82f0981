//! A source that returns samples given to it, for the tests of `sampler`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sample::{Kind, Sample};
use crate::source::{Coverage, Drained, Rates, Source, SourceError};

/// Samples on their way into a [`Fake`].
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<Mutex<VecDeque<Sample>>>);

impl Feed {
    /// Adds a sample; it is drained if the source is running at the next drain.
    pub fn push(&self, sample: Sample) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(sample);
    }
}

/// A source of given samples, for tests.
#[derive(Debug)]
pub struct Fake {
    feed: Feed,
    capacity: usize,
    cost_ns: u64,
    running: bool,
    paused: bool,
    /// Samples fed before the pause and not drained yet.
    kept: VecDeque<Sample>,
    hz: u32,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake::new(4096, 15_000).0
    }
}

impl Fake {
    /// A source whose ring holds `capacity` samples and that reports `cost_ns` for a sample.
    /// Samples fed beyond the capacity between two drains are lost.
    #[must_use]
    pub fn new(capacity: usize, cost_ns: u64) -> (Fake, Feed) {
        let feed = Feed::default();
        let fake = Fake {
            feed: feed.clone(),
            capacity,
            cost_ns,
            running: false,
            paused: false,
            kept: VecDeque::new(),
            hz: 0,
        };
        (fake, feed)
    }
}

impl Fake {
    fn take_fed(&self) -> VecDeque<Sample> {
        let mut queue = self.feed.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *queue)
    }
}

impl Source for Fake {
    fn kind(&self) -> Kind {
        Kind::Timers
    }

    fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    fn start(&mut self, rates: Rates) -> Result<(), SourceError> {
        if !self.running {
            self.running = true;
            self.hz = rates.burst_hz;
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.running = false;
        self.kept.clear();
    }

    fn set_rate(&mut self, hz: u32) -> u32 {
        self.hz = hz;
        hz
    }

    fn pause(&mut self) {
        if !std::mem::replace(&mut self.paused, true) {
            let fed = self.take_fed();
            if self.running && self.hz > 0 {
                self.kept.extend(fed);
            }
        }
    }

    fn resume(&mut self) {
        if std::mem::replace(&mut self.paused, false) {
            // Samples fed during the pause are dropped: a paused source takes none.
            self.take_fed();
        }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Sample)) -> Drained {
        let fed = self.take_fed();
        let mut samples = std::mem::take(&mut self.kept);
        if self.running && self.hz > 0 && !self.paused {
            samples.extend(fed);
        }
        let mut drained = Drained::default();
        for sample in samples {
            if drained.samples as usize == self.capacity {
                drained.lost += 1;
            } else {
                drained.samples += 1;
                sink(sample);
            }
        }
        drained
    }

    fn refresh(&mut self) {}

    fn coverage(&self) -> Coverage {
        Coverage {
            threads: usize::from(self.running),
            ..Coverage::default()
        }
    }

    fn after_fork_child(&mut self) {
        self.stop();
    }
}
