//! When samples are drained, and not while sampling is paused: a pause stops the clock of
//! the drains as well.
//!
//! # Why
//! Sampling pauses without losing time: what is left of an interval is kept, so the benchmark
//! of its cost switches it on and off every few milliseconds in one process.

use std::time::Duration;

/// How long a pause lasts when what was taken before it is drained.
const REST_AFTER: Duration = Duration::from_millis(100);

/// Whether samples are taken, and when they are drained.
pub(super) enum Clock {
    /// Next drained then.
    Running { due: Duration },
    Paused {
        /// What was left until a drain was due.
        left: Duration,
        /// When to drain what was taken before; nothing once that is done.
        rest: Option<Duration>,
    },
}

impl Default for Clock {
    fn default() -> Clock {
        let due = Duration::ZERO;
        Clock::Running { due }
    }
}

impl Clock {
    pub(super) fn is_paused(&self) -> bool {
        matches!(self, Clock::Paused { .. })
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        match *self {
            Clock::Running { due } => now >= due,
            Clock::Paused { rest, .. } => rest.is_some_and(|rest| now >= rest),
        }
    }

    /// Asks for a drain at once.
    pub(super) fn hurry(&mut self) {
        match self {
            Clock::Running { due } => *due = Duration::ZERO,
            Clock::Paused { rest, .. } => *rest = Some(Duration::ZERO),
        }
    }

    /// After a drain: the next is due after `wait`.
    pub(super) fn drained(&mut self, now: Duration, wait: Duration) {
        match self {
            Clock::Running { due } => *due = now + wait,
            Clock::Paused { rest, .. } => *rest = None,
        }
    }

    pub(super) fn pause(&mut self, now: Duration) {
        if let Clock::Running { due } = *self {
            *self = Clock::Paused {
                left: due.saturating_sub(now),
                rest: Some(now + REST_AFTER),
            };
        }
    }

    pub(super) fn resume(&mut self, now: Duration) {
        if let Clock::Paused { left, .. } = *self {
            let due = now + left;
            *self = Clock::Running { due };
        }
    }
}
