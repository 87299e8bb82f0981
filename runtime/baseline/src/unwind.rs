//! The unwind table of a function: one CIE and one FDE, as `.eh_frame` has them (LSB Core, 10.6).
//!
//! All functions have the same frame, so the rows are a template:
//!
//! | from | CFA | registers |
//! |---|---|---|
//! | entry | `rsp + 8` | return address at CFA - 8 |
//! | after `push rbp` | `rsp + 16` | `rbp` at CFA - 16 |
//! | after `mov rbp, rsp` | `rbp + 16` | |
//! | after the last save | | the n-th saved one at CFA - 24 - 8n |
//! | after `leave` or `pop rbp` | `rsp + 8` | |
//! | after `ret` | `rbp + 16` | |
//!
//! # Why it is correct at every instruction
//! A saved register keeps its value until all are saved, so one row for all of them is enough.
//! After their restore, the saved copies lie at most 56 bytes below the stack pointer, where signal
//! handlers write nothing (psABI, 3.2.2), so the rows need not be undone.

use crate::asm::Gpr;
use crate::code::{UnwindFixup, UnwindTarget};
use crate::ir::Symbol;

const DW_CFA_ADVANCE_LOC: u8 = 0x40;
const DW_CFA_OFFSET: u8 = 0x80;
const DW_CFA_NOP: u8 = 0;
const DW_CFA_ADVANCE_LOC1: u8 = 2;
const DW_CFA_ADVANCE_LOC2: u8 = 3;
const DW_CFA_ADVANCE_LOC4: u8 = 4;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_REGISTER: u8 = 0x0d;
const DW_CFA_DEF_CFA_OFFSET: u8 = 0x0e;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
const PCREL4: u8 = 0x1b;
/// `DW_EH_PE_indirect | DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
const INDIRECT_PCREL4: u8 = 0x9b;

/// The number of the return address among DWARF's registers.
const RETURN_ADDRESS: u8 = 16;

/// Offsets of the prologue and epilogues of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameRows<'a> {
    /// Bytes of the function.
    pub(crate) size: u32,
    /// After `push rbp`.
    pub(crate) pushed: u32,
    /// After `mov rbp, rsp`.
    pub(crate) framed: u32,
    /// After the last save of `saved`.
    pub(crate) saved_at: u32,
    /// Registers at `rbp - 8`, `rbp - 16` and so on.
    pub(crate) saved: &'a [Gpr],
    /// Of each epilogue: after the restore of `rbp`, and after the return (or the tail jump).
    pub(crate) epilogues: &'a [(u32, u32)],
    /// The personality, if there is a table for it.
    pub(crate) personality: Option<Symbol>,
}

/// Builds the table, without the zero word at its end, and its relocations.
pub(crate) fn table(frame: &FrameRows<'_>) -> (Vec<u8>, Vec<UnwindFixup>) {
    let mut bytes = Vec::with_capacity(96);
    let mut fixups = Vec::new();
    cie(&mut bytes, &mut fixups, frame.personality);
    fde(&mut bytes, &mut fixups, frame);
    (bytes, fixups)
}

fn cie(bytes: &mut Vec<u8>, fixups: &mut Vec<UnwindFixup>, personality: Option<Symbol>) {
    bytes.extend_from_slice(&[0; 8]);
    bytes.push(1);
    match personality {
        None => {
            bytes.extend_from_slice(b"zR\0");
            alignments(bytes);
            bytes.extend_from_slice(&[1, PCREL4]);
        }
        Some(symbol) => {
            bytes.extend_from_slice(b"zPLR\0");
            alignments(bytes);
            bytes.extend_from_slice(&[7, INDIRECT_PCREL4]);
            field(bytes, fixups, UnwindTarget::Personality(symbol));
            bytes.extend_from_slice(&[PCREL4, PCREL4]);
        }
    }
    bytes.extend_from_slice(&[DW_CFA_DEF_CFA, Gpr::RSP.dwarf(), 8]);
    bytes.extend_from_slice(&[DW_CFA_OFFSET | RETURN_ADDRESS, 1]);
    end_record(bytes, 0);
}

/// Code alignment 1, data alignment -8, and the register of the return address.
fn alignments(bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&[1, 0x78, RETURN_ADDRESS]);
}

fn fde(bytes: &mut Vec<u8>, fixups: &mut Vec<UnwindFixup>, frame: &FrameRows<'_>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    // The CIE is at the beginning.
    bytes.extend_from_slice(&(start as u32 + 4).to_le_bytes());
    field(bytes, fixups, UnwindTarget::Function);
    bytes.extend_from_slice(&frame.size.to_le_bytes());
    match frame.personality {
        None => bytes.push(0),
        Some(_) => {
            bytes.push(4);
            field(bytes, fixups, UnwindTarget::Handlers);
        }
    }
    rows(bytes, frame);
    end_record(bytes, start);
}

fn rows(bytes: &mut Vec<u8>, frame: &FrameRows<'_>) {
    let (rsp, rbp) = (Gpr::RSP.dwarf(), Gpr::RBP.dwarf());
    let mut at = 0;
    advance(bytes, &mut at, frame.pushed);
    bytes.extend_from_slice(&[DW_CFA_DEF_CFA_OFFSET, 16]);
    bytes.extend_from_slice(&[DW_CFA_OFFSET | rbp, 2]);
    advance(bytes, &mut at, frame.framed);
    bytes.extend_from_slice(&[DW_CFA_DEF_CFA_REGISTER, rbp]);
    if !frame.saved.is_empty() {
        advance(bytes, &mut at, frame.saved_at);
    }
    for (number, register) in frame.saved.iter().enumerate() {
        bytes.extend_from_slice(&[DW_CFA_OFFSET | register.dwarf(), number as u8 + 3]);
    }
    for &(restored, returned) in frame.epilogues {
        advance(bytes, &mut at, restored);
        bytes.extend_from_slice(&[DW_CFA_DEF_CFA, rsp, 8]);
        if returned < frame.size {
            advance(bytes, &mut at, returned);
            bytes.extend_from_slice(&[DW_CFA_DEF_CFA, rbp, 16]);
        }
    }
}

/// Writes an advance of the location to an offset.
fn advance(bytes: &mut Vec<u8>, at: &mut u32, to: u32) {
    let delta = to - *at;
    *at = to;
    match delta {
        0 => {}
        1..0x40 => bytes.push(DW_CFA_ADVANCE_LOC | delta as u8),
        0x40..0x100 => bytes.extend_from_slice(&[DW_CFA_ADVANCE_LOC1, delta as u8]),
        0x100..0x1_0000 => {
            bytes.push(DW_CFA_ADVANCE_LOC2);
            bytes.extend_from_slice(&(delta as u16).to_le_bytes());
        }
        _ => {
            bytes.push(DW_CFA_ADVANCE_LOC4);
            bytes.extend_from_slice(&delta.to_le_bytes());
        }
    }
}

fn field(bytes: &mut Vec<u8>, fixups: &mut Vec<UnwindFixup>, to: UnwindTarget) {
    fixups.push(UnwindFixup {
        at: bytes.len() as u32,
        to,
    });
    bytes.extend_from_slice(&[0; 4]);
}

/// Pads a record to a multiple of 8, as assemblers do, and writes its length.
fn end_record(bytes: &mut Vec<u8>, start: usize) {
    let end = start + (bytes.len() - start).next_multiple_of(8);
    bytes.resize(end, DW_CFA_NOP);
    let length = (end - start - 4) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use gimli::{
        BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Pointer, RegisterRule,
        UnwindContext, UnwindSection, X86_64,
    };

    use super::{FrameRows, table};
    use crate::asm::Gpr;
    use crate::code::{UnwindFixup, UnwindTarget};
    use crate::ir::Symbol;

    const TABLE: u64 = 0x1000;
    const FUNCTION: u64 = 0x5000;
    const HANDLERS: u64 = 0x7000;
    const PERSONALITY: u64 = 0x9000;

    /// The table relocated to its test address.
    fn placed(frame: &FrameRows<'_>) -> Vec<u8> {
        let (mut bytes, fixups) = table(frame);
        for UnwindFixup { at, to } in fixups {
            let to = match to {
                UnwindTarget::Function => FUNCTION,
                UnwindTarget::Handlers => HANDLERS,
                UnwindTarget::Personality(_) => PERSONALITY,
            };
            let distance = to.wrapping_sub(TABLE + u64::from(at)) as u32;
            bytes[at as usize..][..4].copy_from_slice(&distance.to_le_bytes());
        }
        bytes
    }

    const SAVED: [Gpr; 3] = [Gpr::RBX, Gpr::R12, Gpr::R15];

    fn frame(epilogues: &[(u32, u32)]) -> FrameRows<'_> {
        FrameRows {
            size: 70_400,
            pushed: 1,
            framed: 4,
            saved_at: 9,
            saved: &SAVED,
            epilogues,
            personality: None,
        }
    }

    /// The CFA and the places of registers at an offset, as text.
    fn row(bytes: &[u8], offset: u64) -> String {
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(TABLE);
        let mut context = UnwindContext::new();
        let row = section
            .unwind_info_for_address(
                &bases,
                &mut context,
                FUNCTION + offset,
                |section, bases, offset| section.cie_from_offset(bases, offset),
            )
            .expect("a row");
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            unreachable!("a register and an offset");
        };
        let mut text = format!(
            "{}+{offset}",
            X86_64::register_name(*register).expect("a name")
        );
        for number in 0..17 {
            let register = gimli::Register(number);
            if let RegisterRule::Offset(offset) = row.register(register) {
                let name = X86_64::register_name(register).expect("a name");
                text += &format!(" {name}:{offset}");
            }
        }
        text
    }

    #[test]
    fn rows_at_all_offsets() {
        let bytes = placed(&frame(&[(30, 31), (300, 301), (70_399, 70_400)]));
        let inside = "rbp+16 rbx:-24 rbp:-16 r12:-32 r15:-40 RA:-8";
        let leaving = "rsp+8 rbx:-24 rbp:-16 r12:-32 r15:-40 RA:-8";
        for (offset, expected) in [
            (0, "rsp+8 RA:-8"),
            (1, "rsp+16 rbp:-16 RA:-8"),
            (3, "rsp+16 rbp:-16 RA:-8"),
            (4, "rbp+16 rbp:-16 RA:-8"),
            (8, "rbp+16 rbp:-16 RA:-8"),
            (9, inside),
            (29, inside),
            (30, leaving),
            (31, inside),
            (299, inside),
            (300, leaving),
            (301, inside),
            (70_398, inside),
            (70_399, leaving),
        ] {
            assert_eq!(row(&bytes, offset), expected, "at {offset}");
        }
    }

    #[test]
    fn records_have_what_readers_want() {
        for personality in [None, Some(Symbol(3))] {
            let bytes = placed(&FrameRows {
                personality,
                ..frame(&[])
            });
            let section = EhFrame::new(&bytes, LittleEndian);
            let bases = BaseAddresses::default().set_eh_frame(TABLE);
            let fde = section
                .fde_for_address(&bases, FUNCTION, |section, bases, offset| {
                    section.cie_from_offset(bases, offset)
                })
                .expect("an FDE");
            assert_eq!(fde.initial_address(), FUNCTION);
            assert_eq!(fde.len(), 70_400);
            assert_eq!(
                fde.cie().personality(),
                personality.map(|_| Pointer::Indirect(PERSONALITY))
            );
            assert_eq!(fde.lsda(), personality.map(|_| Pointer::Direct(HANDLERS)));
            // Two records only.
            let mut entries = section.entries(&bases);
            assert!(entries.next().is_ok_and(|entry| entry.is_some()));
            assert!(entries.next().is_ok_and(|entry| entry.is_some()));
            assert!(entries.next().is_ok_and(|entry| entry.is_none()));
        }
    }

    #[test]
    fn nothing_saved() {
        let bytes = placed(&FrameRows {
            saved: &[],
            size: 20,
            ..frame(&[(18, 19)])
        });
        assert_eq!(row(&bytes, 17), "rbp+16 rbp:-16 RA:-8");
        assert_eq!(row(&bytes, 18), "rsp+8 rbp:-16 RA:-8");
        assert_eq!(row(&bytes, 19), "rbp+16 rbp:-16 RA:-8");
        let _: EndianSlice<'_, LittleEndian>;
    }
}
