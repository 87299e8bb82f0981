//! The uses of a session's memory as rows: by owner, by tier, by purpose.
//!
//! The rows are disjoint and cover everything, so sums by dylib, by tracker, by tier and by purpose
//! are the same total. It consists of:
//!
//! | part | counted |
//! |---|---|
//! | code, both spaces | pages that were touched and not given back |
//! | constants | pages up to the last that was ever handed out |
//! | data | bytes handed out, as if all of them were touched: zeros may not be |
//! | stubs and slots | pages that have their image |
//! | bitcode | bytes of modules, as given |
//! | tables | names, symbols, units and trackers of the session; records of modules, images, versions, code and unwind rows; display names of the process |
//!
//! Memory elsewhere (LLVM's contexts, stacks of threads, the program's own blocks) cannot be
//! queried one by one; [`MemoryReport::other`] is the rest of the process's resident memory.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::Tier;
use uruk_session::{DylibId, TrackerKey};

/// The owner of memory: the place of definitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct MemoryOwner {
    /// The dylib's number.
    pub dylib: DylibId,
    /// The dylib's name.
    pub name: Arc<str>,
    /// The tracker whose removal frees the memory.
    pub tracker: TrackerKey,
}

/// A use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryPurpose {
    /// Code that calls reach, with the constants that only it reads.
    Code,
    /// Constants.
    ReadOnly,
    /// Variables that begin with another value than zero, and counters of versions.
    Data,
    /// Variables that begin as zero.
    Zeroed,
    /// Unwind records and exception tables' frames of code that calls reach.
    Unwind,
    /// Stubs of functions and their slots.
    Stubs,
    /// Bitcode that functions are compiled from.
    Bitcode,
    /// Code and data that no call reaches and that have no owner any more, but are not freed yet.
    /// Replaced ones are kept for a rollback or until no thread is in them; removed ones until
    /// their last use.
    Waiting,
    /// Parts of held pages that are not used now.
    Unused,
    /// The runtime's own: its resolver, counters, and memory that is just being linked.
    Runtime,
    /// Tables of names and symbols, records of modules, images, versions and code.
    Tables,
}

impl MemoryPurpose {
    /// All of them.
    pub const ALL: [MemoryPurpose; 11] = [
        MemoryPurpose::Code,
        MemoryPurpose::ReadOnly,
        MemoryPurpose::Data,
        MemoryPurpose::Zeroed,
        MemoryPurpose::Unwind,
        MemoryPurpose::Stubs,
        MemoryPurpose::Bitcode,
        MemoryPurpose::Waiting,
        MemoryPurpose::Unused,
        MemoryPurpose::Runtime,
        MemoryPurpose::Tables,
    ];

    /// The word for the purpose, as a name of a field.
    fn word(self) -> &'static str {
        match self {
            MemoryPurpose::Code => "code",
            MemoryPurpose::ReadOnly => "read_only",
            MemoryPurpose::Data => "data",
            MemoryPurpose::Zeroed => "zeroed",
            MemoryPurpose::Unwind => "unwind",
            MemoryPurpose::Stubs => "stubs",
            MemoryPurpose::Bitcode => "bitcode",
            MemoryPurpose::Waiting => "waiting",
            MemoryPurpose::Unused => "unused",
            MemoryPurpose::Runtime => "runtime",
            MemoryPurpose::Tables => "tables",
        }
    }
}

impl fmt::Display for MemoryPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.word().replace('_', "-"))
    }
}

/// Bytes of one owner, tier and purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRow {
    /// The owner; `None` for memory of no dylib: the runtime's own, and memory that waits to be
    /// freed.
    pub owner: Option<MemoryOwner>,
    /// The tier of the version that it belongs to, if any.
    pub tier: Option<Tier>,
    /// The purpose.
    pub purpose: MemoryPurpose,
    /// The bytes.
    pub bytes: u64,
}

/// The uses of a session's memory at one moment; see [`Jit::memory`](crate::Jit::memory).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// One row for each combination of owner, tier and purpose, in that order.
    pub rows: Vec<MemoryRow>,
    /// Bytes of `rows` that lie in the session's reservation; the rest is bitcode and tables.
    pub reserved: u64,
    /// The address range of the reservation.
    pub reservation: Range<u64>,
    /// Resident memory of the process, if the system tells.
    pub resident: Option<u64>,
}

impl MemoryReport {
    /// The sum of all rows.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// Bytes by dylib; those without a dylib first.
    pub fn by_dylib(&self) -> Vec<(Option<Arc<str>>, u64)> {
        let named = |row: &MemoryRow| row.owner.as_ref().map(|o| (o.dylib, Arc::clone(&o.name)));
        let sums = self.sums(named).into_iter();
        sums.map(|(dylib, bytes)| (dylib.map(|(_, name)| name), bytes))
            .collect()
    }

    /// Bytes by tracker; those without one first.
    pub fn by_tracker(&self) -> Vec<(Option<MemoryOwner>, u64)> {
        self.sums(|row| row.owner.clone())
    }

    /// Bytes by tier; those without one first.
    pub fn by_tier(&self) -> Vec<(Option<Tier>, u64)> {
        self.sums(|row| row.tier)
    }

    /// Bytes by purpose.
    pub fn by_purpose(&self) -> Vec<(MemoryPurpose, u64)> {
        self.sums(|row| row.purpose)
    }

    /// Bytes for one purpose.
    pub fn of(&self, purpose: MemoryPurpose) -> u64 {
        let rows = self.rows.iter().filter(|row| row.purpose == purpose);
        rows.map(|row| row.bytes).sum()
    }

    /// Resident memory of the process outside of all rows: LLVM's, tables, stacks, the host's.
    pub fn other(&self) -> Option<u64> {
        Some(self.resident?.saturating_sub(self.total()))
    }

    fn sums<K: Ord>(&self, key: impl Fn(&MemoryRow) -> K) -> Vec<(K, u64)> {
        let mut sums = BTreeMap::new();
        for row in &self.rows {
            *sums.entry(key(row)).or_default() += row.bytes;
        }
        sums.into_iter().collect()
    }

    pub(crate) fn json(&self) -> String {
        let mut text = format!("{{\"total\":{}", self.total());
        for purpose in MemoryPurpose::ALL {
            // Writing to a `String` cannot fail.
            let _ = write!(text, ",\"{}\":{}", purpose.word(), self.of(purpose));
        }
        let or_null = |bytes: Option<u64>| bytes.map_or("null".into(), |b| b.to_string());
        let _ = write!(text, ",\"other\":{}}}", or_null(self.other()));
        text
    }

    /// Lines of the table, each with its newline.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("memory, in all           {:>10} bytes\n", self.total());
        let mut line = |name: &dyn fmt::Display, bytes: u64| {
            let _ = writeln!(text, "  {name:<22} {bytes:>10} bytes");
        };
        for (purpose, bytes) in self.by_purpose() {
            line(&purpose, bytes);
        }
        let tiers = self.by_tier().into_iter();
        for (tier, bytes) in tiers.filter_map(|(tier, bytes)| Some((tier?, bytes))) {
            line(&format!("of tier {}", tier.number()), bytes);
        }
        let dylibs: Vec<_> = self.by_dylib();
        if dylibs.iter().flat_map(|(name, _)| name).count() > 1 {
            for (name, bytes) in dylibs
                .iter()
                .filter_map(|(name, b)| Some((name.as_ref()?, b)))
            {
                line(&format!("of {name}"), *bytes);
            }
        }
        if let Some(other) = self.other() {
            let _ = writeln!(text, "memory of the rest       {other:>10} bytes");
        }
        text
    }
}

/// The key of a row.
type RowKey = (Option<MemoryOwner>, Option<Tier>, MemoryPurpose);

/// Rows that are being added up.
#[derive(Default)]
pub(crate) struct Ledger {
    sums: BTreeMap<RowKey, u64>,
}

impl Ledger {
    pub(crate) fn add(
        &mut self,
        owner: Option<&MemoryOwner>,
        tier: Option<Tier>,
        purpose: MemoryPurpose,
        bytes: u64,
    ) {
        if bytes != 0 {
            let key = (owner.cloned(), tier, purpose);
            *self.sums.entry(key).or_default() += bytes;
        }
    }

    pub(crate) fn rows(self) -> Vec<MemoryRow> {
        let sums = self.sums.into_iter();
        sums.map(|((owner, tier, purpose), bytes)| MemoryRow {
            owner,
            tier,
            purpose,
            bytes,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_adds_up() {
        let mut ledger = Ledger::default();
        for (at, purpose) in (1..).zip(MemoryPurpose::ALL) {
            ledger.add(None, None, purpose, at);
            ledger.add(None, Some(Tier::Guided), purpose, at);
            ledger.add(None, Some(Tier::Guided), purpose, 0);
        }
        let report = MemoryReport {
            rows: ledger.rows(),
            reserved: 132,
            reservation: 0..0,
            resident: Some(200),
        };
        assert_eq!((report.total(), report.other()), (132, Some(68)));
        assert_eq!(report.by_tier(), [(None, 66), (Some(Tier::Guided), 66)]);
        let table = report.table();
        assert!(
            table.contains("  read-only                       4 bytes\n"),
            "{table}"
        );
        assert!(
            table.contains("  of tier 3                      66 bytes\n"),
            "{table}"
        );
        let json = report.json();
        assert!(
            json.starts_with("{\"total\":132,\"code\":2,\"read_only\":4,"),
            "{json}"
        );
        assert!(
            json.ends_with(",\"runtime\":20,\"tables\":22,\"other\":68}"),
            "{json}"
        );
    }
}
