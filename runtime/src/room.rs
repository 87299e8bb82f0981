//! Room in the address space: where a session lies.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use uruk_heap::Place;
use uruk_link::Object;

#[cfg(doc)]
use crate::error::Error;
use crate::jit::JitBuilder;

/// What helps who [wants low addresses](Error::wants_low_addresses), in the command.
pub(crate) const LOW_ADDRESSES: &str = "`--low-addresses` places the program below 2 GiB";

/// What an ELF file begins with.
const ELF: &[u8] = b"\x7fELF";

impl JitBuilder {
    /// Places code and data below 2 GiB, as objects of the small non-PIC model need, and
    /// inline assembly that takes addresses for numbers of 32 bits; at most 1.5 GiB
    /// ([`HeapConfig::place`]). Without it they fail to link, with an error that
    /// [says so](Error::wants_low_addresses). By default memory is placed at random
    /// anywhere. See [`needs_low_addresses`].
    #[must_use]
    pub fn low_addresses(mut self, low: bool) -> JitBuilder {
        self.heap.place = match low {
            true => Place::Low,
            false => Place::Random,
        };
        self
    }
}

/// Whether a file is an object that has to lie below 2 GiB, because its code holds
/// addresses in fields of 32 bits (the small non-PIC model): a session that is to take it
/// needs [`JitBuilder::low_addresses`](crate::JitBuilder::low_addresses). What cannot be
/// read needs nothing: adding it tells why.
pub fn needs_low_addresses(path: &Path) -> bool {
    let object = || {
        let mut file = File::open(path).ok()?;
        // Others are not read here, which may be large.
        let mut bytes = vec![0; ELF.len()];
        file.read_exact(&mut bytes).ok()?;
        if bytes != ELF {
            return None;
        }
        file.read_to_end(&mut bytes).ok()?;
        let object = Object::parse("", &bytes).ok()?;
        Some(object.needs_low_addresses())
    };
    object().unwrap_or(false)
}
