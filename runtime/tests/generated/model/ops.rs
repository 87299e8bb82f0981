//! The operations on a session, drawn at random from those that its state allows.

use std::collections::BTreeSet;

use super::rules::*;
use uruk_testing::Random;

/// Names in use; few, so that definitions meet.
pub const SYMBOLS: usize = 6;
const MOST_DYLIBS: usize = 5;

/// A symbol with whether it is weak, and hidden.
pub type Symbol = (usize, bool, bool);

/// One step. Numbers of dylibs, trackers and works are those of the rules.
#[derive(Clone, Debug)]
pub enum Op {
    AddDylib,
    Define {
        dylib: usize,
        tracker: Option<usize>,
        symbols: Vec<Symbol>,
        plan: Plan,
    },
    Alias {
        dylib: usize,
        source: usize,
        all: bool,
        /// Name, target, weak, hidden.
        aliases: Vec<(usize, usize, bool, bool)>,
    },
    LookUp(Lookup),
    Flags(Lookup),
    Resolve(usize, Vec<usize>),
    Emit(usize, Vec<(Vec<usize>, Vec<Place>)>),
    Fail(usize),
    Abandon(usize),
    Claim(usize, Vec<Symbol>),
    GiveBack(usize, Vec<Symbol>, Plan, bool),
    Delegate(usize, Vec<usize>),
    CreateTracker(usize),
    RemoveTracker(usize),
    DropTracker(usize),
    Transfer(usize, usize),
    Undefine(usize, Vec<usize>),
    Clear(usize),
    RemoveDylib(usize, bool),
    SetOrder(usize, Vec<(usize, bool)>),
    AddToOrder(usize, usize),
    ReplaceInOrder(usize, usize, usize, bool),
    TakeFromOrder(usize, usize),
    SetGenerator(usize, BTreeSet<usize>, bool),
    RemoveGenerator(usize),
}

/// Draws operations.
pub struct Draw(Random);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(Random::new(seed))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.0.one_in(n)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        match from.is_empty() {
            true => None,
            false => Some(from[self.below(from.len())].clone()),
        }
    }

    /// One to `most` different numbers.
    fn some(&mut self, below: usize, most: usize) -> Vec<usize> {
        let mut all = BTreeSet::new();
        for _ in 0..=self.below(most) {
            all.insert(self.below(below));
        }
        all.into_iter().collect()
    }

    fn symbols(&mut self) -> Vec<Symbol> {
        let some = self.some(SYMBOLS, 3);
        some.into_iter()
            .map(|symbol| (symbol, self.one_in(3), self.one_in(5)))
            .collect()
    }

    fn plan(&mut self) -> Plan {
        match self.below(8) {
            0 => Plan::Fail,
            1..4 => Plan::Finish,
            _ => Plan::Keep,
        }
    }

    /// Mostly one that is there.
    fn dylib(&mut self, rules: &Rules) -> usize {
        let there: Vec<usize> = (0..rules.dylibs.len())
            .filter(|dylib| rules.dylibs[*dylib].alive)
            .collect();
        match self.one_in(20) {
            true => self.below(rules.dylibs.len()),
            false => self.pick(&there).unwrap_or(0),
        }
    }

    fn tracker(&mut self, rules: &Rules, of: Option<usize>) -> usize {
        let there: Vec<usize> = (0..rules.trackers.len())
            .filter(|tracker| {
                let Tracker { dylib, alive } = rules.trackers[*tracker];
                alive && of.is_none_or(|of| of == dylib)
            })
            .collect();
        match self.one_in(20) {
            true => self.below(rules.trackers.len()),
            false => self.pick(&there).unwrap_or(0),
        }
    }

    fn lookup(&mut self, rules: &Rules) -> Lookup {
        let dylib = self.dylib(rules);
        let order = match self.one_in(3) {
            true => {
                let some = self.some(rules.dylibs.len(), 3);
                some.into_iter().map(|d| (d, self.one_in(2))).collect()
            }
            false => {
                let mut order = vec![(dylib, true)];
                let others = rules.dylibs[dylib].order.iter();
                order.extend(others.filter(|(other, _)| *other != dylib));
                order
            }
        };
        let some = self.some(SYMBOLS, 3);
        let mut lookup = Lookup {
            order,
            symbols: some.into_iter().map(|s| (s, !self.one_in(4))).collect(),
            ready: !self.one_in(3),
            waits: self.one_in(4),
            asked: BTreeSet::new(),
        };
        if !is_certain(rules, &lookup) {
            lookup.symbols.truncate(1);
        }
        lookup
    }

    fn groups(&mut self, rules: &Rules, work: &Work) -> Vec<(Vec<usize>, Vec<Place>)> {
        let places: Vec<Place> = rules.entries.keys().copied().collect();
        let mut groups = Vec::new();
        for symbol in &work.symbols {
            if self.one_in(2) {
                let needs = (0..=self.below(2)).filter_map(|_| self.pick(&places));
                groups.push((vec![*symbol], needs.collect()));
            }
        }
        groups
    }

    /// Something that is done by who is at work.
    fn work(&mut self, rules: &Rules) -> Option<Op> {
        let open: Vec<usize> = (0..rules.works.len())
            .filter(|work| {
                let Work { unit, over, .. } = rules.works[*work];
                !over && rules.units[unit].plan == Plan::Keep
            })
            .collect();
        let at = self.pick(&open)?;
        let work = &rules.works[at];
        let unresolved = || -> Vec<usize> {
            let own = work.symbols.iter().copied();
            own.filter(|symbol| {
                let entry = rules.entries.get(&(work.dylib, *symbol));
                entry.is_some_and(|entry| entry.state == State::Working)
            })
            .collect()
        };
        Some(match self.below(20) {
            0..8 => Op::Resolve(at, unresolved()),
            8..14 => Op::Emit(at, self.groups(rules, work)),
            14 => Op::Fail(at),
            15 => Op::Abandon(at),
            16 => Op::Claim(at, self.symbols()),
            17 => Op::Delegate(at, vec![self.pick(&work.symbols)?]),
            _ => {
                let symbol = self.pick(&work.symbols)?;
                let entry = rules.entries.get(&(work.dylib, symbol))?;
                let symbols = vec![(symbol, entry.weak, entry.hidden)];
                let (plan, later) = (self.plan(), self.one_in(2));
                Op::GiveBack(at, symbols, plan, later)
            }
        })
    }

    /// The next step.
    pub fn op(&mut self, rules: &Rules) -> Op {
        if rules.dylibs.len() < 2 {
            return Op::AddDylib;
        }
        if self.one_in(3)
            && let Some(op) = self.work(rules)
        {
            return op;
        }
        let dylib = self.dylib(rules);
        match self.below(60) {
            0 if rules.dylibs.len() < MOST_DYLIBS => Op::AddDylib,
            0..16 => {
                let tracker = match self.one_in(2) {
                    true => None,
                    false => Some(self.tracker(rules, Some(dylib))),
                };
                Op::Define {
                    dylib,
                    tracker,
                    symbols: self.symbols(),
                    plan: self.plan(),
                }
            }
            16..21 => {
                let names = self.some(SYMBOLS, 3);
                let aliases = names.into_iter();
                let aliases =
                    aliases.map(|name| (name, self.below(SYMBOLS), self.one_in(4), self.one_in(6)));
                let aliases = aliases.collect();
                let source = match self.one_in(2) {
                    true => dylib,
                    false => self.dylib(rules),
                };
                Op::Alias {
                    dylib,
                    source,
                    all: source == dylib || self.one_in(2),
                    aliases,
                }
            }
            21..36 => Op::LookUp(self.lookup(rules)),
            36..38 => Op::Flags(self.lookup(rules)),
            38..41 => Op::CreateTracker(dylib),
            41..44 => Op::RemoveTracker(self.tracker(rules, None)),
            44 => Op::DropTracker(self.tracker(rules, None)),
            45 => Op::Transfer(
                self.tracker(rules, Some(dylib)),
                self.tracker(rules, Some(dylib)),
            ),
            46..49 => Op::Undefine(dylib, self.some(SYMBOLS, 2)),
            49 if self.one_in(3) => Op::Clear(dylib),
            50 if self.one_in(2) => Op::RemoveDylib(dylib, self.one_in(2)),
            51 => {
                let some = self.some(rules.dylibs.len(), 3);
                let order = some.into_iter().map(|d| (d, self.one_in(3)));
                Op::SetOrder(dylib, order.collect())
            }
            52 | 53 => Op::AddToOrder(dylib, self.dylib(rules)),
            54 => {
                let (old, new) = (self.dylib(rules), self.dylib(rules));
                Op::ReplaceInOrder(dylib, old, new, self.one_in(3))
            }
            55 => Op::TakeFromOrder(dylib, self.dylib(rules)),
            56 | 57 => {
                let known = self.some(SYMBOLS, 4).into_iter().collect();
                Op::SetGenerator(dylib, known, self.one_in(6))
            }
            58 => Op::RemoveGenerator(dylib),
            _ => Op::LookUp(self.lookup(rules)),
        }
    }
}

/// Whether it is certain which units a lookup starts. It is not if several units are asked, one
/// fails at once, and another one has aliases. Aliases follow only those names that a lookup still
/// waits for.
fn is_certain(rules: &Rules, lookup: &Lookup) -> bool {
    let is_alias = |(symbol, _): &(usize, bool)| {
        let place = rules.find(&lookup.order, *symbol);
        place.is_some_and(|place| rules.aliases.contains_key(&place))
    };
    lookup.symbols.len() == 1 || !(lookup.waits || lookup.symbols.iter().any(is_alias))
}

impl Op {
    /// Whether what it is done to is there.
    pub fn is_possible(&self, rules: &Rules) -> bool {
        let dylibs = |some: &[usize]| some.iter().all(|dylib| *dylib < rules.dylibs.len());
        let trackers = |some: &[usize]| some.iter().all(|one| *one < rules.trackers.len());
        let order = |order: &[(usize, bool)]| order.iter().all(|(one, _)| dylibs(&[*one]));
        // That what a step says of a work is still its own.
        let work = |work: usize, symbols: Vec<usize>| {
            let work = rules.works.get(work);
            work.is_some_and(|work| {
                let is_own = |symbol| !work.alive || work.symbols.contains(symbol);
                !work.over && symbols.iter().all(is_own)
            })
        };
        match self {
            Op::AddDylib => true,
            Op::Define { dylib, tracker, .. } => {
                dylibs(&[*dylib]) && tracker.is_none_or(|tracker| trackers(&[tracker]))
            }
            Op::Alias { dylib, source, .. } => dylibs(&[*dylib, *source]),
            Op::LookUp(lookup) => order(&lookup.order) && is_certain(rules, lookup),
            Op::Flags(lookup) => order(&lookup.order),
            Op::Resolve(one, symbols) | Op::Delegate(one, symbols) => work(*one, symbols.clone()),
            Op::Emit(one, groups) => {
                let needs = groups.iter().flat_map(|(_, needs)| needs);
                let own = groups.iter().flat_map(|(own, _)| own.iter().copied());
                work(*one, own.collect()) && needs.clone().all(|(d, _)| dylibs(&[*d]))
            }
            Op::GiveBack(one, symbols, ..) => {
                work(*one, symbols.iter().map(|(symbol, ..)| *symbol).collect())
            }
            Op::Fail(one) | Op::Abandon(one) | Op::Claim(one, _) => work(*one, Vec::new()),
            Op::RemoveTracker(one) | Op::DropTracker(one) => trackers(&[*one]),
            Op::Transfer(from, to) => trackers(&[*from, *to]),
            Op::CreateTracker(one)
            | Op::Undefine(one, _)
            | Op::Clear(one)
            | Op::RemoveDylib(one, _)
            | Op::SetGenerator(one, ..)
            | Op::RemoveGenerator(one) => dylibs(&[*one]),
            Op::SetOrder(one, others) => dylibs(&[*one]) && order(others),
            Op::AddToOrder(one, other) | Op::TakeFromOrder(one, other) => dylibs(&[*one, *other]),
            Op::ReplaceInOrder(one, old, new, _) => dylibs(&[*one, *old, *new]),
        }
    }
}
