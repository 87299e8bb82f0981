//! Whether a session is where the rules are.

use std::time::{Duration, Instant};

use uruk::{Lookup, SymbolState, Visibility};

use super::ops::SYMBOLS;
use super::rules::{Plan, Rules, State};
use super::steps::dylib_number;
use super::system::{System, seen};

/// Whether one state of the session is that of the rules.
fn is_state(state: Option<SymbolState>, rules: Option<State>) -> bool {
    let same = rules.map(|state| match state {
        State::Never => SymbolState::NeverSearched,
        State::Working => SymbolState::Materializing,
        State::Resolved => SymbolState::Resolved,
        State::Emitted => SymbolState::Emitted,
        State::Ready => SymbolState::Ready,
        State::Failed => SymbolState::Failed,
    });
    state == same
}

impl System {
    /// Waits until the session is where the rules are: other threads have part in it.
    pub fn wait_for(&mut self, rules: &Rules, patience: Duration) -> Result<(), String> {
        let end = Instant::now() + patience;
        loop {
            self.take_works(rules);
            match self.difference(rules) {
                None => return Ok(()),
                Some(what) if Instant::now() > end => return Err(what),
                Some(_) => std::thread::yield_now(),
            }
        }
    }

    /// Takes what units keep under the numbers of the rules.
    fn take_works(&mut self, rules: &Rules) {
        for (number, work) in rules.works.iter().enumerate() {
            let unit = &rules.units[work.unit];
            if unit.plan != Plan::Keep || self.works.contains_key(&number) {
                continue;
            }
            let kept = self.common.lock().unwrap().kept.remove(&unit.label);
            if let Some(kept) = kept {
                self.works.insert(number, kept);
            }
        }
    }

    fn difference(&self, rules: &Rules) -> Option<String> {
        self.difference_of_symbols(rules)
            .or_else(|| self.difference_of_dylibs(rules))
            .or_else(|| self.difference_of_units(rules))
            .or_else(|| self.difference_of_answers(rules))
    }

    fn difference_of_symbols(&self, rules: &Rules) -> Option<String> {
        for (dylib, own) in self.dylibs.iter().enumerate() {
            for symbol in 0..SYMBOLS {
                let state = own.state_of(self.names[symbol]);
                let entry = rules.entries.get(&(dylib, symbol));
                let expected = entry.map(|entry| entry.state);
                if !is_state(state, expected) {
                    return Some(format!(
                        "s{symbol} of d{dylib}: the rules say {expected:?}, the session {state:?}"
                    ));
                }
                let Some(entry) = entry.filter(|entry| entry.state == State::Ready) else {
                    continue;
                };
                let lookup = Lookup::new([(own, Visibility::All)]).symbol(self.names[symbol]);
                let found = self.jit.lookup_all(lookup);
                let address = found.ok().and_then(|f| f.address(self.names[symbol]));
                if address != Some(entry.address) {
                    return Some(format!(
                        "s{symbol} of d{dylib} is at {:#x} by the rules, at {address:x?} in the \
                         session",
                        entry.address
                    ));
                }
            }
        }
        None
    }

    fn difference_of_dylibs(&self, rules: &Rules) -> Option<String> {
        for (number, dylib) in self.dylibs.iter().enumerate() {
            let expected = &rules.dylibs[number];
            if dylib.is_defunct() == expected.alive {
                return Some(format!("d{number}: is there by one of them"));
            }
            let order: Vec<_> = dylib
                .link_order()
                .iter()
                .map(|(other, seen)| (dylib_number(&self.dylibs, other), *seen))
                .collect();
            let wanted = expected.order.iter();
            let wanted: Vec<_> = wanted
                .map(|(other, all)| (Some(*other), seen(*all)))
                .collect();
            if order != wanted {
                return Some(format!("d{number} searches {order:?}, not {wanted:?}"));
            }
        }
        for (number, tracker) in &self.trackers {
            if tracker.is_defunct() == rules.trackers[*number].alive {
                return Some(format!("tracker {number}: is there by one of them"));
            }
        }
        None
    }

    fn difference_of_units(&self, rules: &Rules) -> Option<String> {
        let common = self.common.lock().unwrap();
        let own = rules.units.iter().enumerate();
        let own = own.filter(|(number, unit)| {
            // Those of generators are not told apart, those of aliases are the session's.
            unit.label == *number && !matches!(unit.plan, Plan::Aliases { .. })
        });
        for (number, unit) in own {
            let told = common.told.get(&number).cloned().unwrap_or_default();
            if told != unit.told {
                return Some(format!(
                    "unit {number} was told {told:?}, by the rules {:?}",
                    unit.told
                ));
            }
        }
        None
    }

    fn difference_of_answers(&self, rules: &Rules) -> Option<String> {
        let common = self.common.lock().unwrap();
        if common.answers == rules.answers {
            return None;
        }
        let numbers = 0..=*rules.answers.keys().chain(common.answers.keys()).max()?;
        numbers
            .map(|n| (n, rules.answers.get(&n), common.answers.get(&n)))
            .find(|(_, rules, system)| rules != system)
            .map(|(number, rules, system)| {
                format!("lookup {number}: {rules:?} by the rules, {system:?} in the session")
            })
    }
}
