//! Files that are replaced into the running program whenever they change.
//!
//! A thread reads the files' identity ten times a second: device, inode, size and time of change. A
//! file counts as written when two reads in a row see the same; so a compiler that writes in place
//! is not read half-way, as long as it does not pause for that long. An input that was read
//! half-way after all is refused, and read again once it changes.
//!
//! The lines are printed under a pass of the gate (`fork::gate`), so that no child of `fork`
//! inherits a locked standard error; the child watches nothing.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk_base::sandbox;

use crate::api::jit::Jit;
use crate::error::Error;
use crate::fork::gate;

use crate::replace::{Replaced, Replacement};

/// Time between two reads.
const INTERVAL: Duration = Duration::from_millis(100);

/// The identity of a file's content: device, inode, size, and the time of change in seconds and
/// nanoseconds.
type Identity = (u64, u64, u64, i64, i64);

struct WatchedFile {
    path: PathBuf,
    /// Identity when it was read last.
    known: Option<Identity>,
    /// Identity when it was checked last.
    seen: Option<Identity>,
}

impl WatchedFile {
    fn new(path: &Path) -> WatchedFile {
        let known = identity(path);
        WatchedFile {
            path: path.to_owned(),
            known,
            seen: known,
        }
    }

    /// True if the file has changed, and the change is complete.
    fn has_changed(&mut self, now: Option<Identity>) -> bool {
        let settled = now.is_some() && now == self.seen && now != self.known;
        self.seen = now;
        if settled {
            self.known = now;
        }
        settled
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let data = std::fs::metadata(path).ok()?;
    let (seconds, nanos) = (data.mtime(), data.mtime_nsec());
    Some((data.dev(), data.ino(), data.size(), seconds, nanos))
}

/// Replaces functions of the main dylib by those of files that change, on a thread of its own, for
/// the rest of the process.
///
/// # Errors
/// No thread.
pub(crate) fn watch(jit: &Jit, files: &[PathBuf]) -> Result<(), Error> {
    let watched: Vec<WatchedFile> = files.iter().map(|file| WatchedFile::new(file)).collect();
    let jit = jit.clone();
    let watched = RefCell::new(watched);
    crate::fork::thread::spawn(String::from("uruk-watch"), move || {
        while !sandbox::is_ending() {
            std::thread::sleep(INTERVAL);
            for file in &mut *watched.borrow_mut() {
                if file.has_changed(identity(&file.path)) {
                    let outcome = Replacement::file(&file.path)
                        .and_then(|new| jit.main().replace(new.osr(true)));
                    let _pass = gate::enter();
                    uruk_files::say!("uruk: {}", line(&file.path, &outcome));
                }
            }
        }
    })
}

fn line(path: &Path, outcome: &Result<Replaced, Error>) -> String {
    let file = path.display().to_string();
    let replaced = match outcome {
        Ok(replaced) => replaced,
        Err(cause) => {
            // LLVM shows the line of a syntax error, and a mark below it.
            let cause = cause.to_string();
            let cause = cause.lines().next().unwrap_or_default();
            // Most errors begin with the file they are about.
            return match cause.starts_with(&file) {
                true => format!("not replaced: {cause}"),
                false => format!("not replaced: {file}: {cause}"),
            };
        }
    };
    let mut line = format!(
        "{file}: replaced {}",
        count(&replaced.functions, "function")
    );
    let lists = [
        (&replaced.dependents, "recompiled dependent"),
        (&replaced.added, "new function"),
        (&replaced.globals_added, "new variable"),
        (&replaced.locals_new, "fresh local variable"),
        (&replaced.constructors_skipped, "constructor not run again"),
    ];
    for (list, what) in lists {
        if !list.is_empty() {
            line += &format!(", {}", count(list, what));
        }
    }
    let (stay, change): (Vec<_>, Vec<_>) = replaced.loops.iter().partition(|it| it.stays.is_some());
    if !change.is_empty() {
        line += &format!(", {} running loop(s)", change.len());
    }
    for it in stay {
        line += &format!("; {it}");
    }
    line
}

/// Names in a line; more would not fit.
const SHOWN: usize = 5;

fn count(names: &[String], what: &str) -> String {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("{} {what}(s): {}{more}", names.len(), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_two_looks_see_the_same_change() {
        let old = Some((1, 1, 10, 5, 0));
        let new = Some((1, 1, 20, 6, 0));
        let newer = Some((1, 1, 30, 6, 1));
        let mut file = WatchedFile {
            path: PathBuf::new(),
            known: old,
            seen: old,
        };
        let looks = [
            (old, false),
            (new, false),
            (newer, false),
            (newer, true),
            (newer, false),
            (None, false),
            (new, false),
            (new, true),
        ];
        for (look, expected) in looks {
            assert_eq!(file.has_changed(look), expected, "{look:?}");
        }
    }
}
