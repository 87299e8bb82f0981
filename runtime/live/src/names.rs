//! Lists of names of a module's functions, which share one table of names.

use std::fmt;
use std::sync::Arc;

use uruk::{Dylib, FunctionId};

use crate::locked::Locked;

/// The names of all functions of a module.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) names: Vec<String>,
    /// Their numbers in the session, once they were needed: `None` of names that it did not define then.
    numbers: Locked<Option<Numbers>>,
}

type Numbers = Arc<[Option<FunctionId>]>;

impl Table {
    pub(crate) fn new(names: Vec<String>) -> Table {
        let numbers = Locked::default();
        Table { names, numbers }
    }

    fn numbers(&self, dylib: &Dylib) -> Numbers {
        if let Some(known) = self.numbers.with(|known| known.clone()) {
            return known;
        }
        let names = self.names.iter();
        let found: Numbers = names.map(|name| dylib.number_of(name).ok()).collect();
        self.numbers.with(|known| *known = Some(Arc::clone(&found)));
        found
    }
}

/// Names, as indices of a table that lists of one module share. They are many: each function lists
/// all that it reaches.
#[derive(Clone, Default)]
pub struct NameList {
    table: Arc<Table>,
    indices: Box<[u32]>,
}

impl NameList {
    /// The names with these indices in the table.
    pub(crate) fn new(table: &Arc<Table>, indices: impl Iterator<Item = usize>) -> NameList {
        NameList {
            table: Arc::clone(table),
            indices: indices.map(|index| index as u32).collect(),
        }
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let indices = self.indices.iter();
        indices.map(|&index| self.table.names[index as usize].as_str())
    }

    /// The numbers of the functions in the session; those that it does not define have none.
    pub(crate) fn numbers(&self, dylib: &Dylib) -> Vec<FunctionId> {
        let known = self.table.numbers(dylib);
        let number = |&index: &u32| {
            let index = index as usize;
            // An exchange may have defined it since.
            known[index].or_else(|| dylib.number_of(&self.table.names[index]).ok())
        };
        self.indices.iter().filter_map(number).collect()
    }
}

impl fmt::Debug for NameList {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for NameList {
    fn eq(&self, other: &NameList) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for NameList {}
