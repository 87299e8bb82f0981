//! Compiles C for tests, with the clang of the LLVM that the library uses.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The output of clang for `source` with `flags` (`-c` is given). `name` is the file's, with the
/// extension of its language.
pub fn compile(folder: &str, name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Tests of the same folder may run in other processes at the same time.
    let own = format!("{}-{number}-{name}", std::process::id());
    let input = folder.join(&own);
    let output = folder.join(own + ".o");
    std::fs::write(&input, source).expect("written");
    let beside = Path::new(option_env!("LLVM_SYS_221_PREFIX").unwrap_or("/usr/lib/llvm-22"));
    let clang = ["clang-22", "clang"].map(|name| beside.join("bin").join(name));
    let clang = clang.into_iter().find(|clang| clang.exists());
    let status = Command::new(clang.unwrap_or_else(|| "clang-22".into()))
        .arg("-c")
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .status()
        .expect("clang runs");
    assert!(status.success(), "{source}");
    let object = std::fs::read(&output).expect("written");
    let _ = [input, output].map(std::fs::remove_file);
    object
}
