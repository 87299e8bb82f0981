//! Functions whose code a unit makes.

use crate::code::life::Life;
use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;
use uruk_session::{Dylib, Symbol};

/// The body behind a stub whose code a unit makes.
#[derive(Clone)]
pub(crate) struct UnitBody {
    pub(crate) dylib: Dylib,
    /// The body's symbol.
    pub(crate) symbol: Symbol,
    /// The name that stands for the stub.
    pub(crate) own: Symbol,
    /// The display name, kept until the process ends.
    pub(crate) name: &'static CStr,
    /// The source of better code, which `units` knows.
    pub(crate) improver: Option<Arc<dyn Any + Send + Sync>>,
    /// The life of the stub.
    pub(crate) life: Arc<Life>,
}

/// Prefix of names of bodies; the number of their unit, a point and the name follow.
pub(crate) const UNIT_PREFIX: &str = "uruk.unit.";

/// The display name in place of a body's.
pub(crate) fn shown(name: &str) -> &str {
    let own = name
        .strip_prefix(UNIT_PREFIX)
        .and_then(|rest| rest.split_once('.'));
    own.map_or(name, |(_, own)| own)
}
