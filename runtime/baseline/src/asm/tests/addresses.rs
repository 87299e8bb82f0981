//! Addresses and constants in their shortest form.

use iced_x86::{Decoder, DecoderOptions};

use super::{check, gprs};
use crate::asm::{Alu, Asm, Base, Gpr, Mem, Scale, Width};

/// Every base, index, scale and kind of displacement decodes to the same address.
#[test]
fn every_address() {
    const DISPS: [i32; 7] = [0, 1, -1, 127, -128, 128, i32::MIN];
    let bases = gprs().map(Some).chain([None]);
    for base in bases {
        let indexes = gprs()
            .filter(|&index| index != Gpr::RSP)
            .map(Some)
            .chain([None]);
        for index in indexes {
            for scale in [Scale::S1, Scale::S2, Scale::S4, Scale::S8] {
                for disp in DISPS {
                    one_address(Mem {
                        base: base.map_or(Base::Nothing, Base::Gpr),
                        index: index.map(|index| (index, scale)),
                        disp,
                    });
                }
            }
        }
    }
}

/// The sum of an address, as factors of registers.
fn sum(registers: &[(String, u32)]) -> Vec<(String, u32)> {
    let mut sum: Vec<(String, u32)> = Vec::new();
    for (register, factor) in registers {
        match sum.iter_mut().find(|(old, _)| old == register) {
            Some((_, old)) => *old += factor,
            None => sum.push((register.clone(), *factor)),
        }
    }
    sum.sort();
    sum
}

fn one_address(mem: Mem) {
    let mut asm = Asm::default();
    asm.store_imm(Width::W32, mem, 0x1234_5678);
    let bytes = asm.finish().bytes;
    let instruction = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode();
    assert_eq!(instruction.len(), bytes.len(), "{mem:?}");
    let named = |register: iced_x86::Register, factor| {
        (register != iced_x86::Register::None)
            .then(|| (format!("{register:?}").to_lowercase(), factor))
    };
    let got: Vec<_> = named(instruction.memory_base(), 1)
        .into_iter()
        .chain(named(
            instruction.memory_index(),
            instruction.memory_index_scale(),
        ))
        .collect();
    let mut wanted = Vec::new();
    if let Base::Gpr(base) = mem.base {
        wanted.push((format!("{base:?}"), 1));
    }
    if let Some((index, scale)) = mem.index {
        wanted.push((format!("{index:?}"), 1 << scale as u32));
    }
    assert_eq!(sum(&got), sum(&wanted), "{mem:?}");
    assert_eq!(
        instruction.memory_displacement64() as i64,
        i64::from(mem.disp),
        "{mem:?}"
    );
    assert_eq!(instruction.immediate32(), 0x1234_5678);
    // No shorter encoding exists.
    let has_base = matches!(mem.base, Base::Gpr(_));
    let small = i8::try_from(mem.disp).is_ok();
    if has_base && small {
        assert!(bytes.len() <= 9, "{mem:?} {bytes:02x?}");
    }
}

#[test]
fn addresses_are_short() {
    let length = |mem| {
        let mut asm = Asm::default();
        asm.load(Width::W32, Gpr::RAX, mem);
        asm.finish().bytes.len()
    };
    assert_eq!(length(Mem::at(Gpr::RCX, 0)), 2);
    assert_eq!(length(Mem::at(Gpr::RBP, 0)), 3);
    assert_eq!(length(Mem::at(Gpr::RSP, 0)), 3);
    assert_eq!(length(Mem::at(Gpr::R12, 0)), 4);
    assert_eq!(length(Mem::at(Gpr::R13, -8)), 4);
    assert_eq!(length(Mem::at(Gpr::RBX, 300)), 6);
    assert_eq!(length(Mem::indexed(Gpr::RBX, Gpr::RCX, Scale::S4, 0)), 3);
    assert_eq!(length(Mem::indexed(Gpr::RBP, Gpr::RCX, Scale::S1, 0)), 3);
    let twice = Mem {
        base: Base::Nothing,
        index: Some((Gpr::RCX, Scale::S2)),
        disp: 0,
    };
    assert_eq!(length(twice), 3);
}

#[test]
fn constants_are_short() {
    check(|asm| asm.constant(Gpr::R9, 0), "xor r9d, r9d");
    check(|asm| asm.mov_imm(Gpr::RAX, 0), "mov eax, 0");
    check(
        |asm| asm.mov_imm(Gpr::R9, 0xffff_ffff),
        "mov r9d, 0FFFFFFFFh",
    );
    check(
        |asm| asm.mov_imm(Gpr::R9, -5_i64 as u64),
        "mov r9, 0FFFFFFFFFFFFFFFBh",
    );
    check(
        |asm| asm.mov_imm(Gpr::R12, 1 << 40),
        "mov r12, 10000000000h",
    );
    for (value, length) in [
        (0, 5),
        (u64::from(u32::MAX), 5),
        (u64::MAX, 7),
        (1 << 32, 10),
    ] {
        let mut asm = Asm::default();
        asm.mov_imm(Gpr::RAX, value);
        assert_eq!(asm.finish().bytes.len(), length, "{value:#x}");
    }
    let length = |width, register, value| {
        let mut asm = Asm::default();
        asm.alu_imm(Alu::Add, width, register, value);
        asm.finish().bytes.len()
    };
    assert_eq!(length(Width::W32, Gpr::RAX, 1), 3);
    assert_eq!(length(Width::W32, Gpr::RAX, 1000), 5);
    assert_eq!(length(Width::W32, Gpr::RBX, 1000), 6);
    assert_eq!(length(Width::W64, Gpr::RAX, 1000), 6);
    assert_eq!(length(Width::W8, Gpr::RAX, 1), 2);
    assert_eq!(length(Width::W8, Gpr::RBX, -1), 3);
    assert_eq!(length(Width::W16, Gpr::RBX, 0xffff), 4);
}
