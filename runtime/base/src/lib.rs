//! Types and terms that all packages share.
//!
//! | module | holds |
//! |---|---|
//! | [`address`] | addresses of functions: stubs, slots, entries |
//! | [`ids`] | functions, versions, tiers |
//! | [`nanos`] | times |
//! | [`parts`] | times of the parts of the work |
//! | [`sandbox`] | whether a filter of system calls is closed around the process |
//! | [`settings`](mod@settings) | tables of settings |
//! | [`variant`] | ways to compile a function |
//! | [`allocated`] | bytes that the allocator takes |
//! | [`locks`] | locks that no `fork` finds held |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

// Every package of the library depends on this one, so builds for other targets end with this
// error.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!(
    "Uruk runs on Linux on x86-64 with the GNU C library only (target x86_64-unknown-linux-gnu): \
     stubs, relocations and thread-locals are written for that platform, and musl is not supported"
);

pub mod address;
pub mod allocated;
pub mod choices;
pub mod ids;
pub mod locks;
pub mod nanos;
pub mod parts;
pub mod sandbox;
pub mod settings;
pub mod thread_stack;
pub mod variant;

pub use address::{EntryAddress, SlotAddress, StubAddress};
pub use choices::{CompiledBy, Level, Mode, Tiers};
pub use ids::{FunctionId, Tier, VersionId};
pub use nanos::Nanos;
pub use parts::Part;
pub use thread_stack::ThreadStack;
pub use variant::{CALLEES, Change, Inlining, Start, UnknownVariant, Variant, Vectors};
