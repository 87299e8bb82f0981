//! Work on a thread that can be given up: should LLVM report a fatal error in it, or should it
//! panic, whoever waits gets an error.
//!
//! Whoever waits may be a thread of the program, and may be interrupted by a handler that
//! calls members of a set this very work exchanges. So it waits without a lock, and what the
//! other thread does to end the wait takes none that it could hold.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use uruk_codegen::fatal;
use uruk_stubs::FunctionId;
use uruk_tiering::{Purpose, Tier};

use crate::core::Core;
use crate::error::Error;
use crate::panics;
use crate::service::{enter, leave_lost};
use crate::shield;
use crate::thread;
use crate::versions::Request;

/// The result of work that another thread does.
struct Answer<R> {
    /// Locked by one side before `there` is set, by the other one after.
    result: Mutex<Option<Result<R, Error>>>,
    there: OnceLock<()>,
}

impl<R> Answer<R> {
    /// Takes no lock that somebody waits for: a handler may have interrupted whoever waits
    /// for the answer.
    fn give(&self, result: Result<R, Error>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        // Given once; a second would not be looked at.
        let _ = self.there.set(());
    }

    fn wait(&self) -> Result<R, Error> {
        self.there.wait();
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take().expect("given before it is said to be there")
    }
}

/// Runs `work` on a thread that is given up should LLVM report a fatal error in it;
/// `lost` makes the error of LLVM's message. A panic is an error, too. Handlers of the
/// program's run meanwhile, unless the caller holds a lock.
pub(crate) fn sacrificial<R: Send + 'static>(
    name: &str,
    lost: impl Fn(&str) -> Error + Send + 'static,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let answer = Arc::new(Answer {
        result: Mutex::new(None),
        there: OnceLock::new(),
    });
    // Taken by the thread, which runs once.
    let once = Cell::new(Some((Arc::clone(&answer), lost, work)));
    thread::spawn(name.to_owned(), move || {
        let _busy = enter();
        let Some((given, lost, work)) = once.take() else {
            return;
        };
        let to_lose = Arc::clone(&given);
        let on_fatal = move |message: &str| {
            to_lose.give(Err(lost(message)));
            leave_lost();
        };
        fatal::guard(on_fatal, move || {
            // A fork that comes once the pass is gone finds the answer there.
            given.give(panics::caught(work));
        });
    })?;
    shield::lowered(|| answer.wait())
}

/// Compiles a function now, on a thread that LLVM can take down: at `tier`, over
/// whatever runs, or (`None`) at the tier of first code, unless it has code.
pub(crate) fn compile_now(
    core: &Arc<Core>,
    id: FunctionId,
    tier: Option<Tier>,
) -> Result<(), Error> {
    let version = core.tiers.versions.ids.next();
    let request = Request {
        function: id,
        version,
        tier: tier.unwrap_or(core.tiers.first()),
        purpose: Purpose::First,
    };
    let lost = {
        let core = Arc::clone(core);
        move |message: &str| {
            core.lose_worker();
            core.tiers.versions.of(id).fail(version);
            let error = core.fatal(id, message);
            core.tell_failed(request, &error);
            core.tell_lost(message);
            error
        }
    };
    let core = Arc::clone(core);
    sacrificial("uruk-now", lost, move || match tier {
        Some(tier) => core.compile_at(id, version, tier),
        None if core.stubs.entry(id).is_some() => Ok(()),
        None => core.materialize(id, version).map(drop),
    })
}
