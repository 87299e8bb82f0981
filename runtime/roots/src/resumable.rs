//! Addresses at which code may continue after it was left.
//!
//! A suspended call continues behind the call instruction, or at an address within the code that the
//! code computes itself. These addresses are found in one pass: memory may hold as many words that look
//! like addresses of the code as the code has bytes.

use std::cell::OnceCell;

/// Code, as far as it could be read.
pub(crate) struct Resumable<'c> {
    code: &'c [u8],
    start: u64,
    /// Offsets of the addresses of its own that it computes, once requested.
    taken: OnceCell<Vec<u64>>,
}

impl<'c> Resumable<'c> {
    /// The code that lies at `start`.
    pub(crate) fn of(code: &'c [u8], start: u64) -> Resumable<'c> {
        Resumable {
            code,
            start,
            taken: OnceCell::new(),
        }
    }

    /// Whether it may continue at the address with this offset.
    pub(crate) fn at(&self, offset: u64) -> bool {
        let Some(before) = self.code.get(..offset as usize) else {
            // It could not be read: any address may be one.
            return true;
        };
        ends_in_call(before) || {
            let taken = self
                .taken
                .get_or_init(|| addresses_taken(self.code, self.start));
            taken.binary_search(&offset).is_ok()
        }
    }
}

/// `e8 rel32`, or `ff /2` with the length its second and third byte ask for.
pub(crate) fn ends_in_call(code: &[u8]) -> bool {
    let byte = |back: usize| code.get(code.len().checked_sub(back)?).copied();
    if byte(5) == Some(0xe8) {
        return true;
    }
    (2..=7).any(|length| {
        let (Some(0xff), Some(modrm)) = (byte(length), byte(length - 1)) else {
            return false;
        };
        if modrm & 0x38 != 0x10 {
            return false;
        }
        let (mode, base) = (modrm >> 6, modrm & 7);
        let scaled = mode != 3 && base == 4;
        let wide = match mode {
            0 if scaled => byte(length - 2).is_some_and(|sib| sib & 7 == 5),
            0 => base == 5,
            _ => false,
        };
        let displacement = match mode {
            0 if wide => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        length == 2 + usize::from(scaled) + displacement
    })
}

/// Offsets of the addresses within code that it computes itself, in order: by `lea r, [rip + d]`, or as
/// four bytes.
fn addresses_taken(code: &[u8], start: u64) -> Vec<u64> {
    let mut taken = Vec::new();
    let own = start..=start.saturating_add(code.len() as u64);
    for (at, field) in code.windows(4).enumerate() {
        let value = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        if own.contains(&u64::from(value)) {
            taken.push(u64::from(value) - start);
        }
        if at >= 2 && code[at - 2] == 0x8d && code[at - 1] & 0xc7 == 0x05 {
            let after = start.wrapping_add(at as u64 + 4);
            let address = after.wrapping_add_signed(i64::from(value as i32));
            taken.extend(own.contains(&address).then(|| address - start));
        }
    }
    taken.sort_unstable();
    taken.dedup();
    taken
}

#[cfg(test)]
mod tests {
    use super::{Resumable, addresses_taken, ends_in_call};

    #[test]
    fn calls_of_all_lengths_end_where_they_end() {
        let calls: [&[u8]; 12] = [
            &[0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],                         // call rax
            &[0x41, 0xff, 0xd3],                   // call r11
            &[0xff, 0x10],                         // call [rax]
            &[0xff, 0x14, 0xc8],                   // call [rax + rcx*8]
            &[0xff, 0x50, 8],                      // call [rax + 8]
            &[0xff, 0x54, 0xc8, 8],                // call [rax + rcx*8 + 8]
            &[0xff, 0x15, 1, 2, 3, 4],             // call [rip + d]
            &[0xff, 0x90, 1, 2, 3, 4],             // call [rax + d]
            &[0xff, 0x94, 0xc8, 1, 2, 3, 4],       // call [rax + rcx*8 + d]
            &[0xff, 0x14, 0x25, 1, 2, 3, 4],       // call [d]
            &[0x3e, 0xff, 0x14, 0xcd, 1, 2, 3, 4], // notrack call [rcx*8 + d]
        ];
        for call in calls {
            assert!(ends_in_call(call), "{call:x?}");
            assert!(!ends_in_call(&call[..call.len() - 1]), "{call:x?}");
        }
        // push, jmp and dec with the same first byte.
        for other in [
            &[0xff, 0xf0][..],
            &[0xff, 0xe0],
            &[0xff, 0xc8],
            &[0xff, 0x20],
        ] {
            assert!(!ends_in_call(other), "{other:x?}");
        }
    }

    #[test]
    fn addresses_that_code_takes_itself_count() {
        // nop; lea rax, [rip + 2]; nop; nop; target
        let code = [0x90, 0x48, 0x8d, 0x05, 2, 0, 0, 0, 0x90, 0x90, 0x90];
        assert!(addresses_taken(&code, 0x1000).contains(&10));
        assert!(!addresses_taken(&code, 0x1000).contains(&9));
        // jmp to the same place does not.
        let code = [0x90, 0x90, 0x90, 0xe9, 2, 0, 0, 0, 0x90, 0x90, 0x90];
        assert!(!addresses_taken(&code, 0x1000).contains(&10));
        // push 0x1006
        let code = [0x68, 6, 0x10, 0, 0, 0x90, 0x90];
        assert!(Resumable::of(&code, 0x1000).at(6));
        assert!(!Resumable::of(&code, 0x1000).at(0));
        // Nothing is known of code that could not be read.
        assert!(Resumable::of(&code, 0x1000).at(0x20));
    }
}
