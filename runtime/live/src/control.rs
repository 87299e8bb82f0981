//! Server side of `uruk swap`: questions that clients ask a live program.
//!
//! An abstract Unix socket, named by the number of the process. One line is the question, followed by
//! the bytes that it announces; the rest is the answer. Nothing listens on a network. The kernel
//! identifies the client: root may ask, and the user that the process has always had (`may_attach`). A
//! client trusts answers of the same user.
//!
//! | line | does |
//! |---|---|
//! | `swap immediate SIZE FILE`, `swap quiescent MS SIZE FILE` | exchanges functions by those of a file, of which so many bytes of bitcode follow |
//! | `swap immediate+osr SIZE FILE` | also in loops that threads are in |
//! | `swap immediate+signatures SIZE FILE`, `swap quiescent+signatures MS SIZE FILE` | also where types of functions changed |
//! | `rollback` | goes back to before the latest exchange, at the level of that |
//! | `rollback immediate`, `rollback quiescent MS` | the same, at another level |
//! | `explain`, `stats` | the tables |
//! | `stats json` | figures, as one object |
//! | `report`, `trace` | the page and the timeline of the run so far, if it is recorded |
//!
//! The first line of an answer is `ok` or `error`. In a path, bytes that are not visible ASCII are
//! written as `%XX`.

use std::io::{self, BufRead, BufReader, Read, Take, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use uruk::StatsFormat;
use uruk_files::OwnFile;

use crate::choose::{OF, stem};
use crate::explain;
use crate::locked::Locked;
use crate::question::{exchange, rollback};
use crate::seats::{self, Awaited, ExchangeSlot};
use crate::sent::{LARGEST, NewVersion};
use crate::session::Live;

/// Longest question.
const LONGEST: u64 = 64 << 10;

/// Time limit for a question to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause before a failed attempt to listen, or to accept a client, is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// The answer to a client that may not ask.
const REFUSED: &[u8] =
    b"error\nonly root, or the user and group that the process has always had, may ask it\n";

/// Answer to a client that asks for a run that was not recorded.
const NOT_RECORDED: &str = "nothing is recorded\n  tip: start it by `uruk live --record`";

pub(crate) fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("uruk-live-{process}"))
}

/// The user and group of the other side, as the kernel knows them.
pub(crate) fn peer(stream: &impl AsRawFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: an open socket, and room of that size for what is asked.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    };
    (got == 0).then_some(peer)
}

/// Whether the other side may have this process run its code. The rule is that of `ptrace`: root may,
/// and a client whose user and group this process has, as real, effective and saved ones. A process that
/// changed its user is out of reach, as it may hold data that the new user must not see.
fn may_attach(stream: &impl AsRawFd) -> bool {
    let Some(peer) = peer(stream) else {
        return false;
    };
    let (mut users, mut groups) = ([u32::MAX; 3], [u32::MAX; 3]);
    let ([real, effective, saved], [real_group, effective_group, saved_group]) =
        (&mut users, &mut groups);
    // SAFETY: six numbers, which live.
    let (got, dumpable) = unsafe {
        (
            libc::getresuid(real, effective, saved) == 0
                && libc::getresgid(real_group, effective_group, saved_group) == 0,
            libc::prctl(libc::PR_GET_DUMPABLE) == 1,
        )
    };
    peer.uid == 0 || got && dumpable && users == [peer.uid; 3] && groups == [peer.gid; 3]
}

/// The program, once it can answer; if it stays native, the reason.
pub type Asked = fn() -> Result<&'static Live, String>;

/// Answers clients from now on, on a thread of its own; prints an error once.
pub fn serve(live: Asked) {
    uruk::live::on_own_threads_end(hang_up);
    if let Err(cause) = begin(live) {
        uruk_files::say!("uruk live: nobody can attach: {cause}");
    }
}

/// Ends the waits of the threads that answer: the process gives up the system calls that they need.
fn hang_up() {
    let sockets = SOCKETS.with(|all| all.clone());
    for socket in sockets.iter().filter_map(Weak::upgrade) {
        if socket.is_ours() {
            // SAFETY: a socket of ours.
            unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// Starts to answer in the child of a fork, before its program goes on. Closes the sockets inherited
/// from the parent: clients of the parent then see when it ends, and clients that it was answering do
/// not wait for this process.
pub(crate) fn serve_in_child(live: Asked) {
    let sockets = SOCKETS.with(std::mem::take);
    for socket in sockets.iter().filter_map(Weak::upgrade) {
        if socket.is_ours() {
            // SAFETY: the descriptor is our file; the threads that used it do not exist in the child.
            unsafe { libc::close(socket.as_raw_fd()) };
        }
        // Their only other handles belong to those threads, and are never dropped.
        std::mem::forget(socket);
    }
    seats::clear();
    // A child that cannot be asked prints nothing: its parent has printed the reason.
    let _ = begin(live);
}

/// Sockets of this process: the one that listens, and those of clients.
static SOCKETS: Locked<Vec<Weak<OwnFile>>> = Locked::new(Vec::new());

/// A socket that a child of a fork closes.
fn listed(socket: OwnFile) -> Arc<OwnFile> {
    let socket = Arc::new(socket);
    SOCKETS.with(|all| {
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(&socket));
    });
    socket
}

fn begin(live: Asked) -> Result<(), Box<dyn std::error::Error>> {
    let first = listed(listen()?);
    let spawned = uruk::live::spawn_own("uruk-control", move || {
        let mut another = None;
        while !uruk::live::own_threads_end() {
            let listener = another.as_ref().unwrap_or(&first);
            // Clients are not accepted on the program's own sockets.
            if !listener.is_ours() {
                match listen() {
                    Ok(listener) => another = Some(listed(listener)),
                    // No descriptor is free, or the name is taken until its last socket is closed.
                    Err(_) => std::thread::sleep(PAUSE),
                }
                continue;
            }
            wait_for_client(listener);
            if !listener.is_ours() {
                continue;
            }
            match accept(listener) {
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Ok(stream) if may_attach(&stream) => attend(live, listed(stream)),
                Ok(mut stream) => drop(stream.write_all(REFUSED)),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    });
    Ok(spawned?)
}

/// Answers on a thread of its own: a question may take long to arrive, and an exchange long to make.
fn attend(live: Asked, stream: Arc<OwnFile>) {
    // `hang_up` shuts down only sockets that were listed before it ran.
    if uruk::live::own_threads_end() {
        return;
    }
    // The thread does not start again in a child of a fork, where this is empty.
    let kept = Arc::new(Locked::new(Some(stream)));
    let given = Arc::clone(&kept);
    let spawned = uruk::live::spawn_own("uruk-answer", move || {
        if let Some(stream) = given.with(Option::take) {
            // A client that went away gets no answer.
            let _ = answer(live, stream);
        }
    });
    if let Err(cause) = spawned
        && let Some(stream) = kept.with(Option::take)
    {
        let text = format!("error\nno thread can answer: {}\n", chain(&cause));
        let _ = (&*stream).write_all(text.as_bytes());
    }
}

/// Whether the other side is gone.
fn is_gone(stream: &OwnFile) -> bool {
    let mut asked = libc::pollfd {
        fd: stream.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one record, which lives.
    let found = unsafe { libc::poll(&mut asked, 1, 0) };
    found == 1 && asked.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// The socket at which questions arrive.
fn listen() -> io::Result<OwnFile> {
    let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
    listener.set_nonblocking(true)?;
    adopted(listener.into_raw_fd())
}

/// A socket that was just made, unless the program has put another file in its place.
fn adopted(raw: RawFd) -> io::Result<OwnFile> {
    let name = format!("\0uruk-live-{}", std::process::id());
    // SAFETY: zeros are a valid value.
    let mut found: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut size = std::mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: any number may be asked about; room of that size for the answer.
    let asked = unsafe { libc::getsockname(raw, (&raw mut found).cast(), &mut size) };
    let unix = libc::sa_family_t::try_from(libc::AF_UNIX) == Ok(found.sun_family);
    let bytes = found.sun_path.map(|byte| byte as u8);
    if asked != 0 || !unix || !bytes.starts_with(name.as_bytes()) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: made by the caller, and ours.
    OwnFile::of(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Waits until a client connects. `accept` is not used to wait: the kernel would reserve the lowest
/// descriptor meanwhile, and the program's next file would get another number than natively.
fn wait_for_client(listener: &OwnFile) {
    let mut asked = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one record, which lives.
    unsafe { libc::poll(&mut asked, 1, -1) };
}

/// The next client, if there is one.
fn accept(listener: &OwnFile) -> io::Result<OwnFile> {
    let (none, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC);
    // SAFETY: an open descriptor; the address is not asked for.
    let raw = unsafe { libc::accept4(listener.as_raw_fd(), none, none.cast(), flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    adopted(raw)
}

/// Sets a timeout of [`PATIENCE`] for reading and writing.
fn limit_waiting(stream: &OwnFile) -> io::Result<()> {
    let limit = libc::timeval {
        tv_sec: PATIENCE.as_secs() as libc::time_t,
        tv_usec: 0,
    };
    let size = std::mem::size_of::<libc::timeval>() as libc::socklen_t;
    for what in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: a descriptor, and a value of that size.
        let set = unsafe {
            let value = (&raw const limit).cast();
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, what, value, size)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reads the question before any answer is written: closing a socket with an unread question ends the
/// client's reading with an error.
fn question(stream: &Arc<OwnFile>) -> io::Result<(String, BufReader<Take<&OwnFile>>)> {
    let _awaited = Awaited::new(stream);
    limit_waiting(stream)?;
    let end = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut asked = BufReader::new((&**stream).take(LONGEST));
    // Checks the time after each part: a client that sends one byte a second has no more time than
    // others.
    loop {
        let part = match asked.fill_buf() {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            part => part?,
        };
        let (taken, is_whole) = match part.iter().position(|&it| it == b'\n') {
            Some(at) => (at + 1, true),
            None => (part.len(), part.is_empty()),
        };
        line.extend_from_slice(&part[..taken]);
        asked.consume(taken);
        if is_whole {
            break;
        }
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let line = String::from_utf8(line);
    let line = line.map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))?;
    Ok((line, asked))
}

fn answer(live: Asked, stream: Arc<OwnFile>) -> io::Result<()> {
    let (line, asked) = question(&stream)?;
    let live = match live() {
        Ok(live) => live,
        Err(reason) => {
            let text = format!("error\nthe program runs as it is: {reason}\n");
            return (&*stream).write_all(text.as_bytes());
        }
    };
    let other = Arc::clone(&stream);
    // A file that the program has put in its place is not polled.
    let is_gone = move || other.is_ours() && is_gone(&other);
    let text = match carry_out(live, line.trim_end(), asked, is_gone) {
        Ok(text) => format!("ok\n{text}"),
        Err(text) => format!("error\n{text}\n"),
    };
    (&*stream).write_all(text.as_bytes())
}

/// The bytes that follow a question.
fn read_bytes(mut asked: BufReader<Take<&OwnFile>>, size: u64) -> io::Result<Vec<u8>> {
    if size > LARGEST {
        let message = format!("{size} bytes, of which at most {LARGEST} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize)?;
    asked.get_mut().set_limit(size);
    asked.take(size).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Carries a question out; `given_up` tells whether its client is gone.
fn carry_out(
    live: &Live,
    line: &str,
    asked: BufReader<Take<&OwnFile>>,
    given_up: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<String, String> {
    let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
    match what {
        "explain" => Ok(explain::table(live)),
        "stats" if rest == "json" => Ok(live.jit.stats_text(StatsFormat::Json)),
        "stats" => Ok(explain::summary(live) + &live.jit.stats_text(StatsFormat::Table)),
        "report" => live
            .jit
            .report_page()
            .ok_or_else(|| NOT_RECORDED.to_owned()),
        "trace" => {
            let mut text = Vec::new();
            match live.jit.trace(&mut text) {
                Ok(true) => Ok(String::from_utf8_lossy(&text).into_owned()),
                Ok(false) => Err(NOT_RECORDED.to_owned()),
                Err(cause) => Err(cause.to_string()),
            }
        }
        "rollback" => {
            let _slot = ExchangeSlot::take()?;
            let level = rollback(rest).ok_or_else(|| format!("not a level: {rest}"))?;
            let back = live.roll_back(level, given_up).map_err(|it| chain(&it))?;
            Ok(lines("back", &back.functions) + &lines("with it", &back.dependents))
        }
        "swap" => {
            let _slot = ExchangeSlot::take()?;
            let read = exchange(rest).ok_or_else(|| format!("not a level: {rest}"))?;
            let (exchange, file, size) = read;
            let bitcode = read_bytes(asked, size);
            let bitcode = bitcode.map_err(|cause| match cause.kind() {
                io::ErrorKind::WouldBlock => format!(
                    "{}: of {size} bytes the rest did not come within {} s",
                    file.display(),
                    PATIENCE.as_secs()
                ),
                _ => format!("{}: {cause}", file.display()),
            })?;
            let swapped = live.swap(&NewVersion { file, bitcode }, exchange, given_up);
            swapped
                .map(|swapped| swapped.to_string())
                .map_err(|cause| without_marks(&chain(&cause)))
        }
        _ => Err(format!("not a question: {what}")),
    }
}

/// One line for each name.
pub(crate) fn lines(what: &str, names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("{what}: {}\n", stem(name)))
        .collect()
}

/// A message without the marks by which local names are unique in the session.
fn without_marks(text: &str) -> String {
    let mut parts = text.split(OF);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
    }
    shown
}

fn chain(cause: &dyn std::error::Error) -> String {
    let mut text = cause.to_string();
    let mut source = cause.source();
    while let Some(cause) = source {
        text.push_str(&format!("\n  caused by: {cause}"));
        source = cause.source();
    }
    text
}
