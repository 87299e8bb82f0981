//! First calls in the order of a former run, or as an embedder expects them.
//!
//! A file of an order has one name a line, as the linker sees it. It is a hint: unknown names are
//! skipped. A program with another order of calls is compiled as if there were no order, except for
//! compiles in vain.

use std::path::Path;

use uruk_base::FunctionId;
use uruk_files::OutputPath;
use uruk_session::Dylib as Table;

use crate::code::names::Definition;
use crate::speculation::Speculation;

impl Speculation {
    /// Sets the expected order of first calls of functions in `dylib` and the dylibs it searches.
    pub(crate) fn expect_names<'a>(&self, dylib: &Table, names: impl Iterator<Item = &'a str>) {
        let function = |name: &str| match self.names.find(dylib, name)? {
            Definition::Function { id } => Some(id),
            _ => None,
        };
        let entry = |id: &FunctionId| self.choices.is_entry_point(*id);
        let functions: Vec<_> = names.filter_map(function).filter(|id| !entry(id)).collect();
        self.expect(functions);
    }

    /// The link names of functions called so far, in the order in which their first calls were
    /// seen.
    pub(crate) fn first_calls(&self) -> Vec<String> {
        self.learn_first_calls();
        self.wake();
        let name = |id: &FunctionId| {
            let function = self.function(*id)?;
            let plan = function.module.plan();
            Some(plan.import(function.symbol).name.to_string())
        };
        self.order().iter().filter_map(name).collect()
    }

    /// Sets the expected order from a file, if it exists.
    pub(crate) fn expect_from(&self, file: &Path) {
        let text = uruk_files::read_left(file).map(String::from_utf8);
        if let Ok(Ok(text)) = text {
            self.expect_names(&self.main, text.lines());
        }
    }

    /// Writes the order of this run to a file.
    pub(crate) fn keep_order(&self, file: &OutputPath) -> std::io::Result<()> {
        let mut text = self.first_calls().join("\n");
        text.push('\n');
        file.write(text.as_bytes())
    }
}
