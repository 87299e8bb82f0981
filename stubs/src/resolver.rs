//! The resolver trampoline: machine code between an unbound stub and Rust.
//!
//! Entered by the common jump of a stub page with the stack
//!
//! ```text
//! rsp + 8   return address of the call to the stub (the guest's)
//! rsp + 0   address after the `call` in the stub: identifies the function
//! ```
//!
//! On the guest's stack it saves all registers that a callee may receive or that some convention
//! lets a callee preserve. These are rax (vector count), rcx, rdx, rsi, rdi, r8 to r11 (r10 is the
//! static chain), and all vector state (`vector`). Rust code preserves the rest (rbx, r12 to r15).
//! It calls `resolve(shared, address)`, overwrites the lower word with the answer, restores
//! everything and *returns* to it: so no register but the flags and rip differs, and the
//! processor's return stack is in step again, since the `ret` pops the address that the stub's
//! `call` pushed. Stack arguments, sret pointers, tail calls and varargs need no special case,
//! because the stack is unchanged.
//!
//! All the stack that it uses is cleared first, and some of the space below for its callees. A call
//! may wait here for long, and XSAVE leaves holes. Stale return addresses in the holes, into code
//! that is being replaced, would hold up a scan of stacks until the wait is over. A handler that
//! runs again and again at the same place would find its own last call there each time.
//!
//! Direction flag, alignment check, MXCSR and the x87 control word are never
//! changed. Stack: 88 bytes, at most 63 of alignment, the vector area (2.4 KiB
//! with AVX-512), and the frames of `resolve`.
//!
//! Not for processes with user shadow stacks: they would need the `call`'s
//! address dropped from the shadow stack (`incsspq`).

use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, VecAssembler, dynasm};

use crate::vector::{ALIGN, Method, VectorState};

/// Registers that are pushed below the frame pointer, in bytes.
const PUSHED: i32 = 72;

/// Bytes below the frame that are cleared for the callees, whose frames have holes, too. At the
/// gate they were measured to take 256.
const BELOW: i32 = 1024;

/// The code, and the offsets at which its frame changes (for `cfi`).
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) code: Vec<u8>,
    pub(crate) frame: Frame,
}

/// Offsets after the instructions that change the frame description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// After `push rbp`.
    pub(crate) pushed: u32,
    /// After `mov rbp, rsp`.
    pub(crate) based: u32,
    /// After `leave`.
    pub(crate) left: u32,
    /// The end.
    pub(crate) end: u32,
}

/// Assembles the trampoline (position independent). `shared` and `resolve` are
/// the addresses of the argument and of the function to call.
pub(crate) fn assemble(vector: &VectorState, shared: u64, resolve: u64) -> Resolver {
    let mut ops = VecAssembler::<X64Relocation>::new(0);
    dynasm!(ops ; .arch x64 ; push rbp);
    let pushed = ops.offset().0 as u32;
    dynasm!(ops ; .arch x64 ; mov rbp, rsp);
    let based = ops.offset().0 as u32;
    dynasm!(ops
        ; .arch x64
        ; push rax
        ; push rcx
        ; push rdx
        ; push rsi
        ; push rdi
        ; push r8
        ; push r9
        ; push r10
        ; push r11
        ; sub rsp, DWORD vector.size as i32
        ; and rsp, BYTE -(ALIGN as i8)
    );
    // XRSTOR refuses a header with unknown bits, and XSAVE does not write all of it, so it is
    // cleared with the rest. String instructions count up, by the ABI.
    dynasm!(ops
        ; .arch x64
        ; sub rsp, BELOW
        ; mov rdi, rsp
        ; lea rcx, [rbp - PUSHED]
        ; sub rcx, rdi
        ; shr ecx, 3
        ; xor eax, eax
        ; rep stosq
        ; add rsp, BELOW
    );
    save(&mut ops, vector);
    dynasm!(ops
        ; .arch x64
        ; mov rdi, QWORD shared as i64
        ; mov rsi, [rbp + 8]
        ; mov rax, QWORD resolve as i64
        ; call rax
        ; mov [rbp + 8], rax
    );
    restore(&mut ops, vector);
    dynasm!(ops
        ; .arch x64
        ; mov r11, [rbp - 72]
        ; mov r10, [rbp - 64]
        ; mov r9, [rbp - 56]
        ; mov r8, [rbp - 48]
        ; mov rdi, [rbp - 40]
        ; mov rsi, [rbp - 32]
        ; mov rdx, [rbp - 24]
        ; mov rcx, [rbp - 16]
        ; mov rax, [rbp - 8]
        ; leave
    );
    let left = ops.offset().0 as u32;
    dynasm!(ops ; .arch x64 ; ret);
    let end = ops.offset().0 as u32;
    let frame = Frame {
        pushed,
        based,
        left,
        end,
    };
    let code = ops.finalize().expect("no labels");
    Resolver { code, frame }
}

/// The mask of components into edx:eax, as the XSAVE family wants it.
fn load_mask(ops: &mut VecAssembler<X64Relocation>, mask: u64) {
    dynasm!(ops
        ; .arch x64
        ; mov eax, DWORD mask as u32 as i32
        ; mov edx, DWORD (mask >> 32) as u32 as i32
    );
}

fn save(ops: &mut VecAssembler<X64Relocation>, vector: &VectorState) {
    if vector.method == Method::Fxsave {
        dynasm!(ops ; .arch x64 ; fxsave64 [rsp]);
        return;
    }
    load_mask(ops, vector.mask);
    match vector.method {
        Method::Xsavec => dynasm!(ops ; .arch x64 ; xsavec64 [rsp]),
        _ => dynasm!(ops ; .arch x64 ; xsave64 [rsp]),
    }
}

fn restore(ops: &mut VecAssembler<X64Relocation>, vector: &VectorState) {
    if vector.method == Method::Fxsave {
        dynasm!(ops ; .arch x64 ; fxrstor64 [rsp]);
        return;
    }
    load_mask(ops, vector.mask);
    dynasm!(ops ; .arch x64 ; xrstor64 [rsp]);
}

#[cfg(test)]
mod tests {
    use std::arch::naked_asm;

    use iced_x86::{Decoder, DecoderOptions, Register};
    use uruk_heap::{Heap, HeapConfig, Pool};

    use super::*;

    /// Memcheck takes what is far below the stack pointer for no part of the stack, and Valgrind does not map
    /// more of the stack for it.
    #[test]
    fn nothing_below_the_stack_pointer_is_used() {
        let code = assemble(&VectorState::detect(), 0x5678, 0x9abc).code;
        for instruction in Decoder::new(64, &code, DecoderOptions::NONE) {
            let below = (instruction.memory_displacement64() as i64) < 0;
            assert!(instruction.memory_base() != Register::RSP || !below);
        }
    }

    /// Enters the resolver at `code` like the common jump, with `value` in xmm0.
    #[unsafe(naked)]
    unsafe extern "C" fn enter(code: u64, value: u64) -> u64 {
        naked_asm!(
            "movq xmm0, rsi",
            "lea rax, [rip + 2f]",
            "push rax",
            "push 0x1234",
            "jmp rdi",
            "2:",
            "ret",
        )
    }

    /// The code to continue at: returns xmm0.
    #[unsafe(naked)]
    unsafe extern "C" fn first_vector() -> u64 {
        naked_asm!("movq rax, xmm0", "ret")
    }

    extern "C" fn resolve(shared: u64, return_address: u64) -> u64 {
        assert_eq!((shared, return_address), (0x5678, 0x1234));
        // SAFETY: the register it changes is declared.
        unsafe { std::arch::asm!("pxor xmm0, xmm0", out("xmm0") _) };
        first_vector as *const () as usize as u64
    }

    /// Tries all instructions, also those that this machine would not choose.
    #[test]
    fn every_way_to_save_works() {
        let heap = Heap::new(HeapConfig::default()).unwrap();
        let best = VectorState::detect();
        let mut ways = vec![(Method::Fxsave, 512)];
        if best.method != Method::Fxsave {
            // Room for the standard format, which is at most the size of all
            // components with their gaps.
            ways.extend([(Method::Xsave, 12 << 10), (best.method, best.size)]);
        }
        for (method, size) in ways {
            let mask = best.mask;
            let vector = VectorState { method, mask, size };
            let made = assemble(&vector, 0x5678, resolve as *const () as usize as u64);
            let mut draft = heap.allocate(Pool::Code, made.code.len(), 16).unwrap();
            draft.write(0, &made.code).unwrap();
            let code = draft.seal().unwrap();
            // SAFETY: the resolver, entered with the stack it expects.
            let got = unsafe { enter(code.address(), 0x1122_3344_5566_7788) };
            assert_eq!(got, 0x1122_3344_5566_7788, "{method:?}");
        }
    }
}
