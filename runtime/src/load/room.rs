//! Room in the address space: where a session lies, and what it takes where that is
//! limited (`ulimit -v`, `ulimit -d`).
//!
//! With `left` bytes left before anything is made:
//!
//! | taken by | bytes |
//! |---|---|
//! | nothing: [`Error::Room`] | `left` < [`NEEDED`] and what LLVM's library takes |
//! | LLVM's library, if it is not open | some 203 MiB |
//! | the heap with its alias | a quarter to a half of `left` ([`Room`]) |
//! | the stack of a thread | 1/16 of what is left then, 2 to 16 MiB |
//! | stacks of compile workers | 1/4 of it; one worker at least |
//!
//! The rest is LLVM's, whose compiles take 20 to 60 MiB, and the program's.
//!
//! # Why
//! Where address space is limited, everything takes a share of what is left (`heap::room`,
//! `room`).

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use uruk_files::OwnFile;
use uruk_heap::{Place, Room};
use uruk_link::Object;

use crate::api::builder::JitBuilder;
use crate::api::error::{Error, limits};
use crate::fork::thread::{self, SMALLEST_STACK, STACK};
use crate::guest::llvm;

/// What helps who [wants low addresses](Error::wants_low_addresses), in the command.
pub(crate) const LOW_ADDRESSES: &str = "`--low-addresses` places the program below 2 GiB";

/// After this long without a write, or twice that, code can no more be written
/// ([`Heap::rest`](uruk_heap::Heap::rest)). Closing takes 18 us; opening makes the next first
/// call 11 us later, and 2 us for each page that is written again. Closed after every
/// publication it would cost that each time, for compiles of 200 us.
pub(crate) const REST: Duration = Duration::from_millis(20);

/// What an ELF file begins with.
const ELF: &[u8] = b"\x7fELF";

/// The first bytes of an archive.
const ARCHIVE: &[u8; 8] = b"!<arch>\n";

/// The least that a session is begun with: a small heap, three threads, and one compile.
const NEEDED: usize = 40 << 20;

/// Whether there is room for a session. Where room is limited, LLVM's library is opened now: the
/// rest is shared.
pub(crate) fn check() -> Result<(), Error> {
    uruk_late::find();
    let Some(room) = Room::now() else {
        return Ok(());
    };
    let needed = match uruk_late::is_open() {
        true => NEEDED,
        false => NEEDED + uruk_late::room(),
    };
    if room.left() < needed {
        return Err(Error::Room {
            limit: room.limit,
            used: room.used,
            needed,
        });
    }
    llvm::open()
}

/// What LLVM says of a failed allocation, with the limit that may be why.
pub(crate) fn with_limits(message: &str) -> String {
    // "Allocation failed", "Buffer allocation failed".
    let room = Room::now().filter(|_| message.contains("llocation failed"));
    room.map_or_else(
        || message.to_owned(),
        |room| format!("{message}: {}", limits(room.limit, room.used, None)),
    )
}

/// Sets the stack of threads to come to what there is room for, and gives how many of
/// `jobs` workers there is room for.
pub(crate) fn threads(jobs: usize) -> usize {
    let (stack, workers) = share(Room::now().map(|room| room.left()), jobs);
    thread::set_stack(stack);
    workers
}

/// Stack of a thread, and how many of `jobs` workers.
fn share(left: Option<usize>, jobs: usize) -> (usize, usize) {
    const MIB: usize = 1 << 20;
    /// Where address space is limited, more workers are worth more than room for rare recursion.
    const LIMITED: usize = 16 * MIB;
    let Some(left) = left else {
        return (STACK, jobs);
    };
    let stack = (left / 16 / MIB * MIB).clamp(SMALLEST_STACK, LIMITED);
    (stack, (left / 4 / stack).clamp(1, jobs))
}

impl JitBuilder {
    /// Makes room for that many bytes of variables, up to 1.8 GiB with the largest
    /// reservation; there is room for 0.9 GiB in any case ([`HeapConfig::data`]). A module
    /// whose data does not fit fails to load, with an error that tells how much
    /// [would do](Error::wants_static_data).
    ///
    /// [`HeapConfig::data`]: uruk_heap::HeapConfig
    #[must_use]
    pub fn static_data(mut self, bytes: usize) -> JitBuilder {
        self.heap.data = bytes;
        self
    }

    /// Places code and data below 2 GiB, as objects of the small non-PIC model need, and
    /// inline assembly that takes addresses for numbers of 32 bits; at most 1.5 GiB
    /// (`HeapConfig::place`). Without it they fail to link, with an error that
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

impl JitBuilder {
    /// Places code and data within 2 GiB of the process's libraries (`HeapConfig::place`), at most
    /// 1.25 GiB. Objects that were compiled for an executable (without `-fPIC`) then reach
    /// variables of these libraries, as they do where a static linker copies the variables into
    /// the executable. Below 2 GiB ([`low_addresses`](JitBuilder::low_addresses)) and elsewhere
    /// only a [`Program`](crate::Program) can have such copies. See
    /// [`needs_near_libraries`].
    #[must_use]
    pub fn near_libraries(mut self, near: bool) -> JitBuilder {
        self.heap.place = match near {
            true => Place::Near,
            false => Place::Random,
        };
        self
    }
}

/// Whether a file is an object or an archive, whose code may reach variables of the process's
/// libraries only from near them: a session that is to take it is better made with
/// [`JitBuilder::near_libraries`](crate::JitBuilder::near_libraries).
pub fn needs_near_libraries(path: &Path) -> bool {
    let mut start = [0; ARCHIVE.len()];
    let read = OwnFile::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && (start.starts_with(ELF) || start == *ARCHIVE)
}

/// Whether a file is an object that has to lie below 2 GiB, because its code holds
/// addresses in fields of 32 bits (the small non-PIC model): a session that is to take it
/// needs [`JitBuilder::low_addresses`](crate::JitBuilder::low_addresses). What cannot be
/// read needs nothing: adding it tells why.
pub fn needs_low_addresses(path: &Path) -> bool {
    let object = || {
        let mut file = OwnFile::open(path).ok()?;
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

#[cfg(test)]
mod tests {
    use super::{STACK, share};

    #[test]
    fn threads_get_a_share_of_what_is_left() {
        const MIB: usize = 1 << 20;
        assert_eq!(share(None, 9), (STACK, 9));
        let table = [0, 10, 40, 100, 1000].map(|left| share(Some(left * MIB), 9));
        let expected = [(2, 1), (2, 1), (2, 5), (6, 4), (16, 9)];
        assert_eq!(table, expected.map(|(stack, jobs)| (stack * MIB, jobs)));
    }
}
