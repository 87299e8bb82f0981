//! Checks whether native code takes the arguments of its function's type, from its first instructions, and
//! gives its result, from its callers.
//!
//! Optimizers change the arguments of a local function in two ways: they leave some out, or pass the
//! value behind a pointer instead of the pointer. Without pointers only the first remains: fewer
//! registers hold arguments, and the last register that the type fills holds none. So code that reads
//! this register before it writes to it takes all of them.
//!
//! They leave out the result of a local function if no caller uses it, or if it is known without the call
//! (a constant, an argument). The register then holds anything. A caller whose native code reads the
//! register after the call proves that the result is there.

use std::collections::HashSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, UsedRegister,
};
use uruk::live::rebound::{FunctionInfo, PlainResult, PlainType, Survey};

/// Registers that pass integers, in their order.
const WORDS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// Instructions that are examined.
const MOST: usize = 64;

/// Whether `code`, the beginning of a function, takes `plain` arguments.
pub(crate) fn takes(code: &[u8], plain: PlainType) -> bool {
    let word = plain.words.checked_sub(1);
    let word = word.map(|last| WORDS.get(usize::from(last)).copied());
    let float = plain.floats.checked_sub(1).map(|last| {
        let number = u32::from(last);
        (last < 8).then(|| Register::XMM0 + number)
    });
    let wanted = word.into_iter().chain(float);
    wanted
        .into_iter()
        .all(|register| register.is_some_and(|register| reads(code, register)))
}

/// Native functions whose result one of their callers uses, by address.
pub(crate) type Results = HashSet<(u64, PlainResult)>;

/// The native functions whose result native code of a module uses; `used` has the answer for a function.
pub(crate) fn results(
    survey: &Survey,
    used: impl Fn(&FunctionInfo) -> Vec<(u64, PlainResult)>,
) -> Results {
    let is_asked = |plain: PlainType| plain.result != PlainResult::Nothing;
    let mut all = survey.functions.iter();
    if !all.any(|info| info.local && info.plain.is_some_and(is_asked)) {
        return Results::new();
    }
    let defined = survey.functions.iter().filter(|info| info.defined);
    defined.flat_map(used).collect()
}

/// Addresses that code at `at` calls, and whose result it reads.
pub(crate) fn uses_results(code: &[u8], at: u64) -> Vec<(u64, PlainResult)> {
    /// First byte of a call of an address, and the bytes with its distance from the end.
    const CALL: u8 = 0xe8;
    const SIZE: usize = 5;
    let mut found = Vec::new();
    for (start, bytes) in code.windows(SIZE).enumerate() {
        let [CALL, distance @ ..] = bytes else {
            continue;
        };
        let distance = distance.try_into().map_or(0, i32::from_le_bytes);
        let end = start + SIZE;
        let target = at.wrapping_add(end as u64);
        let target = target.wrapping_add_signed(i64::from(distance));
        for (register, result) in [
            (Register::RAX, PlainResult::Word),
            (Register::XMM0, PlainResult::Float),
        ] {
            if reads(&code[end..], register) {
                found.push((target, result));
            }
        }
    }
    found
}

/// Whether an instruction whose registers include `register` as read uses its value. Some read it for another
/// effect only: they move the stack pointer, make all bits equal, or leave a part of the register as it is.
fn uses_value(instruction: &Instruction, register: Register) -> bool {
    if !register.is_xmm() {
        // `or` with all ones, and `and` with none.
        let immediate = |value: i64| {
            instruction.op_count() == 2
                && instruction.op1_kind() != OpKind::Register
                && instruction
                    .try_immediate(1)
                    .is_ok_and(|it| it.cast_signed() == value)
        };
        return match instruction.mnemonic() {
            Mnemonic::Push => false,
            Mnemonic::Sbb => instruction.op0_register() != instruction.op1_register(),
            Mnemonic::Or => !immediate(-1),
            Mnemonic::And => !immediate(0),
            _ => true,
        };
    }
    let is_source = instruction.op1_register() == register;
    match instruction.mnemonic() {
        Mnemonic::Movaps
        | Mnemonic::Movapd
        | Mnemonic::Movups
        | Mnemonic::Movupd
        | Mnemonic::Movss
        | Mnemonic::Movsd
        | Mnemonic::Movd
        | Mnemonic::Movq
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovapd
        | Mnemonic::Vmovups
        | Mnemonic::Vmovupd
        | Mnemonic::Vmovd
        | Mnemonic::Vmovq
        | Mnemonic::Cvttsd2si
        | Mnemonic::Cvttss2si => is_source,
        Mnemonic::Vmovss | Mnemonic::Vmovsd => {
            is_source && instruction.op0_kind() == OpKind::Memory
        }
        Mnemonic::Addss
        | Mnemonic::Addsd
        | Mnemonic::Subss
        | Mnemonic::Subsd
        | Mnemonic::Mulss
        | Mnemonic::Mulsd
        | Mnemonic::Divss
        | Mnemonic::Divsd
        | Mnemonic::Vaddss
        | Mnemonic::Vaddsd
        | Mnemonic::Vsubss
        | Mnemonic::Vsubsd
        | Mnemonic::Vmulss
        | Mnemonic::Vmulsd
        | Mnemonic::Vdivss
        | Mnemonic::Vdivsd
        | Mnemonic::Ucomiss
        | Mnemonic::Ucomisd
        | Mnemonic::Vucomiss
        | Mnemonic::Vucomisd => true,
        _ => false,
    }
}

/// Whether the code reads a register before it writes to it.
fn reads(code: &[u8], register: Register) -> bool {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let is_meant = |used: &&UsedRegister| {
        let whole = used.register().full_register();
        whole == register
            || (register.is_xmm()
                && whole.is_vector_register()
                && whole.number() == register.number())
    };
    for instruction in decoder.iter().take(MOST) {
        if instruction.is_invalid() {
            return false;
        }
        // Its operand is not used: compilers align loops with it.
        if instruction.mnemonic() == Mnemonic::Nop {
            continue;
        }
        let info = factory.info(&instruction);
        let used: Vec<OpAccess> = info
            .used_registers()
            .iter()
            .filter(is_meant)
            .map(UsedRegister::access)
            .collect();
        let is_read = |access: &OpAccess| {
            matches!(
                access,
                OpAccess::Read | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        if used.iter().any(is_read) {
            return uses_value(&instruction, register);
        }
        if !used.is_empty() {
            return false;
        }
        // The callee may take it, or not.
        let goes_on = matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        if !goes_on {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_first_is_an_argument() {
        let words = |words| PlainType {
            words,
            ..PlainType::default()
        };
        // test rdi, rdi; je +2; nop; nop; lea rax, [rdi + rsi]; ret
        let code = [
            0x48, 0x85, 0xff, 0x74, 2, 0x90, 0x90, 0x48, 0x8d, 0x04, 0x37, 0xc3,
        ];
        assert!(takes(&code, words(1)) && takes(&code, words(2)));
        assert!(!takes(&code, words(3)), "one was left out");
        assert!(takes(&code, words(0)) && !takes(&code, words(7)));
        // xor edi, edi; mov eax, edi
        assert!(!takes(&[0x31, 0xff, 0x89, 0xf8, 0xc3], words(1)));
        // call +0; mov eax, edi
        assert!(!takes(&[0xe8, 0, 0, 0, 0, 0x89, 0xf8, 0xc3], words(1)));
        // movsx rax, edi
        assert!(takes(&[0x48, 0x63, 0xc7, 0xc3], words(1)));
        // addsd xmm0, xmm1
        let floats = |floats| PlainType {
            floats,
            ..PlainType::default()
        };
        let code = [0xf2, 0x0f, 0x58, 0xc1, 0xc3];
        assert!(takes(&code, floats(2)) && !takes(&code, floats(3)));
        // xorps xmm0, xmm0; ret
        assert!(!takes(&[0x0f, 0x57, 0xc0, 0xc3], floats(1)));
        assert!(!takes(&[], words(1)));
    }

    #[test]
    fn callers_that_read_a_result_prove_it() {
        let call = [0xe8, 0x10, 0, 0, 0];
        let target = 0x1015;
        let after = |rest: &[u8]| uses_results(&[&call, rest].concat(), 0x1000);
        // lea ecx, [rax + rax]; movaps xmm1, xmm0
        assert_eq!(
            after(&[0x8d, 0x0c, 0x00, 0xc3]),
            [(target, PlainResult::Word)]
        );
        assert_eq!(
            after(&[0x0f, 0x28, 0xc8, 0xc3]),
            [(target, PlainResult::Float)]
        );
        // test eax, eax
        assert_eq!(after(&[0x85, 0xc0, 0xc3]), [(target, PlainResult::Word)]);
        // nop word ptr [rax + rax]; mov ecx, eax
        assert_eq!(
            after(&[0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x89, 0xc1, 0xc3]),
            [(target, PlainResult::Word)]
        );
        // ret; mov eax, 7; xor eax, eax; push rax; sbb eax, eax; or eax, -1; nop word ptr [rax + rax];
        // cvtsi2sd xmm0, ecx; vcvtsi2sd xmm0, xmm0, ecx; vpcmpeqd xmm0, xmm0, xmm0; movss xmm0, xmm1
        let none: [&[u8]; 11] = [
            &[0xc3],
            &[0xb8, 7, 0, 0, 0, 0xc3],
            &[0x31, 0xc0, 0x89, 0xc1, 0xc3],
            &[0x50, 0x89, 0xc1, 0xc3],
            &[0x19, 0xc0, 0xc3],
            &[0x83, 0xc8, 0xff, 0x89, 0xc1, 0xc3],
            &[0x66, 0x0f, 0x1f, 0x44, 0, 0, 0xc3],
            &[0xc5, 0xfb, 0x2a, 0xc1, 0xc3],
            &[0xc5, 0xf9, 0x76, 0xc0, 0xc3],
            &[0xf3, 0x0f, 0x10, 0xc1, 0xc3],
            &[0xf2, 0x0f, 0x2a, 0xc1, 0xc3],
        ];
        for rest in none {
            assert_eq!(after(rest), [], "{rest:x?}");
        }
    }
}
