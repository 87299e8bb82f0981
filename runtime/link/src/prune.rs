//! Leaves out sections that no kept section refers to.
//!
//! A section is kept if it is a root or a kept section's relocations reach it. Roots: the sections
//! of kept names, arrays of constructors and destructors, retained sections. Besides relocations,
//! these keep others: an FDE, when its function is kept, keeps the referents of itself and its CIE
//! (exception table, personality); a section, those linked to it by `SHF_LINK_ORDER`; a member, the
//! rest of its group; a `__start_` or `__stop_` symbol, all sections of the name.
//!
//! Linear in sections, relocations and records.

use crate::graph::Graph;
use crate::section::{Class, Presence, SectionId};
use crate::symbol::{Bind, Origin};

impl Graph<'_> {
    /// Leaves out every section that is not reachable from a global name that
    /// `keep` accepts, from arrays of constructors or from retained sections.
    pub fn prune(&mut self, mut keep: impl FnMut(&str) -> bool) {
        let mut marker = Marker::new(self);
        for (index, section) in self.sections.iter().enumerate() {
            if section.retain || matches!(section.class, Class::Array { .. }) {
                marker.mark(SectionId(index as u32));
            }
        }
        for (index, symbol) in self.symbols.iter().enumerate() {
            if symbol.bind != Bind::Local
                && symbol.canonical.index() == index
                && let Origin::Section(section) = symbol.origin
                && keep(symbol.name)
            {
                marker.mark(section);
            }
        }
        marker.run();
        let kept = marker.kept;
        for (section, kept) in self.sections.iter_mut().zip(kept) {
            if !kept && section.is_placed() {
                section.presence = Presence::Pruned;
            }
        }
    }
}

struct Marker<'g, 'd> {
    graph: &'g Graph<'d>,
    kept: Vec<bool>,
    work: Vec<SectionId>,
    /// Groups and CIEs that were followed already: a second time finds nothing new.
    groups: Vec<bool>,
    cies: Vec<bool>,
    /// (function's section, record), sorted.
    frames: Vec<(SectionId, usize)>,
    /// (section, one linked to it), sorted.
    links: Vec<(SectionId, SectionId)>,
}

impl<'g, 'd> Marker<'g, 'd> {
    fn new(graph: &'g Graph<'d>) -> Self {
        let frames = graph
            .records
            .iter()
            .enumerate()
            .filter_map(|(index, record)| {
                record.cie?;
                Some((graph.record_function(record)?, index))
            });
        let mut frames: Vec<_> = frames.collect();
        frames.sort_unstable();
        let links = graph.sections.iter().enumerate();
        let links = links.filter_map(|(index, s)| Some((s.link?, SectionId(index as u32))));
        let mut links: Vec<_> = links.collect();
        links.sort_unstable();
        Marker {
            graph,
            kept: vec![false; graph.sections.len()],
            work: Vec::new(),
            groups: vec![false; graph.groups.len()],
            cies: vec![false; graph.records.len()],
            frames,
            links,
        }
    }

    fn mark(&mut self, id: SectionId) {
        let section = &self.graph.sections[id.index()];
        if section.is_placed() && !self.kept[id.index()] {
            self.kept[id.index()] = true;
            self.work.push(id);
        }
    }

    fn run(&mut self) {
        let graph = self.graph;
        while let Some(id) = self.work.pop() {
            let section = &graph.sections[id.index()];
            self.follow(id, 0..section.relocations.len());
            let first = self.frames.partition_point(|&(function, _)| function < id);
            for at in first..self.frames.len() {
                let (function, record) = self.frames[at];
                if function != id {
                    break;
                }
                let record = &graph.records[record];
                self.follow(record.section, record.relocations.clone());
                if let Some(index) = record.cie
                    && !std::mem::replace(&mut self.cies[index], true)
                {
                    let cie = &graph.records[index];
                    self.follow(cie.section, cie.relocations.clone());
                }
            }
            let first = self.links.partition_point(|&(section, _)| section < id);
            for at in first..self.links.len() {
                let (section, linked) = self.links[at];
                if section != id {
                    break;
                }
                self.mark(linked);
            }
            if let Some(group) = section.group
                && !std::mem::replace(&mut self.groups[group as usize], true)
            {
                for &member in &graph.groups[group as usize].members {
                    self.mark(member);
                }
            }
        }
    }

    /// Marks the targets of some relocations of a section.
    fn follow(&mut self, id: SectionId, relocations: std::ops::Range<usize>) {
        let section = &self.graph.sections[id.index()];
        for relocation in &section.relocations[relocations] {
            let Ok(target) = self.graph.target(section.object, relocation) else {
                continue;
            };
            match self.graph.symbols[target.index()].origin {
                Origin::Section(section) => self.mark(section),
                Origin::Bound { bound, .. } => {
                    for &member in &self.graph.bounds[bound as usize].members {
                        self.mark(member);
                    }
                }
                _ => {}
            }
        }
    }
}
