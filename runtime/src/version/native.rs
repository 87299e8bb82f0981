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
use super::records::{Native, Version};
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

    /// Keeps what lies beside a function's native code for part of it.
    pub(crate) fn note_native(&self, id: FunctionId, beside: &[Range<u64>]) {
        let mut natives = self.tiers.versions.natives();
        if let Some(native) = natives.get_mut(&id.index()) {
            // As below: of an entry.
            let inside = beside.iter().map(|code| code.start + 1..code.end);
            native.code.extend(inside.filter(|code| !code.is_empty()));
        }
    }

    /// The native code of functions that `wanted` says of, by whose bodies may be in it.
    pub(crate) fn native_code(
        &self,
        wanted: impl Fn(FunctionId, &[FunctionId]) -> bool,
    ) -> Vec<(Range<u64>, FunctionId)> {
        let natives = self.tiers.versions.natives();
        let found = natives.iter().flat_map(|(&index, native)| {
            let id = FunctionId(index);
            let counts = wanted(id, &native.depends);
            let code = counts.then_some(&native.code).into_iter().flatten();
            code.map(move |range| (range.clone(), id))
        });
        found.collect()
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
        // An entry is no return address, but lies on stacks as what pointers point to.
        let inside = entry.max(code.start + 1)..code.end;
        let native = Native {
            code: Vec::from_iter((!inside.is_empty()).then_some(inside)),
            depends: Arc::clone(&depends),
        };
        let mut natives = self.tiers.versions.natives();
        natives.insert(id.index(), native);
        drop(natives);
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
