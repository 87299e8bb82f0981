//! Checks from its first instructions whether native code takes the arguments of its function's type.
//!
//! Optimizers change the arguments of a local function in two ways: they leave some out, or pass the
//! value behind a pointer instead of the pointer. Without pointers only the first remains: fewer
//! registers hold arguments, and the last register that the type fills holds none. So code that reads
//! this register before it writes to it takes all of them.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register, UsedRegister,
};
use uruk::live::rebound::Plain;

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
pub(crate) fn takes(code: &[u8], plain: Plain) -> bool {
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
            return true;
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
        let words = |words| Plain { words, floats: 0 };
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
        let floats = |floats| Plain { words: 0, floats };
        let code = [0xf2, 0x0f, 0x58, 0xc1, 0xc3];
        assert!(takes(&code, floats(2)) && !takes(&code, floats(3)));
        // xorps xmm0, xmm0; ret
        assert!(!takes(&[0x0f, 0x57, 0xc0, 0xc3], floats(1)));
        assert!(!takes(&[], words(1)));
    }
}
