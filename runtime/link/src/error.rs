//! Errors of all steps from bytes to a linked image.
//!
//! Every error names its operands: the object file, the section or symbol, and for a relocation the
//! whole [`Site`]. Names are copied out of the input, so an error outlives the objects it names.

use std::fmt;

use crate::segment::Segment;

/// The reason why objects could not be linked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The file is cut short, or its tables contradict each other.
    #[error("{object}: malformed object file")]
    Malformed {
        /// The file.
        object: Box<str>,
        /// The error of the reader.
        #[source]
        source: object::read::Error,
    },
    /// A valid ELF file, but not a relocatable x86-64 one.
    #[error("{object}: not a relocatable object for x86-64 ({what})")]
    WrongKind {
        /// The file.
        object: Box<str>,
        /// The header field that disagrees.
        what: &'static str,
    },
    /// A section that breaks the format or that this linker does not support.
    #[error("{object}: section {index} `{section}`: {what}")]
    Section {
        /// The file.
        object: Box<str>,
        /// The section's name, empty if it cannot be read.
        section: Box<str>,
        /// The section's index in the file.
        index: usize,
        /// The rule that is broken.
        what: &'static str,
    },
    /// A section wants an alignment that is no power of two, or above [`crate::MAX_ALIGN`].
    #[error(
        "{object}: section `{section}`: alignment {align} is not a power of two up to {}",
        crate::MAX_ALIGN
    )]
    Alignment {
        /// The file.
        object: Box<str>,
        /// The section, or the common symbol.
        section: Box<str>,
        /// The alignment asked for, in bytes.
        align: u64,
    },
    /// A symbol that breaks the format or that this linker does not support.
    #[error("{object}: symbol {index} `{symbol}`: {what}")]
    Symbol {
        /// The file.
        object: Box<str>,
        /// The symbol's name, empty if it cannot be read.
        symbol: Box<str>,
        /// The symbol's index in the file.
        index: usize,
        /// The rule that is broken.
        what: &'static str,
    },
    /// Two strong definitions of one name.
    #[error("`{symbol}` is defined in {first} and in {second}")]
    Duplicate {
        /// The name.
        symbol: Box<str>,
        /// The file that came first.
        first: Box<str>,
        /// The file that defined it again.
        second: Box<str>,
    },
    /// A segment of the image would be larger than [`crate::LayoutOptions::max_size`].
    #[error("{segment} needs more than the {limit} bytes allowed")]
    TooLarge {
        /// The segment.
        segment: Segment,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A segment was placed at an address that breaks its alignment or leaves the address space.
    #[error("{segment} of {size} bytes cannot be placed at {address:#x} (alignment {align})")]
    Misplaced {
        /// The segment.
        segment: Segment,
        /// The address given.
        address: u64,
        /// The segment's size in bytes, with its zero-filled tail.
        size: u64,
        /// The alignment it needs.
        align: u64,
    },
    /// Code cannot be moved to an address, because a field cannot hold its value there.
    #[error(
        "code moved to {to:#x}: the field at +{offset:#x} cannot hold {distance:#x} ({distance})"
    )]
    OutOfReach {
        /// Offset of the field in the code segment.
        offset: u64,
        /// The value: a distance in most fields, an address in absolute ones.
        distance: i64,
        /// The new address of the code.
        to: u64,
    },
    /// The records of a move are for a longer code segment.
    #[error("records of a move name offset {offset:#x}, the code has {size} bytes")]
    NotMovable {
        /// Offset of a field in the code segment.
        offset: u64,
        /// Bytes in the code segment given.
        size: usize,
    },
    /// A relocation that cannot be applied.
    #[error("{site}: {problem}{}", advice(.site, .problem))]
    Relocation {
        /// The place of the relocation.
        site: Box<Site>,
        /// The reason.
        problem: Problem,
    },
    /// An unwind record that is no valid CIE or FDE.
    #[error("{object}: .eh_frame+{offset:#x}: {what}")]
    Unwind {
        /// The file, or `image` once records of several files are joined.
        object: Box<str>,
        /// Offset of the record in its section.
        offset: u64,
        /// The rule that is broken.
        what: &'static str,
    },
    /// All strong symbols without a definition.
    #[error("{}", list_missing(.0))]
    Missing(Vec<Missing>),
}

impl LinkError {
    /// Whether code refers to a thread-local by a fixed offset from the thread pointer, and
    /// [`Placement::tls`](crate::Placement) has none.
    pub fn wants_fixed_thread_locals(&self) -> bool {
        let LinkError::Relocation { problem, .. } = self else {
            return false;
        };
        matches!(problem, Problem::NoStaticOffset)
    }

    /// Whether a field of less than 64 bits could not hold an address, so that the object
    /// has to lie below 2 GiB: see [`Object::needs_low_addresses`](crate::Object).
    pub fn wants_low_addresses(&self) -> bool {
        match self {
            LinkError::Relocation { site, problem } => {
                let address = ["R_X86_64_32", "R_X86_64_32S"].contains(&&*site.relocation);
                address && matches!(problem, Problem::OutOfRange { .. })
            }
            _ => false,
        }
    }
}

/// Advice for code whose definition is too far for a distance.
fn advice(site: &Site, problem: &Problem) -> &'static str {
    match problem {
        Problem::OutOfRange { .. }
            if &*site.relocation == "R_X86_64_PC32" && site.section.starts_with(".text") =>
        {
            "; with -fPIC compilers reach definitions of shared libraries at any distance"
        }
        _ => "",
    }
}

/// The place in an object file that a relocation changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The file.
    pub object: Box<str>,
    /// The section of the file.
    pub section: Box<str>,
    /// Offset in the section, in bytes.
    pub offset: u64,
    /// The relocation's type as the ABI spells it, or its number.
    pub relocation: Box<str>,
    /// The symbol, or the section it is the start of; empty if there is none.
    pub symbol: Box<str>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            object,
            section,
            offset,
            relocation,
            symbol,
        } = self;
        write!(
            f,
            "{object}: {section}+{offset:#x}: {relocation} against `{symbol}`"
        )
    }
}

/// The reason why one relocation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// This linker does not know the type number.
    #[error("unknown relocation type {0}")]
    UnknownType(u32),
    /// A known type without a meaning in a relocatable object.
    #[error("a type for dynamic linkers only")]
    DynamicOnly,
    /// The value does not fit into the field.
    #[error("value {value:#x} ({value}) does not fit into {bits} bits")]
    OutOfRange {
        /// The value: a distance for relative types, an address for absolute ones.
        value: i64,
        /// Width of the field in bits.
        bits: u32,
    },
    /// The field, or the instruction around it, leaves the section.
    #[error("outside of the section")]
    OutsideSection,
    /// The symbol index is beyond the symbol table.
    #[error("symbol index {0} is beyond the table")]
    NoSuchSymbol(u32),
    /// The target lies in a section that is not part of the image: it lost to
    /// another object's group of the same key, or it holds no program data.
    #[error("target is in a section that is not part of the image")]
    Discarded,
    /// A plain relocation against a thread-local symbol.
    #[error("address of a thread-local symbol")]
    ThreadLocal,
    /// A thread-local relocation against an ordinary symbol.
    #[error("symbol is not thread-local")]
    NotThreadLocal,
    /// The image has thread-locals but [`crate::Placement::tls`] gives them no module.
    #[error("no place for thread-locals was given")]
    NoTlsPlace,
    /// A local-exec, initial-exec or descriptor access where no static offset is known.
    #[error("needs a static thread-local offset, and there is none")]
    NoStaticOffset,
    /// The bytes around the field are not the instruction the type promises.
    #[error("not the instruction this type stands for")]
    WrongInstruction,
    /// A hint promised that no GOT word is needed, and one is.
    #[error("needs a GOT word that the layout was told to leave out")]
    NotPlanned,
    /// A distance from a field inside the template of thread-locals, which has no address.
    #[error("position-relative inside the thread-local template")]
    RelativeInTemplate,
    /// A constant that lies apart from the image refers to a part of it, or to a constant
    /// that refers to it in turn.
    #[error("a constant apart from the image refers to what may go before it")]
    IntoImage,
}

/// A name without a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name.
    pub symbol: Box<str>,
    /// The places that refer to it, at least one.
    pub needed_by: Vec<Needer>,
}

/// A place that refers to a symbol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needer {
    /// The file.
    pub object: Box<str>,
    /// The section of the file.
    pub section: Box<str>,
    /// The function or variable around the reference, if the symbol table tells.
    pub inside: Option<Box<str>>,
}

impl fmt::Display for Needer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.inside.as_deref().unwrap_or(&self.section);
        write!(f, "{}: {place}", self.object)
    }
}

fn list_missing(missing: &[Missing]) -> String {
    let mut text = String::from("undefined symbols: ");
    for (i, entry) in missing.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}`{}`", entry.symbol));
        if let Some(first) = entry.needed_by.first() {
            text.push_str(&format!(" (needed by {first}"));
            if entry.needed_by.len() > 1 {
                text.push_str(&format!(" and {} more", entry.needed_by.len() - 1));
            }
            text.push(')');
        }
    }
    text
}
