//! The rules of lookups that are under way, and of aliases, which look their targets up.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::*;

impl Rules {
    /// Takes the queries out of which these places say so.
    pub fn take_queries(&mut self, is_meant: impl Fn(&[Place]) -> bool) -> Vec<Then> {
        let all = std::mem::take(&mut self.queries);
        let (meant, left) = all.into_iter().partition(|query| is_meant(&query.open));
        self.queries = left;
        let meant: Vec<Query> = meant;
        meant.into_iter().map(|query| query.then).collect()
    }

    /// Takes the queries out that have all they asked for.
    pub fn answered(&mut self) -> Vec<(Then, BTreeMap<usize, u64>)> {
        for mut query in std::mem::take(&mut self.queries) {
            for place in std::mem::take(&mut query.open) {
                match self.is_enough(place, query.ready) {
                    true => drop(query.found.insert(place.1, self.entries[&place].address)),
                    false => query.open.push(place),
                }
            }
            self.queries.push(query);
        }
        let all = std::mem::take(&mut self.queries);
        let (done, left) = all.into_iter().partition(|query| query.open.is_empty());
        self.queries = left;
        let done: Vec<Query> = done;
        done.into_iter()
            .map(|query| (query.then, query.found))
            .collect()
    }

    /// A dylib is gone: what waits for definitions on its behalf is told
    /// what it still waited for.
    pub fn give_up(&mut self, dylib: usize) {
        let of = |parked: &Parked| {
            parked
                .lookup
                .order
                .first()
                .is_some_and(|(d, _)| *d == dylib)
        };
        let all = std::mem::take(&mut self.parked);
        let (gone, left): (Vec<Parked>, _) = all.into_iter().partition(of);
        self.parked = left;
        for Parked {
            number, missing, ..
        } in gone
        {
            let missing = missing.into_iter().collect();
            self.finish(Then::Tell(number), Err(Fault::NotFound(missing)));
        }
    }

    /// A lookup is answered.
    pub fn finish(&mut self, then: Then, answer: Answer) {
        match then {
            Then::Tell(number) => drop(self.answers.insert(number, answer)),
            Then::Aliases {
                work,
                source,
                all,
                targets,
            } => match answer {
                Ok(found) => self.finish_aliases(work, source, &targets, &found),
                Err(Fault::NotFound(_)) => self.try_again_later(work, source, all, targets),
                Err(_) => self.fail(work),
            },
        }
    }

    /// A work of aliases starts, for the aliases that are waited for.
    pub fn follow(
        &mut self,
        work: usize,
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    ) {
        let dylib = self.works[work].dylib;
        let part = |wanted: &dyn Fn(usize) -> bool| -> BTreeMap<usize, usize> {
            let those = targets.iter().filter(|(name, _)| wanted(**name));
            those.map(|(name, target)| (*name, *target)).collect()
        };
        let (wanted, rest) = {
            let is_awaited = |name| {
                let place = (dylib, name);
                self.is_asked(place) || self.is_needed(place)
            };
            (part(&is_awaited), part(&|name| !is_awaited(name)))
        };
        if !rest.is_empty() {
            let unit = self.alias_unit(dylib, source, all, rest);
            // Its tracker is there: it was launched just now.
            let _ = self.give_back(work, unit, false);
        }
        let leads_back = |name: &usize| self.leads_back((dylib, *name));
        if !self.dylibs[source].alive || wanted.keys().any(leads_back) {
            return self.fail(work);
        }
        let is_chained = |target: &usize| dylib == source && wanted.contains_key(target);
        let (chained, apart): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(_, target)| is_chained(target));
        for (name, target) in chained {
            if let Ok(one) = self.delegate(work, &[*name]) {
                self.look_targets_up(one, source, all, BTreeMap::from([(*name, *target)]));
            }
        }
        if !apart.is_empty() {
            let apart = apart.into_iter().map(|(n, t)| (*n, *t)).collect();
            self.look_targets_up(work, source, all, apart);
        }
    }

    fn look_targets_up(
        &mut self,
        work: usize,
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    ) {
        let symbols: BTreeSet<usize> = targets.values().copied().collect();
        let lookup = Lookup {
            order: vec![(source, all)],
            symbols: symbols.into_iter().map(|symbol| (symbol, true)).collect(),
            ready: false,
            waits: false,
            asked: BTreeSet::new(),
        };
        let then = Then::Aliases {
            work,
            source,
            all,
            targets,
        };
        self.run(then, lookup);
    }

    /// The unit of some aliases, with the flags that their names have.
    fn alias_unit(
        &mut self,
        dylib: usize,
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    ) -> usize {
        let symbols = targets.keys().map(|name| {
            let entry = self.entries.get(&(dylib, *name));
            entry.map_or((*name, false, false), |e| (*name, e.weak, e.hidden))
        });
        let symbols = symbols.collect();
        let plan = Plan::Aliases {
            source,
            all,
            targets,
        };
        self.add_unit(dylib, symbols, plan)
    }

    fn leads_back(&self, start: Place) -> bool {
        let (mut seen, mut at) = (BTreeSet::from([start]), start);
        while let Some(next) = self.aliases.get(&at) {
            let state = self.entries.get(next).map(|entry| entry.state);
            if matches!(state, Some(State::Resolved | State::Emitted | State::Ready)) {
                return false;
            }
            if !seen.insert(*next) {
                return true;
            }
            at = *next;
        }
        false
    }

    fn finish_aliases(
        &mut self,
        work: usize,
        source: usize,
        targets: &BTreeMap<usize, usize>,
        found: &BTreeMap<usize, u64>,
    ) {
        let Work { dylib, alive, .. } = self.works[work];
        if !alive {
            return;
        }
        let mut groups = Vec::new();
        for (name, target) in targets {
            if let Some(entry) = self.entries.get_mut(&(dylib, *name)) {
                entry.address = found[target];
                entry.state = State::Resolved;
            }
            groups.push((vec![*name], vec![(source, *target)]));
        }
        // A failure is told to those who wait.
        let _ = self.emit(work, &groups);
    }

    /// Targets are missing: who waits is told, and the next who asks has them looked up again.
    fn try_again_later(
        &mut self,
        work: usize,
        source: usize,
        all: bool,
        targets: BTreeMap<usize, usize>,
    ) {
        let dylib = self.works[work].dylib;
        if !self.works[work].alive {
            return;
        }
        let own: BTreeSet<Place> = targets.keys().map(|name| (dylib, *name)).collect();
        let told = self.with_dependents(own);
        self.fail_queries(&told, &Fault::Failed);
        let unit = self.alias_unit(dylib, source, all, targets);
        // Its tracker is there.
        let _ = self.give_back(work, unit, true);
        self.works[work].over = true;
    }

    /// Defines other names for symbols of a dylib.
    pub fn alias(
        &mut self,
        dylib: usize,
        source: usize,
        all: bool,
        aliases: &[(usize, usize, bool, bool)],
    ) -> Result<(), Fault> {
        let symbols = aliases
            .iter()
            .map(|(name, _, weak, hidden)| (*name, *weak, *hidden));
        let targets = aliases.iter().map(|(name, target, ..)| (*name, *target));
        let plan = Plan::Aliases {
            source,
            all,
            targets: targets.collect(),
        };
        let unit = self.add_unit(dylib, symbols.collect(), plan);
        let tracker = self.dylibs[dylib].default;
        self.define_with(tracker, unit, |rules| {
            for (name, target, ..) in aliases {
                let owner = rules.entries.get(&(dylib, *name)).map(|entry| entry.owner);
                if owner == Some(Owner::Unit(unit)) {
                    rules.aliases.insert((dylib, *name), (source, *target));
                }
            }
        })
    }
}
