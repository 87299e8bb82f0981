//! Variables that got new storage, by their addresses and by their names.
//!
//! A variable can be moved several times. Each move ends when its storage is freed or when it is
//! rolled back, in any order: the moves that are left stay in effect, the latest one first.

use std::collections::HashMap;

use uruk_session::DylibId;

/// The addresses of variables that were moved.
#[derive(Default)]
pub(super) struct MovedAddresses {
    /// The first address of each variable, by each address that it got later.
    first: HashMap<u64, u64>,
    /// The addresses that a variable got later, by its first address; none is empty.
    later: HashMap<u64, Vec<u64>>,
}

impl MovedAddresses {
    /// Moves the variable at `old` to `new`.
    pub(super) fn relocate(&mut self, old: u64, new: u64) {
        let first = self.first.get(&old).copied().unwrap_or(old);
        self.move_back(new);
        self.first.insert(new, first);
        self.later.entry(first).or_default().push(new);
    }

    /// Ends the move to `new`, if there is one.
    pub(super) fn move_back(&mut self, new: u64) {
        let Some(first) = self.first.remove(&new) else {
            return;
        };
        if let Some(later) = self.later.get_mut(&first) {
            later.retain(|&address| address != new);
            if later.is_empty() {
                self.later.remove(&first);
            }
        }
    }

    /// Where the variable is that is, or was, at `address`.
    pub(super) fn current(&self, address: u64) -> u64 {
        let first = self.first.get(&address).copied().unwrap_or(address);
        let latest = self.later.get(&first).and_then(|later| later.last());
        latest.copied().unwrap_or(address)
    }
}

/// The link names of variables that were moved.
#[derive(Default)]
pub(super) struct MovedNames {
    /// The link names that a variable got later, by its dylib and first link name; none is empty.
    later: HashMap<(DylibId, Box<str>), Vec<Box<str>>>,
}

impl MovedNames {
    /// Moves the variable with the link name `old` to the storage of `new`.
    pub(super) fn relocate(&mut self, dylib: DylibId, old: &str, new: &str) {
        let later = self.later.entry((dylib, old.into())).or_default();
        later.retain(|name| **name != *new);
        later.push(new.into());
    }

    /// Ends the move to the storage of `new`, if there is one.
    pub(super) fn move_back(&mut self, dylib: DylibId, old: &str, new: &str) {
        let key = (dylib, Box::from(old));
        if let Some(later) = self.later.get_mut(&key) {
            later.retain(|name| **name != *new);
            if later.is_empty() {
                self.later.remove(&key);
            }
        }
    }

    /// The link name of the storage that the variable has now, if it was moved.
    pub(super) fn current(&self, dylib: DylibId, link_name: &str) -> Option<Box<str>> {
        let later = self.later.get(&(dylib, Box::from(link_name)))?;
        later.last().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_end_in_any_order() {
        let mut moved = MovedAddresses::default();
        moved.relocate(1, 2);
        moved.relocate(2, 3);
        assert_eq!([1, 2, 3].map(|at| moved.current(at)), [3, 3, 3]);
        moved.move_back(2);
        assert_eq!([1, 2, 3].map(|at| moved.current(at)), [3, 2, 3]);
        moved.move_back(3);
        assert_eq!([1, 2, 3].map(|at| moved.current(at)), [1, 2, 3]);
        assert!(moved.first.is_empty() && moved.later.is_empty());
        moved.relocate(1, 2);
        moved.relocate(2, 3);
        moved.move_back(3);
        moved.move_back(3);
        assert_eq!([1, 2, 3].map(|at| moved.current(at)), [2, 2, 3]);
    }
}
