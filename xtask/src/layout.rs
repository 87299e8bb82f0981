//! The layout of an installation: the command, the C libraries with their headers, the files for
//! `pkg-config`, the Python binding and the licences.
//!
//! Plain calls of `std`, as a test of the C interface compiles this file, too, and installs what
//! it was built with.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The artifacts of the build.
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
    /// `liburuk_locals.so`, which `uruk cc` loads into compilers, from there, too.
    pub plugin: PathBuf,
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

/// The file for `pkg-config`; it goes where the folders go.
///
/// `--static` adds a folder that has the archive only. Compilers hand folders of `-L` to the linker
/// before what `-Wl` says, so that it is searched first.
fn description(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: uruk\n\
         Description: A lazy, tiered JIT runtime for LLVM IR\n\
         Version: {version}\n\
         Libs: -Wl,-L${{libdir}} -luruk\n\
         Libs.private: -L${{libdir}}/uruk/static {SYSTEM}\n\
         Cflags: -I${{includedir}}\n"
    )
}

/// Libraries of the system that the archive needs.
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// The package file for CMake: `find_package(uruk)` gives the targets `uruk::uruk` and `uruk::static`.
fn cmake_package(version: &str) -> String {
    let system = SYSTEM.replace("-l", "").replace(' ', ";");
    format!(
        "get_filename_component(_uruk_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/../../..\" ABSOLUTE)\n\
         if(NOT TARGET uruk::uruk)\n  \
         add_library(uruk::uruk SHARED IMPORTED)\n  \
         set_target_properties(uruk::uruk PROPERTIES\n    \
         IMPORTED_LOCATION \"${{_uruk_prefix}}/lib/liburuk.so.{version}\"\n    \
         IMPORTED_SONAME \"liburuk.so.{abi}\"\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{_uruk_prefix}}/include\")\n  \
         add_library(uruk::static STATIC IMPORTED)\n  \
         set_target_properties(uruk::static PROPERTIES\n    \
         IMPORTED_LOCATION \"${{_uruk_prefix}}/lib/liburuk.a\"\n    \
         INTERFACE_LINK_LIBRARIES \"{system}\"\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{_uruk_prefix}}/include\")\n\
         endif()\n\
         unset(_uruk_prefix)\n",
        abi = abi(version)
    )
}

/// Has CMake compare the version that a project asks for: while the major version is 0, another
/// minor version is another interface.
fn cmake_version(version: &str) -> String {
    let abi = abi(version).replace('.', "\\\\.");
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\n\
         elseif(\"${{PACKAGE_FIND_VERSION}}\" MATCHES \"^({abi}(\\\\.|$)|$)\")\n  \
         set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         else()\n  \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\n\
         endif()\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_EXACT TRUE)\n\
         endif()\n"
    )
}

/// Copies a file without its debug information, which is most of an archive; whole if there is no
/// `strip`.
fn copy_stripped(from: &Path, to: &Path) -> io::Result<()> {
    let mut strip = std::process::Command::new("strip");
    let done = strip
        .arg("--strip-debug")
        .arg("-o")
        .arg(to)
        .arg(from)
        .output();
    match done {
        Ok(output) if output.status.success() => Ok(()),
        _ => fs::copy(from, to).map(drop),
    }
}

/// Puts a file in place of what is there, at one instant: a program may be using that.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::File::open(from)?;
    match is_code(from) {
        true => copy_stripped(from, &new)?,
        false => fs::copy(from, &new).map(drop)?,
    }
    fs::rename(&new, to)
}

/// Whether a file is a library or a program.
fn is_code(file: &Path) -> bool {
    let mut start = [0; 8];
    let read = fs::File::open(file).and_then(|mut it| io::Read::read_exact(&mut it, &mut start));
    read.is_ok() && (start.starts_with(b"\x7fELF") || &start == b"!<arch>\n")
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
    for (from, to) in files(root, built, &real) {
        copy(&from, &to)?;
    }
    let links = [
        (format!("lib/liburuk.so.{}", abi(version)), real.as_str()),
        (String::from("lib/liburuk.so"), &real),
        (String::from("lib/uruk/static/liburuk.a"), "../../liburuk.a"),
    ];
    for (name, target) in links {
        let at = prefix.join(name);
        if at.file_name() != Some(real.as_ref()) {
            let folder = at.parent().unwrap_or(prefix);
            fs::create_dir_all(folder).map_err(|error| named(folder, error))?;
            link(target, &at).map_err(|error| named(&at, error))?;
            written.push(at);
        }
    }
    let texts = [
        ("lib/pkgconfig/uruk.pc", description(version)),
        ("lib/cmake/uruk/uruk-config.cmake", cmake_package(version)),
        (
            "lib/cmake/uruk/uruk-config-version.cmake",
            cmake_version(version),
        ),
    ];
    for (name, text) in texts {
        let file = prefix.join(name);
        let folder = file.parent().unwrap_or(prefix);
        fs::create_dir_all(folder).map_err(|error| named(folder, error))?;
        fs::write(&file, text).map_err(|error| named(&file, error))?;
        written.push(file);
    }
    // The binding for Python was one file.
    let _ = fs::remove_file(prefix.join("share/uruk/uruk.py"));
    Ok(written)
}

/// Files that are copied, with their places in the prefix.
fn files(root: &Path, built: &Built, real: &str) -> Vec<(PathBuf, String)> {
    let mut files = vec![
        (built.shared.clone(), format!("lib/{real}")),
        (built.archive.clone(), String::from("lib/liburuk.a")),
    ];
    let mut of_source = |folder: &str, name: &str, to: &str| {
        files.push((root.join(folder).join(name), format!("{to}/{name}")));
    };
    for header in ["uruk.h", "uruk-llvm.h"] {
        of_source("runtime/c/include", header, "include");
    }
    for module in ["__init__.py", "_border.py"] {
        of_source("runtime/c/python/uruk", module, "share/uruk/uruk");
    }
    for (folder, name) in [
        ("docs/guide", "lsan.supp"),
        ("runtime/c/tests", "valgrind.supp"),
    ] {
        of_source(folder, name, "share/uruk");
    }
    for text in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        of_source("", text, "share/doc/uruk");
    }
    if let Some(llvm) = &built.llvm
        && let Some(name) = llvm.file_name().and_then(|name| name.to_str())
    {
        files.push((llvm.clone(), format!("lib/uruk/{name}")));
    }
    if let Some(command) = &built.command {
        files.push((command.program.clone(), String::from("bin/uruk")));
        let preload = String::from("lib/uruk/liburuk_preload.so");
        files.push((command.preload.clone(), preload));
        let plugin = String::from("lib/uruk/liburuk_locals.so");
        files.push((command.plugin.clone(), plugin));
    }
    files
}
