//! The rules of what a lookup starts: whom it asks, and who goes to work.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::*;

impl Rules {
    /// Starts a lookup; its answer comes under the number.
    pub fn look_up(&mut self, lookup: Lookup) -> usize {
        self.lookups += 1;
        self.run(Then::Tell(self.lookups - 1), lookup);
        self.lookups - 1
    }

    /// The generators of the order are asked for what is not found before them.
    pub fn generate(&mut self, lookup: &mut Lookup) -> Result<(), Fault> {
        for at in 0..lookup.order.len() {
            let dylib = lookup.order[at].0;
            let Some(Generator { id, known, fails }) = self.dylibs[dylib].generator.clone() else {
                continue;
            };
            let wanted = lookup.symbols.iter().map(|(symbol, _)| *symbol);
            // A hidden definition of the dylib itself is passed by, and not asked for.
            let wanted: Vec<usize> = wanted
                .filter(|symbol| self.find(&lookup.order[..at], *symbol).is_none())
                .filter(|symbol| !self.entries.contains_key(&(dylib, *symbol)))
                .collect();
            if wanted.is_empty() || !lookup.asked.insert(id) {
                continue;
            }
            if fails {
                return Err(Fault::Unit);
            }
            for symbol in wanted.into_iter().filter(|symbol| known.contains(symbol)) {
                let unit = self.add_unit(dylib, vec![(symbol, false, false)], Plan::Finish);
                self.units[unit].label = generated(dylib, symbol);
                let tracker = self.dylibs[dylib].default;
                self.define(tracker, unit)?;
            }
        }
        Ok(())
    }

    pub fn run(&mut self, then: Then, mut lookup: Lookup) {
        if let Err(fault) = self.generate(&mut lookup) {
            return self.finish(then, Err(fault));
        }
        let missing = self.missing(&lookup);
        if !missing.is_empty() {
            let there = lookup
                .order
                .first()
                .is_some_and(|(dylib, _)| self.dylibs[*dylib].alive);
            if let (true, true, Then::Tell(number)) = (lookup.waits, there, &then) {
                let number = *number;
                self.parked.push(Parked {
                    number,
                    lookup,
                    missing,
                });
                return;
            }
            let missing = missing.into_iter().collect();
            return self.finish(then, Err(Fault::NotFound(missing)));
        }
        let symbols = lookup.symbols.iter();
        let places: Vec<Place> = symbols
            .filter_map(|(symbol, _)| self.find(&lookup.order, *symbol))
            .collect();
        if places
            .iter()
            .any(|place| self.entries[place].state == State::Failed)
        {
            return self.finish(then, Err(Fault::Failed));
        }
        let ready = lookup.ready;
        self.queries.push(Query {
            then,
            ready,
            open: places.clone(),
            found: BTreeMap::new(),
        });
        // Places that are far enough are not asked for.
        self.settle();
        for place in places {
            if !self.is_enough(place, ready) {
                self.ask_for(place);
            }
        }
        self.settle();
    }

    /// Whether a place is as far as a lookup requires.
    pub fn is_enough(&self, place: Place, ready: bool) -> bool {
        let state = self.entries.get(&place).map(|entry| entry.state);
        match ready {
            true => state == Some(State::Ready),
            false => matches!(state, Some(State::Resolved | State::Emitted | State::Ready)),
        }
    }

    /// Launches the unit that owns a place. A place without one has the units launched that stalled
    /// below it.
    pub fn ask_for(&mut self, place: Place) {
        if let Some(Owner::Unit(unit)) = self.entries.get(&place).map(|entry| entry.owner) {
            return self.launch(unit);
        }
        for below in self.below(place) {
            let entry = self.entries.get(&below);
            if let Some(Owner::Unit(unit)) = entry.filter(|e| e.stalled).map(|e| e.owner) {
                self.launch(unit);
            }
        }
    }

    /// The places that a place waits for, and all places that those wait for.
    fn below(&self, place: Place) -> BTreeSet<Place> {
        let (mut all, mut left) = (BTreeSet::new(), vec![place]);
        while let Some(place) = left.pop() {
            let needs = self.entries.get(&place).map(|entry| &entry.needs);
            for need in needs.into_iter().flatten() {
                if all.insert(*need) {
                    left.push(*need);
                }
            }
        }
        all
    }

    /// Whether a lookup waits for a place.
    pub fn is_asked(&self, place: Place) -> bool {
        self.queries.iter().any(|query| query.open.contains(&place))
    }

    /// Whether something that was emitted waits for a place.
    pub fn is_needed(&self, place: Place) -> bool {
        self.entries.values().any(|e| e.needs.contains(&place))
    }

    /// A unit goes to work on what is left of it.
    pub fn launch(&mut self, unit: usize) {
        let Unit {
            dylib,
            symbols,
            plan,
            ..
        } = self.units[unit].clone();
        let work = self.works.len();
        let mut tracker = 0;
        for (symbol, ..) in &symbols {
            if let Some(entry) = self.entries.get_mut(&(dylib, *symbol)) {
                entry.owner = Owner::Work(work);
                entry.state = State::Working;
                entry.stalled = false;
                tracker = entry.tracker;
            }
        }
        let symbols: Vec<usize> = symbols.iter().map(|(symbol, ..)| *symbol).collect();
        self.units[unit].told.push("materialize".into());
        self.works.push(Work {
            dylib,
            tracker,
            symbols: symbols.clone(),
            unit,
            alive: true,
            over: false,
        });
        match plan {
            Plan::Keep => {}
            Plan::Fail => self.fail(work),
            Plan::Finish => {
                // They fail only if the tracker was removed.
                let _ = self.resolve(work, &symbols);
                let _ = self.emit(work, &[]);
            }
            Plan::Aliases {
                source,
                all,
                targets,
            } => self.follow(work, source, all, targets),
        }
    }
}
