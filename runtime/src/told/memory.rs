//! What a session's memory is used for, as rows: whose, at which tier, for which purpose.
//!
//! The rows are disjoint and cover everything, so sums by dylib, by tracker, by tier and by purpose are
//! the same total. What that is:
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
//! Memory elsewhere (LLVM's contexts, stacks of threads, the program's own blocks) cannot be asked for
//! one by one; [`MemoryReport::other`] is what is left of the process's resident memory.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::Tier;
use uruk_session::{DylibId, TrackerKey};

/// Where definitions are that memory is used for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct MemoryOwner {
    /// The dylib's number.
    pub dylib: DylibId,
    /// The dylib's name.
    pub name: Arc<str>,
    /// The tracker that what takes the memory is removed with.
    pub tracker: TrackerKey,
}

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryPurpose {
    /// Code that calls reach, with the constants that only it reads.
    Code,
    /// Constants.
    ReadOnly,
    /// Variables that begin as something else than zero, and counters of versions.
    Data,
    /// Variables that begin as zero.
    Zeroed,
    /// Unwind records and exception tables' frames of code that calls reach.
    Unwind,
    /// Stubs of functions and their slots.
    Stubs,
    /// Bitcode that functions are compiled from.
    Bitcode,
    /// What no call reaches and nobody owns any more, and that is not freed yet: replaced, to go
    /// back to or until no thread is in it; removed, until nobody uses it.
    Waiting,
    /// In pages that are held, but of no use now.
    Unused,
    /// The runtime's own: its resolver, counters, and what is just being linked.
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

    /// The word for it, as a name of a field.
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
    /// Whose; `None` for what is no dylib's: the runtime's own, and what waits to be freed.
    pub owner: Option<MemoryOwner>,
    /// The tier of the version it is part of, if it is part of one.
    pub tier: Option<Tier>,
    /// What for.
    pub purpose: MemoryPurpose,
    /// How much.
    pub bytes: u64,
}

/// What a session's memory is used for at one moment; see [`Jit::memory`](crate::Jit::memory).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// One for each owner, tier and purpose there is, in that order.
    pub rows: Vec<MemoryRow>,
    /// Bytes of `rows` that lie in the session's reservation; the rest is bitcode and tables.
    pub reserved: u64,
    /// Where that is.
    pub reservation: Range<u64>,
    /// Resident memory of the process, if the system tells.
    pub resident: Option<u64>,
}

impl MemoryReport {
    /// What all rows are in sum.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// Bytes by dylib; of no dylib first.
    pub fn by_dylib(&self) -> Vec<(Option<Arc<str>>, u64)> {
        let named = |row: &MemoryRow| row.owner.as_ref().map(|o| (o.dylib, Arc::clone(&o.name)));
        let sums = self.sums(named).into_iter();
        sums.map(|(dylib, bytes)| (dylib.map(|(_, name)| name), bytes))
            .collect()
    }

    /// Bytes by tracker; of none first.
    pub fn by_tracker(&self) -> Vec<(Option<MemoryOwner>, u64)> {
        self.sums(|row| row.owner.clone())
    }

    /// Bytes by tier; of none first.
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

    /// Resident memory of the process that no row is about: LLVM's, tables, stacks, the host's.
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

    pub(super) fn json(&self) -> String {
        let mut text = format!("{{\"total\":{}", self.total());
        for purpose in MemoryPurpose::ALL {
            // A `String` takes all that is written to it.
            let _ = write!(text, ",\"{}\":{}", purpose.word(), self.of(purpose));
        }
        let or_null = |bytes: Option<u64>| bytes.map_or("null".into(), |b| b.to_string());
        let _ = write!(text, ",\"other\":{}}}", or_null(self.other()));
        text
    }

    /// Lines of the table, each with its newline.
    pub(super) fn table(&self) -> String {
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

/// What rows are told apart by.
type Key = (Option<MemoryOwner>, Option<Tier>, MemoryPurpose);

/// Rows that are being added up.
#[derive(Default)]
pub(super) struct Ledger {
    sums: BTreeMap<Key, u64>,
}

impl Ledger {
    pub(super) fn add(
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

    pub(super) fn rows(self) -> Vec<MemoryRow> {
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
