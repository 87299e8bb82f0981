//! Reports code that exists only in memory to external tools: perf and debuggers.
//!
//! | output | for | contents |
//! |---|---|---|
//! | [`PerfMap`] | `perf report`, `perf top` | names of address ranges |
//! | [`JitDump`] | `perf inject --jit` | code bytes, lines and times, so that addresses may be reused |
//! | [`gdb`] | gdb, lldb | symbols, unwind tables and debug information, in [`symfile`]s |
//!
//! All outputs are off by default: each costs time for every function.
//!
//! # Invariants
//! - One write for one record: a program that is killed leaves whole records.
//! - Files are created, never opened, so that a file of another user with the same name (or a link
//!   of that name) is not written to; they have a limit.
//! - Names come from the caller; characters that a format cannot hold are replaced.
//! - Unsafe code is in `marker`, for the mapping that perf looks for, and in `gdb`, for the list
//!   that debuggers read.

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod gdb;
mod jitdump;
mod lines;
#[expect(unsafe_code, reason = "maps the page by which perf notices a dump")]
mod marker;
mod perf_map;
pub mod symfile;
mod task;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uruk_files::OwnFile;

pub use jitdump::{Code, JitDump, Line};
pub use lines::{Lines, Places};
pub use perf_map::{PERF_MAP_FOLDER, PerfMap};

/// Most bytes of one file.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// The error of an output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The file could not be created.
    #[error("cannot create {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("cannot write to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The page of a dump that perf must see could not be mapped executable.
    #[error("cannot map {} executable: perf would not find it", path.display())]
    Marker {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file has reached its limit.
    #[error("{} has reached {limit} bytes", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
}

/// A file of this process that grows up to a limit.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: OwnFile,
    len: u64,
}

impl Output {
    /// Creates the file; replaces an existing one.
    fn create(folder: &Path, name: &str) -> Result<Output, OutputError> {
        // The program may change its working folder before it forks.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let path = folder.join(name);
        // If the file cannot be removed, the creation fails, with a better error.
        let _ = std::fs::remove_file(&path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        match OwnFile::open_with(&path, &options) {
            Ok(file) => Ok(Output { path, file, len: 0 }),
            Err(source) => Err(OutputError::Create { path, source }),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let len = self.len + bytes.len() as u64;
        if len > MAX_FILE_BYTES {
            let path = self.path.clone();
            let limit = MAX_FILE_BYTES;
            return Err(OutputError::Full { path, limit });
        }
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.len = len;
                Ok(())
            }
            Err(source) => {
                let path = self.path.clone();
                Err(OutputError::Write { path, source })
            }
        }
    }
}
