//! Digests of the tables of a module, entry by entry.

use std::collections::HashMap;

use super::globals::{GlobalRecord, code};
use super::graph::{self, Node};
use super::metadata::{self, Layer, Metadata};
use super::{Digest, Writer, constants};
use crate::ir::{GlobalKind, Linkage};
use crate::module::{Refused, Source, block};
use crate::stream::What;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Numbers of blocks that only digests read.
pub(super) mod blocks {
    pub(in crate::digest) const METADATA: u32 = 15;
    pub(in crate::digest) const ATTACHMENTS: u32 = 16;
    pub(super) const BUNDLES: u32 = 21;
    pub(super) const KINDS: u32 = 22;
    pub(super) const SCOPES: u32 = 26;
}

/// The tables of a module.
#[derive(Default)]
pub(super) struct Tables {
    types: Vec<Digest>,
    groups: HashMap<u64, Digest>,
    attributes: Vec<Digest>,
    pub(super) comdats: Vec<Digest>,
    pub(super) globals: Vec<GlobalRecord>,
    /// Digests of the hashed parts of all globals' names.
    pub(super) names: Vec<Digest>,
    /// Globals, then constants.
    pub(super) nodes: Vec<Node>,
    /// Digests of the nodes.
    pub(super) values: Vec<Digest>,
    pub(super) metadata: Metadata,
    /// Other data that affect records: names of bundles, of synchronization scopes, the target.
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
                self.globals.push(GlobalRecord {
                    code,
                    record: record.into(),
                    attached: Vec::new(),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Hashes a block whose records have no indices.
    fn plain(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        self.rest.number(u64::from(extent.number));
        walk.records(extent, standard, |code, record| {
            self.rest.record(code, record, &[], |_, _| {});
            Ok(())
        })
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
                TARGET => {
                    1..record
                        .first()
                        .map_or(1, |&it| (it as usize).saturating_add(1))
                }
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
        walk.records(extent, standard, |_, record| {
            let [number, about, ref attributes @ ..] = *record else {
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
            Ok(())
        })
    }

    fn lists(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        standard: &Standard,
    ) -> Result<(), Refused> {
        walk.records(extent, standard, |_, record| {
            let mut writer = Writer::default();
            for number in record {
                let group = self.groups.get(number);
                writer.entry(*group.ok_or(Refused::OutOfRange)?);
            }
            self.attributes.push(writer.digest());
            Ok(())
        })
    }

    /// Records metadata that is attached to a global: its number, then kinds and metadata.
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

    /// Computes digests of globals' names. A global without a name is identified by its number among
    /// those.
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
        // Metadata mentions globals and is attached to them: globals with a name are identified by it.
        let mut nodes = Vec::with_capacity(self.globals.len() + self.nodes.len());
        for (at, details) in details.iter().enumerate() {
            let is_private = details.linkage == Linkage::Private;
            let value = details.initializer.filter(|_| details.is_constant);
            let mut writer = Writer::default();
            if !(is_private && value.is_some()) {
                writer.entry(self.names[at]);
                // A file's own variable and another file's of the same name are two.
                let is_own = details.linkage == Linkage::Internal;
                let is_variable = source.module.globals[at].kind == GlobalKind::Variable;
                writer.number(u64::from(is_own && is_variable));
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

    /// Digests of variables with a value, aliases and ifuncs.
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

    /// Writes the data that affect all bodies.
    pub(super) fn write_rest(&self, to: &mut Writer) {
        to.bytes(&self.rest.0);
    }
}

/// A range of the string table.
pub(super) fn string(source: &Source, from: u64, length: u64) -> Result<&[u8], Refused> {
    let short = |number: u64| usize::try_from(number).map_err(|_| Refused::OutOfRange);
    let (from, length) = (short(from)?, short(length)?);
    let end = from.checked_add(length).ok_or(Refused::OutOfRange)?;
    source
        .module
        .strings
        .get(from..end)
        .ok_or(Refused::OutOfRange)
}
