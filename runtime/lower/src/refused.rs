//! Ways to say that something is not lowered here.

use uruk_baseline::Uncovered;

use crate::Refused;

/// A result, if there is one.
pub(crate) type Covered<T> = Result<T, Refused>;

/// Not covered.
pub(crate) fn not<T>(what: &'static str) -> Covered<T> {
    Err(Refused::Uncovered(Uncovered { what }))
}

/// Not valid.
pub(crate) fn invalid<T>(what: &'static str) -> Covered<T> {
    Err(Refused::Invalid(what))
}

pub(crate) const TYPES: &str = "types that do not fit";
