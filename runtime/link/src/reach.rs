//! Finds names from outside that code or data refers to by less than an address: candidates for the
//! copy relocations and canonical PLT entries of a static linker.

use std::collections::{BTreeMap, HashSet};

use object::LittleEndian;

use crate::object::Object;
use crate::relax;
use crate::relocation::{self, Expression};
use crate::section::Class;
use crate::symbol::{Bind, Origin, Symbol};

/// The short fields that hold the address of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shortness {
    /// A field holds a distance of less than 64 bits from itself (`R_X86_64_PC32`), and is no
    /// operand of a branch.
    pub relative: bool,
    /// A field holds the address in less than 64 bits (`R_X86_64_32`, `R_X86_64_32S`).
    pub absolute: bool,
}

/// The names that `objects` do not define and that some of their fields hold in less than 64 bits.
/// Branches and distances in unwind records are left out: both may go through a word.
pub fn short_references<'d>(objects: &[Object<'d>]) -> BTreeMap<&'d str, Shortness> {
    let mut found: BTreeMap<&'d str, Shortness> = BTreeMap::new();
    for object in objects {
        for section in &object.sections {
            if section.class == Class::Dropped {
                continue;
            }
            // Distances in unwind records may go to an entry of the PLT.
            let records = section.class == Class::EhFrame;
            for relocation in section.relocations {
                let index = relocation.r_sym(LittleEndian, false) as usize;
                let rule = relocation::rule(relocation.r_type(LittleEndian, false).0);
                let (Some(symbol), Some(rule)) = (object.symbols.get(index), rule) else {
                    continue;
                };
                let outside = symbol.origin == Origin::Undefined && symbol.bind != Bind::Local;
                if !outside || rule.width >= 8 {
                    continue;
                }
                let at = relocation.r_offset.get(LittleEndian) as usize;
                let branch = || section.class == Class::Text && relax::is_branch(section.data, at);
                match rule.expression {
                    Expression::Absolute => found.entry(symbol.name).or_default().absolute = true,
                    Expression::Relative if !records && !branch() => {
                        found.entry(symbol.name).or_default().relative = true;
                    }
                    _ => {}
                }
            }
        }
    }
    if !found.is_empty() {
        let (_, defined) = undefined_names(objects);
        found.retain(|name, _| !defined.contains(name));
    }
    found
}

/// The names that some of `objects` need from outside of them, and those that some define. A name
/// may be in both sets.
pub fn undefined_names<'d>(objects: &[Object<'d>]) -> (HashSet<&'d str>, HashSet<&'d str>) {
    let symbols = objects.iter().flat_map(|object| &object.symbols);
    let shared = symbols.filter(|symbol| symbol.bind != Bind::Local);
    let (undefined, defined): (Vec<_>, Vec<_>) =
        shared.partition(|symbol| symbol.origin == Origin::Undefined);
    let names = |symbols: Vec<&Symbol<'d>>| symbols.into_iter().map(|s| s.name).collect();
    (names(undefined), names(defined))
}
