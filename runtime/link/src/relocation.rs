//! The relocation types of x86-64: one table, one row each.
//!
//! In the expressions (the x86-64 psABI's, chapter *Relocation Types*):
//!
//! | letter | means |
//! |---|---|
//! | `S` | address of the symbol; of an ifunc, its PLT entry |
//! | `A` | the addend |
//! | `P` | address of the field |
//! | `GOT` | start of the image's GOT |
//! | `G` | the symbol's word in the GOT, as an offset from `GOT` |
//! | `L` | address to call: `S`, or the symbol's PLT entry where `S` is out of reach |
//! | `Z` | size of the symbol |
//! | `M`, `D` | id of the symbol's thread-local module, offset in that module |
//! | `T` | offset of the symbol from the thread pointer |
//!
//! All arithmetic is modulo 2^64. A field narrower than 8 bytes is checked:
//! *signed* fields take -2^(n-1) to 2^(n-1)-1, *unsigned* ones 0 to 2^n-1,
//! *either* the union of both. A value outside is [`Problem::OutOfRange`].
//! Errors of the expressions themselves:
//! [`Problem::ThreadLocal`] if `S` is a thread-local, [`Problem::NotThreadLocal`]
//! if `D` or `T` is not, [`Problem::NoTlsPlace`] and [`Problem::NoStaticOffset`]
//! if `M` or `T` is not known, [`Problem::WrongInstruction`] if the
//! instruction that a rewriting type promises is not there.
//!
//! [`Problem::OutOfRange`]: crate::Problem::OutOfRange
//! [`Problem::ThreadLocal`]: crate::Problem::ThreadLocal
//! [`Problem::NotThreadLocal`]: crate::Problem::NotThreadLocal
//! [`Problem::NoTlsPlace`]: crate::Problem::NoTlsPlace
//! [`Problem::NoStaticOffset`]: crate::Problem::NoStaticOffset
//! [`Problem::WrongInstruction`]: crate::Problem::WrongInstruction

/// The computation of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expression {
    /// Nothing.
    Nothing,
    /// `S + A`
    Absolute,
    /// `S + A - P`. For an external symbol out of reach, `L + A - P` if the
    /// field belongs to a call or jump or to an unwind record's personality.
    Relative,
    /// `L + A - P`
    Branch,
    /// `GOT + G + A - P`: the symbol's GOT word.
    Word,
    /// Like [`Expression::Word`], but the instruction may be changed to do
    /// without the word; see `relax.rs`.
    RelaxableWord,
    /// `G + A`
    WordFromGot,
    /// `GOT + A - P`
    Got,
    /// `S + A - GOT`
    FromGot,
    /// `L + A - GOT`; `L` is `S`, as every 64-bit distance is in reach.
    BranchFromGot,
    /// `Z + A`
    Size,
    /// `X + A - P`, where the words at `X` are `M` and `D`.
    ModuleAndOffsetWords,
    /// `X + A - P`, where the words at `X` are `M` of this image and 0.
    ModuleWords,
    /// `D + A`
    ModuleOffset,
    /// `M`
    Module,
    /// `T + A`
    ThreadOffset,
    /// `X + A - P`, where the word at `X` is `T`.
    ThreadOffsetWord,
    /// Rewrites `lea x@tlsdesc(%rip), r` to `mov $T, r`.
    Descriptor,
    /// Rewrites `call *x@tlscall(%rax)` to a two-byte `nop`.
    DescriptorCall,
    /// Has a meaning to dynamic linkers only.
    DynamicOnly,
}

/// The values that a field can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// No field.
    Empty,
    /// -2^(n-1) to 2^(n-1)-1.
    Signed,
    /// 0 to 2^n-1.
    Unsigned,
    /// -2^(n-1) to 2^n-1.
    Either,
    /// Everything: 64 bits.
    Full,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The ABI's name, without `R_X86_64_`.
    pub(crate) name: &'static str,
    pub(crate) expression: Expression,
    /// Width of the field in bytes.
    pub(crate) width: usize,
    pub(crate) range: Range,
}

impl Rule {
    /// Whether the field holds an address, or a distance to it, in less than eight bytes; or the
    /// offset of a thread-local from a base of the image itself.
    pub(crate) fn is_short(&self) -> bool {
        match self.expression {
            Expression::Absolute | Expression::Relative | Expression::FromGot => self.width < 8,
            Expression::ModuleOffset
            | Expression::ThreadOffset
            | Expression::ThreadOffsetWord
            | Expression::Descriptor => true,
            _ => false,
        }
    }
}

const fn row(name: &'static str, expression: Expression, width: usize, range: Range) -> Rule {
    Rule {
        name,
        expression,
        width,
        range,
    }
}

/// By type number.
const RULES: [Rule; 52] = {
    use Expression as E;
    use Range::{Either, Empty, Full, Signed, Unsigned};
    [
        row("NONE", E::Nothing, 0, Empty),
        row("64", E::Absolute, 8, Full),
        row("PC32", E::Relative, 4, Signed),
        row("GOT32", E::WordFromGot, 4, Signed),
        row("PLT32", E::Branch, 4, Signed),
        row("COPY", E::DynamicOnly, 0, Empty),
        row("GLOB_DAT", E::DynamicOnly, 8, Full),
        row("JUMP_SLOT", E::DynamicOnly, 8, Full),
        row("RELATIVE", E::DynamicOnly, 8, Full),
        row("GOTPCREL", E::Word, 4, Signed),
        row("32", E::Absolute, 4, Unsigned),
        row("32S", E::Absolute, 4, Signed),
        row("16", E::Absolute, 2, Either),
        row("PC16", E::Relative, 2, Signed),
        row("8", E::Absolute, 1, Either),
        row("PC8", E::Relative, 1, Signed),
        row("DTPMOD64", E::Module, 8, Full),
        row("DTPOFF64", E::ModuleOffset, 8, Full),
        row("TPOFF64", E::ThreadOffset, 8, Full),
        row("TLSGD", E::ModuleAndOffsetWords, 4, Signed),
        row("TLSLD", E::ModuleWords, 4, Signed),
        row("DTPOFF32", E::ModuleOffset, 4, Signed),
        row("GOTTPOFF", E::ThreadOffsetWord, 4, Signed),
        row("TPOFF32", E::ThreadOffset, 4, Signed),
        row("PC64", E::Relative, 8, Full),
        row("GOTOFF64", E::FromGot, 8, Full),
        row("GOTPC32", E::Got, 4, Signed),
        row("GOT64", E::WordFromGot, 8, Full),
        row("GOTPCREL64", E::Word, 8, Full),
        row("GOTPC64", E::Got, 8, Full),
        // Withdrawn from the ABI; means GOT64.
        row("GOTPLT64", E::WordFromGot, 8, Full),
        row("PLTOFF64", E::BranchFromGot, 8, Full),
        row("SIZE32", E::Size, 4, Unsigned),
        row("SIZE64", E::Size, 8, Full),
        row("GOTPC32_TLSDESC", E::Descriptor, 4, Signed),
        row("TLSDESC_CALL", E::DescriptorCall, 0, Empty),
        row("TLSDESC", E::DynamicOnly, 8, Full),
        row("IRELATIVE", E::DynamicOnly, 8, Full),
        row("RELATIVE64", E::DynamicOnly, 8, Full),
        row("PC32_BND", E::Relative, 4, Signed),
        row("PLT32_BND", E::Branch, 4, Signed),
        row("GOTPCRELX", E::RelaxableWord, 4, Signed),
        row("REX_GOTPCRELX", E::RelaxableWord, 4, Signed),
        row("CODE_4_GOTPCRELX", E::RelaxableWord, 4, Signed),
        // The same accesses, with longer prefixes.
        row("CODE_4_GOTTPOFF", E::ThreadOffsetWord, 4, Signed),
        row("CODE_4_GOTPC32_TLSDESC", E::Descriptor, 4, Signed),
        row("CODE_5_GOTPCRELX", E::Word, 4, Signed),
        row("CODE_5_GOTTPOFF", E::ThreadOffsetWord, 4, Signed),
        row("CODE_5_GOTPC32_TLSDESC", E::Descriptor, 4, Signed),
        row("CODE_6_GOTPCRELX", E::Word, 4, Signed),
        row("CODE_6_GOTTPOFF", E::ThreadOffsetWord, 4, Signed),
        row("CODE_6_GOTPC32_TLSDESC", E::Descriptor, 4, Signed),
    ]
};

/// A word of the GOT, as a field.
pub(crate) const WORD: Rule = RULES[1];
/// The distance in a PLT entry, as a field.
pub(crate) const DISTANCE: Rule = RULES[2];

/// The row of a type number; `None` for an unknown type.
pub(crate) fn rule(kind: u32) -> Option<&'static Rule> {
    RULES.get(kind as usize)
}

/// The name of a type number in errors.
pub(crate) fn name(kind: u32) -> Box<str> {
    match rule(kind) {
        Some(rule) => format!("R_X86_64_{}", rule.name).into(),
        None => format!("relocation type {kind}").into(),
    }
}

impl Rule {
    /// Whether `value` fits into the field.
    pub(crate) fn takes(&self, value: u64) -> bool {
        let bits = 8 * self.width as u32;
        let signed = value as i64;
        if bits == 0 || bits >= 64 {
            return true;
        }
        let (half, full) = (1i64 << (bits - 1), 1i64 << bits);
        match self.range {
            Range::Empty | Range::Full => true,
            Range::Signed => (-half..half).contains(&signed),
            Range::Unsigned => (0..full).contains(&signed),
            Range::Either => (-half..full).contains(&signed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, name, rule};

    #[test]
    fn rows_stand_at_their_numbers() {
        let at = |kind| rule(kind).map(|rule: &Rule| rule.name);
        assert_eq!(at(10), Some("32"));
        assert_eq!(at(24), Some("PC64"));
        assert_eq!(at(36), Some("TLSDESC"));
        assert_eq!(at(43), Some("CODE_4_GOTPCRELX"));
        assert_eq!(at(52), None);
        assert_eq!(&*name(99), "relocation type 99");
    }

    #[test]
    fn ranges_end_where_the_fields_do() {
        let takes = |kind, value: i64| rule(kind).is_some_and(|rule| rule.takes(value as u64));
        assert!(takes(2, i64::from(i32::MAX)) && !takes(2, i64::from(i32::MAX) + 1));
        assert!(takes(2, i64::from(i32::MIN)) && !takes(2, i64::from(i32::MIN) - 1));
        assert!(takes(10, i64::from(u32::MAX)) && !takes(10, -1) && !takes(10, 1 << 32));
        assert!(takes(14, 255) && takes(14, -128) && !takes(14, 256) && !takes(14, -129));
        assert!(takes(15, 127) && !takes(15, 128));
        assert!(takes(1, i64::MIN));
    }
}
