//! Ways to say that something is not lowered here.

use uruk_baseline::Uncovered;

use crate::Refused;
use crate::types::VECTOR;

/// A result, if there is one.
pub(crate) type Covered<T> = Result<T, Refused>;

/// Not covered.
pub(crate) fn not<T>(what: &'static str) -> Covered<T> {
    Err(Refused::Uncovered(Uncovered { what }))
}

/// About vectors.
pub(crate) fn vector<T>() -> Covered<T> {
    Err(Refused::Unread(VECTOR))
}

/// Not valid.
pub(crate) fn invalid<T>(what: &'static str) -> Covered<T> {
    Err(Refused::Invalid(what))
}

pub(crate) const TYPES: &str = "types that do not fit";
