//! A small difference from many noisy comparisons. Pure.
//!
//! The mean without the least and the greatest tenth: what others do to a machine falls on
//! few comparisons and hard. What is looked for falls on all of them, or on one in six or
//! more by less than the noise, and is not cut away with it. The standard error is that of
//! the trimmed mean (Tukey and McLaughlin): the deviation of the figures with the cut ones
//! moved to the cut, over `(1 - 2 * CUT) * sqrt(count)`.

/// Part of the figures cut at each end.
const CUT: f64 = 0.1;

/// The combined result of comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Trimmed mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// How many comparisons.
    pub count: usize,
}

impl Estimate {
    /// Of at least ten figures.
    pub fn of(figures: &[f64]) -> Option<Estimate> {
        let count = figures.len();
        if count < 10 {
            return None;
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = (count as f64 * CUT) as usize;
        let kept = &sorted[cut..count - cut];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        let (low, high) = (kept[0], kept[kept.len() - 1]);
        let moved: Vec<f64> = sorted.iter().map(|one| one.clamp(low, high)).collect();
        let middle = moved.iter().sum::<f64>() / count as f64;
        let squares: f64 = moved.iter().map(|one| (one - middle).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let error = deviation / ((1.0 - 2.0 * CUT) * (count as f64).sqrt());
        Some(Estimate { mean, error, count })
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    /// About normal, deviation 1: twelve uniform figures.
    fn normal(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_small_difference_is_found_and_its_error_is_true() {
        let mut state = 1;
        let (mut outside, trials) = (0, 400);
        let mut sum = 0.0;
        for _ in 0..trials {
            let figures: Vec<f64> = (0..300)
                .map(|index| {
                    // In all 0.2, in one of six 0.4 more, and others' work now and then.
                    let drain = if index % 6 == 0 { 0.4 } else { 0.0 };
                    let others = if index % 25 == 3 { 30.0 } else { 0.0 };
                    let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
                    0.2 + drain + 1.5 * normal(&mut state) + sign * others
                })
                .collect();
            let estimate = Estimate::of(&figures).expect("enough");
            assert!((0.06..0.14).contains(&estimate.error), "{estimate:?}");
            let truth = 0.2 + 0.4 / 6.0;
            outside += u32::from((estimate.mean - truth).abs() > 2.0 * estimate.error);
            sum += estimate.mean;
        }
        let mean = sum / f64::from(trials);
        assert!((mean - 0.2667).abs() < 0.02, "{mean}");
        // One in twenty is.
        assert!((5..45).contains(&outside), "{outside} of {trials}");
    }

    #[test]
    fn few_figures_say_nothing() {
        assert!(Estimate::of(&[1.0; 9]).is_none());
        let same = Estimate::of(&[1.0; 10]).expect("ten");
        assert_eq!((same.mean, same.error, same.count), (1.0, 0.0, 10));
    }
}
