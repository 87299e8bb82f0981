//! Runs one process, with its times.
//!
//! Output goes to files, not pipes: no reader has to run while time is taken, and a grandchild that
//! keeps the output open delays nothing.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uruk_report::Nanos;
use uruk_report::compare::Times;

use super::scratch::Scratch;

/// Bytes of standard error that are kept, from its end.
const LAST_WORDS: u64 = 4096;

/// A process to run.
pub(super) struct Job {
    /// The file to run.
    pub program: PathBuf,
    /// Its `argv[0]`.
    pub name: OsString,
    /// Its arguments.
    pub words: Vec<OsString>,
    /// Its standard input; empty if absent.
    pub stdin: Option<PathBuf>,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Status(i32),
    Signal(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Status(status) => write!(f, "exit status {status}"),
            Ending::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// The result of a process.
pub(super) struct Outcome {
    pub ending: Ending,
    pub times: Times,
    /// The end of its standard error.
    pub said: String,
}

impl Job {
    /// Runs it to its end; its standard output goes to a file, which is created or truncated.
    pub(super) fn run(&self, output: &Path, scratch: &Scratch) -> io::Result<Outcome> {
        let errors_path = output.with_extension("errors");
        let errors = File::create(&errors_path)?;
        let stdin = match &self.stdin {
            Some(file) => Stdio::from(File::open(file)?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.words);
        command
            .stdin(stdin)
            .stdout(File::create(output)?)
            .stderr(errors);
        let start = Instant::now();
        let (status, cpu) = scratch.run(&mut command)?;
        let wall = nanos(start.elapsed());
        let ending = match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Status(code),
            (None, signal) => Ending::Signal(signal.unwrap_or_default()),
        };
        Ok(Outcome {
            ending,
            times: Times { wall, cpu },
            said: last_words(&errors_path)?,
        })
    }
}

pub(super) fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn last_words(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Characters of a line that are shown.
const SHOWN: usize = 30;

/// A line of a file, cut to the shown length.
fn line_of(file: &Path, line: usize) -> io::Result<String> {
    let mut lines = BufReader::new(File::open(file)?).split(b'\n');
    let found = lines.nth(line - 1).transpose()?;
    let text = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '.' } else { c })
        .collect();
    let shown: String = text.chars().take(SHOWN).collect();
    let end = if shown.len() < text.len() { ".." } else { "" };
    Ok(format!("`{shown}{end}`"))
}

/// Text about the first difference of two files.
pub(super) fn difference(expected: &Path, actual: &Path) -> io::Result<Option<String>> {
    let (named, other_named) = (expected, actual);
    let mut expected = BufReader::new(File::open(expected)?);
    let mut actual = BufReader::new(File::open(actual)?);
    let mut line = 1;
    loop {
        let (one, other) = (expected.fill_buf()?, actual.fill_buf()?);
        let length = one.len().min(other.len());
        let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
        line += one[..same].iter().filter(|byte| **byte == b'\n').count();
        if same < length {
            let (wanted, found) = (line_of(named, line)?, line_of(other_named, line)?);
            return Ok(Some(format!("line {line} is {found}, not {wanted}")));
        }
        if length == 0 {
            return Ok(match (one.is_empty(), other.is_empty()) {
                (true, true) => None,
                (true, false) => Some(format!("more output, from line {line} on")),
                (false, _) => Some(format!("less output, nothing from line {line} on")),
            });
        }
        expected.consume(length);
        actual.consume(length);
    }
}
