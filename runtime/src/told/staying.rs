//! Finds functions that stay at their first version.

use uruk_base::{FunctionId, Tier};

use crate::events::staying::{Staying, StayingStats};
use crate::session::Session;

impl Session {
    /// Functions that stay at their first version, if they have code.
    pub(crate) fn staying(&self) -> StayingStats {
        let of = |(&id, &why): (&u32, &Staying)| (FunctionId(id), why);
        let mut all: Vec<_> = self.versions.fixed().iter().map(of).collect();
        let stuck = {
            let stuck = self.continuations.stuck();
            stuck
                .iter()
                .map(|(&id, &why)| (FunctionId(id), why))
                .collect::<Vec<_>>()
        };
        for (id, why) in stuck {
            let published = self.versions.seen(id).published();
            if published.is_some_and(|it| it.tier == Tier::Baseline) {
                all.push((id, Staying::Loops(why)));
            }
        }
        let name = |(id, why)| (self.name_of(id).to_string(), why);
        let mut functions: Vec<(String, Staying)> = all.into_iter().map(name).collect();
        functions.sort_unstable_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        StayingStats { functions }
    }
}
