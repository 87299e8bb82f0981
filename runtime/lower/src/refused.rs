//! Constructors of refusals.

use uruk_baseline::Uncovered;

use crate::Refused;

/// A result, or the reason for refusal.
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
