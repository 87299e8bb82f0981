//! Compiled artifacts, kept under a hash of everything that went into them.
//!
//! Invariants:
//! - an artifact's file name contains the hash of its inputs, so a file that
//!   exists is up to date and is never rewritten;
//! - a file appears under its final name only when it is complete (written
//!   under a private name, then renamed), so processes may share a cache.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::GuestError;

/// A directory of artifacts.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// Collects what an artifact depends on.
#[derive(Clone, Debug, Default)]
pub struct Key {
    hasher: DefaultHasher,
}

impl Key {
    /// A key that so far depends on nothing but the given words.
    pub fn new<T: Hash>(words: T) -> Self {
        let mut key = Self::default();
        key.add(words);
        key
    }

    /// Adds words: flags, versions, names.
    pub fn add<T: Hash>(&mut self, words: T) {
        words.hash(&mut self.hasher);
    }

    /// Adds the contents of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add_file(&mut self, path: &Path) -> Result<(), GuestError> {
        let bytes = fs::read(path).map_err(GuestError::file("read", path))?;
        bytes.hash(&mut self.hasher);
        Ok(())
    }

    /// Adds the names and contents of all files below a directory.
    ///
    /// # Errors
    /// The directory or one of its files cannot be read.
    pub fn add_directory(&mut self, directory: &Path) -> Result<(), GuestError> {
        let entries = fs::read_dir(directory).map_err(GuestError::file("read", directory))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            self.add(path.file_name());
            if path.is_dir() {
                self.add_directory(&path)?;
            } else {
                self.add_file(&path)?;
            }
        }
        Ok(())
    }

    fn digits(&self) -> String {
        format!("{:016x}", self.hasher.finish())
    }
}

impl Cache {
    /// The cache in `guests` below cargo's target directory: `CARGO_TARGET_DIR`
    /// where set, else the workspace's own.
    pub fn in_target() -> Self {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
            PathBuf::from,
        );
        Self::at(target.join("guests"))
    }

    /// A cache in a directory of one's own.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where the artifacts are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of an artifact, made by `produce` if it does not exist yet.
    /// `produce` gets the path of the file (or directory) it must make; `name` and `extension` only
    /// make the file name readable.
    ///
    /// # Errors
    /// Those of `produce`, and of creating or renaming files.
    pub fn artifact(
        &self,
        name: &str,
        extension: &str,
        key: &Key,
        produce: impl FnOnce(&Path) -> Result<(), GuestError>,
    ) -> Result<PathBuf, GuestError> {
        let suffix = if extension.is_empty() { "" } else { "." };
        let file = format!("{name}-{}{suffix}{extension}", key.digits());
        let path = self.directory.join(file);
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(&self.directory).map_err(GuestError::file("create", &self.directory))?;
        // The private name keeps the extension: compilers go by it.
        let private = format!("{name}-{}{suffix}{extension}", private_suffix());
        let private = self.directory.join(private);
        let result = produce(&private).and_then(|()| publish(&private, &path));
        // Remains of a failed attempt, or of one that another process overtook, must not pile up. A
        // failure to remove them is no reason to hide the result.
        let _ = if private.is_dir() {
            fs::remove_dir_all(&private)
        } else {
            fs::remove_file(&private)
        };
        result.map(|()| path)
    }
}

/// Gives a finished artifact its name. If another process was quicker with a directory, its
/// directory serves as well.
fn publish(private: &Path, path: &Path) -> Result<(), GuestError> {
    match fs::rename(private, path) {
        Err(_) if path.is_dir() => Ok(()),
        result => result.map_err(GuestError::file("create", path)),
    }
}

/// Differs between processes and between calls.
fn private_suffix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("partial-{}-{count}", process::id())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Cache, Key};
    use crate::error::GuestError;

    #[test]
    fn an_artifact_is_made_once_and_a_failure_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("uruk-cache-{}", std::process::id()));
        let cache = Cache::at(directory.clone());
        let write =
            |path: &std::path::Path| fs::write(path, b"x").map_err(GuestError::file("write", path));
        let first = cache.artifact("a", "bc", &Key::new("k"), write);
        let second = cache.artifact("a", "bc", &Key::new("k"), |_| panic!("made twice"));
        assert_eq!(first.expect("made"), second.expect("found"));
        let failed = cache.artifact("b", "bc", &Key::new("k"), |path| {
            write(path)?;
            Err(GuestError::Metadata {
                what: "a failure".to_owned(),
            })
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(&directory).expect("directory").count(), 1);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
