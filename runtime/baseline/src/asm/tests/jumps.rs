//! Labels, jumps, constants, fix-ups.

use iced_x86::{Decoder, DecoderOptions};

use super::decode;
use crate::asm::{Alu, Asm, Base, Condition, Gpr, Mem, Sse, Width, Xmm};
use crate::code::FixupKind;
use crate::ir::Symbol;
use uruk_testing::Random;

#[test]
fn fixups_are_fields() {
    let mut asm = Asm::default();
    asm.call_symbol(Symbol(1));
    asm.address_word(Gpr::R9, Symbol(2));
    asm.address_near(Gpr::RAX, Symbol(3), 24);
    asm.store_imm(Width::W8, Mem::symbol(Symbol(4), 2), 7);
    asm.alu_imm(Alu::Add, Width::W32, Mem::symbol(Symbol(5), 0), 1000);
    asm.thread_local(Symbol(6), Symbol(7));
    asm.jump_symbol(Symbol(8));
    let done = asm.finish();
    let text = decode(&done.bytes);
    assert_eq!(
        text.iter()
            .map(|line| line.split(' ').next().unwrap_or(""))
            .collect::<Vec<_>>(),
        ["call", "mov", "lea", "mov", "add", "lea", "call", "jmp"],
    );
    let fixups: Vec<_> = done
        .fixups
        .iter()
        .map(|fixup| (fixup.at, fixup.kind, fixup.symbol.0, fixup.addend))
        .collect();
    assert_eq!(
        fixups,
        [
            (2, FixupKind::CallThrough, 1, 0),
            (9, FixupKind::AddressWord, 2, 0),
            (16, FixupKind::Distance, 3, 24),
            (22, FixupKind::Distance, 4, 1),
            (29, FixupKind::Distance, 5, -4),
            (41, FixupKind::ThreadLocalPair, 6, 0),
            (49, FixupKind::CallThrough, 7, 0),
            (55, FixupKind::CallThrough, 8, 0),
        ]
    );
}

#[test]
fn constants_and_tables_follow_the_code() {
    let mut asm = Asm::default();
    let near = asm.here();
    let one = asm.constant4(0x3f80_0000);
    let two = asm.constant8(0x4000_0000_0000_0000);
    let wide = asm.constant16([9; 16]);
    assert_eq!(asm.constant4(0x3f80_0000), one);
    asm.load_float(false, Xmm::new(0), one);
    asm.load_float(true, Xmm::new(1), two);
    asm.sse(Sse::XORPS, Xmm::new(9), wide);
    asm.alu_imm(Alu::Cmp, Width::W32, one, 100_000);
    let far = asm.new_label();
    let table = asm.table([near, far]);
    asm.address_label(Gpr::RDX, table.label());
    asm.bind(far);
    asm.ret();
    let done = asm.finish();
    let text = decode(&done.bytes[..done.size as usize]);
    let place = |label| asm.offset_of(label);
    let at = |mem: Mem| match mem.base {
        Base::Label(label) => place(label),
        _ => unreachable!("a constant"),
    };
    assert!(at(wide) % 16 == 0 && at(two) % 8 == 0 && at(one) % 4 == 0);
    let target = |line: usize, mem: Mem, next: u32| {
        let distance = at(mem) - next;
        assert!(
            text[line].contains(&format!("[rip+{}]", hex(distance))),
            "{}",
            text[line]
        );
    };
    target(0, one, 8);
    target(1, two, 16);
    target(2, wide, 24);
    target(3, one, 34);
    let table_at = place(table.label()) as usize;
    let entry = |index: usize| {
        let bytes = &done.bytes[table_at + 4 * index..][..4];
        i32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    };
    assert_eq!(table_at as i32 + entry(0), 0);
    assert_eq!(table_at as i32 + entry(1), place(far) as i32);
    assert_eq!(
        done.bytes[at(one) as usize..][..4],
        0x3f80_0000_u32.to_le_bytes()
    );
}

/// Prints numbers as the formatter does.
fn hex(value: u32) -> String {
    match value {
        0..=9 => format!("{value}"),
        _ => {
            let digits = format!("{value:X}h");
            if digits.starts_with(|c: char| c.is_ascii_digit()) {
                digits
            } else {
                format!("0{digits}")
            }
        }
    }
}

/// Random jumps over random distances: each decoded jump leads to the instruction after which its
/// label was bound, fix-ups stay in their fields, and no jump that is clearly in short reach is
/// long.
#[test]
fn jumps_lead_to_their_labels() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut asm = Asm::default();
        let labels: Vec<_> = (0..20).map(|_| asm.new_label()).collect();
        // Behind each label comes a move of its number.
        let mut jumps = Vec::new();
        for (number, &label) in labels.iter().enumerate() {
            asm.bind(label);
            asm.mov_imm(Gpr::RAX, number as u64);
            for _ in 0..random.below(4) {
                let target = random.below(20) as usize;
                match random.below(3) {
                    0 => asm.jump(labels[target]),
                    1 => asm.jump_if(Condition::Less, labels[target]),
                    _ => {
                        asm.address_label(Gpr::RBX, labels[target]);
                    }
                }
                jumps.push(target);
                for _ in 0..random.below(12) {
                    asm.call_symbol(Symbol(number as u32));
                }
            }
        }
        let done = asm.finish();
        let mut decoder = Decoder::with_ip(64, &done.bytes, 0, DecoderOptions::NONE);
        let mut targets = jumps.iter();
        let mut fixups = done.fixups.iter();
        for instruction in &mut decoder {
            use iced_x86::Mnemonic as M;
            let target = match instruction.mnemonic() {
                M::Jmp | M::Jl => instruction.near_branch_target(),
                M::Lea => instruction.memory_displacement64(),
                M::Call => {
                    let fixup = fixups.next().expect("a fix-up for each call");
                    assert_eq!(u64::from(fixup.at), instruction.ip() + 2);
                    continue;
                }
                M::Mov => continue,
                other => unreachable!("{other:?}"),
            };
            let wanted = *targets.next().expect("as many as were written");
            assert_eq!(
                target,
                u64::from(asm.offset_of(labels[wanted])),
                "seed {seed}"
            );
            let bytes = &done.bytes[target as usize..];
            assert_eq!(bytes[..5], [0xb8, wanted as u8, 0, 0, 0], "seed {seed}");
            let distance = target as i64 - instruction.next_ip() as i64;
            let is_short = instruction.len() == 2;
            if instruction.mnemonic() != M::Lea && distance.abs() < 120 {
                assert!(is_short, "seed {seed}: {distance}");
            }
        }
        assert!(targets.next().is_none() && fixups.next().is_none());
    }
}
