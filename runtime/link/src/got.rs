//! The GOT, the PLT and the words of ifuncs: planned at layout, before the addresses of externals
//! are known, and filled at fix-up.
//!
//! A symbol gets a plan [`Entry`] when some live relocation may need more than its address. The
//! plan for a symbol `s`:
//!
//! | access | external | defined here | ifunc defined here |
//! |---|---|---|---|
//! | load, test or arithmetic through the GOT | word | word | word |
//! | relaxable call or jump | word, unless near | - | its ifunc word |
//! | relaxable load | word, unless near | - | word |
//! | direct call or jump (`PLT32`, or `PC32` of such an opcode) | PLT entry and word, unless near | - | - |
//! | distance in data, or to an address that is taken (`PC32`) | PLT entry and word, unless near | - | - |
//! | general dynamic | two words | two words | |
//! | initial exec | word | word | |
//!
//! *Near* is the caller's [`Hint`]; weak externals are never near, because null is far. "Defined
//! here" counts as far in another segment if [`crate::LayoutOptions::segments_near`] is false. An
//! absolute symbol counts as an external that is not near.
//!
//! A PLT entry is 8 bytes: `FF 25 rel32` (`jmp *word`) and two `CC`. Each ifunc has one that jumps
//! through its ifunc word; the entry is the ifunc's address. If a function is too far away for a
//! distance, its entry is the target: relative tables of functions are called through it. A
//! variable cannot have an entry.

use object::LittleEndian;

use crate::error::{LinkError, Problem};
use crate::graph::Graph;
use crate::relax::{self, AccessForm};
use crate::relocation::{self, Expression};
use crate::section::{Class, Rela, Section, SectionId};
use crate::symbol::{Bind, Kind, Need, Origin, SymbolId};

/// The caller's knowledge of an external symbol before it has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// None: the symbol gets a GOT word and, for direct calls, a PLT entry.
    Unknown,
    /// The symbol, or its slot, will be within 2 GiB of the image's segments. If it is not, the
    /// fix-up fails. Ignored for weak references.
    Near,
}

/// Bytes of a PLT entry.
pub(crate) const PLT_ENTRY: u64 = 8;

/// The table entries of one symbol, besides its address. Numbers count from the start of the table:
/// words of 8 bytes, entries of [`PLT_ENTRY`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) symbol: SymbolId,
    /// For a symbol to be looked up outside: the kinds of access needed.
    pub(crate) external: Option<Need>,
    near: bool,
    pub(crate) word: Option<u32>,
    pub(crate) plt: Option<u32>,
    /// Number among the ifunc words.
    pub(crate) ifunc: Option<u32>,
    /// The first of the two words, module and offset.
    pub(crate) pair: Option<u32>,
    pub(crate) thread_offset: Option<u32>,
}

/// All entries, and the sizes of the tables.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) entries: Vec<Entry>,
    /// By symbol: number of its entry plus one.
    of_symbol: Vec<u32>,
    pub(crate) words: u32,
    pub(crate) plt_entries: u32,
    pub(crate) ifunc_words: u32,
    /// The first of the two words, module and 0.
    pub(crate) module_pair: Option<u32>,
}

impl Plan {
    pub(crate) fn entry(&self, symbol: SymbolId) -> Option<&Entry> {
        self.index(symbol).map(|index| &self.entries[index])
    }

    pub(crate) fn index(&self, symbol: SymbolId) -> Option<usize> {
        (self.of_symbol[symbol.index()] as usize).checked_sub(1)
    }
}

/// Makes the plan of all live relocations of `graph`; `live` tells the live records, and
/// `segments_near` is that of [`crate::LayoutOptions`].
pub(crate) fn plan(
    graph: &Graph<'_>,
    live: &[bool],
    segments_near: bool,
    hint: &mut dyn FnMut(&str) -> Hint,
) -> Result<Plan, LinkError> {
    let plan = Plan {
        entries: Vec::new(),
        of_symbol: vec![0; graph.symbols.len()],
        words: 0,
        plt_entries: 0,
        ifunc_words: 0,
        module_pair: None,
    };
    let mut planner = Planner {
        graph,
        plan,
        hint,
        segments_near,
    };
    for (index, symbol) in graph.symbols.iter().enumerate() {
        if symbol.kind == Kind::Ifunc
            && symbol.canonical.index() == index
            && matches!(symbol.origin, Origin::Section(id) if graph.sections[id.index()].is_placed())
        {
            planner.ifunc(symbol.canonical);
        }
    }
    for (index, section) in graph.sections.iter().enumerate() {
        if section.is_placed() && !section.relocations.is_empty() {
            planner.scan(SectionId(index as u32), section, section.relocations)?;
        }
    }
    for (record, _) in graph.records.iter().zip(live).filter(|(_, live)| **live) {
        let section = &graph.sections[record.section.index()];
        let relocations = &section.relocations[record.relocations.clone()];
        planner.scan(record.section, section, relocations)?;
    }
    Ok(planner.plan)
}

struct Planner<'a, 'd> {
    graph: &'a Graph<'d>,
    plan: Plan,
    hint: &'a mut dyn FnMut(&str) -> Hint,
    segments_near: bool,
}

/// The possible distance of a symbol.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Near,
    Far,
}

impl Planner<'_, '_> {
    fn scan(
        &mut self,
        id: SectionId,
        section: &Section<'_>,
        relocations: &[Rela],
    ) -> Result<(), LinkError> {
        for relocation in relocations {
            self.one(section, relocation)
                .map_err(|problem| self.graph.relocation_error(id, relocation, problem))?;
        }
        Ok(())
    }

    fn one(&mut self, section: &Section<'_>, relocation: &Rela) -> Result<(), Problem> {
        let kind = relocation.r_type(LittleEndian, false).0;
        let rule = relocation::rule(kind).ok_or(Problem::UnknownType(kind))?;
        let symbol = self.graph.target(section.object, relocation)?;
        let at = relocation.r_offset.get(LittleEndian);
        let end = at
            .checked_add(rule.width as u64)
            .ok_or(Problem::OutsideSection)?;
        if end > section.size {
            return Err(Problem::OutsideSection);
        }
        let at = at as usize;
        match rule.expression {
            Expression::Nothing | Expression::Got | Expression::Size => {}
            Expression::DynamicOnly => return Err(Problem::DynamicOnly),
            Expression::Absolute | Expression::FromGot => self.need(symbol, ADDRESS),
            Expression::BranchFromGot => self.need(symbol, CALL),
            Expression::Relative => {
                let branch = section.class == Class::Text && relax::is_branch(section.data, at);
                let record = section.class == Class::EhFrame;
                self.need(
                    symbol,
                    match (branch, record || rule.width != 4) {
                        (true, _) => CALL,
                        (false, true) => ADDRESS,
                        (false, false) => SHORT,
                    },
                );
                let entry = branch || record || rule.width == 4 && self.is_external(symbol);
                if entry && self.reach(symbol) == Reach::Far {
                    self.plt(symbol);
                }
            }
            Expression::Branch => {
                self.need(symbol, CALL);
                if self.reach(symbol) == Reach::Far {
                    self.plt(symbol);
                }
            }
            Expression::Word | Expression::WordFromGot => {
                self.need(symbol, ADDRESS);
                self.word(symbol);
            }
            Expression::RelaxableWord => {
                let form = match section.class {
                    Class::Text => {
                        relax::form(section.data, at, relocation.r_addend.get(LittleEndian))
                    }
                    _ => AccessForm::Other,
                };
                self.relaxable(section, symbol, form);
            }
            _ => self.thread_local(symbol, rule.expression),
        }
        Ok(())
    }

    fn relaxable(&mut self, section: &Section<'_>, symbol: SymbolId, form: AccessForm) {
        let calls = matches!(form, AccessForm::Call | AccessForm::Jump);
        self.need(symbol, if calls { CALL } else { ADDRESS });
        let ifunc = self
            .plan
            .entry(symbol)
            .is_some_and(|entry| entry.ifunc.is_some());
        let word = match form {
            AccessForm::Call | AccessForm::Jump if ifunc => false,
            AccessForm::Load if ifunc => true,
            AccessForm::Other => true,
            _ => self.relaxed_reach(section, symbol) == Reach::Far,
        };
        if word {
            self.word(symbol);
        }
    }

    fn thread_local(&mut self, symbol: SymbolId, expression: Expression) {
        if expression == Expression::ModuleWords {
            // The pair is for the image as a whole: the symbol does not matter.
            if self.plan.module_pair.is_none() {
                self.plan.module_pair = Some(self.plan.words);
                self.plan.words += 2;
            }
            return;
        }
        self.need(symbol, THREAD_LOCAL);
        let next = self.plan.words;
        match expression {
            Expression::ModuleAndOffsetWords => {
                let entry = self.entry(symbol);
                if entry.pair.is_none() {
                    entry.pair = Some(next);
                    self.plan.words += 2;
                }
            }
            Expression::ThreadOffsetWord => {
                let entry = self.entry(symbol);
                if entry.thread_offset.is_none() {
                    entry.thread_offset = Some(next);
                    self.plan.words += 1;
                }
            }
            _ => {}
        }
    }

    /// Records a use of an external.
    fn need(&mut self, symbol: SymbolId, need: Need) {
        if self.is_external(symbol) {
            let entry = self.entry(symbol);
            if let Some(before) = entry.external {
                entry.external = Some(before.and(Need {
                    weak: before.weak,
                    ..need
                }));
            }
        }
    }

    fn is_external(&self, symbol: SymbolId) -> bool {
        let symbol = &self.graph.symbols[symbol.index()];
        symbol.origin == Origin::Undefined && symbol.bind != Bind::Local
    }

    fn entry(&mut self, symbol: SymbolId) -> &mut Entry {
        let number = &mut self.plan.of_symbol[symbol.index()];
        if *number == 0 {
            let here = &self.graph.symbols[symbol.index()];
            let external = here.origin == Origin::Undefined && here.bind != Bind::Local;
            let weak = here.bind == Bind::Weak;
            self.plan.entries.push(Entry {
                symbol,
                external: external.then_some(Need { weak, ..STRONG }),
                near: external && !weak && (self.hint)(here.name) == Hint::Near,
                word: None,
                plt: None,
                ifunc: None,
                pair: None,
                thread_offset: None,
            });
            *number = self.plan.entries.len() as u32;
        }
        let index = *number as usize - 1;
        &mut self.plan.entries[index]
    }

    /// Whether a direct branch is sure to reach the symbol.
    fn reach(&mut self, symbol: SymbolId) -> Reach {
        if self.is_external(symbol) && !self.entry(symbol).near {
            return Reach::Far;
        }
        Reach::Near
    }

    /// Whether an access through the GOT is sure to do without its word.
    fn relaxed_reach(&mut self, from: &Section<'_>, symbol: SymbolId) -> Reach {
        let target = &self.graph.symbols[symbol.index()];
        match target.origin {
            Origin::Undefined if target.bind != Bind::Local => self.reach(symbol),
            Origin::Undefined | Origin::Absolute => Reach::Far,
            Origin::Section(id) => {
                let same = self.graph.sections[id.index()].class == from.class;
                if same || self.segments_near {
                    Reach::Near
                } else {
                    Reach::Far
                }
            }
            _ if self.segments_near => Reach::Near,
            _ => Reach::Far,
        }
    }

    fn word(&mut self, symbol: SymbolId) {
        let next = self.plan.words;
        let entry = self.entry(symbol);
        if entry.word.is_none() {
            entry.word = Some(next);
            self.plan.words += 1;
        }
    }

    fn plt(&mut self, symbol: SymbolId) {
        self.word(symbol);
        let next = self.plan.plt_entries;
        let entry = self.entry(symbol);
        if entry.plt.is_none() {
            entry.plt = Some(next);
            self.plan.plt_entries += 1;
        }
    }

    fn ifunc(&mut self, symbol: SymbolId) {
        let (plt, ifunc) = (self.plan.plt_entries, self.plan.ifunc_words);
        let entry = self.entry(symbol);
        entry.plt = Some(plt);
        entry.ifunc = Some(ifunc);
        self.plan.plt_entries += 1;
        self.plan.ifunc_words += 1;
    }
}

/// A need without a use yet, for a symbol that must be present.
const STRONG: Need = Need {
    weak: false,
    call: false,
    address: false,
    thread_local: false,
    short: false,
};
const CALL: Need = Need {
    call: true,
    ..STRONG
};
const ADDRESS: Need = Need {
    address: true,
    ..STRONG
};
const SHORT: Need = Need {
    short: true,
    ..ADDRESS
};
const THREAD_LOCAL: Need = Need {
    thread_local: true,
    ..STRONG
};
