//! The table of a region: the head of a list for each page.
//!
//! It is demand-zero memory. So a region of 2 GiB (4 MiB of table) costs only the pages that are
//! used: 8 bytes for each page that has code.

use crate::node::{Link, UnwindError};
use crate::sync::AtomicPtr;

/// Heads of the pages' lists.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct PageTable {
    heads: *const AtomicPtr<Link>,
    pages: usize,
}

// SAFETY: the table owns its mapping and gives out only shared references to
// atomics in it.
#[cfg(not(loom))]
unsafe impl Send for PageTable {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for PageTable {}

#[cfg(not(loom))]
impl PageTable {
    pub(crate) fn new(pages: usize) -> Result<PageTable, UnwindError> {
        let bytes = pages.saturating_mul(size_of::<AtomicPtr<Link>>());
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let heads = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if heads == libc::MAP_FAILED {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(UnwindError::Table { bytes, errno });
        }
        Ok(PageTable {
            heads: heads.cast(),
            pages,
        })
    }

    pub(crate) fn head(&self, page: usize) -> &AtomicPtr<Link> {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: in bounds of the mapping, which lives as long as `self`, is
        // aligned to a page, and whose zero bytes are null pointers.
        unsafe { &*self.heads.add(page) }
    }
}

#[cfg(not(loom))]
impl Drop for PageTable {
    fn drop(&mut self) {
        let bytes = self.pages * size_of::<AtomicPtr<Link>>();
        // SAFETY: our own mapping, with no reference into it left.
        unsafe { libc::munmap(self.heads.cast_mut().cast(), bytes) };
    }
}

/// The table under loom, which must make its atomics itself.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct PageTable {
    heads: Box<[AtomicPtr<Link>]>,
}

#[cfg(loom)]
impl PageTable {
    pub(crate) fn new(pages: usize) -> Result<PageTable, UnwindError> {
        let null = |_| AtomicPtr::new(std::ptr::null_mut());
        let heads = (0..pages).map(null).collect();
        Ok(PageTable { heads })
    }

    pub(crate) fn head(&self, page: usize) -> &AtomicPtr<Link> {
        &self.heads[page]
    }
}
