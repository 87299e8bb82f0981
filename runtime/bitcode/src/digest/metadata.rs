//! Digests of metadata of a module or of a body, without metadata for debuggers.
//!
//! Metadata has one sequence of numbers: the module's strings, then its other entries, then those of a
//! body.

use std::collections::HashMap;

use super::graph::{self, Node};
use super::{Digest, Writer};
use crate::module::Refused;
use crate::stream::Cursor;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Kinds of metadata that do not affect code: source locations, and data for debuggers.
const DEBUG: [&[u8]; 4] = [b"dbg", b"srcloc", b"DIAssignID", b"heapallocsite"];

/// Codes of records.
mod code {
    pub(super) const VALUE: u64 = 2;
    pub(super) const NODE: u64 = 3;
    pub(super) const NAME: u64 = 4;
    pub(super) const DISTINCT_NODE: u64 = 5;
    pub(super) const KIND: u64 = 6;
    pub(super) const NAMED_NODE: u64 = 10;
    pub(super) const STRINGS: u64 = 35;
    pub(super) const ATTACHMENT: u64 = 36;
    pub(super) const INDEX_OFFSET: u64 = 38;
    pub(super) const INDEX: u64 = 39;
    /// Codes of entries for debuggers.
    pub(super) const DEBUG: [std::ops::RangeInclusive<u64>; 3] = [7..=7, 12..=34, 37..=49];
}

/// An entry.
pub(super) enum Raw {
    Text(Box<[u8]>),
    /// A type and a value.
    Value(u32, u32),
    /// Whether it is distinct from equal nodes, and the entries that it mentions: their numbers plus
    /// one, or 0.
    Node(bool, Box<[u64]>),
    Debug,
}

/// Metadata of a module.
#[derive(Default)]
pub(super) struct Metadata {
    kinds: HashMap<u64, Box<[u8]>>,
    /// Entries, until their digests are computed.
    pub(super) own: Vec<Raw>,
    pub(super) layer: Layer,
}

/// Digests of a module's metadata, or of a module's and a body's.
#[derive(Default)]
pub(super) struct Layer {
    digests: Vec<Digest>,
    is_debug: Vec<bool>,
}

impl Metadata {
    /// Reads the names of kinds.
    pub(super) fn kinds(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        walk.records(extent, standard, |code, record| {
            if let (code::KIND, [number, name @ ..]) = (code, record) {
                let name = name.iter().map(|&it| it as u8).collect();
                self.kinds.insert(*number, name);
            }
            Ok(())
        })
    }

    /// The name of a kind, unless it is for debuggers.
    ///
    /// # Errors
    /// A kind without a name.
    pub(super) fn kind(&self, number: u64) -> Result<Option<&[u8]>, Refused> {
        let name = self.kinds.get(&number).ok_or(Refused::OutOfRange)?;
        Ok(Some(&**name).filter(|name| !DEBUG.contains(name)))
    }
}

impl Layer {
    /// The digests of `own`, which follow the entries of `below`. `value` gives the digests of types and
    /// values; it has none for a value that is computed at run time.
    pub(super) fn of(
        own: Vec<Raw>,
        below: &Layer,
        value: impl Fn(u32, u32) -> Option<(Digest, Digest)>,
    ) -> Result<Layer, Refused> {
        let first = below.digests.len();
        let mut is_debug = Vec::with_capacity(own.len());
        for raw in &own {
            is_debug.push(match raw {
                Raw::Debug => true,
                // The location of a variable, for debuggers.
                Raw::Value(ty, it) => value(*ty, *it).is_none(),
                Raw::Text(_) | Raw::Node(..) => false,
            });
        }
        let for_debuggers = |child: usize| {
            let own = child.checked_sub(first);
            let known = own.map_or(&below.is_debug, |_| &is_debug);
            known.get(own.unwrap_or(child)).copied().unwrap_or_default()
        };
        let mut nodes = Vec::with_capacity(own.len());
        for raw in &own {
            let mut writer = Writer::default();
            let mut children = Vec::new();
            match raw {
                Raw::Text(text) => writer.bytes(text),
                Raw::Value(ty, it) => {
                    if let Some((ty, it)) = value(*ty, *it) {
                        writer.entry(ty);
                        writer.entry(it);
                    }
                }
                Raw::Node(is_distinct, operands) => {
                    writer.number(u64::from(*is_distinct));
                    for &operand in operands {
                        let child = u32::try_from(operand).map_err(|_| Refused::OutOfRange)?;
                        match child.checked_sub(1) {
                            None => writer.number(0),
                            Some(child) if for_debuggers(child as usize) => {}
                            Some(child) => {
                                writer.number(1);
                                children.push(child);
                            }
                        }
                    }
                }
                Raw::Debug => {}
            }
            nodes.push(Node {
                content: writer.digest(),
                children: children.into(),
            });
        }
        let digests = graph::digests(&below.digests, first as u32, &nodes)?;
        Ok(Layer { digests, is_debug })
    }

    /// The digest of an entry.
    pub(super) fn digest(&self, number: u32) -> Result<Digest, Refused> {
        let found = self.digests.get(number as usize);
        found.copied().ok_or(Refused::OutOfRange)
    }

    pub(super) fn is_debug(&self, number: u32) -> bool {
        let found = self.is_debug.get(number as usize);
        found.copied().unwrap_or_default()
    }

    pub(super) fn len(&self) -> u32 {
        self.digests.len() as u32
    }
}

/// Reads a block of metadata. `attach` receives records of attachments to globals.
pub(super) fn read(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
    mut attach: impl FnMut(&[u64]) -> Result<(), Refused>,
) -> Result<Vec<Raw>, Refused> {
    let mut inside = walk.enter(extent, standard);
    let mut all = Vec::new();
    loop {
        let code = match walk.next(&mut inside)? {
            Entry::End => return Ok(all),
            Entry::Block(extent) => {
                walk.pass(extent);
                continue;
            }
            Entry::Record(code) => code,
        };
        let record = &walk.record;
        match (code, &record[..]) {
            (code::STRINGS, record) => strings(record, &mut all)?,
            (code::VALUE, &[ty, value, ..]) => {
                let short = |number: u64| u32::try_from(number).map_err(|_| Refused::OutOfRange);
                all.push(Raw::Value(short(ty)?, short(value)?));
            }
            (code::NODE | code::DISTINCT_NODE, operands) => {
                all.push(Raw::Node(code == code::DISTINCT_NODE, operands.into()));
            }
            (code::ATTACHMENT, record) => attach(record)?,
            (code::NAME | code::NAMED_NODE | code::KIND, _) => {}
            (code::INDEX | code::INDEX_OFFSET, _) => {}
            (code, _) if code::DEBUG.iter().any(|it| it.contains(&code)) => all.push(Raw::Debug),
            _ => return Err(Refused::Unknown("metadata of an old form")),
        }
    }
}

/// Reads strings: their count, the offset of their characters, their lengths, their characters.
fn strings(record: &[u64], all: &mut Vec<Raw>) -> Result<(), Refused> {
    let [count, start, ref blob @ ..] = *record else {
        return Err(Refused::OutOfRange);
    };
    let blob: Vec<u8> = blob.iter().map(|&it| it as u8).collect();
    let start = usize::try_from(start).map_err(|_| Refused::OutOfRange)?;
    let (lengths, mut characters) = blob.split_at_checked(start).ok_or(Refused::OutOfRange)?;
    let mut lengths = Cursor::new(lengths);
    for _ in 0..count {
        let length = usize::try_from(lengths.vbr(6)?).map_err(|_| Refused::OutOfRange)?;
        let text;
        (text, characters) = characters
            .split_at_checked(length)
            .ok_or(Refused::OutOfRange)?;
        all.push(Raw::Text(text.into()));
    }
    Ok(())
}
