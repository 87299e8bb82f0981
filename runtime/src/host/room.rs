//! Room in the address space: the place of a session, and its memory use where that is limited
//! (`ulimit -v`, `ulimit -d`).
//!
//! With `left` bytes left before a session is made:
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
//! Where address space is limited, each use takes a share of the rest (`heap::room`, `room`).

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use uruk_files::OwnFile;
use uruk_heap::Room;
use uruk_link::Object;

use crate::error::{Error, limits};
use crate::fork::thread::{self, SMALLEST_STACK, STACK};
use crate::host::llvm;

/// The command's advice for code that [needs low addresses](Error::wants_low_addresses).
pub(crate) const LOW_ADDRESSES: &str = "`--low-addresses` places the program below 2 GiB";

/// Time without a write after which, or after twice that, code becomes read-only
/// ([`Heap::rest`](uruk_heap::Heap::rest)). Closing takes 18 us; opening delays the next first call
/// by 11 us, and by 2 us for each page that is written again. Closing after every publication would
/// cost that each time, for compiles of 200 us.
pub(crate) const REST: Duration = Duration::from_millis(20);

/// The magic number of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The first bytes of an archive.
const ARCHIVE: &[u8; 8] = b"!<arch>\n";

/// Minimal room for a session: a small heap, three threads, and one compile.
const NEEDED: usize = 40 << 20;

/// Checks that there is room for a session. Where room is limited, LLVM's library is opened now:
/// the rest is shared.
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

/// LLVM's message of a failed allocation, with the limit that may be the cause.
pub(crate) fn with_limits(message: &str) -> String {
    // "Allocation failed", "Buffer allocation failed".
    let room = Room::now().filter(|_| message.contains("llocation failed"));
    room.map_or_else(
        || message.to_owned(),
        |room| format!("{message}: {}", limits(room.limit, room.used, None)),
    )
}

/// Sets the stack size of future threads by the room, and returns how many of `jobs` workers fit.
pub(crate) fn threads(jobs: usize) -> usize {
    let (stack, workers) = share(Room::now().map(|room| room.left()), jobs);
    thread::set_stack(stack);
    workers
}

/// Stack size of a thread, and how many of `jobs` workers fit.
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

/// Whether a file is an object or an archive, whose code may reach variables of the process's
/// libraries only from near them. A session for such files should be made with
/// [`JitBuilder::near_libraries`](crate::JitBuilder::near_libraries).
pub fn needs_near_libraries(path: &Path) -> bool {
    let mut start = [0; ARCHIVE.len()];
    let read = OwnFile::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && (start.starts_with(ELF) || start == *ARCHIVE)
}

/// Whether a file is an object that must lie below 2 GiB, because its code holds addresses in
/// fields of 32 bits (the small non-PIC model). A session for such files needs
/// [`JitBuilder::low_addresses`](crate::JitBuilder::low_addresses). False for a file that cannot be
/// read: adding it reports the error.
pub fn needs_low_addresses(path: &Path) -> bool {
    let object = || {
        let mut file = OwnFile::open(path).ok()?;
        // Other files are not read here, as they may be large.
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
