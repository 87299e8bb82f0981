//! Builds the models of a package and runs them with a time limit.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cargo::{Cargo, string_field};
use crate::model::Model;

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A test binary.
pub struct Binary {
    path: PathBuf,
    /// The file that receives the output of a run. A pipe without a reader would block the run.
    output: PathBuf,
}

/// How a run ended.
pub enum Ended {
    /// All tests passed, in that time.
    Passed(Duration),
    /// With the tests that failed, and what the first of them said.
    Failed(String),
    /// It was ended at the limit.
    CutOff,
}

impl Binary {
    /// Builds the models of a package; `None` if they do not compile, which cargo says.
    pub fn build(cargo: &Cargo, model: &Model) -> anyhow::Result<Option<Binary>> {
        let mut command = cargo.command("test");
        command.args(model.words());
        command.args(["--no-run", "--quiet", "--message-format", "json"]);
        let built = command.stderr(Stdio::inherit()).output();
        let built = built.context("cannot start cargo")?;
        if !built.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&built.stdout);
        let path = text
            .lines()
            .filter_map(|line| string_field(line, "executable"))
            .next_back();
        let path = PathBuf::from(path.context("cargo names no test binary")?);
        let output = path.with_extension("output");
        Ok(Some(Binary { path, output }))
    }

    /// Runs one test, or all, at most for `limit`.
    pub fn run(&self, test: Option<&str>, limit: Option<Duration>) -> anyhow::Result<Ended> {
        let output = File::create(&self.output).context("cannot make a file for output")?;
        let mut command = Command::new(&self.path);
        if let Some(test) = test {
            command.args(["--exact", test]);
        }
        command
            .env("RUST_BACKTRACE", "0")
            .stdout(output.try_clone().context("cannot share a file")?)
            .stderr(output);
        let start = Instant::now();
        let mut child = command.spawn().context("cannot start the models")?;
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the models")? {
                break status;
            }
            if limit.is_some_and(|limit| start.elapsed() > limit) {
                child.kill().context("cannot end the models")?;
                child.wait().context("cannot wait for the models")?;
                return Ok(Ended::CutOff);
            }
            sleep(LOOK);
        };
        let text = fs::read(&self.output).context("cannot read the output")?;
        let text = String::from_utf8_lossy(&text);
        let ran = !text.contains("test result: ok. 0 passed");
        Ok(match status.success() {
            true if ran => Ended::Passed(start.elapsed()),
            true => anyhow::bail!("there is no test {}", test.unwrap_or_default()),
            false => Ended::Failed(first_words(&text)),
        })
    }
}

/// Which tests failed, and the message of the first panic.
fn first_words(output: &str) -> String {
    let failed = output.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        name.rsplit("::").next()
    });
    let failed: Vec<&str> = failed.collect();
    let mut lines = output
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    let said = lines.nth(1).unwrap_or("it ended without a word").trim();
    format!("{} ({said})", failed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::first_words;
    use crate::cargo::string_field;

    #[test]
    fn what_cargo_and_a_test_say() {
        let message = r#"{"reason":"compiler-artifact","executable":"/t/deps/a-1","fresh":true}"#;
        assert_eq!(string_field(message, "executable"), Some("/t/deps/a-1"));
        assert_eq!(string_field(r#"{"executable":null}"#, "executable"), None);
        let output = "test model::a ... ok\ntest model::b ... FAILED\n\n---- model::b ----\n\
             thread 'model::b' panicked at src/model.rs:1:2:\ndeadlock; threads = []\n";
        assert_eq!(first_words(output), "b (deadlock; threads = [])");
    }
}
