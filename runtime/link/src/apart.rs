//! Constants apart from the image: sections that it refers to and that lie outside of it.
//!
//! A section whose name begins with [`crate::LayoutOptions::apart`] is in no segment. It becomes a
//! [`Constant`], which the caller places: at an address of its own, or at that of an equal constant
//! of another image. It may stay there when the image is freed.
//!
//! # Invariants
//! - A constant refers to symbols from outside, to itself, and to constants before it in
//!   [`crate::Laid::constants`], by address or by distance. Anything else is
//!   [`Problem::IntoImage`]: it would point to code or data that may be freed first.
//! - Its bytes are a function of its own address, of the fields of its [`Constant`], and of the
//!   addresses of its referents. Constants for which these are equal may share a place.

use object::LittleEndian;

use crate::error::{LinkError, Problem};
use crate::got::Plan;
use crate::graph::Graph;
use crate::relocation::{self, Expression};
use crate::section::{Class, Rela, Section, SectionId};
use crate::symbol::{Bind, Need, Origin};

/// A section that lies apart from the image.
#[derive(Debug, Clone)]
pub struct Constant<'d> {
    /// The section's name.
    pub name: &'d str,
    /// Alignment in bytes, a power of two.
    pub align: usize,
    /// Its bytes, before the fields of its references are filled.
    pub bytes: &'d [u8],
    /// Its references, in the order of the object.
    pub references: Vec<Reference<'d>>,
    section: SectionId,
}

/// A field of a constant.
#[derive(Debug, Clone)]
pub struct Reference<'d> {
    /// Offset of the field in the constant.
    pub offset: u64,
    /// The ELF type of its relocation.
    pub kind: u32,
    /// The number added to the referent's address.
    pub addend: i64,
    /// The referent.
    pub to: Referent<'d>,
    relocation: Rela,
}

/// The target of a constant's reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Referent<'d> {
    /// A symbol from outside.
    External {
        /// Its name.
        name: &'d str,
        /// The kinds of access that the image needs.
        need: Need,
    },
    /// A constant before this one, by its number.
    Constant(usize),
    /// The constant itself.
    Itself,
}

/// The sections of `graph` that lie apart from the image because their names begin with `prefix`,
/// each after those it refers to.
pub(crate) fn find<'d>(
    graph: &Graph<'d>,
    prefix: &str,
    plan: &Plan,
) -> Result<Vec<Constant<'d>>, LinkError> {
    let sections = graph.sections.iter().enumerate();
    let mut left: Vec<SectionId> = sections
        .filter(|(_, section)| is_apart(section, prefix))
        .map(|(index, _)| SectionId(index as u32))
        .collect();
    let mut found = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let before = found.len();
        let mut refused = None;
        for id in std::mem::take(&mut left) {
            match constant(graph, plan, &found, id) {
                Ok(constant) => found.push(constant),
                Err(why) => {
                    left.push(id);
                    refused.get_or_insert(why);
                }
            }
        }
        if let (Some(why), true) = (refused, found.len() == before) {
            return Err(why);
        }
    }
    Ok(found)
}

/// Whether a section with that prefix lies apart from the image.
pub(crate) fn is_apart(section: &Section<'_>, prefix: &str) -> bool {
    matches!(section.class, Class::ReadOnly | Class::RelRo)
        && section.is_placed()
        && section.name.starts_with(prefix)
}

/// The constant of a section, if all its referents are among those `before` it.
fn constant<'d>(
    graph: &Graph<'d>,
    plan: &Plan,
    before: &[Constant<'d>],
    id: SectionId,
) -> Result<Constant<'d>, LinkError> {
    let section = &graph.sections[id.index()];
    let reference = |relocation: &'d Rela| {
        let kind = relocation.r_type(LittleEndian, false).0;
        let rule = relocation::rule(kind).ok_or(Problem::UnknownType(kind))?;
        if !matches!(rule.expression, Expression::Absolute | Expression::Relative) {
            return Err(Problem::IntoImage);
        }
        let target = graph.target(section.object, relocation)?;
        let symbol = &graph.symbols[target.index()];
        let addend = relocation.r_addend.get(LittleEndian);
        let (to, addend) = match symbol.origin {
            Origin::Section(at) if at == id => {
                (Referent::Itself, addend.wrapping_add(symbol.value as i64))
            }
            Origin::Section(at) => {
                let number = before.iter().position(|other| other.section == at);
                let number = number.ok_or(Problem::IntoImage)?;
                let addend = addend.wrapping_add(symbol.value as i64);
                (Referent::Constant(number), addend)
            }
            Origin::Undefined if symbol.bind != Bind::Local => {
                let need = plan.entry(target).and_then(|entry| entry.external);
                let (name, need) = (symbol.name, need.ok_or(Problem::NotPlanned)?);
                (Referent::External { name, need }, addend)
            }
            _ => return Err(Problem::IntoImage),
        };
        Ok(Reference {
            offset: relocation.r_offset.get(LittleEndian),
            kind,
            addend,
            to,
            relocation: *relocation,
        })
    };
    let references = section.relocations.iter().map(|relocation| {
        reference(relocation).map_err(|why| graph.relocation_error(id, relocation, why))
    });
    Ok(Constant {
        name: section.name,
        align: section.align.max(1) as usize,
        bytes: section.data,
        references: references.collect::<Result<_, _>>()?,
        section: id,
    })
}

impl Constant<'_> {
    /// Whether the constant was made from section `id`.
    pub(crate) fn is_of(&self, id: SectionId) -> bool {
        self.section == id
    }

    /// The bytes at the address `at`, with the references going to `targets`. `graph` names the
    /// relocation of a value that does not fit.
    pub(crate) fn fill(
        &self,
        graph: &Graph<'_>,
        at: u64,
        targets: &[u64],
    ) -> Result<Vec<u8>, LinkError> {
        let mut bytes = self.bytes.to_vec();
        for (reference, &target) in self.references.iter().zip(targets) {
            let target = match reference.to {
                Referent::Itself => at,
                _ => target,
            };
            fill_one(&mut bytes, reference, at, target).map_err(|problem| {
                graph.relocation_error(self.section, &reference.relocation, problem)
            })?;
        }
        Ok(bytes)
    }
}

fn fill_one(bytes: &mut [u8], reference: &Reference<'_>, at: u64, to: u64) -> Result<(), Problem> {
    let Reference {
        offset,
        kind,
        addend,
        ..
    } = *reference;
    let rule = relocation::rule(kind).ok_or(Problem::UnknownType(kind))?;
    let mut value = to.wrapping_add(addend as u64);
    if rule.expression == Expression::Relative {
        value = value.wrapping_sub(at.wrapping_add(offset));
    }
    if !rule.takes(value) {
        return Err(Problem::OutOfRange {
            value: value as i64,
            bits: 8 * rule.width as u32,
        });
    }
    let field = usize::try_from(offset).ok();
    let field = field.and_then(|start| bytes.get_mut(start..)?.get_mut(..rule.width));
    let field = field.ok_or(Problem::OutsideSection)?;
    field.copy_from_slice(&value.to_le_bytes()[..rule.width]);
    Ok(())
}
