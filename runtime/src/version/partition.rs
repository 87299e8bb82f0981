//! Functions of a module that are compiled together.

use std::fmt;
use std::sync::Arc;

/// Returns the functions that belong to one function, given the names of the module and of the
/// function.
pub type ChoosePart = Arc<dyn Fn(&str, &str) -> Vec<String> + Send + Sync>;

/// The functions of a module that are compiled together, at the first call of one of them. Each
/// stays a version of its own: it is promoted, replaced and freed alone.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partition {
    /// Each function at its own first call.
    #[default]
    Function,
    /// All functions of a module.
    Module,
    /// Those that the embedder names.
    Own(ChoosePart),
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Partition::Function => "Function",
            Partition::Module => "Module",
            Partition::Own(_) => "Own",
        })
    }
}
