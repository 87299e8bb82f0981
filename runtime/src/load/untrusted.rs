//! Untrusted inputs: another process reads them first.
//!
//! LLVM's reader trusts its input in places. Damaged bitcode makes it follow wild pointers,
//! allocate without end or loop, and no earlier check finds all of that. So a session with
//! [`JitBuilder::untrusted`](crate::JitBuilder::untrusted) forks a child for each input of bitcode
//! or IR. The child reads all of it, verifies it and compiles it once at the first tier, within a
//! limit of time and of memory, and reports the result through a pipe. Only inputs that the child
//! completed are read here. The session forks again for the next input, so an input cannot affect
//! another through the child.
//!
//! The child runs only code of the runtime and LLVM. Every signal is reset to its default before
//! the input is read, no worker is started there ([`fork::bare`]), and it ends by `_exit`. Handlers
//! of `pthread_atfork` run as before every fork, on both sides. The fork takes the gate like any
//! other, so LLVM's own locks are free in the child.
//!
//! The check does not cover the *behaviour* of the code when it runs. It also trusts the compiler
//! for tiers 2 and 3, whose failures cost a thread (`uruk_codegen::fatal`).

mod admit;

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_codegen::{Bitcode, CodegenError, fatal};
use uruk_files::OwnFile;

use crate::error::Error;
use crate::error::input::Rejection;
use crate::fork;
use crate::load::source::InputSource;

/// Limits of the child that reads an untrusted input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLimits {
    /// Processor time, rounded up to whole seconds. Default: 20 s.
    pub processor_time: Duration,
    /// Wall-clock time, which bounds the wait of an `add`. Default: 60 s.
    pub time: Duration,
    /// Bytes of address space in addition to those of the process. Default: 2 GiB.
    pub memory: u64,
}

impl Default for InputLimits {
    fn default() -> InputLimits {
        InputLimits {
            processor_time: Duration::from_secs(20),
            time: Duration::from_secs(60),
            memory: 2 << 30,
        }
    }
}

/// The child finished without an error.
const GOOD: u8 = b'+';
/// The child refused it with a message.
const BAD: u8 = b'-';
/// LLVM had no memory left.
const FULL: u8 = b'm';
/// Maximal bytes of a message that are passed on.
const MESSAGE: usize = 4000;
/// Interval, in milliseconds, of the parent's checks for the child.
const LOOK: c_int = 50;

impl InputLimits {
    /// Makes a child read `source`. Without a pass: the fork closes the gate.
    pub(crate) fn admit(&self, source: &InputSource) -> Result<(), Error> {
        match source {
            // LLVM does not read it, and its reader checks every bound.
            InputSource::Object { .. } | InputSource::Undefined(_) => return Ok(()),
            InputSource::Archive(archive) => {
                let mut members = 0..archive.len();
                return members.try_for_each(|member| self.admit(&archive.source(member)?));
            }
            _ => {}
        }
        self.apart(|| read(source)).map_err(|why| Error::Untrusted {
            file: source.name().to_owned(),
            why,
        })
    }

    /// Runs `read` in a child.
    fn apart(&self, read: impl FnOnce() -> Result<(), CodegenError>) -> Result<(), Rejection> {
        let (from, to) = pipe().map_err(|cause| Rejection::Unreadable(Arc::new(cause)))?;
        let bare = fork::bare();
        // SAFETY: the child runs `child` only, which never returns.
        let id = unsafe { libc::fork() };
        if id == 0 {
            self.child(read, to);
        }
        drop(bare);
        if id < 0 {
            return Err(Rejection::Unreadable(Arc::new(io::Error::last_os_error())));
        }
        drop(to);
        let (answer, status) = self.wait(id, from);
        self.judge(&answer, status)
    }

    /// Returns the child's answer, and its status if that is known.
    fn wait(&self, id: c_int, mut from: OwnFile) -> (Vec<u8>, Option<c_int>) {
        let mut answer = Vec::new();
        let start = Instant::now();
        let mut status = None;
        loop {
            let mut ready = libc::pollfd {
                fd: from.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid entry.
            let count = unsafe { libc::poll(&raw mut ready, 1, LOOK) };
            if count > 0 {
                let mut piece = [0; 512];
                match from.read(&mut piece) {
                    Ok(0) => break,
                    Ok(length) => answer.extend_from_slice(&piece[..length]),
                    Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            } else if status.is_some() {
                // The child has ended, and another process has inherited the pipe.
                break;
            } else if start.elapsed() > self.time {
                // SAFETY: a child of this process, which was not waited for yet.
                unsafe { libc::kill(id, libc::SIGKILL) };
            }
            if status.is_none() {
                status = reap(id, libc::WNOHANG);
            }
        }
        // Its end of the pipe is closed: it is about to end, or has.
        let status = status.or_else(|| reap(id, 0));
        (answer, status)
    }

    fn judge(&self, answer: &[u8], status: Option<c_int>) -> Result<(), Rejection> {
        match (answer, status) {
            ([GOOD], _) => Ok(()),
            ([FULL, ..], _) => Err(Rejection::Memory(self.memory)),
            ([BAD, message @ ..], _) => Err(Rejection::Invalid(
                String::from_utf8_lossy(message).into_owned(),
            )),
            (_, Some(status)) if libc::WIFSIGNALED(status) => Err(match libc::WTERMSIG(status) {
                libc::SIGXCPU => Rejection::ProcessorTime(self.processor_time),
                libc::SIGKILL => Rejection::Time(self.time),
                signal => Rejection::Crashed { signal },
            }),
            _ => Err(Rejection::Silent),
        }
    }

    /// Runs the child.
    fn child(&self, read: impl FnOnce() -> Result<(), CodegenError>, mut to: OwnFile) -> ! {
        self.confine();
        let mut fatal = to.file().try_clone().ok();
        let work = AssertUnwindSafe(|| {
            let on_fatal = move |message: &str| {
                if let Some(to) = &mut fatal {
                    say(to, Err(message.to_owned()));
                }
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) }
            };
            fatal::guard(on_fatal, read)
        });
        // After a panic the answer is missing, which reports it.
        if let Ok(result) = catch_unwind(work) {
            say(&mut to, result.map_err(|cause| cause.to_string()));
        }
        // SAFETY: ends the child, and runs no handlers.
        unsafe { libc::_exit(0) }
    }

    /// Removes the child's handlers and output, and sets its limits.
    fn confine(&self) {
        let seconds = self.processor_time.as_secs_f64().ceil().max(1.0) as u64;
        // SAFETY: plain calls with valid arguments, in a process with one thread. If a call fails,
        // the child has more rights than it should; the time limit then ends it.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            for signal in 1..=libc::SIGRTMAX() {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            libc::dup2(null, libc::STDERR_FILENO);
            limit(libc::RLIMIT_CORE, 0, 0);
            limit(libc::RLIMIT_CPU, seconds, 1);
        }
        if let Some(used) = address_space() {
            // SAFETY: as above.
            unsafe { limit(libc::RLIMIT_AS, used.saturating_add(self.memory), 0) };
        }
    }
}

/// Makes a child process read and verify a file for
/// [`rebound`](crate::live::rebound): what LLVM crashes on is an error here.
///
/// # Errors
/// [`Error::Untrusted`].
pub fn read_apart(name: &str, bitcode: &[u8]) -> Result<(), Error> {
    let read = || uruk_codegen::native::inspect(name, bitcode);
    let limits = InputLimits::default();
    limits.apart(read).map_err(|why| Error::Untrusted {
        file: name.to_owned(),
        why,
    })
}

fn read(source: &InputSource) -> Result<(), CodegenError> {
    match source {
        InputSource::Bitcode(bitcode) => uruk_codegen::inspect(bitcode),
        InputSource::Text { file, text } => {
            uruk_codegen::inspect(&Bitcode::from_ir_text(file, text)?)
        }
        InputSource::Object { .. } | InputSource::Archive(_) | InputSource::Undefined(_) => Ok(()),
    }
}

/// Writes the child's only answer, in one write.
fn say(to: &mut impl Write, result: Result<(), String>) {
    let (kind, message) = match &result {
        Ok(()) => (GOOD, ""),
        Err(message) if message.contains("out of memory") => (FULL, ""),
        Err(message) if message.contains("Allocation failed") => (FULL, ""),
        Err(message) => (BAD, message.as_str()),
    };
    let mut word = vec![kind];
    word.extend(message.bytes().take(MESSAGE));
    // The parent has exited, so a failed write to the pipe is ignored.
    let _ = to.write_all(&word);
}

/// A pipe that no other program inherits: its reading end, and its writing end.
fn pipe() -> io::Result<(OwnFile, OwnFile)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are fresh, and owned here.
    let [from, to] = ends.map(|end| OwnFile::of(unsafe { OwnedFd::from_raw_fd(end) }));
    Ok((from?, to?))
}

/// The status of a child that has ended; `None` if it has not, or was waited for elsewhere.
fn reap(id: c_int, how: c_int) -> Option<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: a child of this process, and a valid place.
        match unsafe { libc::waitpid(id, &raw mut status, how) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ended if ended == id => return Some(status),
            _ => return None,
        }
    }
}

/// Lowers a soft limit, and the hard limit to `more` above it, which cannot be raised again.
///
/// # Safety
/// The process must be the child.
unsafe fn limit(what: libc::__rlimit_resource_t, value: u64, more: u64) {
    // SAFETY: valid places; the limits are this process's own.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(what, &raw mut now) == 0 {
            now.rlim_max = now.rlim_max.min(value.saturating_add(more));
            now.rlim_cur = now.rlim_cur.min(value);
            libc::setrlimit(what, &raw const now);
        }
    }
}

/// Bytes of the process's address space.
fn address_space() -> Option<u64> {
    let pages = uruk_files::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    // SAFETY: a plain query.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.checked_mul(u64::try_from(size).ok()?)
}
