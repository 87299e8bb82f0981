//! The session, driven through the library by the same steps as the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use uruk::{
    Dylib, Error, Flags, GeneratorId, GeneratorRequest, Interface, Jit, Lookup, Required,
    Responsibility, SessionError, Symbol, Tracker, Unit, Visibility,
};

use super::ops::SYMBOLS;
use super::rules::{self, Answer, Fault, Plan, Rules, address};

/// State that the units of a run share.
#[derive(Default)]
pub struct Shared {
    /// The calls that each unit got.
    pub told: BTreeMap<usize, Vec<String>>,
    /// The responsibilities that units keep, by unit.
    pub kept: BTreeMap<usize, Responsibility>,
    pub answers: BTreeMap<usize, Answer>,
}

pub type Common = Arc<Mutex<Shared>>;

/// See the module.
pub struct System {
    pub jit: Jit,
    pub names: Arc<[Symbol]>,
    pub dylibs: Vec<Dylib>,
    /// Handles, by the rules' numbers.
    pub trackers: BTreeMap<usize, Tracker>,
    pub works: BTreeMap<usize, Responsibility>,
    pub generators: BTreeMap<usize, GeneratorId>,
    pub common: Common,
    lookups: usize,
}

pub struct TestUnit {
    label: usize,
    names: Arc<[Symbol]>,
    symbols: Vec<(Symbol, Flags)>,
    plan: Plan,
    common: Common,
    is_at_work: bool,
}

impl TestUnit {
    fn place(&self, symbol: Symbol) -> u64 {
        let number = self.names.iter().position(|name| *name == symbol);
        address(self.label, number.expect("one of the test's"))
    }

    fn tell(&self, what: String) {
        let mut common = self.common.lock().unwrap();
        common.told.entry(self.label).or_default().push(what);
    }
}

impl Unit for TestUnit {
    fn name(&self) -> &str {
        "a test's"
    }

    fn interface(&self) -> Interface {
        self.symbols.iter().copied().collect()
    }

    fn materialize(mut self: Box<Self>, responsibility: Responsibility) {
        self.is_at_work = true;
        self.tell("materialize".into());
        match self.plan {
            Plan::Finish => {
                let symbols = responsibility.symbols().iter();
                let placed = symbols.map(|(symbol, _)| (*symbol, self.place(*symbol)));
                let placed: Vec<_> = placed.collect();
                // They fail only if the tracker was removed.
                let _ = responsibility.resolve(&placed);
                let _ = responsibility.emit(&[]);
            }
            Plan::Fail => responsibility.fail(SessionError::unit("test", "oops")),
            Plan::Keep | Plan::Aliases { .. } => {
                let mut common = self.common.lock().unwrap();
                common.kept.insert(self.label, responsibility);
            }
        }
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let name = dylib.jit().name_of(symbol);
        self.tell(format!("discard {}", name.trim_start_matches('s')));
    }
}

impl Drop for TestUnit {
    fn drop(&mut self) {
        if !self.is_at_work {
            self.tell("drop".into());
        }
    }
}

pub fn flags(weak: bool, hidden: bool) -> Flags {
    let flags = match hidden {
        true => Flags::NONE,
        false => Flags::EXPORTED,
    };
    match weak {
        true => flags.with(Flags::WEAK),
        false => flags,
    }
}

pub fn seen(all: bool) -> Visibility {
    match all {
        true => Visibility::All,
        false => Visibility::Exported,
    }
}

/// The fault in the rules that stands for an error of the session.
pub fn fault(error: &Error, number: impl Fn(&str) -> Option<usize>) -> Fault {
    let named = |names: &uruk::Names| -> BTreeSet<usize> {
        names.names().into_iter().filter_map(&number).collect()
    };
    let error = match error {
        Error::Session(error) => error,
        Error::DylibInUse { by, .. } => {
            return Fault::DylibInUse(by.iter().filter_map(|name| number(name)).collect());
        }
        other => panic!("an error that no rule knows: {other:?}"),
    };
    match error {
        SessionError::NotFound(names) => Fault::NotFound(named(names)),
        SessionError::Duplicate(names) => Fault::Duplicate(named(names)),
        SessionError::InFlight(names) => Fault::InFlight(named(names)),
        SessionError::Unresolved(names) => Fault::Unresolved(named(names)),
        SessionError::DependenceFailed(_) => Fault::DependenceFailed,
        SessionError::Failed { .. } => Fault::Failed,
        SessionError::Removed(_) => Fault::Removed,
        SessionError::TrackerDefunct { .. } => Fault::TrackerDefunct,
        SessionError::ForeignTracker { .. } => Fault::ForeignTracker,
        SessionError::DylibDefunct { .. } => Fault::DylibDefunct,
        SessionError::Unit { .. } => Fault::Unit,
        SessionError::Ended => Fault::Ended,
        other => panic!("an error that no rule knows: {other:?}"),
    }
}

/// The number at the end of a name of the test's.
pub fn number(name: &str) -> Option<usize> {
    name.get(1..)?.parse().ok()
}

impl System {
    pub fn new() -> System {
        let jit = Jit::builder().jobs(1).on_error(|_| ());
        let jit = jit.build().unwrap();
        let names = (0..SYMBOLS).map(|n| jit.intern(&format!("s{n}")));
        System {
            names: names.collect(),
            jit,
            dylibs: Vec::new(),
            trackers: BTreeMap::new(),
            works: BTreeMap::new(),
            generators: BTreeMap::new(),
            common: Common::default(),
            lookups: 0,
        }
    }

    pub fn unit(&self, label: usize, symbols: &[(usize, bool, bool)], plan: &Plan) -> TestUnit {
        let symbols = symbols.iter();
        TestUnit {
            label,
            names: Arc::clone(&self.names),
            symbols: symbols
                .map(|(symbol, weak, hidden)| (self.names[*symbol], flags(*weak, *hidden)))
                .collect(),
            plan: plan.clone(),
            common: Arc::clone(&self.common),
            is_at_work: false,
        }
    }

    pub fn symbols(&self, numbers: &[usize]) -> Vec<Symbol> {
        numbers.iter().map(|number| self.names[*number]).collect()
    }

    fn question(&self, lookup: &rules::Lookup) -> Lookup {
        let order = lookup.order.iter();
        let order = order.map(|(dylib, all)| (&self.dylibs[*dylib], seen(*all)));
        let question = Lookup::new(order).at(match lookup.ready {
            true => Required::Ready,
            false => Required::Resolved,
        });
        let symbols = lookup.symbols.iter();
        let question = symbols.fold(question, |question, (symbol, required)| match required {
            true => question.symbol(self.names[*symbol]),
            false => question.weak(self.names[*symbol]),
        });
        match lookup.waits {
            true => question.wait_for_missing(),
            false => question,
        }
    }

    pub fn look_up(&mut self, lookup: &rules::Lookup) {
        let (common, names) = (Arc::clone(&self.common), Arc::clone(&self.names));
        let at = self.lookups;
        self.lookups += 1;
        self.jit.lookup_async(self.question(lookup), move |found| {
            let position = |symbol| names.iter().position(|name| *name == symbol);
            let answer = match &found {
                Ok(found) => Ok(found
                    .iter()
                    .map(|found| (position(found.symbol).unwrap(), found.address))
                    .collect()),
                Err(error) => Err(fault(error, number)),
            };
            common.lock().unwrap().answers.insert(at, answer);
        });
    }

    /// The flags of symbols as the rules have them.
    pub fn flags(&self, lookup: &rules::Lookup) -> Result<BTreeMap<usize, (bool, bool)>, Fault> {
        let found = self.jit.lookup_flags(self.question(lookup));
        let found = found.map_err(|error| fault(&error, number))?;
        let position = |symbol| self.names.iter().position(|name| *name == symbol);
        let each = found.into_iter().map(|(symbol, flags)| {
            let hidden = !flags.contains(Flags::EXPORTED);
            let weak = flags.contains(Flags::WEAK);
            (position(symbol).unwrap(), (weak, hidden))
        });
        Ok(each.collect())
    }

    /// A tracker as the rules number them.
    pub fn tracker(&mut self, number: usize, rules: &Rules) -> Option<Tracker> {
        if let Some(tracker) = self.trackers.get(&number) {
            return Some(tracker.clone());
        }
        // The default tracker of a dylib has no handle yet.
        let dylib = rules.trackers[number].dylib;
        (rules.dylibs[dylib].default == number)
            .then(|| self.dylibs[dylib].default_tracker().ok())
            .flatten()
    }

    pub fn generator(
        &self,
        dylib: usize,
        known: BTreeSet<usize>,
        fails: bool,
    ) -> impl uruk::Generator + use<> {
        let (names, common) = (Arc::clone(&self.names), Arc::clone(&self.common));
        move |ask: &GeneratorRequest| {
            if fails {
                return Err(SessionError::unit("test", "no").into());
            }
            for (symbol, _) in ask.missing() {
                let number = names.iter().position(|name| name == symbol).unwrap();
                if !known.contains(&number) {
                    continue;
                }
                let unit = TestUnit {
                    label: rules::generated(dylib, number),
                    names: Arc::clone(&names),
                    symbols: vec![(*symbol, Flags::EXPORTED)],
                    plan: Plan::Finish,
                    common: Arc::clone(&common),
                    is_at_work: false,
                };
                ask.dylib().define(unit)?;
            }
            Ok(())
        }
    }
}
