//! `cargo test` with the failures and the sums of all its test binaries at the end: who has only
//! the last lines of an output learns what failed, and how.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdout};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

use crate::cargo::{Cargo, check};

/// The longest silence of the output after cargo's end. A process that a test left behind may hold
/// the output open; the reader gives up on it after this time.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Sums over the `test result:` lines of several test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    binaries: u64,
    failed_binaries: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// How many lines of a test binary's failures are repeated, at most: the last ones.
const REPEATED: usize = 120;

/// The lines of the test binaries between `failures:` and their result. A binary that ends without
/// a result, for example by a signal, contributes all its lines.
#[derive(Debug, Default)]
struct Failures {
    /// The lines of each binary that failed.
    ended: Vec<VecDeque<String>>,
    /// The lines of the one that runs, if one does: since its failures, or since its beginning.
    told: Option<VecDeque<String>>,
    /// Whether `told` are failures.
    failing: bool,
}

/// The contents of cargo's error output.
#[derive(Debug, Default)]
struct Errors {
    /// How test binaries ended that did so without a result.
    endings: Vec<String>,
    /// The arguments of `cargo test` for each target that failed.
    targets: Vec<String>,
    /// The lines that follow name targets.
    listing: bool,
}

/// Runs `cargo test` with some arguments, passing its output through, and prints
/// the failures once more and the totals. Fails as cargo does.
///
/// With `again`, targets that failed are run once more, and nothing fails if they pass then. What
/// they said is printed all the same: it is a fault that does not show each time.
pub fn show(cargo: &Cargo, args: &[&str], again: bool) -> anyhow::Result<()> {
    let ended = run(cargo, args)?;
    if !again || ended.status.success() || ended.targets.is_empty() {
        return check(ended.status, "cargo test");
    }
    for target in &ended.targets {
        println!("once more: cargo test {target}");
        let words: Vec<&str> = target.split_whitespace().collect();
        check(run(cargo, &words)?.status, "cargo test, once more,")?;
    }
    println!("at first: {}", ended.told);
    println!("failed at first, and passed once more: each is a fault that does not always show:");
    for target in &ended.targets {
        println!("    {target}");
    }
    Ok(())
}

/// How a run of `cargo test` ended.
struct Ended {
    status: ExitStatus,
    /// The targets that failed.
    targets: Vec<String>,
    /// The line of totals.
    told: String,
}

fn run(cargo: &Cargo, args: &[&str]) -> anyhow::Result<Ended> {
    let mut command = cargo.command("test");
    command.args(args).stdout(Stdio::piped());
    // A terminal receives cargo's progress directly. Otherwise cargo's errors are read for the
    // signal that ended a binary.
    if !stderr().is_terminal() {
        command.stderr(Stdio::piped());
    }
    let mut child = command.spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let said = Arc::new(Mutex::new(Errors::default()));
    let passed = child.stderr.take().map(|errors| {
        let said = Arc::clone(&said);
        let (done, passed) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            pass_errors(errors, &said);
            drop(done);
        });
        passed
    });
    let mut totals = Totals::default();
    let mut failures = Failures::default();
    let mut out = stdout();
    let (lines, arriving) = mpsc::channel();
    std::thread::spawn(move || {
        // The thread ends with the output, or when the receiver of the lines is gone.
        for line in BufReader::new(output).split(b'\n') {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match arriving.recv_timeout(AFTERWARDS) {
            Ok(line) => {
                let line = line.context("cannot read cargo's output")?;
                let text = String::from_utf8_lossy(&line);
                totals.add(&text);
                failures.add(&text);
                // A reader that went away does not matter to the tests.
                let _ = out
                    .write_all(&line)
                    .and_then(|()| out.write_all(b"\n"))
                    .and_then(|()| out.flush());
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let ended = child.try_wait().context("cannot ask for cargo")?;
                if ended.is_some() {
                    eprintln!("cargo has ended, and a process that a test left behind has not");
                    break;
                }
            }
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if let Some(passed) = passed {
        // The channel is disconnected, or another process still holds the stream.
        let _ = passed.recv_timeout(AFTERWARDS);
    }
    // A test binary that could not even start has no result line.
    let unheard = !status.success() && totals.failed_binaries == 0;
    let more = if unheard {
        ", and something failed without a result"
    } else {
        ""
    };
    for line in failures.lines() {
        println!("{line}");
    }
    let said = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    for line in &said.endings {
        println!("{line}");
    }
    let told = format!("{}{more}", totals.line());
    println!("{told}");
    Ok(Ended {
        status,
        targets: said.targets,
        told,
    })
}

/// Passes cargo's errors through, and keeps what is to be told at the end.
fn pass_errors(errors: impl std::io::Read, said: &Mutex<Errors>) {
    let mut out = stderr();
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        said.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(&text);
        // A reader that went away does not matter to the tests.
        let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
    }
}

impl Errors {
    /// Adds a line of cargo's.
    fn add(&mut self, line: &str) {
        if line.contains("process didn't exit successfully") {
            self.endings.push(line.trim().to_owned());
        }
        let target = line
            .strip_prefix("    `")
            .and_then(|rest| rest.strip_suffix('`'));
        match target {
            Some(target) if self.listing => self.targets.push(target.to_owned()),
            _ => self.listing = line.starts_with("error: ") && line.ends_with(" failed:"),
        }
    }
}

impl Failures {
    /// Adds a line of output, if a binary says it.
    fn add(&mut self, line: &str) {
        if is_begin(line) {
            // The previous binary ended without a result.
            self.ended.extend(self.told.take());
            self.told = Some(VecDeque::new());
            self.failing = false;
        } else if line.starts_with("test result: ") {
            let told = self.told.take();
            if self.failing {
                self.ended.extend(told);
            }
            self.failing = false;
        } else if line == "failures:" && !self.failing {
            self.told = Some(VecDeque::new());
            self.failing = true;
        } else if let Some(told) = &mut self.told {
            if told.len() == REPEATED {
                told.pop_front();
            }
            told.push_back(line.to_owned());
        }
    }

    /// All of them, also of a binary that did not come to its result.
    fn lines(&self) -> impl Iterator<Item = &str> {
        let told = self.ended.iter().chain(&self.told);
        told.flatten().map(String::as_str)
    }
}

/// Whether it is the first line of a test binary, `running 2 tests`.
fn is_begin(line: &str) -> bool {
    let count = line.strip_prefix("running ");
    count.is_some_and(|rest| rest.ends_with(" tests") || rest.ends_with(" test"))
}

impl Totals {
    /// Adds a line of output, if it is a result.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        self.binaries += 1;
        self.failed_binaries += u64::from(!rest.starts_with("ok"));
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    fn line(&self) -> String {
        format!(
            "total: {} passed, {} failed, {} ignored in {} test binaries{}",
            self.passed,
            self.failed,
            self.ignored,
            self.binaries,
            match self.failed_binaries {
                0 => String::new(),
                count => format!(", {count} of which failed"),
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Errors, Failures, REPEATED, Totals};

    #[test]
    fn failures_are_kept_and_nothing_else() {
        let mut failures = Failures::default();
        let output = "\
            running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n\
            ---- b stdout ----\nit panicked\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed\n\
            running 1 test\ntest c ... ok\ntest result: ok. 1 passed; 0 failed\nfailures:\ncut";
        output.lines().for_each(|line| failures.add(line));
        let told: Vec<&str> = failures.lines().filter(|line| !line.is_empty()).collect();
        let expected = [
            "---- b stdout ----",
            "it panicked",
            "failures:",
            "    b",
            "cut",
        ];
        assert_eq!(told, expected);

        // A signal ends the first of them.
        let mut failures = Failures::default();
        let output = "\
            running 3 tests\ntest a ... ok\ntest b ... ok\n\
            running 1 test\ntest c ... ok\n\ntest result: ok. 1 passed; 0 failed\nDoc-tests";
        output.lines().for_each(|line| failures.add(line));
        let told: Vec<&str> = failures.lines().collect();
        assert_eq!(told, ["test a ... ok", "test b ... ok"]);

        let mut failures = Failures::default();
        failures.add("failures:");
        for count in 0..2 * REPEATED {
            failures.add(&count.to_string());
        }
        assert_eq!(failures.lines().last(), Some("239"));
        assert_eq!(failures.lines().count(), REPEATED);
    }

    #[test]
    fn failed_targets_are_found() {
        let mut said = Errors::default();
        let output = "\
            \x20    Running tests/a.rs (target/debug/deps/a-0)\n\
            error: test failed, to rerun pass `-p x --test a`\n\n\
            Caused by:\n  process didn't exit successfully: `a` (signal: 11, SIGSEGV)\n\
            error: 2 targets failed:\n    `-p x --test a`\n    `-p y --doc`\nend";
        output.lines().for_each(|line| said.add(line));
        assert_eq!(said.targets, ["-p x --test a", "-p y --doc"]);
        assert_eq!(said.endings.len(), 1);
    }

    #[test]
    fn results_add_up() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s",
        ] {
            totals.add(line);
        }
        let expected = Totals {
            binaries: 2,
            failed_binaries: 1,
            passed: 7,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(totals, expected);
    }
}
