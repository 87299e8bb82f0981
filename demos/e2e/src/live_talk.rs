//! `demos/live/exchanged.c`: a program that answers lines, live, and what others ask of it meanwhile.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// How often is looked whether the program answers.
const ATTEMPTS: u32 = 600;

/// Lines between two such looks, for which the program needs processor time.
const LINES: u32 = 500;

/// The program, which ends whatever happens.
pub(crate) struct Talk<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'b> Talk<'b> {
    /// Starts a program by a command, and waits until others may ask.
    pub(crate) fn start(bench: &'b Bench, folder: &Path, command: Command) -> Result<Self, String> {
        Self::begin(bench, folder, command)?.attended()
    }

    /// Starts a program by a command.
    fn begin(bench: &'b Bench, folder: &Path, mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let folder = folder.to_owned();
        let mut talk = Self {
            bench,
            folder,
            child,
            to,
            from: BufReader::new(from).lines(),
        };
        let first = talk.next()?;
        if first != "ready" {
            return Err(format!("the program began by `{first}`"));
        }
        Ok(talk)
    }

    /// Waits until others may ask.
    fn attended(mut self) -> Result<Self, String> {
        for _ in 0..ATTEMPTS {
            if self.swap(["--stats"])?.0 {
                return Ok(self);
            }
            for _ in 0..LINES {
                self.ask("x")?;
            }
            thread::sleep(LIMIT / ATTEMPTS);
        }
        Err("nobody answers in the program".to_owned())
    }

    /// Under `uruk live`.
    pub(crate) fn live(bench: &'b Bench, folder: &Path, program: &Path) -> Result<Self, String> {
        let mut command = Command::new(bench.subject.program());
        command.args(["live", "--after", "0", "--"]).arg(program);
        Self::start(bench, folder, command)
    }

    /// Under `uruk live`, which looks at it only after so many milliseconds.
    pub(crate) fn live_unasked(
        bench: &'b Bench,
        folder: &Path,
        program: &Path,
        after: &str,
    ) -> Result<Self, String> {
        let mut command = Command::new(bench.subject.program());
        command.args(["live", "--after", after, "--"]).arg(program);
        Self::begin(bench, folder, command)
    }

    /// Under `uruk live`, with so many MiB of address space.
    pub(crate) fn live_limited(
        bench: &'b Bench,
        folder: &Path,
        program: &Path,
        limit: u32,
    ) -> Result<Self, String> {
        let mut command = Command::new("sh");
        let script = format!("ulimit -v {}; exec \"$@\"", limit * 1024);
        command.args(["-c", &script, "sh"]);
        command.arg(bench.subject.program());
        command.args(["live", "--after", "0", "--"]).arg(program);
        Self::begin(bench, folder, command)
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    fn next(&mut self) -> Result<String, String> {
        let line = self.from.next().unwrap_or(Ok(String::new()));
        line.map_err(|error| error.to_string())
    }

    /// Its answer to a line.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, String> {
        self.send(line)?;
        self.next()
    }

    fn send(&mut self, line: &str) -> Result<(), String> {
        let line = format!("{line}\n");
        let sent = self.to.write_all(line.as_bytes());
        sent.map_err(|error| error.to_string())
    }

    /// Has it begin its loop anew.
    pub(crate) fn again(&mut self) -> Result<(), String> {
        self.send("again")
    }

    /// Has it close all files that it did not open.
    pub(crate) fn close_files(&mut self) -> Result<(), String> {
        self.send("close")
    }

    /// Whether it gives that answer to a line.
    pub(crate) fn asked(&mut self, line: &str, answer: &str) -> Result<(), String> {
        let said = self.ask(line)?;
        match said == answer {
            true => Ok(()),
            false => Err(format!("to `{line}`: `{said}`, not `{answer}`")),
        }
    }

    /// Whether it gives that answer to a line of three letters.
    pub(crate) fn expect(&mut self, answer: &str, when: &str) -> Result<(), String> {
        let said = self.ask("abc")?;
        match said == answer {
            true => Ok(()),
            false => Err(format!("{when}: `{said}`, not `{answer}`")),
        }
    }

    /// Whether `uruk swap` does what it is asked, and what it says.
    pub(crate) fn swap<W: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<(bool, String), String> {
        self.swap_in(self.child.id(), words)
    }

    /// Like [`Talk::swap`], of another process than the one that was started.
    pub(crate) fn swap_in<W: AsRef<OsStr>>(
        &self,
        process: u32,
        words: impl IntoIterator<Item = W>,
    ) -> Result<(bool, String), String> {
        let mut job = self.bench.subject.job(LIMIT);
        job.arg("swap").arg(process.to_string());
        job.args
            .extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        let done = run(&job, &self.folder.join("swap"))?;
        let text = verdict::excerpt(&done.stdout) + &verdict::excerpt(&done.stderr);
        Ok((done.ending == Ending::Status(0), text))
    }

    /// As [`Talk::swap`], which has to be done and to say all that.
    pub(crate) fn swapped<W: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = W>,
        said: &[&str],
    ) -> Result<(), String> {
        let (done, text) = self.swap(words)?;
        match done && said.iter().all(|said| text.contains(said)) {
            true => Ok(()),
            false => Err(format!("not {said:?}: {text}")),
        }
    }

    /// Has so many clients ask at once.
    pub(crate) fn crowd(&self, count: usize, words: &[&OsStr]) -> Result<Crowd, String> {
        let mut crowd = Crowd(Vec::new());
        for _ in 0..count {
            let mut client = Command::new(self.bench.subject.program());
            client.arg("swap").arg(self.process().to_string());
            client
                .args(words)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            crowd
                .0
                .push(client.spawn().map_err(|error| error.to_string())?);
        }
        Ok(crowd)
    }

    /// Where memory of the program's process is, and what may be done with it.
    pub(crate) fn maps(&self) -> Result<String, String> {
        let file = format!("/proc/{}/maps", self.child.id());
        fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))
    }
}

/// Clients of a program, which are ended with this.
pub(crate) struct Crowd(Vec<Child>);

impl Crowd {
    /// How many are not answered yet.
    pub(crate) fn waiting(&mut self) -> usize {
        let clients = self.0.iter_mut();
        clients
            .filter_map(|it| {
                it.try_wait()
                    .is_ok_and(|ended| ended.is_none())
                    .then_some(())
            })
            .count()
    }
}

impl Crowd {
    /// Whether all have ended and were told that it was done.
    pub(crate) fn all_succeeded(&mut self) -> bool {
        let done = |it: &mut Child| matches!(it.try_wait(), Ok(Some(status)) if status.success());
        self.0.iter_mut().all(done)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for client in &mut self.0 {
            // It may have ended.
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// A folder of nothing.
pub(crate) fn fresh(bench: &Bench, name: &str) -> Result<PathBuf, String> {
    let folder = bench.scratch(name);
    // Of an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

/// A file of `demos/live`.
pub(crate) fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live");
    folder.join(name)
}

/// `uruk cc -O2`, with the compiler of the tests.
pub(crate) fn driver(bench: &Bench) -> Job {
    let mut job = bench.subject.job(LIMIT);
    let compiler = bench.tools.clang.display().to_string();
    job.env.push(("URUK_CC".to_owned(), compiler));
    job.args.extend(["cc", "-O2"].map(Into::into));
    job
}

/// The file that a compiler makes from sources, with additional words on its command line. The
/// compiler must print nothing.
pub(crate) fn make(
    mut job: Job,
    words: &[&str],
    from: &[&Path],
    to: PathBuf,
) -> Result<PathBuf, String> {
    job.args.extend(words.iter().map(Into::into));
    job.args.extend(from.iter().map(Into::into));
    job.arg("-o").arg(&to);
    let mut scratch = to.clone().into_os_string();
    scratch.push(".build");
    quiet(&job, Path::new(&scratch))?;
    match to.exists() {
        true => Ok(to),
        false => Err(format!("{}: nothing was made", job.command_line())),
    }
}

/// Standard output of what succeeds and says nothing besides.
pub(crate) fn quiet(job: &Job, scratch: &Path) -> Result<String, String> {
    let done = run(job, scratch)?;
    let said = verdict::excerpt(&done.stderr);
    match done.ending == Ending::Status(0) && done.stderr.is_empty() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!(
            "{}: {}: {said}",
            job.command_line(),
            verdict::ending(done.ending)
        )),
    }
}

/// Runs it.
pub(crate) fn run(job: &Job, scratch: &Path) -> Result<Outcome, String> {
    let line = job.command_line();
    job.run(scratch)
        .map_err(|error| format!("cannot run {line}: {error}"))
}

/// How often a table (`--explain`) says that code of a function was published.
pub(crate) fn published(table: &str, function: &str) -> u64 {
    let name = format!(" {function} (");
    let lines = table.lines().filter(|line| line.contains(&name));
    let counts = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    counts.sum()
}
