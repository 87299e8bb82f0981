//! Runs one process and says what it used: processor time of all its threads and
//! of the children it waited for (`wait4`), and wall-clock time.
//!
//! Output goes to files, not pipes, so that no process spends time on reading it. Each process
//! leads a group of its own, which is killed at the limit.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Status(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was still running at its limit and was killed.
    Stopped,
}

/// One run of a process.
#[derive(Clone, Debug)]
pub struct Run {
    /// How it ended.
    pub ending: Ending,
    /// User and system time, in milliseconds.
    pub cpu_ms: f64,
    /// From start to end, in milliseconds.
    pub wall_ms: f64,
    /// The bytes it wrote to standard output.
    pub stdout: Vec<u8>,
    /// The bytes it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// A command line, and variables that its environment has besides.
pub type Line<'a> = (Vec<OsString>, Vec<(&'a str, &'a OsStr)>);

/// Starts processes; holds the directory their output goes to.
#[derive(Clone, Debug)]
pub struct Runner {
    directory: PathBuf,
}

impl Runner {
    /// Writes output to files in `directory`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(directory: &Path) -> io::Result<Runner> {
        fs::create_dir_all(directory)?;
        Ok(Runner {
            directory: directory.to_owned(),
        })
    }

    /// Runs a command line to its end, at most for `limit`.
    ///
    /// # Errors
    /// It cannot be started, or its output cannot be read.
    pub fn run(&self, command: &[OsString], limit: Duration) -> io::Result<Run> {
        self.run_with(command, &[], limit)
    }

    /// The same with some more variables in its environment.
    ///
    /// # Errors
    /// As of [`Runner::run`].
    pub fn run_with(
        &self,
        command: &[OsString],
        variables: &[(&str, &OsStr)],
        limit: Duration,
    ) -> io::Result<Run> {
        let mut started = self.start("", command, variables)?;
        let stopped = !started.ends_within(limit)?;
        started.end(stopped)
    }

    /// Starts a command line; what it prints goes to files with this ending.
    fn start(
        &self,
        mark: &str,
        command: &[OsString],
        variables: &[(&str, &OsStr)],
    ) -> io::Result<Started> {
        let path = |name| self.directory.join(format!("{name}{mark}"));
        let paths = ["stdout", "stderr"].map(path);
        let [stdout, stderr] = [File::create(&paths[0])?, File::create(&paths[1])?];
        let start = Instant::now();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .env("LC_ALL", "C")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        Ok(Started {
            pid: child.id() as libc::pid_t,
            start,
            paths,
            waited: false,
        })
    }

    /// Runs several command lines in one stretch of time, one at a time: each runs for `turn` while
    /// the others are stopped, until all have ended, or `limit` is over. What the machine does
    /// meanwhile falls on all alike.
    ///
    /// # Errors
    /// One cannot be started, or its output cannot be read.
    pub fn run_in_turns(
        &self,
        commands: &[Line<'_>],
        turn: Duration,
        limit: Duration,
    ) -> io::Result<InTurns> {
        let mut started = Vec::new();
        for (number, (command, variables)) in commands.iter().enumerate() {
            let one = self.start(&format!("-{number}"), command, variables)?;
            one.signal(libc::SIGSTOP);
            started.push(one);
        }
        let begin = Instant::now();
        let mut turns = Vec::new();
        let mut left: Vec<usize> = (0..started.len()).collect();
        while !left.is_empty() && begin.elapsed() < limit {
            for number in left.clone() {
                let one = &started[number];
                let began = monotonic();
                one.signal(libc::SIGCONT);
                let ended = one.ends_within(turn)?;
                match ended {
                    true => left.retain(|&other| other != number),
                    false => one.signal(libc::SIGSTOP),
                }
                turns.push(Turn {
                    number,
                    began,
                    ended: monotonic(),
                });
            }
        }
        let runs = started.iter_mut().enumerate();
        let runs = runs.map(|(number, one)| one.end(left.contains(&number)));
        Ok(InTurns {
            runs: runs.collect::<io::Result<_>>()?,
            turns,
        })
    }
}

/// The results of [`Runner::run_in_turns`].
#[derive(Debug)]
pub struct InTurns {
    /// How each ended.
    pub runs: Vec<Run>,
    /// The turns, each with its process and times.
    pub turns: Vec<Turn>,
}

/// A stretch of time in which one process ran, by the monotonic clock in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Which of them.
    pub number: usize,
    /// Before it was let go on.
    pub began: f64,
    /// When it was stopped, or had ended.
    pub ended: f64,
}

/// A running process; `drop` kills it if it was not waited for.
struct Started {
    pid: libc::pid_t,
    start: Instant,
    paths: [PathBuf; 2],
    waited: bool,
}

impl Started {
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain call; the group's leader is not yet waited for, so the number is still
        // the group's.
        unsafe { libc::kill(-self.pid, signal) };
    }

    fn ends_within(&self, limit: Duration) -> io::Result<bool> {
        ends_within(self.pid, limit)
    }

    /// Waits for its end, which comes at once if it is to be `stopped`.
    fn end(&mut self, stopped: bool) -> io::Result<Run> {
        if stopped {
            self.signal(libc::SIGKILL);
        }
        let (status, usage) = wait(self.pid)?;
        self.waited = true;
        Ok(Run {
            ending: ending(status, stopped),
            cpu_ms: milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime),
            wall_ms: self.start.elapsed().as_secs_f64() * 1e3,
            stdout: fs::read(&self.paths[0])?,
            stderr: fs::read(&self.paths[1])?,
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.waited {
            self.signal(libc::SIGKILL);
            let _ = wait(self.pid);
        }
    }
}

/// Now, by the monotonic clock in nanoseconds.
fn monotonic() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Sleeps until the child has ended; `false` if it has not by the limit.
fn ends_within(pid: libc::pid_t, limit: Duration) -> io::Result<bool> {
    // SAFETY: a plain call with two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut poll = libc::pollfd {
        fd: fd as libc::c_int,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit_ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one live structure.
    let ready = unsafe { libc::poll(&mut poll, 1, limit_ms) };
    // SAFETY: the descriptor opened above, which no other code uses.
    unsafe { libc::close(poll.fd) };
    match ready {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}

fn wait(pid: libc::pid_t) -> io::Result<(libc::c_int, libc::rusage)> {
    let mut status = 0;
    // SAFETY: all bytes zero is a value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: two live places for the results.
    if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((status, usage))
}

fn ending(status: libc::c_int, stopped: bool) -> Ending {
    if stopped {
        Ending::Stopped
    } else if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Status(libc::WEXITSTATUS(status))
    }
}

fn milliseconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ending, Runner};

    #[test]
    fn usage_and_endings() {
        let directory = std::env::temp_dir().join(format!("uruk-bench-{}", std::process::id()));
        let runner = Runner::new(&directory).expect("a directory");
        let shell = |script: &str, limit_ms| {
            let command = ["/bin/sh", "-c", script].map(Into::into);
            runner
                .run(&command, Duration::from_millis(limit_ms))
                .expect("a shell")
        };
        let run = shell("echo out; echo err >&2; exit 3", 60_000);
        assert_eq!(
            (run.ending, &run.stdout[..]),
            (Ending::Status(3), &b"out\n"[..])
        );
        assert!(run.cpu_ms > 0.0 && run.wall_ms > 0.0);
        assert_eq!(shell("kill -TERM $$", 60_000).ending, Ending::Signal(15));
        assert_eq!(shell("sleep 100", 20).ending, Ending::Stopped);

        let busy = |count: u32| {
            let script = format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done; echo $i");
            (["/bin/sh", "-c", &script].map(Into::into).to_vec(), vec![])
        };
        let turn = Duration::from_millis(5);
        let both = [busy(200_000), busy(1_000_000)];
        let limit = Duration::from_secs(100);
        let done = runner.run_in_turns(&both, turn, limit).expect("a shell");
        assert_eq!(done.runs[0].stdout, b"200000\n");
        assert_eq!(done.runs[1].stdout, b"1000000\n");
        let order: Vec<usize> = done.turns.iter().map(|turn| turn.number).collect();
        assert_eq!(order[..3], [0, 1, 0]);
        let apart = |pair: &[super::Turn]| pair[0].ended <= pair[1].began;
        assert!(done.turns.windows(2).all(apart));
        let endless = [busy(1), (vec!["/bin/sleep".into(), "100".into()], vec![])];
        let limit = Duration::from_secs(3);
        let done = runner.run_in_turns(&endless, turn, limit).expect("both");
        assert_eq!(done.runs[0].ending, Ending::Status(0));
        assert_eq!(done.runs[1].ending, Ending::Stopped);
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
