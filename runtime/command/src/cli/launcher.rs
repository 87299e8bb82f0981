//! Launchers: copies of this command that run one program.
//!
//! A program that starts itself again uses its name (`argv[0]`), or the executable of its process
//! (`/proc/self/exe`), as a file to start, with arguments of its own. Under `uruk run` that is the
//! command. A launcher is a file of its own with the command and, behind it, the command line:
//!
//! ```text
//! ELF file of the command | arguments, each with a zero byte | their length (8 bytes) | MAGIC
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use super::Run;

const MAGIC: &[u8; 16] = b"uruk's launcher\n";
const LENGTH: u64 = 8;

/// The running executable.
const OWN: &str = "/proc/self/exe";

/// Options that a launcher leaves out, with their values.
const LEFT_OUT: [&str; 2] = ["--launcher", "--argv0"];
/// Options whose values are not paths.
const NO_PATHS: [&str; 5] = [
    "--entry",
    "--dump-asm",
    "--set",
    "--variant",
    "--fp-contract",
];

/// The arguments of this process: its command line, or the one stored in its launcher.
pub(super) fn arguments() -> Vec<OsString> {
    let mut given = std::env::args_os();
    let own = File::open(OWN).ok().and_then(|own| kept(&own));
    let Some(kept) = own else {
        return given.collect();
    };
    let name = given.next().unwrap_or_default();
    let mut arguments = vec![OsString::from("uruk")];
    arguments.extend(kept);
    arguments.extend(["--argv0".into(), name, "--".into()]);
    arguments.extend(given);
    arguments
}

/// The command line in a launcher; `None` if the file is no launcher.
fn kept(file: &File) -> Option<Vec<OsString>> {
    let size = file.metadata().ok()?.len();
    let mut end = [0; MAGIC.len() + LENGTH as usize];
    let at = size.checked_sub(end.len() as u64)?;
    file.read_exact_at(&mut end, at).ok()?;
    let (length, magic) = end.split_at(LENGTH as usize);
    if magic != MAGIC {
        return None;
    }
    let length = u64::from_le_bytes(length.try_into().ok()?);
    let start = at.checked_sub(length)?;
    let mut text = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut text, start).ok()?;
    let text = text.strip_suffix(&[0])?;
    let words = text.split(|&byte| byte == 0);
    Some(
        words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect(),
    )
}

/// Writes the launcher of `run`, and executes it: the program begins.
///
/// # Errors
/// The launcher cannot be written or started, or the file is not a launcher.
pub(super) fn start(run: &Run, file: &Path) -> io::Error {
    if let Err(error) = write(file, &words(run)) {
        return error;
    }
    // A name without a slash would be searched for in `PATH`.
    let path = absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut command = Command::new(path);
    command.arg0(run.argv0.as_deref().unwrap_or(file.as_os_str()));
    command.args(&run.args).exec()
}

fn write(file: &Path, words: &[OsString]) -> io::Result<()> {
    if let Ok(there) = File::open(file)
        && kept(&there).is_none()
    {
        let why = "there is another file, which is no launcher";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let mut text = Vec::new();
    for word in words {
        text.extend(word.as_bytes());
        text.push(0);
    }
    let length = text.len() as u64;
    text.extend(length.to_le_bytes());
    text.extend(MAGIC);
    let mut own = uruk_files::read(OWN)?;
    own.extend(text);
    // A running launcher is replaced, not written to.
    uruk_files::OutputPath::new(file)?.executable().write(&own)
}

/// The command line up to the program's arguments, with absolute paths.
fn words(run: &Run) -> Vec<OsString> {
    let files = run.files.iter().chain(&run.library_path).chain(&run.watch);
    let outputs = [&run.first_calls, &run.tuning, &run.trace, &run.report];
    let outputs = outputs.into_iter().chain([&run.record, &run.jitdump]);
    let paths: Vec<&PathBuf> = files.chain(outputs.flatten()).collect();
    let fixed = |text: &OsStr| -> OsString {
        let known = paths.iter().any(|path| path.as_os_str() == text);
        match absolute(text) {
            Ok(path) if known => path.into_os_string(),
            _ => text.to_owned(),
        }
    };
    let mut words = Vec::new();
    let mut given = std::env::args_os().skip(1).take_while(|word| word != "--");
    while let Some(word) = given.next() {
        let (option, value) = split(&word);
        let named = |options: &[&str]| options.iter().any(|one| option == *one);
        match value {
            _ if named(&LEFT_OUT) => {
                if value.is_none() {
                    given.next();
                }
            }
            None if named(&NO_PATHS) => {
                words.push(word);
                words.extend(given.next());
            }
            Some(value) if !named(&NO_PATHS) => {
                let mut fresh = option.to_owned();
                fresh.push(if option == "-L" { "" } else { "=" });
                fresh.push(fixed(value));
                words.push(fresh);
            }
            _ => words.push(fixed(&word)),
        }
    }
    words
}

/// Splits a word into an option and the value that is part of it.
fn split(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=');
    match at {
        Some(at) if bytes.starts_with(b"--") => {
            let (option, value) = (&bytes[..at], &bytes[at + 1..]);
            (OsStr::from_bytes(option), Some(OsStr::from_bytes(value)))
        }
        _ if bytes.starts_with(b"-L") && bytes.len() > 2 => {
            let (option, value) = bytes.split_at(2);
            (OsStr::from_bytes(option), Some(OsStr::from_bytes(value)))
        }
        _ => (word, None),
    }
}
