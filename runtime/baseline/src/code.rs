//! What a compile yields.

use crate::ir::{Block, Symbol};

/// Machine code that is not placed yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Code {
    /// The function, then its constants: floating-point literals, tables of jumps. It begins with
    /// the function's first instruction, and is to be placed at a multiple of [`Code::align`].
    pub bytes: Vec<u8>,
    /// In bytes, a power of two, 16 or more.
    pub align: u32,
    /// Bytes of the function itself.
    pub size: u32,
    /// What depends on addresses, sorted by [`Fixup::at`]; no two overlap.
    pub fixups: Vec<Fixup>,
    /// A table of one CIE and one FDE for the function, as in `.eh_frame`, without the zero word
    /// at its end. Its fields that depend on addresses are [`Code::unwind_fixups`].
    pub unwind: Vec<u8>,
    /// Of [`Code::unwind`]: places of symbols, of the function and of [`Code::handlers`].
    pub unwind_fixups: Vec<UnwindFixup>,
    /// The table that the personality reads, as in `.gcc_except_table`.
    pub handlers: Option<Handlers>,
    /// Bytes of the frame below the saved frame pointer.
    pub frame: u32,
    /// Where the code of a line begins, by rising offset: debug locations of the function, by
    /// their number ([`crate::ir::Function::lines`]).
    pub lines: Vec<(u32, u32)>,
    /// Functions that it calls and [`crate::ir::Function::symbols`] does not name, of the C library
    /// or the compiler's runtime library (`memcpy`, `fmod`, `__udivti3`): they are the symbols
    /// after the last of the function's, in this order, and reached as [`crate::ir::Reach::Indirect`].
    pub library: Vec<&'static str>,
    /// Offset of the first instruction of each block that is emitted.
    pub blocks: Vec<(Block, u32)>,
}

/// Language-specific data of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handlers {
    /// Its bytes; at a multiple of 4.
    pub bytes: Vec<u8>,
    /// Words for types that are caught: places in [`Handlers::bytes`] that are to hold the
    /// distance, as 4 bytes, to a word with the symbol's address (`DW_EH_PE_indirect`,
    /// `pcrel`, `sdata4`).
    pub types: Vec<(u32, Symbol)>,
}

/// A field of the unwind table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnwindFixup {
    /// Offset in the table.
    pub at: u32,
    /// What it is the distance to, as 4 signed bytes.
    pub to: UnwindTarget,
}

/// What a field of the unwind table leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwindTarget {
    /// The function's first byte.
    Function,
    /// The first byte of [`Code::handlers`].
    Handlers,
    /// A word that holds the address of the personality.
    Personality(Symbol),
}

/// A field of code to be filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixup {
    /// Offset of the field.
    pub at: u32,
    /// What goes there.
    pub kind: FixupKind,
    /// What it is about.
    pub symbol: Symbol,
    /// Added to the symbol's address.
    pub addend: i64,
}

/// How a field is computed. All but [`FixupKind::Absolute64`] are 4 bytes, the last of their
/// instruction unless the addend says how many follow: distances count from the field's end, so
/// the addend of an ELF relocation is 4 less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixupKind {
    /// The distance to the symbol, which lies in reach (`R_X86_64_PC32`).
    Distance,
    /// Of `call *word(%rip)` and `jmp *word(%rip)`, 6 bytes long: the distance to the word that
    /// the call goes through (`R_X86_64_GOTPCRELX`).
    CallThrough,
    /// Of `mov word(%rip), reg` with a REX prefix: the distance to a word that holds the address;
    /// the linker may make a `lea` of it (`R_X86_64_REX_GOTPCRELX`).
    AddressWord,
    /// Of another instruction that reads such a word (`R_X86_64_GOTPCREL`).
    Word,
    /// Of the padded 16-byte sequence of the general dynamic model, whose `lea` is 4 bytes in and
    /// whose call is through `__tls_get_addr`'s word: the distance to the pair of words
    /// (`R_X86_64_TLSGD`). The call's field is a [`FixupKind::CallThrough`] of its own.
    ThreadLocalPair,
    /// The address, in 8 bytes (`R_X86_64_64`).
    Absolute64,
}

/// Why a function is not compiled here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[error("{what} is not covered")]
pub struct Uncovered {
    /// What of the function, as a table of reasons has it: a constant text.
    pub what: &'static str,
}
