//! The folder of a comparison, and its removal at the end.
//!
//! Invariant: when the command ends, by itself or by SIGHUP, SIGINT or SIGTERM, the folder
//! is gone and no child runs. A signal that was ignored when the command started stays so.
//!
//! A thread waits for the signals. It takes the lock that also guards starting and reaping a child,
//! passes the signal on, removes the folder and ends the process as the signal would have. `SIGKILL` of
//! the command leaves the folder.

use std::fs::{DirBuilder, remove_dir_all};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use uruk_report::Nanos;

use super::child::nanos;

/// Time for a child to end by a signal that was passed on to it.
const GRACE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// A folder for files of this process only, removed when dropped; and the processes whose files are in
/// it, one at a time.
pub(super) struct Scratch {
    folder: PathBuf,
    /// The child that was started and not reaped yet.
    child: Arc<Mutex<Option<libc::pid_t>>>,
}

impl Scratch {
    /// Makes a folder that no other process has.
    pub(super) fn new(parent: &Path) -> io::Result<Scratch> {
        // Before there is a folder to remove.
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM].into_iter().filter(is_heeded))?;
        let folder = make_folder(parent)?;
        let child = Arc::new(Mutex::new(None));
        let (doomed, last) = (folder.clone(), Arc::clone(&child));
        let ends = move || {
            if let Some(signal) = signals.forever().next() {
                // Held until the process ends: no other child starts.
                let child = last.lock();
                child.map(|id| end(id, signal));
                remove(&doomed);
                // Returns only for signals that do not end a process.
                let _ = emulate_default_handler(signal);
            }
        };
        let started = thread::Builder::new()
            .name("signals".to_owned())
            .spawn(ends);
        let scratch = Scratch { folder, child };
        started.map(|_| scratch)
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a command to its end; returns its status, and the processor time of it and of the children
    /// it waited for.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<(ExitStatus, Nanos)> {
        let id = {
            let mut child = self.child.lock();
            let id = command.spawn()?.id() as libc::pid_t;
            *child = Some(id);
            id
        };
        // The child is not reaped, so its number is not reused while the lock is not held.
        while !has_ended(id, 0)? {}
        let mut child = self.child.lock();
        *child = None;
        reap(id)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn make_folder(parent: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let name = format!("uruk-compare-{}-{number}", std::process::id());
        let folder = parent.join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            // Left by a process of the same id that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn remove(folder: &Path) {
    // A folder that cannot be removed stays: the process is ending.
    let _ = remove_dir_all(folder);
}

/// Whether a signal is not ignored; `nohup` ignores it.
fn is_heeded(signal: &i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed, and there is room for the answer.
    let result = unsafe { libc::sigaction(*signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call filled it in if it succeeded.
    result != 0 || unsafe { action.assume_init() }.sa_sigaction != libc::SIG_IGN
}

/// Passes a signal on to a child that is not reaped, and kills the child after [`GRACE`].
fn end(id: libc::pid_t, signal: i32) {
    // SAFETY: the child is not reaped, so the number is its own.
    unsafe { libc::kill(id, signal) };
    let start = Instant::now();
    while start.elapsed() < GRACE {
        match has_ended(id, libc::WNOHANG) {
            Ok(false) => thread::sleep(POLL),
            Ok(true) | Err(_) => return,
        }
    }
    // SAFETY: as above.
    unsafe { libc::kill(id, libc::SIGKILL) };
}

/// Whether a child has ended; waits for that without `WNOHANG`. It is not reaped.
fn has_ended(id: libc::pid_t, options: i32) -> io::Result<bool> {
    let options = libc::WEXITED | libc::WNOWAIT | options;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: there is room for the answer.
    if unsafe { libc::waitid(libc::P_PID, id as libc::id_t, info.as_mut_ptr(), options) } != 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: all bits zero are a value of the type, and the call wrote others.
    let info = unsafe { info.assume_init() };
    // SAFETY: the field is one of a child's end, or zero.
    Ok(unsafe { info.si_pid() } != 0)
}

fn reap(id: libc::pid_t) -> io::Result<(ExitStatus, Nanos)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: two pointers to write to; no other code waits for this child.
    while unsafe { libc::wait4(id, &raw mut status, 0, usage.as_mut_ptr()) } != id {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: the call filled it in, as it returned the child's id.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok((ExitStatus::from_raw(status), nanos(cpu)))
}
