//! Functions that mention tables of labels, and labels of other functions, found by one walk over
//! all bodies of a module, without LLVM.
//!
//! LLVM reads bodies one by one, and knows the uses of a table only in those. A version may keep
//! the addresses of its own labels in a private copy of a table only if no other function mentions
//! that table.
//!
//! # Why
//! The walk takes about as long as reading the bodies once, and happens when a function with labels
//! is first optimized; modules without such functions are not walked.

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_base::allocated::{of_map, of_set};
use uruk_bitcode::Source;
use uruk_bitcode::ir::{Body, Constant, GlobalKind, Module, ValueId};

use crate::numbering::order;
use crate::summary::SymbolId;

/// Longest chain of variables from a table to its labels.
const DEPTH: usize = 16;

/// Mentions of symbols in the bodies of a module.
#[derive(Debug)]
pub(crate) struct Mentions {
    /// The function that mentions a variable which leads to labels; `None`: several do.
    tables: FxHashMap<SymbolId, Option<SymbolId>>,
    /// Functions with labels that another function mentions.
    exposed: FxHashSet<SymbolId>,
}

impl Mentions {
    /// Bytes allocated for the mentions.
    pub(crate) fn bytes(&self) -> usize {
        of_map(&self.tables) + of_set(&self.exposed)
    }

    /// Walks over all bodies; `None` if this reader does not support one.
    pub(crate) fn read(bytes: &[u8]) -> Option<Mentions> {
        let source = Source::read(bytes).ok()?;
        let module = &*source.module;
        let symbols = order(module);
        let leads = Leads::of(module)?;
        let mut mentions = Mentions {
            tables: FxHashMap::default(),
            exposed: FxHashSet::default(),
        };
        let mut body = Body::default();
        for (number, global) in (0..).zip(&module.globals) {
            if global.kind != GlobalKind::Function {
                continue;
            }
            let Some(place) = source.body_of(number) else {
                continue;
            };
            source.read_body(bytes, place, &mut body).ok()?;
            if body.constants.contains(&Constant::Other) {
                return None;
            }
            let mut note = |value: ValueId| {
                if let Some(found) = leads.values.get(value.index()) {
                    mentions.note(&symbols, number, found);
                }
            };
            body.operands.iter().copied().for_each(&mut note);
            for constant in &body.constants {
                parts_of(constant, &mut note);
            }
            let labels = body.constants.iter().filter_map(|it| match it {
                Constant::Label(function, _) if function.0 != number => Some(function),
                _ => None,
            });
            for function in labels {
                mentions.exposed.insert(*symbols.get(function.index())?);
            }
        }
        Some(mentions)
    }

    fn note(&mut self, symbols: &[SymbolId], by: u32, found: &Lead) {
        let by_symbol = symbols[by as usize];
        for &table in &found.tables {
            let known = self.tables.entry(symbols[table as usize]);
            let known = known.or_insert(Some(by_symbol));
            if *known != Some(by_symbol) {
                *known = None;
            }
        }
        let others = found.labels.iter().filter(|&&it| it != by);
        self.exposed.extend(others.map(|&it| symbols[it as usize]));
    }

    /// Whether only `function` mentions a variable.
    pub(crate) fn is_only_in(&self, table: SymbolId, function: SymbolId) -> bool {
        self.tables.get(&table) == Some(&Some(function))
    }

    /// Whether another function mentions a label of a function.
    pub(crate) fn is_exposed(&self, function: SymbolId) -> bool {
        self.exposed.contains(&function)
    }
}

/// The globals that a value of the module leads to, by number.
#[derive(Debug, Clone, Default)]
struct Lead {
    /// Variables whose values lead to labels.
    tables: Vec<u32>,
    /// Functions whose labels it contains.
    labels: Vec<u32>,
}

impl Lead {
    fn is_nothing(&self) -> bool {
        self.tables.is_empty() && self.labels.is_empty()
    }

    /// Adds the globals of another lead; returns whether any was new.
    fn add(&mut self, other: &Lead) -> bool {
        let mut changed = false;
        for (into, from) in [
            (&mut self.tables, &other.tables),
            (&mut self.labels, &other.labels),
        ] {
            for &it in from {
                if !into.contains(&it) {
                    into.push(it);
                    changed = true;
                }
            }
        }
        changed
    }
}

/// The globals that the globals and constants of a module lead to.
struct Leads {
    values: Vec<Lead>,
}

impl Leads {
    fn of(module: &Module) -> Option<Leads> {
        let first = module.globals.len();
        if (module.constants.iter()).any(|(_, it)| *it == Constant::Other) {
            return None;
        }
        let mut values = vec![Lead::default(); first + module.constants.len()];
        for _ in 0..DEPTH {
            let mut changed = false;
            for (at, (_, constant)) in module.constants.iter().enumerate() {
                let mut found = std::mem::take(&mut values[first + at]);
                if let Constant::Label(function, _) = constant {
                    let label = Lead {
                        labels: vec![function.0],
                        ..Lead::default()
                    };
                    changed |= found.add(&label);
                }
                parts_of(constant, &mut |part| {
                    if let Some(lead) = values.get(part.index()) {
                        changed |= found.add(lead);
                    }
                });
                values[first + at] = found;
            }
            for (number, details) in module.details.iter().enumerate() {
                let initializer = details.initializer.and_then(|it| values.get(it.index()));
                let is_table = initializer.is_some_and(|it| !it.is_nothing());
                if is_table && values[number].is_nothing() {
                    values[number].tables.push(number as u32);
                    changed = true;
                }
            }
            if !changed {
                return Some(Leads { values });
            }
        }
        None
    }
}

/// The values that a constant is made of.
pub(crate) fn parts_of(constant: &Constant, take: &mut impl FnMut(ValueId)) {
    match constant {
        Constant::Aggregate(parts) | Constant::Offset(_, parts) => {
            parts.iter().copied().for_each(take);
        }
        Constant::Cast(_, of) => take(*of),
        Constant::Binary(_, a, b) => [*a, *b].into_iter().for_each(take),
        _ => {}
    }
}
