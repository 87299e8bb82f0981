//! Native executables compiled straight from the sources, with options of one's own:
//! what a compiler makes of a program that has no bitcode in between.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::cache::{Cache, Key};
use crate::compile::{self, Language, Program, Source};
use crate::error::GuestError;
use crate::toolchain::{self, Toolchain};

/// A way to compile natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Native {
    /// Its name in tables and in file names.
    pub name: &'static str,
    /// Arguments for clang, which compiles each file by itself.
    pub clang: &'static [&'static str],
    /// Arguments for rustc, which compiles the whole program, std included.
    pub rustc: &'static [&'static str],
}

impl Native {
    /// Everything for this processor, the floating-point operations as written.
    pub const BEST: Self = Self {
        name: "-O3 -march=native",
        clang: &["-O3", "-march=native", "-ffp-contract=off"],
        rustc: &["-C", "opt-level=3", "-C", "target-cpu=native"],
    };

    /// The same, but products are added without rounding in between.
    pub const CONTRACTED: Self = Self {
        name: "-O3 -march=native -ffp-contract=fast",
        clang: &["-O3", "-march=native", "-ffp-contract=fast"],
        rustc: Self::BEST.rustc,
    };

    /// Everything for this processor, as it is typed: a product is added without rounding in
    /// between where the source has both in one expression.
    pub const TYPED: Self = Self {
        name: "-O3 -march=native as typed",
        clang: &["-O3", "-march=native"],
        rustc: Self::BEST.rustc,
    };

    /// The options that most programs are built with.
    pub const O2: Self = Self {
        name: "-O2",
        clang: &["-O2"],
        rustc: &["-C", "opt-level=2"],
    };

    /// The options that most users type.
    pub const PLAIN: Self = Self {
        name: "-O3",
        clang: &["-O3"],
        rustc: &["-C", "opt-level=3"],
    };
}

/// A compiler of C.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// In files' names.
    pub name: &'static str,
    /// The command and its first arguments; at least one word.
    pub command: Vec<OsString>,
    /// The text that distinguishes its results from others of the same clang: part of every cache
    /// key.
    pub identity: String,
}

impl Compiler {
    /// clang itself.
    pub fn clang(tools: &Toolchain) -> Self {
        Self {
            name: "native",
            command: vec![tools.clang.clone().into()],
            identity: String::new(),
        }
    }
}

impl Program {
    /// The executable, compiled one file after the other.
    ///
    /// # Errors
    /// The first source that fails, with what the compiler said.
    pub fn build_native(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        native: Native,
    ) -> Result<PathBuf, GuestError> {
        self.build_by(tools, cache, &Compiler::clang(tools), native)
    }

    /// The same by a C compiler of one's own.
    ///
    /// # Errors
    /// As of [`Program::build_native`].
    pub fn build_by(
        &self,
        tools: &Toolchain,
        cache: &Cache,
        compiler: &Compiler,
        native: Native,
    ) -> Result<PathBuf, GuestError> {
        let mut key = Key::new((&tools.identity, native, &self.flags, &self.link_flags));
        key.add(&compiler.identity);
        for directory in &self.include {
            key.add_directory(directory)?;
        }
        for source in &self.sources {
            key.add(&source.path);
            key.add_file(&source.path)?;
        }
        let name = format!("{}-{}", self.name, compiler.name);
        cache.artifact(&name, "exe", &key, |out| {
            let rust = |source: &Source| source.language().is_ok_and(|one| one == Language::Rust);
            if let Some(source) = self.sources.iter().find(|source| rust(source)) {
                let mut command = compile::rustc(tools, native.rustc);
                command.arg("--emit=link").arg("-o").arg(out);
                return toolchain::run(command.arg(&source.path)).map(drop);
            }
            // One command for all: clang still compiles file by file.
            let mut command = Command::new(&compiler.command[0]);
            command.args(&compiler.command[1..]);
            command.args(native.clang).args(&self.flags);
            for directory in &self.include {
                command.arg("-I").arg(directory);
            }
            command.args(self.sources.iter().map(|source| &source.path));
            command.args(&self.link_flags).arg("-lm");
            toolchain::run(command.arg("-o").arg(out)).map(drop)
        })
    }
}
