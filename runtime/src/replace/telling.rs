//! Reports an exchange: to the caller that requested it, and to event listeners.

use std::time::Duration;

use uruk_base::FunctionId;

use crate::events::Event;
use crate::fork::gate;
use crate::replace::SessionHandle;
use crate::replace::state::Replacing;
use std::sync::Arc;

use super::commit::CommittedSet;
use super::old::ReplacedCode;
use super::prepare::ReportedNames;
use super::state::Manner;
use uruk_base::Level;

use super::Replaced;
use super::Replacement;
use crate::replace::loops::OldLoop;
use crate::replace::rollback::RolledBack;

impl CommittedSet {
    /// Files the set, and reports it. `begun` is the time when its turn came.
    pub(super) fn finish(
        mut self,
        (replacing, handle): (&Arc<Replacing>, SessionHandle),
        names: ReportedNames,
        replacement: &Replacement,
        begun: Duration,
        constructors_skipped: Vec<String>,
        loops: Vec<OldLoop>,
    ) -> Replaced {
        let number = self.set.number;
        let _pass = gate::enter();
        self.set.manner = Manner {
            level: replacement.level,
            osr: replacement.osr && replacement.level == Level::Immediate,
        };
        replacing.file(self.set);
        replacing.retry_failed();
        let dependents = replacing.names_of(self.dependents);
        replacing.events.tell(|| Event::Replaced {
            number,
            functions: names.functions.clone(),
            added: names.added.clone(),
            dependents: dependents.clone(),
            level: replacement.level,
            took: self.at.saturating_sub(begun),
            closed: self.closed,
            at: self.at,
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
            closed: self.closed,
            number,
            // A quiescent set waited until no thread was in it.
            old: match replacement.level.wait() {
                None => self.old,
                Some(_) => ReplacedCode::default(),
            },
            replacing: Arc::clone(replacing),
            _handle: handle,
        }
    }
}

impl Replacing {
    /// Reports that the replacement with this number was rolled back.
    pub(super) fn tell_back(
        &self,
        number: u64,
        done: &CommittedSet,
        begun: Duration,
    ) -> RolledBack {
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
