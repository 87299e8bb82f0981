//! Finding an installed LLVM 22.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release the project is built against.
pub const MAJOR: &str = "22";

/// An LLVM with headers and library, and a clang beside it.
pub struct Llvm {
    /// The answer of `llvm-config --prefix`.
    pub prefix: PathBuf,
}

/// Names under which distributions install `llvm-config` of LLVM 22.
const CONFIG_NAMES: [&str; 5] = [
    "llvm-config-22",
    "/usr/lib/llvm-22/bin/llvm-config",
    "/usr/lib64/llvm22/bin/llvm-config",
    "/usr/lib/llvm22/bin/llvm-config",
    "llvm-config",
];

impl Llvm {
    /// The LLVM of `LLVM_SYS_221_PREFIX`, else the first installed one that is of
    /// the right release and has a clang.
    pub fn find() -> Option<Self> {
        let given = env::var_os("LLVM_SYS_221_PREFIX").map(PathBuf::from);
        let given = given.map(|prefix| prefix.join("bin/llvm-config"));
        let known = CONFIG_NAMES.iter().map(PathBuf::from);
        given
            .into_iter()
            .chain(known)
            .find_map(|config| Self::of(&config))
    }

    fn of(config: &Path) -> Option<Self> {
        if major(&ask(config, "--version")?) != MAJOR {
            return None;
        }
        let prefix = PathBuf::from(ask(config, "--prefix")?);
        // llvm-config may come without the headers it describes.
        let headers = PathBuf::from(ask(config, "--includedir")?);
        let complete = headers.join("llvm-c/Core.h").is_file() && has_clang(&prefix);
        complete.then_some(Self { prefix })
    }
}

fn has_clang(prefix: &Path) -> bool {
    let beside = prefix.join("bin/clang");
    let named = format!("clang-{MAJOR}");
    [beside.as_path(), Path::new(&named), Path::new("clang")]
        .iter()
        .any(|clang| ask(clang, "-dumpversion").is_some_and(|version| major(&version) == MAJOR))
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}

/// The output of a program that is run with one argument. `None` if the program is missing or
/// fails.
fn ask(program: &Path, question: &str) -> Option<String> {
    let output = Command::new(program).arg(question).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
