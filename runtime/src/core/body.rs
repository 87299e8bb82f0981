//! What stubs stand for: functions, and where their code comes from.

use std::ffi::CStr;
use std::sync::Arc;

use uruk_codegen::SymbolId;

use super::Module;
use crate::load::objects::ObjectBody;
use crate::loops::Origin;
use crate::units::UnitBody;

/// What a stub stands for.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) symbol: SymbolId,
    /// The name people know, kept for ever: unwind rows point at it.
    pub(crate) name: &'static CStr,
    /// Where it starts, if it is a continuation.
    pub(crate) origin: Option<Arc<Origin>>,
}

/// Where a function's code comes from.
#[derive(Clone)]
pub(crate) enum Body {
    /// A body that is compiled.
    Module(Function),
    /// A function of an object file.
    Object(ObjectBody),
    /// A function whose code a unit makes.
    Unit(UnitBody),
}

impl Body {
    /// Whether it is compiled from a module of that name.
    pub(crate) fn is_of_file(&self, file: &str) -> bool {
        match self {
            Body::Module(function) => function.module.readers.bitcode().name() == file,
            Body::Object(_) | Body::Unit(_) => false,
        }
    }

    /// The name people know.
    pub(crate) fn name(&self) -> &'static CStr {
        match self {
            Body::Module(function) => function.name,
            Body::Object(object) => object.name,
            Body::Unit(unit) => unit.name,
        }
    }
}
