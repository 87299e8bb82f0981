//! The rules of a session, as simply as they can be said: every definition in one table, what
//! follows from a change found by going through all of it.
//!
//! The rules know nothing of threads, locks, addresses in use and graphs. Names are numbers, and so
//! are dylibs, trackers, units and their works.

use std::collections::{BTreeMap, BTreeSet};

/// A symbol of a dylib.
pub type Place = (usize, usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Never,
    Working,
    Resolved,
    Emitted,
    Ready,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Unit(usize),
    Work(usize),
    Nobody,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub weak: bool,
    pub hidden: bool,
    pub tracker: usize,
    pub owner: Owner,
    pub state: State,
    pub address: u64,
    /// The places that it waits for, once emitted.
    pub needs: BTreeSet<Place>,
    /// Given back for want of something: to be asked again by who waits for what needs it.
    pub stalled: bool,
}

/// The reaction of a unit that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Finish,
    Keep,
    Fail,
    /// Other names for symbols of a dylib.
    Aliases {
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    },
}

#[derive(Clone, Debug)]
pub struct Unit {
    /// Tells its addresses from others'.
    pub label: usize,
    pub dylib: usize,
    pub symbols: Vec<(usize, bool, bool)>,
    pub plan: Plan,
    /// The calls that it got, in order.
    pub told: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub dylib: usize,
    pub tracker: usize,
    pub symbols: Vec<usize>,
    pub unit: usize,
    /// Its tracker is there.
    pub alive: bool,
    /// It was emitted, or has failed.
    pub over: bool,
}

#[derive(Clone, Debug)]
pub struct Tracker {
    pub dylib: usize,
    pub alive: bool,
}

#[derive(Clone, Debug)]
pub struct Dylib {
    pub order: Vec<(usize, bool)>,
    pub default: usize,
    pub alive: bool,
    pub generator: Option<Generator>,
}

#[derive(Clone, Debug)]
pub struct Generator {
    pub id: usize,
    pub known: BTreeSet<usize>,
    pub fails: bool,
}

/// An error, with the symbols it is about where they are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    NotFound(BTreeSet<usize>),
    Duplicate(BTreeSet<usize>),
    InFlight(BTreeSet<usize>),
    Unresolved(BTreeSet<usize>),
    DependenceFailed,
    Failed,
    Removed,
    TrackerDefunct,
    ForeignTracker,
    DylibDefunct,
    DylibInUse(BTreeSet<usize>),
    Unit,
    /// Told to what waits when a session ends.
    Ended,
}

/// Where a unit puts a symbol.
pub fn address(label: usize, symbol: usize) -> u64 {
    0x10_0000 + 0x100 * label as u64 + 8 * symbol as u64
}

/// The label of what a dylib's generator makes of a symbol.
pub fn generated(dylib: usize, symbol: usize) -> usize {
    100_000 + 100 * dylib + symbol
}

#[derive(Clone, Debug)]
pub struct Lookup {
    pub order: Vec<(usize, bool)>,
    /// Each with whether it is required.
    pub symbols: Vec<(usize, bool)>,
    pub ready: bool,
    pub waits: bool,
    /// The generators that were asked: each is once.
    pub asked: BTreeSet<usize>,
}

/// The next step once a lookup is answered.
#[derive(Clone, Debug)]
pub enum Then {
    Tell(usize),
    /// The targets of aliases that are at work, by name.
    Aliases {
        work: usize,
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    },
}

#[derive(Clone, Debug)]
pub struct Query {
    pub then: Then,
    pub ready: bool,
    pub open: Vec<Place>,
    pub found: BTreeMap<usize, u64>,
}

/// A lookup that waits for the definition of one of these.
#[derive(Clone, Debug)]
pub struct Parked {
    pub number: usize,
    pub lookup: Lookup,
    pub missing: Vec<usize>,
}

pub type Answer = Result<BTreeMap<usize, u64>, Fault>;

/// See the module.
#[derive(Default, Debug)]
pub struct Rules {
    pub entries: BTreeMap<Place, Entry>,
    pub dylibs: Vec<Dylib>,
    pub trackers: Vec<Tracker>,
    pub units: Vec<Unit>,
    pub works: Vec<Work>,
    pub queries: Vec<Query>,
    /// Lookups that wait for definitions.
    pub parked: Vec<Parked>,
    /// Where aliases lead.
    pub aliases: BTreeMap<Place, Place>,
    /// The answers of lookups, by their number.
    pub answers: BTreeMap<usize, Answer>,
    pub lookups: usize,
    pub generators: usize,
}

impl Rules {
    pub fn add_dylib(&mut self) -> usize {
        let dylib = self.dylibs.len();
        let default = self.add_tracker(dylib);
        self.dylibs.push(Dylib {
            order: Vec::new(),
            default,
            alive: true,
            generator: None,
        });
        dylib
    }

    pub fn add_tracker(&mut self, dylib: usize) -> usize {
        self.trackers.push(Tracker { dylib, alive: true });
        self.trackers.len() - 1
    }

    pub fn add_unit(
        &mut self,
        dylib: usize,
        symbols: Vec<(usize, bool, bool)>,
        plan: Plan,
    ) -> usize {
        self.units.push(Unit {
            label: self.units.len(),
            dylib,
            symbols,
            plan,
            told: Vec::new(),
        });
        self.units.len() - 1
    }

    /// The symbols of which a strong definition is there that may not be replaced.
    pub fn duplicates(&self, dylib: usize, symbols: &[(usize, bool, bool)]) -> BTreeSet<usize> {
        let taken = |&(symbol, weak, _): &(usize, bool, bool)| {
            let old = self.entries.get(&(dylib, symbol))?;
            let yields = old.weak && matches!(old.owner, Owner::Unit(_));
            (!weak && old.state != State::Failed && !yields).then_some(symbol)
        };
        symbols.iter().filter_map(taken).collect()
    }

    pub fn define(&mut self, tracker: usize, unit: usize) -> Result<(), Fault> {
        self.define_with(tracker, unit, |_| ())
    }

    /// As `define`, with something to be noted before anybody can ask.
    pub fn define_with(
        &mut self,
        tracker: usize,
        unit: usize,
        note: impl FnOnce(&mut Rules),
    ) -> Result<(), Fault> {
        let (dylib, symbols) = (self.units[unit].dylib, self.units[unit].symbols.clone());
        let checked = if !self.dylibs[dylib].alive {
            Err(Fault::DylibDefunct)
        } else if !self.trackers[tracker].alive {
            Err(Fault::TrackerDefunct)
        } else if self.trackers[tracker].dylib != dylib {
            Err(Fault::ForeignTracker)
        } else {
            match self.duplicates(dylib, &symbols) {
                bad if bad.is_empty() => Ok(()),
                bad => Err(Fault::Duplicate(bad)),
            }
        };
        if checked.is_err() {
            self.units[unit].told.push("drop".into());
            return checked;
        }
        self.put(dylib, tracker, &symbols, Owner::Unit(unit), State::Never);
        note(self);
        self.wake(&symbols);
        Ok(())
    }

    /// Puts definitions where none is or one yields; the owner is told of the others.
    pub fn put(
        &mut self,
        dylib: usize,
        tracker: usize,
        symbols: &[(usize, bool, bool)],
        owner: Owner,
        state: State,
    ) -> Vec<usize> {
        let mut taken = Vec::new();
        for &(symbol, weak, hidden) in symbols {
            let place = (dylib, symbol);
            let old = self.entries.get(&place);
            if let Some(old) = old.filter(|old| old.state != State::Failed) {
                if weak {
                    if let Owner::Unit(unit) = owner {
                        self.lose(unit, symbol, true);
                    }
                    continue;
                }
                if let Owner::Unit(unit) = old.owner {
                    self.lose(unit, symbol, true);
                }
            }
            taken.push(symbol);
            let entry = Entry {
                weak,
                hidden,
                tracker,
                owner,
                state,
                address: 0,
                needs: BTreeSet::new(),
                stalled: false,
            };
            self.aliases.remove(&place);
            self.entries.insert(place, entry);
        }
        taken
    }

    /// A unit has one symbol less; it goes with its last.
    pub fn lose(&mut self, unit: usize, symbol: usize, is_told: bool) {
        let cell = &mut self.units[unit];
        cell.symbols.retain(|(own, ..)| *own != symbol);
        if let Plan::Aliases { targets, .. } = &mut cell.plan {
            targets.remove(&symbol);
        }
        if is_told {
            cell.told.push(format!("discard {symbol}"));
        }
        if cell.symbols.is_empty() {
            cell.told.push("drop".into());
        }
    }

    pub fn wake(&mut self, symbols: &[(usize, bool, bool)]) {
        let is_meant = |missing: &usize| symbols.iter().any(|(symbol, ..)| symbol == missing);
        let (woken, left) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|parked| parked.missing.iter().any(is_meant));
        self.parked = left;
        for Parked { number, lookup, .. } in woken {
            self.run(Then::Tell(number), lookup);
        }
    }

    /// The first definition of a symbol that a search sees.
    pub fn find(&self, order: &[(usize, bool)], symbol: usize) -> Option<Place> {
        order.iter().find_map(|&(dylib, all)| {
            let entry = self.entries.get(&(dylib, symbol))?;
            (all || !entry.hidden).then_some((dylib, symbol))
        })
    }

    pub fn missing(&self, lookup: &Lookup) -> Vec<usize> {
        let required = lookup.symbols.iter().filter(|(_, required)| *required);
        required
            .map(|(symbol, _)| *symbol)
            .filter(|symbol| self.find(&lookup.order, *symbol).is_none())
            .collect()
    }
}
