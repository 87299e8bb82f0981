//! Repeated measurements of one thing.
//!
//! Invariant: a [`Sample`] holds at least one finite figure, in ascending order.

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
}
