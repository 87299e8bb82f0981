//! The result of a compile.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::ir::{Block, Symbol};

/// Machine code that is not placed yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Code {
    /// The function, then its constants: floating-point literals, jump tables. It begins with the
    /// function's first instruction; place it at a multiple of [`Code::align`].
    pub bytes: Vec<u8>,
    /// In bytes, a power of two, 16 or more.
    pub align: u32,
    /// Bytes of the function itself.
    pub size: u32,
    /// Relocations, sorted by [`Fixup::at`]; no two overlap.
    pub fixups: Vec<Fixup>,
    /// A table of one CIE and one FDE for the function, as in `.eh_frame`, without the zero word
    /// at its end. Its fields that depend on addresses are [`Code::unwind_fixups`].
    pub unwind: Vec<u8>,
    /// Relocations of [`Code::unwind`]: addresses of symbols, of the function and of
    /// [`Code::handlers`].
    pub unwind_fixups: Vec<UnwindFixup>,
    /// The table that the personality reads, as in `.gcc_except_table`.
    pub handlers: Option<Handlers>,
    /// Bytes of the frame below the saved frame pointer.
    pub frame: u32,
    /// Start offsets of the code of each line, rising: debug locations of the function, by their
    /// number ([`crate::ir::Function::lines`]).
    pub lines: Vec<(u32, u32)>,
    /// Called functions of the C library or the compiler's runtime library (`memcpy`, `fmod`,
    /// `__udivti3`) that [`crate::ir::Function::symbols`] does not name. They are the symbols after
    /// the last of the function's, in this order, and reached as [`crate::ir::Reach::Indirect`].
    pub library: Vec<&'static str>,
    /// Offset of the first instruction of each block that is emitted.
    pub blocks: Vec<(Block, u32)>,
}

impl Code {
    /// A hash of the code and its relocations: two compiles with the same one keep the same values
    /// in the same places.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(&self.bytes);
        hasher.write_u32(self.frame);
        self.fixups.hash(&mut hasher);
        hasher.finish()
    }
}

/// Language-specific data of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handlers {
    /// Its bytes; at a multiple of 4.
    pub bytes: Vec<u8>,
    /// Words for caught types: offsets in [`Handlers::bytes`] that must hold the distance, as 4
    /// bytes, to a word with the symbol's address (`DW_EH_PE_indirect`, `pcrel`, `sdata4`).
    pub types: Vec<(u32, Symbol)>,
}

/// A field of the unwind table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnwindFixup {
    /// Offset in the table.
    pub at: u32,
    /// The target of the distance, which is 4 signed bytes.
    pub to: UnwindTarget,
}

/// The target of a field of the unwind table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwindTarget {
    /// The function's first byte.
    Function,
    /// The first byte of [`Code::handlers`].
    Handlers,
    /// A word that holds the address of the personality.
    Personality(Symbol),
}

/// A relocation of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fixup {
    /// Offset of the field.
    pub at: u32,
    /// The kind of value.
    pub kind: FixupKind,
    /// The symbol whose address is used.
    pub symbol: Symbol,
    /// Added to the symbol's address.
    pub addend: i64,
}

/// How a field is computed. All but [`FixupKind::Absolute64`] are 4 bytes, the last of their
/// instruction unless the addend says how many follow: distances count from the field's end, so
/// the addend of an ELF relocation is 4 less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixupKind {
    /// The distance to the symbol, which is in reach (`R_X86_64_PC32`).
    Distance,
    /// Of `call *word(%rip)` and `jmp *word(%rip)`, 6 bytes long: the distance to the word that
    /// the call goes through (`R_X86_64_GOTPCRELX`).
    CallThrough,
    /// Of `mov word(%rip), reg` with a REX prefix: the distance to a word that holds the address;
    /// the linker may make a `lea` of it (`R_X86_64_REX_GOTPCRELX`).
    AddressWord,
    /// Of another instruction that reads a word with the address (`R_X86_64_GOTPCREL`).
    Word,
    /// Of the padded 16-byte sequence of the general dynamic model, whose `lea` is 4 bytes in and
    /// whose call is through `__tls_get_addr`'s word: the distance to the pair of words
    /// (`R_X86_64_TLSGD`). The call's field is a [`FixupKind::CallThrough`] of its own.
    ThreadLocalPair,
    /// The address, in 8 bytes (`R_X86_64_64`).
    Absolute64,
}

/// The reason why this compiler does not compile a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[error("{what} is not covered")]
pub struct Uncovered {
    /// The unsupported feature: a constant text.
    pub what: &'static str,
}
