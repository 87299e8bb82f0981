//! Maps addresses to versions: in the session's memory, and in attended native code.

use std::ops::Range;
use std::sync::Arc;

use uruk_base::locks::RwLock;
use uruk_base::{FunctionId, VersionId};
use uruk_profiler::{AddressMap, Found};

/// Pieces of code a map holds: enough for a gigabyte of pages.
const MAP_LIMIT: usize = 1 << 20;

/// Code by address, with the tags of its versions.
pub(super) struct Maps {
    own: AddressMap,
    /// Maps of native code, in the order in which its parts became known.
    native: RwLock<Vec<(Range<u64>, Arc<AddressMap>)>>,
}

impl Maps {
    /// Maps of a session whose own code lies at `code`.
    pub(super) fn new(code: &Range<u64>) -> Maps {
        Maps {
            own: AddressMap::new(code.start, code.end - code.start, MAP_LIMIT),
            native: RwLock::default(),
        }
    }

    /// Notes the version at `range`.
    pub(super) fn insert(&self, range: Range<u64>, id: FunctionId, version: VersionId) {
        let (tag, now) = (tag(id, version), uruk_profiler::now());
        // A full map leaves samples unattributed, which ranks the function lower.
        let _ = match self.native_at(range.start) {
            Some(map) => map.insert(range, tag, now),
            None => self.own.insert(range, tag, now),
        };
    }

    /// [`Maps::insert`] for several versions, of the session's own code.
    pub(super) fn insert_all(
        &self,
        codes: impl Iterator<Item = (Range<u64>, FunctionId, VersionId)>,
    ) {
        let tagged = codes.map(|(range, id, version)| (range, tag(id, version)));
        // As in `insert`: a full map has room for no later one, either.
        let _ = self.own.insert_all(tagged, uruk_profiler::now());
    }

    /// Notes that the code in these ranges was freed.
    pub(super) fn retire_all(&self, ranges: &[Range<u64>]) {
        self.own.retire_all(ranges, uruk_profiler::now());
    }

    /// Attends to a part of the address space with native code, until the end; repeated calls do
    /// nothing.
    pub(super) fn attend(&self, text: Range<u64>) {
        let map = AddressMap::new(text.start, text.end - text.start, MAP_LIMIT);
        let mut native = self.native.write();
        if !native.iter().any(|(known, _)| *known == text) {
            native.push((text, Arc::new(map)));
        }
    }

    /// The map of the native code that lies at an address.
    fn native_at(&self, address: u64) -> Option<Arc<AddressMap>> {
        let native = self.native.read();
        let found = native.iter().find(|(text, _)| text.contains(&address));
        found.map(|(_, map)| Arc::clone(map))
    }

    /// The code that was at `pc` at `time`.
    pub(super) fn find(&self, pc: u64, time: u64) -> Found {
        match self.own.find(pc, time) {
            Found::Unknown => {
                let native = self.native_at(pc);
                native.map_or(Found::Unknown, |map| map.find(pc, time))
            }
            found => found,
        }
    }

    /// Notes that all samples older than `time` were attributed.
    pub(super) fn forget_before(&self, time: u64) {
        self.own.forget_before(time);
        let native = self.native.read();
        native.iter().for_each(|(_, map)| map.forget_before(time));
    }
}

/// Function and version in one word. Only the low half of the version's number: a session in which
/// it wraps may drop a sample, no more.
fn tag(id: FunctionId, version: VersionId) -> u64 {
    u64::from(id.index()) << 32 | (version.0 & u64::from(u32::MAX))
}

pub(super) fn untag(tag: u64) -> (u32, VersionId) {
    ((tag >> 32) as u32, VersionId(tag & u64::from(u32::MAX)))
}
