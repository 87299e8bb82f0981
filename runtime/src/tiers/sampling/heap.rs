//! Samples of one place in the code.

use std::time::Duration;

use uruk_base::{Tier, VersionId};
use uruk_profiler::Sample;

use super::{Events, Hit, TOGETHER_NS};

/// Samples of one version, or of other code, in one drain.
pub(super) struct Heap {
    pub(super) samples: u32,
    pub(super) time: u64,
    /// Number of usual samples that each stands for.
    weight: u32,
    /// Number of samples by time: in units of [`TOGETHER_NS`] on the sampler's clock.
    taken: Vec<(u64, u32)>,
}

impl Heap {
    /// For samples that are rarer by this factor than usual.
    pub(super) fn of(weight: u32) -> Heap {
        Heap {
            samples: 0,
            time: 0,
            weight,
            taken: Vec::new(),
        }
    }

    /// Number of samples, scaled to the usual rate.
    pub(super) fn usual(&self) -> u32 {
        self.samples.saturating_mul(self.weight)
    }

    pub(super) fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        self.time += sample.weight;
        let at = sample.time / TOGETHER_NS;
        match self.taken.last_mut() {
            Some((last, count)) if *last == at => *count += 1,
            _ => self.taken.push((at, 1)),
        }
    }

    /// When the samples were taken, by the session's clock; those of the present drain, at
    /// `now`, are not later.
    pub(super) fn hits(
        &self,
        events: &Events,
        now: Duration,
        code: Option<(VersionId, Tier)>,
    ) -> impl Iterator<Item = Hit> {
        self.taken.iter().map(move |&(at, count)| Hit {
            at: events.at(at * TOGETHER_NS).min(now),
            code: code.map(|(version, tier)| (version.0, tier)),
            count: count.saturating_mul(self.weight),
        })
    }
}
