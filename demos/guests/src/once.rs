//! Small programs of our own whose time goes into loops that are entered once: one call of one
//! function, or loops of `main` itself. A compile that serves only the next call of the function
//! comes too late for them.
//!
//! They are in `programs/once`, with `programs/include/once.h`. Each exists in two sizes: the
//! large one takes about a second natively and rounds what it prints, so that a compiler that
//! fuses multiplications and additions prints the same; the small one takes some hundredths
//! of a second and prints a checksum of every bit of its results.

use crate::compile::Program;
use crate::guest::{ours, program};

/// The programs, which are named as their files.
const NAMES: [&str; 30] = [
    "product",
    "triple-product",
    "rank-update",
    "triangular-solve",
    "lu",
    "cholesky",
    "levinson",
    "gram-schmidt",
    "covariance",
    "jacobi-1d",
    "jacobi-2d",
    "seidel-2d",
    "heat-3d",
    "alternating",
    "fft",
    "spectral-norm",
    "bodies",
    "mandelbrot",
    "shortest-paths",
    "alignment",
    "matrix-chain",
    "folding",
    "life",
    "sieve",
    "histogram",
    "search",
    "hash-fill",
    "heap-sort",
    "byte-code",
    "threaded-code",
];

/// A program of loops that are entered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Once {
    name: &'static str,
}

/// How much a program of loops has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// About a second natively; reals are rounded before they are printed.
    Large,
    /// Some hundredths of a second; all bits are printed.
    Small,
}

impl Once {
    /// Every program: of reals, then of integers.
    pub fn all() -> Vec<Self> {
        NAMES.into_iter().map(|name| Self { name }).collect()
    }

    /// Its name, which is also that of its file.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Its source and flags. It takes no arguments.
    pub fn program(self, size: Size) -> Program {
        let (suffix, flag) = match size {
            Size::Large => ("", None),
            Size::Small => ("-small", Some("-DSMALL")),
        };
        let name = format!("once-{}{suffix}", self.name);
        let mut program = program(&name, &format!("once/{}.c", self.name));
        program.include.push(ours("programs/include"));
        program.flags.extend(flag.map(str::to_owned));
        program
    }
}

#[cfg(test)]
mod tests {
    use super::Once;
    use crate::guest::ours;

    #[test]
    fn every_source_has_its_name_here() {
        let mut names: Vec<String> = Once::all()
            .iter()
            .map(|one| format!("{}.c", one.name()))
            .collect();
        names.sort();
        let folder = std::fs::read_dir(ours("programs/once")).expect("the folder");
        let mut files: Vec<String> = folder
            .map(|entry| {
                let name = entry.expect("an entry").file_name();
                name.to_string_lossy().into_owned()
            })
            .collect();
        files.sort();
        assert_eq!(names, files);
    }
}
