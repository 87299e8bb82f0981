//! The tools that compile guests: LLVM 22's clang, llvm-link and lli, and
//! rustc.
//!
//! LLVM's tools are looked for under the names distributions give them:
//! `clang-22` on the path, then `clang` in `/usr/lib/llvm-22/bin` (Debian),
//! `/usr/lib64/llvm22/bin` (Fedora), `/usr/lib/llvm22/bin` (Alpine, Arch), and
//! last plain `clang` on the path. `URUK_LLVM_BIN` names another directory and
//! goes first.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::GuestError;

/// The LLVM release whose bitcode the runtime reads.
pub const LLVM_MAJOR: u32 = 22;

/// Directories in which distributions keep LLVM's tools under plain names.
const TOOL_DIRECTORIES: [&str; 3] = [
    "/usr/lib/llvm-22/bin",
    "/usr/lib64/llvm22/bin",
    "/usr/lib/llvm22/bin",
];

/// Paths of the tools that were found.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The C compiler.
    pub clang: PathBuf,
    /// The C++ compiler.
    pub clangxx: PathBuf,
    /// Joins bitcode files.
    pub llvm_link: PathBuf,
    /// LLVM's own runner, the peer in comparisons; absent in some packages.
    pub lli: Option<PathBuf>,
    /// The Rust compiler.
    pub rustc: PathBuf,
    /// The versions that the compilers report: part of every cache key.
    pub identity: String,
}

impl Toolchain {
    /// Finds every tool.
    ///
    /// # Errors
    /// [`GuestError::ToolMissing`] names the first tool that is not there,
    /// [`GuestError::WrongVersion`] a clang of another LLVM.
    pub fn find() -> Result<Self, GuestError> {
        let clang = require("clang")?;
        let clang_version = version(&clang)?;
        if !clang_version.contains(&format!("version {LLVM_MAJOR}.")) {
            return Err(GuestError::WrongVersion {
                tool: clang,
                wanted: LLVM_MAJOR,
                found: clang_version.lines().next().unwrap_or_default().to_owned(),
            });
        }
        let rustc = env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
        let identity = format!("{clang_version}\n{}", version(&rustc)?);
        Ok(Self {
            clang,
            clangxx: require("clang++")?,
            llvm_link: require("llvm-link")?,
            lli: find("lli"),
            rustc,
            identity,
        })
    }
}

/// Runs a command to its end and gives what it printed on stdout.
///
/// # Errors
/// The command cannot be started, or fails; its stderr is in the error.
pub fn run(command: &mut Command) -> Result<Vec<u8>, GuestError> {
    let text = words(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| GuestError::Spawn {
            command: text.clone(),
            source,
        })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(GuestError::Command {
        command: text,
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Finds one of LLVM's tools by its plain name (`lli`, `llvm-mc`, ...).
pub fn find(tool: &str) -> Option<PathBuf> {
    candidates(tool).into_iter().find(|path| path.is_file())
}

fn require(tool: &'static str) -> Result<PathBuf, GuestError> {
    find(tool).ok_or_else(|| GuestError::ToolMissing {
        tool,
        tried: format!(
            "{tool}-{LLVM_MAJOR} and {tool} on the path and in {}",
            TOOL_DIRECTORIES.join(", ")
        ),
    })
}

fn candidates(tool: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| -> Vec<PathBuf> {
        env::split_paths(&path).map(|dir| dir.join(name)).collect()
    };
    let mut all = Vec::new();
    if let Some(dir) = env::var_os("URUK_LLVM_BIN") {
        all.push(Path::new(&dir).join(tool));
    }
    all.extend(on_path(&format!("{tool}-{LLVM_MAJOR}")));
    all.extend(TOOL_DIRECTORIES.map(|dir| Path::new(dir).join(tool)));
    all.extend(on_path(tool));
    all
}

fn version(tool: &Path) -> Result<String, GuestError> {
    let text = run(Command::new(tool).arg("--version"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn words(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        text.push(' ');
        text.push_str(&word.to_string_lossy());
    }
    text
}
