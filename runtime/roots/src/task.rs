//! Reads the state of the process's threads from `/proc/self/task`.
//!
//! | file | read for |
//! |---|---|
//! | the directory | the threads |
//! | `TID/syscall` | `running`, or number, six arguments, stack pointer, program counter |
//! | `TID/schedstat` | third number: how often the thread was put on a processor |
//! | `TID/status` | the same as context switches, where schedstat is missing; blocked signals |
//! | `TID/comm` | its name |
//! | `TID/children` | processes that it made |
//!
//! Two listings of a directory may both lack a thread that lives all along: the kernel loses its place
//! when the thread there ends. [`list`] reports whether the length agrees with the kernel's count of
//! threads before and after.

use std::io::{self, Read};

use uruk_files::OwnFile;

/// Attempts to read a thread's children: room for a million of them.
const TRIES: usize = 16;

/// The state of a thread, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// On a processor, or waiting for one.
    Running,
    /// Off the processor in a system call: its number, arguments, stack pointer and
    /// program counter.
    InCall { number: i64, words: [u64; 8] },
    /// Off the processor in a fault or stopped: registers unknown.
    InFault,
    /// Ended: no stack is left.
    Ended,
}

/// The reason why a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// No such thread any more.
    Gone,
    /// The file is missing or forbidden, with the error's number.
    Forbidden(i32),
}

/// The ids of the threads, sorted, and whether the list is complete.
pub(crate) fn list() -> io::Result<(Vec<i32>, bool)> {
    let before = count();
    let mut tids = uruk_files::threads()?;
    tids.sort_unstable();
    let whole = before == Some(tids.len()) && count() == before;
    Ok((tids, whole))
}

/// The kernel's count of threads: the directory has a link more for each.
fn count() -> Option<usize> {
    let links = rustix::fs::stat("/proc/self/task").ok()?.st_nlink;
    usize::try_from(links).ok()?.checked_sub(2)
}

fn read<'a>(tid: i32, file: &str, buffer: &'a mut [u8]) -> Result<&'a [u8], Unread> {
    let unread = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT) if exists(tid) => Unread::Forbidden(libc::ENOENT),
        Some(libc::ENOENT | libc::ESRCH) => Unread::Gone,
        error => Unread::Forbidden(error.unwrap_or(libc::EIO)),
    };
    let path = format!("/proc/self/task/{tid}/{file}");
    let opened = OwnFile::open(path).map_err(unread)?;
    let mut len = 0;
    while len < buffer.len() {
        match opened.file().read(&mut buffer[len..]).map_err(unread)? {
            0 => break,
            more => len += more,
        }
        if !matches!(file, "status" | "children") {
            break;
        }
    }
    if !opened.is_ours() {
        return Err(Unread::Forbidden(libc::EBADF));
    }
    Ok(&buffer[..len])
}

/// Whether the thread still exists.
pub(crate) fn exists(tid: i32) -> bool {
    crate::sys::exists(crate::sys::getpid(), tid)
}

/// Processes that the thread created, or inherited from one that ended. The kernel may lose its place
/// when one of them ends: two consecutive readings must agree.
pub(crate) fn children(tid: i32) -> Result<Vec<i32>, Unread> {
    let mut buffer = vec![0; 4096];
    let mut before: Option<Vec<i32>> = None;
    for _ in 0..TRIES {
        let size = buffer.len();
        let text = read(tid, "children", &mut buffer)?;
        if text.len() == size {
            buffer.resize(size.saturating_mul(2), 0);
            continue;
        }
        let found: Vec<i32> = words(text)
            .filter_map(|pid| i32::try_from(pid).ok())
            .collect();
        if before.as_ref() == Some(&found) {
            return Ok(found);
        }
        before = Some(found);
    }
    Err(Unread::Forbidden(libc::EAGAIN))
}

/// Reads the state of the thread.
pub(crate) fn outside(tid: i32) -> Result<Outside, Unread> {
    let mut buffer = [0; 256];
    let text = read(tid, "syscall", &mut buffer)?;
    parse_outside(text).ok_or(Unread::Forbidden(libc::EINVAL))
}

fn parse_outside(text: &[u8]) -> Option<Outside> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    if text == "running" {
        return Some(Outside::Running);
    }
    let mut parts = text.split(' ');
    let number: i64 = parts.next()?.parse().ok()?;
    let mut words = [0; 8];
    let mut len = 0;
    for part in parts {
        let digits = part.strip_prefix("0x")?;
        *words.get_mut(len)? = u64::from_str_radix(digits, 16).ok()?;
        len += 1;
    }
    match (number, len) {
        (0.., 8) => Some(Outside::InCall { number, words }),
        (..0, 2) if words[0] == 0 && words[1] == 0 => Some(Outside::Ended),
        (..0, 2) => Some(Outside::InFault),
        _ => None,
    }
}

/// A number that grows whenever the thread gets a processor.
pub(crate) fn switches(tid: i32) -> Result<u64, Unread> {
    let mut buffer = [0; 128];
    match read(tid, "schedstat", &mut buffer) {
        Ok(text) => {
            let third = words(text).nth(2).filter(|&count| count > 0);
            third.map_or_else(|| context_switches(tid), Ok)
        }
        Err(Unread::Gone) => Err(Unread::Gone),
        Err(Unread::Forbidden(_)) => context_switches(tid),
    }
}

fn context_switches(tid: i32) -> Result<u64, Unread> {
    let mut buffer = [0; 4096];
    let text = read(tid, "status", &mut buffer)?;
    let field = |name| status_field(text, name).and_then(|value| words(value).next());
    let switches = field("voluntary_ctxt_switches:");
    let forced = field("nonvoluntary_ctxt_switches:");
    switches
        .zip(forced)
        .map(|(own, forced)| own.wrapping_add(forced))
        .ok_or(Unread::Forbidden(libc::EINVAL))
}

/// Whether the current mask of the thread blocks `signal`, and how often the thread has slept.
pub(crate) fn blocks(tid: i32, signal: i32) -> Result<(bool, u64), Unread> {
    let mut buffer = [0; 4096];
    let text = read(tid, "status", &mut buffer)?;
    let mask = status_field(text, "SigBlk:")
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .ok_or(Unread::Forbidden(libc::EINVAL))?;
    let slept = status_field(text, "voluntary_ctxt_switches:");
    let slept = slept.and_then(|value| words(value).next()).unwrap_or(0);
    Ok((mask >> (signal - 1) & 1 == 1, slept))
}

/// The thread's name; empty if it cannot be read.
pub(crate) fn name(tid: i32) -> String {
    let mut buffer = [0; 64];
    let text = read(tid, "comm", &mut buffer).unwrap_or_default();
    String::from_utf8_lossy(text).trim_end().to_owned()
}

fn status_field<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name.as_bytes()))
}

fn words(text: &[u8]) -> impl Iterator<Item = u64> {
    let parts = text
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    parts.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{Outside, parse_outside};

    #[test]
    fn the_syscall_file_in_its_forms() {
        let call = b"7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc00001000 0x7f0000000003\n";
        let found = parse_outside(call).expect("a call");
        let Outside::InCall { number: 7, words } = found else {
            panic!("{found:?}")
        };
        assert_eq!(words[0], 1);
        assert_eq!((words[6], words[7]), (0x7ffc_0000_1000, 0x7f00_0000_0003));
        assert_eq!(parse_outside(b"running\n"), Some(Outside::Running));
        assert_eq!(parse_outside(b"-1 0x7ff 0x1\n"), Some(Outside::InFault));
        assert_eq!(parse_outside(b"-1 0x0 0x0\n"), Some(Outside::Ended));
        for bad in [
            &b""[..],
            b"7 0x1\n",
            b"7 1 2 3 4 5 6 7 8\n",
            b"x\n",
            b"\xff",
        ] {
            assert_eq!(parse_outside(bad), None);
        }
    }

    #[test]
    fn this_thread_is_listed_and_named() {
        let tid = crate::sys::gettid();
        let (tids, _) = super::list().expect("the threads");
        assert!(tids.contains(&tid));
        assert!(super::switches(tid).expect("a count") > 0);
        assert!(super::blocks(tid, libc::SIGUSR1).is_ok_and(|(blocked, _)| !blocked));
        assert!(!super::name(tid).is_empty());
        assert!(super::outside(i32::MAX).is_err());
    }
}
