//! Addresses of a function, each a type of its own: a call goes through them word by word.
//!
//! | type | content of the memory | read by |
//! |---|---|---|
//! | [`StubAddress`] | `jmp [slot]`, for ever: the function's canonical address | code that takes the function's address |
//! | [`SlotAddress`] | the word that the stub jumps through | stubs, and calls of JIT'd code |
//! | [`EntryAddress`] | the first instruction of one version | the slot holds it |
//!
//! They are numbers: nothing is read through them here. Code is *written* at another address of the
//! same bytes, which never leaves `runtime/heap`.

use std::fmt;

macro_rules! addresses {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[repr(transparent)]
            pub struct $name(pub u64);

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, "{:#x}", self.0)
                }
            }

            impl From<$name> for u64 {
                fn from(address: $name) -> u64 {
                    address.0
                }
            }
        )*
    };
}

addresses! {
    /// The code at a function's canonical address.
    StubAddress;
    /// The aligned word that always holds the target of the function's calls.
    SlotAddress;
    /// The code of a version, as the slot holds it.
    EntryAddress;
}
