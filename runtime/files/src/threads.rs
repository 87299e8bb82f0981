//! The list of the process's threads, from a folder that stays open.
//!
//! Each opening of a file occupies the lowest free descriptor for a moment, which the program may see. The
//! list is read often, so its folder is opened once in a process.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{OwnFile, pass_names};

/// The open folder. Null at first, while a thread reads the list, and if two threads read it at once:
/// the second opens a folder of its own. No lock: a fork may come at any time.
static KEPT: AtomicPtr<Folder> = AtomicPtr::new(ptr::null_mut());

struct Folder {
    /// The process whose threads it lists: a child of a fork has the file, too.
    process: u32,
    file: OwnFile,
}

impl Folder {
    fn open() -> io::Result<Box<Folder>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_DIRECTORY);
        let file = OwnFile::open_with("/proc/self/task", options)?;
        let process = std::process::id();
        Ok(Box::new(Folder { process, file }))
    }

    /// The folder that was kept, at its beginning, if there is one and the program has not closed it.
    fn take() -> Option<Box<Folder>> {
        let kept = KEPT.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: pointers in `KEPT` come from boxes (`keep`), and the swap gave this one to this thread.
        let kept = (!kept.is_null()).then(|| unsafe { Box::from_raw(kept) })?;
        if kept.process != std::process::id() || !kept.file.is_ours() {
            return None;
        }
        // SAFETY: a file of ours; any number may be given.
        let start = unsafe { libc::lseek(kept.file.as_raw_fd(), 0, libc::SEEK_SET) };
        (start == 0).then_some(kept)
    }

    fn keep(self: Box<Folder>) {
        let own = Box::into_raw(self);
        let (ours, none) = (Ordering::Release, Ordering::Relaxed);
        let kept = KEPT.compare_exchange(ptr::null_mut(), own, ours, none);
        if kept.is_err() {
            // SAFETY: from a box, and no other thread has seen it.
            drop(unsafe { Box::from_raw(own) });
        }
    }
}

/// The threads of this process, unordered.
///
/// # Errors
///
/// `/proc` is not there; [`is_taken`](crate::is_taken) if the program closed the folder meanwhile.
pub fn threads() -> io::Result<Vec<i32>> {
    let folder = match Folder::take() {
        Some(folder) => folder,
        None => Folder::open()?,
    };
    let mut ids = Vec::new();
    let number = |name: &CStr| name.to_str().ok().and_then(|name| name.parse::<i32>().ok());
    pass_names(&folder.file, |name| ids.extend(number(name)))?;
    folder.keep();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::ptr;
    use std::sync::atomic::Ordering;

    use super::{Folder, KEPT, threads};

    fn own() -> i32 {
        // SAFETY: takes nothing.
        unsafe { libc::gettid() }
    }

    #[test]
    fn threads_are_listed_also_after_the_program_closed_the_folder() {
        for round in 0..20 {
            let listed = threads().expect("there");
            assert!(listed.contains(&own()), "{round}: {listed:?}");
            let other = std::thread::spawn(move || (own(), threads().expect("there")));
            let (tid, listed) = other.join().expect("no panic");
            assert!(listed.contains(&tid) && listed.contains(&own()));
            if round % 5 == 4 {
                let folder = Folder::take();
                if let Some(folder) = folder {
                    // SAFETY: closes the folder behind its owner's back, as a program may.
                    unsafe { libc::close(folder.file.as_raw_fd()) };
                    folder.keep();
                }
            }
        }
    }

    #[test]
    fn another_process_does_not_use_the_folder() {
        let mut folder = Folder::open().expect("there");
        folder.process += 1;
        drop(Folder::take());
        folder.keep();
        assert!(threads().expect("there").contains(&own()));
        let kept = KEPT.load(Ordering::Relaxed);
        if !ptr::eq(kept, ptr::null_mut()) {
            let kept = Folder::take();
            assert!(kept.is_none_or(|kept| kept.process == std::process::id()));
        }
    }
}
