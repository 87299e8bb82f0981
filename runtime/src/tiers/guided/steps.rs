//! The steps of a guided compile: a version that counts, then one made with its profile.

use crate::error::{Error, Refusal};
use crate::tiers::TierState;
use crate::tiers::guided::CountingVersion;
use crate::tiers::guided::Decided;
use crate::tiers::guided::JobStep;
use crate::version::request::Request;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Cancellation, Compile, Counters, Profile, Steady, SymbolId};
use uruk_tiering::{Publication, Purpose};

impl TierState {
    /// The first step of a job: a compile at tier 3 that has no profile yet publishes a
    /// version that counts one.
    ///
    /// # Errors
    /// The errors of the compile of that version; or that it was cancelled.
    pub(in crate::tiers) fn profile_first(
        self: &Arc<Self>,
        request: Request,
        queued: Duration,
        cancel: &Cancellation,
    ) -> Result<JobStep, Error> {
        let profiles = &self.profiles;
        let known = {
            let state = profiles.lock();
            state.profiles.contains_key(&request.function.index())
                || state.decided.contains_key(&request.version)
        };
        if request.tier != Tier::Guided || known {
            return Ok(JobStep::Now(request));
        }
        let counting = Request {
            ahead: false,
            tier: Tier::Optimized,
            ..request
        };
        let how = self.choices.how(Tier::Optimized).counting(Counters::Full);
        let made = self.make_as(counting, how, Some(queued), cancel)?;
        if let Publication::Dropped(late) = made.publication {
            return Err(Error::Version {
                function: self.name_of(request.function),
                cause: Refusal::State(late.into()),
            });
        }
        let guided = Request {
            ahead: false,
            version: self.versions.ids.next(),
            purpose: Purpose::Change,
            ..request
        };
        let mut state = profiles.lock();
        // A thread that cancels sets the token first, and then looks for counting versions.
        if cancel.is_cancelled() {
            drop(state);
            return Err(self.cancelled(request.function));
        }
        match made.words {
            Some(words) => {
                state.counting.push(CountingVersion {
                    request: guided,
                    decided: request.version,
                    words,
                    since: self.events.now(),
                    spent: Duration::ZERO,
                });
                Ok(JobStep::Later)
            }
            None => {
                let came = Decided {
                    version: request.version,
                    // Counted with the compile that follows.
                    spent: Duration::ZERO,
                };
                state.decided.insert(guided.version, came);
                Ok(JobStep::Now(guided))
            }
        }
    }

    /// Values that arguments of `id` nearly always had while it was counted.
    pub(crate) fn steady(&self, id: FunctionId) -> Vec<Steady> {
        let state = self.profiles.lock();
        let profile = state.profiles.get(&id.index());
        profile.map_or_else(Vec::new, |profile| profile.steady_arguments())
    }

    /// The settings of a guided compile of `id`: the profiles of its module, and the functions at
    /// the addresses that they saw called.
    pub(crate) fn guide(&self, id: FunctionId, how: Compile) -> Compile {
        let Some(function) = self.function(id) else {
            return how;
        };
        let held: Vec<(u32, Arc<Profile>)> = {
            let state = self.profiles.lock();
            let all = state.profiles.iter();
            all.map(|(&index, profile)| (index, Arc::clone(profile)))
                .collect()
        };
        let symbol_of = |id: FunctionId| -> Option<SymbolId> {
            let other = self.function(id)?;
            Arc::ptr_eq(&other.module, &function.module).then_some(other.symbol)
        };
        let mut profiles = HashMap::new();
        let mut targets = HashMap::new();
        for (index, profile) in held {
            let Some(symbol) = self.stubs.function(index).and_then(symbol_of) else {
                continue;
            };
            for address in profile.observed_targets() {
                if let Some(target) = self.stubs.function_at(address).and_then(symbol_of) {
                    targets.insert(address, target);
                }
            }
            profiles.insert(symbol, profile);
        }
        how.guided(profiles, targets)
    }
}
