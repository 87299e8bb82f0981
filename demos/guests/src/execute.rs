//! Runs one process with a time limit and keeps what it said.
//!
//! Output goes to files, not pipes: a grandchild that holds a pipe open could
//! otherwise keep the test waiting. Each process leads a group of its own, and
//! the whole group is killed at the end, so nothing outlives its test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};

/// Longest pause between two looks at a running process.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Status(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was still running at its time limit and was killed.
    Timeout,
}

/// The outcome of a process.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The bytes it wrote to standard output.
    pub stdout: Vec<u8>,
    /// The bytes it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub wall: Duration,
}

/// A process to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// The bytes it reads on standard input; nothing if absent.
    pub stdin: Option<Vec<u8>>,
    /// How long it may take.
    pub limit: Duration,
}

impl Job {
    /// A process without arguments, input or variables.
    pub fn new(program: impl Into<PathBuf>, limit: Duration) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: None,
            limit,
        }
    }

    /// Adds an argument.
    pub fn arg(&mut self, word: impl Into<OsString>) -> &mut Self {
        self.args.push(word.into());
        self
    }

    /// The job as one would type it.
    pub fn command_line(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.env {
            line.push_str(&format!("{name}='{value}' "));
        }
        line.push_str(&self.program.display().to_string());
        for word in &self.args {
            let word = word.to_string_lossy();
            let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                line.push_str(&format!(" {word}"));
            } else {
                line.push_str(&format!(" '{}'", word.replace('\'', "'\\''")));
            }
        }
        line
    }

    /// Runs the process to its end or its limit. `scratch` is a directory of
    /// this job's own.
    ///
    /// # Errors
    /// The process cannot be started or its files cannot be used.
    pub fn run(&self, scratch: &Path) -> io::Result<Outcome> {
        fs::create_dir_all(scratch)?;
        let (stdout, stderr) = (scratch.join("stdout"), scratch.join("stderr"));
        let stdin = match &self.stdin {
            None => Stdio::null(),
            Some(bytes) => {
                let path = scratch.join("stdin");
                fs::write(&path, bytes)?;
                File::open(path)?.into()
            }
        };
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env("LC_ALL", "C")
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LOG")
            .envs(self.env.iter().cloned())
            .stdin(stdin)
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .process_group(0);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let status = wait(&mut child, self.limit);
        let wall = start.elapsed();
        sweep(&child);
        let ending = match status? {
            Some(status) => ending_of(status),
            None => {
                child.wait()?;
                Ending::Timeout
            }
        };
        Ok(Outcome {
            ending,
            stdout: fs::read(stdout)?,
            stderr: fs::read(stderr)?,
            wall,
        })
    }
}

/// Guests that die of a signal must not leave core files behind. Inherited by
/// every process started from here on.
pub fn forbid_core_files() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Where that is refused, core files are a nuisance and nothing worse.
    let _ = setrlimit(Resource::Core, none);
}

/// The status of a process that ended within the limit.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Kills whatever is left of a process group.
fn sweep(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // An empty group is the normal case, and reported as an error.
        let _ = kill_process_group(id, Signal::KILL);
    }
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Status(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ending, Job};

    fn shell(script: &str, limit_ms: u64) -> super::Outcome {
        let name = format!("uruk-execute-{}-{limit_ms}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        let mut job = Job::new("/bin/sh", Duration::from_millis(limit_ms));
        job.arg("-c").arg(script);
        let outcome = job.run(&scratch).expect("a shell");
        std::fs::remove_dir_all(scratch).expect("removed");
        outcome
    }

    #[test]
    fn endings_are_told_apart() {
        let outcome = shell("echo out; echo err >&2; exit 3", 9_000);
        assert_eq!(outcome.ending, Ending::Status(3));
        assert_eq!(outcome.stdout, b"out\n");
        assert_eq!(outcome.stderr, b"err\n");
        assert_eq!(shell("kill -TERM $$", 9_001).ending, Ending::Signal(15));
        assert_eq!(shell("sleep 100", 50).ending, Ending::Timeout);
    }
}
