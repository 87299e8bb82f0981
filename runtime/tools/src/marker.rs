//! Creates the mapping by which perf notices a jitdump.
//!
//! `perf record` sees every executable mapping of the processes it watches, with the
//! name of the file. A page of the dump is mapped executable, never run and never
//! unmapped: that event is how `perf inject` finds the dump.

use std::io;
use std::os::fd::AsRawFd;

use uruk_files::OwnFile;

const PAGE: usize = 4096;

/// Maps the first page of the file.
pub(super) fn map(file: &OwnFile) -> io::Result<()> {
    // SAFETY: a new private mapping at an address of the kernel's choice, not in use yet.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
