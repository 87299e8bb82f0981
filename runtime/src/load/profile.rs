//! The runtime of profiles (`-fprofile-instr-generate`, `-fcoverage-mapping`), which clang links
//! into programs that were compiled with these options.

use std::path::{Path, PathBuf};

use uruk_link::Object;

use crate::error::Error;
use crate::load::archive::Archives;
use crate::load::image::Image;
use crate::load::source::InputSource;

/// The name that clang makes the linker look up (`-u`).
const RUNTIME: &str = "__llvm_profile_runtime";

/// The section of counters, and the prefix of their names.
const SECTION: &str = "__llvm_prf_cnts";
const COUNTERS: &str = "__profc_";

/// The version of LLVM whose runtime is searched.
const MAJOR: &str = "22";

/// Whether an image has counters.
///
/// # Errors
/// An object that cannot be read.
pub(super) fn is_counted(image: &Image) -> Result<bool, Error> {
    for (_, module) in &image.modules {
        let symbols = &module.readers.summary().symbols;
        let counter = |name: &str| name.starts_with(COUNTERS);
        if symbols
            .iter()
            .any(|info| counter(&info.name) && info.linkage.is_definition())
        {
            return Ok(true);
        }
    }
    for (name, bytes) in &image.objects {
        if Object::parse(name, bytes)?.has_section(SECTION) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The input that a program with counters needs besides its files, as with clang: the member of an
/// archive that writes its profile, or else the archive.
pub(super) fn add_runtime(
    archives: &mut Archives,
    image: &Image,
) -> Result<Vec<InputSource>, Error> {
    archives.mention(RUNTIME.to_owned());
    let members = archives.next(image)?;
    match archive() {
        Some(file) if members.is_empty() => Ok(vec![InputSource::read(&file)?]),
        _ => Ok(members),
    }
}

/// The archive of the runtime, as installed by packages of LLVM.
fn archive() -> Option<PathBuf> {
    let roots = [
        format!("/usr/lib/llvm-{MAJOR}/lib/clang/{MAJOR}/lib"),
        format!("/usr/lib/clang/{MAJOR}/lib"),
        format!("/usr/lib64/clang/{MAJOR}/lib"),
    ];
    let files = [
        "linux/libclang_rt.profile-x86_64.a",
        "x86_64-pc-linux-gnu/libclang_rt.profile.a",
        "x86_64-unknown-linux-gnu/libclang_rt.profile.a",
        "x86_64-redhat-linux-gnu/libclang_rt.profile.a",
    ];
    let paths = roots
        .iter()
        .flat_map(|root| files.map(|file| Path::new(root).join(file)));
    paths.into_iter().find(|path| path.exists())
}
