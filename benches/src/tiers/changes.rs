//! Where a series of iteration times changes its level. Pure.
//!
//! The series is cut into segments so that
//!
//! ```text
//! sum over segments of  sum |ln t - median(ln t)| / b   +   P * (segments - 1)
//! ```
//!
//! is least: optimal partitioning (Jackson and others, 2005) with the likelihood of
//! Laplace's distribution, whose centre is the median, so that single iterations that
//! something disturbed do not count for much. `P = 4 ln n` is some times what the
//! Bayesian criterion asks for, because neighbouring iterations are not independent.
//! `b` is the noise: the median of `|ln t[i+1] - ln t[i]|` over 1.146, which it is for
//! independent noise of scale `b`, and no less than [`LEAST_NOISE`].
//!
//! A segment has at least [`SHORTEST`] iterations, but for the first: a program that
//! runs its first iteration slowly is not disturbed. Segments whose medians differ by
//! less than [`SAME`] are one: that much is found in any long series.

/// Noise below this part of an iteration is not believed.
const LEAST_NOISE: f64 = 0.002;
/// Iterations of a segment after the first.
const SHORTEST: usize = 3;
/// Levels that differ by less than this part are the same.
const SAME: f64 = 0.02;
/// `P` over the logarithm of the number of iterations.
const PENALTY: f64 = 4.0;
/// The median of the difference of two values of Laplace's distribution of scale 1.
const MEDIAN_OF_DIFFERENCES: f64 = 1.146;

/// Iterations of one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Its first iteration, counted from 0.
    pub start: usize,
    /// One past its last.
    pub end: usize,
    /// The median of its times.
    pub median: f64,
}

/// The course of a series, by its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One level.
    Flat,
    /// The last level is the fastest, and at least half the series.
    WarmUp,
    /// The last level is at least half the series, but there was a faster one.
    Slowdown,
    /// The last level began in the second half.
    Unsettled,
}

impl Shape {
    /// The shape that the segments show.
    pub fn of(segments: &[Segment]) -> Shape {
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Shape::Flat;
        };
        let middle = first.start + (last.end - first.start) / 2;
        let best = segments
            .iter()
            .map(|one| one.median)
            .fold(f64::MAX, f64::min);
        match segments.len() {
            1 => Shape::Flat,
            _ if last.start > middle => Shape::Unsettled,
            _ if last.median > best * (1.0 + SAME) => Shape::Slowdown,
            _ => Shape::WarmUp,
        }
    }

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Flat => "flat",
            Shape::WarmUp => "warm-up",
            Shape::Slowdown => "slowdown",
            Shape::Unsettled => "unsettled",
        }
    }
}

/// The segments of a series of positive times, in order; together they are the series.
pub fn segments(times: &[f64]) -> Vec<Segment> {
    let logs: Vec<f64> = times
        .iter()
        .map(|time| time.max(f64::MIN_POSITIVE).ln())
        .collect();
    let mut starts = partition(&logs);
    starts.push(times.len());
    let cut = |pair: &[usize]| Segment {
        start: pair[0],
        end: pair[1],
        median: median(&times[pair[0]..pair[1]]),
    };
    let mut segments: Vec<Segment> = starts.windows(2).map(cut).collect();
    while let Some(at) = segments
        .windows(2)
        .position(|pair| (pair[0].median / pair[1].median).ln().abs() < SAME)
    {
        let (start, end) = (segments[at].start, segments[at + 1].end);
        segments[at] = cut(&[start, end]);
        segments.remove(at + 1);
    }
    segments
}

/// The first iterations of the cheapest partition's segments.
fn partition(logs: &[f64]) -> Vec<usize> {
    let count = logs.len();
    let scale = noise(logs);
    let penalty = PENALTY * (count.max(2) as f64).ln();
    // best[end]: the cost of the first `end` iterations, and where their last
    // segment starts.
    let mut best: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); count + 1];
    best[0] = (0.0, 0);
    for start in 0..count {
        let before = best[start].0 + if start == 0 { 0.0 } else { penalty };
        let mut spread = Spread::default();
        for end in start + 1..=count {
            spread.insert(logs[end - 1]);
            let long_enough = start == 0 || end - start >= SHORTEST;
            let cost = before + spread.cost() / scale;
            if long_enough && cost < best[end].0 {
                best[end] = (cost, start);
            }
        }
    }
    let mut starts = Vec::new();
    let mut end = count;
    while end > 0 {
        end = best[end].1;
        starts.push(end);
    }
    starts.reverse();
    starts
}

/// Values in order, so that the sum of their distances from the median is at hand.
/// Series have some hundred iterations: inserting into a vector is quick enough.
#[derive(Default)]
struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    fn insert(&mut self, value: f64) {
        let at = self.sorted.partition_point(|other| *other < value);
        self.sorted.insert(at, value);
    }

    fn cost(&self) -> f64 {
        let (low, high) = self.sorted.split_at(self.sorted.len() / 2);
        let high = &high[self.sorted.len() % 2..];
        high.iter().sum::<f64>() - low.iter().sum::<f64>()
    }
}

fn noise(logs: &[f64]) -> f64 {
    let steps: Vec<f64> = logs
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).abs())
        .collect();
    if steps.is_empty() {
        return LEAST_NOISE;
    }
    (median(&steps) / MEDIAN_OF_DIFFERENCES).max(LEAST_NOISE)
}

/// The middle value; of an even count, the mean of the two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, segments};

    /// Levels with noise of up to `noise` parts, from a fixed sequence.
    fn series(levels: &[(usize, f64)], noise: f64) -> Vec<f64> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) - 0.5
        };
        let levels = levels
            .iter()
            .flat_map(|(count, level)| vec![*level; *count]);
        levels
            .map(|level| level * (1.0 + 2.0 * noise * next()))
            .collect()
    }

    fn starts(times: &[f64]) -> Vec<usize> {
        segments(times).iter().map(|one| one.start).collect()
    }

    #[test]
    fn a_level_with_noise_is_flat() {
        for noise in [0.0, 0.001, 0.01, 0.05] {
            let times = series(&[(200, 20.0)], noise);
            assert_eq!(starts(&times), [0], "noise {noise}");
            assert_eq!(Shape::of(&segments(&times)), Shape::Flat);
        }
    }

    #[test]
    fn a_slow_first_iteration_and_a_step_are_found() {
        let times = series(&[(1, 200.0), (9, 60.0), (50, 20.0)], 0.01);
        let found = segments(&times);
        assert_eq!(starts(&times), [0, 1, 10]);
        assert!((found[2].median - 20.0).abs() < 0.2, "{found:?}");
        assert_eq!(Shape::of(&found), Shape::WarmUp);
    }

    #[test]
    fn a_disturbed_iteration_is_no_level() {
        let mut times = series(&[(5, 60.0), (55, 20.0)], 0.005);
        times[30] = 200.0;
        times[45] = 31.0;
        assert_eq!(starts(&times), [0, 5]);
    }

    #[test]
    fn slowing_down_and_never_settling_have_names() {
        let slower = series(&[(10, 20.0), (50, 23.0)], 0.01);
        assert_eq!(Shape::of(&segments(&slower)), Shape::Slowdown);
        let late = series(&[(40, 20.0), (20, 10.0)], 0.01);
        assert_eq!(Shape::of(&segments(&late)), Shape::Unsettled);
    }

    #[test]
    fn a_small_step_is_found_if_it_is_above_the_noise() {
        let times = series(&[(60, 20.0), (60, 20.8)], 0.005);
        assert_eq!(starts(&times).len(), 2);
        let same = series(&[(60, 20.0), (60, 20.1)], 0.002);
        assert_eq!(starts(&same), [0]);
    }

    #[test]
    fn short_series_are_one_segment_or_two() {
        assert!(segments(&[]).is_empty());
        assert_eq!(starts(&[5.0]), [0]);
        assert_eq!(starts(&[5.0, 5.0]), [0]);
        assert_eq!(starts(&[90.0, 5.0, 5.01, 5.0]), [0, 1]);
    }
}
