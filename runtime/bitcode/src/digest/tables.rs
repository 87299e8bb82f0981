//! The tables of a module, entry by entry.

use std::collections::HashMap;

use super::graph::{self, Node};
use super::metadata::{self, Layer, Metadata};
use super::{Digest, Writer, constants};
use crate::ir::{GlobalKind, Linkage};
use crate::module::{Refused, Source, block};
use crate::stream::What;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Numbers of blocks that only digests look into.
pub(super) mod blocks {
    pub(in crate::digest) const METADATA: u32 = 15;
    pub(in crate::digest) const ATTACHMENTS: u32 = 16;
    pub(super) const BUNDLES: u32 = 21;
    pub(super) const KINDS: u32 = 22;
    pub(super) const SCOPES: u32 = 26;
}

/// Codes of a module's records that digests look at.
mod code {
    pub(super) const TRIPLE: u64 = 2;
    pub(super) const LAYOUT: u64 = 3;
    pub(super) const VARIABLE: u64 = 7;
    pub(super) const FUNCTION: u64 = 8;
    pub(super) const COMDAT: u64 = 12;
    pub(super) const ALIAS: u64 = 14;
    pub(super) const IFUNC: u64 = 18;
}

/// The record of a global.
struct Global {
    code: u64,
    record: Box<[u64]>,
    /// Metadata that is attached to it, by kind, without that for debuggers.
    attached: Vec<(u64, u32)>,
}

/// The tables of a module.
#[derive(Default)]
pub(super) struct Tables {
    types: Vec<Digest>,
    groups: HashMap<u64, Digest>,
    attributes: Vec<Digest>,
    comdats: Vec<Digest>,
    globals: Vec<Global>,
    /// Names of all globals, as far as they count.
    names: Vec<Digest>,
    /// Globals, then constants.
    pub(super) nodes: Vec<Node>,
    /// Their digests.
    pub(super) values: Vec<Digest>,
    pub(super) metadata: Metadata,
    /// The rest that records depend on: names of bundles, of scopes of synchronization, the target.
    rest: Writer,
}

impl Tables {
    pub(super) fn read(
        source: &Source,
        bytes: &[u8],
        stem: &impl Fn(&[u8]) -> &[u8],
    ) -> Result<Tables, Refused> {
        let stream = bytes
            .get(source.stream.clone())
            .ok_or(Refused::OutOfRange)?;
        let mut walk = Walk::new(stream);
        let mut tables = Tables {
            attributes: vec![Writer::default().digest()],
            ..Tables::default()
        };
        walk.cursor.fixed(32)?;
        while walk.cursor.left() >= 64 {
            if walk.cursor.fixed(2)? != 1 {
                return Err(walk.cursor.fail(What::Place).into());
            }
            match walk.head()? {
                extent if extent.number == block::MODULE => {
                    tables.module(source, &mut walk, extent)?;
                }
                extent => walk.pass(extent),
            }
        }
        tables.name(source, stem);
        tables.finish(source)?;
        Ok(tables)
    }

    fn module(
        &mut self,
        source: &Source,
        walk: &mut Walk<'_>,
        extent: Extent,
    ) -> Result<(), Refused> {
        let none = Standard::new();
        let standard = &source.standard;
        let mut constants = Vec::new();
        let mut inside = walk.enter(extent, &none);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => break,
                Entry::Block(extent) => match extent.number {
                    block::TYPES => self.types(walk, extent, standard)?,
                    block::ATTRIBUTE_GROUPS => self.groups(walk, extent, standard)?,
                    block::ATTRIBUTES => self.lists(walk, extent, standard)?,
                    block::CONSTANTS => {
                        constants::read(walk, extent, standard, self, &mut constants)?;
                    }
                    blocks::METADATA => {
                        let own = metadata::read(walk, extent, standard, |it| self.attach(it))?;
                        self.metadata.own.extend(own);
                    }
                    blocks::KINDS => self.metadata.kinds(walk, extent, standard)?,
                    blocks::BUNDLES | blocks::SCOPES => self.plain(walk, extent, standard)?,
                    _ => walk.pass(extent),
                },
                Entry::Record(code) => self.module_record(source, code, &walk.record)?,
            }
        }
        self.nodes = constants;
        Ok(())
    }

    fn module_record(&mut self, source: &Source, code: u64, record: &[u64]) -> Result<(), Refused> {
        match code {
            code::TRIPLE | code::LAYOUT => self.rest.record(code, record, &[], |_, _| {}),
            code::COMDAT => {
                let [from, length, ref rest @ ..] = *record else {
                    return Err(Refused::OutOfRange);
                };
                let mut writer = Writer::default();
                writer.bytes(string(source, from, length)?);
                writer.numbers(rest);
                self.comdats.push(writer.digest());
            }
            code::VARIABLE | code::FUNCTION | code::ALIAS | code::IFUNC => {
                self.globals.push(Global {
                    code,
                    record: record.into(),
                    attached: Vec::new(),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// A block whose records have no indices.
    fn plain(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        let mut inside = walk.enter(extent, standard);
        self.rest.number(u64::from(extent.number));
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(code) => self.rest.record(code, &walk.record, &[], |_, _| {}),
            }
        }
    }

    fn types(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        const COUNT: u64 = 1;
        const OPAQUE: u64 = 6;
        const STRUCT_NAME: u64 = 19;
        const TARGET: u64 = 26;
        let mut inside = walk.enter(extent, standard);
        let mut name = Vec::new();
        loop {
            let code = match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => {
                    walk.pass(extent);
                    continue;
                }
                Entry::Record(COUNT) => continue,
                Entry::Record(STRUCT_NAME) => {
                    name.clone_from(&walk.record);
                    continue;
                }
                Entry::Record(code) => code,
            };
            let record = &walk.record;
            let within = match code {
                // An array, a vector; a structure, a function.
                11 | 12 => 1..2,
                18 | 20 | 21 => 1..record.len(),
                TARGET => 1..1 + record.first().copied().unwrap_or_default() as usize,
                2..=7 | 10 | 13..=17 | 22..=25 => 0..0,
                _ => return Err(Refused::Unknown("a type of an old form")),
            };
            let mut writer = Writer::default();
            writer.number(code);
            writer.number(record.len() as u64);
            for (at, &number) in record.iter().enumerate() {
                match within.contains(&at) {
                    true => writer.entry(self.type_of(number)?),
                    false => writer.number(number),
                }
            }
            if matches!(code, OPAQUE | TARGET) {
                writer.numbers(&name);
            }
            self.types.push(writer.digest());
        }
    }

    fn groups(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        let mut inside = walk.enter(extent, standard);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(_) => {
                    let [number, about, ref attributes @ ..] = walk.record[..] else {
                        return Err(Refused::OutOfRange);
                    };
                    let types = crate::attributes::types(attributes)?;
                    let mut writer = Writer::default();
                    writer.number(about);
                    for (at, &word) in attributes.iter().enumerate() {
                        match types.contains(&at) {
                            true => writer.entry(self.type_of(word)?),
                            false => writer.number(word),
                        }
                    }
                    self.groups.insert(number, writer.digest());
                }
            }
        }
    }

    fn lists(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        let mut inside = walk.enter(extent, standard);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(_) => {
                    let mut writer = Writer::default();
                    for number in &walk.record {
                        let group = self.groups.get(number);
                        writer.entry(*group.ok_or(Refused::OutOfRange)?);
                    }
                    self.attributes.push(writer.digest());
                }
            }
        }
    }

    /// Notes metadata that is attached to a global: its number, then kinds and metadata.
    fn attach(&mut self, record: &[u64]) -> Result<(), Refused> {
        let [global, ref pairs @ ..] = *record else {
            return Err(Refused::OutOfRange);
        };
        let global = usize::try_from(global).map_err(|_| Refused::OutOfRange)?;
        let global = self.globals.get_mut(global).ok_or(Refused::OutOfRange)?;
        for pair in pairs.chunks_exact(2) {
            let node = u32::try_from(pair[1]).map_err(|_| Refused::OutOfRange)?;
            global.attached.push((pair[0], node));
        }
        Ok(())
    }

    /// Names of globals: of a private one that has a value, and of one without a name, what else tells
    /// them from others.
    fn name(&mut self, source: &Source, stem: &impl Fn(&[u8]) -> &[u8]) {
        let mut unnamed = 0;
        for global in &source.module.globals {
            let mut writer = Writer::default();
            match source.module.raw_name(global) {
                [] => {
                    writer.number(unnamed);
                    unnamed += 1;
                }
                name => writer.bytes(stem(name)),
            }
            self.names.push(writer.digest());
        }
    }

    /// Computes the digests of values and metadata.
    fn finish(&mut self, source: &Source) -> Result<(), Refused> {
        let details = &source.module.details;
        if self.globals.len() != source.module.globals.len() {
            return Err(Refused::OutOfRange);
        }
        // Metadata mentions globals and is attached to them: to those that have a name, by that.
        let mut nodes = Vec::with_capacity(self.globals.len() + self.nodes.len());
        for (at, details) in details.iter().enumerate() {
            let is_private = details.linkage == Linkage::Private;
            let value = details.initializer.filter(|_| details.is_constant);
            let mut writer = Writer::default();
            if !(is_private && value.is_some()) {
                writer.entry(self.names[at]);
            }
            let mut children = Vec::new();
            if value.is_some() {
                self.header(source, at, &mut writer, &mut children)?;
            }
            nodes.push(Node {
                content: writer.digest(),
                children: children.into(),
            });
        }
        nodes.append(&mut self.nodes);
        self.nodes = nodes;
        self.values = graph::digests(&[], 0, &self.nodes)?;
        let own = std::mem::take(&mut self.metadata.own);
        self.metadata.layer = Layer::of(own, &Layer::default(), |ty, value| {
            Some((self.type_of(u64::from(ty)).ok()?, self.value(value).ok()?))
        })?;
        Ok(())
    }

    /// Writes the record of a global but its name, and takes out the values that it mentions.
    fn header(
        &self,
        source: &Source,
        global: usize,
        writer: &mut Writer,
        children: &mut Vec<u32>,
    ) -> Result<(), Refused> {
        let Global { code, record, .. } = &self.globals[global];
        let fields = Fields::of(*code);
        let module = &source.module;
        writer.number(*code);
        for (index, &number) in record.iter().enumerate().skip(2) {
            // Of entries that may be missing, the number is 0.
            let entry = usize::try_from(number).unwrap_or(usize::MAX).checked_sub(1);
            let value = u32::try_from(number).map_err(|_| Refused::OutOfRange);
            match (fields.kind(index), entry) {
                (Field::Type, _) => writer.entry(self.type_of(number)?),
                (Field::Attributes, _) => writer.entry(self.attributes_of(number)?),
                (Field::Aliasee, _) => children.push(value?),
                (Field::Value, Some(_)) => children.push(value? - 1),
                (Field::Section, Some(entry)) => {
                    let name = module.sections.get(entry).ok_or(Refused::OutOfRange)?;
                    writer.bytes(name.as_bytes());
                }
                (Field::Collector, Some(entry)) => {
                    let name = module.collectors.get(entry).ok_or(Refused::OutOfRange)?;
                    writer.bytes(name.as_bytes());
                }
                (Field::Comdat, Some(entry)) => {
                    let comdat = self.comdats.get(entry).ok_or(Refused::OutOfRange)?;
                    writer.entry(*comdat);
                }
                (Field::Partition, _) => {
                    let length = record.get(index + 1).copied().unwrap_or_default();
                    writer.bytes(string(source, number, length)?);
                }
                (Field::PartitionLength, _) => {}
                (Field::Plain, _) | (_, None) => writer.number(number),
            }
        }
        Ok(())
    }

    /// The digest of a global's name and record, with the values that this mentions; of a function, without
    /// its body.
    pub(super) fn definition(&self, source: &Source, global: usize) -> Result<Digest, Refused> {
        let mut writer = Writer::default();
        let mut children = Vec::new();
        writer.entry(self.names[global]);
        self.header(source, global, &mut writer, &mut children)?;
        for child in children {
            writer.entry(self.value(child)?);
        }
        for &(kind, node) in &self.globals[global].attached {
            if let Some(kind) = self.metadata.kind(kind)? {
                writer.bytes(kind);
                writer.entry(self.metadata.layer.digest(node)?);
            }
        }
        Ok(writer.digest())
    }

    /// Of variables with a value, aliases and ifuncs.
    pub(super) fn definitions(&self, source: &Source) -> Result<Vec<(u32, Digest)>, Refused> {
        let globals = source.module.globals.iter().enumerate();
        let defined = globals.filter(|(_, it)| it.is_definition && it.kind != GlobalKind::Function);
        defined
            .map(|(at, _)| Ok((at as u32, self.definition(source, at)?)))
            .collect()
    }

    pub(super) fn value(&self, value: u32) -> Result<Digest, Refused> {
        let value = self.values.get(value as usize);
        value.copied().ok_or(Refused::OutOfRange)
    }

    pub(super) fn type_of(&self, number: u64) -> Result<Digest, Refused> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.types.get(number).copied().ok_or(Refused::OutOfRange)
    }

    pub(super) fn attributes_of(&self, number: u64) -> Result<Digest, Refused> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let list = self.attributes.get(number);
        list.copied().ok_or(Refused::OutOfRange)
    }

    /// Writes what all bodies depend on.
    pub(super) fn write_rest(&self, to: &mut Writer) {
        to.bytes(&self.rest.0);
    }
}

/// The meaning of a field of a global's record.
enum Field {
    Plain,
    Type,
    Attributes,
    /// A value, or 0.
    Value,
    Aliasee,
    Section,
    Collector,
    Comdat,
    Partition,
    PartitionLength,
}

/// Places of fields in the record of a kind of global, behind those of its name.
struct Fields {
    values: &'static [usize],
    aliasee: Option<usize>,
    attributes: Option<usize>,
    section: Option<usize>,
    collector: Option<usize>,
    comdat: Option<usize>,
    partition: usize,
}

impl Fields {
    fn of(code: u64) -> Fields {
        let none = Fields {
            values: &[],
            aliasee: None,
            attributes: None,
            section: None,
            collector: None,
            comdat: None,
            partition: 0,
        };
        match code {
            code::VARIABLE => Fields {
                values: &[4],
                attributes: Some(14),
                section: Some(7),
                comdat: Some(13),
                partition: 16,
                ..none
            },
            code::FUNCTION => Fields {
                values: &[12, 15, 16],
                attributes: Some(6),
                section: Some(8),
                collector: Some(10),
                comdat: Some(14),
                partition: 19,
                ..none
            },
            code::ALIAS => Fields {
                aliasee: Some(4),
                partition: 11,
                ..none
            },
            _ => Fields {
                aliasee: Some(4),
                partition: 8,
                ..none
            },
        }
    }

    fn kind(&self, index: usize) -> Field {
        const TYPE: usize = 2;
        let at = Some(index);
        match () {
            () if index == TYPE => Field::Type,
            () if self.values.contains(&index) => Field::Value,
            () if self.aliasee == at => Field::Aliasee,
            () if self.attributes == at => Field::Attributes,
            () if self.section == at => Field::Section,
            () if self.collector == at => Field::Collector,
            () if self.comdat == at => Field::Comdat,
            () if self.partition == index => Field::Partition,
            () if self.partition + 1 == index => Field::PartitionLength,
            () => Field::Plain,
        }
    }
}

/// A part of the table of strings.
fn string(source: &Source, from: u64, length: u64) -> Result<&[u8], Refused> {
    let short = |number: u64| usize::try_from(number).map_err(|_| Refused::OutOfRange);
    let (from, length) = (short(from)?, short(length)?);
    let end = from.checked_add(length).ok_or(Refused::OutOfRange)?;
    source
        .module
        .strings
        .get(from..end)
        .ok_or(Refused::OutOfRange)
}
