//! Checks that relocations are fields of instructions, of the right kind.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use uruk_baseline::{Code, FixupKind};

/// Checks each field.
pub fn check(code: &Code, all: &[Instruction], bytes: &[u8]) -> Result<(), String> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut behind = 0;
    for fixup in &code.fixups {
        let at = u64::from(fixup.at);
        let size = if fixup.kind == FixupKind::Absolute64 {
            8
        } else {
            4
        };
        if at < behind {
            return Err(format!("fix-ups at {at:#x} overlap or are not sorted"));
        }
        behind = at + size;
        if behind as usize > code.bytes.len() {
            return Err(format!("a fix-up at {at:#x}, outside of the code"));
        }
        if fixup.at >= code.size {
            continue;
        }
        let index = all.partition_point(|one| one.next_ip() <= at);
        let instruction = all
            .get(index)
            .ok_or(format!("a fix-up at {at:#x}, behind the code"))?;
        let wrong = |what: &str| Err(format!("{at:#x} `{instruction}`: {what}"));
        // The decoder knows the fields of the last instruction only.
        decoder
            .set_position(instruction.ip() as usize)
            .map_err(|error| error.to_string())?;
        decoder.set_ip(instruction.ip());
        let instruction = &decoder.decode();
        let offsets = decoder.get_constant_offsets(instruction);
        let within = at - instruction.ip();
        let is_displacement = offsets.has_displacement()
            && offsets.displacement_offset() as u64 == within
            && offsets.displacement_size() as u64 == size;
        let is_immediate = offsets.has_immediate()
            && offsets.immediate_offset() as u64 == within
            && offsets.immediate_size() as u64 == size;
        if fixup.kind == FixupKind::Absolute64 {
            match is_immediate {
                true => continue,
                false => return wrong("a fix-up that is no immediate of 8 bytes"),
            }
        }
        if !is_displacement || !instruction.is_ip_rel_memory_operand() {
            return wrong("a fix-up that is no distance of the instruction");
        }
        let follow = (instruction.next_ip() - behind) as i64;
        let is_word = fixup.kind != FixupKind::Distance;
        if is_word && fixup.addend != -follow {
            return wrong("a word's fix-up whose addend is not the bytes that follow");
        }
        let fits = match fixup.kind {
            FixupKind::CallThrough => {
                let is = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp);
                is && follow == 0
            }
            FixupKind::AddressWord => {
                instruction.mnemonic() == Mnemonic::Mov && instruction.len() == 7
            }
            FixupKind::ThreadLocalPair => instruction.mnemonic() == Mnemonic::Lea,
            _ => true,
        };
        if !fits {
            return wrong("an instruction of another kind than its fix-up says");
        }
    }
    Ok(())
}
