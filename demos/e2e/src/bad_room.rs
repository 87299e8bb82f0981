//! Where bad input is made and refused: the rules that hold for every kind of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uruk_guests::execute::{Ending, Outcome};
use uruk_guests::toolchain;

use crate::subject::{Mode, STATUS_FAILURE, STATUS_USAGE};
use crate::trial::Bench;
use crate::verdict;

/// No bad input takes longer than this to be refused.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The longest message that still counts as one clear message.
const MESSAGE_LINES: usize = 12;

/// Texts that no output may contain, for any input.
const FORBIDDEN: [&str; 6] = [
    "panicked at",
    "RUST_BACKTRACE",
    "LLVM ERROR",
    "PLEASE submit a bug report",
    "Assertion `",
    "stack backtrace",
];

/// A directory with the inputs of one trial, and what to run them with.
pub struct Room {
    /// The command under test and the compilers.
    pub bench: Arc<Bench>,
    /// Where the inputs are.
    pub directory: PathBuf,
}

impl Room {
    /// An empty directory for the trial of that name.
    pub fn new(bench: Arc<Bench>, name: &str) -> Result<Self, String> {
        let directory = bench.scratch(&format!("bad-{}", name.replace(' ', "-")));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        Ok(Self { bench, directory })
    }

    /// Writes an input file.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<PathBuf, String> {
        let path = self.directory.join(name);
        fs::write(&path, bytes).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// Compiles C with clang into a file whose extension says what it becomes.
    pub fn compile(&self, name: &str, text: &str, flags: &[&str]) -> Result<PathBuf, String> {
        let source = self.file(&format!("{name}.c"), text)?;
        let out = self.directory.join(name);
        let mut command = Command::new(&self.bench.tools.clang);
        command.args(["-w", "-O1", "-c"]).args(flags);
        command.args(name.ends_with(".bc").then_some("-emit-llvm"));
        // By its bare name: bitcode records it, and what is damaged at random places
        // must be the same bytes in every checkout.
        let bare = source.file_name().unwrap_or(source.as_os_str());
        command.current_dir(&self.directory);
        command.arg(bare).arg("-o").arg(&out);
        toolchain::run(&mut command).map_err(|error| error.to_string())?;
        Ok(out)
    }

    /// `uruk run` on files in one mode, with the rules that hold for all input.
    pub fn run_in(
        &self,
        mode: Mode,
        options: &[&str],
        files: &[PathBuf],
    ) -> Result<Outcome, String> {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let subject = &self.bench.subject;
        let job = subject.run(mode, &options, files, &[], TIME_LIMIT);
        let line = job.command_line();
        let scratch = self.directory.join(mode.name());
        let outcome = job.run(&scratch).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&outcome.stderr);
        for word in FORBIDDEN {
            if text.contains(word) {
                return Err(format!(
                    "it said `{word}`\n{line}\n{}",
                    verdict::excerpt(&outcome.stderr)
                ));
            }
        }
        if outcome.ending == Ending::Timeout {
            return Err(format!("it hangs\n{line}"));
        }
        Ok(outcome)
    }

    /// The files are refused in both modes with a short message that has all the
    /// words in it (a word may be alternatives, separated by `|`).
    pub fn refused(
        &self,
        options: &[&str],
        files: &[PathBuf],
        words: &[&str],
    ) -> Result<(), String> {
        for mode in Mode::LOADING {
            let outcome = self.run_in(mode, options, files)?;
            self.expect(&outcome, STATUS_FAILURE, words)?;
        }
        Ok(())
    }

    /// The command ended with a status and said one short thing, with these words.
    pub fn expect(&self, outcome: &Outcome, status: i32, words: &[&str]) -> Result<(), String> {
        let text = String::from_utf8_lossy(&outcome.stderr);
        let report = |problem: String| {
            Err(format!(
                "{problem}; it said:\n{}",
                verdict::excerpt(&outcome.stderr)
            ))
        };
        if outcome.ending != Ending::Status(status) {
            return report(format!(
                "it ended with {}, not status {status}",
                verdict::ending(outcome.ending)
            ));
        }
        if !(1..=MESSAGE_LINES).contains(&text.lines().count()) {
            return report("not one short message".to_owned());
        }
        match words
            .iter()
            .find(|word| !word.split('|').any(|one| text.contains(one)))
        {
            Some(word) => report(format!("`{word}` is not in its message")),
            None => Ok(()),
        }
    }

    /// The command line is refused as such.
    pub fn usage(&self, args: &[&str], words: &[&str]) -> Result<(), String> {
        let mut job = self.bench.subject.job(TIME_LIMIT);
        job.args.extend(args.iter().map(Into::into));
        let outcome = job
            .run(&self.directory)
            .map_err(|error| error.to_string())?;
        self.expect(&outcome, STATUS_USAGE, words)
    }

    /// A program that is damaged in some way: it is refused, or, if LLVM itself
    /// finds nothing wrong with it, does anything but hang or take the runtime down. Where LLVM
    /// is asked late, it may also do all that the `whole` one does: then nothing that is damaged
    /// was needed.
    pub fn damaged(&self, path: PathBuf, whole: &Path) -> Result<(), String> {
        for mode in Mode::LOADING {
            let outcome = self.run_in(mode, &[], std::slice::from_ref(&path))?;
            let refused = outcome.ending == Ending::Status(STATUS_FAILURE);
            if refused {
                self.expect(&outcome, STATUS_FAILURE, &[])?;
            } else if !self.acceptable(&path) {
                let expected = self.run_in(mode, &[], &[whole.to_owned()])?;
                if mode == Mode::Lazy
                    && (expected.ending, &expected.stdout) == (outcome.ending, &outcome.stdout)
                {
                    continue;
                }
                return Err(format!(
                    "{} does not verify, yet {} ended with {}:\n{}",
                    path.display(),
                    mode.name(),
                    verdict::ending(outcome.ending),
                    verdict::excerpt(&outcome.stderr)
                ));
            }
        }
        Ok(())
    }

    /// Whether LLVM's own tools find nothing wrong. Objects they do not judge.
    fn acceptable(&self, path: &Path) -> bool {
        if path.extension().is_some_and(|extension| extension == "o") {
            return true;
        }
        static OPT: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(opt) = OPT.get_or_init(|| toolchain::find("opt")) else {
            return true;
        };
        let mut command = Command::new(opt);
        command
            .args(["-passes=verify", "-disable-output"])
            .arg(path);
        toolchain::run(&mut command).is_ok()
    }
}
