//! Unexported definitions of the process's executable: its own symbol table, which the dynamic
//! loader does not read.
//!
//! A name that several files of the executable define locally is ambiguous, and not found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::error::Error;

/// Addresses by name.
pub(super) struct Executable(HashMap<Box<str>, u64>);

/// Path of the running executable.
const FILE: &str = "/proc/self/exe";

impl Executable {
    /// Reads the symbol table; one that was stripped is empty.
    ///
    /// # Errors
    /// The file cannot be read, or is no ELF file.
    pub(crate) fn read() -> Result<Executable, Error> {
        let bytes = uruk_files::read(FILE).map_err(|cause| Error::File {
            file: FILE.to_owned(),
            cause: Arc::new(cause),
        })?;
        let file = object::File::parse(&*bytes).map_err(|_| Error::UnknownFormat {
            file: FILE.to_owned(),
        })?;
        let bias = bias();
        let mut known: HashMap<Box<str>, (u64, bool)> = HashMap::new();
        for symbol in file.symbols() {
            let named = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
            let Ok(name) = symbol.name() else { continue };
            if !named || symbol.is_undefined() || name.is_empty() {
                continue;
            }
            let place = (bias.wrapping_add(symbol.address()), symbol.is_local());
            match known.entry(name.into()) {
                Entry::Vacant(entry) => {
                    entry.insert(place);
                }
                // A global one is the one that other files of the executable refer to.
                Entry::Occupied(mut entry) if entry.get().1 && !place.1 => {
                    entry.insert(place);
                }
                Entry::Occupied(mut entry) if entry.get().1 => entry.get_mut().0 = AMBIGUOUS,
                Entry::Occupied(_) => {}
            }
        }
        let known = known.into_iter();
        let known = known.filter(|(_, (address, _))| *address != AMBIGUOUS);
        Ok(Executable(
            known.map(|(name, (address, _))| (name, address)).collect(),
        ))
    }

    /// The address of `name`.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// Marks an ambiguous name; no symbol has this address.
const AMBIGUOUS: u64 = u64::MAX;

/// Distance of the executable from its link address.
fn bias() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record, and what `bias` gave it.
        unsafe { *data.cast::<u64>() = (*info).dlpi_addr };
        // The executable is the first.
        1
    }
    let mut bias = 0_u64;
    // SAFETY: the callback gets the pointer to `bias`, alive here.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut bias).cast()) };
    bias
}

#[cfg(test)]
mod tests {
    use super::Executable;

    #[unsafe(no_mangle)]
    static URUK_TEST_OF_EXECUTABLE: u64 = 7;

    #[test]
    fn finds_what_is_not_exported() {
        let executable = Executable::read().expect("this test");
        let found = executable.find("URUK_TEST_OF_EXECUTABLE");
        assert_eq!(found, Some(&raw const URUK_TEST_OF_EXECUTABLE as u64));
        assert_eq!(executable.find("no_such_symbol_anywhere"), None);
    }
}
