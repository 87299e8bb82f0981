//! Files of the runtime in the process of a program that owns all descriptors.
//!
//! A program closes descriptors that it did not open (daemons: 3 to the limit), and relies on the number
//! that the next file gets (`close(0)`, then `open`). So a file of ours:
//!
//! - has a number from 40 on, except for the microsecond before it is moved there; below 64 since the
//!   kernel waits for all processors to make a larger table, which took 9 ms;
//! - is identified by device and inode: if the program closed it and another file has the number,
//!   [`OwnFile`] neither writes to it nor closes it, and data that [`read`] got is an error;
//! - may be closed by other code at any time without a panic or an abort, which `std::fs` would cause.
//!
//! Files are written by an [`OutputPath`], messages by [`say!`]: neither raises a signal in the
//! program ([`WriteSignals`]).
//!
//! A race remains: another thread can change the file of a number between the check and the access.

#![deny(missing_docs)]

mod messages;
mod output;
mod signals;
mod threads;

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::RawDir;

pub use messages::{Messages, print, shown};
pub use output::OutputPath;
pub use signals::WriteSignals;
pub use threads::threads;

/// The least number, and the count of starting numbers: consecutive files have different numbers, so
/// that the owner of a lost one does not find the next one there.
const NUMBERS: (i32, i32) = (40, 16);

/// Attempts to open a file whose number the program takes at once, or whose path names another file by
/// then.
const TRIES: usize = 3;

/// A file of ours.
#[derive(Debug)]
pub struct OwnFile {
    file: ManuallyDrop<File>,
    /// Device and inode.
    is: (u64, u64),
}

impl OwnFile {
    /// Opens `path` to read it.
    ///
    /// # Errors
    ///
    /// Those of `std::fs::File::open`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<OwnFile> {
        OwnFile::open_with(path, OpenOptions::new().read(true))
    }

    /// Opens `path` with `options`; other programs do not inherit the descriptor.
    ///
    /// # Errors
    ///
    /// Those of `std::fs::OpenOptions::open`; [`is_taken`] if the program closed the file at once.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<OwnFile> {
        let path = path.as_ref();
        for _ in 0..TRIES {
            let raw = options.open(path)?.into_raw_fd();
            // This thread may have slept since the call. If the number refers to the file of the path,
            // it is ours; otherwise it is the program's. A path that is gone, as of a thread that ended,
            // proves nothing.
            let about = std::fs::metadata(path).ok();
            let meant = about.map(|about| (about.dev(), about.ino()));
            if let Some(is) = identity(raw)
                && meant.is_none_or(|meant| meant == is)
            {
                return OwnFile::moved(OwnFile::known(raw, is));
            }
        }
        Err(taken())
    }

    /// Opens `name` in `folder`, with flags of `open` and the mode of a created file.
    fn open_at(
        folder: RawFd,
        name: &CStr,
        flags: libc::c_int,
        mode: libc::mode_t,
    ) -> io::Result<OwnFile> {
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: a C string; any number may be given for the folder.
        let raw = unsafe { libc::openat(folder, name.as_ptr(), flags, mode) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // As in `open_with`: the program may have the number by now.
        let about = output::about_at(folder, name, flags & libc::O_NOFOLLOW == 0);
        let meant = about.ok().map(|about| (about.st_dev, about.st_ino));
        match identity(raw) {
            Some(is) if meant.is_none_or(|meant| meant == is) => {
                OwnFile::moved(OwnFile::known(raw, is))
            }
            _ => Err(taken()),
        }
    }

    /// Takes over `file`, under another number if one is free.
    ///
    /// # Errors
    ///
    /// The descriptor is closed already.
    pub fn of(file: impl Into<OwnedFd>) -> io::Result<OwnFile> {
        OwnFile::moved(OwnFile::owning(file.into().into_raw_fd())?)
    }

    /// An empty file in memory, which has no path and ends with its last descriptor and mapping;
    /// other programs do not inherit it. Code may be mapped from it if it is `executable`, where the
    /// kernel allows that.
    ///
    /// # Errors
    ///
    /// Those of `memfd_create`; [`is_taken`] if the program closed the file at once.
    pub fn in_memory(name: &CStr, executable: bool) -> io::Result<OwnFile> {
        /// Since Linux 6.3; older kernels refuse unknown flags, and do not need it.
        const MFD_EXEC: libc::c_uint = 0x10;
        for _ in 0..TRIES {
            // SAFETY: a C string and flags.
            let made = |flags| unsafe { libc::memfd_create(name.as_ptr(), flags) };
            let mut raw = -1;
            if executable {
                raw = made(libc::MFD_CLOEXEC | MFD_EXEC);
                let refused = io::Error::last_os_error();
                if raw < 0 && refused.raw_os_error() != Some(libc::EINVAL) {
                    return Err(refused);
                }
            }
            if raw < 0 {
                raw = made(libc::MFD_CLOEXEC);
            }
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            // Only files in memory have seals, and a file that the program has put there is not empty.
            // SAFETY: any number may be asked about.
            let sealed = unsafe { libc::fcntl(raw, libc::F_GET_SEALS) };
            if sealed >= 0
                && let Some(about) = about(raw)
                && (about.st_size, about.st_nlink) == (0, 0)
            {
                let is = (about.st_dev, about.st_ino);
                return OwnFile::moved(OwnFile::known(raw, is));
            }
        }
        Err(taken())
    }

    /// Makes the file as long as `bytes`.
    ///
    /// # Errors
    ///
    /// Those of `ftruncate`; [`is_taken`].
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        let _held = WriteSignals::hold();
        self.checked()?.set_len(bytes)
    }

    /// Moves the file to another number, if one is free.
    fn moved(low: OwnFile) -> io::Result<OwnFile> {
        /// Order of the requested numbers.
        static NEXT: AtomicI32 = AtomicI32::new(0);
        let (least, count) = NUMBERS;
        let least = least + NEXT.fetch_add(1, Ordering::Relaxed).rem_euclid(count);
        if low.as_raw_fd() >= least {
            return Ok(low);
        }
        match rustix::io::fcntl_dupfd_cloexec(&low, least) {
            Ok(high) => {
                let high = OwnFile::owning(high.into_raw_fd())?;
                // Fails if the program put another file there meanwhile.
                if high.is == low.is {
                    Ok(high)
                } else {
                    Err(taken())
                }
            }
            // The program's limit is lower.
            Err(_) => Ok(low),
        }
    }

    /// Owns a descriptor that was just made.
    fn owning(raw: RawFd) -> io::Result<OwnFile> {
        Ok(OwnFile::known(raw, identity(raw).ok_or_else(taken)?))
    }

    /// Owns a descriptor that is known to refer to this file.
    fn known(raw: RawFd, is: (u64, u64)) -> OwnFile {
        // SAFETY: an open descriptor that its maker gave up. It is never closed through the `File`, only
        // by `drop` after its check.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(raw) });
        OwnFile { file, is }
    }

    /// Whether the number still refers to this file.
    pub fn is_ours(&self) -> bool {
        identity(self.file.as_raw_fd()) == Some(self.is)
    }

    /// The file, for operations of `std`.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn checked(&self) -> io::Result<&File> {
        if self.is_ours() {
            Ok(&self.file)
        } else {
            Err(taken())
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the number refers to our file, and no code uses it after this.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }
}

/// Reads from this file and no other.
impl Read for OwnFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.checked()?.read(buffer)
    }
}

/// Reads like `OwnFile`, from several threads.
impl Read for &OwnFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.checked()?.read(buffer)
    }
}

impl Seek for OwnFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self.file).seek(to)
    }
}

/// Writes into this file and no other.
impl Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes like `OwnFile`, from several threads.
impl Write for &OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _held = WriteSignals::hold();
        self.checked()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileExt for OwnFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let _held = WriteSignals::hold();
        self.checked()?.write_at(bytes, at)
    }
}

impl AsRawFd for OwnFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads a file whole.
///
/// # Errors
///
/// Those of `std::fs::read`; [`is_taken`] if the program closed the file meanwhile.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = OwnFile::open(path)?;
    let size = file.file.metadata().map_or(0, |about| about.len());
    // Files that the kernel generates have no size.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).max(4096));
    file.read_to_end(&mut bytes)?;
    file.checked()?;
    Ok(bytes)
}

/// Reads a regular file that is no larger than `most` bytes; lack of memory is an error.
///
/// # Errors
///
/// Those of [`read`]; `path` is no regular file, or a larger one.
pub fn read_at_most(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        let message = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut file = OwnFile::open(path)?;
    let size = about.len();
    if size > most {
        let message = format!("{size} bytes, of which at most {most} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let mut bytes = Vec::new();
    // It may have grown since; the added part is not read.
    bytes.try_reserve_exact(size as usize)?;
    Read::by_ref(&mut file).take(size).read_to_end(&mut bytes)?;
    file.checked()?;
    Ok(bytes)
}

/// Reads the text that an earlier run left in an output. Only a regular file has such text: reading a
/// FIFO would wait for a writer.
///
/// # Errors
///
/// Those of [`read`]; `path` is no regular file.
pub fn read_left(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    read(path)
}

/// Writes a file whole, as [`OutputPath::write`] does; it is created if it does not exist.
///
/// # Errors
///
/// Those of [`OutputPath::new`] and [`OutputPath::write`].
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    OutputPath::new(path)?.write(bytes.as_ref())
}

/// Reads a text whole.
///
/// # Errors
///
/// Those of [`read`], and text that is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Passes the names in a folder to `with`, except `.` and `..`.
///
/// # Errors
///
/// The folder cannot be opened or read; [`is_taken`] if the program closed it meanwhile.
pub fn names(path: impl AsRef<Path>, with: impl FnMut(&CStr)) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_DIRECTORY);
    pass_names(&OwnFile::open_with(path, options)?, with)
}

/// Passes the names in an open folder to `with`, except `.` and `..`.
fn pass_names(folder: &OwnFile, mut with: impl FnMut(&CStr)) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            with(name);
        }
    }
    folder.checked()?;
    Ok(())
}

/// Whether two descriptors refer to one file.
pub fn is_same(one: RawFd, other: RawFd) -> bool {
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether `error` means that the program closed a file of ours.
pub fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADF)
}

fn taken() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

fn identity(raw: RawFd) -> Option<(u64, u64)> {
    about(raw).map(|about| (about.st_dev, about.st_ino))
}

fn about(raw: RawFd) -> Option<libc::stat> {
    // SAFETY: zeros are a valid value.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: any number may be asked about; the answer has room.
    let known = unsafe { libc::fstat(raw, &raw mut about) } == 0;
    known.then_some(about)
}

#[cfg(test)]
mod tests;
