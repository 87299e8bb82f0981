//! Reads the symbol tables of modules.

use uruk_codegen::{Bitcode, ReaderPool};
use uruk_session::Dylib;

use crate::code::module::Module;
use crate::error::Error;
use crate::load::loader::Loader;

impl Loader {
    /// Reads the symbol table of `bitcode`.
    pub(crate) fn read_module(&self, bitcode: Bitcode, dylib: &Dylib) -> Result<Module, Error> {
        let read = match self.baseline.is_on() {
            true => ReaderPool::without_llvm,
            false => ReaderPool::new,
        };
        let bitcode = self.layers.looking(bitcode)?;
        let readers = read(bitcode, self.readers, &self.reading_room)?;
        Ok(self.read_by(readers, dylib))
    }

    /// Like [`Loader::read_module`], for IR text.
    pub(super) fn read_text(&self, file: &str, text: &str, dylib: &Dylib) -> Result<Module, Error> {
        if self.layers.look.is_some() {
            return self.read_module(Bitcode::from_ir_text(file, text)?, dylib);
        }
        let readers = ReaderPool::from_ir_text(file, text, self.readers, &self.reading_room)?;
        Ok(self.read_by(readers, dylib))
    }

    fn read_by(&self, readers: ReaderPool, dylib: &Dylib) -> Module {
        let state = self.engines().state_for(readers.bitcode().name());
        Module::new(readers, dylib, state)
    }
}
