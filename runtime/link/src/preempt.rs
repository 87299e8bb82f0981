//! Definitions that are preempted by an address from outside.
//!
//! A *preempted* definition keeps its place in the image, but references to its name are bound to a
//! symbol from outside: the stub of a function, or the storage that a variable has already.
//! `-shared` does the same for names that another file may define.
//!
//! | reference | goes to |
//! |---|---|
//! | by the symbol, from any section | the symbol outside |
//! | from the unwind record of the function itself | the definition |
//! | by section and offset, or without a relocation | the definition |
//!
//! The assembler decides the last row: it names global symbols in relocations (GNU `as` and LLVM
//! do, for ELF), unless the compiler gave it a local alias, as Clang does with `-fPIC
//! -fno-semantic-interposition`. Calls by section and offset from another section are detected
//! ([`Graph::bypassed`]); references without a relocation are not.
//!
//! Implementation: the symbol stays a definition. A new, undefined symbol of its name becomes its
//! canonical symbol, and that of all symbols whose canonical symbol it was.

use std::collections::{HashMap, HashSet};

use object::LittleEndian;

use crate::graph::Graph;
use crate::placed::Placed;
use crate::relax;
use crate::relocation::{self, Expression};
use crate::section::{Class, SectionId};
use crate::symbol::{Bind, Definition, Kind, Origin, Symbol, SymbolId};

/// A definition and its place in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place<'d> {
    /// The definition.
    pub definition: Definition<'d>,
    /// Number of the object, in the order given to [`Graph::new`].
    pub object: u32,
    /// Section of the image and offset in it; `None` for a definition outside of sections.
    pub at: Option<(u32, u64)>,
    /// Declared to be a function (`STT_FUNC`), not only a label in code.
    pub callable: bool,
    /// In a section that is constant once it is linked.
    pub constant: bool,
    /// In a section group: other objects may have a copy, and callers may hold one.
    pub grouped: bool,
}

impl<'d> Graph<'d> {
    /// The global definitions of the image, each once, with its place.
    pub fn places(&self) -> impl Iterator<Item = Place<'d>> + '_ {
        self.defining_symbols()
            .map(|(id, definition)| self.place(id, definition))
    }

    fn place(&self, id: SymbolId, definition: Definition<'d>) -> Place<'d> {
        let symbol = &self.symbols[id.index()];
        let section = match symbol.origin {
            Origin::Section(id) => Some(id),
            _ => None,
        };
        let held = section.map(|id| &self.sections[id.index()]);
        let after = self.objects.partition_point(|o| o.first_symbol <= id.0);
        Place {
            definition,
            object: after.saturating_sub(1) as u32,
            at: section.map(|id| (id.0, symbol.value)),
            callable: symbol.callable,
            constant: held.is_some_and(|s| matches!(s.class, Class::ReadOnly | Class::RelRo)),
            grouped: held.is_some_and(|s| s.group.is_some()),
        }
    }

    /// Names of local variables that are writable.
    pub fn local_variables(&self) -> impl Iterator<Item = &'d str> + '_ {
        let local = self.symbols.iter().filter(|s| s.bind == Bind::Local);
        local.filter_map(|symbol| {
            let Origin::Section(id) = symbol.origin else {
                return None;
            };
            let class = self.sections[id.index()].class;
            let changes = matches!(
                class,
                Class::Data | Class::ZeroFill | Class::TlsData | Class::TlsZeroFill
            );
            (changes && symbol.size != 0 && !symbol.name.is_empty()).then_some(symbol.name)
        })
    }

    /// Names of definitions that some code or data reaches only if they are near: without the GOT,
    /// and by a field smaller than an address; thread-locals without a lookup by module.
    pub fn reached_near(&self) -> HashSet<&'d str> {
        let mut near = HashSet::new();
        self.for_each_reference(|from, relocation, target| {
            let symbol = &self.symbols[target.index()];
            let kind = relocation.r_type(LittleEndian, false).0;
            // Unwind records refer to personalities and types through words of their own.
            let loaded = self.sections[from.index()].class != Class::EhFrame;
            if symbol.bind != Bind::Local
                && loaded
                && relocation::rule(kind).is_some_and(|rule| rule.is_short())
            {
                near.insert(symbol.name);
            }
        });
        near
    }

    /// Binds references to the definitions that `wanted` accepts to symbols outside.
    pub fn preempt(&mut self, mut wanted: impl FnMut(&Definition<'d>) -> bool) {
        let chosen: Vec<SymbolId> = self
            .defining_symbols()
            .filter(|(_, definition)| wanted(definition))
            .map(|(id, _)| id)
            .collect();
        let mut outside: HashMap<SymbolId, SymbolId> = HashMap::with_capacity(chosen.len());
        for id in chosen {
            let fresh = SymbolId(self.symbols.len() as u32);
            let defined = &mut self.symbols[id.index()];
            if defined.origin == Origin::Common {
                // It has no place yet, and needs none.
                defined.origin = Origin::Undefined;
                defined.bind = Bind::Strong;
                continue;
            }
            let symbol = Symbol {
                value: 0,
                origin: Origin::Undefined,
                bind: Bind::Strong,
                canonical: fresh,
                ..defined.clone()
            };
            self.symbols.push(symbol);
            outside.insert(id, fresh);
            self.preempted.push((id, fresh));
        }
        for symbol in &mut self.symbols {
            if let Some(&fresh) = outside.get(&symbol.canonical) {
                symbol.canonical = fresh;
            }
        }
        if let Some(names) = &mut self.names {
            for id in names.values_mut() {
                if let Some(&fresh) = outside.get(id) {
                    *id = fresh;
                }
            }
        }
    }

    /// Preempted functions that another section calls by section and offset, so that the call
    /// bypasses the symbol outside.
    pub fn bypassed(&self) -> Vec<&'d str> {
        let starts: HashMap<(SectionId, u64), &'d str> = self
            .preempted
            .iter()
            .filter_map(|&(id, _)| {
                let symbol = &self.symbols[id.index()];
                match symbol.origin {
                    Origin::Section(section) if symbol.kind == Kind::Function => {
                        Some(((section, symbol.value), symbol.name))
                    }
                    _ => None,
                }
            })
            .collect();
        let mut found = Vec::new();
        if starts.is_empty() {
            return found;
        }
        self.for_each_reference(|from, relocation, target| {
            let section = &self.sections[from.index()];
            let symbol = &self.symbols[target.index()];
            let Origin::Section(home) = symbol.origin else {
                return;
            };
            let kind = relocation.r_type(LittleEndian, false).0;
            let Some(rule) = relocation::rule(kind) else {
                return;
            };
            let at = relocation.r_offset.get(LittleEndian) as usize;
            let addend = relocation.r_addend.get(LittleEndian);
            let code = section.class == Class::Text;
            let bias = match rule.expression {
                Expression::Absolute => 0,
                Expression::Branch | Expression::Relative
                    if code && relax::is_branch(section.data, at) =>
                {
                    4
                }
                _ => return,
            };
            let offset = symbol.value.wrapping_add(addend as u64).wrapping_add(bias);
            if let Some(name) = starts.get(&(home, offset))
                && !found.contains(name)
            {
                found.push(*name);
            }
        });
        found
    }

    /// The definition behind a symbol that was preempted; else the symbol.
    pub(crate) fn own_definition(&self, symbol: SymbolId) -> SymbolId {
        let found = self.preempted.binary_search_by_key(&symbol, |&(_, s)| s);
        found.map_or(symbol, |index| self.preempted[index].0)
    }
}

impl<'d> Placed<'d> {
    /// Addresses and names of all functions, local ones among them.
    pub fn functions(&self) -> impl Iterator<Item = (u64, &'d str)> + '_ {
        let symbols = self.laid.graph.symbols.iter().enumerate();
        let functions = symbols.filter(|(_, symbol)| symbol.callable && !symbol.name.is_empty());
        functions.map(|(index, symbol)| (self.defined(SymbolId(index as u32)), symbol.name))
    }

    /// The preempted definitions and their addresses.
    pub fn preempted(&self) -> impl Iterator<Item = (Place<'d>, u64)> + '_ {
        let graph = &self.laid.graph;
        graph.preempted.iter().map(|&(id, _)| {
            let symbol = &graph.symbols[id.index()];
            (graph.place(id, graph.definition(symbol)), self.defined(id))
        })
    }
}
