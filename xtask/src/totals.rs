//! `cargo test` with the sums of all its test binaries at the end.

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

/// Runs `cargo test` with some arguments, passing its output through, and prints
/// the totals. Fails as cargo does.
pub fn show(cargo: &Cargo, args: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo.command("test");
    let child = command.args(args).stdout(Stdio::piped()).spawn();
    let mut child = child.context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut totals = Totals::default();
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
                totals.add(&String::from_utf8_lossy(&line));
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
    println!("{}{more}", totals.line());
    check(status, "cargo test")
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
    use super::Totals;

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
