//! Small programs of our own, each in C and in Rust: `program ITERATIONS SIZE`.
//!
//! An iteration is the same work every time and ends in a checksum; both are in
//! `programs/include` (`steady.h`, `kernel.h`, `steady.rs`). The two languages do the
//! same, each the way its people write: arrays and pointers here, iterators, traits
//! and checked indexes there.

use std::fmt;

use crate::compile::Program;
use crate::guest::{ours, program};

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Bodies that attract each other.
    NBody,
    /// Points of the plane that escape or do not.
    Mandelbrot,
    /// All orders of a few numbers, prefixes reversed.
    Fannkuch,
    /// A matrix that is computed, never stored, by the power method.
    SpectralNorm,
    /// The product of two matrices.
    Matmul,
    /// A hash table under a mixture of operations.
    HashMix,
    /// A stack machine and a program for it.
    Interpreter,
}

/// The language a kernel is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tongue {
    /// C, by clang.
    C,
    /// Rust, by rustc.
    Rust,
}

impl Tongue {
    /// Both.
    pub const ALL: [Self; 2] = [Self::C, Self::Rust];

    /// As in a workload's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Rust => "rust",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Rust => "rs",
        }
    }
}

impl Kernel {
    /// Every kernel.
    pub const ALL: [Self; 7] = [
        Self::NBody,
        Self::Mandelbrot,
        Self::Fannkuch,
        Self::SpectralNorm,
        Self::Matmul,
        Self::HashMix,
        Self::Interpreter,
    ];

    /// Its name, which is also that of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::NBody => "n-body",
            Self::Mandelbrot => "mandelbrot",
            Self::Fannkuch => "fannkuch",
            Self::SpectralNorm => "spectral-norm",
            Self::Matmul => "matmul",
            Self::HashMix => "hash-mix",
            Self::Interpreter => "interpreter",
        }
    }

    /// The size at which an iteration takes about 20 ms natively.
    pub fn size(self) -> usize {
        match self {
            Self::NBody => 250_000,
            Self::Mandelbrot => 480,
            Self::Fannkuch => 9,
            Self::SpectralNorm => 1_400,
            Self::Matmul => 512,
            Self::HashMix => 700_000,
            Self::Interpreter => 350_000,
        }
    }

    /// Whether a multiplication's result is added to something: only then does
    /// contraction change the code.
    pub fn contracts(self) -> bool {
        matches!(
            self,
            Self::NBody | Self::Mandelbrot | Self::SpectralNorm | Self::Matmul
        )
    }

    /// Its source and flags.
    pub fn program(self, tongue: Tongue) -> Program {
        let file = format!("kernels/{}.{}", self.name(), tongue.extension());
        let mut kernel = program(&format!("{}-{}", tongue.name(), self.name()), &file);
        // For Rust it only says what the result depends on.
        kernel.include.push(ours("programs/include"));
        kernel
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
