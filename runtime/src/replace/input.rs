//! The forms in which a replacement is given.

use std::fmt;
use std::sync::Arc;

use uruk_codegen::Bitcode;

use crate::error::Error;
use crate::load::source::Source;

#[derive(Clone)]
pub(super) enum Input {
    Bitcode(Arc<[u8]>),
    Ir(String),
    Object(Arc<[u8]>),
    /// Any of these: recognized by its content.
    File(Arc<[u8]>),
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Bitcode(bytes) => write!(f, "{} bytes of bitcode", bytes.len()),
            Input::File(bytes) => write!(f, "{} bytes", bytes.len()),
            Input::Ir(text) => write!(f, "{} bytes of IR", text.len()),
            Input::Object(bytes) => write!(f, "{} bytes of an object file", bytes.len()),
        }
    }
}

impl Input {
    /// Converts it to a source; errors call it `name`.
    pub(super) fn source(self, name: &str) -> Result<Source, Error> {
        match self {
            Input::Bitcode(bytes) => Ok(Source::Bitcode(Bitcode::new(name, bytes))),
            Input::Ir(text) => Ok(Source::text(name, &text)),
            Input::Object(bytes) => Ok(Source::Object {
                file: name.to_owned(),
                bytes,
            }),
            Input::File(bytes) => Source::from_bytes(name, bytes.to_vec()),
        }
    }
}
