//! General registers.

use super::{WIDTHS, check, gprs, name};
use crate::asm::{Alu, Condition, Gpr, Mem, Scale, Scan, Shift, Unary, Width};

#[test]
fn every_pair_of_registers_at_every_width() {
    for width in WIDTHS {
        for a in gprs() {
            for b in gprs() {
                let names = format!("{}, {}", name(a, width), name(b, width));
                check(
                    |asm| asm.alu(Alu::Sub, width, a, b),
                    &format!("sub {names}"),
                );
                check(|asm| asm.test(width, a, b), &format!("test {names}"));
                if width >= Width::W32 {
                    check(|asm| asm.mov(width, a, b), &format!("mov {names}"));
                    let cmov = format!("cmovle {names}");
                    check(|asm| asm.cmov(Condition::LessEqual, width, a, b), &cmov);
                }
                if width >= Width::W16 {
                    check(|asm| asm.imul(width, a, b), &format!("imul {names}"));
                    check(
                        |asm| asm.scan(Scan::Popcnt, width, a, b),
                        &format!("popcnt {names}"),
                    );
                }
                if width < Width::W32 {
                    let to = name(a, Width::W32);
                    let from = name(b, width);
                    check(|asm| asm.movzx(width, a, b), &format!("movzx {to}, {from}"));
                    let to = name(a, Width::W64);
                    check(
                        |asm| asm.movsx(width, Width::W64, a, b),
                        &format!("movsx {to}, {from}"),
                    );
                }
            }
            let one = name(a, width);
            check(|asm| asm.unary(Unary::Neg, width, a), &format!("neg {one}"));
            check(
                |asm| asm.shift_cl(Shift::Sar, width, a),
                &format!("sar {one}, cl"),
            );
            check(
                |asm| asm.shift_imm(Shift::Ror, width, a, 5),
                &format!("ror {one}, 5"),
            );
            check(
                |asm| asm.alu_imm(Alu::Cmp, width, a, 7),
                &format!("cmp {one}, 7"),
            );
        }
    }
    for a in gprs() {
        check(
            |asm| asm.setcc(Condition::Above, a),
            &format!("seta {}", name(a, Width::W8)),
        );
        check(|asm| asm.push(a), &format!("push {a:?}"));
        check(|asm| asm.pop(a), &format!("pop {a:?}"));
        check(|asm| asm.call(a), &format!("call {a:?}"));
        check(|asm| asm.bswap(Width::W64, a), &format!("bswap {a:?}"));
        let low = name(a, Width::W32);
        check(|asm| asm.bswap(Width::W32, a), &format!("bswap {low}"));
        check(
            |asm| asm.movsx(Width::W32, Width::W64, Gpr::R9, a),
            &format!("movsxd r9, {low}"),
        );
    }
}

#[test]
fn integer_instructions() {
    let mem = Mem::indexed(Gpr::R13, Gpr::R14, Scale::S4, 16);
    let at = "[r13+r14*4+10h]";
    for width in WIDTHS {
        let size = ["byte", "word", "dword", "qword"][width as usize];
        let r = name(Gpr::RSI, width);
        check(
            |asm| asm.store(width, mem, Gpr::RSI),
            &format!("mov {at}, {r}"),
        );
        check(
            |asm| asm.store_imm(width, mem, 5),
            &format!("mov {size} ptr {at}, 5"),
        );
        check(
            |asm| asm.alu_store(Alu::Xor, width, mem, Gpr::RSI),
            &format!("xor {at}, {r}"),
        );
        check(
            |asm| asm.alu(Alu::Adc, width, Gpr::RSI, mem),
            &format!("adc {r}, {at}"),
        );
        check(
            |asm| asm.alu_imm(Alu::Sbb, width, mem, 9),
            &format!("sbb {size} ptr {at}, 9"),
        );
        check(
            |asm| asm.unary(Unary::Div, width, mem),
            &format!("div {size} ptr {at}"),
        );
        check(
            |asm| asm.unary(Unary::Inc, width, mem),
            &format!("inc {size} ptr {at}"),
        );
        check(
            |asm| asm.shift_imm(Shift::Shl, width, mem, 1),
            &format!("shl {size} ptr {at}, 1"),
        );
        check(
            |asm| asm.test_imm(width, mem, 5),
            &format!("test byte ptr {at}, 5"),
        );
        check(
            |asm| asm.lock_alu(Alu::And, width, mem, Gpr::RSI),
            &format!("lock and {at}, {r}"),
        );
        check(
            |asm| asm.lock_alu_imm(Alu::Or, width, mem, 1),
            &format!("lock or {size} ptr {at}, 1"),
        );
        check(
            |asm| asm.lock_xadd(width, mem, Gpr::RSI),
            &format!("lock xadd {at}, {r}"),
        );
        check(
            |asm| asm.lock_cmpxchg(width, mem, Gpr::RSI),
            &format!("lock cmpxchg {at}, {r}"),
        );
        check(
            |asm| asm.xchg_mem(width, mem, Gpr::RSI),
            &format!("xchg {at}, {r}"),
        );
    }
    check(
        |asm| asm.load(Width::W8, Gpr::RDI, mem),
        &format!("movzx edi, byte ptr {at}"),
    );
    check(
        |asm| asm.load(Width::W64, Gpr::RDI, mem),
        &format!("mov rdi, {at}"),
    );
    check(
        |asm| asm.movsx(Width::W8, Width::W32, Gpr::RDI, mem),
        &format!("movsx edi, byte ptr {at}"),
    );
    check(
        |asm| asm.movsx(Width::W32, Width::W32, Gpr::RDI, mem),
        &format!("mov edi, {at}"),
    );
    check(
        |asm| asm.lea(Width::W64, Gpr::R8, mem),
        &format!("lea r8, {at}"),
    );
    check(
        |asm| asm.imul_imm(Width::W32, Gpr::R8, Gpr::RAX, 10),
        "imul r8d, eax, 0Ah",
    );
    check(
        |asm| asm.imul_imm(Width::W16, Gpr::R8, Gpr::RAX, 1000),
        "imul r8w, ax, 3E8h",
    );
    check(
        |asm| asm.imul_imm(Width::W64, Gpr::R8, mem, 1000),
        &format!("imul r8, {at}, 3E8h"),
    );
    check(
        |asm| asm.double_shift_imm(true, Width::W64, Gpr::R8, Gpr::RAX, 3),
        "shld r8, rax, 3",
    );
    check(
        |asm| asm.double_shift_cl(false, Width::W32, Gpr::R8, Gpr::RAX),
        "shrd r8d, eax, cl",
    );
    check(
        |asm| asm.scan(Scan::Bsf, Width::W16, Gpr::R8, Gpr::RAX),
        "bsf r8w, ax",
    );
    check(
        |asm| asm.scan(Scan::Bsr, Width::W64, Gpr::R8, mem),
        &format!("bsr r8, {at}"),
    );
    check(
        |asm| asm.scan(Scan::Tzcnt, Width::W32, Gpr::R8, Gpr::RAX),
        "tzcnt r8d, eax",
    );
    check(
        |asm| asm.scan(Scan::Lzcnt, Width::W16, Gpr::R8, Gpr::RAX),
        "lzcnt r8w, ax",
    );
    check(|asm| asm.sign_to_rdx(Width::W8), "cbw");
    check(|asm| asm.sign_to_rdx(Width::W16), "cwd");
    check(|asm| asm.sign_to_rdx(Width::W32), "cdq");
    check(|asm| asm.sign_to_rdx(Width::W64), "cqo");
    check(|asm| asm.leave(), "leave");
    check(|asm| asm.rdtsc(), "rdtsc");
    check(|asm| asm.prefetch(mem), &format!("prefetcht0 {at}"));
    check(|asm| asm.mfence(), "mfence");
    check(|asm| asm.test_imm(Width::W64, Gpr::RAX, 1), "test al, 1");
    check(|asm| asm.test_imm(Width::W64, Gpr::RSI, 1), "test sil, 1");
    check(
        |asm| asm.test_imm(Width::W64, Gpr::RAX, -1),
        "test rax, 0FFFFFFFFFFFFFFFFh",
    );
    check(
        |asm| asm.test_imm(Width::W16, Gpr::RBX, 0x8000),
        "test bx, 8000h",
    );
    for condition in 0..16 {
        let all = [
            "o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g",
        ];
        let it = Condition::ALL[condition];
        check(
            |asm| asm.setcc(it, Gpr::RDI),
            &format!("set{} dil", all[condition]),
        );
        let not = all[condition ^ 1];
        check(|asm| asm.setcc(it.not(), mem), &format!("set{not} {at}"));
    }
}
