//! One program, from its sources to bitcode and to a native executable.
//!
//! A source file becomes a *part*: a bitcode file (C, C++, Rust), itself (IR
//! text), or an object file where that was asked for. The runtime is given the
//! parts, or the one file that `llvm-link` makes of them. The native executable
//! is made of the same parts by clang's code generator, so both sides run the
//! same IR: a difference between them is the runtime's. Rust programs are the
//! exception, their executable is the one rustc links.
//!
//! A program may need shared libraries of its own ([`Library`]): code that is the same
//! machine code on both sides.
//!
//! Every step is kept in the [`Cache`]; a second build only reads the sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::cache::{Cache, Key};
use crate::error::GuestError;
use crate::flavor::Flavor;
use crate::toolchain::{self, Toolchain};
use parking_lot::Mutex;

/// The language of a source file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// `.c`
    C,
    /// `.cpp`, `.cc`
    Cxx,
    /// `.rs`
    Rust,
    /// `.ll`
    Ir,
}

/// One source file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Whether the runtime gets it as an object file instead of bitcode.
    pub as_object: bool,
}

/// A shared library in C, compiled once for all flavors.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Its source.
    pub source: PathBuf,
    /// Libraries it is linked against.
    pub needs: Vec<Library>,
    /// The program opens it by the path that is its next argument, instead of being linked
    /// against it.
    pub opened: bool,
}

/// A program to compile.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Makes file names readable.
    pub name: String,
    /// The sources, in link order.
    pub sources: Vec<Source>,
    /// Directories whose headers the sources include.
    pub include: Vec<PathBuf>,
    /// Arguments for compiling C and C++.
    pub flags: Vec<String>,
    /// Arguments for linking the executable.
    pub link_flags: Vec<String>,
    /// Shared libraries it uses.
    pub libraries: Vec<Library>,
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Built {
    /// The input of the runtime, one file per source, in order.
    pub parts: Vec<PathBuf>,
    /// The bitcode parts linked into one file (the part itself, if only one).
    pub bitcode: PathBuf,
    /// The native executable.
    pub native: PathBuf,
    /// The shared libraries it is linked against.
    pub libraries: Vec<PathBuf>,
    /// Those that it opens.
    pub opened: Vec<PathBuf>,
}

/// Gets the count of finished sources and of all.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Part and native object of one source; for Rust the executable itself.
#[derive(Clone, Debug)]
struct Unit {
    part: PathBuf,
    native: PathBuf,
}

impl Language {
    /// The language of a file, if it is one we compile.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "c" => Some(Self::C),
            "cpp" | "cc" => Some(Self::Cxx),
            "rs" => Some(Self::Rust),
            "ll" => Some(Self::Ir),
            _ => None,
        }
    }
}

impl Source {
    /// A source the runtime gets as bitcode (or as IR text).
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            as_object: false,
        }
    }

    pub(crate) fn language(&self) -> Result<Language, GuestError> {
        Language::of(&self.path).ok_or_else(|| GuestError::SourceMissing {
            what: "language that this builder knows".to_owned(),
            directory: self.path.clone(),
        })
    }
}

impl Program {
    /// Compiles the program in one flavor, several sources at a time, at most
    /// `jobs`.
    ///
    /// # Errors
    /// The first source that fails, with what the compiler said.
    pub fn build(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        jobs: usize,
        progress: Progress<'_>,
    ) -> Result<Built, GuestError> {
        let key = self.key(tools, flavor)?;
        let units = self.build_units(tools, cache, flavor, &key, jobs, progress)?;
        let parts: Vec<PathBuf> = units.iter().map(|unit| unit.part.clone()).collect();
        let bitcode = self.link_bitcode(tools, cache, flavor, &key, &parts)?;
        let (mut libraries, mut opened) = (Vec::new(), Vec::new());
        for library in &self.libraries {
            let built = library.build(tools, cache)?;
            if library.opened {
                opened.push(built);
            } else {
                libraries.push(built);
            }
        }
        let native = match self.sources.first().map(Source::language).transpose()? {
            Some(Language::Rust) => units[0].native.clone(),
            _ => self.link_native(tools, cache, flavor, &key, &units, &libraries)?,
        };
        Ok(Built {
            parts,
            bitcode,
            native,
            libraries,
            opened,
        })
    }

    /// Everything the program depends on but the sources themselves.
    fn key(&self, tools: &Toolchain, flavor: Flavor) -> Result<Key, GuestError> {
        let mut key = Key::new((&tools.identity, flavor.to_string()));
        key.add((&self.flags, &self.link_flags));
        for directory in &self.include {
            key.add_directory(directory)?;
        }
        Ok(key)
    }

    fn build_units(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        key: &Key,
        jobs: usize,
        progress: Progress<'_>,
    ) -> Result<Vec<Unit>, GuestError> {
        let count = self.sources.len();
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Unit, GuestError>)>> = Mutex::new(Vec::new());
        let work = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = self.sources.get(index) else {
                return;
            };
            let unit = self.build_unit(tools, cache, flavor, key, source);
            let failed = unit.is_err();
            let mut list = done.lock();
            list.push((index, unit));
            progress(list.len(), count);
            if failed {
                next.store(count, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for _ in 1..jobs.clamp(1, count.max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let mut list = done.into_inner();
        list.sort_by_key(|(index, _)| *index);
        list.into_iter().map(|(_, unit)| unit).collect()
    }

    fn build_unit(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        key: &Key,
        source: &Source,
    ) -> Result<Unit, GuestError> {
        let mut key = key.clone();
        key.add(&source.path);
        key.add_file(&source.path)?;
        let stem = source.path.file_stem().unwrap_or_default();
        let name = format!("{}-{}-{flavor}", self.name, stem.to_string_lossy());
        let language = source.language()?;
        let compiler = match language {
            Language::Rust => return build_rust(tools, cache, flavor, &key, &name, source),
            Language::Cxx => &tools.clangxx,
            Language::C | Language::Ir => &tools.clang,
        };
        let bitcode = match language {
            Language::Ir => source.path.clone(),
            _ => cache.artifact(&name, "bc", &key, |out| {
                let mut command = Command::new(compiler);
                command.args(flavor.bitcode_flags()).args(&self.flags);
                for directory in &self.include {
                    command.arg("-I").arg(directory);
                }
                command.args(["-emit-llvm", "-c"]).arg(&source.path);
                toolchain::run(command.arg("-o").arg(out)).map(drop)
            })?,
        };
        let native = cache.artifact(&name, "o", &key, |out| {
            let mut command = Command::new(compiler);
            // Flags of the preprocessor and of linking mean nothing here.
            command.arg("-Wno-unused-command-line-argument");
            command.args(flavor.level.native_flags());
            command.args(flavor.pic.compile_flags());
            command.args(&self.flags);
            command.arg("-c").arg(&bitcode);
            toolchain::run(command.arg("-o").arg(out)).map(drop)
        })?;
        let part = if source.as_object {
            native.clone()
        } else {
            bitcode
        };
        Ok(Unit { part, native })
    }

    fn link_bitcode(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        key: &Key,
        parts: &[PathBuf],
    ) -> Result<PathBuf, GuestError> {
        let mergeable: Vec<&PathBuf> = parts
            .iter()
            .filter(|part| part.extension().is_some_and(|extension| extension != "o"))
            .collect();
        if let [only] = mergeable[..] {
            return Ok(only.clone());
        }
        let mut key = key.clone();
        for part in &mergeable {
            key.add(part);
            key.add_file(part)?;
        }
        let name = format!("{}-{flavor}", self.name);
        cache.artifact(&name, "bc", &key, |out| {
            let mut command = Command::new(&tools.llvm_link);
            toolchain::run(command.args(&mergeable).arg("-o").arg(out)).map(drop)
        })
    }

    fn link_native(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        key: &Key,
        units: &[Unit],
        libraries: &[PathBuf],
    ) -> Result<PathBuf, GuestError> {
        let mut key = key.clone();
        for unit in units {
            key.add_file(&unit.native)?;
        }
        key.add(libraries);
        let mut linker = &tools.clang;
        for source in &self.sources {
            if source.language()? == Language::Cxx {
                linker = &tools.clangxx;
            }
        }
        let name = format!("{}-{flavor}", self.name);
        cache.artifact(&name, "exe", &key, |out| {
            let mut command = Command::new(linker);
            command.args(flavor.pic.link_flags());
            command.args(units.iter().map(|unit| &unit.native));
            command.args(libraries);
            command.args(&self.link_flags).arg("-lm");
            toolchain::run(command.arg("-o").arg(out)).map(drop)
        })
    }
}

impl Library {
    /// Compiles it, and what it needs. Without a name of its own it is found by its path.
    fn build(&self, tools: &Toolchain, cache: &Cache) -> Result<PathBuf, GuestError> {
        let needs = self.needs.iter().map(|needed| needed.build(tools, cache));
        let needs = needs.collect::<Result<Vec<_>, _>>()?;
        let mut key = Key::new((&tools.identity, &self.source, &needs));
        key.add_file(&self.source)?;
        let stem = self.source.file_stem().unwrap_or_default();
        let name = format!("lib{}", stem.to_string_lossy());
        let path = cache.artifact(&name, "so", &key, |out| {
            let mut command = Command::new(&tools.clang);
            command.args(["-O1", "-g", "-fPIC", "-shared", "-pthread"]);
            command.arg(&self.source).args(&needs);
            toolchain::run(command.arg("-o").arg(out)).map(drop)
        })?;
        fs::canonicalize(&path).map_err(GuestError::file("find", &path))
    }
}

/// The whole program, std included, as one bitcode file and as an executable, both
/// by rustc ([`crate::Level::rustc_flags`]).
fn build_rust(
    tools: &Toolchain,
    cache: &Cache,
    flavor: Flavor,
    key: &Key,
    name: &str,
    source: &Source,
) -> Result<Unit, GuestError> {
    let level = flavor.level;
    // rustc keeps intermediate files, named by the crate alone, where its output
    // goes: every run needs a directory of its own.
    let compile = |directory: &Path, flags: &[&str]| {
        let mut command = rustc(tools, flags);
        command.args(flavor.debug.then_some("-g"));
        // Unless it links, rustc leaves std out of the bitcode.
        command
            .args(["--emit=llvm-bc,link", "--out-dir"])
            .arg(directory);
        toolchain::run(command.arg(&source.path)).map(drop)
    };
    let directory = cache.artifact(name, "rust", key, |out| {
        fs::create_dir_all(out).map_err(GuestError::file("create", out))?;
        compile(out, level.rustc_flags())?;
        if level.rustc_flags() == level.rustc_native_flags() {
            return Ok(());
        }
        let other = out.join("native");
        fs::create_dir_all(&other).map_err(GuestError::file("create", &other))?;
        compile(&other, level.rustc_native_flags())?;
        let executable = out.join("guest");
        fs::rename(other.join("guest"), &executable)
            .map_err(GuestError::file("create", &executable))
    })?;
    Ok(Unit {
        part: directory.join("guest.bc"),
        native: directory.join("guest"),
    })
}

/// rustc with what is common to all Rust programs: one crate, one module, std in it.
pub(crate) fn rustc(tools: &Toolchain, flags: &[&str]) -> Command {
    let mut command = Command::new(&tools.rustc);
    command.args(["--edition=2024", "--crate-type=bin", "--crate-name=guest"]);
    command.args(["-C", "lto=fat", "-C", "codegen-units=1"]);
    command.args(flags);
    command
}
