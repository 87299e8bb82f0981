//! Workloads that one process repeats to show its warm-up: kernels, and iterations of larger
//! programs.
//!
//! Each is a program that takes the number of iterations, prints a checksum, and
//! writes a line for each iteration to the file that [`TIMES`] names.

use crate::compile::Program;
use crate::error::GuestError;
use crate::guest::{self, Guest, script};
use crate::kernel::{Kernel, Tongue};

/// The variable with the name of the file for the iterations' times: for each a line
/// of start (monotonic clock), wall-clock time, processor time of the thread and of
/// the process, all in nanoseconds.
pub const TIMES: &str = "ITERATION_TIMES";

/// The scripts, and the argument with which one run takes about 20 ms natively.
const SCRIPTS: [(&str, &str); 4] = [
    ("fib", "28"),
    ("nbody", "5000"),
    ("spectral-norm", "110"),
    ("binary-trees", "10"),
];
/// Rows of SQLite's iteration.
const ROWS: &str = "15000";

/// Something that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// A kernel in one language.
    Kernel(Tongue, Kernel),
    /// A Lua script by its name.
    Lua(&'static str),
    /// A small database made, filled, asked and dropped.
    Sqlite,
    /// A megabyte packed and unpacked at a few levels.
    Zstd,
    /// Generated data packed and unpacked by bzip2.
    Bzip2,
    /// A JavaScript program with a bit of everything.
    QuickJs,
}

impl Workload {
    /// Every workload: kernels in C, in Rust, then the larger programs.
    pub fn all() -> Vec<Self> {
        let kernels = Tongue::ALL
            .into_iter()
            .flat_map(|tongue| Kernel::ALL.map(|kernel| Self::Kernel(tongue, kernel)));
        let scripts = SCRIPTS.into_iter().map(|(name, _)| Self::Lua(name));
        kernels
            .chain(scripts)
            .chain([Self::Sqlite, Self::Zstd])
            .collect()
    }

    /// The workloads for programs that are built natively: kernels in C and all larger programs.
    pub fn native() -> Vec<Self> {
        let all = Self::all().into_iter();
        let c = all.filter(|one| !matches!(one, Self::Kernel(Tongue::Rust, _)));
        c.chain([Self::Bzip2, Self::QuickJs]).collect()
    }

    /// Its name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Kernel(tongue, kernel) => format!("{} {kernel}", tongue.name()),
            Self::Lua(script) => format!("lua {script}"),
            Self::Sqlite => "sqlite".to_owned(),
            Self::Zstd => "zstd".to_owned(),
            Self::Bzip2 => "bzip2".to_owned(),
            Self::QuickJs => "quickjs".to_owned(),
        }
    }

    /// How many iterations show how it warms up and where it settles; larger programs
    /// have more functions to move up.
    pub fn iterations(self) -> usize {
        match self {
            Self::Kernel(..) | Self::Lua(_) => 50,
            Self::Sqlite | Self::Zstd | Self::Bzip2 | Self::QuickJs => 60,
        }
    }

    /// Whether clang may make other code of it with `-ffp-contract=fast`. rustc has
    /// no such option.
    pub fn contracts(self) -> bool {
        matches!(self, Self::Kernel(Tongue::C, kernel) if kernel.contracts())
    }

    /// Whether the language has unoptimized bitcode of the whole program.
    pub fn has_levels(self) -> bool {
        !matches!(self, Self::Kernel(Tongue::Rust, _))
    }

    /// Its sources and flags.
    ///
    /// # Errors
    /// Those of [`Guest::program`].
    pub fn program(self) -> Result<Program, GuestError> {
        match self {
            Self::Kernel(tongue, kernel) => Ok(kernel.program(tongue)),
            Self::Lua(_) => Guest::Lua.program(),
            Self::Sqlite => Guest::Sqlite.program(),
            Self::Zstd => Guest::Zstd.program(),
            Self::Bzip2 => Guest::Bzip2.program(),
            Self::QuickJs => guest::quickjs_steady(),
        }
    }

    /// The program's arguments for a number of iterations.
    pub fn args(self, iterations: usize) -> Vec<String> {
        let count = iterations.to_string();
        match self {
            Self::Kernel(_, kernel) => vec![count, kernel.size().to_string()],
            Self::Lua(name) => {
                let size = SCRIPTS.iter().find(|(script, _)| *script == name);
                let size = size.map_or("1", |(_, size)| *size);
                vec!["steady".into(), count, script(name, "lua"), size.into()]
            }
            Self::Sqlite => vec!["steady".into(), count, ROWS.into()],
            Self::Zstd | Self::Bzip2 => vec!["steady".into(), count],
            Self::QuickJs => vec![count, script("bench", "js")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Workload;
    use crate::kernel::{Kernel, Tongue};

    #[test]
    fn names_differ_and_every_kernel_has_a_source_in_both_languages() {
        let all = Workload::all();
        let mut names: Vec<String> = all.iter().map(|one| one.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        for kernel in Kernel::ALL {
            for tongue in Tongue::ALL {
                let source = &kernel.program(tongue).sources[0];
                assert!(source.path.is_file(), "{}", source.path.display());
            }
        }
    }
}
