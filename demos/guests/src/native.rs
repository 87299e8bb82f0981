//! Native executables compiled straight from the sources, with options of one's own:
//! what a compiler makes of a program that has no bitcode in between.

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

    /// What most people type.
    pub const PLAIN: Self = Self {
        name: "-O3",
        clang: &["-O3"],
        rustc: &["-C", "opt-level=3"],
    };
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
        let mut key = Key::new((&tools.identity, native, &self.flags, &self.link_flags));
        for directory in &self.include {
            key.add_directory(directory)?;
        }
        for source in &self.sources {
            key.add(&source.path);
            key.add_file(&source.path)?;
        }
        let name = format!("{}-native", self.name);
        cache.artifact(&name, "exe", &key, |out| {
            let rust = |source: &Source| source.language().is_ok_and(|one| one == Language::Rust);
            if let Some(source) = self.sources.iter().find(|source| rust(source)) {
                let mut command = compile::rustc(tools, native.rustc);
                command.arg("--emit=link").arg("-o").arg(out);
                return toolchain::run(command.arg(&source.path)).map(drop);
            }
            // One command for all: clang still compiles file by file.
            let mut command = Command::new(&tools.clang);
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
