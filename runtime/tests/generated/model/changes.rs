//! The rules of work that is done, and of what is taken out.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::*;

impl Rules {
    /// Gives symbols of a work their addresses.
    pub fn resolve(&mut self, work: usize, symbols: &[usize]) -> Result<(), Fault> {
        let Work {
            dylib, unit, alive, ..
        } = self.works[work];
        if !alive {
            return Err(Fault::TrackerDefunct);
        }
        let label = self.units[unit].label;
        for symbol in symbols {
            if let Some(entry) = self.entries.get_mut(&(dylib, *symbol)) {
                entry.address = address(label, *symbol);
                entry.state = State::Resolved;
            }
        }
        self.settle();
        Ok(())
    }

    /// All is in memory; each of the symbols needs the places beside it.
    pub fn emit(&mut self, work: usize, groups: &[(Vec<usize>, Vec<Place>)]) -> Result<(), Fault> {
        self.works[work].over = true;
        if !self.works[work].alive {
            return Err(Fault::TrackerDefunct);
        }
        let (dylib, symbols) = (self.works[work].dylib, self.works[work].symbols.clone());
        let unresolved: BTreeSet<usize> = symbols
            .iter()
            .copied()
            .filter(|symbol| self.entries[&(dylib, *symbol)].state != State::Resolved)
            .collect();
        let needs = groups.iter().flat_map(|(_, needs)| needs);
        let is_gone = |place: &Place| {
            let entry = self.entries.get(place);
            entry.is_none_or(|entry| entry.state == State::Failed)
        };
        let fault = match unresolved.is_empty() {
            false => Some(Fault::Unresolved(unresolved)),
            true => needs
                .clone()
                .any(is_gone)
                .then_some(Fault::DependenceFailed),
        };
        if let Some(fault) = fault {
            self.fail(work);
            return Err(fault);
        }
        self.works[work].symbols.clear();
        for symbol in symbols.clone() {
            let of = groups.iter().filter(|(own, _)| own.contains(&symbol));
            let needs: BTreeSet<Place> = of.flat_map(|(_, needs)| needs.iter().copied()).collect();
            if let Some(entry) = self.entries.get_mut(&(dylib, symbol)) {
                entry.state = State::Emitted;
                entry.owner = Owner::Nobody;
                entry.needs = needs;
            }
        }
        self.settle();
        // Symbols that were given back are asked for once more on behalf of lookups that wait
        // already.
        for symbol in symbols {
            let above = self.with_dependents(BTreeSet::from([(dylib, symbol)]));
            if above.into_iter().any(|place| self.is_asked(place)) {
                self.ask_for((dylib, symbol));
            }
        }
        Ok(())
    }

    /// The rest of a work fails.
    pub fn fail(&mut self, work: usize) {
        self.works[work].over = true;
        let (dylib, symbols) = (self.works[work].dylib, self.works[work].symbols.clone());
        if !self.works[work].alive {
            return;
        }
        self.works[work].symbols.clear();
        let places: BTreeSet<Place> = symbols.iter().map(|symbol| (dylib, *symbol)).collect();
        self.fail_places(places, Fault::Failed);
    }

    /// Places fail, and what needs them does.
    fn fail_places(&mut self, places: BTreeSet<Place>, fault: Fault) {
        let all = self.with_dependents(places);
        for place in &all {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.state = State::Failed;
                entry.owner = Owner::Nobody;
                entry.needs.clear();
            }
        }
        self.fail_queries(&all, &fault);
        self.settle();
    }

    pub fn with_dependents(&self, mut all: BTreeSet<Place>) -> BTreeSet<Place> {
        loop {
            let more: Vec<Place> = self
                .entries
                .iter()
                .filter(|(place, entry)| !all.contains(*place) && !entry.needs.is_disjoint(&all))
                .map(|(place, _)| *place)
                .collect();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    /// Every lookup that waits for one of the places is told.
    pub fn fail_queries(&mut self, places: &BTreeSet<Place>, fault: &Fault) {
        for then in self.take_queries(|open| open.iter().any(|place| places.contains(place))) {
            self.finish(then, Err(fault.clone()));
        }
    }

    /// Answers what can be, makes ready what can be, until nothing changes.
    pub fn settle(&mut self) {
        loop {
            self.make_ready();
            let answered = self.answered();
            if answered.is_empty() {
                return;
            }
            for (then, found) in answered {
                self.finish(then, Ok(found));
            }
        }
    }

    /// The largest set of emitted definitions that need nothing but what is ready or in the set.
    fn make_ready(&mut self) {
        let in_state = |state: State, entries: &BTreeMap<Place, Entry>| -> BTreeSet<Place> {
            let those = entries.iter().filter(|(_, entry)| entry.state == state);
            those.map(|(place, _)| *place).collect()
        };
        let ready = in_state(State::Ready, &self.entries);
        let mut set = in_state(State::Emitted, &self.entries);
        loop {
            let before = set.len();
            let lacks = |place: &Place| {
                let mut needs = self.entries[place].needs.iter();
                needs.any(|need| !ready.contains(need) && !set.contains(need))
            };
            let out: Vec<Place> = set.iter().copied().filter(lacks).collect();
            set.retain(|place| !out.contains(place));
            if set.len() == before {
                break;
            }
        }
        for place in &set {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.state = State::Ready;
                entry.needs.clear();
            }
        }
        // Places that are ready are no longer needed.
        for entry in self.entries.values_mut() {
            entry
                .needs
                .retain(|need| !set.contains(need) && !ready.contains(need));
        }
    }

    /// Removes symbols that no unit is at work on: all, or none.
    pub fn undefine(&mut self, dylib: usize, symbols: &[usize]) -> Result<(), Fault> {
        if !self.dylibs[dylib].alive {
            return Err(Fault::DylibDefunct);
        }
        let state = |symbol: &usize| Some(self.entries.get(&(dylib, *symbol))?.state);
        let of = |wanted: &dyn Fn(Option<State>) -> bool| -> BTreeSet<usize> {
            let those = symbols.iter().copied();
            those.filter(|symbol| wanted(state(symbol))).collect()
        };
        let missing = of(&|state| state.is_none());
        if !missing.is_empty() {
            return Err(Fault::NotFound(missing));
        }
        let is_busy = |state| {
            use State::{Emitted, Resolved, Working};
            matches!(state, Some(Working | Resolved | Emitted))
        };
        let busy = of(&is_busy);
        if !busy.is_empty() {
            return Err(Fault::InFlight(busy));
        }
        self.take_out(
            symbols.iter().map(|symbol| (dylib, *symbol)).collect(),
            true,
        );
        Ok(())
    }

    /// Takes definitions out, whatever they are at; their units are told, or go untold.
    fn take_out(&mut self, places: BTreeSet<Place>, are_told: bool) {
        for (dylib, symbol) in &places {
            self.aliases.remove(&(*dylib, *symbol));
            let entry = self.entries.remove(&(*dylib, *symbol));
            if let Some(Owner::Unit(unit)) = entry.map(|entry| entry.owner) {
                self.lose(unit, *symbol, are_told);
            }
        }
        let mut dependents = self.with_dependents(places.clone());
        dependents.retain(|place| !places.contains(place));
        if !dependents.is_empty() {
            self.fail_places(dependents, Fault::Failed);
        }
        self.fail_queries(&places, &Fault::Removed);
        self.settle();
    }

    pub fn remove_tracker(&mut self, tracker: usize) -> Result<(), Fault> {
        if !self.trackers[tracker].alive {
            return Err(Fault::TrackerDefunct);
        }
        self.remove_trackers(BTreeSet::from([tracker]));
        Ok(())
    }

    /// Removes trackers in one step.
    fn remove_trackers(&mut self, trackers: BTreeSet<usize>) {
        for tracker in trackers.iter().copied() {
            let Tracker { dylib, alive } = self.trackers[tracker];
            self.trackers[tracker].alive = false;
            if alive && self.dylibs[dylib].default == tracker {
                self.dylibs[dylib].default = self.add_tracker(dylib);
            }
        }
        for work in &mut self.works {
            work.alive &= !trackers.contains(&work.tracker);
        }
        let entries = self.entries.iter();
        let under = entries.filter(|(_, entry)| trackers.contains(&entry.tracker));
        let places = under.map(|(place, _)| *place).collect();
        self.take_out(places, false);
    }

    pub fn transfer(&mut self, from: usize, to: usize) -> Result<(), Fault> {
        if from == to {
            return Ok(());
        }
        let (source, target) = (&self.trackers[from], &self.trackers[to]);
        if !source.alive || !target.alive {
            return Err(Fault::TrackerDefunct);
        }
        if source.dylib != target.dylib {
            return Err(Fault::ForeignTracker);
        }
        let dylib = source.dylib;
        self.trackers[from].alive = false;
        if self.dylibs[dylib].default == from {
            self.dylibs[dylib].default = to;
        }
        for entry in self.entries.values_mut().filter(|e| e.tracker == from) {
            entry.tracker = to;
        }
        for work in self.works.iter_mut().filter(|w| w.tracker == from) {
            work.tracker = to;
        }
        Ok(())
    }

    pub fn clear(&mut self, dylib: usize) -> Result<(), Fault> {
        if !self.dylibs[dylib].alive {
            return Err(Fault::DylibDefunct);
        }
        let those = 0..self.trackers.len();
        let those = those.filter(|tracker| self.trackers[*tracker].dylib == dylib);
        self.remove_trackers(those.collect());
        Ok(())
    }

    pub fn remove_dylib(&mut self, dylib: usize, forced: bool) -> Result<(), Fault> {
        if !self.dylibs[dylib].alive {
            return Err(Fault::DylibDefunct);
        }
        let searches = |other: &usize| {
            let order = &self.dylibs[*other].order;
            *other != dylib && order.iter().any(|(used, _)| *used == dylib)
        };
        let by: BTreeSet<usize> = (0..self.dylibs.len()).filter(searches).collect();
        if !forced && !by.is_empty() {
            return Err(Fault::DylibInUse(by));
        }
        self.dylibs[dylib].generator = None;
        self.clear(dylib)?;
        self.dylibs[dylib].alive = false;
        self.trackers
            .iter_mut()
            .filter(|tracker| tracker.dylib == dylib)
            .for_each(|tracker| tracker.alive = false);
        self.dylibs[dylib].order.clear();
        for other in &mut self.dylibs {
            other.order.retain(|(used, _)| *used != dylib);
        }
        self.give_up(dylib);
        Ok(())
    }

    /// Takes on more symbols while at work: those that were taken.
    pub fn claim(
        &mut self,
        work: usize,
        symbols: &[(usize, bool, bool)],
    ) -> Result<Vec<usize>, Fault> {
        let Work {
            dylib,
            tracker,
            alive,
            ..
        } = self.works[work].clone();
        if !alive {
            return Err(Fault::TrackerDefunct);
        }
        let bad = self.duplicates(dylib, symbols);
        if !bad.is_empty() {
            return Err(Fault::Duplicate(bad));
        }
        let owner = Owner::Work(work);
        let taken = self.put(dylib, tracker, symbols, owner, State::Working);
        self.works[work].symbols.extend(&taken);
        let accepted = symbols.iter().filter(|(symbol, ..)| taken.contains(symbol));
        self.wake(&accepted.copied().collect::<Vec<_>>());
        Ok(taken)
    }

    /// Gives symbols of a work back to a unit, which is asked at once if a lookup waits.
    pub fn give_back(&mut self, work: usize, unit: usize, stalls: bool) -> Result<(), Fault> {
        if !self.works[work].alive {
            self.units[unit].told.push("drop".into());
            return Err(Fault::TrackerDefunct);
        }
        let (dylib, symbols) = (self.works[work].dylib, self.units[unit].symbols.clone());
        let mut wanted = false;
        for (symbol, weak, hidden) in &symbols {
            let place = (dylib, *symbol);
            let (asked, needed) = (self.is_asked(place), self.is_needed(place));
            wanted |= asked || (needed && !stalls);
            let Some(entry) = self.entries.get_mut(&place) else {
                continue;
            };
            entry.owner = Owner::Unit(unit);
            entry.state = State::Never;
            (entry.weak, entry.hidden) = (*weak, *hidden);
            entry.stalled = stalls && needed;
            self.works[work].symbols.retain(|own| own != symbol);
        }
        if wanted {
            self.launch(unit);
        }
        Ok(())
    }

    pub fn delegate(&mut self, work: usize, symbols: &[usize]) -> Result<usize, Fault> {
        if !self.works[work].alive {
            return Err(Fault::TrackerDefunct);
        }
        let part = Work {
            symbols: symbols.to_vec(),
            ..self.works[work].clone()
        };
        self.works[work]
            .symbols
            .retain(|own| !symbols.contains(own));
        self.works.push(part);
        let part = self.works.len() - 1;
        for symbol in symbols {
            if let Some(entry) = self.entries.get_mut(&(self.works[work].dylib, *symbol)) {
                entry.owner = Owner::Work(part);
            }
        }
        Ok(part)
    }

    /// A work fails for want of something: the unit has what is left, and is asked by the next.
    pub fn fail_retryably(&mut self, work: usize, unit: usize) -> Result<(), Fault> {
        if !self.works[work].alive {
            self.units[unit].told.push("drop".into());
            self.works[work].over = true;
            return Err(Fault::TrackerDefunct);
        }
        let (dylib, symbols) = (self.works[work].dylib, &self.units[unit].symbols);
        let own = symbols
            .iter()
            .map(|(symbol, ..)| (dylib, *symbol))
            .collect();
        let told = self.with_dependents(own);
        self.fail_queries(&told, &Fault::Failed);
        let given = self.give_back(work, unit, true);
        // Symbols that were not given back have failed.
        self.fail(work);
        given
    }

    pub fn create_tracker(&mut self, dylib: usize) -> Result<usize, Fault> {
        match self.dylibs[dylib].alive {
            true => Ok(self.add_tracker(dylib)),
            false => Err(Fault::DylibDefunct),
        }
    }

    pub fn set_generator(
        &mut self,
        dylib: usize,
        known: BTreeSet<usize>,
        fails: bool,
    ) -> Result<(), Fault> {
        if !self.dylibs[dylib].alive {
            return Err(Fault::DylibDefunct);
        }
        self.generators += 1;
        let id = self.generators;
        self.dylibs[dylib].generator = Some(Generator { id, known, fails });
        Ok(())
    }

    fn edit_order(
        &mut self,
        dylib: usize,
        added: &[usize],
        edit: impl FnOnce(&mut Vec<(usize, bool)>),
    ) -> Result<(), Fault> {
        let mut all = added.iter().chain([&dylib]);
        if all.any(|dylib| !self.dylibs[*dylib].alive) {
            return Err(Fault::DylibDefunct);
        }
        edit(&mut self.dylibs[dylib].order);
        Ok(())
    }

    pub fn set_order(&mut self, dylib: usize, order: &[(usize, bool)]) -> Result<(), Fault> {
        let added: Vec<usize> = order.iter().map(|(other, _)| *other).collect();
        self.edit_order(dylib, &added, |old| *old = order.to_vec())
    }

    pub fn add_to_order(&mut self, dylib: usize, other: usize) -> Result<(), Fault> {
        self.edit_order(dylib, &[other], |order| {
            if !order.iter().any(|(old, _)| *old == other) {
                order.push((other, false));
            }
        })
    }

    pub fn replace_in_order(
        &mut self,
        dylib: usize,
        old: usize,
        new: usize,
        all: bool,
    ) -> Result<(), Fault> {
        self.edit_order(dylib, &[new], |order| {
            let places = order.iter_mut().filter(|(other, _)| *other == old);
            places.for_each(|place| *place = (new, all));
        })
    }

    pub fn take_from_order(&mut self, dylib: usize, other: usize) -> Result<(), Fault> {
        self.edit_order(dylib, &[], |order| order.retain(|(old, _)| *old != other))
    }

    /// Weak or not, hidden or not, of what is found.
    pub fn flags(&mut self, mut lookup: Lookup) -> Result<BTreeMap<usize, (bool, bool)>, Fault> {
        self.generate(&mut lookup)?;
        let missing = self.missing(&lookup);
        if !missing.is_empty() {
            return Err(Fault::NotFound(missing.into_iter().collect()));
        }
        let symbols = lookup.symbols.iter().map(|(symbol, _)| *symbol);
        let found = symbols.filter_map(|symbol| {
            let entry = &self.entries[&self.find(&lookup.order, symbol)?];
            Some((symbol, (entry.weak, entry.hidden)))
        });
        Ok(found.collect())
    }
}
