//! Each method's bytes, as another library decodes them.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};

use super::{Asm, Gpr, Width};

mod addresses;
mod ints;
mod jumps;
mod vectors;

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

/// The instructions of some bytes at address 0, as text; each must be valid.
fn decode(bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    formatter.options_mut().set_rip_relative_addresses(true);
    formatter
        .options_mut()
        .set_small_hex_numbers_in_decimal(true);
    let mut lines = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        assert!(!instruction.is_invalid(), "{bytes:02x?} after {lines:?}");
        lines.push(line);
    }
    lines
}

/// Checks the bytes that `write` appends, decoded as one line.
#[track_caller]
fn check(write: impl FnOnce(&mut Asm), expected: &str) {
    let mut asm = Asm::default();
    write(&mut asm);
    assert_eq!(decode(&asm.finish().bytes).join("; "), expected);
}

fn gprs() -> impl Iterator<Item = Gpr> {
    (0..16).map(Gpr::new)
}

/// The register's name at a width, from the decoding library.
fn name(register: Gpr, width: Width) -> String {
    use iced_x86::Register as R;
    let first = match width {
        Width::W8 if register.number() < 4 => R::AL as u32,
        // `spl` follows `bh`.
        Width::W8 => R::SPL as u32 - 4,
        Width::W16 => R::AX as u32,
        Width::W32 => R::EAX as u32,
        Width::W64 => R::RAX as u32,
    };
    let all: Vec<R> = R::values().collect();
    let name = format!("{:?}", all[(first + u32::from(register.number())) as usize]);
    name.to_lowercase()
        .replace('l', if register.number() < 8 { "l" } else { "b" })
}
