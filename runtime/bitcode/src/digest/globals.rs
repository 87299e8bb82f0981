//! Records of a module's globals.

use super::tables::{Tables, string};
use super::{Digest, Writer};
use crate::module::{Refused, Source};

/// Codes of a module's records that digests read.
pub(super) mod code {
    pub(in crate::digest) const TRIPLE: u64 = 2;
    pub(in crate::digest) const LAYOUT: u64 = 3;
    pub(in crate::digest) const VARIABLE: u64 = 7;
    pub(in crate::digest) const FUNCTION: u64 = 8;
    pub(in crate::digest) const COMDAT: u64 = 12;
    pub(in crate::digest) const ALIAS: u64 = 14;
    pub(in crate::digest) const IFUNC: u64 = 18;
}

/// The record of a global.
pub(super) struct GlobalRecord {
    pub(super) code: u64,
    pub(super) record: Box<[u64]>,
    /// Metadata that is attached to it, by kind, without that for debuggers.
    pub(super) attached: Vec<(u64, u32)>,
}

impl Tables {
    /// Writes the record of a global without its name, and collects the values that it mentions. A
    /// variable's linkage, alignment, visibility and preemption are left out: they are no part of its contents.
    pub(super) fn header(
        &self,
        source: &Source,
        global: usize,
        writer: &mut Writer,
        children: &mut Vec<u32>,
    ) -> Result<(), Refused> {
        let GlobalRecord { code, record, .. } = &self.globals[global];
        let fields = GlobalFields::of(*code);
        let module = &source.module;
        writer.number(*code);
        for (index, &number) in record.iter().enumerate().skip(2) {
            // The number 0 means no entry.
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
                (Field::PartitionLength | Field::Placement, _) => {}
                (Field::Plain, _) | (_, None) => writer.number(number),
            }
        }
        Ok(())
    }

    /// The digest of a global's name and record, with the values that the record mentions; of a
    /// function, without its body.
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
    /// Where a variable may be, and by whom it is seen.
    Placement,
}

/// Places of fields in the record of a kind of global.
struct GlobalFields {
    values: &'static [usize],
    placement: &'static [usize],
    aliasee: Option<usize>,
    attributes: Option<usize>,
    section: Option<usize>,
    collector: Option<usize>,
    comdat: Option<usize>,
    partition: usize,
}

impl GlobalFields {
    fn of(code: u64) -> GlobalFields {
        let none = GlobalFields {
            values: &[],
            placement: &[],
            aliasee: None,
            attributes: None,
            section: None,
            collector: None,
            comdat: None,
            partition: 0,
        };
        match code {
            code::VARIABLE => GlobalFields {
                values: &[4],
                placement: &[5, 6, 8, 15],
                attributes: Some(14),
                section: Some(7),
                comdat: Some(13),
                partition: 16,
                ..none
            },
            code::FUNCTION => GlobalFields {
                values: &[12, 15, 16],
                attributes: Some(6),
                section: Some(8),
                collector: Some(10),
                comdat: Some(14),
                partition: 19,
                ..none
            },
            code::ALIAS => GlobalFields {
                aliasee: Some(4),
                partition: 11,
                ..none
            },
            _ => GlobalFields {
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
            () if self.placement.contains(&index) => Field::Placement,
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
