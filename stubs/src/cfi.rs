//! Frame descriptions of stubs and resolver, as `.eh_frame` bytes.
//!
//! - In a stub the stack is as at the entry of any function: CFA = rsp + 8. In
//!   the common jump the stub's `call` has pushed a word: CFA = rsp + 16. One
//!   entry for the whole region encodes this with an expression of the program
//!   counter, as linkers do for procedure linkage tables:
//!   `CFA = rsp + 8 + 8 * ((rip & 0xfff) >= 0xff0)`.
//! - The resolver's frame is found by rbp; the return address is the guest's
//!   (CFA - 8), so a walk goes from the resolver to the guest's caller and never
//!   sees the stub.

use crate::image::COMMON;
use crate::resolver::Frame;

/// DWARF register numbers (System V ABI, figure 3.36).
const RBP: u8 = 6;
const RSP: u8 = 7;
const RIP: u8 = 16;

const DW_EH_PE_PCREL_SDATA4: u8 = 0x1b;
const DW_CFA_ADVANCE_LOC1: u8 = 0x02;
const DW_CFA_ADVANCE_LOC2: u8 = 0x03;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_REGISTER: u8 = 0x0d;
const DW_CFA_DEF_CFA_OFFSET: u8 = 0x0e;
const DW_CFA_DEF_CFA_EXPRESSION: u8 = 0x0f;
const DW_CFA_OFFSET: u8 = 0x80;
const DW_CFA_RESTORE: u8 = 0xc0;
const DW_OP_BREG0: u8 = 0x70;
const DW_OP_CONST2U: u8 = 0x0a;
const DW_OP_AND: u8 = 0x1a;
const DW_OP_GE: u8 = 0x2a;
const DW_OP_LIT3: u8 = 0x33;
const DW_OP_SHL: u8 = 0x24;
const DW_OP_PLUS: u8 = 0x22;

/// A range of code and its frame description entry, for an unwinder's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRow {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Address of the FDE record. Several rows may share it.
    pub fde: u64,
}

/// The section, and the offsets of its two entries.
#[derive(Debug)]
pub(crate) struct EhFrame {
    /// CIE, two FDEs, a zero length.
    pub(crate) bytes: Vec<u8>,
    pub(crate) stubs_fde: usize,
    pub(crate) resolver_fde: usize,
}

/// Addresses of the described code and of the description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) eh_frame: u64,
    pub(crate) stubs: u64,
    pub(crate) stubs_len: u32,
    pub(crate) resolver: u64,
}

/// Upper bound of the bytes that [`eh_frame`] returns.
pub(crate) const EH_FRAME_BYTES: usize = 192;

/// Encodes the section for its address.
pub(crate) fn eh_frame(places: &Places, frame: &Frame) -> EhFrame {
    let mut out = Section {
        address: places.eh_frame,
        bytes: Vec::with_capacity(EH_FRAME_BYTES),
    };
    // CIE: version 1, "zR", code alignment 1, data alignment -8 (sleb 0x78),
    // return address rip; at entry CFA = rsp + 8, rip at CFA - 8.
    let mut cie = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, RIP, 1];
    cie.push(DW_EH_PE_PCREL_SDATA4);
    cie.extend([DW_CFA_DEF_CFA, RSP, 8, DW_CFA_OFFSET | RIP, 1]);
    out.record(&cie);
    let stubs_fde = out.fde(places.stubs, places.stubs_len, &stub_rows());
    let resolver_fde = out.fde(places.resolver, frame.end, &resolver_rows(frame));
    out.bytes.extend([0; 4]);
    assert!(out.bytes.len() <= EH_FRAME_BYTES);
    EhFrame {
        bytes: out.bytes,
        stubs_fde,
        resolver_fde,
    }
}

fn stub_rows() -> Vec<u8> {
    let [page_low, page_high] = 0xfff_u16.to_le_bytes();
    let [common_low, common_high] = (COMMON as u16).to_le_bytes();
    let expression = [
        DW_OP_BREG0 + RSP,
        8,
        DW_OP_BREG0 + RIP,
        0,
        DW_OP_CONST2U,
        page_low,
        page_high,
        DW_OP_AND,
        DW_OP_CONST2U,
        common_low,
        common_high,
        DW_OP_GE,
        DW_OP_LIT3,
        DW_OP_SHL,
        DW_OP_PLUS,
    ];
    let mut rows = vec![DW_CFA_DEF_CFA_EXPRESSION, expression.len() as u8];
    rows.extend(expression);
    rows
}

fn resolver_rows(frame: &Frame) -> Vec<u8> {
    let mut rows = vec![DW_CFA_DEF_CFA_OFFSET, 16];
    advance(&mut rows, frame.pushed);
    // rbp at CFA - 24.
    rows.extend([DW_CFA_DEF_CFA_OFFSET, 24, DW_CFA_OFFSET | RBP, 3]);
    advance(&mut rows, frame.based - frame.pushed);
    rows.extend([DW_CFA_DEF_CFA_REGISTER, RBP]);
    advance(&mut rows, frame.left - frame.based);
    rows.extend([DW_CFA_DEF_CFA, RSP, 16, DW_CFA_RESTORE | RBP]);
    rows
}

fn advance(rows: &mut Vec<u8>, by: u32) {
    match u8::try_from(by) {
        Ok(by) => rows.extend([DW_CFA_ADVANCE_LOC1, by]),
        Err(_) => {
            rows.push(DW_CFA_ADVANCE_LOC2);
            rows.extend((by as u16).to_le_bytes());
        }
    }
}

struct Section {
    address: u64,
    bytes: Vec<u8>,
}

impl Section {
    /// Appends a record, padded with DW_CFA_nop to 8 bytes.
    fn record(&mut self, content: &[u8]) {
        let len = (4 + content.len()).next_multiple_of(8) - 4;
        self.bytes.extend((len as u32).to_le_bytes());
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len() + len - content.len(), 0);
    }

    /// Appends an FDE of the CIE at offset 0; returns its offset.
    fn fde(&mut self, start: u64, len: u32, rows: &[u8]) -> usize {
        let offset = self.bytes.len();
        let mut content = Vec::new();
        // The distance from this field to the CIE.
        content.extend((offset as u32 + 4).to_le_bytes());
        let field = self.address + offset as u64 + 8;
        let relative = start.wrapping_sub(field) as i64;
        let relative = i32::try_from(relative).expect("one reservation is below 2 GiB");
        content.extend(relative.to_le_bytes());
        content.extend(len.to_le_bytes());
        // No augmentation data.
        content.push(0);
        content.extend(rows);
        self.record(&content);
        offset
    }
}
