//! Symbols: entries of the objects' tables, and definitions that an image exports.

use crate::section::SectionId;
use uruk_base::{SlotAddress, StubAddress};

/// Index of a symbol in the image's table: the object's first symbol plus the
/// symbol's index in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SymbolId(pub(crate) u32);

impl SymbolId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The base of a symbol's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Undefined,
    Absolute,
    /// To be allocated: `value` is the alignment.
    Common,
    Section(SectionId),
    /// `__start_NAME` or, with `end`, `__stop_NAME` of a bounded run of sections.
    Bound {
        bound: u32,
        end: bool,
    },
    /// `_GLOBAL_OFFSET_TABLE_`.
    GotBase,
    /// `_TLS_MODULE_BASE_`: the start of the thread-local template, from which descriptors reach a
    /// file's own variables.
    TemplateBase,
}

/// The binding of a symbol. The order is the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bind {
    Local,
    Weak,
    Strong,
}

/// One symbol of one object.
#[derive(Debug, Clone)]
pub(crate) struct Symbol<'d> {
    pub(crate) name: &'d str,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    pub(crate) bind: Bind,
    pub(crate) kind: Kind,
    pub(crate) hidden: bool,
    /// `STT_FUNC`: a function, not only a label in code.
    pub(crate) callable: bool,
    /// The symbol that references to this one are bound to; itself for locals and for the winner of
    /// a name. Never more than one step after resolution.
    pub(crate) canonical: SymbolId,
}

/// The kind of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Code, or a label in code.
    Function,
    /// Data.
    Data,
    /// A thread-local variable: its address is an offset in the template.
    Tls,
    /// A function whose address is chosen at run time by a resolver function.
    Ifunc,
    /// A number, not an address.
    Absolute,
}

/// Precedence of a definition against others of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// The only strong definition allowed.
    Strong,
    /// Yields to a strong one, and to the first weak one.
    Weak,
    /// Yields to a strong one; merges with others of its kind.
    Common,
}

/// A symbol that an image defines for other images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Definition<'d> {
    /// The name, as in the object file.
    pub name: &'d str,
    /// Its precedence against others of its name.
    pub binding: Binding,
    /// Not visible outside of the image.
    pub hidden: bool,
    /// The kind of the definition.
    pub kind: Kind,
    /// Size in bytes, zero if the object does not give it.
    pub size: u64,
}

/// The kinds of access that a reference needs from a symbol outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Need {
    /// May be absent: its address is then null.
    pub weak: bool,
    /// Some site only calls it or jumps to it.
    pub call: bool,
    /// Some site takes its address or reads its contents.
    pub address: bool,
    /// Some site accesses it as a thread-local variable.
    pub thread_local: bool,
    /// Some site holds a distance to it that may be too short, and is no call.
    pub short: bool,
}

impl Need {
    /// The union of both needs.
    pub(crate) fn and(self, other: Need) -> Need {
        Need {
            weak: self.weak && other.weak,
            call: self.call || other.call,
            address: self.address || other.address,
            thread_local: self.thread_local || other.thread_local,
            short: self.short || other.short,
        }
    }
}

/// The place at which a symbol from outside was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Its canonical address. For thread-locals unused.
    pub address: u64,
    /// Address of an 8-byte word near the image that always holds the target of calls: indirect
    /// calls go straight through that word.
    pub slot: Option<SlotAddress>,
    /// Whether it is known to be a function, so that a PLT entry may replace it where a distance is
    /// too short. Needed for [`Need::short`].
    pub function: bool,
    /// For a thread-local: its module's id and its offset in the module, as
    /// `__tls_get_addr` takes them.
    pub tls: Option<(u64, u64)>,
    /// For a thread-local in static space: its offset from the thread pointer.
    pub static_tls: Option<i64>,
}

impl Resolved {
    /// A symbol that is known by its address only.
    pub fn at(address: u64) -> Resolved {
        Resolved {
            address,
            ..Resolved::default()
        }
    }

    /// A function with a stub, and the slot that its callers jump through.
    pub fn stub(stub: StubAddress, slot: SlotAddress) -> Resolved {
        Resolved {
            address: stub.0,
            slot: Some(slot),
            ..Resolved::default()
        }
    }

    /// A thread-local variable in dynamic space.
    pub fn thread_local(module: u64, offset: u64) -> Resolved {
        Resolved {
            tls: Some((module, offset)),
            ..Resolved::default()
        }
    }
}

/// A name without its suffix after `@@`. The suffix is the default version of a definition, which
/// is found without it. Or it is the number of parameter bytes, which LLVM appends for `vectorcall`
/// functions and modules leave out.
pub(crate) fn plain(name: &str, origin: Origin) -> &str {
    let is_size = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match name.split_once("@@") {
        Some((plain, end)) if origin != Origin::Undefined || is_size(end) => plain,
        _ => name,
    }
}
