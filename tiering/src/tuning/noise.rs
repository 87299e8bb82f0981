//! Noise as machines make it, for tests: factors of a slice's time, about 1.

use super::trial::draw;

/// The influence on a slice's time besides its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each slice is independent.
    White,
    /// A slice is mostly like the one before.
    Correlated,
    /// One in twenty takes up to twenty times as long: another process had the processor.
    Outliers,
    /// The load changes from one phase to another all the time, and costs twice as much in one.
    Phases,
    /// Slow and fast slices in turns: the beat of a timer.
    Periodic,
    /// The machine gets slower and slower.
    Drifting,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::White,
        Kind::Correlated,
        Kind::Outliers,
        Kind::Phases,
        Kind::Periodic,
        Kind::Drifting,
    ];
}

/// A source of noise.
pub(super) struct Noise {
    kind: Kind,
    spread: f64,
    random: u64,
    slices: u32,
    state: f64,
}

impl Noise {
    pub(super) fn new(kind: Kind, spread: f64, seed: u64) -> Noise {
        Noise {
            kind,
            spread,
            random: seed.wrapping_mul(0x2545_f491_4f6c_dd1d),
            slices: 0,
            state: 0.0,
        }
    }

    pub(super) fn uniform(&mut self) -> f64 {
        (draw(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A nearly normal number of variance 1: the sum of twelve uniform ones.
    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// The factor of the next slice.
    pub(super) fn next(&mut self) -> f64 {
        self.slices += 1;
        let own = self.normal() * self.spread;
        let stalled = self.uniform() < 0.05;
        let log = match self.kind {
            Kind::White => own,
            Kind::Correlated => {
                self.state = 0.95 * self.state + own;
                self.state
            }
            Kind::Outliers if stalled => own + 3.0 * self.uniform(),
            Kind::Outliers => own,
            Kind::Phases => {
                if self.uniform() < 0.03 {
                    self.state = 0.7 - self.state;
                }
                own + self.state
            }
            Kind::Periodic => {
                own + if self.slices.is_multiple_of(2) {
                    0.2
                } else {
                    0.0
                }
            }
            Kind::Drifting => own + f64::from(self.slices) * 0.01,
        };
        log.exp()
    }
}
