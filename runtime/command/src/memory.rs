//! Memory of the command when memory is short.

use std::alloc::{GlobalAlloc, Layout, System};

use uruk::{EXIT_FAILURE, Room};

/// With fewer bytes left, threads share one arena of the C library.
const ARENAS: usize = 4 << 30;

/// The system's allocator. `std` aborts when memory is exhausted; this prints an error and ends the
/// process with the status of a failed runtime.
struct OrEnd;

#[global_allocator]
static ALLOCATOR: OrEnd = OrEnd;

// SAFETY: passes everything on to the system's allocator, except null, which callers never see.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.realloc(old, layout, size) }, size)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) };
    }
}

fn or_end(made: *mut u8, size: usize) -> *mut u8 {
    if made.is_null() {
        end(size);
    }
    made
}

/// Prints without allocating that memory is exhausted, and ends the process.
#[cold]
fn end(size: usize) -> ! {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    let mut rest = size;
    loop {
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || first == 0 {
            break;
        }
        first -= 1;
    }
    let pieces: [&[u8]; 3] = [
        b"uruk: out of memory: no ",
        &digits[first..],
        b" bytes left for the runtime (see `ulimit -v` and `-d`)\n",
    ];
    for piece in pieces {
        // SAFETY: writes bytes of ours; a failed write is ignored.
        unsafe { libc::write(libc::STDERR_FILENO, piece.as_ptr().cast(), piece.len()) };
    }
    // SAFETY: no exit handler runs.
    unsafe { libc::_exit(EXIT_FAILURE) }
}

/// Limits arenas if memory is short; called before there are threads. Each thread but the first gets an
/// arena of the C library's that takes 64 MiB of address space and 128 while it is made. Without room
/// for one, each of its allocations is a mapping of its own.
pub fn spare() {
    if Room::now().is_some_and(|room| room.left() < ARENAS) {
        // SAFETY: a setting of the C library's.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
