//! A first compile at tier 2 before there is a job for it (`uruk_codegen::warm`).
//!
//! | when | what |
//! |---|---|
//! | a function with loops got its first code | it is wanted: a worker that waits is woken |
//! | a worker has no job | it warms up, once in a process |
//! | a first job comes meanwhile | no other worker starts: this one stops at its next step |
//!
//! Where LLVM's library is not loaded yet, a worker is woken [`LATER`] only: loading it takes
//! 13 ms, and the process cannot end meanwhile. A job that comes before loads it at once.
//!
//! Programs without loops never pay for it; nor do those on a single processor, which the
//! program needs. A program with loops that ends within 10 ms pays up to 4 ms of a processor that
//! has nothing better to do. Kernels of 70 instructions were at tier 2 after 10.8 and 11.2 ms
//! without it, and after 9.9 and 8.8 with it.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use uruk_base::Part;
use uruk_codegen::{fatal, warm};

use crate::core::Core;
use crate::fork::gate;
use crate::fork::panics;
use crate::tiers::background::thread_time;
use crate::tiers::jobs::{Job, Jobs};

/// How long a program runs before LLVM is loaded for what may become hot. Who ends while it is
/// loaded waits for that: less than a quarter of the time it has run.
const LATER: Duration = Duration::from_millis(50);

/// Whether LLVM was made ready for a first compile in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Warmth {
    /// Nothing calls for it.
    #[default]
    Cold,
    /// Something may become hot soon, and LLVM is not there: since when.
    Later(Duration),
    /// Something may become hot soon.
    Wanted,
    /// A worker is at it.
    Warming,
    /// It was made ready, or needs not.
    Warm,
}

/// What a background worker does next.
pub(crate) enum Turn {
    Compile(Job),
    WarmUp,
    Wait,
}

impl Turn {
    /// Of the calling worker, which is in line if it is to wait.
    pub(crate) fn next(jobs: &mut Jobs) -> Turn {
        if let Some(job) = jobs.take() {
            return Turn::Compile(job);
        }
        if jobs.warmth == Warmth::Wanted {
            jobs.warmth = Warmth::Warming;
            return Turn::WarmUp;
        }
        jobs.idle.push(std::thread::current());
        Turn::Wait
    }
}

/// A loop is about to run: what is called in it may be hot within a millisecond. `cold`:
/// nothing was compiled at tier 2 in this process.
pub(crate) fn want(jobs: &mut Jobs, cold: bool, now: Duration) {
    if jobs.warmth != Warmth::Cold {
        return;
    }
    jobs.warmth = match (cold, uruk_late::is_open()) {
        (true, true) => Warmth::Wanted,
        (true, false) => Warmth::Later(now),
        (false, _) => Warmth::Warm,
    };
    if jobs.warmth == Warmth::Wanted {
        wake(jobs);
    }
}

/// Time goes on: what was put off is wanted in the end.
pub(crate) fn look(jobs: &mut Jobs, now: Duration) {
    if let Warmth::Later(since) = jobs.warmth
        && (uruk_late::is_open() || now.saturating_sub(since) >= LATER)
    {
        jobs.warmth = Warmth::Wanted;
        wake(jobs);
    }
}

fn wake(jobs: &mut Jobs) {
    if let Some(worker) = jobs.idle.pop() {
        worker.unpark();
    }
}

impl Core {
    /// Makes LLVM ready until there is a job; the text of a panic. Under a pass.
    pub(crate) fn warm_up(self: &Arc<Self>) -> Option<String> {
        let on_fatal = {
            let core = Arc::clone(self);
            move |message: &str| {
                core.tell_lost(message);
                warn!(
                    message,
                    "LLVM took a background worker down before its first job"
                );
                let mut jobs = core.tiers.jobs();
                jobs.warmth = Warmth::Warm;
                jobs.workers -= 1;
                match jobs.waiting.is_empty() {
                    true => drop(jobs),
                    false => core.add_worker(jobs),
                }
                gate::leave_lost();
            }
        };
        fatal::guard(on_fatal, || {
            let wanted = || self.is_stopping() || !self.tiers.jobs().waiting.is_empty();
            let before = thread_time();
            let panic = panics::contained(|| {
                let _warming = self.counters.parts.enter(Part::Warming);
                if let Err(cause) = warm::warm_up(wanted) {
                    warn!(%cause, "a first compile at tier 2 failed");
                }
            });
            let spent = thread_time().saturating_sub(before);
            self.tiers.spent_aside(spent);
            self.tiers.jobs().warmth = Warmth::Warm;
            panic
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LATER, Turn, Warmth, look, want};
    use crate::tiers::jobs::Jobs;

    #[test]
    fn a_worker_warms_up_once_and_then_waits() {
        let mut jobs = Jobs::default();
        assert!(matches!(Turn::next(&mut jobs), Turn::Wait));
        assert_eq!(jobs.idle.len(), 1);
        want(&mut jobs, true, Duration::ZERO);
        if !uruk_late::is_open() {
            let later = (Warmth::Later(Duration::ZERO), 1);
            assert_eq!((jobs.warmth, jobs.idle.len()), later);
            look(&mut jobs, LATER / 2);
            assert_eq!((jobs.warmth, jobs.idle.len()), later);
            look(&mut jobs, LATER);
        }
        assert_eq!((jobs.warmth, jobs.idle.len()), (Warmth::Wanted, 0));
        assert!(matches!(Turn::next(&mut jobs), Turn::WarmUp));
        want(&mut jobs, true, LATER);
        assert_eq!(jobs.warmth, Warmth::Warming);
        assert!(matches!(Turn::next(&mut jobs), Turn::Wait));
        // Where something else warmed the process up, nobody is woken.
        let mut jobs = Jobs::default();
        assert!(matches!(Turn::next(&mut jobs), Turn::Wait));
        want(&mut jobs, false, LATER);
        look(&mut jobs, LATER * 2);
        assert_eq!((jobs.warmth, jobs.idle.len()), (Warmth::Warm, 1));
    }
}
