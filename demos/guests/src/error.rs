//! Errors between a source file and its bitcode.

use std::io;
use std::path::PathBuf;

/// A failure to find, compile or keep a guest program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A tool is not installed, or not under any of the names it usually has.
    #[error("{tool} was not found (tried {tried}); `cargo xtask demo` installs it")]
    ToolMissing {
        /// The tool that was looked for.
        tool: &'static str,
        /// The names and paths that were tried.
        tried: String,
    },
    /// A tool is there, but belongs to another LLVM.
    #[error("{} is not of LLVM {wanted}: {found}", tool.display())]
    WrongVersion {
        /// The tool.
        tool: PathBuf,
        /// The release it must belong to.
        wanted: u32,
        /// The version that the tool reports.
        found: String,
    },
    /// A command could not be started.
    #[error("cannot start `{command}`")]
    Spawn {
        /// The command line.
        command: String,
        /// Why the system refused.
        source: io::Error,
    },
    /// A command ran and failed.
    #[error("`{command}` failed ({status}):\n{stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status, as the system words it.
        status: String,
        /// Its standard error output.
        stderr: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read`, `write`, `create` or the like.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why the system refused.
        source: io::Error,
    },
    /// A crate that carries C sources is not in the pinned set.
    #[error("crate {name} is not among the packages of {}", manifest.display())]
    CrateMissing {
        /// The crate that was looked for.
        name: &'static str,
        /// The manifest that pins the crates.
        manifest: PathBuf,
    },
    /// A crate does not have the files it is known for.
    #[error("no {what} in {}", directory.display())]
    SourceMissing {
        /// A description of the missing part.
        what: String,
        /// Where.
        directory: PathBuf,
    },
    /// `cargo metadata` printed something unexpected.
    #[error("cargo metadata printed something unexpected: {what}")]
    Metadata {
        /// A description of the missing or malformed part.
        what: String,
    },
    /// A flavor's name could not be read.
    #[error("unknown flavor `{text}`: {expected}")]
    Flavor {
        /// The text that was given.
        text: String,
        /// The forms that are accepted.
        expected: &'static str,
    },
    /// Two distinct guests or runs were confused: no such name.
    #[error("no {kind} is called `{name}`; there are: {known}")]
    Unknown {
        /// `guest` or `run`.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names there are.
        known: String,
    },
}

impl GuestError {
    /// A closure for `map_err` that names what was done to which file.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}
