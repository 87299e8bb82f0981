//! The time and kind of cycles: a pure function of the situation.
//!
//! With `live`, `fresh` (retired and not examined since), `fragmented` in bytes:
//!
//! ```text
//! sweep     if  asked for
//!           or  fresh > max(sweep_floor, sweep_fraction * live)
//!           or  the oldest fresh block is retired for sweep_after
//!           or  the back-off of a pinned block is over
//!           or  proved blocks are left over from a cycle that was abandoned
//! evacuate  if  asked for
//!           or  evacuate_every > 0  and  published >= evacuate_every
//!           or  fragmented - residue > max(evacuate_floor, evacuate_fraction * live)
//! ```
//!
//! If sizes require both, a sweep runs first, because it makes pages whole. `residue` is the
//! fragmentation that the last evacuation left (around pinned islands and code that cannot move);
//! another one would leave it too.
//!
//! The rate limit bounds the cost of reclaim, as long as memory does not suffer: a cycle begins
//!
//! ```text
//! not before  start of the last cycle + max(interval, its processor time / share)
//!             share: cpu_fraction, or aged_part of it where little is retired, and its age asks;
//!             then it does not wait for longer than patience / 2
//! at once if  asked for
//!         or  fresh > max(2 * sweep_floor, sweep_limit * live)
//! ```
//!
//! Held memory is then at most `live * (1 + sweep_limit + evacuate_fraction)`, the floors, pinned
//! blocks and blocks retired during a cycle; with the defaults 1.7 times live. The rest up to twice
//! live is for blocks that are published while the thread that reclaims waits for a processor.

use crate::config::Config;
use crate::ids::Nanos;

/// The work of a cycle. The greater includes the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Proves retired blocks dead and frees them in place.
    Sweep,
    /// Copies live blocks to the other space first.
    Evacuate,
}

/// Reason for a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A request.
    Requested,
    /// Many bytes are retired.
    Retired,
    /// A block has been retired for long.
    Aged,
    /// The back-off of a pinned block is over.
    Retry,
    /// An aborted cycle left proved blocks.
    Leftover,
    /// The test setting `evacuate_every`.
    Published,
    /// Live code is fragmented.
    Fragmented,
}

impl Reason {
    /// Whether the rate limit does not apply.
    pub fn is_urgent(self) -> bool {
        self == Reason::Requested
    }
}

/// The inputs of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Bytes of live blocks.
    pub live: u64,
    /// Bytes of retired blocks that were not examined yet.
    pub fresh: u64,
    /// Time at which the oldest of them was retired.
    pub oldest: Option<Nanos>,
    /// Time of the next search for a block that could not be freed.
    pub due: Option<Nanos>,
    /// Whether proved blocks wait to be freed.
    pub leftover: bool,
    /// Unused bytes in partly used pages.
    pub fragmented: u64,
    /// The value of `fragmented` after the last evacuation.
    pub residue: u64,
    /// Blocks that became live since the last evacuation.
    pub published: u64,
    /// The requested kind of cycle.
    pub request: Option<Kind>,
}

fn threshold(floor: u64, fraction: f64, live: u64) -> u64 {
    // The cast saturates.
    floor.max((live as f64 * fraction) as u64)
}

/// The cycle to run now, if any, without regard to the rate limit.
pub fn decide(config: &Config, at: &Situation, now: Nanos) -> Option<(Kind, Reason)> {
    if let Some(kind) = at.request {
        return Some((kind, Reason::Requested));
    }
    if at.leftover {
        return Some((Kind::Sweep, Reason::Leftover));
    }
    if config.evacuate_every > 0 && at.published >= config.evacuate_every {
        return Some((Kind::Evacuate, Reason::Published));
    }
    if at.fresh > threshold(config.sweep_floor, config.sweep_fraction, at.live) {
        return Some((Kind::Sweep, Reason::Retired));
    }
    let scattered = at.fragmented.saturating_sub(at.residue);
    if scattered > threshold(config.evacuate_floor, config.evacuate_fraction, at.live) {
        return Some((Kind::Evacuate, Reason::Fragmented));
    }
    if at
        .oldest
        .is_some_and(|since| since + config.sweep_after <= now)
    {
        return Some((Kind::Sweep, Reason::Aged));
    }
    if at.due.is_some_and(|due| due <= now) {
        return Some((Kind::Sweep, Reason::Retry));
    }
    None
}

/// Whether so many bytes are retired that a sweep does not wait for the rate limit.
pub fn presses(config: &Config, at: &Situation) -> bool {
    let floor = config.sweep_floor.saturating_mul(2);
    at.fresh > threshold(floor, config.sweep_limit, at.live)
}

/// The time at which [`decide`] would start a cycle without further events; `None` for never.
pub fn wake(config: &Config, at: &Situation) -> Option<Nanos> {
    let aged = at.oldest.map(|since| since + config.sweep_after);
    [aged, at.due].into_iter().flatten().min()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(at: Situation, expected: Option<(Kind, Reason)>) {
        let got = decide(&Config::default(), &at, Nanos::from_ms(5_000));
        assert_eq!(got, expected, "{at:?}");
    }

    #[test]
    fn each_reason_decides_at_its_threshold() {
        let at = Situation {
            live: 10 * MIB,
            ..Situation::default()
        };
        check(at, None);
        let retired = |fresh| Situation { fresh, ..at };
        check(retired(3 * MIB), None);
        check(retired(3 * MIB + 1), Some((Kind::Sweep, Reason::Retired)));
        let scattered = |fragmented, residue| Situation {
            fragmented,
            residue,
            ..at
        };
        check(scattered(3 * MIB, 0), None);
        check(
            scattered(3 * MIB + 1, 0),
            Some((Kind::Evacuate, Reason::Fragmented)),
        );
        check(scattered(3 * MIB + 1, MIB), None);
        let small = Situation {
            fresh: (64 << 10) + 1,
            ..Situation::default()
        };
        check(
            Situation {
                fresh: 64 << 10,
                ..small
            },
            None,
        );
        check(small, Some((Kind::Sweep, Reason::Retired)));
    }

    #[test]
    fn much_garbage_does_not_wait_for_a_share_of_the_processor() {
        let presses = |live, fresh| {
            let at = Situation {
                live,
                fresh,
                ..Situation::default()
            };
            super::presses(&Config::default(), &at)
        };
        assert!(!presses(10 * MIB, 4 * MIB) && presses(10 * MIB, 4 * MIB + 1));
        assert!(!presses(0, 128 << 10) && presses(0, (128 << 10) + 1));
    }

    #[test]
    fn time_alone_decides_when_wake_says_so() {
        let config = Config::default();
        let aged = Situation {
            oldest: Some(Nanos::from_ms(70)),
            ..Situation::default()
        };
        let due = Situation {
            due: Some(Nanos::from_ms(90)),
            ..Situation::default()
        };
        for (at, reason) in [(aged, Reason::Aged), (due, Reason::Retry)] {
            let when = wake(&config, &at).unwrap();
            assert_eq!(decide(&config, &at, when), Some((Kind::Sweep, reason)));
            assert_eq!(decide(&config, &at, when - Nanos(1)), None);
        }
        assert_eq!(wake(&config, &Situation::default()), None);
    }
}
