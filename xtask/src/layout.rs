//! What is installed where: the command, the libraries for C, their headers, what `pkg-config`
//! reads, the binding for Python, licences.
//!
//! Plain calls of `std`, as a test of the C interface compiles this file, too, and installs what
//! it was built with.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What was built.
pub struct Built {
    /// `liburuk_c.so`.
    pub shared: PathBuf,
    /// `liburuk_c.a`.
    pub archive: PathBuf,
    /// The library of LLVM that was linked for it, if one was: it is looked for in `uruk` beside
    /// the shared library, and in `../lib/uruk` beside the command.
    pub llvm: Option<PathBuf>,
    /// The command, if it is to be installed, too.
    pub command: Option<Command>,
}

impl Built {
    /// The library of LLVM that `program`, built in `folder`, opens if it is there: its name is in
    /// the program, and it lies where it was linked.
    pub fn llvm_of(program: &Path, folder: &Path) -> Option<PathBuf> {
        let text = fs::read(program).ok()?;
        let packages = fs::read_dir(folder.join("build")).ok()?;
        let packages = packages.filter_map(|entry| Some(entry.ok()?.path().join("out")));
        let files = packages.filter_map(|out| fs::read_dir(out).ok()).flatten();
        let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
        files.find(|file| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                let is_library = name.starts_with("libLLVM-uruk-") && name.ends_with(".so");
                let bytes = name.as_bytes();
                is_library && text.windows(bytes.len()).any(|it| it == bytes)
            })
        })
    }
}

/// The command, and what it has by itself.
pub struct Command {
    /// `uruk`.
    pub program: PathBuf,
    /// `liburuk_preload.so`, which `uruk live` looks for in `../lib/uruk`.
    pub preload: PathBuf,
}

/// The version that the shared library is asked for by: while the major version is 0, a new minor
/// version may break what was compiled before.
pub fn abi(version: &str) -> String {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    match major {
        "0" => format!("0.{minor}"),
        major => major.to_owned(),
    }
}

/// What `pkg-config` reads; it goes where the folders go.
fn description(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: uruk\n\
         Description: A lazy, tiered JIT runtime for LLVM IR\n\
         Version: {version}\n\
         Libs: -L${{libdir}} -luruk\n\
         Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc\n\
         Cflags: -I${{includedir}}\n"
    )
}

/// Puts a file in place of what is there, at one instant: a program may be using that.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}

fn link(target: &str, at: &Path) -> io::Result<()> {
    let new = at.with_extension("new");
    let _ = fs::remove_file(&new);
    symlink(target, &new)?;
    fs::rename(&new, at)
}

/// Installs into a prefix; every file that was written.
///
/// # Errors
/// What the system says of a file.
pub fn install(
    root: &Path,
    built: &Built,
    prefix: &Path,
    version: &str,
) -> io::Result<Vec<PathBuf>> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    let mut written = Vec::new();
    let mut copy = |from: &Path, to: &str| -> io::Result<()> {
        let to = prefix.join(to);
        let folder = to.parent().unwrap_or(prefix);
        fs::create_dir_all(folder).map_err(|error| named(folder, error))?;
        put(from, &to).map_err(|error| named(from, error))?;
        written.push(to);
        Ok(())
    };
    let real = format!("liburuk.so.{version}");
    copy(&built.shared, &format!("lib/{real}"))?;
    copy(&built.archive, "lib/liburuk.a")?;
    for header in ["uruk.h", "uruk-llvm.h"] {
        copy(
            &root.join("runtime/c/include").join(header),
            &format!("include/{header}"),
        )?;
    }
    copy(&root.join("runtime/c/python/uruk.py"), "share/uruk/uruk.py")?;
    for text in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        copy(&root.join(text), &format!("share/doc/uruk/{text}"))?;
    }
    if let Some(llvm) = &built.llvm
        && let Some(name) = llvm.file_name().and_then(|name| name.to_str())
    {
        copy(llvm, &format!("lib/uruk/{name}"))?;
    }
    if let Some(command) = &built.command {
        copy(&command.program, "bin/uruk")?;
        copy(&command.preload, "lib/uruk/liburuk_preload.so")?;
    }
    for name in [
        format!("liburuk.so.{}", abi(version)),
        String::from("liburuk.so"),
    ] {
        let at = prefix.join("lib").join(name);
        if at.file_name() != Some(real.as_ref()) {
            link(&real, &at).map_err(|error| named(&at, error))?;
            written.push(at);
        }
    }
    let config = prefix.join("lib/pkgconfig");
    fs::create_dir_all(&config).map_err(|error| named(&config, error))?;
    let file = config.join("uruk.pc");
    fs::write(&file, description(version)).map_err(|error| named(&file, error))?;
    written.push(file);
    Ok(written)
}
