//! Messages on standard error, with control characters of other sources escaped.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use crate::WriteSignals;

/// `name` on one line: control characters, which a terminal would obey, are shown as `\x1b`.
///
/// ```
/// assert_eq!(uruk_files::shown("a\x1b[31m\nb\u{9b}"), "a\\x1b[31m\\x0ab\\x9b");
/// ```
#[must_use]
pub fn shown(name: &str) -> String {
    escaped(name, |_| false)
}

/// `text` with control characters escaped as `\x1b`, except those for which `keep` is true.
fn escaped(text: &str, keep: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && !keep(letter) {
            // Writing to a string does not fail. Control characters are below 256.
            let _ = write!(out, "\\x{:02x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

/// `text` of several lines, safe for a terminal.
fn for_terminal(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Standard error, for text in UTF-8: control characters other than line ends and tabs are
/// escaped, and no write raises a signal.
///
/// A failed write is ignored: the process belongs to a program that does not depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Messages {
    /// Writes a line at once.
    pub fn line(self, message: fmt::Arguments<'_>) {
        self.text(&format!("{message}\n"));
    }

    /// Writes text of whole lines at once.
    pub fn text(self, text: &str) {
        send(text);
    }
}

/// Prints `text` to standard output with control characters escaped, other than line ends and
/// tabs.
///
/// # Errors
///
/// Those of a write to standard output.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(for_terminal(text).as_bytes())?;
    out.flush()
}

fn send(text: &str) {
    let _held = WriteSignals::hold();
    // SAFETY: the descriptor is not closed here, whichever file it refers to.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    let _ = file.write_all(for_terminal(text).as_bytes());
}

/// Writes a line to standard error, as `eprintln!` does, through [`Messages`].
#[macro_export]
macro_rules! say {
    ($($message:tt)*) => {
        $crate::Messages.line(::std::format_args!($($message)*))
    };
}
