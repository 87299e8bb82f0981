//! What is told of an exchange: to whoever asked for it, and to those who listen.

use std::time::Duration;

use uruk_base::FunctionId;

use crate::api::dylib::Dylib;
use crate::core::Core;
use crate::fork::gate;
use crate::told::event::Event;

use super::commit::Done;
use super::prepare::Names;
use super::quiet::OldCode;
use super::state::Manner;
use super::{Level, OldLoop, Replaced, Replacement, RolledBack};

impl Dylib {
    /// Files what was done, and tells of it. `begun` is when its turn came.
    pub(super) fn finish(
        &self,
        mut done: Done,
        names: Names,
        replacement: &Replacement,
        begun: Duration,
        constructors_skipped: Vec<String>,
        loops: Vec<OldLoop>,
    ) -> Replaced {
        let core = self.jit.core();
        let number = done.set.number;
        let _pass = gate::enter();
        done.set.manner = Manner {
            level: replacement.level,
            osr: replacement.osr && replacement.level == Level::Immediate,
        };
        core.replacing.file(done.set);
        core.retry_failed();
        let dependents = core.names_of(done.dependents);
        core.events.tell(|| Event::Replaced {
            number,
            functions: names.functions.clone(),
            added: names.added.clone(),
            dependents: dependents.clone(),
            level: replacement.level,
            took: done.at.saturating_sub(begun),
            closed: done.closed,
            at: done.at,
        });
        Replaced {
            functions: names.functions,
            added: names.added,
            dependents,
            globals_added: names.globals_added,
            globals_kept: names.globals_kept,
            locals_new: names.locals_new,
            constructors_skipped,
            loops,
            closed: done.closed,
            number,
            // A quiescent set waited until no thread was in it.
            old: match replacement.level {
                Level::Immediate => done.old,
                Level::Quiescent { .. } => OldCode::default(),
            },
            jit: self.jit.clone(),
        }
    }
}

impl Core {
    /// Tells that the replacement of this number was taken back.
    pub(super) fn tell_back(&self, number: u64, done: &Done, begun: Duration) -> RolledBack {
        let functions = self.names_of(done.set.before.iter().map(|before| before.id));
        let dependents = self.names_of(done.dependents.iter().copied());
        self.events.tell(|| Event::RolledBack {
            number,
            functions: functions.clone(),
            dependents: dependents.clone(),
            took: done.at.saturating_sub(begun),
            closed: done.closed,
            at: done.at,
        });
        RolledBack {
            functions,
            dependents,
        }
    }

    fn names_of(&self, ids: impl IntoIterator<Item = FunctionId>) -> Vec<String> {
        let ids = ids.into_iter();
        ids.map(|id| self.name_of(id).to_owned()).collect()
    }
}
