//! Calling conventions, and which registers each preserves (`X86CallingConv.td`).

use super::boundary::Registers;

#[derive(Debug)]
pub struct Convention {
    /// As in IR.
    pub name: &'static str,
    /// Arguments, results and preserved registers are those of C.
    pub is_like_c: bool,
    /// Functions may take more than their parameters, and read it by `va_arg`.
    pub may_vary: bool,
    /// General registers that are as before after a call, by number, with `r12` to `r14` where
    /// Swift's attributes do not name them.
    pub kept: u32,
    /// Vector registers likewise.
    pub kept_vectors: u32,
}

const RBX_RBP: u32 = 1 << 3 | 1 << 5;
const R12_TO_R15: u32 = 0xf << 12;

/// The registers that C preserves.
pub const BY_C: u32 = RBX_RBP | R12_TO_R15;

/// `rcx rdx rbx rbp rsi rdi` and `r8` to `r15`. `rcx` and `rdx` may hold results.
const MOST: u32 = BY_C | 1 << 6 | 1 << 7 | 0xf << 8;

const fn like_c(name: &'static str, may_vary: bool) -> Convention {
    Convention {
        name,
        is_like_c: true,
        may_vary,
        kept: BY_C,
        kept_vectors: 0,
    }
}

const fn other(name: &'static str, kept: u32, kept_vectors: u32) -> Convention {
    Convention {
        name,
        is_like_c: false,
        may_vary: false,
        kept,
        kept_vectors,
    }
}

static C: Convention = like_c("ccc", true);
static FAST: Convention = like_c("fastcc", false);
static SYSTEM_V: Convention = like_c("x86_64_sysvcc", true);

/// Those that real programs have, and that the baseline compiler covers.
pub static COMMON: [&Convention; 6] = [&C, &C, &C, &FAST, &FAST, &SYSTEM_V];

/// Likewise all others of this processor that LLVM compiles whatever the types are. Left out are
/// conventions of interrupts, of languages whose functions preserve not even the frame pointer,
/// those that LLVM crashes on (`x86_vectorcallcc`, `x86_regcallcc`, `cfguard_checkcc`,
/// `intel_ocl_bicc`), and two whose callers and callees of LLVM's do not agree in the stack that
/// aligned arguments take (`tailcc`, `swifttailcc`).
pub static ALL: [&Convention; 14] = [
    &C,
    &FAST,
    &SYSTEM_V,
    &other("coldcc", MOST, 0xfff0),
    &other("preserve_mostcc", MOST & !(1 << 11), 0),
    &other("preserve_allcc", MOST & !(1 << 11), 0xfff0),
    &other("preserve_nonecc", 0, 0),
    &other("swiftcc", BY_C, 0),
    &other("cxx_fast_tlscc", BY_C, 0),
    &other("win64cc", BY_C | 1 << 6 | 1 << 7, 0xffc0),
    &other("x86_stdcallcc", BY_C, 0),
    &other("x86_fastcallcc", BY_C, 0),
    &other("x86_thiscallcc", BY_C, 0),
    &other("cc 107", BY_C, 0),
];

impl Convention {
    /// Registers that the boundary between caller and callee changes and looks at.
    pub fn registers(&self, swift: u32, has_nest: bool, is_variadic: bool) -> Registers {
        let kept = self.kept & !swift;
        // Registers without an argument get other contents at once.
        let filled = match self.is_like_c {
            true => {
                let scratch = 1 << 11 | u32::from(!has_nest) << 10 | u32::from(!is_variadic);
                kept | (scratch & !swift)
            }
            false => kept & BY_C,
        };
        Registers {
            kept,
            kept_vectors: self.kept_vectors,
            filled,
            // `rsi rdi r8 r9 r10 r11`: no result is in them.
            spoiled: if self.is_like_c { 0xfc0 & !swift } else { 0 },
            spoils_vectors: self.is_like_c,
        }
    }
}
