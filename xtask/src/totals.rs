//! `cargo test` with the failures and the sums of all its test binaries at the end: who has only
//! the last lines of an output learns what failed, and how.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;

use crate::cargo::{Cargo, check};

/// How long the output may be silent after cargo's end before whoever still holds it, a process
/// that a test left behind, is not waited for.
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

/// What the test binaries say between `failures:` and their result.
#[derive(Debug, Default)]
struct Failures {
    /// The lines of each binary that failed.
    ended: Vec<VecDeque<String>>,
    /// The lines of the one that is telling, if one is.
    telling: Option<VecDeque<String>>,
}

/// Runs `cargo test` with some arguments, passing its output through, and prints
/// the failures once more and the totals. Fails as cargo does.
pub fn show(cargo: &Cargo, args: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo.command("test");
    let child = command.args(args).stdout(Stdio::piped()).spawn();
    let mut child = child.context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut totals = Totals::default();
    let mut failures = Failures::default();
    let mut out = stdout();
    let (lines, arriving) = mpsc::channel();
    std::thread::spawn(move || {
        // Ends with the output, or when nobody wants its lines any more.
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
    println!("{}{more}", totals.line());
    check(status, "cargo test")
}

impl Failures {
    /// Adds a line of output, if a binary is telling its failures.
    fn add(&mut self, line: &str) {
        if let Some(told) = &mut self.telling {
            if line.starts_with("test result: ") {
                self.ended.extend(self.telling.take());
            } else {
                if told.len() == REPEATED {
                    told.pop_front();
                }
                told.push_back(line.to_owned());
            }
        } else if line == "failures:" {
            self.telling = Some(VecDeque::new());
        }
    }

    /// All of them, also of a binary that did not come to its result.
    fn lines(&self) -> impl Iterator<Item = &str> {
        let told = self.ended.iter().chain(&self.telling);
        told.flatten().map(String::as_str)
    }
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
    use super::{Failures, REPEATED, Totals};

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

        for count in 0..2 * REPEATED {
            failures.add(&count.to_string());
        }
        assert_eq!(failures.lines().last(), Some("239"));
        assert!(failures.lines().count() < 2 * REPEATED);
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
