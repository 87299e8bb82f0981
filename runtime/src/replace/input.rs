//! The forms in which a replacement is given.

use std::fmt;
use std::sync::Arc;

use uruk_codegen::Bitcode;

use crate::error::Error;
use crate::load::source::InputSource;

#[derive(Clone)]
pub(super) enum ReplacementInput {
    Bitcode(Arc<[u8]>),
    Ir(String),
    Object(Arc<[u8]>),
    /// Any of these: recognized by its content.
    File(Arc<[u8]>),
}

impl fmt::Debug for ReplacementInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplacementInput::Bitcode(bytes) => write!(f, "{} bytes of bitcode", bytes.len()),
            ReplacementInput::File(bytes) => write!(f, "{} bytes", bytes.len()),
            ReplacementInput::Ir(text) => write!(f, "{} bytes of IR", text.len()),
            ReplacementInput::Object(bytes) => write!(f, "{} bytes of an object file", bytes.len()),
        }
    }
}

impl ReplacementInput {
    /// Converts it to a source; errors call it `name`.
    pub(super) fn source(self, name: &str) -> Result<InputSource, Error> {
        match self {
            ReplacementInput::Bitcode(bytes) => Ok(InputSource::Bitcode(Bitcode::new(name, bytes))),
            ReplacementInput::Ir(text) => Ok(InputSource::text(name, &text)),
            ReplacementInput::Object(bytes) => Ok(InputSource::Object {
                file: name.to_owned(),
                bytes,
            }),
            ReplacementInput::File(bytes) => InputSource::from_bytes(name, bytes.to_vec()),
        }
    }
}
