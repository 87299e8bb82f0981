//! Requests for versions, and their results.

use crate::code::words::ProbeWords;
use std::time::Duration;
use uruk_base::{FunctionId, Tier, VersionId};
use uruk_tiering::{Facts, Publication, Purpose};

/// A request for a version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) function: FunctionId,
    pub(crate) version: VersionId,
    pub(crate) tier: Tier,
    pub(crate) purpose: Purpose,
    /// Whether it is made before any call: the first call stores it, and reports its errors.
    pub(crate) ahead: bool,
}

/// The result of a compile.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) version: VersionId,
    pub(crate) compiling: Duration,
    pub(crate) linking: Duration,
    pub(crate) facts: Facts,
    /// Whether the code counts its entries and back edges.
    pub(crate) counts: bool,
    /// The number of callees that could be inlined.
    pub(crate) callees: u32,
    /// Hash of the object that it was linked from, if any.
    pub(crate) object: Option<u64>,
    /// The words in which its probes count.
    pub(crate) words: Option<ProbeWords>,
    pub(crate) publication: Publication,
}
