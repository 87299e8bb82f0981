//! Binds an image's references across objects: groups, then names, then symbols that the linker
//! itself defines.
//!
//! Of definitions of one name the strongest wins, of equals the first:
//! strong over common (`SHN_COMMON`, merged with others of its kind to the
//! larger size and alignment) over weak over none. Two strong ones are an
//! error. This is the gABI's rule, chapter *Symbol Table*.

use std::collections::HashMap;

use crate::error::LinkError;
use crate::graph::{Bound, Graph};
use crate::section::{Class, Presence, SectionId};
use crate::symbol::{Bind, Origin, Symbol, SymbolId};

impl<'d> Graph<'d> {
    /// Chooses the first of the COMDAT groups with one key.
    pub(crate) fn choose_groups(&mut self) {
        let mut chosen = HashMap::with_capacity(self.groups.len());
        for (index, group) in self.groups.iter().enumerate() {
            if group.comdat && *chosen.entry(group.key).or_insert(index) != index {
                for member in &group.members {
                    self.sections[member.index()].presence = Presence::Lost;
                }
            }
        }
        for symbol in &mut self.symbols {
            if let Origin::Section(id) = symbol.origin
                && symbol.bind != Bind::Local
                && self.sections[id.index()].presence == Presence::Lost
            {
                symbol.origin = Origin::Undefined;
                symbol.bind = Bind::Strong;
            }
        }
    }

    /// Finds one canonical symbol for each global name.
    pub(crate) fn resolve_names(&mut self) -> Result<(), LinkError> {
        let mut names: HashMap<&'d str, SymbolId> = HashMap::with_capacity(self.symbols.len());
        for index in 0..self.symbols.len() {
            let id = SymbolId(index as u32);
            if self.symbols[index].bind == Bind::Local {
                continue;
            }
            let name = self.symbols[index].name;
            let old = *names.entry(name).or_insert(id);
            if old != id {
                let winner = self.merge(old, id)?;
                names.insert(name, winner);
            }
        }
        // A winner only replaces earlier symbols, so a chain ends at the winner.
        for index in 0..self.symbols.len() {
            let mut end = self.symbols[index].canonical;
            while self.symbols[end.index()].canonical != end {
                end = self.symbols[end.index()].canonical;
            }
            self.symbols[index].canonical = end;
        }
        self.names = Some(names);
        Ok(())
    }

    /// Merges two global symbols of one name; returns the one that stays.
    fn merge(&mut self, old: SymbolId, new: SymbolId) -> Result<SymbolId, LinkError> {
        let rank = |symbol: &Symbol<'_>| match (symbol.origin, symbol.bind) {
            (Origin::Undefined, _) => 0,
            (Origin::Common, _) => 2,
            (_, Bind::Weak) => 1,
            _ => 3,
        };
        let (before, after) = (&self.symbols[old.index()], &self.symbols[new.index()]);
        let (old_rank, new_rank) = (rank(before), rank(after));
        let hidden = before.hidden || after.hidden;
        if old_rank == 3 && new_rank == 3 {
            return Err(LinkError::Duplicate {
                symbol: before.name.into(),
                first: self.object_of(old).into(),
                second: self.object_of(new).into(),
            });
        }
        let (winner, loser) = if new_rank > old_rank {
            (new, old)
        } else {
            (old, new)
        };
        let lost = self.symbols[loser.index()].clone();
        self.symbols[loser.index()].canonical = winner;
        let stays = &mut self.symbols[winner.index()];
        stays.hidden = hidden;
        match stays.origin {
            // A reference is weak only if all are.
            Origin::Undefined => stays.bind = stays.bind.max(lost.bind),
            Origin::Common if lost.origin == Origin::Common => {
                stays.value = stays.value.max(lost.value);
                stays.size = stays.size.max(lost.size);
            }
            _ => {}
        }
        Ok(winner)
    }

    /// Gathers the sections with C-identifier names, and binds `__start_` and `__stop_` symbols and
    /// the linker's own names.
    pub(crate) fn find_bounds(&mut self) -> Result<(), LinkError> {
        let mut bounds: HashMap<&'d str, usize> = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            if section.presence != Presence::Live || !section.is_bounded() {
                continue;
            }
            let id = SectionId(index as u32);
            match bounds
                .get(section.name)
                .map(|&bound| &mut self.bounds[bound])
            {
                Some(bound) => {
                    bound.class = side_by_side(bound.class, section.class).ok_or_else(|| {
                        LinkError::Section {
                            object: self.objects[section.object as usize].name.clone(),
                            section: section.name.into(),
                            index: (id.0 - self.objects[section.object as usize].first_section)
                                as usize,
                            what: "code here, data in another section of the name",
                        }
                    })?;
                    bound.members.push(id);
                }
                None => {
                    bounds.insert(section.name, self.bounds.len());
                    self.bounds.push(Bound {
                        class: section.class,
                        members: vec![id],
                    });
                }
            }
        }
        for symbol in &mut self.symbols {
            if symbol.origin != Origin::Undefined || symbol.bind == Bind::Local {
                continue;
            }
            match symbol.name {
                "_GLOBAL_OFFSET_TABLE_" => symbol.origin = Origin::GotBase,
                "_TLS_MODULE_BASE_" => symbol.origin = Origin::TemplateBase,
                _ => {}
            }
            let Some(rest) = symbol.name.strip_prefix("__st") else {
                continue;
            };
            let (section, end) = match (rest.strip_prefix("art_"), rest.strip_prefix("op_")) {
                (Some(section), _) => (section, false),
                (_, Some(section)) => (section, true),
                _ => continue,
            };
            if let Some(&bound) = bounds.get(section) {
                symbol.origin = Origin::Bound {
                    bound: bound as u32,
                    end,
                };
            }
        }
        Ok(())
    }
}

/// The class for sections of two classes that lie side by side.
fn side_by_side(one: Class, other: Class) -> Option<Class> {
    match (one, other) {
        _ if one == other => Some(one),
        (Class::Text, _) | (_, Class::Text) => None,
        (Class::ReadOnly, Class::RelRo) | (Class::RelRo, Class::ReadOnly) => Some(Class::RelRo),
        _ => Some(Class::Data),
    }
}
