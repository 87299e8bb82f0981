//! ORC's side: a C++ program of ours, compiled when it is needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};
use uruk_guests::toolchain;

use crate::bench::{Bench, progress};

/// The source files of the program.
const SOURCES: [&str; 4] = ["driver.cpp", "meter.h", "symbols.h", "code.h"];

/// The path of the program; compiles it if its sources are younger.
///
/// # Errors
/// There is no `llvm-config` of the right release, or no C++ compiler that takes its headers.
pub fn build(bench: &Bench) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("orc");
    let program = bench.directory.join("orc-driver");
    let age = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified());
    let youngest = SOURCES
        .iter()
        .filter_map(|name| age(&folder.join(name)).ok());
    let youngest = youngest.max().unwrap_or(SystemTime::UNIX_EPOCH);
    if age(&program).is_ok_and(|built| built > youngest) {
        return Ok(program);
    }
    progress("compiling the driver of ORC");
    compile(bench, &folder, &program).context(
        "building the driver of ORC (benches/orc): it takes LLVM 22's C++ headers, its \
         llvm-config and a C++ compiler",
    )?;
    Ok(program)
}

fn compile(bench: &Bench, folder: &Path, program: &Path) -> Result<()> {
    let config = config(bench).context("there is no llvm-config beside the clang that is used")?;
    let ask = |questions: &[&str]| -> Result<Vec<OsString>> {
        let output = toolchain::run(Command::new(&config).args(questions))?;
        let text = String::from_utf8(output).context("what llvm-config says")?;
        Ok(text.split_whitespace().map(OsString::from).collect())
    };
    let directory = ask(&["--libdir"])?.pop().unwrap_or_default();
    let mut search = OsString::from("-Wl,-rpath,");
    search.push(directory);
    let mut command = Command::new(&bench.tools.clangxx);
    command
        .args(ask(&["--cxxflags"])?)
        .args(["-O2", "-pthread"])
        .arg(folder.join("driver.cpp"))
        .arg("-o")
        .arg(program)
        .args(ask(&["--ldflags", "--libs"])?)
        .arg(search);
    toolchain::run(&mut command)?;
    Ok(())
}

/// That of the LLVM the library is built with, if it is told; else the one beside the other tools.
fn config(bench: &Bench) -> Option<PathBuf> {
    let given = std::env::var_os("LLVM_SYS_221_PREFIX");
    let given = given.map(|prefix| PathBuf::from(prefix).join("bin/llvm-config"));
    let resolved = std::fs::canonicalize(&bench.tools.clangxx).ok();
    let beside = resolved.and_then(|clang| Some(clang.parent()?.join("llvm-config")));
    let known = given.into_iter().chain(beside);
    let mut all = known.chain(toolchain::find("llvm-config"));
    all.find(|path| path.is_file())
}
