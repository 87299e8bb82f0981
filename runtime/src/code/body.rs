//! Functions behind stubs, and the sources of their code.

use std::ffi::CStr;
use std::sync::Arc;

use uruk_codegen::SymbolId;

use crate::code::loops::Origin;
use crate::code::module::Module;
use crate::code::object_file::ObjectBody;
use crate::code::unit_body::UnitBody;

/// A function that is compiled from a module.
#[derive(Clone)]
pub(crate) struct ModuleFunction {
    pub(crate) module: Arc<Module>,
    pub(crate) symbol: SymbolId,
    /// The display name, kept until the process ends: unwind rows point at it.
    pub(crate) name: &'static CStr,
    /// Its start, if it is a continuation.
    pub(crate) origin: Option<Arc<Origin>>,
}

/// The source of a function's code.
#[derive(Clone)]
pub(crate) enum Body {
    /// A body that is compiled.
    Module(ModuleFunction),
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

    /// The display name.
    pub(crate) fn name(&self) -> &'static CStr {
        match self {
            Body::Module(function) => function.name,
            Body::Object(object) => object.name,
            Body::Unit(unit) => unit.name,
        }
    }
}
