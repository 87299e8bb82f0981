//! Reports for people and tools. Nothing here changes the behaviour of a session.
//!
//! | file | reports |
//! |---|---|
//! | [`stats`] | counters of a run, as a table or JSON |
//! | [`ahead`] | compiles ahead of calls |
//! | [`staying`] | functions that stay at a version, and why |
//! | [`parts`] | where time went |
//! | [`holdings`] | owners of memory |
//! | [`recording`] | a run as data for `uruk_report` |
//! | [`coverage`] | the share of a file that the baseline compiler covers |
//! | [`watch`] | files that are replaced when they change |

mod ahead;
pub(crate) mod coverage;
mod holdings;
pub(crate) mod parts;
pub(crate) mod recording;
pub(crate) mod stats;
pub(crate) mod staying;
pub(crate) mod watch;
