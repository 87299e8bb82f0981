//! Layers: what an embedder does to code on its way, and keeps of it.
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
//! All run on threads that compile or link, where LLVM may be in use and signals are blocked: they
//! do not call JIT'd code, wait for a compile, or use the session.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use uruk_codegen::{Bitcode, CodegenError, Key, Look};
pub use uruk_codegen::{IrUnit, Transform};
pub use uruk_link::Graph as LinkGraph;

use crate::api::builder::JitBuilder;
use crate::api::error::Error;

/// Changes an object, given its name and bytes, or says what is wrong.
pub type ObjectTransform = Arc<dyn Fn(&str, Vec<u8>) -> Result<Vec<u8>, String> + Send + Sync>;

/// Looks at what is about to be linked, changes it, or says what is wrong with it.
pub type LinkPass = Arc<dyn Fn(&mut LinkGraph<'_>) -> Result<(), String> + Send + Sync>;

/// Keeps compiled functions over runs. An entry that is not what was put under its key is taken
/// for none; but whoever can write entries can have any code run.
///
/// Functions at tiers 1 and 2 are kept, where nothing but their module went into them.
pub trait ObjectCache: Send + Sync {
    /// What was kept under `key`.
    fn get(&self, key: &[u8; 32]) -> Option<Vec<u8>>;

    /// Keeps `entry` under `key`, or not.
    fn put(&self, key: &[u8; 32], entry: &[u8]);
}

/// A cache in a folder, with a file for each function. Processes may share it.
#[derive(Debug, Clone)]
pub struct DirectoryCache(PathBuf);

impl DirectoryCache {
    /// A cache in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
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
        // A cache that cannot be written to is one that has less. Others see the whole entry.
        let _ = uruk_files::write(self.file(key), entry);
    }
}

/// Given a module's name and that of a function of it, the functions of the module that belong to
/// it.
pub type ChoosePart = Arc<dyn Fn(&str, &str) -> Vec<String> + Send + Sync>;

/// Which functions of a module are compiled together, when one of them is called for the first
/// time. Each stays a version of its own: it moves up, is replaced and freed alone.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partition {
    /// Each by its own first call.
    #[default]
    Function,
    /// All functions of a module.
    Module,
    /// Those that the embedder names.
    Own(ChoosePart),
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Partition::Function => "Function",
            Partition::Module => "Module",
            Partition::Own(_) => "Own",
        })
    }
}

impl Layers {
    /// A module with what its code looks at, if it does.
    pub(crate) fn looking(&self, bitcode: Bitcode) -> Result<Bitcode, CodegenError> {
        self.look
            .map_or(Ok(bitcode.clone()), |look| bitcode.looking(look))
    }
}

/// The layers of a session.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    /// What code looks at.
    pub(crate) look: Option<Look>,
    pub(crate) partition: Partition,
    pub(crate) ir: Option<Transform>,
    objects: Vec<ObjectTransform>,
    links: Vec<LinkPass>,
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
    /// An object as it is to be linked.
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

    /// Whether code may be other than what was compiled.
    pub(crate) fn changes_code(&self) -> bool {
        self.changes_objects() || !self.links.is_empty()
    }

    /// Has passes see a graph.
    pub(crate) fn link(&self, name: &str, graph: &mut LinkGraph<'_>) -> Result<(), Error> {
        let mut passes = self.links.iter();
        passes
            .try_for_each(|pass| pass(graph).map_err(|message| failed("link pass", name, message)))
    }

    /// What is kept under a key.
    pub(crate) fn cached(&self, key: &Key) -> Option<uruk_codegen::Compiled> {
        uruk_codegen::Compiled::from_bytes(&self.cache.as_ref()?.get(key)?)
    }

    /// Keeps a result.
    pub(crate) fn keep(&self, key: &Key, compiled: &uruk_codegen::Compiled) {
        if let (Some(cache), Some(bytes)) = (&self.cache, compiled.to_bytes()) {
            cache.put(key, &bytes);
        }
    }
}

impl JitBuilder {
    /// Changes the IR of each function before it is optimized ([layers](crate::Transform)). One.
    #[must_use]
    pub fn transform_ir(mut self, transform: Transform) -> JitBuilder {
        self.layers.ir = Some(transform);
        self
    }

    /// Changes each object before it is linked; after those that were given before.
    #[must_use]
    pub fn transform_objects(mut self, transform: ObjectTransform) -> JitBuilder {
        self.layers.objects.push(transform);
        self
    }

    /// Has a pass see each object that is linked; after those that were given before.
    #[must_use]
    pub fn link_pass(mut self, pass: LinkPass) -> JitBuilder {
        self.layers.links.push(pass);
        self
    }

    /// Which functions are compiled together. Who calls the first does not wait for the others.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> JitBuilder {
        self.layers.partition = partition;
        self
    }

    /// Keeps compiled functions over runs.
    #[must_use]
    pub fn object_cache(mut self, cache: Arc<dyn ObjectCache>) -> JitBuilder {
        self.layers.cache = Some(cache);
        self
    }
}
