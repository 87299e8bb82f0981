//! Digests of bodies.

use std::collections::HashMap;

use super::graph;
use super::metadata::{self, Layer, Raw};
use super::tables::{Tables, blocks};
use super::{Digest, FunctionDigests, Writer, constants};
use crate::ir::{Body, Type};
use crate::marks::Mentioned;
use crate::module::{Refused, Source, block};
use crate::walk::{Entry, Walk};

/// Codes of records that do not affect a body's meaning: source locations, records for debuggers, and
/// users of labels, which the users themselves record.
fn is_for_debuggers(code: u64) -> bool {
    matches!(code, 33 | 35 | 60..=66)
}

/// The bodies of a module.
pub(super) struct Bodies<'a> {
    source: &'a Source,
    bytes: &'a [u8],
    tables: &'a Tables,
    /// Digest of all data outside the body that affect its meaning.
    rest: Digest,
    /// Digest of the whole file.
    file: Digest,
}

/// Constants, metadata and attachments of a body.
#[derive(Default)]
struct Own {
    /// The number of the first constant.
    first: u32,
    constants: Vec<Digest>,
    metadata: Layer,
    /// Records of attached metadata.
    attached: Vec<Box<[u64]>>,
}

impl<'a> Bodies<'a> {
    pub(super) fn new(source: &'a Source, bytes: &'a [u8], tables: &'a Tables) -> Bodies<'a> {
        let mut rest = Writer::default();
        tables.write_rest(&mut rest);
        Bodies {
            source,
            bytes,
            tables,
            rest: rest.digest(),
            file: Digest(*blake3::hash(bytes).as_bytes()),
        }
    }

    pub(super) fn all(&self) -> Result<Vec<FunctionDigests>, Refused> {
        let mut body = Body::default();
        let mut writer = Writer::default();
        let defined = self.source.defined.iter().enumerate();
        let all = defined.map(|(number, &global)| {
            writer.0.clear();
            let code = match self.write(number, &mut body, &mut writer) {
                Ok(()) => writer.digest(),
                Err(_) => {
                    let mut writer = Writer::default();
                    writer.entry(self.file);
                    writer.number(number as u64);
                    writer.digest()
                }
            };
            let mut writer = Writer::default();
            writer.entry(self.tables.definition(self.source, global as usize)?);
            writer.entry(code);
            Ok(FunctionDigests {
                global,
                whole: writer.digest(),
                code,
            })
        });
        all.collect()
    }

    fn write(&self, number: usize, body: &mut Body, to: &mut Writer) -> Result<(), Refused> {
        let own = self.own(number)?;
        let first = self.tables.values.len() as u32;
        let mut mentioned = HashMap::new();
        let mut failed = None;
        to.entry(self.rest);
        let marks = Some(Vec::new());
        self.source
            .read_marked(self.bytes, number, body, marks, |code, record, marks| {
                if is_for_debuggers(code) {
                    return;
                }
                to.record(code, record, marks, |to, it| {
                    if let Err(cause) = self.mention(it, &own, first, &mut mentioned, to) {
                        failed = Some(cause);
                    }
                });
            })?;
        if let Some(cause) = failed {
            return Err(cause);
        }
        for record in &own.attached {
            // A record of odd length begins with the number of an instruction.
            let (instruction, pairs) = record.split_at(record.len() % 2);
            to.numbers(instruction);
            for pair in pairs.chunks_exact(2) {
                let Some(kind) = self.tables.metadata.kind(pair[0])? else {
                    continue;
                };
                to.bytes(kind);
                let node = u32::try_from(pair[1]).map_err(|_| Refused::OutOfRange)?;
                let node = Mentioned::Metadata(node);
                self.mention(node, &own, first, &mut mentioned, to)?;
            }
        }
        Ok(())
    }

    /// Reads the parts of a body other than instructions.
    fn own(&self, number: usize) -> Result<Own, Refused> {
        let (source, tables) = (self.source, self.tables);
        let extent = *source.bodies.get(number).ok_or(Refused::OutOfRange)?;
        let stream = self.bytes.get(source.stream.clone());
        let mut walk = Walk::new(stream.ok_or(Refused::OutOfRange)?);
        if extent.end > walk.cursor.end {
            return Err(Refused::OutOfRange);
        }
        let standard = &source.standard;
        let (mut nodes, mut raw) = (Vec::new(), Vec::<Raw>::new());
        let mut own = Own {
            first: tables.values.len() as u32 + parameters(source, number)?,
            ..Own::default()
        };
        let mut inside = walk.enter(extent, standard);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => break,
                Entry::Block(extent) => match extent.number {
                    block::CONSTANTS => {
                        constants::read(&mut walk, extent, standard, tables, &mut nodes)?;
                    }
                    blocks::METADATA => {
                        let refuse = |_: &[u64]| Err(Refused::OutOfRange);
                        raw.extend(metadata::read(&mut walk, extent, standard, refuse)?);
                    }
                    blocks::ATTACHMENTS => {
                        walk.records(extent, standard, |_, record| {
                            own.attached.push(record.into());
                            Ok(())
                        })?;
                    }
                    _ => walk.pass(extent),
                },
                Entry::Record(_) => {}
            }
        }
        own.constants = graph::digests(&tables.values, own.first, &nodes)?;
        own.metadata = Layer::of(raw, &tables.metadata.layer, |ty, value| {
            let ty = tables.type_of(u64::from(ty)).ok()?;
            Some((ty, own.constant(tables, value)?))
        })?;
        Ok(own)
    }

    fn mention(
        &self,
        it: Mentioned,
        own: &Own,
        first: u32,
        mentioned: &mut HashMap<u32, u32>,
        to: &mut Writer,
    ) -> Result<(), Refused> {
        match it {
            Mentioned::Value(value) => match own.constant(self.tables, value.0) {
                Some(constant) => to.entry(constant),
                // Results are counted from the last constant on: a body's parameters stay the same as
                // long as its type does.
                None => {
                    let constants = own.constants.len() as u32;
                    let place = match value.0 < own.first {
                        true => value.0 - first,
                        false => value.0 - first - constants,
                    };
                    to.place(place);
                }
            },
            Mentioned::Type(ty) => to.entry(self.tables.type_of(u64::from(ty.0))?),
            Mentioned::Attributes(list) => {
                to.entry(self.tables.attributes_of(u64::from(list.0))?);
            }
            Mentioned::Metadata(node) => {
                let module = &self.tables.metadata.layer;
                let (layer, at) = match node.checked_sub(module.len()) {
                    Some(own_one) => (&own.metadata, own_one),
                    None => (module, node),
                };
                let digest = layer.digest(at)?;
                if layer.is_debug(at) {
                    return Ok(());
                }
                to.entry(digest);
                let next = mentioned.len() as u32;
                to.place(*mentioned.entry(node).or_insert(next));
            }
        }
        Ok(())
    }
}

/// Number of parameters of a body.
fn parameters(source: &Source, number: usize) -> Result<u32, Refused> {
    let global = source.defined.get(number).ok_or(Refused::OutOfRange)?;
    let ty = source.module.globals[*global as usize].ty;
    match source.module.ty(ty) {
        Type::Function(_, parameters, _) => Ok(parameters.len() as u32),
        _ => Err(Refused::OutOfRange),
    }
}

impl Own {
    /// The digest of a value, if it is a constant of the module or the body.
    fn constant(&self, tables: &Tables, value: u32) -> Option<Digest> {
        if let Some(&module) = tables.values.get(value as usize) {
            return Some(module);
        }
        let own = value.checked_sub(self.first)? as usize;
        self.constants.get(own).copied()
    }
}
