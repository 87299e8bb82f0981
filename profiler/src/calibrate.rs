//! The cost of one sample to the thread it interrupts, measured on that thread.
//!
//! The calling thread reads the clock in a tight loop while it is being sampled; an
//! interrupt shows as a gap between two readings. The median gap includes entry, the
//! kernel's work and return. A mean would also include other interrupts (ticks, other
//! guests of a virtual machine).
//!
//! Real work loses more than the gap: for a while after it, caches, translations and
//! predictions are the kernel's and the hypervisor's. The cost is therefore [`DISPLACED`]
//! times the gap.

use crate::threads;

/// CPU time spent watching.
pub(crate) const WATCH_CPU_NS: u64 = 1_500_000;

/// Wall time after which the watch ends, even on a machine too busy to give it the CPU time.
const WATCH_WALL_NS: u64 = 300_000_000;

/// Sampling interval during the watch.
pub(crate) const WATCH_PERIOD_NS: u64 = 100_000;

/// Gap between two readings that counts as an interrupt. Undisturbed readings are 20 to 60 ns
/// apart.
const GAP_NS: u64 = 1_000;

/// Cost of a sample to real work over its cost to the tight loop. Measured: 25 to 29 us over 13 us
/// on a virtual machine, at 1 kHz and at 10 kHz, by windows with and without sampling (`cargo xtask
/// bench --only overhead`).
const DISPLACED: u64 = 2;

/// Cost assumed when none could be measured: the middle of the costs seen on virtual machines.
pub(crate) const ASSUMED_COST_NS: u64 = 30_000;

/// The interrupts that the watching thread saw.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    gaps: Vec<u64>,
    /// CPU time the thread had.
    pub(crate) cpu_ns: u64,
}

/// Watches the calling thread being interrupted.
pub(crate) fn watch() -> Watch {
    let cpu = || threads::read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0);
    let (begin, cpu_begin) = (threads::now(), cpu());
    let mut gaps = Vec::with_capacity(256);
    loop {
        let mut last = threads::now();
        for _ in 0..500 {
            let now = threads::now();
            if now - last > GAP_NS && gaps.len() < gaps.capacity() {
                gaps.push(now - last);
            }
            last = now;
        }
        let cpu_ns = cpu() - cpu_begin;
        if cpu_ns >= WATCH_CPU_NS || last - begin >= WATCH_WALL_NS {
            gaps.sort_unstable();
            return Watch { gaps, cpu_ns };
        }
    }
}

impl Watch {
    /// Cost of one of the `samples` taken during the watch, nanoseconds.
    pub(crate) fn cost_ns(&self, samples: u64) -> u64 {
        if samples == 0 || (self.gaps.len() as u64) < samples.div_ceil(2) {
            return ASSUMED_COST_NS;
        }
        DISPLACED * self.gaps[self.gaps.len() / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_twice_the_median_gap() {
        let watch = Watch {
            gaps: vec![2_000, 3_000, 3_100, 4_000, 9_000_000],
            cpu_ns: 1,
        };
        assert_eq!(watch.cost_ns(5), 6_200);
        assert_eq!(watch.cost_ns(11), ASSUMED_COST_NS);
        assert_eq!(watch.cost_ns(0), ASSUMED_COST_NS);
    }
}
