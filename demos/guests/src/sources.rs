//! Where cargo unpacked the crates that carry third-party C sources.
//!
//! The crates are pinned by a manifest and lock file of their own (directory
//! `sources`), outside the workspace: they are fetched, never compiled.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::GuestError;
use crate::toolchain;

/// The directories of the pinned crates, by crate name.
#[derive(Clone, Debug)]
pub struct Sources {
    manifest: PathBuf,
    directories: HashMap<String, PathBuf>,
}

impl Sources {
    /// Fetches what is missing and asks cargo where everything is.
    ///
    /// # Errors
    /// Cargo fails (no network and nothing cached), or its answer is malformed.
    pub fn locate() -> Result<Self, GuestError> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("sources/Cargo.toml");
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version=1", "--locked"]);
        // Without a platform, cargo would fetch what only Windows needs.
        command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
        command.arg("--manifest-path").arg(&manifest);
        let text = toolchain::run(&mut command)?;
        let directories = parse(&text)?;
        Ok(Self {
            manifest,
            directories,
        })
    }

    /// The root directory of one crate.
    ///
    /// # Errors
    /// The crate is not among the pinned ones.
    pub fn directory(&self, name: &'static str) -> Result<&Path, GuestError> {
        let directory = self.directories.get(name);
        directory
            .map(PathBuf::as_path)
            .ok_or_else(|| GuestError::CrateMissing {
                name,
                manifest: self.manifest.clone(),
            })
    }
}

/// The directory of every package in the output of `cargo metadata`.
fn parse(text: &[u8]) -> Result<HashMap<String, PathBuf>, GuestError> {
    let malformed = |what: String| GuestError::Metadata { what };
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
    let packages = value["packages"]
        .as_array()
        .ok_or_else(|| malformed("no packages".to_owned()))?;
    let mut directories = HashMap::new();
    for package in packages {
        let (Some(name), Some(manifest)) =
            (package["name"].as_str(), package["manifest_path"].as_str())
        else {
            return Err(malformed(format!(
                "package without a name or manifest: {package}"
            )));
        };
        if let Some(directory) = Path::new(manifest).parent() {
            directories.insert(name.to_owned(), directory.to_owned());
        }
    }
    Ok(directories)
}

/// The files of a directory with one extension, sorted; `skip` are file names.
///
/// # Errors
/// The directory cannot be read, or has no such file.
pub fn files(directory: &Path, extension: &str, skip: &[&str]) -> Result<Vec<PathBuf>, GuestError> {
    let entries = std::fs::read_dir(directory).map_err(GuestError::file("read", directory))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter(|path| !skip.iter().any(|name| path.ends_with(name)))
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(GuestError::SourceMissing {
            what: format!(".{extension} files"),
            directory: directory.to_owned(),
        });
    }
    Ok(paths)
}

/// The subdirectory whose name begins with `prefix`.
///
/// # Errors
/// There is none.
pub fn subdirectory(directory: &Path, prefix: &str) -> Result<PathBuf, GuestError> {
    let entries = std::fs::read_dir(directory).map_err(GuestError::file("read", directory))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.is_dir() && name.starts_with(prefix)
        })
        .collect();
    paths.sort();
    paths.pop().ok_or_else(|| GuestError::SourceMissing {
        what: format!("directory {prefix}*"),
        directory: directory.to_owned(),
    })
}
