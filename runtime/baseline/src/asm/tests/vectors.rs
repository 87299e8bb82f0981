//! Vector registers and the x87 stack.

use iced_x86::{Decoder, DecoderOptions};

use super::{check, name};
use crate::asm::{Arith, Asm, Gpr, Mem, Sse, Width, X87, Xmm};

#[test]
fn every_pair_of_vector_registers() {
    for a in 0..16 {
        for b in 0..16 {
            let (x, y) = (Xmm::new(a), Xmm::new(b));
            check(|asm| asm.movaps(x, y), &format!("movaps xmm{a}, xmm{b}"));
            check(
                |asm| asm.sse(Sse::scalar(Arith::Add, true), x, y),
                &format!("addsd xmm{a}, xmm{b}"),
            );
            let g = name(Gpr::new(b), Width::W64);
            check(
                |asm| asm.mov_from_gpr(Width::W64, x, Gpr::new(b)),
                &format!("movq xmm{a}, {g}"),
            );
            check(
                |asm| asm.mov_to_gpr(Width::W64, Gpr::new(b), x),
                &format!("movq {g}, xmm{a}"),
            );
            check(
                |asm| asm.cvt_to_int(true, Width::W64, Gpr::new(b), x),
                &format!("cvttsd2si {g}, xmm{a}"),
            );
        }
    }
}

#[test]
fn vector_instructions() {
    let (x, y) = (Xmm::new(3), Xmm::new(12));
    for &(name, op) in Sse::NAMED {
        let mut asm = Asm::default();
        asm.sse(op, x, y);
        let bytes = asm.finish().bytes;
        let instruction = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode();
        let mnemonic = format!("{:?}", instruction.mnemonic()).to_uppercase();
        assert_eq!(mnemonic, name);
        assert_eq!(instruction.len(), bytes.len());
        assert_eq!(
            instruction.op0_register(),
            iced_x86::Register::XMM3,
            "{name}"
        );
        assert_eq!(
            instruction.op1_register(),
            iced_x86::Register::XMM12,
            "{name}"
        );
    }
    for (op, name) in [
        (Arith::Add, "add"),
        (Arith::Sub, "sub"),
        (Arith::Mul, "mul"),
        (Arith::Div, "div"),
        (Arith::Min, "min"),
        (Arith::Max, "max"),
        (Arith::Sqrt, "sqrt"),
    ] {
        for (double, kind) in [(false, "s"), (true, "d")] {
            let text = format!("{name}s{kind} xmm3, xmm12");
            check(|asm| asm.sse(Sse::scalar(op, double), x, y), &text);
        }
    }
    let mem = Mem::at(Gpr::R12, 8);
    check(|asm| asm.load_float(true, y, mem), "movsd xmm12, [r12+8]");
    check(|asm| asm.load_float(false, y, mem), "movss xmm12, [r12+8]");
    check(|asm| asm.store_float(true, mem, y), "movsd [r12+8], xmm12");
    check(|asm| asm.store_float(false, mem, x), "movss [r12+8], xmm3");
    check(|asm| asm.load_vector(true, x, mem), "movaps xmm3, [r12+8]");
    check(|asm| asm.load_vector(false, x, mem), "movups xmm3, [r12+8]");
    check(|asm| asm.store_vector(true, mem, x), "movaps [r12+8], xmm3");
    check(
        |asm| asm.store_vector(false, mem, x),
        "movups [r12+8], xmm3",
    );
    check(
        |asm| asm.mov_from_gpr(Width::W32, y, Gpr::R9),
        "movd xmm12, r9d",
    );
    check(
        |asm| asm.mov_to_gpr(Width::W32, Gpr::R9, y),
        "movd r9d, xmm12",
    );
    check(
        |asm| asm.cvt_from_int(true, Width::W64, y, Gpr::R9),
        "cvtsi2sd xmm12, r9",
    );
    check(
        |asm| asm.cvt_from_int(false, Width::W32, y, Gpr::R9),
        "cvtsi2ss xmm12, r9d",
    );
    check(
        |asm| asm.cvt_to_int(false, Width::W32, Gpr::R9, mem),
        "cvttss2si r9d, [r12+8]",
    );
}

#[test]
fn x87_instructions() {
    let mem = Mem::at(Gpr::RBP, -16);
    check(|asm| asm.x87_load(4, mem), "fld st, dword ptr [rbp-10h]");
    check(|asm| asm.x87_load(8, mem), "fld st, qword ptr [rbp-10h]");
    check(|asm| asm.x87_load(10, mem), "fld st, tbyte ptr [rbp-10h]");
    check(|asm| asm.x87_store(4, mem), "fstp dword ptr [rbp-10h], st");
    check(|asm| asm.x87_store(8, mem), "fstp qword ptr [rbp-10h], st");
    check(|asm| asm.x87_store(10, mem), "fstp tbyte ptr [rbp-10h], st");
    check(
        |asm| asm.x87_load_int(2, mem),
        "fild st, word ptr [rbp-10h]",
    );
    check(
        |asm| asm.x87_load_int(4, mem),
        "fild st, dword ptr [rbp-10h]",
    );
    check(
        |asm| asm.x87_load_int(8, mem),
        "fild st, qword ptr [rbp-10h]",
    );
    check(
        |asm| asm.x87_store_int(2, mem),
        "fistp word ptr [rbp-10h], st",
    );
    check(
        |asm| asm.x87_store_int(4, mem),
        "fistp dword ptr [rbp-10h], st",
    );
    check(
        |asm| asm.x87_store_int(8, mem),
        "fistp qword ptr [rbp-10h], st",
    );
    check(|asm| asm.x87_load_control(mem), "fldcw [rbp-10h]");
    check(|asm| asm.x87_store_control(mem), "fnstcw [rbp-10h]");
    check(|asm| asm.x87_add_float(mem), "fadd st, dword ptr [rbp-10h]");
    for (op, text) in [
        (X87::StorePop, "fstp st(3), st"),
        (X87::AddPop, "faddp st(3), st"),
        (X87::MulPop, "fmulp st(3), st"),
        (X87::SubPop, "fsubp st(3), st"),
        (X87::DivPop, "fdivp st(3), st"),
        (X87::Compare, "fucomi st, st(3)"),
        (X87::ComparePop, "fucomip st, st(3)"),
    ] {
        check(|asm| asm.x87(op, 3), text);
    }
    check(|asm| asm.x87_negate(), "fchs");
    check(|asm| asm.x87_abs(), "fabs");
    check(|asm| asm.x87_sqrt(), "fsqrt");
}
