//! One process with its times, and the files it leaves.
//!
//! Output goes to files, not pipes: nobody has to read while time is taken, and a
//! grandchild that holds on to the output delays nothing.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, remove_dir_all};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use uruk_report::Nanos;
use uruk_report::compare::Times;

/// Bytes of standard error that are kept, from its end.
const LAST_WORDS: u64 = 4096;

/// A process to run.
pub(super) struct Job {
    /// The file to run.
    pub program: PathBuf,
    /// What it is told that its name is.
    pub name: OsString,
    /// Its arguments.
    pub words: Vec<OsString>,
    /// What it reads; nothing if absent.
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

/// What a process did.
pub(super) struct Outcome {
    pub ending: Ending,
    pub times: Times,
    /// The last it wrote to standard error.
    pub said: String,
}

impl Job {
    /// Runs it to its end; its standard output goes to a file, which is made anew.
    pub(super) fn run(&self, output: &Path) -> io::Result<Outcome> {
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
        let child = command.spawn()?;
        let (status, cpu) = wait(&child)?;
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

/// Waits for a child's end: how it ended, and the processor time of it and of those
/// children it waited for.
fn wait(child: &Child) -> io::Result<(ExitStatus, Nanos)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    loop {
        let id = child.id() as libc::pid_t;
        // SAFETY: two pointers to write to; nobody else waits for this child.
        if unsafe { libc::wait4(id, &raw mut status, 0, usage.as_mut_ptr()) } == id {
            break;
        }
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

/// Where two files begin to differ, in words.
pub(super) fn difference(expected: &Path, actual: &Path) -> io::Result<Option<String>> {
    let mut expected = BufReader::new(File::open(expected)?);
    let mut actual = BufReader::new(File::open(actual)?);
    let mut line = 1;
    loop {
        let (one, other) = (expected.fill_buf()?, actual.fill_buf()?);
        let length = one.len().min(other.len());
        let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
        line += one[..same].iter().filter(|byte| **byte == b'\n').count();
        if same < length {
            return Ok(Some(format!("line {line}")));
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

/// A folder for files of this process only; removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one that nobody else has.
    pub(super) fn new(parent: &Path) -> io::Result<Scratch> {
        let mut number = 0;
        loop {
            let name = format!("uruk-compare-{}-{number}", std::process::id());
            let folder = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Scratch(folder)),
                // Left by a process of the same id that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays: there is nobody to tell.
        let _ = remove_dir_all(&self.0);
    }
}
