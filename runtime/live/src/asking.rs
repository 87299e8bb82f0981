//! The client side of `uruk swap`: sends questions to a live program and reads its answers.
//!
//! [`control`](crate::control) is the other side, and lists the questions.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use uruk::Level;

use crate::control::{address, peer};
use crate::question::{rollback_question, swap_question};
use crate::sent::NewVersion;
use crate::swap::Exchange;

/// Asks process `process` for an exchange; returns its answer.
///
/// # Errors
/// As [`ask`].
pub fn ask_exchange(process: u32, exchange: &Exchange, version: &NewVersion) -> io::Result<String> {
    let NewVersion { file, bitcode } = version;
    ask_with(
        process,
        &swap_question(exchange, file, bitcode.len()),
        bitcode,
    )
}

/// Asks process `process` to roll back its latest exchange, at the level of that exchange unless `level`
/// is given; returns its answer.
///
/// # Errors
/// As [`ask`].
pub fn ask_rollback(process: u32, level: Option<Level>) -> io::Result<String> {
    ask(process, &rollback_question(level))
}

/// Sends a question to process `process`; returns its answer.
///
/// # Errors
/// No process of that number can be asked, or it is another user's; the program's own error.
pub fn ask(process: u32, question: &str) -> io::Result<String> {
    ask_with(process, question, &[])
}

fn ask_with(process: u32, question: &str, bytes: &[u8]) -> io::Result<String> {
    /// Attempts to send a question that the program did not accept: a program that closes all its files
    /// gets a new socket only once a client connects.
    const TRIES: usize = 3;
    /// Pause before the next attempt.
    const PAUSE: Duration = Duration::from_millis(20);
    let mut asked = ask_once(process, question, bytes);
    for _ in 1..TRIES {
        let (reset, closed) = (io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe);
        let is_lost = |cause: &io::Error| [reset, closed].contains(&cause.kind());
        if !asked.as_ref().is_err_and(is_lost) {
            break;
        }
        std::thread::sleep(PAUSE);
        asked = ask_once(process, question, bytes);
    }
    asked
}

fn ask_once(process: u32, question: &str, bytes: &[u8]) -> io::Result<String> {
    let mut stream = UnixStream::connect_addr(&address(process)?).map_err(|cause| {
        let text = "no program of this number can be asked: it has ended, has given up system calls, or does \
                    not run under `uruk live`";
        match cause.kind() {
            io::ErrorKind::ConnectionRefused => io::Error::new(cause.kind(), text),
            _ => cause,
        }
    })?;
    if !is_believed(&stream) {
        let text = "the program runs as another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    // A program that refuses its client may answer and close the socket before it has read everything.
    let sent = [question.as_bytes(), b"\n", bytes];
    let sent = sent.iter().try_for_each(|part| stream.write_all(part));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    if !answer.starts_with("error\n") {
        sent?;
        read?;
    }
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => Err(io::Error::other(text.trim_end().to_owned())),
        _ => Err(io::Error::other(
            "no answer: the program ended, or had more clients than it attends to",
        )),
    }
}

/// Whether an answer is trusted: the other side has this user, or this process is root's.
fn is_believed(stream: &impl AsRawFd) -> bool {
    // SAFETY: takes nothing, cannot fail.
    let own = unsafe { libc::geteuid() };
    own == 0 || peer(stream).is_some_and(|peer| peer.uid == own)
}
