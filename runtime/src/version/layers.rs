//! Layers: the embedder's changes to code between input and link, and its cache.
//!
//! | layer | sees | when |
//! |---|---|---|
//! | [`Transform`] | a function's IR, in a module of its own | after its extraction, before it is optimized, at each tier |
//! | [`ObjectTransform`] | an object's bytes | before it is linked: what was compiled, and what was added |
//! | [`LinkPass`] | an object's symbols and references | before it gets its place |
//! | [`ObjectCache`] | compiled functions as bytes, by what they were made of | in place of a compile, and after one |
//!
//! | [`Partition`] | the names of a module and of a function of it | after the function's first compile |
//!
//! All run on threads that compile or link, where LLVM may be in use and signals are blocked. They
//! do not call JIT'd code, wait for a compile, or use the session.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use uruk_codegen::{Bitcode, CodegenError, Key, Look};
pub use uruk_codegen::{IrUnit, Transform};
pub use uruk_link::Graph as LinkGraph;

use crate::error::Error;
use crate::version::partition::Partition;

/// Changes an object, given its name and bytes, or returns an error message.
pub type ObjectTransform = Arc<dyn Fn(&str, Vec<u8>) -> Result<Vec<u8>, String> + Send + Sync>;

/// Inspects or changes a graph before it is linked, or returns an error message.
pub type LinkPass = Arc<dyn Fn(&mut LinkGraph<'_>) -> Result<(), String> + Send + Sync>;

/// Keeps compiled functions between runs. An entry that differs from the one stored under its key
/// is ignored as absent; but a process that can write entries can have any code run.
///
/// Functions at tiers 1 and 2 are kept, if they depend on nothing but their module.
pub trait ObjectCache: Send + Sync {
    /// The entry kept under `key`.
    fn get(&self, key: &[u8; 32]) -> Option<Vec<u8>>;

    /// Keeps `entry` under `key`; the cache may refuse.
    fn put(&self, key: &[u8; 32], entry: &[u8]);
}

/// A cache in a folder, with a file for each function. Processes may share it.
#[derive(Debug, Clone)]
pub struct DirectoryCache(PathBuf);

impl DirectoryCache {
    /// A cache in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(folder: impl Into<PathBuf>) -> Result<DirectoryCache, Error> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|cause| Error::File {
            file: folder.display().to_string(),
            cause: Arc::new(cause),
        })?;
        // The program may change its folder.
        Ok(DirectoryCache(
            std::path::absolute(&folder).unwrap_or(folder),
        ))
    }

    fn file(&self, key: &[u8; 32]) -> PathBuf {
        use std::fmt::Write;
        let mut name = String::with_capacity(64);
        for byte in key {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        self.0.join(name)
    }
}

impl ObjectCache for DirectoryCache {
    fn get(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        uruk_files::read(self.file(key)).ok()
    }

    fn put(&self, key: &[u8; 32], entry: &[u8]) {
        // A failed write only leaves the cache without this entry. Other processes see the whole
        // entry.
        let _ = uruk_files::write(self.file(key), entry);
    }
}

impl Layers {
    /// A module with fuel counters, if the session counts fuel.
    pub(crate) fn looking(&self, bitcode: Bitcode) -> Result<Bitcode, CodegenError> {
        self.look
            .map_or(Ok(bitcode.clone()), |look| bitcode.looking(look))
    }
}

/// The layers of a session.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    /// The fuel counters that are added to code.
    pub(crate) look: Option<Look>,
    pub(crate) partition: Partition,
    pub(crate) ir: Option<Transform>,
    pub(crate) objects: Vec<ObjectTransform>,
    pub(crate) links: Vec<LinkPass>,
    pub(crate) cache: Option<Arc<dyn ObjectCache>>,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Layers")
    }
}

fn failed(layer: &'static str, file: &str, message: String) -> Error {
    Error::Layer {
        layer,
        file: file.to_owned(),
        message,
    }
}

impl Layers {
    /// Applies the object transforms before an object is linked.
    pub(crate) fn object(&self, name: &str, object: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut changes = self.objects.iter();
        changes.try_fold(object, |object, change| {
            change(name, object).map_err(|message| failed("object transform", name, message))
        })
    }

    /// Whether objects are changed.
    pub(crate) fn changes_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether layers may change code after its compile.
    pub(super) fn changes_code(&self) -> bool {
        self.changes_objects() || !self.links.is_empty()
    }

    /// Runs the link passes on a graph.
    pub(crate) fn link(&self, name: &str, graph: &mut LinkGraph<'_>) -> Result<(), Error> {
        let mut passes = self.links.iter();
        passes
            .try_for_each(|pass| pass(graph).map_err(|message| failed("link pass", name, message)))
    }

    /// The cached result of a compile.
    pub(super) fn cached(&self, key: &Key) -> Option<uruk_codegen::Compiled> {
        uruk_codegen::Compiled::from_bytes(&self.cache.as_ref()?.get(key)?)
    }

    /// Puts a result into the cache.
    pub(crate) fn keep(&self, key: &Key, compiled: &uruk_codegen::Compiled) {
        if let (Some(cache), Some(bytes)) = (&self.cache, compiled.to_bytes()) {
            cache.put(key, &bytes);
        }
    }
}
