//! Joins objects into a [`Graph`]: one image in which every reference is bound to its definition.
//!
//! Invariants after [`Graph::new`]:
//! - Sections and symbols of all objects are in two flat tables; an object has the index of its
//!   first entry in each. Ids in both are in range.
//! - `canonical` of a symbol is the symbol that references are bound to, in one step.
//!   A canonical symbol that is [`Origin::Undefined`] comes from outside.
//! - Of the groups with one key, only the first object's is live.
//!
//! With a single object no name is hashed: its table has each name once.

use std::collections::HashMap;
use std::fmt;

use crate::error::{LinkError, Needer, Problem, Site};
use crate::frames::{self, Record};
use crate::object::{Group, Object};
use crate::relocation;
use crate::section::{Class, Presence, Rela, Section, SectionId};
use crate::symbol::{Bind, Binding, Definition, Kind, Origin, Symbol, SymbolId};

/// Objects joined into one image.
#[derive(Debug)]
pub struct Graph<'d> {
    pub(crate) objects: Vec<ObjectInfo>,
    pub(crate) sections: Vec<Section<'d>>,
    pub(crate) symbols: Vec<Symbol<'d>>,
    pub(crate) groups: Vec<Group<'d>>,
    pub(crate) records: Vec<Record>,
    /// Runs of sections whose names are C identifiers.
    pub(crate) bounds: Vec<Bound>,
    /// Definitions that yield, and the symbols from outside that they yield to, which are
    /// in ascending order.
    pub(crate) preempted: Vec<(SymbolId, SymbolId)>,
    /// Canonical symbol of each global name; built when first needed.
    pub(crate) names: Option<HashMap<&'d str, SymbolId>>,
}

/// The data of an object that the graph keeps beside its tables.
#[derive(Debug)]
pub(crate) struct ObjectInfo {
    pub(crate) name: Box<str>,
    pub(crate) first_section: u32,
    pub(crate) first_symbol: u32,
    pub(crate) symbol_count: u32,
}

/// All sections of one C identifier, laid out side by side.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) class: Class,
    pub(crate) members: Vec<SectionId>,
}

/// A symbol that an image needs from outside.
#[derive(Clone, Copy)]
pub struct Undefined<'g, 'd> {
    /// The name.
    pub name: &'d str,
    /// Whether the symbol may be absent.
    pub weak: bool,
    graph: &'g Graph<'d>,
    symbol: SymbolId,
}

impl fmt::Debug for Undefined<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Undefined { name, weak, .. } = self;
        f.debug_struct("Undefined")
            .field("name", name)
            .field("weak", weak)
            .finish_non_exhaustive()
    }
}

impl Undefined<'_, '_> {
    /// The places that need it. Walks all relocations of the image.
    pub fn needed_by(&self) -> Vec<Needer> {
        self.graph.needers(self.symbol)
    }
}

impl<'d> Graph<'d> {
    /// Joins `objects`, in this order, into one image.
    ///
    /// # Errors
    ///
    /// Two strong definitions of one name, sections of one C-identifier name that cannot lie side
    /// by side, invalid unwind records.
    pub fn new(objects: Vec<Object<'d>>) -> Result<Graph<'d>, LinkError> {
        let single = objects.len() == 1;
        let mut graph = join(objects)?;
        if !single {
            graph.choose_groups();
            graph.resolve_names()?;
        }
        graph.find_bounds()?;
        let mut records = Vec::new();
        for (index, section) in graph.sections.iter().enumerate() {
            if section.class == Class::EhFrame && section.presence == Presence::Live {
                let object = &graph.objects[section.object as usize].name;
                frames::split(object, SectionId(index as u32), section, &mut records)?;
            }
        }
        graph.records = records;
        Ok(graph)
    }

    /// The global definitions of the image, each once.
    pub fn definitions(&self) -> impl Iterator<Item = Definition<'d>> + '_ {
        self.defining_symbols().map(|(_, definition)| definition)
    }

    /// The symbols that the image needs from outside, each once. Names that no live relocation
    /// refers to are left out.
    pub fn undefined(&self) -> impl Iterator<Item = Undefined<'_, 'd>> + '_ {
        let mut used = vec![false; self.symbols.len()];
        self.for_each_reference(|_, _, target| used[target.index()] = true);
        self.symbols
            .iter()
            .enumerate()
            .filter_map(move |(index, symbol)| {
                let from_outside = symbol.origin == Origin::Undefined && symbol.bind != Bind::Local;
                (used[index] && from_outside).then_some(Undefined {
                    name: symbol.name,
                    weak: symbol.bind == Bind::Weak,
                    graph: self,
                    symbol: SymbolId(index as u32),
                })
            })
    }

    /// Gives up the definition of `name`, which lost against one elsewhere: it becomes a reference.
    /// If it was the key of its group, or the last symbol that the group defined, the whole group
    /// is dropped, with all its definitions and constructors. Does nothing if `name` is not defined
    /// here.
    pub fn discard(&mut self, name: &str) {
        if self.names.is_none() {
            let globals = self.symbols.iter().enumerate().filter(|(index, symbol)| {
                symbol.bind != Bind::Local && symbol.canonical.index() == *index
            });
            self.names = Some(
                globals
                    .map(|(i, symbol)| (symbol.name, SymbolId(i as u32)))
                    .collect(),
            );
        }
        let Some(&id) = self.names.as_ref().and_then(|names| names.get(name)) else {
            return;
        };
        let defined = matches!(
            self.symbols[id.index()].origin,
            Origin::Section(_) | Origin::Absolute | Origin::Common
        );
        if !defined {
            return;
        }
        let origin = std::mem::replace(&mut self.symbols[id.index()].origin, Origin::Undefined);
        self.symbols[id.index()].bind = Bind::Strong;
        let Origin::Section(section) = origin else {
            return;
        };
        let Some(group) = self.sections[section.index()].group else {
            return;
        };
        let members = self.groups[group as usize].members.clone();
        let is_member =
            |origin| matches!(origin, Origin::Section(section) if members.contains(&section));
        let object = &self.objects[self.sections[section.index()].object as usize];
        let symbols = object.symbols();
        let others = self.symbols[symbols.clone()].iter();
        let last = !others
            .into_iter()
            .any(|s| s.bind != Bind::Local && is_member(s.origin));
        if !last && self.groups[group as usize].key != name {
            return;
        }
        for &member in &members {
            self.sections[member.index()].presence = Presence::Lost;
        }
        for symbol in &mut self.symbols[symbols] {
            if symbol.bind != Bind::Local && is_member(symbol.origin) {
                symbol.origin = Origin::Undefined;
                symbol.bind = Bind::Strong;
            }
        }
    }

    /// Canonical symbols that are definitions for others.
    pub(crate) fn defining_symbols(&self) -> impl Iterator<Item = (SymbolId, Definition<'d>)> + '_ {
        self.symbols
            .iter()
            .enumerate()
            .filter_map(|(index, symbol)| {
                let id = SymbolId(index as u32);
                if symbol.bind == Bind::Local || symbol.canonical != id {
                    return None;
                }
                match symbol.origin {
                    Origin::Absolute | Origin::Common => {}
                    Origin::Section(section) if self.sections[section.index()].is_placed() => {}
                    _ => return None,
                }
                Some((id, self.definition(symbol)))
            })
    }

    /// The description of a symbol for other images.
    pub(crate) fn definition(&self, symbol: &Symbol<'d>) -> Definition<'d> {
        let binding = match (symbol.origin, symbol.bind) {
            (Origin::Common, _) => Binding::Common,
            (_, Bind::Weak) => Binding::Weak,
            _ => Binding::Strong,
        };
        let Symbol {
            name,
            hidden,
            kind,
            size,
            ..
        } = *symbol;
        Definition {
            name,
            binding,
            hidden,
            kind,
            size,
        }
    }

    /// The canonical target of a relocation in a section of `object`.
    pub(crate) fn target(&self, object: u32, relocation: &Rela) -> Result<SymbolId, Problem> {
        let index = relocation.r_sym(object::LittleEndian, false);
        let info = &self.objects[object as usize];
        if index >= info.symbol_count {
            return Err(Problem::NoSuchSymbol(index));
        }
        Ok(self.symbols[(info.first_symbol + index) as usize].canonical)
    }

    pub(crate) fn relocation_error(
        &self,
        section: SectionId,
        relocation: &Rela,
        problem: Problem,
    ) -> LinkError {
        let from = &self.sections[section.index()];
        let name = match self.target(from.object, relocation) {
            Ok(target) => match &self.symbols[target.index()] {
                Symbol {
                    name: "",
                    origin: Origin::Section(id),
                    ..
                } => self.sections[id.index()].name,
                symbol => symbol.name,
            },
            Err(_) => "",
        };
        let kind = relocation.r_type(object::LittleEndian, false).0;
        LinkError::Relocation {
            site: Box::new(Site {
                object: self.objects[from.object as usize].name.clone(),
                section: from.name.into(),
                offset: relocation.r_offset.get(object::LittleEndian),
                relocation: relocation::name(kind),
                symbol: name.into(),
            }),
            problem,
        }
    }

    /// Calls `visit` with every live relocation and its canonical target.
    pub(crate) fn for_each_reference(&self, mut visit: impl FnMut(SectionId, &Rela, SymbolId)) {
        for (index, section) in self.sections.iter().enumerate() {
            if !section.is_placed() {
                continue;
            }
            for relocation in section.relocations {
                if let Ok(target) = self.target(section.object, relocation) {
                    visit(SectionId(index as u32), relocation, target);
                }
            }
        }
        let live = self.live_records();
        for (record, _) in self.records.iter().zip(live).filter(|(_, live)| *live) {
            let section = &self.sections[record.section.index()];
            for relocation in &section.relocations[record.relocations.clone()] {
                if let Ok(target) = self.target(section.object, relocation) {
                    visit(record.section, relocation, target);
                }
            }
        }
    }

    /// For each unwind record, whether its function (or, for a CIE, any
    /// function that uses it) is in the image.
    pub(crate) fn live_records(&self) -> Vec<bool> {
        let mut live = vec![false; self.records.len()];
        for (index, record) in self.records.iter().enumerate() {
            let Some(cie) = record.cie else { continue };
            let section = self.record_function(record);
            if section.is_some_and(|id| self.sections[id.index()].is_placed())
                && self.sections[record.section.index()].presence == Presence::Live
            {
                live[index] = true;
                live[cie] = true;
            }
        }
        live
    }

    /// The section of the function that an FDE is for.
    pub(crate) fn record_function(&self, record: &Record) -> Option<SectionId> {
        let section = &self.sections[record.section.index()];
        let at = record.start + frames::FUNCTION_OFFSET;
        let relocation = section.relocations[record.relocations.clone()]
            .iter()
            .find(|r| r.r_offset.get(object::LittleEndian) == at)?;
        // The record is for the function in its own object, even if another definition of the name
        // won.
        let index = relocation.r_sym(object::LittleEndian, false);
        let info = &self.objects[section.object as usize];
        let symbol = self
            .symbols
            .get(info.first_symbol as usize + index as usize)?;
        match symbol.origin {
            Origin::Section(id) if index < info.symbol_count => Some(id),
            _ => None,
        }
    }

    /// The places that refer to `symbol`, sorted, each once.
    pub(crate) fn needers(&self, symbol: SymbolId) -> Vec<Needer> {
        let mut needers = Vec::new();
        self.for_each_reference(|section, relocation, target| {
            if target == symbol {
                needers.push(self.needer(section, relocation));
            }
        });
        needers.sort();
        needers.dedup();
        needers
    }

    fn needer(&self, id: SectionId, relocation: &Rela) -> Needer {
        let section = &self.sections[id.index()];
        let info = &self.objects[section.object as usize];
        let offset = relocation.r_offset.get(object::LittleEndian);
        let inside = self.symbols[info.symbols()].iter().find(|symbol| {
            symbol.origin == Origin::Section(id)
                && !symbol.name.is_empty()
                && symbol.value <= offset
                && offset - symbol.value < symbol.size
        });
        Needer {
            object: info.name.clone(),
            section: section.name.into(),
            inside: inside.map(|symbol| symbol.name.into()),
        }
    }

    pub(crate) fn object_of(&self, symbol: SymbolId) -> &str {
        let next = self
            .objects
            .partition_point(|object| object.first_symbol <= symbol.0);
        next.checked_sub(1)
            .map_or("", |index| &self.objects[index].name)
    }
}

impl ObjectInfo {
    pub(crate) fn symbols(&self) -> std::ops::Range<usize> {
        let first = self.first_symbol as usize;
        first..first + self.symbol_count as usize
    }
}

/// The first indices of one object in the graph's tables.
struct First {
    object: u32,
    section: u32,
    symbol: u32,
    group: u32,
}

impl First {
    /// Appends the object's tables, with ids shifted.
    fn append<'d>(&self, object: Object<'d>, graph: &mut Graph<'d>) {
        let moved = |id: SectionId| SectionId(id.0 + self.section);
        let sections = object.sections.into_iter().map(|section| Section {
            object: self.object,
            link: section.link.map(moved),
            group: section.group.map(|group| group + self.group),
            ..section
        });
        graph.sections.extend(sections);
        let symbols = object.symbols.into_iter().map(|symbol| Symbol {
            origin: match symbol.origin {
                Origin::Section(id) => Origin::Section(moved(id)),
                origin => origin,
            },
            canonical: SymbolId(symbol.canonical.0 + self.symbol),
            ..symbol
        });
        graph.symbols.extend(symbols);
        let groups = object.groups.into_iter().map(|group| Group {
            members: group.members.iter().map(|&id| moved(id)).collect(),
            ..group
        });
        graph.groups.extend(groups);
    }
}

/// Joins the tables of all objects; ids of later objects are shifted.
fn join(objects: Vec<Object<'_>>) -> Result<Graph<'_>, LinkError> {
    let mut graph = Graph {
        objects: Vec::with_capacity(objects.len()),
        sections: Vec::new(),
        symbols: Vec::new(),
        groups: Vec::new(),
        records: Vec::new(),
        bounds: Vec::new(),
        preempted: Vec::new(),
        names: None,
    };
    for (number, mut object) in objects.into_iter().enumerate() {
        let too_many = LinkError::WrongKind {
            object: "image".into(),
            what: "more than 2^32 sections, symbols or objects",
        };
        let counts = (
            u32::try_from(graph.sections.len() + object.sections.len()),
            u32::try_from(graph.symbols.len() + object.symbols.len()),
            u32::try_from(number),
        );
        let (Ok(_), Ok(_), Ok(number)) = counts else {
            return Err(too_many);
        };
        let first_section = graph.sections.len() as u32;
        let first_symbol = graph.symbols.len() as u32;
        let first_group = graph.groups.len() as u32;
        graph.objects.push(ObjectInfo {
            name: std::mem::take(&mut object.name),
            first_section,
            first_symbol,
            symbol_count: object.symbols.len() as u32,
        });
        if number == 0 {
            graph.sections = object.sections;
            graph.symbols = object.symbols;
            graph.groups = object.groups;
            continue;
        }
        let first = First {
            object: number,
            section: first_section,
            symbol: first_symbol,
            group: first_group,
        };
        first.append(object, &mut graph);
    }
    // The first entry is ELF's null symbol, and no reference.
    if let Some(first) = graph.symbols.first_mut() {
        first.kind = Kind::Data;
    }
    Ok(graph)
}
