//! Static storage of a library that the command makes: for thread-locals of a program that are
//! larger than the [reserve](super::reserve).
//!
//! Static storage is laid out while a process starts, before the program is known. If the command
//! finds larger thread-locals, it restarts itself with a library that has enough storage
//! (`uruk run` preloads it; see `thread_locals` there). The library defines [`NAME`], a word that
//! holds the size of its block; the block holds one template.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::reserve::thread_pointer;

/// The word that the library defines.
const NAME: &CStr = c"uruk_thread_local_room";

/// The library's block.
pub(crate) struct LibraryBlock {
    /// Its offset from the thread pointer, in any thread.
    pub(crate) offset: i64,
    /// Address of the image from which new threads are initialized.
    pub(crate) image: usize,
    /// Bytes of the image and of a thread's block, and their alignment.
    pub(crate) sizes: [u64; 3],
    /// Bytes in use; only the thread that loads programs changes it.
    used: AtomicUsize,
}

static ROOM: OnceLock<Option<LibraryBlock>> = OnceLock::new();

/// The room, if a template was placed in it. Takes no lock of the loader: threads that prepare for
/// guest code call this, and handlers may wait for them.
pub(in crate::host) fn in_use() -> Option<&'static LibraryBlock> {
    let room = ROOM.get()?.as_ref();
    room.filter(|room| room.used.load(Ordering::Relaxed) != 0)
}

/// The room, if this process was started with one; calls the loader. For the thread that loads a
/// program.
pub(crate) fn search() -> Option<&'static LibraryBlock> {
    ROOM.get_or_init(find).as_ref()
}

fn find() -> Option<LibraryBlock> {
    // SAFETY: a C string.
    let word = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    if word.is_null() {
        return None;
    }
    let mut search = Search {
        word: word as u64,
        found: None,
    };
    // SAFETY: the callback gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast::<c_void>()) };
    search.found
}

struct Search {
    word: u64,
    found: Option<LibraryBlock>,
}

/// Selects the library that has the word.
///
/// # Safety
/// 1. `info` is the loader's record of a library, and `search` a [`Search`].
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: duty 1.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: the headers of a loaded library.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let has_word = headers.iter().any(|it| {
        let start = info.dlpi_addr.wrapping_add(it.p_vaddr);
        it.p_type == libc::PT_LOAD && (start..start + it.p_memsz).contains(&search.word)
    });
    if !has_word {
        return 0;
    }
    let tls = headers.iter().find(|it| it.p_type == libc::PT_TLS);
    search.found = tls
        .filter(|_| !info.dlpi_tls_data.is_null())
        .map(|tls| LibraryBlock {
            offset: info.dlpi_tls_data as i64 - thread_pointer(),
            image: info.dlpi_addr.wrapping_add(tls.p_vaddr) as usize,
            sizes: [tls.p_filesz, tls.p_memsz, tls.p_align],
            used: AtomicUsize::new(0),
        });
    1
}

impl LibraryBlock {
    /// Takes the whole block for a template; returns its offset from the thread pointer.
    pub(crate) fn take(&self, size: usize, align: usize) -> Option<i64> {
        let [file, _, most] = self.sizes;
        let fits = size as u64 <= file && align as u64 <= most;
        if !fits || self.used.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.used.store(size, Ordering::Relaxed);
        Some(self.offset)
    }

    /// Writes a template into the calling thread's block and into the image of new threads.
    pub(crate) fn fill(&self, image: &[u8]) {
        let used = self.used.load(Ordering::Relaxed);
        let mine = (thread_pointer() + self.offset) as *mut u8;
        for target in [mine, self.image as *mut u8] {
            // SAFETY: `take` gave the first `used` bytes of the block to this template alone, and
            // the library's image of it may be written to.
            unsafe {
                std::ptr::write_bytes(target, 0, used);
                std::ptr::copy_nonoverlapping(image.as_ptr(), target, image.len().min(used));
            }
        }
    }

    /// Copies the template into the calling thread if it was filled in after it started.
    pub(in crate::host) fn refresh(&self) {
        let used = self.used.load(Ordering::Relaxed);
        let mine = (thread_pointer() + self.offset) as *mut u8;
        // SAFETY: the first `used` bytes of both; this thread's copy is not in use yet.
        unsafe { std::ptr::copy_nonoverlapping(self.image as *const u8, mine, used) };
    }
}
