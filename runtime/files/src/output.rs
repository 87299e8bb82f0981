//! Output files that are written whole, during a run or at its end.
//!
//! The process belongs to a program, which may have changed its working directory, its `umask` and its
//! limits by then, and other users may write to the folder. So:
//!
//! - the folder is opened at the start and used until the end;
//! - a regular file is replaced: the text goes to a draft, which takes the place of the file once
//!   it is complete. An old file survives each failure;
//! - mode and owner stay those of the old file; a new file gets its mode from the `umask` at the start;
//! - a draft has a random name and is new (`O_EXCL`), so that no link is followed;
//! - links, devices and FIFOs stay and are written to. No open or write waits for ever.

use std::ffi::{CStr, CString, OsStr};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{OwnFile, WriteSignals, about, is_taken, taken};

/// Random names that are tried for a draft.
const DRAFTS: usize = 8;

/// Bytes of a file's name that begin the name of its draft: names have 255 bytes at most.
const STEM: usize = 200;

/// Milliseconds without progress after which a FIFO or device counts as not read.
const PATIENCE: libc::c_int = 10_000;

/// A file to be written, by the meaning of its name when this was made.
#[derive(Debug)]
pub struct OutputPath {
    path: PathBuf,
    /// The folder by a name that does not depend on the current folder.
    absolute: PathBuf,
    folder: OwnFile,
    name: CString,
    /// The mode of a new file.
    mode: libc::mode_t,
}

impl OutputPath {
    /// Opens the folder of `path`.
    ///
    /// # Errors
    ///
    /// `path` ends as the name of a folder, or its folder cannot be opened.
    pub fn new(path: impl AsRef<Path>) -> io::Result<OutputPath> {
        let path = path.as_ref();
        let text = path.as_os_str().as_bytes();
        let start = text
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |at| at + 1);
        let (parent, name) = text.split_at(start);
        if text.is_empty() {
            return Err(error(libc::ENOENT));
        }
        if matches!(name, b"" | b"." | b"..") {
            return Err(error(libc::EISDIR));
        }
        let parent = match parent {
            b"" => Path::new("."),
            parent => Path::new(OsStr::from_bytes(parent)),
        };
        let folder = open_folder(parent)?;
        Ok(OutputPath {
            path: path.to_owned(),
            absolute: std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned()),
            folder,
            name: CString::new(name)?,
            mode: 0o666 & !umask(),
        })
    }

    /// Lets users who may read a new file by the `umask` execute it, too.
    #[must_use]
    pub fn executable(mut self) -> OutputPath {
        self.mode |= (self.mode & 0o444) >> 2;
        self
    }

    /// The name as given by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the file can be written, without changing it. A FIFO is not opened: its reader would
    /// take that for the whole text.
    ///
    /// # Errors
    ///
    /// The error that a write at this moment would give.
    pub fn check(&self) -> io::Result<()> {
        self.in_folder(|folder| match self.kind(folder)? {
            Kind::Missing => Draft::new(folder, &self.name).map(drop),
            Kind::Regular(_) => self.may_write(folder),
            Kind::Other => match about_at(folder, &self.name, true) {
                Ok(about) => match about.st_mode & libc::S_IFMT {
                    libc::S_IFDIR => Err(error(libc::EISDIR)),
                    libc::S_IFSOCK => Err(error(libc::ENXIO)),
                    _ => self.may_write(folder),
                },
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(cause) => Err(cause),
            },
        })
    }

    /// Whether this is the regular file that `other` names, by device and inode.
    pub fn is_file(&self, other: &Path) -> bool {
        let Ok(other) = std::fs::metadata(other) else {
            return false;
        };
        other.is_file() && self.target() == Some((other.dev(), other.ino()))
    }

    /// Whether both are one regular file, or will be.
    pub fn is_same(&self, other: &OutputPath) -> bool {
        match (self.target(), other.target()) {
            (Some(one), Some(other)) => one == other,
            _ => {
                let missing = |path: &OutputPath| {
                    let kind = path.in_folder(|folder| path.kind(folder));
                    matches!(kind, Ok(Kind::Missing))
                };
                (self.folder.is, &self.name) == (other.folder.is, &other.name) && missing(self)
            }
        }
    }

    /// Writes the file whole. The old content stays if this fails, except data that a device, FIFO or
    /// link has received by then.
    ///
    /// # Errors
    ///
    /// The file cannot be written; a FIFO has no reader or is not read for ten seconds;
    /// [`is_taken`] if the program closed a file of ours meanwhile.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.in_folder(|folder| match self.kind(folder)? {
            Kind::Missing => self.replace(folder, None, bytes),
            Kind::Regular(old) => {
                self.may_write(folder)?;
                self.replace(folder, Some(&old), bytes)
            }
            Kind::Other => put(&mut self.open_there(folder, 0)?, bytes),
        })
    }

    /// Replaces the regular file `old`, or creates the file.
    fn replace(&self, folder: RawFd, old: Option<&libc::stat>, bytes: &[u8]) -> io::Result<()> {
        let in_place = || put(&mut self.open_there(folder, libc::O_NOFOLLOW)?, bytes);
        let mut draft = match Draft::new(folder, &self.name) {
            Ok(draft) => draft,
            // The folder belongs to another user, the file does not.
            Err(cause) if old.is_some() && is_refused(&cause) => return in_place(),
            Err(cause) => return Err(cause),
        };
        match old {
            None => set_mode(&draft.file, self.mode),
            Some(old) if !resembles(&draft.file, old) => {
                drop(draft);
                return in_place();
            }
            Some(_) => {}
        }
        draft.file.write_all(bytes)?;
        draft.rename(&self.name)
    }

    /// Opens the existing file to write to it, without waiting for readers.
    fn open_there(&self, folder: RawFd, flags: libc::c_int) -> io::Result<OwnFile> {
        let flags = flags | libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        match OwnFile::open_at(folder, &self.name, flags, 0) {
            // A link to a file that does not exist.
            Err(cause)
                if cause.kind() == io::ErrorKind::NotFound && flags & libc::O_NOFOLLOW == 0 =>
            {
                let file = OwnFile::open_at(folder, &self.name, flags | libc::O_CREAT, 0o600)?;
                set_mode(&file, self.mode);
                Ok(file)
            }
            Err(cause) if cause.raw_os_error() == Some(libc::ENXIO) => Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "it has no reader",
            )),
            opened => opened,
        }
    }

    fn may_write(&self, folder: RawFd) -> io::Result<()> {
        // SAFETY: a C string; any number may be given for the folder.
        let refused =
            unsafe { libc::faccessat(folder, self.name.as_ptr(), libc::W_OK, libc::AT_EACCESS) };
        if refused == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    /// Device and inode of the regular file that the name leads to.
    fn target(&self) -> Option<(u64, u64)> {
        let about = self
            .in_folder(|folder| about_at(folder, &self.name, true))
            .ok()?;
        let is_file = about.st_mode & libc::S_IFMT == libc::S_IFREG;
        is_file.then_some((about.st_dev, about.st_ino))
    }

    fn kind(&self, folder: RawFd) -> io::Result<Kind> {
        match about_at(folder, &self.name, false) {
            Ok(about) => match about.st_mode & libc::S_IFMT {
                libc::S_IFREG => Ok(Kind::Regular(about)),
                libc::S_IFDIR => Err(error(libc::EISDIR)),
                _ => Ok(Kind::Other),
            },
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
            Err(cause) => Err(cause),
        }
    }

    /// Calls `act` with the folder. If the program closed its descriptor, the folder is opened again by
    /// its name, provided that it is still the same.
    fn in_folder<T>(&self, act: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        if self.folder.is_ours() {
            return act(self.folder.as_raw_fd());
        }
        let again = open_folder(&self.absolute)?;
        if again.is != self.folder.is {
            return Err(taken());
        }
        act(again.as_raw_fd())
    }
}

/// A name in a folder.
enum Kind {
    Missing,
    Regular(libc::stat),
    /// A link, device, FIFO or socket.
    Other,
}

/// A new file, which is removed unless it replaces another.
struct Draft {
    folder: RawFd,
    name: CString,
    file: OwnFile,
    stays: bool,
}

impl Draft {
    fn new(folder: RawFd, name: &CStr) -> io::Result<Draft> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let mut tries = 0..DRAFTS;
        loop {
            let name = draft_name(name)?;
            match OwnFile::open_at(folder, &name, flags, 0o600) {
                Ok(file) => {
                    return Ok(Draft {
                        folder,
                        name,
                        file,
                        stays: false,
                    });
                }
                Err(cause)
                    if cause.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
                Err(cause) => {
                    if is_taken(&cause) {
                        remove(folder, &name);
                    }
                    return Err(cause);
                }
            }
        }
    }

    fn rename(mut self, to: &CStr) -> io::Result<()> {
        if !self.file.is_ours() {
            return Err(taken());
        }
        let (folder, from) = (self.folder, self.name.as_ptr());
        // SAFETY: C strings; any number may be given for the folder.
        if unsafe { libc::renameat(folder, from, folder, to.as_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.stays = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.stays {
            remove(self.folder, &self.name);
        }
    }
}

fn remove(folder: RawFd, name: &CStr) {
    // SAFETY: a C string; any number may be given for the folder.
    unsafe { libc::unlinkat(folder, name.as_ptr(), 0) };
}

fn draft_name(name: &CStr) -> io::Result<CString> {
    let mut random = [0_u8; 12];
    // SAFETY: bytes with their length.
    let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if got != random.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let name = name.to_bytes();
    let mut draft = vec![b'.'];
    draft.extend(&name[..name.len().min(STEM)]);
    let mut end = String::from(".");
    for byte in random {
        // Writing to a string does not fail.
        let _ = write!(end, "{byte:02x}");
    }
    draft.extend(end.as_bytes());
    Ok(CString::new(draft)?)
}

/// Gives `draft` the owner and the mode of `old`; returns whether it has them.
fn resembles(draft: &OwnFile, old: &libc::stat) -> bool {
    let Some(new) = about(draft.as_raw_fd()) else {
        return false;
    };
    let owned = (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid)
        // SAFETY: a descriptor of ours.
        || unsafe { libc::fchown(draft.as_raw_fd(), old.st_uid, old.st_gid) } == 0;
    owned && {
        set_mode(draft, old.st_mode & 0o7777);
        about(draft.as_raw_fd()).is_some_and(|new| new.st_mode == old.st_mode)
    }
}

/// Sets the mode; file systems without modes are not an error.
fn set_mode(file: &OwnFile, mode: libc::mode_t) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::fchmod(file.as_raw_fd(), mode) };
}

/// Writes `bytes` to an existing file. A regular file gets this length, and disk space for all of it
/// before its text changes.
fn put(file: &mut OwnFile, bytes: &[u8]) -> io::Result<()> {
    let about = file.file().metadata()?;
    if !about.is_file() {
        return feed(file, bytes);
    }
    reserve(file, about.len(), bytes.len() as u64)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// Reserves disk space for a text of `bytes`, if the file system can. On failure the file keeps its old
/// length.
fn reserve(file: &OwnFile, was: u64, bytes: u64) -> io::Result<()> {
    let Ok(wanted) = libc::off_t::try_from(bytes) else {
        return Err(error(libc::EFBIG));
    };
    let _held = WriteSignals::hold();
    // SAFETY: a descriptor of ours.
    if wanted == 0 || unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, wanted) } == 0 {
        return Ok(());
    }
    let cause = io::Error::last_os_error();
    if matches!(cause.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
        return Ok(());
    }
    let _ = file.set_len(was);
    Err(cause)
}

/// Writes to a FIFO or device, whose reader may be slow, but must exist.
fn feed(file: &mut OwnFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => bytes = &bytes[taken..],
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                let mut asked = libc::pollfd {
                    fd: file.as_raw_fd(),
                    events: libc::POLLOUT,
                    revents: 0,
                };
                // SAFETY: one entry.
                if unsafe { libc::poll(&raw mut asked, 1, PATIENCE) } == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

fn open_folder(path: &Path) -> io::Result<OwnFile> {
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    OwnFile::open_with(path, options)
}

/// The process's `umask`, from `/proc`: the system call would change it.
fn umask() -> libc::mode_t {
    let status = crate::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| libc::mode_t::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(0o022)
}

/// The state of `name` in `folder`; through links if they are followed.
pub(crate) fn about_at(folder: RawFd, name: &CStr, follow: bool) -> io::Result<libc::stat> {
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: zeros are a valid value.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a C string, and room for the answer.
    if unsafe { libc::fstatat(folder, name.as_ptr(), &raw mut about, flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(about)
}

fn is_refused(cause: &io::Error) -> bool {
    matches!(
        cause.raw_os_error(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS)
    )
}

fn error(number: libc::c_int) -> io::Error {
    io::Error::from_raw_os_error(number)
}
