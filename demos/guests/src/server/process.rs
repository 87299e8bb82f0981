//! The server as a process: started, looked at in `/proc`, and ended.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Sub;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

/// A server that runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Server(Child);

/// Processor time so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Of the program's threads that are there.
    pub serving: Duration,
    /// Of the process.
    pub all: Duration,
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            serving: self.serving.saturating_sub(before.serving),
            all: self.all.saturating_sub(before.all),
        }
    }
}

impl Server {
    /// Starts a program with these words and its socket, and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub fn start(program: &OsStr, words: &[&OsStr], socket: &Path) -> anyhow::Result<Server> {
        // Of an earlier run; there may be none.
        let _ = fs::remove_file(socket);
        let mut command = Command::new(program);
        command.args(words).arg(socket).stdout(Stdio::piped());
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Server(child);
        let mut line = String::new();
        if let Some(stdout) = server.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim() {
            "ready" => Ok(server),
            other => bail!("the server said `{other}`"),
        }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("the server ended: {status}"),
            None => Ok(()),
        }
    }

    /// Processor time so far. Threads called `uruk...` do not count as the program's.
    ///
    /// # Errors
    /// It has ended.
    pub fn spent(&self) -> anyhow::Result<Spent> {
        let folder = Path::new("/proc").join(self.id().to_string());
        let read = |path: &Path| {
            let text = fs::read_to_string(path.join("stat")).context("the server has ended")?;
            parse(&text).with_context(|| format!("not understood: {text}"))
        };
        let mut serving = Duration::ZERO;
        for task in fs::read_dir(folder.join("task")).context("the server has ended")? {
            // A thread may end meanwhile.
            if let Ok((name, spent)) = read(&task?.path())
                && !name.starts_with("uruk")
            {
                serving += spent;
            }
        }
        let (_, all) = read(&folder)?;
        Ok(Spent { serving, all })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Linux tells times of processes in hundredths of a second, whatever its own clock does (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Name and processor time of a thread or a process, from its `stat`. The name stands in parentheses
/// and may hold any character (`proc_pid_stat(5)`).
fn parse(stat: &str) -> Option<(String, Duration)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((name.to_owned(), TICK * (user + system)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        let expected = Some(("a) b (c".to_owned(), Duration::from_secs(2)));
        assert_eq!(parse(stat), expected);
        assert_eq!(parse("12 (a"), None);
    }
}
