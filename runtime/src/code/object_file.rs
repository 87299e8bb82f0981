//! Object files whose functions have stubs, and the definitions behind those.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use uruk_base::FunctionId;

/// An object file whose functions have stubs.
pub(crate) struct ObjectFile {
    pub(crate) name: String,
    /// Whether its compiler recorded that its functions contain no parts of each other.
    pub(crate) apart: Apart,
    /// Names of functions that it calls without going through their stubs.
    pub(crate) bypassed: Vec<Box<str>>,
    /// Its functions. Set once.
    pub(crate) functions: OnceLock<Vec<FunctionId>>,
}

/// Facts about the compile of an object (`-frecord-gcc-switches`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// None, or functions may have been inlined.
    Unknown,
    /// `-fPIC -fsemantic-interposition`: compilers inline nothing from global functions, except
    /// from inline ones, which are in groups.
    Ungrouped,
    /// `-O0`.
    All,
}

/// The definition behind a stub: a function of an object.
#[derive(Clone)]
pub(crate) struct ObjectBody {
    pub(crate) file: Arc<ObjectFile>,
    pub(crate) link_name: Arc<str>,
    /// The display name, never freed.
    pub(crate) name: &'static CStr,
    /// Whether it is in a group: see [`Apart::Ungrouped`].
    pub(crate) grouped: bool,
}

impl ObjectFile {
    pub(crate) fn new(name: String, apart: Apart, bypassed: Vec<Box<str>>) -> ObjectFile {
        ObjectFile {
            name,
            apart,
            bypassed,
            functions: OnceLock::new(),
        }
    }
}
