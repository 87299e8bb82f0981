//! A first compile at tier 2 before there is a job for it (`uruk_codegen::warm`).
//!
//! | when | what happens |
//! |---|---|
//! | a function with loops got its first code | a warm-up is requested: a worker that waits is woken |
//! | a worker has no job | it warms up, once in a process |
//! | a first job comes meanwhile | no other worker starts: this one stops at its next step |
//!
//! Where LLVM's library is not loaded yet, a worker is woken later: the process cannot end while
//! the library is loaded. A program that ends then must have paid less than a tenth of its run
//! time for loading and warming up ([`LATER`]). While functions are compiled ahead of their first
//! calls, the warm-up is put off further ([`LATEST`]). A job that comes before loads the library at
//! once.
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

use crate::code::body::Body;
use crate::fork::gate;
use crate::fork::panics;
use crate::host::clock::thread_time;
use crate::host::llvm;
use crate::tiers::TierState;
use crate::tiers::jobs::{Job, Jobs};

/// Processor time of a warm-up after LLVM was just loaded.
const WARMING: Duration = Duration::from_millis(7);

/// How long a program runs before LLVM is loaded for code that may become hot, in multiples of the
/// time for loading and warming up. (At 12 ms, four times the time of loading alone, Lua's hello,
/// which ends after 30, took 48 ms of processors instead of 39. At four times the time of both, SQLite
/// paid 11.6 ms for it in runs of 160.)
const LATER: u32 = 10;

/// The same where no processor is idle meanwhile. Starts of 75 ms with compiles ahead of calls took
/// 100 when a library of 13 ms was loaded in the middle of them, and 500 on a busy machine.
const LATEST: u32 = 16;

/// Added to the process's niceness for background workers: the program, and first calls, go before
/// them. Beside a thread of the program on the same processor they still get a quarter of it.
const NICENESS: i32 = 5;

/// Whether LLVM was made ready for a first compile in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Warmth {
    /// No warm-up was requested.
    #[default]
    Cold,
    /// A function may become hot soon, and LLVM is not loaded: since when, and how long loading it
    /// and warming up take.
    Later(Duration, Duration),
    /// A function may become hot soon.
    Wanted,
    /// A worker warms up.
    Warming,
    /// LLVM is ready, or not needed.
    Warm,
}

/// The next action of a background worker.
pub(crate) enum WorkerStep {
    Compile(Job),
    WarmUp,
    Wait,
}

impl WorkerStep {
    /// The action of the calling worker, which must be in line if it is to wait.
    pub(crate) fn next(jobs: &mut Jobs) -> WorkerStep {
        if let Some(job) = jobs.take() {
            return WorkerStep::Compile(job);
        }
        if jobs.warmth == Warmth::Wanted {
            jobs.warmth = Warmth::Warming;
            return WorkerStep::WarmUp;
        }
        jobs.idle.push(std::thread::current());
        WorkerStep::Wait
    }
}

/// Requests a warm-up: a loop is about to run, and functions called in it may be hot within a
/// millisecond. `cold`: nothing was compiled at tier 2 in this process.
pub(crate) fn want(jobs: &mut Jobs, cold: bool, now: Duration) {
    if jobs.warmth != Warmth::Cold {
        return;
    }
    jobs.warmth = match (cold, uruk_late::is_open()) {
        (true, true) => Warmth::Wanted,
        (true, false) => Warmth::Later(now, opens_in()),
        (false, _) => Warmth::Warm,
    };
    if jobs.warmth == Warmth::Wanted {
        wake(jobs);
    }
}

/// Starts a warm-up that was put off, when its time has come. `busy`: the program still starts, and
/// idle processors compile functions ahead of its calls; or these processors have other work to
/// run.
pub(crate) fn look(jobs: &mut Jobs, now: Duration, busy: bool) {
    let Warmth::Later(since, takes) = jobs.warmth else {
        return;
    };
    let wait = takes * if busy { LATEST } else { LATER };
    if uruk_late::is_open() || now.saturating_sub(since) >= wait {
        jobs.warmth = Warmth::Wanted;
        wake(jobs);
    }
}

/// Time of loading LLVM and warming up, if it is not loaded yet.
pub(crate) fn opens_in() -> Duration {
    match uruk_late::is_open() {
        true => Duration::ZERO,
        false => uruk_late::loads_in() + WARMING,
    }
}

fn wake(jobs: &mut Jobs) {
    if let Some(worker) = jobs.idle.pop() {
        worker.unpark();
    }
}

impl TierState {
    /// Lowers the priority of the calling worker from its first job on. A thread that loads LLVM
    /// holds the dynamic loader's lock, and the end of the process waits for that: seconds on a
    /// busy machine, at low priority. So LLVM is loaded before. Under a pass.
    pub(super) fn before_first(&self, turn: &WorkerStep) {
        let needed = match turn {
            WorkerStep::Compile(job) => {
                matches!(self.body(job.request.function), Some(Body::Module(_)))
            }
            WorkerStep::WarmUp => true,
            WorkerStep::Wait => false,
        };
        if needed {
            let _loading = self.counters.parts.enter(Part::Loading);
            // The compile that needs LLVM reports that it cannot be loaded.
            let _ = llvm::open();
        }
        lower_priority();
    }

    /// Makes LLVM ready until there is a job; returns the text of a panic. Under a pass.
    pub(super) fn warm_up(self: &Arc<Self>) -> Option<String> {
        let on_fatal = {
            let tiers = Arc::clone(self);
            move |message: &str| {
                tiers.tell_lost(message);
                warn!(
                    message,
                    "LLVM took a background worker down before its first job"
                );
                let mut jobs = tiers.jobs();
                jobs.warmth = Warmth::Warm;
                jobs.workers -= 1;
                match jobs.waiting.is_empty() {
                    true => drop(jobs),
                    false => tiers.add_worker(jobs),
                }
                gate::leave_lost();
            }
        };
        fatal::guard(on_fatal, || {
            let wanted = || self.is_stopping() || !self.jobs().waiting.is_empty();
            let before = thread_time();
            let panic = panics::contained(|| {
                let _warming = self.counters.parts.enter(Part::Warming);
                if let Err(cause) = warm::warm_up(wanted) {
                    warn!(%cause, "a first compile at tier 2 failed");
                }
            });
            let spent = thread_time().saturating_sub(before);
            self.counters.spent_aside(spent);
            self.jobs().warmth = Warmth::Warm;
            panic
        })
    }
}

/// Lowers the priority of the calling thread only, as Linux allows.
fn lower_priority() {
    // The priority cannot be raised again.
    crate::fork::thread::rest::unfit();
    // SAFETY: plain calls about the calling thread; a refusal leaves it as it is.
    unsafe {
        let [id, process] = [libc::gettid(), libc::getpid()].map(|id| id as libc::id_t);
        // In a process at -10 a worker at 5 would get a thirtieth of a processor, and less.
        let own = libc::getpriority(libc::PRIO_PROCESS, process);
        libc::setpriority(libc::PRIO_PROCESS, id, own + NICENESS);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LATER, LATEST, WARMING, Warmth, WorkerStep, look, want};
    use crate::tiers::jobs::Jobs;

    #[test]
    fn a_worker_warms_up_once_and_then_waits() {
        let mut jobs = Jobs::default();
        assert!(matches!(WorkerStep::next(&mut jobs), WorkerStep::Wait));
        assert_eq!(jobs.idle.len(), 1);
        want(&mut jobs, true, Duration::ZERO);
        let takes = uruk_late::loads_in() + WARMING;
        let due = takes * LATER;
        if !uruk_late::is_open() {
            let later = (Warmth::Later(Duration::ZERO, takes), 1);
            assert_eq!((jobs.warmth, jobs.idle.len()), later);
            for (now, busy) in [(due / 2, false), (due, true), (takes * (LATEST - 1), true)] {
                look(&mut jobs, now, busy);
                assert_eq!((jobs.warmth, jobs.idle.len()), later);
            }
            look(&mut jobs, due, false);
        }
        assert_eq!((jobs.warmth, jobs.idle.len()), (Warmth::Wanted, 0));
        assert!(matches!(WorkerStep::next(&mut jobs), WorkerStep::WarmUp));
        want(&mut jobs, true, due);
        assert_eq!(jobs.warmth, Warmth::Warming);
        assert!(matches!(WorkerStep::next(&mut jobs), WorkerStep::Wait));
        // If another thread warmed the process up, no worker is woken.
        let mut jobs = Jobs::default();
        assert!(matches!(WorkerStep::next(&mut jobs), WorkerStep::Wait));
        want(&mut jobs, false, due);
        look(&mut jobs, due * 2, false);
        assert_eq!((jobs.warmth, jobs.idle.len()), (Warmth::Warm, 1));
        // A warm-up is not put off for ever.
        if !uruk_late::is_open() {
            let mut jobs = Jobs::default();
            want(&mut jobs, true, Duration::ZERO);
            look(&mut jobs, takes * LATEST, true);
            assert_eq!(jobs.warmth, Warmth::Wanted);
        }
    }
}
