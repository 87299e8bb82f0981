//! Repeated measurements of one thing.
//!
//! Invariant: a [`Sample`] holds at least one finite figure, in ascending order.

/// The standard error of a median over that of a mean, of normal figures: the root of half of pi.
const MEDIAN_OVER_MEAN: f64 = 1.2533;

/// Figures of one thing, in one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// A sample of the finite figures in `figures`; `None` if there are none.
    pub fn new(figures: impl IntoIterator<Item = f64>) -> Option<Sample> {
        let mut sorted: Vec<f64> = figures.into_iter().filter(|f| f.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Sample { sorted })
    }

    /// How many figures there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The middle one; of an even count, the mean of the two.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// Where the figures lie: the middle half, or all of fewer than four.
    pub fn spread(&self) -> (f64, f64) {
        if self.count() < 4 {
            return (self.min(), self.sorted[self.count() - 1]);
        }
        (self.quantile(0.25), self.quantile(0.75))
    }

    /// The standard error of the median as a part of it, by the deviation of the figures' logarithms:
    /// that of their mean, 1.2533 times, as for a normal distribution. `None` of fewer than three.
    pub fn error(&self) -> Option<f64> {
        let count = self.count() as f64;
        if count < 3.0 || self.min() <= 0.0 {
            return None;
        }
        let logs = self.sorted.iter().map(|figure| figure.ln());
        let mean = logs.clone().sum::<f64>() / count;
        let squares: f64 = logs.map(|log| (log - mean).powi(2)).sum();
        Some(MEDIAN_OVER_MEAN * (squares / (count - 1.0) / count).sqrt())
    }

    /// The same figures, each changed by `change`.
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Sample {
        let mut sorted: Vec<f64> = self.sorted.iter().map(|f| change(*f)).collect();
        sorted.sort_by(f64::total_cmp);
        Sample { sorted }
    }

    /// Between neighbours, the figure at rank `q * (count - 1)`.
    fn quantile(&self, q: f64) -> f64 {
        let rank = q * (self.count() - 1) as f64;
        let below = self.sorted[rank.floor() as usize];
        let above = self.sorted[rank.ceil() as usize];
        below + (above - below) * rank.fract()
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn median_and_spread() {
        let sample = Sample::new([3.0, f64::NAN, 1.0, 2.0]).expect("three figures");
        assert_eq!((sample.median(), sample.spread()), (2.0, (1.0, 3.0)));
        let sample = Sample::new([4.0, 1.0, 2.0, 3.0, 10.0]).expect("five figures");
        assert_eq!((sample.median(), sample.spread()), (3.0, (2.0, 4.0)));
        assert_eq!(Sample::new([f64::INFINITY]), None);
    }

    #[test]
    fn an_error_is_a_part_of_the_median() {
        let of = |figures: [f64; 3]| Sample::new(figures).and_then(|sample| sample.error());
        let error = of([0.9, 1.0, 1.0 / 0.9]).expect("three figures");
        // The deviation is the logarithm of 1 / 0.9.
        let expected = 1.2533 * 0.105_360_5 / 3f64.sqrt();
        assert!((error - expected).abs() < 1e-6, "{error}");
        assert_eq!(of([2.0, 2.0, 2.0]), Some(0.0));
        assert_eq!(of([-1.0, 0.0, 2.0]), None);
        let two = Sample::new([1.0, 2.0]).expect("two figures");
        assert_eq!(two.error(), None);
    }
}
