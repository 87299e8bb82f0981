//! First calls in the order of a former run, or as an embedder expects them.
//!
//! A file of an order has one name a line, as the linker sees it. It is a hint: a name that
//! means nothing is passed over, and a program that goes another way is compiled as if there were
//! no order, but for what was compiled for nothing.

use std::path::Path;

use uruk_base::FunctionId;
use uruk_files::OutputPath;
use uruk_session::Dylib as Table;

use crate::api::dylib::Dylib;
use crate::core::Core;
use crate::fork::gate;
use crate::load::names::Definition;

impl Core {
    /// First calls of functions of `dylib` and what it searches are expected in this order.
    fn expect<'a>(&self, dylib: &Table, names: impl Iterator<Item = &'a str>) {
        let function = |name: &str| match self.names.find(dylib, name)? {
            Definition::Function { id } => Some(id),
            _ => None,
        };
        let entry = |id: &FunctionId| self.tiers.is_entry_point(*id);
        let functions: Vec<_> = names.filter_map(function).filter(|id| !entry(id)).collect();
        self.speculation.expect(functions);
    }

    /// The link names of functions called so far, in the order of their first calls as far as
    /// that was seen.
    pub(crate) fn first_calls(&self) -> Vec<String> {
        self.learn_first_calls();
        self.speculation.wake();
        let name = |id: &FunctionId| {
            let function = self.function(*id)?;
            let plan = function.module.plan();
            Some(plan.import(function.symbol).name.to_string())
        };
        self.speculation.order().iter().filter_map(name).collect()
    }

    /// Expects the order that is kept in a file, if there is one.
    pub(crate) fn expect_from(&self, file: &Path) {
        let text = uruk_files::read_left(file).map(String::from_utf8);
        if let Ok(Ok(text)) = text {
            self.expect(&self.main, text.lines());
        }
    }

    /// Keeps the order of this run in a file.
    pub(crate) fn keep_order(&self, file: &OutputPath) -> std::io::Result<()> {
        let mut text = self.first_calls().join("\n");
        text.push('\n');
        file.write(text.as_bytes())
    }
}

impl Dylib {
    /// Says which functions will be called for the first time, in this order: a session that
    /// [speculates](crate::JitBuilder::speculate) compiles them ahead of their calls, before
    /// what it would guess itself. They are looked up now; what has no body, was called before,
    /// or is not defined yet is passed over.
    pub fn compile_ahead(&self, functions: &[&str]) {
        let _pass = gate::enter();
        let core = self.jit().core();
        core.expect(&self.dylib, functions.iter().copied());
    }
}
