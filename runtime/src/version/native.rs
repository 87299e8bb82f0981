//! Native code as a version: the slot leads to it, and samples in it are the function's.
//!
//! It goes the last phases of the walk only: it is filed and published. Its memory is the
//! program's, so reclaim is never told of it, and a version that takes its place leaves it as it
//! is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_tiering::{EntryAddress, Facts, Late, Publication, Purpose};

use super::publish::Filed;
use super::records::Version;
use super::{Made, Request};
use crate::api::error::Error;
use crate::core::Core;
use crate::tiers::TierState;

/// Bytes of native code that are taken for an instruction of IR, by which the policy expects what
/// better code costs.
const INSTRUCTION: u64 = 4;

impl Core {
    /// Publishes native code as a version of a function: its first, or over whatever runs.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        id: FunctionId,
        entry: u64,
        code: Range<u64>,
        depends: Arc<[FunctionId]>,
    ) -> Result<VersionId, Error> {
        let first = self.stubs.entry(id).is_none();
        let request = Request {
            function: id,
            version: self.tiers.versions.ids.next(),
            tier: Tier::Baseline,
            purpose: if first {
                Purpose::First
            } else {
                Purpose::Change
            },
            ahead: false,
        };
        let version = request.version;
        let refused = self.refused(id);
        let versions = self.tiers.versions.of(id);
        let ticket = versions
            .request(version, request.tier, request.purpose)
            .map_err(&refused)?;
        versions.start(ticket).map_err(&refused)?;
        let epoch = self.replacing.epoch();
        versions
            .ready(ticket, EntryAddress(entry))
            .map_err(&refused)?;
        let made = native_made(version, &code);
        self.file_native(id, version, entry, code, Arc::clone(&depends));
        let filed = Filed {
            request,
            made,
            depends,
            epoch,
        };
        let made = self.publish(filed, &versions, ticket)?;
        let Publication::Published { .. } = made.publication else {
            return Err(self.cancelled(id));
        };
        let now = self.events.now();
        match first {
            true => self.tiers.on_compiled(now, id, request.tier, &made),
            false => self.tiers.on_published(now, id, request.tier, &made),
        }
        Ok(version)
    }

    /// Files it before calls reach it.
    fn file_native(
        &self,
        id: FunctionId,
        version: VersionId,
        entry: u64,
        code: Range<u64>,
        depends: Arc<[FunctionId]>,
    ) {
        self.tiers.sampling.add_code(code.clone(), id, version);
        let mut records = self.tiers.versions.lock();
        let record = records.entry(id.index()).or_default();
        record.built.push(Version {
            id: version,
            tier: Tier::Baseline,
            entry,
            body_end: code.end,
            bytes: code.end - code.start,
            code,
            time: Duration::ZERO,
            samples: 0,
            depends,
            bodies: Arc::default(),
            unit: None,
            escapes: false,
        });
    }
}

impl TierState {
    /// True if functions run native code where no better version is.
    pub(super) fn has_native(&self) -> bool {
        self.first() == Tier::Optimized && self.is_auto()
    }
}

/// What there is to say of native code.
fn native_made(version: VersionId, code: &Range<u64>) -> Made {
    let size = code.end - code.start;
    Made {
        version,
        compiling: Duration::ZERO,
        linking: Duration::ZERO,
        facts: Facts {
            instructions: u32::try_from(size / INSTRUCTION).unwrap_or(u32::MAX),
            ..Facts::default()
        },
        counts: false,
        words: None,
        publication: Publication::Dropped(Late::GivenUp),
    }
}
