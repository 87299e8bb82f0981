//! Rewrites instructions with a GOT access into ones without the word.
//!
//! The field is the 32-bit displacement of an operand relative to the instruction pointer. It is
//! the last part of its instruction, so the addend is -4 and the next instruction starts 4 bytes
//! after the field. `P` is the field's address, `S` the symbol's, `W` the address of a word that
//! holds `S`.
//!
//! | bytes before the field | instruction | becomes |
//! |---|---|---|
//! | `FF 15` | `call *W` | `67 E8` (S-P-4): `addr32 call S`, same length |
//! | `66 48 FF 15` | `data16 rex64 call *W` | `66 66 48 E8` (S-P-4), for `__tls_get_addr` |
//! | `FF 25` | `jmp *W` | `E9` (S-P-3) `90`: `jmp S; nop` |
//! | `8B /r` | `mov W, r` | `8D /r` (S-P-4): `lea S, r` |
//! | `REX.W 8D /r` | `lea x@tlsdesc, r` | `REX.W C7 /0` (T): `mov $T, r` |
//! | anything else | `cmp W, r`, `add W, r`, `push W` ... | stays |
//!
//! The prefix `67` changes nothing on a direct call. `66` before a plain `E8` would cut the address
//! to 16 bits on AMD; `REX.W` prevents that.

use crate::error::Problem;

/// The use of the word that an instruction's field points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessForm {
    Call,
    Jump,
    /// Loads the word into a register.
    Load,
    Other,
}

/// The form of the instruction whose displacement is at `at`.
pub(crate) fn form(bytes: &[u8], at: usize, addend: i64) -> AccessForm {
    let Some(before) = at.checked_sub(2).and_then(|start| bytes.get(start..at)) else {
        return AccessForm::Other;
    };
    match before {
        _ if addend != -4 => AccessForm::Other,
        [0xff, 0x15] => AccessForm::Call,
        [0xff, 0x25] => AccessForm::Jump,
        [0x8b, modrm] if modrm & 0xc7 == 0x05 => AccessForm::Load,
        _ => AccessForm::Other,
    }
}

/// Whether the field at `at` is the target of a direct call or jump.
pub(crate) fn is_branch(bytes: &[u8], at: usize) -> bool {
    let byte = |back: usize| at.checked_sub(back).and_then(|i| bytes.get(i)).copied();
    match (byte(2), byte(1)) {
        (_, Some(0xe8 | 0xe9)) => true,
        (Some(0x0f), Some(condition)) => condition & 0xf0 == 0x80,
        _ => false,
    }
}

/// Whether the field at `at` is the operand of a `lea`: `8D /r` relative to the instruction
/// pointer.
pub(crate) fn is_address(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(2).and_then(|start| bytes.get(start..at));
    matches!(before, Some([0x8d, modrm]) if modrm & 0xc7 == 0x05)
}

/// Makes the indirect call at `at` direct; `distance` is S-P. Returns the number of bytes rewritten
/// before the field.
pub(crate) fn direct_call(bytes: &mut [u8], at: usize, distance: u64, padded: bool) -> usize {
    let before: &[u8] = if padded && at >= 4 && bytes[at - 4..at - 2] == [0x66, 0x48] {
        &[0x66, 0x66, 0x48, 0xe8]
    } else {
        &[0x67, 0xe8]
    };
    bytes[at - before.len()..at].copy_from_slice(before);
    put(bytes, at, distance.wrapping_sub(4));
    before.len()
}

/// Makes the indirect jump at `at` direct; `distance` is S-P.
pub(crate) fn direct_jump(bytes: &mut [u8], at: usize, distance: u64) {
    bytes[at - 2] = 0xe9;
    put(bytes, at - 1, distance.wrapping_sub(3));
    bytes[at + 3] = 0x90;
}

/// Replaces the load at `at` by the computation of the address; `distance` is S-P.
pub(crate) fn address(bytes: &mut [u8], at: usize, distance: u64) {
    bytes[at - 2] = 0x8d;
    put(bytes, at, distance.wrapping_sub(4));
}

/// Replaces the descriptor's `lea` at `at` by a move of `offset`.
pub(crate) fn descriptor(bytes: &mut [u8], at: usize, offset: u64) -> Result<(), Problem> {
    let wrong = Err(Problem::WrongInstruction);
    if bytes.len() < at.saturating_add(4) {
        return Err(Problem::OutsideSection);
    }
    if at < 3 || bytes[at - 2] != 0x8d || bytes[at - 1] & 0xc7 != 0x05 {
        return wrong;
    }
    // The register goes from the field `reg` to `rm`, and so do its high bits.
    let prefix = bytes[at - 3];
    if at >= 4 && bytes[at - 4] == 0xd5 {
        if prefix & 0x88 != 0x08 {
            return wrong;
        }
        bytes[at - 3] = 0x08 | (prefix >> 6 & 1) << 4 | (prefix >> 2 & 1);
    } else if prefix & 0xfb == 0x48 {
        bytes[at - 3] = 0x48 | (prefix >> 2 & 1);
    } else {
        return wrong;
    }
    bytes[at - 2] = 0xc7;
    bytes[at - 1] = 0xc0 | (bytes[at - 1] >> 3 & 7);
    put(bytes, at, offset);
    Ok(())
}

/// Replaces the descriptor's call, which starts at `at`, by a `nop`.
pub(crate) fn descriptor_call(bytes: &mut [u8], at: usize) -> Result<(), Problem> {
    match bytes
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
    {
        Some(call) if *call == [0xff, 0x10] => {
            *call = [0x66, 0x90];
            Ok(())
        }
        Some(_) => Err(Problem::WrongInstruction),
        None => Err(Problem::OutsideSection),
    }
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}
