//! One step, taken by the rules and by the session.

use uruk::{Alias, DependenceGroup, Dylib, Error, Removal};

use super::ops::{Op, Symbol};
use super::rules::{Fault, Lookup, Plan, Rules};
use super::system::{System, fault, flags, number, seen};

/// That both say the same of a step.
fn same<T: PartialEq + std::fmt::Debug>(
    rules: Result<T, Fault>,
    system: Result<T, Error>,
) -> Result<(), String> {
    let system = system.map_err(|error| fault(&error, number));
    match rules == system {
        true => Ok(()),
        false => Err(format!("the rules say {rules:?}, the session {system:?}")),
    }
}

impl System {
    /// Takes a step. Steps that have lost their objects, because others were left out, are none.
    pub fn step(&mut self, rules: &mut Rules, op: &Op) -> Result<(), String> {
        if !op.is_possible(rules) {
            return Ok(());
        }
        match op {
            Op::AddDylib
            | Op::SetOrder(..)
            | Op::AddToOrder(..)
            | Op::ReplaceInOrder(..)
            | Op::TakeFromOrder(..)
            | Op::Clear(_)
            | Op::RemoveDylib(..) => self.step_of_dylib(rules, op),
            Op::CreateTracker(_) | Op::RemoveTracker(_) | Op::DropTracker(_) | Op::Transfer(..) => {
                self.step_of_tracker(rules, op)
            }
            Op::Resolve(..)
            | Op::Emit(..)
            | Op::Fail(_)
            | Op::Abandon(_)
            | Op::Claim(..)
            | Op::GiveBack(..)
            | Op::Delegate(..) => self.step_of_work(rules, op),
            Op::Define {
                dylib,
                tracker,
                symbols,
                plan,
            } => self.define(rules, *dylib, *tracker, symbols, plan),
            Op::Alias {
                dylib,
                source,
                all,
                aliases,
            } => self.alias(rules, *dylib, (*source, *all), aliases),
            Op::LookUp(lookup) => {
                rules.look_up(lookup.clone());
                self.look_up(lookup);
                Ok(())
            }
            Op::Flags(lookup) => self.look_flags_up(rules, lookup),
            Op::Undefine(dylib, symbols) => {
                let named = self.symbols(symbols);
                // SAFETY: nothing is at the addresses.
                let undefined = unsafe { self.dylibs[*dylib].undefine(&named) };
                same(rules.undefine(*dylib, symbols), undefined)
            }
            Op::SetGenerator(dylib, known, fails) => {
                self.remove_generator(rules, *dylib);
                let generator = self.generator(*dylib, known.clone(), *fails);
                let added = self.dylibs[*dylib].add_generator(generator);
                if let Ok(id) = &added {
                    self.generators.insert(*dylib, *id);
                }
                let set = rules.set_generator(*dylib, known.clone(), *fails);
                same(set, added.map(drop))
            }
            Op::RemoveGenerator(dylib) => {
                self.remove_generator(rules, *dylib);
                Ok(())
            }
        }
    }

    fn remove_generator(&mut self, rules: &mut Rules, dylib: usize) {
        if let Some(id) = self.generators.remove(&dylib) {
            self.dylibs[dylib].remove_generator(id);
        }
        rules.dylibs[dylib].generator = None;
    }

    fn define(
        &mut self,
        rules: &mut Rules,
        dylib: usize,
        tracker: Option<usize>,
        symbols: &[Symbol],
        plan: &Plan,
    ) -> Result<(), String> {
        let dylib = tracker.map_or(dylib, |tracker| rules.trackers[tracker].dylib);
        let label = rules.add_unit(dylib, symbols.to_vec(), plan.clone());
        let unit = self.unit(label, symbols, plan);
        let defined = match tracker {
            None => self.dylibs[dylib].define(unit),
            Some(tracker) => match self.tracker(tracker, rules) {
                Some(tracker) => tracker.define(unit),
                None => {
                    rules.units[label].told.push("drop".into());
                    return Ok(());
                }
            },
        };
        let tracker = tracker.unwrap_or(rules.dylibs[dylib].default);
        same(rules.define(tracker, label), defined)
    }

    fn alias(
        &mut self,
        rules: &mut Rules,
        dylib: usize,
        (source, all): (usize, bool),
        aliases: &[(usize, usize, bool, bool)],
    ) -> Result<(), String> {
        let each = aliases.iter().map(|(name, target, weak, hidden)| Alias {
            name: self.names[*name],
            target: self.names[*target],
            flags: flags(*weak, *hidden),
        });
        let each: Vec<Alias> = each.collect();
        let own = &self.dylibs[dylib];
        let defined = own.reexport(&self.dylibs[source], seen(all), each);
        same(rules.alias(dylib, source, all, aliases), defined)
    }

    fn look_flags_up(&mut self, rules: &mut Rules, lookup: &Lookup) -> Result<(), String> {
        let lookup = Lookup {
            waits: false,
            ..lookup.clone()
        };
        let system = self.flags(&lookup);
        let rules = rules.flags(lookup);
        match rules == system {
            true => Ok(()),
            false => Err(format!(
                "flags: the rules say {rules:?}, the session {system:?}"
            )),
        }
    }

    fn step_of_dylib(&mut self, rules: &mut Rules, op: &Op) -> Result<(), String> {
        match op {
            Op::AddDylib => {
                let number = rules.add_dylib();
                let dylib = self.jit.create_bare_dylib(&format!("d{number}"));
                self.dylibs.push(dylib.map_err(|error| error.to_string())?);
                Ok(())
            }
            Op::SetOrder(dylib, order) => {
                let named = order.iter();
                let named = named.map(|(other, all)| (self.dylibs[*other].clone(), seen(*all)));
                let named: Vec<_> = named.collect();
                let set = self.dylibs[*dylib].set_link_order(&named);
                same(rules.set_order(*dylib, order), set)
            }
            Op::AddToOrder(dylib, other) => {
                let added = self.dylibs[*dylib].add_to_link_order(&self.dylibs[*other]);
                same(rules.add_to_order(*dylib, *other), added)
            }
            Op::ReplaceInOrder(dylib, old, new, all) => {
                let (old_one, new_one) = (&self.dylibs[*old], &self.dylibs[*new]);
                let own = &self.dylibs[*dylib];
                let replaced = own.replace_in_link_order(old_one, new_one, seen(*all));
                same(rules.replace_in_order(*dylib, *old, *new, *all), replaced)
            }
            Op::TakeFromOrder(dylib, other) => {
                let taken = self.dylibs[*dylib].remove_from_link_order(&self.dylibs[*other]);
                same(rules.take_from_order(*dylib, *other), taken)
            }
            Op::Clear(dylib) => {
                // SAFETY: nothing is at the addresses.
                let cleared = unsafe { self.dylibs[*dylib].clear() };
                same(rules.clear(*dylib), cleared)
            }
            Op::RemoveDylib(dylib, forced) => {
                let removal = match forced {
                    true => Removal::Forced,
                    false => Removal::Refused,
                };
                // SAFETY: nothing is at the addresses.
                let removed = unsafe { self.dylibs[*dylib].remove(removal) };
                same(rules.remove_dylib(*dylib, *forced), removed)
            }
            _ => Ok(()),
        }
    }

    fn step_of_tracker(&mut self, rules: &mut Rules, op: &Op) -> Result<(), String> {
        match op {
            Op::CreateTracker(dylib) => {
                let created = self.dylibs[*dylib].create_tracker();
                let number = rules.create_tracker(*dylib);
                if let (Ok(number), Ok(tracker)) = (&number, &created) {
                    self.trackers.insert(*number, tracker.clone());
                }
                same(number.map(drop), created.map(drop))
            }
            Op::RemoveTracker(number) => match self.tracker(*number, rules) {
                // SAFETY: nothing is at the addresses.
                Some(tracker) => same(rules.remove_tracker(*number), unsafe { tracker.remove() }),
                None => Ok(()),
            },
            Op::DropTracker(number) => {
                let dylib = rules.trackers[*number].dylib;
                let default = rules.dylibs[dylib].default;
                if self.trackers.remove(number).is_some() && rules.trackers[*number].alive {
                    // It may have been dropped by its dylib's end, or be the default by now.
                    return rules
                        .transfer(*number, default)
                        .map_err(|fault| format!("{fault:?}"));
                }
                Ok(())
            }
            Op::Transfer(from, to) => {
                let (source, target) = (self.tracker(*from, rules), self.tracker(*to, rules));
                let (Some(source), Some(target)) = (source, target) else {
                    return Ok(());
                };
                same(rules.transfer(*from, *to), source.transfer_to(&target))
            }
            _ => Ok(()),
        }
    }

    fn step_of_work(&mut self, rules: &mut Rules, op: &Op) -> Result<(), String> {
        let (Op::Resolve(number, _)
        | Op::Emit(number, _)
        | Op::Fail(number)
        | Op::Abandon(number)
        | Op::Claim(number, _)
        | Op::GiveBack(number, ..)
        | Op::Delegate(number, _)) = op
        else {
            return Ok(());
        };
        let number = *number;
        let Some(mut work) = self.works.remove(&number) else {
            return Ok(());
        };
        let result = match op {
            Op::Resolve(_, symbols) => {
                let unit = rules.works[number].unit;
                let label = rules.units[unit].label;
                let placed = symbols.iter();
                let placed = placed.map(|s| (self.names[*s], super::rules::address(label, *s)));
                let resolved = work.resolve(&placed.collect::<Vec<_>>());
                same(
                    rules.resolve(number, symbols),
                    resolved.map_err(Error::from),
                )
            }
            Op::Emit(_, groups) => {
                let groups_named = groups.iter().map(|(symbols, needs)| DependenceGroup {
                    symbols: self.symbols(symbols),
                    dependences: needs
                        .iter()
                        .map(|(dylib, symbol)| (self.dylibs[*dylib].id(), self.names[*symbol]))
                        .collect(),
                });
                let emitted = work.emit(&groups_named.collect::<Vec<_>>());
                return same(rules.emit(number, groups), emitted.map_err(Error::from));
            }
            Op::Fail(_) => {
                work.fail(uruk::SessionError::unit("test", "oops"));
                rules.fail(number);
                return Ok(());
            }
            Op::Abandon(_) => {
                drop(work);
                rules.fail(number);
                return Ok(());
            }
            Op::Claim(_, symbols) => {
                let named = symbols.iter();
                let named = named.map(|(s, weak, hidden)| (self.names[*s], flags(*weak, *hidden)));
                let claimed = work.claim(&named.collect::<Vec<_>>());
                let claimed = claimed.map(|symbols| self.numbers(&symbols));
                same(rules.claim(number, symbols), claimed.map_err(Error::from))
            }
            Op::GiveBack(_, symbols, plan, later) => {
                return self.give_back(rules, number, work, (symbols, plan, *later));
            }
            Op::Delegate(_, symbols) => {
                let part = work.delegate(&self.symbols(symbols));
                let new = rules.delegate(number, symbols);
                if let (Ok(new), Ok(_)) = (&new, &part) {
                    let same = part.map(|part| self.works.insert(*new, part));
                    self.works.insert(number, work);
                    return match same {
                        Ok(_) => Ok(()),
                        Err(error) => Err(error.to_string()),
                    };
                }
                same(new.map(drop), part.map(drop).map_err(Error::from))
            }
            _ => Ok(()),
        };
        self.works.insert(number, work);
        result
    }

    /// Gives symbols back, for good or for want of something.
    fn give_back(
        &mut self,
        rules: &mut Rules,
        number: usize,
        mut work: uruk::Responsibility,
        (symbols, plan, is_failure): (&[Symbol], &Plan, bool),
    ) -> Result<(), String> {
        let dylib = rules.works[number].dylib;
        let label = rules.add_unit(dylib, symbols.to_vec(), plan.clone());
        let unit = self.unit(label, symbols, plan);
        if is_failure {
            let why = uruk::SessionError::unit("test", "not yet");
            let failed = work.fail_retryable(why, unit);
            return same(
                rules.fail_retryably(number, label),
                failed.map_err(Error::from),
            );
        }
        let replaced = work.replace(unit);
        self.works.insert(number, work);
        same(
            rules.give_back(number, label, false),
            replaced.map_err(Error::from),
        )
    }

    /// The numbers of these symbols in the rules.
    pub fn numbers(&self, symbols: &[uruk::Symbol]) -> Vec<usize> {
        let position = |symbol| self.names.iter().position(|name| name == symbol);
        symbols.iter().filter_map(position).collect()
    }
}

/// Whether a handle is one of the test's own dylibs, and which.
pub fn dylib_number(dylibs: &[Dylib], one: &Dylib) -> Option<usize> {
    dylibs.iter().position(|dylib| dylib == one)
}
