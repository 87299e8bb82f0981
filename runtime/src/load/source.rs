//! One input of a session, with its format detected by its content.

use std::path::Path;
use std::sync::Arc;

use uruk_codegen::Bitcode;

use super::archive::{Archive, THIN};
use crate::error::Error;

/// One input, by kind. LLVM has not read it yet: it does so on a thread that it may stop.
#[derive(Clone)]
pub(crate) enum InputSource {
    Bitcode(Bitcode),
    Text {
        file: String,
        text: String,
    },
    Object {
        file: String,
        bytes: Arc<[u8]>,
    },
    /// Gives the members that define missing symbols of the other inputs.
    Archive(Arc<Archive>),
    /// A name that counts as referenced, so that archives give the member that defines it.
    Undefined(String),
}

/// Maximal bytes of bitcode of a module that the adding thread loads itself, if LLVM is not needed:
/// that takes no longer than using another thread.
const SPARED: usize = 32 << 10;

impl InputSource {
    /// Whether to try first without another thread: LLVM parses text, and objects never need it.
    pub(crate) fn may_be_spared(&self) -> bool {
        matches!(self, InputSource::Bitcode(bitcode) if bitcode.bytes().len() <= SPARED)
    }

    /// The input's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            InputSource::Bitcode(bitcode) => bitcode.name(),
            InputSource::Text { file, .. } | InputSource::Object { file, .. } => file,
            InputSource::Archive(archive) => &archive.name,
            InputSource::Undefined(name) => name,
        }
    }

    /// The archive, if it is one.
    pub(crate) fn archive(&self) -> Option<Arc<Archive>> {
        match self {
            InputSource::Archive(archive) => Some(Arc::clone(archive)),
            _ => None,
        }
    }

    /// Each module of a file of bitcode; any other input is itself.
    pub(super) fn modules(self) -> Vec<InputSource> {
        match self {
            InputSource::Bitcode(bitcode) => {
                let modules = bitcode.modules().into_iter();
                modules.map(InputSource::Bitcode).collect()
            }
            other => vec![other],
        }
    }

    /// Reads a file and detects its format by its content.
    pub(crate) fn read(path: &Path) -> Result<InputSource, Error> {
        let file = path.display().to_string();
        let bytes = uruk_files::read(path).map_err(|cause| Error::File {
            file: file.clone(),
            cause: Arc::new(cause),
        })?;
        InputSource::from_bytes(&file, bytes)
    }

    /// IR text.
    pub(crate) fn text(file: &str, text: &str) -> InputSource {
        InputSource::Text {
            file: file.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Detects the format of `bytes`: bitcode (raw or wrapped), an ELF object, IR text.
    pub(crate) fn from_bytes(file: &str, bytes: Vec<u8>) -> Result<InputSource, Error> {
        if bytes.starts_with(b"BC\xC0\xDE") || bytes.starts_with(&[0xDE, 0xC0, 0x17, 0x0B]) {
            return Ok(InputSource::Bitcode(Bitcode::read(file, bytes)));
        }
        if bytes.starts_with(b"!<arch>\n") || bytes.starts_with(THIN) {
            let archive = Archive::from_bytes(file.to_owned(), bytes)?;
            return Ok(InputSource::Archive(Arc::new(archive)));
        }
        if bytes.starts_with(b"\x7fELF") {
            return Ok(InputSource::Object {
                file: file.to_owned(),
                bytes: bytes.into(),
            });
        }
        if bytes.trim_ascii().is_empty() || bytes.contains(&0) {
            return Err(Error::UnknownFormat {
                file: file.to_owned(),
            });
        }
        Ok(InputSource::text(file, &text_of(&bytes)))
    }
}

/// IR text of any bytes: those that are not UTF-8 are escaped as LLVM writes them. They are valid
/// only in quotes, where the escape is equivalent.
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid().iter();
        text.extend(invalid.map(|byte| format!("\\{byte:02X}")));
    }
    text
}
