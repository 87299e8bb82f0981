//! Reads the table as a personality does.

use super::Exceptions;
use crate::asm::{Asm, Label};
use crate::code::Handlers;
use crate::ir::{Clause, Symbol};

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn unsigned(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    fn signed(&mut self) -> i64 {
        let start = self.at;
        let value = self.unsigned() as i64;
        let unused = 64 - 7 * (self.at - start) as u32;
        value << unused >> unused
    }
}

/// The type of a number.
fn type_of(handlers: &Handlers, end: usize, id: u64) -> String {
    let at = end - 4 * id as usize;
    match handlers
        .types
        .iter()
        .find(|(place, _)| *place as usize == at)
    {
        Some((_, symbol)) => format!("t{}", symbol.0),
        None => {
            assert_eq!(handlers.bytes[at..at + 4], [0; 4]);
            "any".to_owned()
        }
    }
}

/// The landing pad of an exception at an address and its actions, in order, as the personality
/// would find them for `_Unwind_RaiseException`.
fn meets(handlers: &Handlers, address: u64) -> String {
    let mut reader = Reader {
        bytes: &handlers.bytes,
        at: 0,
    };
    assert_eq!(reader.byte(), 0xff);
    let types_end = match reader.byte() {
        0xff => None,
        0x9b => {
            let distance = reader.unsigned() as usize;
            Some(reader.at + distance)
        }
        other => unreachable!("{other:x}"),
    };
    assert_eq!(reader.byte(), 1);
    let length = reader.unsigned() as usize;
    let actions = reader.at + length;
    while reader.at < actions {
        let (from, bytes) = (reader.unsigned(), reader.unsigned());
        let (pad, action) = (reader.unsigned(), reader.unsigned());
        if !(from..from + bytes).contains(&address) {
            continue;
        }
        if pad == 0 {
            return "nothing".to_owned();
        }
        let mut text = format!("{pad}:");
        if action == 0 {
            return text + " cleanup";
        }
        let mut record = actions + action as usize - 1;
        loop {
            reader.at = record;
            let filter = reader.signed();
            text += &action_text(handlers, types_end, filter);
            record = reader.at;
            match reader.signed() {
                0 => return text,
                next => record = (record as i64 + next) as usize,
            }
        }
    }
    "the end".to_owned()
}

fn action_text(handlers: &Handlers, types_end: Option<usize>, filter: i64) -> String {
    match filter {
        0 => " cleanup".to_owned(),
        1.. => {
            let end = types_end.expect("types");
            assert_eq!(end % 4, 0);
            format!(" {}", type_of(handlers, end, filter as u64))
        }
        _ => {
            let end = types_end.expect("types");
            let mut list = Reader {
                bytes: &handlers.bytes,
                at: end + (-1 - filter) as usize,
            };
            let mut types = Vec::new();
            loop {
                match list.unsigned() {
                    0 => return format!(" not({})", types.join(",")),
                    id => types.push(type_of(handlers, end, id)),
                }
            }
        }
    }
}

/// Labels at offsets: a label for each byte of code.
fn labels(bytes: usize) -> (Asm, Vec<Label>) {
    let mut asm = Asm::default();
    let mut labels = Vec::new();
    for _ in 0..bytes {
        labels.push(asm.here());
        // An instruction of one byte.
        asm.leave();
    }
    labels.push(asm.here());
    asm.finish();
    (asm, labels)
}

fn catch(number: u32) -> Clause {
    Clause::Catch(Some(Symbol(number)))
}

#[test]
fn calls_meet_their_pads() {
    let (asm, at) = labels(400);
    let mut exceptions = Exceptions::default();
    let cleanup = exceptions.action(true, &[]);
    let both = exceptions.action(true, &[catch(7), catch(9)]);
    let all = exceptions.action(false, &[catch(9), Clause::Catch(None)]);
    let filter = Clause::Filter(vec![Some(Symbol(7)), Some(Symbol(4))]);
    let filtered = exceptions.action(false, &[filter, Clause::Filter(Vec::new())]);
    assert_eq!(exceptions.action(true, &[catch(7), catch(9)]), both);
    exceptions.site(at[10], at[15], at[200], cleanup);
    exceptions.site(at[15], at[20], at[300], both);
    exceptions.site(at[20], at[25], at[300], both);
    exceptions.site(at[140], at[145], at[310], all);
    exceptions.site(at[395], at[400], at[320], filtered);
    let handlers = exceptions.write(400, |label| asm.offset_of(label));
    for (address, expected) in [
        (0, "nothing"),
        (9, "nothing"),
        (10, "200: cleanup"),
        (14, "200: cleanup"),
        (15, "300: t7 t9 cleanup"),
        (24, "300: t7 t9 cleanup"),
        (25, "nothing"),
        (140, "310: t9 any"),
        (145, "nothing"),
        (399, "320: not(t7,t4) not()"),
        (400, "the end"),
    ] {
        assert_eq!(meets(&handlers, address), expected, "at {address}");
    }
    // Adjacent ranges of one pad are one: header, 7 sites.
    assert_eq!(exceptions.type_id(Some(Symbol(7))), 1);
    assert_eq!(exceptions.type_id(Some(Symbol(9))), 2);
    assert_eq!(exceptions.type_id(None), 3);
    assert_eq!(exceptions.type_id(Some(Symbol(4))), 4);
}

#[test]
fn cleanups_need_no_types() {
    let (asm, at) = labels(20);
    let mut exceptions = Exceptions::default();
    let cleanup = exceptions.action(true, &[]);
    exceptions.site(at[0], at[20], at[12], cleanup);
    let handlers = exceptions.write(20, |label| asm.offset_of(label));
    assert_eq!(handlers.bytes, [0xff, 0xff, 1, 4, 0, 20, 12, 0]);
    assert_eq!(meets(&handlers, 3), "12: cleanup");
}

/// Sizes around those where a length takes a byte more.
#[test]
fn any_number_of_sites_and_types() {
    for sites in 1..80 {
        for types in [1, 2, 3, 30, 31, 32, 33, 70] {
            let (asm, at) = labels(3 * sites + 2);
            let mut exceptions = Exceptions::default();
            for number in 0..types {
                exceptions.type_id(Some(Symbol(number)));
            }
            for site in 0..sites {
                let ty = site as u32 % types;
                let action = exceptions.action(false, &[catch(ty)]);
                exceptions.site(at[3 * site + 1], at[3 * site + 2], at[site + 1], action);
            }
            let handlers = exceptions.write(3 * sites as u32 + 2, |label| asm.offset_of(label));
            for site in 0..sites {
                let expected = format!("{}: t{}", site + 1, site as u32 % types);
                assert_eq!(meets(&handlers, 3 * site as u64 + 1), expected);
                assert_eq!(meets(&handlers, 3 * site as u64 + 2), "nothing");
            }
        }
    }
}
