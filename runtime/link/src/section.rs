//! Sections, their classes, and whether they are in the image.
//!
//! A section's [`Class`] follows from its flags, which carry the intent of the code model and the
//! language. Names decide only where ELF has no flag (`.ctors.N`, `.data.rel.ro`, `.eh_frame` as
//! PROGBITS).

use object::LittleEndian;
use object::elf;

/// A relocation with addend, as in the file.
pub(crate) type Rela = elf::Rela64<LittleEndian>;

/// The priority number of arrays without one, the highest: they start last and stop first.
pub const DEFAULT_PRIORITY: u32 = u32::MAX;

/// Index of a section in the image's table: the object's first section plus
/// the section's index in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SectionId(pub(crate) u32);

impl SectionId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One of the three arrays of functions that run around `main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayKind {
    Preinit,
    Init,
    Fini,
}

/// The use of a section, which decides its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Text,
    ReadOnly,
    /// Read-only once relocated.
    RelRo,
    /// An array of functions. `reversed` for the old `.ctors` and `.dtors`, which run from the end
    /// (`.ctors`) where the new ones run from the start.
    Array {
        kind: ArrayKind,
        priority: u32,
        reversed: bool,
    },
    /// Unwind records: copied record by record, never whole.
    EhFrame,
    Data,
    ZeroFill,
    TlsData,
    TlsZeroFill,
    /// Not part of the image: debug information, notes, symbol tables.
    Dropped,
}

/// Whether a section of the image is still in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Live,
    /// Another object's group of the same key was chosen instead.
    Lost,
    /// No kept section refers to it.
    Pruned,
}

/// One section of one object.
#[derive(Debug, Clone)]
pub(crate) struct Section<'d> {
    pub(crate) name: &'d str,
    /// Index of the object in the image.
    pub(crate) object: u32,
    /// The bytes; empty for zero-filled and dropped sections.
    pub(crate) data: &'d [u8],
    pub(crate) size: u64,
    /// A power of two, at most [`crate::MAX_ALIGN`].
    pub(crate) align: u64,
    pub(crate) relocations: &'d [Rela],
    pub(crate) class: Class,
    pub(crate) presence: Presence,
    /// `SHF_LINK_ORDER`: the section is kept if and only if that one is.
    pub(crate) link: Option<SectionId>,
    pub(crate) group: Option<u32>,
    /// `SHF_GNU_RETAIN`.
    pub(crate) retain: bool,
}

impl Section<'_> {
    /// Whether the section is placed in the image as a whole.
    pub(crate) fn is_placed(&self) -> bool {
        self.presence == Presence::Live && !matches!(self.class, Class::Dropped | Class::EhFrame)
    }

    /// Whether `__start_NAME` and `__stop_NAME` name the bounds of the
    /// section: its name is a C identifier and it is ordinary memory.
    pub(crate) fn is_bounded(&self) -> bool {
        let mut bytes = self.name.bytes();
        let plain = matches!(
            self.class,
            Class::Text | Class::ReadOnly | Class::RelRo | Class::Data | Class::ZeroFill
        );
        plain
            && bytes
                .next()
                .is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
            && bytes.all(|b| b == b'_' || b.is_ascii_alphanumeric())
    }
}

/// The class by type, flags and name; `Err` names the unsupported property.
pub(crate) fn classify(kind: u32, flags: u64, name: &str) -> Result<Class, &'static str> {
    const ALLOC: u64 = elf::SHF_ALLOC.0;
    let has = |flag: elf::SectionFlags| flags & flag.0 != 0;
    if flags & ALLOC == 0 || has(elf::SHF_EXCLUDE) {
        return Ok(Class::Dropped);
    }
    if has(elf::SHF_COMPRESSED) {
        return Err("compressed, and part of the program");
    }
    let zero = kind == elf::SHT_NOBITS.0;
    if has(elf::SHF_TLS) {
        return Ok(if zero {
            Class::TlsZeroFill
        } else {
            Class::TlsData
        });
    }
    if has(elf::SHF_EXECINSTR) {
        return match (has(elf::SHF_WRITE), zero) {
            (true, _) => Err("both writable and executable"),
            (_, true) => Err("executable without bytes"),
            _ => Ok(Class::Text),
        };
    }
    if zero {
        return Ok(Class::ZeroFill);
    }
    // Properties of the whole program, and tables for other unwinders.
    if name == ".note.gnu.property" || name == ".sframe" {
        return Ok(Class::Dropped);
    }
    if name == ".eh_frame" {
        return Ok(Class::EhFrame);
    }
    if let Some(array) = array_class(kind, name)? {
        return Ok(array);
    }
    if !has(elf::SHF_WRITE) {
        return Ok(Class::ReadOnly);
    }
    let rest = name
        .strip_prefix(".data.rel.ro")
        .or(name.strip_prefix(".ldata.rel.ro"));
    Ok(match rest {
        Some(rest) if rest.is_empty() || rest.starts_with('.') => Class::RelRo,
        _ => Class::Data,
    })
}

fn array_class(kind: u32, name: &str) -> Result<Option<Class>, &'static str> {
    const INIT: u32 = elf::SHT_INIT_ARRAY.0;
    const FINI: u32 = elf::SHT_FINI_ARRAY.0;
    const PREINIT: u32 = elf::SHT_PREINIT_ARRAY.0;
    let families = [
        (".init_array", ArrayKind::Init, false),
        (".fini_array", ArrayKind::Fini, false),
        (".preinit_array", ArrayKind::Preinit, false),
        (".ctors", ArrayKind::Init, true),
        (".dtors", ArrayKind::Fini, true),
    ];
    for (prefix, kind, reversed) in families {
        let Some(rest) = name.strip_prefix(prefix) else {
            continue;
        };
        let priority = match rest.strip_prefix('.') {
            None if rest.is_empty() => DEFAULT_PRIORITY,
            None => continue,
            Some(number) => {
                let number: u32 = number.parse().map_err(|_| "priority is no number")?;
                match reversed {
                    // The old sections sort in reverse order.
                    true => u32::from(u16::MAX)
                        .checked_sub(number)
                        .ok_or("priority is not 0 to 65535")?,
                    false => number.min(DEFAULT_PRIORITY - 1),
                }
            }
        };
        return Ok(Some(Class::Array {
            kind,
            priority,
            reversed,
        }));
    }
    let kind = match kind {
        INIT => ArrayKind::Init,
        FINI => ArrayKind::Fini,
        PREINIT => ArrayKind::Preinit,
        _ => return Ok(None),
    };
    Ok(Some(Class::Array {
        kind,
        priority: DEFAULT_PRIORITY,
        reversed: false,
    }))
}
