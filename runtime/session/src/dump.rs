//! The symbol tables as values and as text, for debugging.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::SessionError;
use crate::flags::{Flags, SymbolState};
use crate::number::{DylibId, TrackerKey};
use crate::shared::Visibility;
use crate::state::DylibState;
use crate::state::State;

/// The contents of a session's dylibs at one moment; its text has a line for each symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dump {
    /// The dylibs in the order of their creation.
    pub dylibs: Vec<DylibDump>,
}

/// One dylib.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DylibDump {
    /// The number by which its session knows it.
    pub id: DylibId,
    /// How many dylibs the session made before it.
    pub number: u32,
    /// Its name.
    pub name: Arc<str>,
    /// The link order.
    pub link_order: Vec<(Arc<str>, Visibility)>,
    /// The number of its generators.
    pub generators: usize,
    /// Sorted by name.
    pub symbols: Vec<SymbolDump>,
}

/// One symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolDump {
    /// Its name.
    pub name: Arc<str>,
    /// Its flags.
    pub flags: Flags,
    /// Its state.
    pub state: SymbolState,
    /// Its address, from [`SymbolState::Resolved`] on.
    pub address: Option<u64>,
    /// The tracker that it is under.
    pub tracker: TrackerKey,
    /// The cause of its failure.
    pub error: Option<String>,
}

impl Dump {
    /// Sorts copies of dylibs.
    pub(crate) fn new(mut dylibs: Vec<DylibDump>) -> Self {
        dylibs.sort_unstable_by_key(|dylib| dylib.number);
        for dylib in &mut dylibs {
            dylib.symbols.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Self { dylibs }
    }
}

/// Copies of all dylibs, unsorted.
pub(crate) fn dylibs(state: &State) -> Vec<DylibDump> {
    let dylibs = state.dylibs.values();
    dylibs.map(|dylib| dump_of(state, dylib)).collect()
}

fn dump_of(state: &State, dylib: &DylibState) -> DylibDump {
    let symbols = dylib.symbols.iter().map(|(symbol, entry)| {
        let placed = !matches!(
            entry.state,
            SymbolState::NeverSearched | SymbolState::Materializing | SymbolState::Failed
        );
        let placed = placed && !entry.flags.contains(Flags::SIDE_EFFECTS_ONLY);
        SymbolDump {
            name: state.pool.name(*symbol).into(),
            flags: entry.flags,
            state: entry.state,
            address: placed.then_some(entry.address),
            tracker: entry.tracker,
            error: entry.error.as_deref().map(with_causes),
        }
    });
    let order = dylib.link_order.iter();
    DylibDump {
        id: dylib.shared.id,
        number: state.dylibs.number(dylib.shared.id).unwrap_or_default(),
        name: Arc::clone(&dylib.shared.name),
        link_order: order
            .map(|(id, seen)| (state.dylib_name(*id), *seen))
            .collect(),
        generators: dylib.generators.len(),
        symbols: symbols.collect(),
    }
}

/// An error with its causes.
fn with_causes(error: &SessionError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dylibs
            .iter()
            .try_for_each(|dylib| write!(f, "{dylib}"))
    }
}

impl fmt::Display for DylibDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "dylib {} (#{})", self.name, self.number)?;
        for (name, seen) in &self.link_order {
            match seen {
                Visibility::Exported => writeln!(f, "  searches {name}")?,
                Visibility::All => writeln!(f, "  searches {name}, hidden symbols too")?,
            }
        }
        if self.generators != 0 {
            writeln!(f, "  generators: {}", self.generators)?;
        }
        self.symbols.iter().try_for_each(|s| writeln!(f, "  {s}"))
    }
}

impl fmt::Display for SymbolDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} {:?}", self.name, self.state, self.flags)?;
        if let Some(address) = self.address {
            write!(f, " at {address:#x}")?;
        }
        write!(f, ", tracker {}", self.tracker.number())?;
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}
