//! Units: definitions on demand.

use crate::dylib::Dylib;
use crate::flags::Flags;
use crate::responsibility::Responsibility;
use crate::symbol::Symbol;

/// The symbols that a unit promises to define.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Each symbol once.
    pub symbols: Vec<(Symbol, Flags)>,
    /// The symbol that stands for running the unit's initializers: one of
    /// `symbols`, usually with [`Flags::SIDE_EFFECTS_ONLY`].
    pub init: Option<Symbol>,
}

impl FromIterator<(Symbol, Flags)> for Interface {
    fn from_iter<I: IntoIterator<Item = (Symbol, Flags)>>(symbols: I) -> Self {
        Self {
            symbols: symbols.into_iter().collect(),
            init: None,
        }
    }
}

/// A source of definitions that are made on demand: IR, an object, an archive member, aliases, and
/// others.
///
/// No method is called under a lock of the session. A panic is reported, and fails the symbols that
/// the unit was responsible for.
pub trait Unit: Send {
    /// The unit's name, for messages.
    fn name(&self) -> &str;

    /// The symbols; called once, when the unit is defined.
    fn interface(&self) -> Interface;

    /// Defines the symbols of `responsibility`, now or, by keeping it, later.
    /// Runs on a worker or in a thread that waits for the result.
    fn materialize(self: Box<Self>, responsibility: Responsibility);

    /// Notes that another definition of `symbol` was chosen. Called before `materialize`, or before
    /// the unit is dropped because none of its symbols is left.
    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let _ = (dylib, symbol);
    }
}

/// A unit of symbols with fixed addresses.
#[derive(Debug)]
pub struct AbsoluteSymbols(Vec<(Symbol, u64, Flags)>);

impl AbsoluteSymbols {
    /// Symbols with their values; [`Flags::ABSOLUTE`] is not implied, because
    /// addresses of the process are defined in this way too.
    pub fn new(symbols: impl IntoIterator<Item = (Symbol, u64, Flags)>) -> Self {
        Self(symbols.into_iter().collect())
    }
}

impl Unit for AbsoluteSymbols {
    fn name(&self) -> &str {
        "absolute symbols"
    }

    fn interface(&self) -> Interface {
        self.0.iter().map(|(s, _, flags)| (*s, *flags)).collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let addresses: Vec<_> = self
            .0
            .iter()
            .map(|(symbol, address, _)| (*symbol, *address))
            .collect();
        // Fails only if the tracker was removed; then no lookup waits.
        let _ = responsibility.publish(&addresses, &[]);
    }

    fn discard(&mut self, _: &Dylib, symbol: Symbol) {
        self.0.retain(|(own, ..)| *own != symbol);
    }
}
