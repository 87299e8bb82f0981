//! Maps addresses to versions, in the session's memory and in native code of the process
//! ([`SampleMap::attend`]).

use std::ops::Range;
use std::sync::Arc;

use uruk_base::locks::{RwLock, ranks};
use uruk_base::{FunctionId, VersionId};
use uruk_profiler::{AddressMap, Found};

/// Pieces of code a map holds: enough for a gigabyte of pages.
const MAP_LIMIT: usize = 1 << 20;

/// Code by address, with the tags of its versions. Empty in a session that takes no samples.
#[derive(Default)]
pub(crate) struct SampleMap(Option<Ranges>);

/// The map of one part of native code.
type NativeMap = (Range<u64>, Arc<AddressMap>);

struct Ranges {
    own: AddressMap,
    /// Maps of native code, in the order in which its parts became known.
    native: RwLock<Vec<NativeMap>, ranks::SampleMapNative>,
}

impl SampleMap {
    /// The map of a session whose own code lies at `code`.
    pub(crate) fn new(code: &Range<u64>) -> SampleMap {
        SampleMap(Some(Ranges {
            own: AddressMap::new(code.start, code.end - code.start, MAP_LIMIT),
            native: RwLock::default(),
        }))
    }

    /// Notes the version at `range`, before it can run.
    pub(crate) fn insert(&self, range: Range<u64>, id: FunctionId, version: VersionId) {
        let Some(ranges) = &self.0 else { return };
        let (tag, now) = (tag(id, version), uruk_profiler::now());
        // A full map leaves samples unattributed, which ranks the function lower.
        let _ = match ranges.native_at(range.start) {
            Some(map) => map.insert(range, tag, now),
            None => ranges.own.insert(range, tag, now),
        };
    }

    /// Like [`SampleMap::insert`], for several versions in the session's own memory.
    pub(crate) fn insert_all(
        &self,
        codes: impl Iterator<Item = (Range<u64>, FunctionId, VersionId)>,
    ) {
        let Some(ranges) = &self.0 else { return };
        let tagged = codes.map(|(range, id, version)| (range, tag(id, version)));
        // As in `insert`: a full map has room for no later one, either.
        let _ = ranges.own.insert_all(tagged, uruk_profiler::now());
    }

    /// Notes that the code in these ranges was freed.
    pub(crate) fn retire_all(&self, freed: &[Range<u64>]) {
        if let Some(ranges) = &self.0 {
            ranges.own.retire_all(freed, uruk_profiler::now());
        }
    }

    /// Adds a map for the native code at `text`, which is kept until the session ends. A second
    /// call for the same range does nothing.
    pub(crate) fn attend(&self, text: Range<u64>) {
        let Some(ranges) = &self.0 else { return };
        let map = AddressMap::new(text.start, text.end - text.start, MAP_LIMIT);
        let mut native = ranges.native.write();
        if !native.iter().any(|(known, _)| *known == text) {
            native.push((text, Arc::new(map)));
        }
    }

    /// The code that was at `pc` at `time`.
    pub(crate) fn find(&self, pc: u64, time: u64) -> Found {
        let Some(ranges) = &self.0 else {
            return Found::Unknown;
        };
        match ranges.own.find(pc, time) {
            Found::Unknown => {
                let native = ranges.native_at(pc);
                native.map_or(Found::Unknown, |map| map.find(pc, time))
            }
            found => found,
        }
    }

    /// Notes that all samples older than `time` were attributed.
    pub(crate) fn forget_before(&self, time: u64) {
        let Some(ranges) = &self.0 else { return };
        ranges.own.forget_before(time);
        let native = ranges.native.read();
        native.iter().for_each(|(_, map)| map.forget_before(time));
    }
}

impl Ranges {
    /// The map of the native code that lies at an address.
    fn native_at(&self, address: u64) -> Option<Arc<AddressMap>> {
        let native = self.native.read();
        let found = native.iter().find(|(text, _)| text.contains(&address));
        found.map(|(_, map)| Arc::clone(map))
    }
}

/// Function and version in one word. Only the low half of the version's number: a session in which
/// it wraps may drop a sample, no more.
fn tag(id: FunctionId, version: VersionId) -> u64 {
    u64::from(id.index()) << 32 | (version.0 & u64::from(u32::MAX))
}

pub(crate) fn untag(tag: u64) -> (u32, VersionId) {
    ((tag >> 32) as u32, VersionId(tag & u64::from(u32::MAX)))
}
