//! Attributes: groups, and the lists that consist of groups.

use std::collections::HashMap;

use crate::ir::{Attribute, Attributes, TypeId};
use crate::module::Refused;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Targets of a group; other numbers are parameters, from 1 on.
const RESULT: u64 = 0;
const FUNCTION: u64 = 0xffff_ffff;

/// The groups of which lists consist, by number.
pub(crate) type Groups = HashMap<u64, (u64, Vec<Attribute>)>;

/// Reads the block of groups.
pub(crate) fn groups(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
) -> Result<Groups, Refused> {
    const ENTRY: u64 = 3;
    let mut inside = walk.enter(extent, standard);
    let mut groups = Groups::new();
    loop {
        match walk.next(&mut inside)? {
            Entry::End => return Ok(groups),
            Entry::Block(extent) => walk.pass(extent),
            Entry::Record(ENTRY) => {
                if let [number, about, ref attributes @ ..] = walk.record[..] {
                    groups.insert(number, (about, list(attributes)?));
                }
            }
            Entry::Record(_) => {}
        }
    }
}

/// Reads the block of lists; the first is the empty one.
pub(crate) fn lists(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
    groups: &Groups,
) -> Result<Vec<Attributes>, Refused> {
    const ENTRY: u64 = 2;
    let mut inside = walk.enter(extent, standard);
    let mut lists = vec![Attributes::default()];
    loop {
        match walk.next(&mut inside)? {
            Entry::End => return Ok(lists),
            Entry::Block(extent) => walk.pass(extent),
            Entry::Record(ENTRY) => {
                let mut all = Attributes::default();
                for (about, group) in walk.record.iter().filter_map(|it| groups.get(it)) {
                    match *about {
                        RESULT => all.result.extend_from_slice(group),
                        FUNCTION => all.function.extend_from_slice(group),
                        number => all.parameters.push((number as u32 - 1, group.clone())),
                    }
                }
                lists.push(all);
            }
            Entry::Record(_) => return Err(Refused::Unknown("attributes of an old form")),
        }
    }
}

/// The attributes of a record.
fn list(mut record: &[u64]) -> Result<Vec<Attribute>, Refused> {
    let unknown = Refused::Unknown("an attribute of a form that is not known");
    let mut all = Vec::new();
    while let [form, ref rest @ ..] = *record {
        let (attribute, rest) = match (form, rest) {
            (0, &[kind, ref rest @ ..]) => (Attribute::Flag(kind as u32), rest),
            (1, &[kind, value, ref rest @ ..]) => (Attribute::Number(kind as u32, value), rest),
            (3, rest) => {
                let (name, rest) = text(rest);
                (Attribute::Text(name, Box::default()), rest)
            }
            (4, rest) => {
                let (name, rest) = text(rest);
                let (value, rest) = text(rest);
                (Attribute::Text(name, value), rest)
            }
            (5, &[kind, ref rest @ ..]) => (Attribute::Flag(kind as u32), rest),
            (6, &[kind, ty, ref rest @ ..]) => {
                (Attribute::Typed(kind as u32, TypeId(ty as u32)), rest)
            }
            (7, &[kind, bits, ref rest @ ..]) => {
                let used = range(bits, rest).ok_or(unknown.clone())?;
                (Attribute::Flag(kind as u32), &rest[used..])
            }
            (8, &[kind, count, bits, ref rest @ ..]) => {
                let mut rest = rest;
                for _ in 0..count {
                    let used = range(bits, rest).ok_or(unknown.clone())?;
                    rest = &rest[used..];
                }
                (Attribute::Flag(kind as u32), rest)
            }
            _ => return Err(unknown),
        };
        all.push(attribute);
        record = rest;
    }
    Ok(all)
}

/// Places of the type numbers in a record's attributes.
pub(crate) fn types(record: &[u64]) -> Result<Vec<usize>, Refused> {
    const TYPED: u64 = 6;
    let unknown = || Refused::Unknown("an attribute of a form that is not known");
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(&form) = record.get(at) {
        let rest = &record[at + 1..];
        let text = |rest: &[u64]| rest.iter().position(|&it| it == 0).map(|it| it + 1);
        let ranges = |kind_and: usize, count: u64| {
            let bits = *rest.get(kind_and - 1)?;
            let mut used = kind_and;
            for _ in 0..count {
                used += range(bits, rest.get(used..)?)?;
            }
            Some(used)
        };
        let used = match form {
            0 | 5 => Some(1),
            1 | TYPED => Some(2),
            3 => text(rest),
            4 => text(rest).and_then(|name| Some(name + text(rest.get(name..)?)?)),
            7 => ranges(2, 1),
            8 => rest.get(1).and_then(|&count| ranges(3, count)),
            _ => None,
        };
        let used = used.filter(|&used| used <= rest.len());
        if form == TYPED {
            places.push(at + 2);
        }
        at += 1 + used.ok_or_else(unknown)?;
    }
    Ok(places)
}

/// Words that a range of integers takes.
pub(crate) fn range(bits: u64, words: &[u64]) -> Option<usize> {
    let used = match bits <= 64 {
        true => 2,
        // The first word gives the number of words of each end.
        false => {
            let counts = *words.first()?;
            1 + (counts & 0xffff_ffff) as usize + (counts >> 32) as usize
        }
    };
    (used <= words.len()).then_some(used)
}

/// Characters up to a zero.
fn text(words: &[u64]) -> (Box<str>, &[u64]) {
    let end = words.iter().position(|&it| it == 0).unwrap_or(words.len());
    let bytes: Vec<u8> = words[..end].iter().map(|&it| it as u8).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned().into();
    (text, words.get(end + 1..).unwrap_or_default())
}
