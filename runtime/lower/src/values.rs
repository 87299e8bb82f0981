//! The scalars of each value, and known symbols, by number. The tables are reused for function
//! after function: entries of an earlier one are marked as such, and nothing is cleared.

use uruk_baseline::ir::{Operand, Symbol};

/// Operands in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Scalars {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Scalars {
    /// Some of them; `None` if there are fewer.
    pub(crate) fn part(self, first: u32, count: u32) -> Option<Scalars> {
        (first + count <= self.count).then_some(Scalars {
            first: self.first + first,
            count,
        })
    }
}

/// Instead of a block: the value is available everywhere.
pub(crate) const EVERYWHERE: u32 = u32::MAX;

/// Instead of a block: the value is available on the edge from an `invoke` only.
pub(crate) const NOWHERE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The function it belongs to.
    round: u32,
    /// The block that defines it.
    block: u32,
    scalars: Scalars,
}

/// The tables, and the operands that they name.
#[derive(Debug, Default)]
pub(crate) struct Values {
    entries: Vec<Entry>,
    /// Symbols by global.
    symbols: Vec<(u32, Symbol)>,
    round: u32,
    operands: Vec<Operand>,
}

impl Values {
    /// Drops all entries, and makes room.
    pub(crate) fn start(&mut self, values: usize, globals: usize) {
        self.operands.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.entries.clear();
            self.symbols.clear();
            self.round = 1;
        }
        if self.entries.len() < values {
            self.entries.resize(values, Entry::default());
        }
        if self.symbols.len() < globals {
            self.symbols.resize(globals, (0, Symbol(0)));
        }
    }

    /// The scalars of a value, and the block that defines it.
    pub(crate) fn get(&self, value: u32) -> Option<(Scalars, u32)> {
        let entry = self.entries.get(value as usize)?;
        (entry.round == self.round).then_some((entry.scalars, entry.block))
    }

    /// Sets the scalars of a value.
    pub(crate) fn set(&mut self, value: u32, block: u32, scalars: Scalars) {
        if let Some(entry) = self.entries.get_mut(value as usize) {
            *entry = Entry {
                round: self.round,
                block,
                scalars,
            };
        }
    }

    /// Makes a value with scalars available in another block.
    pub(crate) fn move_to(&mut self, value: u32, block: u32) {
        if let Some(entry) = self.entries.get_mut(value as usize) {
            entry.block = block;
        }
    }

    /// Operands in a row.
    pub(crate) fn of(&self, scalars: Scalars) -> &[Operand] {
        let first = scalars.first as usize;
        &self.operands[first..first + scalars.count as usize]
    }

    /// Adds operands, in a row.
    pub(crate) fn add(&mut self, operands: impl IntoIterator<Item = Operand>) -> Scalars {
        let first = self.operands.len();
        self.operands.extend(operands);
        Scalars {
            first: first as u32,
            count: (self.operands.len() - first) as u32,
        }
    }

    /// The symbol of a global.
    pub(crate) fn symbol(&self, global: u32) -> Option<Symbol> {
        let &(round, symbol) = self.symbols.get(global as usize)?;
        (round == self.round).then_some(symbol)
    }

    pub(crate) fn set_symbol(&mut self, global: u32, symbol: Symbol) {
        if let Some(entry) = self.symbols.get_mut(global as usize) {
            *entry = (self.round, symbol);
        }
    }
}
