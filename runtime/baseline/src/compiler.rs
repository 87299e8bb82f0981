//! One function from plain data to machine code.

use crate::{Code, Options, Uncovered, ir};

/// A compiler that keeps its buffers from function to function.
#[derive(Debug, Default)]
pub struct Compiler {
    options: Options,
}

impl Compiler {
    /// One with settings.
    pub fn new(options: Options) -> Compiler {
        Compiler { options }
    }

    /// Its settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Compiles a function.
    ///
    /// # Errors
    /// [`Uncovered`] says what of the function is not compiled here; nothing was emitted then.
    pub fn compile(&mut self, function: &ir::Function) -> Result<Code, Uncovered> {
        covers(function, &self.options)?;
        Err(Uncovered {
            what: "nothing yet",
        })
    }
}

/// Compiles a function with a compiler of its own; many are cheaper through one [`Compiler`].
///
/// # Errors
/// As [`Compiler::compile`].
pub fn compile(function: &ir::Function, options: &Options) -> Result<Code, Uncovered> {
    Compiler::new(*options).compile(function)
}

/// Whether a function is compiled here, without compiling it.
///
/// # Errors
/// [`Uncovered`] names the first thing that is not.
pub fn covers(_function: &ir::Function, _options: &Options) -> Result<(), Uncovered> {
    Ok(())
}
