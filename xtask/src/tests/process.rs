//! A test process and its output.

use std::fs::File;
use std::io::{Read, Seek, Write, stdout};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;

/// The interval between two checks whether a process has ended.
const INTERVAL: Duration = Duration::from_millis(10);

/// The longest run of a process; a process that takes longer is killed and fails. It is several
/// times what the slowest one takes in CI.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Lines of a process's failures that are repeated at the end of a run, at most: the last ones.
const REPEATED: usize = 120;

/// A test process that is not started yet.
#[derive(Debug)]
pub struct Process {
    /// Package, target, and module.
    pub name: String,
    /// Whether no other process may run meanwhile.
    pub alone: bool,
    /// Whether the process may take longer than [`LIMIT`].
    pub unlimited: bool,
    pub command: Mutex<Command>,
    /// The file that receives its output. A pipe might be held open by a process that a test left
    /// behind.
    pub output: PathBuf,
}

/// A test process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub passed: bool,
    pub took: Duration,
    pub output: String,
    /// The cause of a failure that the output does not contain: a signal, the time limit, a process
    /// that could not be started.
    cause: Option<String>,
}

impl Process {
    /// Runs the process to its end.
    pub fn run(&self) -> Ended {
        let start = Instant::now();
        let (output, status) = match self.start_and_wait(start) {
            Ok((output, status)) => (output, Ok(status)),
            Err(error) => (String::new(), Err(error)),
        };
        let passed = matches!(&status, Ok(Some(status)) if status.success());
        let complete = output.contains("test result: ");
        let cause = match status {
            Ok(Some(status)) => (!passed && !complete).then(|| status.to_string()),
            Ok(None) => Some(format!("killed after {} s", LIMIT.as_secs())),
            Err(error) => Some(format!("{error:#}")),
        };
        Ended {
            name: self.name.clone(),
            passed,
            took: start.elapsed(),
            output,
            cause,
        }
    }

    /// The output and the end of the process; no status if it was killed at the limit.
    fn start_and_wait(&self, start: Instant) -> anyhow::Result<(String, Option<ExitStatus>)> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.output);
        let mut file = file.context("cannot make a file for output")?;
        file.set_len(0).context("cannot clear a file for output")?;
        let copy = || file.try_clone().context("cannot share a file");
        let (out, errors) = (copy()?, copy()?);
        let mut child = {
            let mut command = self.command.lock().expect("no thread panics with it");
            let command = command.stdout(out).stderr(errors);
            command.spawn().context("cannot start the process")?
        };
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the process")? {
                break Some(status);
            }
            if !self.unlimited && start.elapsed() > LIMIT {
                child.kill().context("cannot end the process")?;
                child.wait().context("cannot wait for the process")?;
                break None;
            }
            sleep(INTERVAL);
        };
        let mut bytes = Vec::new();
        file.rewind().context("cannot read the output")?;
        file.read_to_end(&mut bytes)
            .context("cannot read the output")?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), status))
    }
}

impl Ended {
    /// Prints the output, under the name of the process.
    pub fn print(&self) {
        let cause = self.cause.iter().map(|cause| format!("{cause}\n"));
        let text = format!(
            "     Running {} ({:.1} s)\n{}{}\n",
            self.name,
            self.took.as_secs_f64(),
            self.output,
            cause.collect::<String>()
        );
        // The tests do not depend on a reader of the output.
        let _ = stdout().write_all(text.as_bytes());
    }

    /// Prints the part of the output that describes failures.
    pub fn repeat_failures(&self) {
        if self.passed {
            return;
        }
        println!("failed: {}", self.name);
        failures(&self.output)
            .iter()
            .for_each(|line| println!("{line}"));
        self.cause.iter().for_each(|cause| println!("{cause}"));
    }

    /// The names of the tests that failed, or of the process if it did not reach its result.
    pub fn failed(&self) -> Vec<String> {
        if self.passed {
            return Vec::new();
        }
        if let Some(cause) = &self.cause {
            return vec![format!("{} ({cause})", self.name)];
        }
        let lines = self.output.lines();
        let tests = lines.filter_map(|line| {
            let test = line.strip_prefix("test ")?.strip_suffix(" FAILED")?;
            Some(format!("{}: {}", self.name, test.trim_end_matches(" ...")))
        });
        tests.collect()
    }
}

/// The lines between `failures:` and the result, or all lines of a process without a result. Only the
/// last ones, if they are many.
fn failures(output: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut inside = !output.contains("test result: FAILED");
    for line in output.lines() {
        if line.starts_with("test result: ") {
            inside = false;
        } else if inside {
            lines.push(line);
        } else if line == "failures:" {
            inside = true;
        }
    }
    lines.split_off(lines.len().saturating_sub(REPEATED))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ended, REPEATED, failures};

    #[test]
    fn failures_are_kept_and_nothing_else() {
        let output = "\
            running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n\
            ---- b stdout ----\nit panicked\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed\nafter";
        let told: Vec<&str> = failures(output)
            .into_iter()
            .filter(|l| !l.is_empty())
            .collect();
        assert_eq!(
            told,
            ["---- b stdout ----", "it panicked", "failures:", "    b"]
        );
        // A signal ended the process.
        assert_eq!(
            failures("running 1 test\ntest a ... "),
            ["running 1 test", "test a ... "]
        );
        let many = "line\n".repeat(2 * REPEATED);
        assert_eq!(failures(&many).len(), REPEATED);
    }

    #[test]
    fn failed_tests_are_named() {
        let mut ended = Ended {
            name: "p t".to_owned(),
            passed: false,
            took: Duration::ZERO,
            output: "test a ... ok\ntest b ... FAILED\ntest c - should panic ... FAILED\n\
                test result: FAILED. 1 passed; 2 failed\n"
                .to_owned(),
            cause: None,
        };
        assert_eq!(ended.failed(), ["p t: b", "p t: c - should panic"]);
        ended.cause = Some("signal: 11".to_owned());
        assert_eq!(ended.failed(), ["p t (signal: 11)"]);
    }
}
