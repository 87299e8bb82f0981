//! Samples over time, in periods that grow with the time since the start.
//!
//! Start-up happens in milliseconds and a run may take hours, so periods are laid
//! out as in a logarithmic histogram with linear parts: the first [`STEPS`] last
//! [`FIRST_NS`] each, the next [`STEPS`] twice as long, and so on. For a time `t`
//! with `u = t / (FIRST_NS * STEPS) + 1` and `octave = floor(log2 u)`:
//!
//! ```text
//! width = FIRST_NS << octave
//! start of the octave = FIRST_NS * STEPS * (2^octave - 1)
//! period = octave * STEPS + (t - start of the octave) / width
//! ```
//!
//! After the first ones a period is at most about a 64th of the time before it, and a run of an
//! hour has at most 1,024. Only periods with events take memory.

use std::collections::BTreeMap;

use crate::recording::{Nanos, Period, Tier, VersionId};

/// Length of the first periods.
const FIRST_NS: u64 = 1_000_000;
/// Periods of one length.
const STEPS: u64 = 64;
/// Number of period lengths: enough for 49 days; later times are in the last period.
const OCTAVES: u64 = 26;

/// The period of `time`: its number, start and end.
fn period_of(time: Nanos) -> (u64, Nanos, Nanos) {
    let first_octave = FIRST_NS * STEPS;
    let octave = u64::from((time.0 / first_octave + 1).ilog2()).min(OCTAVES - 1);
    let width = FIRST_NS << octave;
    let base = first_octave * ((1 << octave) - 1);
    let step = ((time.0 - base) / width).min(STEPS - 1);
    let start = base + step * width;
    (octave * STEPS + step, Nanos(start), Nanos(start + width))
}

/// The data of one period, with samples by version.
#[derive(Debug, Clone)]
struct Slot {
    period: Period,
    /// Whether the state of the profiler and of the queue was recorded in it.
    gauged: bool,
    /// Unordered; at most `versions_in_period`.
    versions: Vec<(VersionId, u64)>,
}

/// Periods under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    slots: BTreeMap<u64, Slot>,
}

impl Timeline {
    fn slot(&mut self, time: Nanos) -> &mut Slot {
        let (number, start, end) = period_of(time);
        self.slots.entry(number).or_insert_with(|| Slot {
            period: Period {
                start,
                end,
                ..Period::default()
            },
            gauged: false,
            versions: Vec::new(),
        })
    }

    /// Counts samples, in a version of the runtime or in other code.
    pub(crate) fn hit(
        &mut self,
        time: Nanos,
        code: Option<(VersionId, Tier)>,
        count: u64,
        versions_in_period: usize,
    ) {
        let slot = self.slot(time);
        slot.period.samples[code.map_or(0, |(_, tier)| tier.rank())] += count;
        let Some((version, _)) = code else { return };
        let known = slot.versions.iter().position(|(id, _)| *id == version);
        match known {
            Some(at) => slot.versions[at].1 += count,
            None if slot.versions.len() < versions_in_period => {
                slot.versions.push((version, count));
            }
            None => {}
        }
    }

    /// Records the state of the profiler and of the queue since the last report.
    pub(crate) fn gauge(
        &mut self,
        time: Nanos,
        rate_hz: f64,
        overhead: f64,
        queue: u64,
        lost: u64,
    ) {
        let slot = self.slot(time);
        slot.gauged = true;
        let period = &mut slot.period;
        period.rate_hz = rate_hz;
        period.overhead = overhead;
        period.queue = period.queue.max(queue);
        period.lost += lost;
    }

    /// The periods in order, the last one ending with the run. `settled` tells whether a version
    /// was still published then.
    pub(crate) fn finish(
        mut self,
        wall: Nanos,
        settled: impl Fn(VersionId) -> bool,
    ) -> Vec<Period> {
        // Samples are reported some time after they were taken, the state only with the report.
        let mut told: Option<(f64, f64, u64)> = None;
        for Slot { period, gauged, .. } in self.slots.values_mut().rev() {
            if *gauged {
                told = Some((period.rate_hz, period.overhead, period.queue));
            } else if let Some((rate_hz, overhead, queue)) = told {
                (period.rate_hz, period.overhead, period.queue) = (rate_hz, overhead, queue);
            }
        }
        let close = |slot: Slot| {
            let counted = slot.versions.iter().filter(|(id, _)| settled(*id));
            let mut period = slot.period;
            period.settled = counted.map(|(_, count)| count).sum();
            if period.start < wall {
                period.end = period.end.min(wall);
            }
            period
        };
        self.slots.into_values().map(close).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_cover_all_time_without_gaps() {
        let mut time = Nanos(0);
        let mut expected = 0;
        while expected < OCTAVES * STEPS {
            let (number, start, end) = period_of(time);
            assert_eq!((number, start), (expected, time));
            assert_eq!(period_of(Nanos(end.0 - 1)).0, expected);
            time = end;
            expected += 1;
        }
        assert_eq!(period_of(Nanos(u64::MAX)).0, OCTAVES * STEPS - 1);
        assert!(time.as_secs() > 49.0 * 86_400.0);
    }

    #[test]
    fn an_hour_has_the_promised_number_of_periods() {
        assert!(period_of(Nanos(3_600_000_000_000)).0 < 1024);
    }

    #[test]
    fn samples_beyond_the_limit_count_but_do_not_settle() {
        let mut timeline = Timeline::default();
        for version in 0..5 {
            let code = Some((VersionId(version), Tier::Optimized));
            timeline.hit(Nanos(10), code, 2, 3);
        }
        timeline.hit(Nanos(10), None, 7, 3);
        timeline.gauge(Nanos(20), 100.0, 0.001, 4, 1);
        timeline.gauge(Nanos(30), 50.0, 0.002, 3, 2);
        let periods = timeline.finish(Nanos(500_000), |_| true);
        assert_eq!(periods.len(), 1);
        let period = &periods[0];
        assert_eq!((period.samples, period.settled), ([7, 0, 10, 0, 0], 6));
        assert_eq!((period.lost, period.queue, period.rate_hz), (3, 4, 50.0));
        assert_eq!(period.end, Nanos(500_000));
    }

    #[test]
    fn the_state_of_the_profiler_holds_back_to_the_time_before() {
        let mut timeline = Timeline::default();
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        timeline.gauge(ms(10), 997.0, 0.02, 3, 0);
        for at in [12, 40, 61] {
            timeline.hit(ms(at), None, 1, 3);
        }
        timeline.gauge(ms(61), 97.0, 0.01, 1, 5);
        let periods = timeline.finish(ms(100), |_| true);
        let told = |p: &Period| (p.rate_hz, p.overhead, p.queue, p.lost);
        let told: Vec<_> = periods.iter().map(told).collect();
        let (later, last) = ((97.0, 0.01, 1, 0), (97.0, 0.01, 1, 5));
        assert_eq!(told, [(997.0, 0.02, 3, 0), later, later, last]);
    }
}
