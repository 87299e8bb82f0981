//! The choice of each name's definition in an image: a strong one before a common one, that before
//! a weak one, a copy for the optimizer only if no other exists; of equals the first file's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use uruk_codegen::{Kind, Linkage, ModuleSummary, SymbolId};

use crate::code::names::Definition;
use crate::error::Error;
use crate::load::input::Input;
use crate::load::input::ObjectSymbol;
use crate::load::weak::Surroundings;

/// The place of a name's winning definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Winner {
    pub(super) input: usize,
    /// `None` in an object.
    pub(super) symbol: Option<SymbolId>,
    pub(super) rank: Rank,
    pub(super) data: bool,
    /// The definition of the surroundings that replaces it.
    pub(super) yields_to: Option<Definition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A copy for the optimizer: used only if no other exists.
    Available,
    Weak,
    Common,
    Strong,
}

impl Winner {
    /// A symbol of a module as a candidate, if it is more than a reference. `provided` tells
    /// whether the surroundings define it.
    fn of_symbol(
        input: usize,
        summary: &ModuleSummary,
        symbol: SymbolId,
        provided: &dyn Fn(&str) -> bool,
        surroundings: &Surroundings,
    ) -> Option<Winner> {
        let info = &summary.symbols[symbol.index()];
        let rank = match info.linkage {
            Linkage::Strong => Rank::Strong,
            Linkage::Weak => Rank::Weak,
            Linkage::Common => Rank::Common,
            Linkage::Available if !provided(&info.name) => Rank::Available,
            _ => return None,
        };
        Some(Winner {
            input,
            symbol: Some(symbol),
            rank,
            data: is_data(summary, symbol, 0),
            yields_to: surroundings.of_symbol(info),
        })
    }

    /// A definition of an object as a candidate.
    fn of_object(input: usize, symbol: &ObjectSymbol, surroundings: &Surroundings) -> Winner {
        let rank = match symbol {
            ObjectSymbol { strong: true, .. } => Rank::Strong,
            ObjectSymbol { common: true, .. } => Rank::Common,
            _ => Rank::Weak,
        };
        Winner {
            input,
            symbol: None,
            rank,
            data: symbol.data,
            yields_to: surroundings.of_object(symbol),
        }
    }

    /// Whether it replaces `held`.
    fn beats(&self, held: &Winner) -> bool {
        // A definition that cannot yield decides for all of its name.
        let stays = held.yields_to.is_some() && self.yields_to.is_none();
        self.rank > held.rank || (self.rank == held.rank && stays)
    }
}

/// Chooses among the definitions of `inputs`, except those of groups that are `lost`, given by
/// input and group.
///
/// # Errors
/// [`Error::DuplicateSymbol`] with both files.
pub(super) fn choose<'a>(
    inputs: &'a [Input<'a>],
    lost: &[Vec<bool>],
    provided: &dyn Fn(&str) -> bool,
    surroundings: &Surroundings,
) -> Result<HashMap<&'a str, Winner>, Error> {
    let mut winners: HashMap<&str, Winner> = HashMap::new();
    let mut offer = |name: &'a str, candidate: Winner| {
        let held = match winners.entry(name) {
            Entry::Vacant(place) => {
                place.insert(candidate);
                return Ok(());
            }
            Entry::Occupied(held) => held.into_mut(),
        };
        if held.rank == Rank::Strong && candidate.rank == Rank::Strong {
            return Err(Error::DuplicateSymbol {
                symbol: name.to_owned(),
                first: inputs[held.input].file().to_owned(),
                second: inputs[candidate.input].file().to_owned(),
            });
        }
        if candidate.beats(held) {
            *held = candidate;
        }
        Ok(())
    };
    for (input, item) in inputs.iter().enumerate() {
        match item {
            Input::Module { summary, .. } => {
                for (index, info) in summary.symbols.iter().enumerate() {
                    let id = SymbolId(index as u32);
                    let lost = |group| lost[input][group as usize];
                    if info.comdat.is_some_and(lost) {
                        continue;
                    }
                    let candidate = Winner::of_symbol(input, summary, id, provided, surroundings);
                    if let Some(candidate) = candidate {
                        offer(&info.name, candidate)?;
                    }
                }
            }
            Input::Object { symbols, .. } => {
                for symbol in *symbols {
                    let candidate = Winner::of_object(input, symbol, surroundings);
                    offer(&symbol.name, candidate)?;
                }
            }
        }
    }
    Ok(winners)
}

/// Whether a symbol is data, by itself or as an alias of data; `depth` aliases led to it.
pub(crate) fn is_data(summary: &ModuleSummary, symbol: SymbolId, depth: u32) -> bool {
    match summary.symbols[symbol.index()].kind {
        Kind::Data => true,
        Kind::Alias {
            base: Some(base), ..
        } if depth < 64 => is_data(summary, base, depth + 1),
        _ => false,
    }
}
