//! The words that all packages share, each once.
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | functions, versions, tiers |
//! | [`nanos`] | times |
//! | [`settings`](mod@settings) | tables of settings |
//! | [`locks`] | locks that no fork finds held |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ids;
pub mod locks;
pub mod nanos;
pub mod settings;

pub use ids::{FunctionId, Tier, VersionId};
pub use nanos::Nanos;
