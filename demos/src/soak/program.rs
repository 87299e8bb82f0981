//! A program under `uruk live`: what the system tells about it, and questions to it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use uruk_guests::server::{Server, Spent};

/// How long a command of ours may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How often a command is looked at: what its time is off by.
const LOOK: Duration = Duration::from_micros(500);

/// A running program.
#[derive(Debug)]
pub struct Program {
    uruk: PathBuf,
    server: Server,
    socket: PathBuf,
}

/// Memory, descriptors and mappings of a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// KiB that are resident.
    pub resident: u64,
    /// Open files.
    pub descriptors: u64,
    /// Lines of `/proc/PID/maps`.
    pub mappings: u64,
}

/// An answer of `uruk swap`.
#[derive(Debug)]
pub struct Answer {
    /// Whether it was done.
    pub done: bool,
    /// The answer, or why not.
    pub text: String,
    /// From the start of the command to its end.
    pub ms: f64,
}

impl Program {
    /// Starts it; with tuning, as by default.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(uruk: &Path, program: &Path, socket: PathBuf) -> anyhow::Result<Program> {
        let words = ["live".as_ref(), "--".as_ref(), program.as_os_str()];
        let server = Server::start(uruk.as_os_str(), &words, &socket)?;
        Ok(Program {
            uruk: uruk.to_owned(),
            server,
            socket,
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `uruk swap PID WORDS`.
    ///
    /// # Errors
    /// The command cannot be started, or does not end.
    pub fn swap(&self, words: &[&str]) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        let mut command = Command::new(&self.uruk);
        command.arg("swap").arg(self.server.id().to_string());
        command.args(words).stdin(Stdio::null());
        // Answers to these questions are shorter than a pipe holds.
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start uruk")?;
        let done =
            wait(&mut child, begun).with_context(|| format!("uruk swap {}", words.join(" ")))?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let mut text = String::new();
        match done {
            true => child
                .stdout
                .take()
                .map(|mut it| it.read_to_string(&mut text)),
            false => child
                .stderr
                .take()
                .map(|mut it| it.read_to_string(&mut text)),
        }
        .transpose()?;
        Ok(Answer { done, text, ms })
    }

    /// Processor time so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn spent(&self) -> anyhow::Result<Spent> {
        self.server.spent()
    }

    /// Figures of the system, the least of a few looks: a client of `uruk swap` that is just
    /// answered has a descriptor and a thread for a moment.
    ///
    /// # Errors
    /// It has ended.
    pub fn figures(&self) -> anyhow::Result<Figures> {
        let mut least = self.look()?;
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(10));
            let next = self.look()?;
            least.resident = least.resident.min(next.resident);
            least.descriptors = least.descriptors.min(next.descriptors);
            least.mappings = least.mappings.min(next.mappings);
        }
        Ok(least)
    }

    fn look(&self) -> anyhow::Result<Figures> {
        let folder = Path::new("/proc").join(self.server.id().to_string());
        let read = |name: &str| fs::read_to_string(folder.join(name));
        let status = read("status").context("the program has ended")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|it| it.trim().strip_suffix(" kB"));
        Ok(Figures {
            resident: resident.unwrap_or("0").parse()?,
            descriptors: fs::read_dir(folder.join("fd"))?.count() as u64,
            mappings: read("maps")?.lines().count() as u64,
        })
    }
}

/// Whether a command succeeded.
fn wait(child: &mut Child, begun: Instant) -> anyhow::Result<bool> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begun.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("no end after {} s", LIMIT.as_secs());
        }
        thread::sleep(LOOK);
    }
}
