//! Finds the indices in records of constants.

use super::Writer;
use super::graph::Node;
use super::tables::Tables;
use crate::ir::{TypeId, ValueId};
use crate::marks::{Mark, Mentioned};
use crate::module::Refused;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Reads a block of constants.
pub(super) fn read(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
    tables: &Tables,
    nodes: &mut Vec<Node>,
) -> Result<(), Refused> {
    const SET_TYPE: u64 = 1;
    let mut inside = walk.enter(extent, standard);
    let mut ty = None;
    loop {
        match walk.next(&mut inside)? {
            Entry::End => return Ok(()),
            Entry::Block(extent) => walk.pass(extent),
            Entry::Record(SET_TYPE) => ty = walk.record.first().copied(),
            Entry::Record(code) => {
                let record = &walk.record;
                let marks = marks(code, record)?;
                let mut writer = Writer::default();
                match ty {
                    Some(ty) => writer.entry(tables.type_of(ty)?),
                    // The default type, an integer of 32 bits.
                    None => writer.number(0),
                }
                let mut children = Vec::new();
                let mut failed = None;
                writer.record(code, record, &marks, |writer, to| match to {
                    Mentioned::Value(value) => {
                        children.push(value.0);
                        writer.place(0);
                    }
                    Mentioned::Type(ty) => match tables.type_of(u64::from(ty.0)) {
                        Ok(ty) => writer.entry(ty),
                        Err(cause) => failed = Some(cause),
                    },
                    _ => failed = Some(Refused::OutOfRange),
                });
                if let Some(cause) = failed {
                    return Err(cause);
                }
                nodes.push(Node {
                    content: writer.digest(),
                    children: children.into(),
                });
            }
        }
    }
}

/// The indices of a record.
fn marks(code: u64, record: &[u64]) -> Result<Vec<Mark>, Refused> {
    let value = |at: usize| -> Result<Mark, Refused> {
        let to = Mentioned::Value(ValueId(short(record, at)?));
        Ok(Mark { at, to })
    };
    let ty = |at: usize| -> Result<Mark, Refused> {
        let to = Mentioned::Type(TypeId(short(record, at)?));
        Ok(Mark { at, to })
    };
    match code {
        // Zeros, undefined values, numbers, strings.
        2 | 3 | 4 | 5 | 6 | 8 | 9 | 22 | 26 => Ok(Vec::new()),
        // Aggregates, and signed pointers.
        7 | 33 | 34 => (0..record.len()).map(value).collect(),
        // An operation on two.
        10 => Ok(vec![value(1)?, value(2)?]),
        // A cast; equivalents of a function.
        11 => Ok(vec![ty(1)?, value(2)?]),
        27 | 29 => Ok(vec![ty(0)?, value(1)?]),
        // The address of a block.
        21 => Ok(vec![ty(0)?, value(1)?]),
        // Assembly.
        30 => Ok(vec![ty(0)?]),
        // Offsets: a type, flags, maybe a range, then types and values.
        31 | 32 => {
            let start = match code {
                31 => 3 + range(record)?,
                _ => 2,
            };
            if record.len() < start || !(record.len() - start).is_multiple_of(2) {
                return Err(Refused::OutOfRange);
            }
            let mut marks = vec![ty(0)?];
            for at in (start..record.len()).step_by(2) {
                marks.extend([ty(at)?, value(at + 1)?]);
            }
            Ok(marks)
        }
        _ => Err(Refused::Unknown("a constant of an old form")),
    }
}

/// Count of numbers for the ends of a range, behind its bits.
fn range(record: &[u64]) -> Result<usize, Refused> {
    let words = record.get(3..).ok_or(Refused::OutOfRange)?;
    crate::attributes::range(record[2], words).ok_or(Refused::OutOfRange)
}

fn short(record: &[u64], at: usize) -> Result<u32, Refused> {
    let number = record.get(at).copied().ok_or(Refused::OutOfRange)?;
    u32::try_from(number).map_err(|_| Refused::OutOfRange)
}
