//! Guest programs: the real programs that Uruk is tried on, compiled to LLVM
//! bitcode and, as the oracle, to a native executable of the same bitcode.
//!
//! Nothing third-party lives in this repository. The C sources of Lua, SQLite,
//! zstd and bzip2 are carried by well-known crates; [`sources`] asks
//! `cargo metadata` where cargo unpacked them, and their build scripts never
//! run. What is ours are the small drivers in `programs/` and `scripts/`.
//!
//! Reading order:
//! - [`error`]: what can go wrong, with the command that failed;
//! - [`flavor`]: optimization level and code-generation options;
//! - [`toolchain`]: clang, llvm-link, rustc, lli;
//! - [`cache`]: results kept under a hash of everything that went in;
//! - [`compile`]: one program, from sources to bitcode and executable;
//! - [`sources`]: where the third-party sources are;
//! - [`native`]: the peers, compiled straight from the sources;
//! - [`guest`]: the guest programs and the ways to run them;
//! - [`kernel`]: small programs of our own, in C and in Rust;
//! - [`once`]: programs of our own whose loops are entered once;
//! - [`workload`]: what is repeated within one process to see it warm up;
//! - [`server`]: the server of `demos/live`, as a client sees it;
//! - [`execute`]: one process, with a time limit.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod cache;
pub mod compile;
pub mod error;
pub mod execute;
pub mod flavor;
pub mod guest;
pub mod kernel;
pub mod native;
pub mod once;
pub mod server;
pub mod sources;
pub mod toolchain;
pub mod workload;

pub use cache::Cache;
pub use compile::{Built, Language, Library, Program};
pub use error::GuestError;
pub use flavor::{Flavor, Level, Pic};
pub use guest::{Guest, Run};
pub use kernel::{Kernel, Tongue};
pub use native::{Compiler, Native};
pub use once::Once;
pub use toolchain::Toolchain;
pub use workload::Workload;
