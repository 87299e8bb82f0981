//! Profiles for tier 3: a version with probes runs for a moment between tiers 2 and 3, and its
//! counts go into the compile.
//!
//! ```text
//! decided: tier 3 -- compile with probes, publish -- counts for 20 to 500 ms -- compile guided
//! ```
//!
//! The version with probes carries the number the controller gave, the guided one a number of its
//! own: a later change must have a larger one. The controller is told of one ended compile for
//! both.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Profiles::state` | a profile is begun, checked or taken | nothing |

mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::debug;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::{FunctionId, VersionId};
use uruk_codegen::{Probes, Profile};

use crate::code::words::ProbeWords;
use crate::host::clock::nanos;
use crate::version::request::Request;

/// Shortest and longest time of counting.
const COUNTING: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Shortest time of counting for each probe site: a function of a thousand sites does one thing
/// after another, and a path not taken in that time is considered rare.
const SITE: Duration = Duration::from_micros(50);

/// Events of one site that are enough to tell its likely targets.
const ENOUGH: u64 = 1000;

/// Entries that are enough to tell which arguments are steady.
const ENTRIES: u64 = 64;

/// A version that counts.
struct CountingVersion {
    /// The guided compile to come.
    request: Request,
    /// The number under which the controller requested the compile.
    decided: VersionId,
    words: ProbeWords,
    since: Duration,
    /// Processor time of the compile with probes.
    spent: Duration,
}

/// The controller's request behind a guided version.
#[derive(Clone, Copy)]
pub(super) struct Decided {
    pub(crate) version: VersionId,
    /// Processor time spent on it before.
    pub(crate) spent: Duration,
}

#[derive(Default)]
struct ProfileState {
    counting: Vec<CountingVersion>,
    /// Profiles by function index, once counted.
    profiles: HashMap<u32, Arc<Profile>>,
    /// Guided version under way -> the controller's request.
    decided: HashMap<VersionId, Decided>,
}

/// The profiles of a session.
#[derive(Default)]
pub(crate) struct Profiles {
    state: Mutex<ProfileState, ranks::ProfilesState>,
}

/// The next step of a job.
pub(crate) enum JobStep {
    /// Compile this now.
    Now(Request),
    /// The job comes back when there is a profile.
    Later,
}

/// Shortest time for which a version counts.
fn least(probes: &Probes) -> Duration {
    let sites = u32::try_from(probes.sites().len()).unwrap_or(u32::MAX);
    (SITE.saturating_mul(sites)).clamp(COUNTING.0, COUNTING.1 / 2)
}

impl Profiles {
    fn lock(&self) -> MutexGuard<'_, ProfileState> {
        self.state.lock()
    }

    /// The controller's request that led to `version`.
    pub(super) fn decided(&self, version: VersionId) -> Decided {
        let spent = Duration::ZERO;
        let itself = Decided { version, spent };
        self.lock().decided.remove(&version).unwrap_or(itself)
    }

    /// Adds the processor time of the compile with probes for `decided`.
    pub(crate) fn charge(&self, decided: VersionId, spent: Duration) {
        let mut state = self.lock();
        let mut held = state.counting.iter_mut();
        if let Some(held) = held.find(|held| held.decided == decided) {
            held.spent = spent;
        }
    }

    /// Stops counting for `decided`; false if nothing counted for it.
    pub(crate) fn cancel(&self, decided: VersionId) -> bool {
        let mut state = self.lock();
        let before = state.counting.len();
        state
            .counting
            .retain(|counting| counting.decided != decided);
        state.counting.len() != before
    }

    /// Drops the counts of a function: it has another body now.
    pub(crate) fn forget(&self, function: FunctionId) {
        let mut state = self.lock();
        state.profiles.remove(&function.index());
        state
            .counting
            .retain(|counting| counting.request.function != function);
    }

    /// In the child of a fork: the controller starts over with what was under way.
    pub(crate) fn after_fork_child(&self) {
        let mut state = self.lock();
        state.counting.clear();
        state.decided.clear();
    }

    /// Whether anything was counted in a function.
    pub(crate) fn knows(&self, function: FunctionId) -> bool {
        self.lock().profiles.contains_key(&function.index())
    }

    /// Takes the counts of a version of `function`, which has counted for `age`; false if they are
    /// not enough yet. Earlier counts are dropped.
    pub(crate) fn take_up(&self, function: FunctionId, words: &ProbeWords, age: Duration) -> bool {
        let profile = match Profile::new(&words.probes, &words.read()) {
            Ok(profile) => profile.counted_for(nanos(age)),
            Err(cause) => {
                debug!(%cause, "no profile");
                return true;
            }
        };
        let few =
            age < least(&words.probes) || profile.most() < ENOUGH || profile.entries() < ENTRIES;
        if age < COUNTING.1 && few {
            return false;
        }
        if !profile.is_empty() {
            let mut state = self.lock();
            state.profiles.insert(function.index(), Arc::new(profile));
        }
        true
    }

    /// Guided compiles whose probes have counted enough by `now`, and the controller's requests.
    pub(crate) fn due(&self, now: Duration) -> Vec<(Request, VersionId)> {
        let mut state = self.lock();
        let ProfileState {
            counting,
            profiles,
            decided,
        } = &mut *state;
        let mut due = Vec::new();
        counting.retain(|held| {
            let age = now.saturating_sub(held.since);
            if age < least(&held.words.probes) {
                return true;
            }
            match Profile::new(&held.words.probes, &held.words.read()) {
                Ok(profile) if age < COUNTING.1 && profile.most() < ENOUGH => return true,
                Ok(profile) if !profile.is_empty() => {
                    let profile = profile.counted_for(nanos(age));
                    profiles.insert(held.request.function.index(), Arc::new(profile));
                }
                Ok(_) => {}
                Err(cause) => debug!(%cause, "no profile"),
            }
            let came = Decided {
                version: held.decided,
                spent: held.spent,
            };
            decided.insert(held.request.version, came);
            due.push((held.request, held.decided));
            false
        });
        due
    }
}
