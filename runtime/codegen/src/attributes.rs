//! Kinds of attributes, by LLVM's numbers.

use inkwell::llvm_sys::core::LLVMGetEnumAttributeKindForName;

use crate::flags::Extensions;

/// Attributes of a declaration that change how it is called. The others only help
/// optimizers, and each costs a microsecond to copy.
pub(crate) const OF_CALLS: [&str; 18] = [
    "alignstack",
    "byref",
    "byval",
    "convergent",
    "inalloca",
    "inreg",
    "naked",
    "nest",
    "nobuiltin",
    "noreturn",
    "preallocated",
    "returns_twice",
    "signext",
    "sret",
    "swiftasync",
    "swifterror",
    "swiftself",
    "zeroext",
];

/// Kind numbers of the attributes that extraction reads; fixed for the process.
pub(crate) struct AttributeKinds {
    pub(crate) always_inline: u32,
    pub(crate) presplit_coroutine: u32,
    pub(crate) naked: u32,
    pub(crate) noinline: u32,
    pub(crate) optnone: u32,
    /// A stack protector in every function (`sspreq`).
    pub(crate) protect_all: u32,
    pub(crate) returns_twice: u32,
    pub(crate) safe_stack: u32,
    pub(crate) nonlazybind: u32,
    pub(crate) nounwind: u32,
    pub(crate) uwtable: u32,
    pub(crate) extensions: Extensions,
    /// Attributes that a caller must know of a callee: how values are passed, and that a call may
    /// return twice.
    pub(crate) of_calls: Vec<u32>,
}

impl AttributeKinds {
    pub(crate) fn new() -> AttributeKinds {
        AttributeKinds {
            always_inline: kind("alwaysinline"),
            presplit_coroutine: kind("presplitcoroutine"),
            naked: kind("naked"),
            noinline: kind("noinline"),
            optnone: kind("optnone"),
            protect_all: kind("sspreq"),
            returns_twice: kind("returns_twice"),
            safe_stack: kind("safestack"),
            nonlazybind: kind("nonlazybind"),
            nounwind: kind("nounwind"),
            uwtable: kind("uwtable"),
            extensions: Extensions {
                zero: kind("zeroext"),
                sign: kind("signext"),
            },
            of_calls: OF_CALLS.iter().map(|name| kind(name)).collect(),
        }
    }
}

/// The number of a kind of attributes.
pub(crate) fn kind(name: &str) -> u32 {
    // SAFETY: pointer and length describe `name`.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
}
