//! Other names for symbols, within a dylib and across dylibs.
//!
//! Only the requested aliases are materialized: the rest goes back into a unit of its own. An alias
//! has the address of its target and depends on it. Where targets are missing the aliases are given
//! back too, so that a later lookup finds them. Chains inside one unit are followed link by link;
//! cycles, in one unit or over several, are an error of the lookup.
//!
//! Chains may be long: each alias of a chain is visited once (`Aliases::free`). Each continues in
//! its own task when its target is defined, so that no stack grows with the chain.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::dylib::Dylib;
use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::{Generator, GeneratorRequest};
use crate::lookup::query::Lookup;
use crate::lookup::{LookupResult, Need, Required};
use crate::number::{DylibId, NumberMap, NumberSet, TrackerKey};
use crate::responsibility::{DependenceGroup, Responsibility};
use crate::session::{Session, WeakSession};
use crate::shared::{DylibShared, Visibility};
use crate::state::entry::Owner;
use crate::symbol::Symbol;
use crate::unit::{Interface, Unit};

/// One alias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alias {
    /// The new name.
    pub name: Symbol,
    /// The symbol that the alias refers to.
    pub target: Symbol,
    /// The flags of the new name.
    pub flags: Flags,
}

/// The dylib of the aliases' targets, and how it is searched.
#[derive(Clone)]
pub(crate) struct Source {
    dylib: DylibId,
    /// The dylib's name, for errors after its removal.
    name: Arc<str>,
    seen: Visibility,
}

impl Source {
    pub(crate) fn new(dylib: &DylibShared, seen: Visibility) -> Source {
        Source {
            dylib: dylib.id,
            name: Arc::clone(&dylib.name),
            seen,
        }
    }

    fn find(&self, session: &Session) -> Result<Dylib, SessionError> {
        let gone = || SessionError::DylibDefunct {
            dylib: Arc::clone(&self.name),
        };
        session.dylib_by_id(self.dylib).ok_or_else(gone)
    }
}

/// Aliases with one source.
struct AliasUnit {
    source: Source,
    aliases: SmallVec<[Alias; 1]>,
    /// Names that were discarded; ignored until the unit is materialized.
    discarded: NumberSet<Symbol>,
}

pub(crate) fn define(
    session: &Session,
    shared: &Arc<DylibShared>,
    tracker: Option<TrackerKey>,
    source: Source,
    aliases: impl IntoIterator<Item = Alias>,
) -> Result<(), SessionError> {
    let aliases: SmallVec<[Alias; 1]> = aliases.into_iter().collect();
    let interface: Interface = aliases.iter().map(|a| (a.name, a.flags)).collect();
    let target = source.dylib;
    let unit = AliasUnit {
        source,
        aliases: aliases.clone(),
        discarded: NumberSet::default(),
    };
    session.change(|state, effects| {
        let unit = state.define(shared, tracker, Box::new(unit), interface, effects)?;
        for alias in aliases {
            let place = (shared.id, alias.name);
            if state
                .entry(place)
                .is_some_and(|e| e.owner == Owner::Unit(unit))
            {
                state.aliases.insert(place, (target, alias.target));
            }
        }
        Ok(())
    })
}

impl AliasUnit {
    fn part(&self, mut take: impl FnMut(&Alias) -> bool) -> AliasUnit {
        let aliases = self.aliases.iter().filter(|alias| take(alias));
        AliasUnit {
            source: self.source.clone(),
            aliases: aliases.copied().collect(),
            discarded: NumberSet::default(),
        }
    }

    /// Looks the targets up and finishes when they have addresses.
    fn follow(self, source: &Dylib, responsibility: Responsibility) {
        let session = responsibility.session().clone();
        let targets: std::collections::HashSet<Symbol> =
            self.aliases.iter().map(|alias| alias.target).collect();
        let lookup = Lookup::new([(source.clone(), self.source.seen)])
            .symbols(targets)
            .at(Required::Resolved);
        session.lookup_async(lookup, move |found| {
            let session = responsibility.session().clone();
            session.spawn(move || self.finish(found, responsibility));
        });
    }

    /// Ends the lookup of the targets, with addresses or an error.
    fn finish(self, found: Result<LookupResult, SessionError>, responsibility: Responsibility) {
        match found {
            Ok(found) => self.publish(&found, responsibility),
            Err(error @ SessionError::NotFound(_)) => {
                // Fails only if the tracker was removed; then no lookup waits.
                let _ = responsibility.fail_retryable(error, self);
            }
            Err(error) => responsibility.fail(error),
        }
    }

    fn publish(&self, found: &LookupResult, responsibility: Responsibility) {
        let found: NumberMap<Symbol, _> = found.iter().map(|f| (f.symbol, *f)).collect();
        let mut addresses = Vec::new();
        let mut groups = Vec::new();
        for alias in self.aliases.iter() {
            let Some(target) = found.get(&alias.target) else {
                continue;
            };
            addresses.push((alias.name, target.address));
            if !target.ready {
                groups.push(DependenceGroup {
                    symbols: vec![alias.name],
                    dependences: vec![(target.dylib, target.symbol)],
                });
            }
        }
        // A failure is reported to the waiting lookups.
        let _ = responsibility.publish(&addresses, &groups);
    }
}

impl Unit for AliasUnit {
    fn name(&self) -> &str {
        "aliases"
    }

    fn interface(&self) -> Interface {
        let aliases = self.aliases.iter();
        aliases.map(|alias| (alias.name, alias.flags)).collect()
    }

    fn materialize(mut self: Box<Self>, mut responsibility: Responsibility) {
        if !self.discarded.is_empty() {
            let discarded = std::mem::take(&mut self.discarded);
            self.aliases
                .retain(|alias| !discarded.contains(&alias.name));
        }
        let session = responsibility.session().clone();
        let own = responsibility.dylib();
        let wanted: std::collections::HashSet<Symbol> =
            responsibility.requested().into_iter().collect();
        if wanted.len() < self.aliases.len() {
            let rest = self.part(|alias| !wanted.contains(&alias.name));
            if responsibility.replace(rest).is_err() {
                return;
            }
        }
        let source = match self.source.find(&session) {
            Ok(source) => source,
            Err(error) => return responsibility.fail(error),
        };
        let cycle = {
            let mut state = session.lock();
            let mut wanted = wanted.iter();
            let cycle = wanted.find_map(|s| state.alias_cycle((own.id(), *s)));
            cycle.map(|places| state.name_set(places))
        };
        if let Some(names) = cycle {
            return responsibility.fail(SessionError::AliasCycle(names));
        }
        // A target that this responsibility itself has to produce is looked up separately.
        let chained = |alias: &Alias| own == source && wanted.contains(&alias.target);
        for alias in self.aliases.iter() {
            if !wanted.contains(&alias.name) || !chained(alias) {
                continue;
            }
            let one = self.part(|other| other.name == alias.name);
            match responsibility.delegate(&[alias.name]) {
                Ok(delegated) => one.follow(&source, delegated),
                Err(_) => return,
            }
        }
        let rest = self.part(|alias| wanted.contains(&alias.name) && !chained(alias));
        if !rest.aliases.is_empty() {
            rest.follow(&source, responsibility);
        }
    }

    fn discard(&mut self, _: &Dylib, symbol: Symbol) {
        self.discarded.insert(symbol);
    }
}

type Predicate = Box<dyn Fn(Symbol) -> bool + Send + Sync>;

/// A generator that re-exports symbols of another dylib.
pub struct ReexportGenerator {
    session: WeakSession,
    source: Source,
    predicate: Predicate,
}

impl std::fmt::Debug for ReexportGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReexportGenerator")
            .field("source", &self.source.name)
            .finish_non_exhaustive()
    }
}

impl ReexportGenerator {
    /// Re-exports those symbols of `source` that `predicate` allows.
    pub fn new(
        source: &Dylib,
        seen: Visibility,
        predicate: impl Fn(Symbol) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            session: source.session().downgrade(),
            source: Source::new(source.shared(), seen),
            predicate: Box::new(predicate),
        }
    }
}

impl Generator for ReexportGenerator {
    fn generate(&self, ask: GeneratorRequest) {
        let Some(session) = self.session.upgrade() else {
            return ask.finish(Err(SessionError::Ended));
        };
        let source = match self.source.find(&session) {
            Ok(source) => source,
            Err(error) => return ask.finish(Err(error)),
        };
        let mut lookup = Lookup::new([(source, self.source.seen)]).kind(ask.kind());
        let missing = ask.missing().iter().map(|(symbol, _)| *symbol);
        lookup.symbols = missing
            .filter(|symbol| (self.predicate)(*symbol))
            .map(|symbol| (symbol, Need::Weak))
            .collect();
        let source = self.source.clone();
        ask.session()
            .clone()
            .lookup_flags_async(lookup, move |found| {
                let answer = found.and_then(|found| {
                    if found.is_empty() {
                        return Ok(());
                    }
                    let aliases = found.into_iter().map(|(symbol, flags)| Alias {
                        name: symbol,
                        target: symbol,
                        flags: flags.without(Flags::WEAK.with(Flags::COMMON)),
                    });
                    let (session, dylib) = (ask.session().clone(), ask.dylib());
                    define(&session, dylib.shared(), None, source, aliases)
                });
                ask.finish(answer);
            });
    }
}
