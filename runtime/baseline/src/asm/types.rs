//! Operands of instructions: registers, widths, conditions, places in memory.

use crate::code::FixupKind;
use crate::ir::Symbol;

/// A general register, by its number in encodings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Gpr(u8);

#[allow(missing_docs)]
impl Gpr {
    pub(crate) const RAX: Gpr = Gpr(0);
    pub(crate) const RCX: Gpr = Gpr(1);
    pub(crate) const RDX: Gpr = Gpr(2);
    pub(crate) const RBX: Gpr = Gpr(3);
    pub(crate) const RSP: Gpr = Gpr(4);
    pub(crate) const RBP: Gpr = Gpr(5);
    pub(crate) const RSI: Gpr = Gpr(6);
    pub(crate) const RDI: Gpr = Gpr(7);
    pub(crate) const R8: Gpr = Gpr(8);
    pub(crate) const R9: Gpr = Gpr(9);
    pub(crate) const R10: Gpr = Gpr(10);
    pub(crate) const R11: Gpr = Gpr(11);
    pub(crate) const R12: Gpr = Gpr(12);
    pub(crate) const R13: Gpr = Gpr(13);
    pub(crate) const R14: Gpr = Gpr(14);
    pub(crate) const R15: Gpr = Gpr(15);

    /// The register of a number under 16.
    pub(crate) const fn new(number: u8) -> Gpr {
        debug_assert!(number < 16);
        Gpr(number)
    }

    /// The number in encodings.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The DWARF number of the register (psABI, figure 3.36), which differs for the first 8.
    pub(crate) const fn dwarf(self) -> u8 {
        const FIRST: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
        if self.0 < 8 {
            FIRST[self.0 as usize]
        } else {
            self.0
        }
    }
}

impl std::fmt::Debug for Gpr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        f.write_str(NAMES[usize::from(self.0)])
    }
}

/// A vector register, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Xmm(u8);

impl Xmm {
    /// The register of a number under 16.
    pub(crate) const fn new(number: u8) -> Xmm {
        debug_assert!(number < 16);
        Xmm(number)
    }

    /// The number in encodings.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

impl std::fmt::Debug for Xmm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "xmm{}", self.0)
    }
}

/// The operand size of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub(crate) enum Width {
    W8,
    W16,
    W32,
    W64,
}

impl Width {
    /// The least width that holds this many bits.
    pub(crate) fn of_bits(bits: u8) -> Width {
        match bits {
            0..=8 => Width::W8,
            9..=16 => Width::W16,
            17..=32 => Width::W32,
            _ => Width::W64,
        }
    }

    /// Bits of the width.
    pub(crate) fn bits(self) -> u8 {
        8 << self as u8
    }

    /// At least 32 bits. Operations whose low bits depend on low bits only are shortest so, and
    /// write whole registers.
    pub(crate) fn at_least_32(self) -> Width {
        self.max(Width::W32)
    }
}

/// A condition of the flags, by its number in encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Condition {
    Overflow = 0,
    NoOverflow = 1,
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Sign = 8,
    NoSign = 9,
    Parity = 10,
    NoParity = 11,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

impl Condition {
    /// All conditions, by their numbers.
    pub(super) const ALL: [Condition; 16] = [
        Condition::Overflow,
        Condition::NoOverflow,
        Condition::Below,
        Condition::AboveEqual,
        Condition::Equal,
        Condition::NotEqual,
        Condition::BelowEqual,
        Condition::Above,
        Condition::Sign,
        Condition::NoSign,
        Condition::Parity,
        Condition::NoParity,
        Condition::Less,
        Condition::GreaterEqual,
        Condition::LessEqual,
        Condition::Greater,
    ];

    /// The opposite condition.
    pub(crate) fn not(self) -> Condition {
        Condition::ALL[usize::from(self as u8 ^ 1)]
    }

    /// The condition for swapped operands; only for conditions of integer compares.
    pub(crate) fn swapped(self) -> Condition {
        use Condition as C;
        match self {
            C::Below => C::Above,
            C::Above => C::Below,
            C::AboveEqual => C::BelowEqual,
            C::BelowEqual => C::AboveEqual,
            C::Less => C::Greater,
            C::Greater => C::Less,
            C::GreaterEqual => C::LessEqual,
            C::LessEqual => C::GreaterEqual,
            other => other,
        }
    }
}

/// A position in the code, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Label(pub(super) u32);

/// The factor of an index: 1, 2, 4 or 8, as its logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Scale {
    S1 = 0,
    S2 = 1,
    S4 = 2,
    S8 = 3,
}

impl Scale {
    /// The scale of a factor, if addresses can have it.
    pub(crate) fn of(factor: u64) -> Option<Scale> {
        match factor {
            1 => Some(Scale::S1),
            2 => Some(Scale::S2),
            4 => Some(Scale::S4),
            8 => Some(Scale::S8),
            _ => None,
        }
    }
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// Zero.
    Nothing,
    /// A register.
    Gpr(Gpr),
    /// A position in this code; without an index.
    Label(Label),
    /// A field with a fix-up: [`FixupKind::Distance`] for a symbol itself, or a kind that leads to
    /// a word. Without an index.
    Symbol(FixupKind, Symbol),
}

/// An address of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mem {
    /// The base.
    pub(crate) base: Base,
    /// The scaled index; any register but `rsp`.
    pub(crate) index: Option<(Gpr, Scale)>,
    /// Displacement in bytes.
    pub(crate) disp: i32,
}

impl Mem {
    /// `[base + disp]`.
    pub(crate) fn at(base: Gpr, disp: i32) -> Mem {
        Mem {
            base: Base::Gpr(base),
            index: None,
            disp,
        }
    }

    /// `[base + index * scale + disp]`.
    pub(crate) fn indexed(base: Gpr, index: Gpr, scale: Scale, disp: i32) -> Mem {
        Mem {
            base: Base::Gpr(base),
            index: Some((index, scale)),
            disp,
        }
    }

    /// A position in this code.
    pub(crate) fn label(label: Label) -> Mem {
        Mem {
            base: Base::Label(label),
            index: None,
            disp: 0,
        }
    }

    /// A symbol that lies in reach of a distance.
    pub(crate) fn symbol(symbol: Symbol, disp: i32) -> Mem {
        Mem {
            base: Base::Symbol(FixupKind::Distance, symbol),
            index: None,
            disp,
        }
    }

    /// The address plus `bytes`; `None` if the displacement overflows.
    pub(crate) fn plus(self, bytes: i32) -> Option<Mem> {
        let disp = self.disp.checked_add(bytes)?;
        Some(Mem { disp, ..self })
    }
}

/// A general register or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rm {
    /// A register.
    Gpr(Gpr),
    /// Memory.
    Mem(Mem),
}

impl From<Gpr> for Rm {
    fn from(register: Gpr) -> Rm {
        Rm::Gpr(register)
    }
}

impl From<Mem> for Rm {
    fn from(mem: Mem) -> Rm {
        Rm::Mem(mem)
    }
}

/// A vector register or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XmmRm {
    /// A register.
    Xmm(Xmm),
    /// Memory.
    Mem(Mem),
}

impl From<Xmm> for XmmRm {
    fn from(register: Xmm) -> XmmRm {
        XmmRm::Xmm(register)
    }
}

impl From<Mem> for XmmRm {
    fn from(mem: Mem) -> XmmRm {
        XmmRm::Mem(mem)
    }
}
