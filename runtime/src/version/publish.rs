//! The last phase: the version is stored into the slot, unless a better or newer one is there.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_tiering::{FunctionVersions, Late, Publication, Ticket};

use crate::error::Error;
use crate::version::compiler::Compiler;
use crate::version::request::Made;
use crate::version::request::Request;

/// A recorded version.
pub(super) struct RecordedVersion {
    pub(super) request: Request,
    pub(super) made: Made,
    /// Functions from which it took bodies or facts.
    pub(super) depends: Arc<[FunctionId]>,
    /// The number of the last commit of a replacement when it was begun.
    pub(super) epoch: u64,
    /// Whether no event is sent: it is in the slot for a comparison.
    pub(super) quiet: bool,
}

impl Compiler {
    /// Publishes a version, or retires it.
    pub(super) fn publish(
        self: &Arc<Self>,
        filed: RecordedVersion,
        versions: &FunctionVersions,
        ticket: Ticket,
    ) -> Result<Made, Error> {
        let RecordedVersion {
            request,
            mut made,
            depends,
            epoch,
            quiet,
        } = filed;
        let (id, version) = (request.function, request.version);
        {
            // No replacement commits between this check and the store.
            let publishing = self.publications.publish();
            let fresh = publishing.is_fresh(epoch, &depends);
            let store = |entry| match request.ahead {
                true => self.stubs.prepare(id, entry),
                false => self.stubs.publish(id, entry),
            };
            made.publication = versions
                .publish(ticket, |entry| fresh && store(entry))
                .inspect_err(|_| self.retire_version(id, version))
                .map_err(self.refused(id))?;
            if !fresh && made.publication == Publication::Dropped(Late::Refused) {
                made.publication = Publication::Dropped(Late::Replaced);
            }
        }
        if !quiet {
            self.tell_publication(request, &made.publication);
        }
        match &made.publication {
            Publication::Published { retired, released } => {
                if let Some(released) = released {
                    self.retire_version(id, *released);
                }
                if retired.is_some() {
                    self.notes.superseded(id, version);
                    self.notes.start();
                }
                self.engines().keep_budget();
            }
            Publication::Dropped(_) => self.retire_version(id, version),
            // A replacement of the function cancels it, or allows it.
            _ => {}
        }
        Ok(made)
    }
}
