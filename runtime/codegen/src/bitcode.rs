//! One input: bitcode and its name.

use std::sync::{Arc, OnceLock};

use inkwell::llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use inkwell::llvm_sys::ir_reader::LLVMParseIRInContext2;
use inkwell::llvm_sys::prelude::LLVMModuleRef;
use uruk_base::Tier;
use uruk_base::allocated::{of_arc, of_block};

use crate::context::{Buffer, LlvmContext, OwnedModule, take_message};
use crate::error::CodegenError;
use crate::handles::c_name;
use crate::mentions::Mentions;
use crate::sole::SoleCalls;
use crate::structure::Structure;
use crate::summary::SymbolId;
use uruk_bitcode::stream::Malformed;

/// The largest bitcode whose bodies are all walked over for a compile at tier 2: programs that end soon do
/// not reach tier 3.
const MOST_WALKED: usize = 256 << 10;

/// Bytes as they were given.
#[derive(Clone)]
pub(crate) enum Bytes {
    Shared(Arc<[u8]>),
    /// Read from a file, and not copied since.
    Read(Arc<Vec<u8>>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Shared(bytes) => bytes,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// The bytes of a module, shareable between threads and readers.
#[derive(Clone)]
pub struct Bitcode {
    pub(crate) name: Arc<str>,
    pub(crate) bytes: Bytes,
    digest: Arc<OnceLock<[u8; 32]>>,
    /// Whether structs have names in it, once it was checked. Clones share it.
    names_structs: Arc<OnceLock<bool>>,
    /// The mentions of symbols in its bodies, once computed.
    mentions: Arc<OnceLock<Option<Mentions>>>,
    /// The functions that are mentioned once, as soon as that was computed.
    sole: Arc<OnceLock<SoleCalls>>,
}

impl Bitcode {
    /// Takes bitcode as it is. It is checked when a [`Reader`](crate::Reader) is made of it.
    pub fn new(name: &str, bytes: impl Into<Arc<[u8]>>) -> Bitcode {
        Bitcode::of(name, Bytes::Shared(bytes.into()))
    }

    /// Like [`Bitcode::new`], for bytes read from a file.
    pub fn read(name: &str, bytes: Vec<u8>) -> Bitcode {
        Bitcode::of(name, Bytes::Read(Arc::new(bytes)))
    }

    fn of(name: &str, bytes: Bytes) -> Bitcode {
        Bitcode {
            name: name.into(),
            bytes,
            digest: Arc::default(),
            names_structs: Arc::default(),
            mentions: Arc::default(),
            sole: Arc::default(),
        }
    }

    /// Each module of a file that has several, which is itself if there is one. Damage is found
    /// when a module is read.
    pub fn modules(self) -> Vec<Bitcode> {
        let files = uruk_bitcode::modules(&self.bytes).unwrap_or_default();
        if files.is_empty() {
            return vec![self];
        }
        let named = |(index, bytes)| {
            let name = format!("{} (module {})", self.name, index + 1);
            Bitcode::read(&name, bytes)
        };
        (0..).zip(files).map(named).collect()
    }

    /// Checks the stream; its shape. Readers keep it, which small modules have for a while
    /// only: it takes as much memory as their bytes.
    pub(crate) fn check(&self) -> Result<Structure, CodegenError> {
        let structure = Structure::check(&self.bytes).map_err(|cause| self.malformed(&cause))?;
        let _ = self.names_structs.set(structure.names_structs);
        Ok(structure)
    }

    fn malformed(&self, cause: &Malformed) -> CodegenError {
        if let Ok(count @ 2..) = uruk_bitcode::modules(&self.bytes).map(|all| all.len()) {
            let module = self.name.to_string();
            return CodegenError::SeveralModules { module, count };
        }
        CodegenError::Malformed {
            module: self.name.to_string(),
            bit: cause.bit,
            block: cause.block,
            message: cause.what.to_string(),
        }
    }

    /// True if structs have names in it, as far as it can be read.
    pub(crate) fn names_structs(&self) -> bool {
        let checked = || Structure::check(&self.bytes);
        let names = || checked().is_ok_and(|structure| structure.names_structs);
        *self.names_structs.get_or_init(names)
    }

    /// True for a clone.
    pub(crate) fn is(&self, other: &Bitcode) -> bool {
        Arc::ptr_eq(&self.names_structs, &other.names_structs)
    }

    /// Parses IR text and keeps its bitcode.
    ///
    /// # Errors
    /// [`CodegenError::Syntax`] with line and column.
    pub fn from_ir_text(name: &str, text: &str) -> Result<Bitcode, CodegenError> {
        let context = LlvmContext::new()?;
        let module = parse(&context, name, text)?;
        Ok(Bitcode::write(name, &module))
    }

    /// The bitcode of a module all of which was read.
    pub(crate) fn write(name: &str, module: &OwnedModule) -> Bitcode {
        // SAFETY: a live module; the buffer is ours.
        let out = unsafe { Buffer::from_raw(LLVMWriteBitcodeToMemoryBuffer(module.raw())) };
        Bitcode::new(name, out.bytes())
    }

    /// The input's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hash of the bytes.
    pub(crate) fn digest(&self) -> &[u8; 32] {
        self.digest
            .get_or_init(|| *blake3::hash(&self.bytes).as_bytes())
    }

    /// Identifies a function of this bitcode across runs: equal bytes at the same place give the
    /// same fingerprint.
    pub fn fingerprint(&self, function: SymbolId) -> [u8; 16] {
        let mut hash = blake3::Hasher::new();
        hash.update(self.digest());
        hash.update(&function.0.to_le_bytes());
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        fingerprint
    }

    /// The symbols that its bodies mention; `None` if they cannot be determined.
    pub(crate) fn mentions(&self) -> Option<&Mentions> {
        let read = || Mentions::read(&self.bytes);
        self.mentions.get_or_init(read).as_ref()
    }

    /// The functions that are mentioned once; `None` if a compile at `tier` is not worth a walk over all
    /// bodies, and none was done.
    pub(crate) fn sole_calls(&self, tier: Tier) -> Option<&SoleCalls> {
        let worth = tier == Tier::Guided || self.bytes.len() <= MOST_WALKED;
        match worth {
            true => Some(self.sole.get_or_init(|| SoleCalls::read(&self.bytes))),
            false => self.sole.get(),
        }
    }

    /// Bytes allocated for data about the bitcode, without its own bytes.
    pub(crate) fn bytes_beside(&self) -> usize {
        let mentions = self.mentions.get().and_then(Option::as_ref);
        of_block(self.name.len() + 16)
            + of_arc::<OnceLock<[u8; 32]>>()
            + of_arc::<OnceLock<bool>>()
            + of_arc::<OnceLock<Option<Mentions>>>()
            + of_arc::<OnceLock<SoleCalls>>()
            + mentions.map_or(0, Mentions::bytes)
            + self.sole.get().map_or(0, SoleCalls::bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads IR text.
///
/// # Errors
/// [`CodegenError::Syntax`] with line and column.
pub(crate) fn parse(
    context: &LlvmContext,
    name: &str,
    text: &str,
) -> Result<OwnedModule, CodegenError> {
    let c_name = c_name(name);
    // LLVM's IR lexer needs the terminating zero that `MemoryBuffer` promises.
    let mut terminated = Vec::with_capacity(text.len() + 1);
    terminated.extend_from_slice(text.as_bytes());
    terminated.push(0);
    // SAFETY: `terminated` outlives the parse, which does not keep the buffer.
    let buffer = unsafe { Buffer::view(&terminated[..text.len()], &c_name) };
    let mut module: LLVMModuleRef = std::ptr::null_mut();
    let mut message = std::ptr::null_mut();
    // SAFETY: live context and buffer; the buffer stays ours.
    let failed =
        unsafe { LLVMParseIRInContext2(context.raw(), buffer.raw(), &mut module, &mut message) };
    if failed != 0 {
        // SAFETY: on failure the message is ours.
        let told = unsafe { take_message(message) };
        let message = match told.strip_prefix(&format!("{name}:")) {
            Some(rest) => rest.trim_end().to_owned(),
            None => format!(" {}", told.trim_end()),
        };
        return Err(CodegenError::Syntax {
            module: name.to_owned(),
            message,
        });
    }
    // SAFETY: a fresh module, ours.
    Ok(unsafe { OwnedModule::new(module) })
}
