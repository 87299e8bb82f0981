//! What embedders may ask of loops, and forbid.

use uruk_base::Tier;

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::fork::gate;
use crate::version::calls;

impl Dylib {
    /// Compiles continuations, at tier 2, for the loops of a function's versions of tier 1, and
    /// offers them: whoever runs one of the loops goes on in better code at its next pass. How
    /// many are offered; none where no version of tier 1 is there that can be left
    /// ([`ContinuationStats::refused`] counts why), or where it is forbidden.
    ///
    /// Under [`Tiers::Auto`](crate::Tiers::Auto) that is done without asking, for loops that are
    /// worth it.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`]; whatever a compile reports, after which
    /// what was offered before stays so.
    ///
    /// [`ContinuationStats::refused`]: crate::ContinuationStats::refused
    pub fn leave_loops(&self, name: &str) -> Result<usize, Error> {
        let id = self.id_of(name)?;
        let core = self.jit.core();
        let mut wanted = Vec::new();
        {
            let _busy = gate::enter();
            if core.continuations.forbidden().contains(&id.index()) {
                return Ok(0);
            }
            let running = core.continuations.of(id).into_iter();
            for loops in running.filter(|loops| !loops.is_closed()) {
                for place in 0..loops.heads.len() {
                    wanted.extend(core.continuation(&loops, place)?);
                }
            }
        }
        for &continuation in &wanted {
            calls::compile_now(core, continuation, Some(Tier::Optimized))?;
            let _busy = gate::enter();
            core.continuation_made(continuation, true);
        }
        core.pay_for_reclaim();
        Ok(wanted.len())
    }

    /// Forbids that loops of a function are left for continuations, or allows it again. What is
    /// offered is taken back; who has left a loop does not come back.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn forbid_continuations(&self, name: &str, forbidden: bool) -> Result<(), Error> {
        let id = self.id_of(name)?;
        let _busy = gate::enter();
        let continuations = &self.jit.core().continuations;
        match forbidden {
            true => continuations.forbidden().insert(id.index()),
            false => continuations.forbidden().remove(&id.index()),
        };
        if forbidden {
            for loops in continuations.of(id) {
                loops.take_back();
            }
        }
        Ok(())
    }
}
