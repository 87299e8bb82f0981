//! A server in C, built by `uruk cc`, under load from clients: natively, then under `uruk live`,
//! where it gets faster by itself, gets a fix swapped in, and has it rolled back. Requests and
//! processor time of each step are printed, and what failed or was torn; the page with the story is
//! written at the end.
//!
//! Processor time is that of the process, from `/proc`, by thread: those that serve, and ours, which
//! compile and look at samples. Times differ from machine to machine and from run to run; what may
//! not is that no request fails.

mod load;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use uruk_guests::server::{self, Explained, Server, Version};
use uruk_guests::{Cache, execute::Ending, execute::Job};

use self::load::{Load, Step};
use crate::table;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds that each step is measured for.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Clients, each with a connection of its own.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Seconds that are waited at most for code to become as good as it gets.
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Where the page goes; into the target folder if absent.
    #[arg(long)]
    page: Option<PathBuf>,
}

/// The function that the clients keep busy.
const HOT: &str = "answer";

/// Nothing new for so long: code is as good as it gets.
const QUIET: Duration = Duration::from_secs(5);

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the demo.
///
/// # Errors
/// Something could not be built or started, or a request was not answered as it should be.
pub fn run(uruk: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = Cache::in_target().directory().join("demo-live");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let stage = Stage {
        uruk,
        folder: &folder,
        arguments,
    };
    let (program, fix) = (folder.join("server"), folder.join("fix.o"));
    stage.compile(&[], &program)?;
    stage.compile(&["-DFIXED", "-c"], &fix)?;
    let mut steps = vec![stage.natively(&program)?];
    stage.live(&program, &fix, &mut steps)?;
    // The other load of the machine changes meanwhile.
    steps.push(stage.natively(&program)?);
    println!("\n{}", load::table(&steps));
    println!("{EXPLAINED}");
    println!("the page: {}", stage.page().display());
    let wrong = |step: &Step| step.failed + step.torn + step.stale > 0;
    match steps.iter().find(|step| wrong(step)) {
        Some(step) => bail!(
            "{}: not every request was answered as it should be",
            step.name
        ),
        None => Ok(()),
    }
}

const EXPLAINED: &str = "\
us/request: processor time of the threads that serve, and of all others, which compile and compare.
failed: no reply. torn: a reply that neither source makes. stale: by code that was to be gone.";

/// The inputs that all steps need.
struct Stage<'a> {
    uruk: &'a Path,
    folder: &'a Path,
    arguments: &'a Arguments,
}

impl Stage<'_> {
    fn page(&self) -> PathBuf {
        let own = || self.folder.join("story.html");
        self.arguments.page.clone().unwrap_or_else(own)
    }

    fn job(&self, words: &[&str]) -> Job {
        let mut job = Job::new(self.uruk, LIMIT);
        job.args.extend(words.iter().map(Into::into));
        job
    }

    /// Standard output of a command that has to succeed.
    fn output(&self, job: &Job) -> anyhow::Result<String> {
        let outcome = job.run(&self.folder.join("command"))?;
        if outcome.ending != Ending::Status(0) {
            let said = String::from_utf8_lossy(&outcome.stderr);
            bail!("{}: {:?}: {said}", job.command_line(), outcome.ending);
        }
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    fn compile(&self, more: &[&str], to: &Path) -> anyhow::Result<()> {
        let mut job = self.job(&["cc", "-O2", "-pthread"]);
        job.args.extend(more.iter().map(Into::into));
        job.arg(server::source()).arg("-o").arg(to);
        println!("{}", job.command_line());
        self.output(&job).map(drop)
    }

    /// `uruk swap` with these words, about a server.
    fn swap(&self, server: &Server, words: &[&str]) -> anyhow::Result<String> {
        let process = server.id().to_string();
        let words: Vec<&str> = ["swap", &process]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        self.output(&self.job(&words))
    }

    fn step(&self, name: &str, server: &Server, load: &Load) -> anyhow::Result<Step> {
        let length = Duration::from_secs_f64(self.arguments.seconds);
        let step = load.step(name, server, length)?;
        println!("{}", step.line());
        Ok(step)
    }

    fn natively(&self, program: &Path) -> anyhow::Result<Step> {
        let socket = self.folder.join("native.socket");
        let server = Server::start(program.as_os_str(), &[], &socket)?;
        Load::with(&socket, self.arguments.clients, |load| {
            self.step("natively", &server, load)
        })
    }

    fn live(&self, program: &Path, fix: &Path, steps: &mut Vec<Step>) -> anyhow::Result<()> {
        let socket = self.folder.join("live.socket");
        let words = [
            "live".as_ref(),
            "--record".as_ref(),
            "--".as_ref(),
            program.as_os_str(),
        ];
        let mut server = Server::start(self.uruk.as_os_str(), &words, &socket)?;
        let clients = self.arguments.clients;
        Load::with(&socket, clients, |load| -> anyhow::Result<()> {
            steps.push(self.step("live, at the start", &server, load)?);
            self.settle(&server)?;
            steps.push(self.step("live, later", &server, load)?);
            load.expect(None);
            let fix = fix.to_string_lossy();
            print!("{}", self.swap(&server, &[&fix])?);
            load.expect(Some(Version::New));
            steps.push(self.step("fix swapped in", &server, load)?);
            self.settle(&server)?;
            steps.push(self.step("fix, later", &server, load)?);
            load.expect(None);
            print!("{}", self.swap(&server, &["--rollback"])?);
            load.expect(Some(Version::Old));
            steps.push(self.step("rolled back", &server, load)?);
            let page = self.page();
            self.swap(&server, &["--report", &page.to_string_lossy()])?;
            Ok(())
        })?;
        server.check()
    }

    /// Until better code of what is hot was published and nothing new came for a while; it says so
    /// if patience ends before.
    fn settle(&self, server: &Server) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut last = (Explained::default(), begun);
        while begun.elapsed().as_secs_f64() < self.arguments.patience {
            // The server does not answer until the program's bitcode is read.
            let table = self.swap(server, &["--explain"]).unwrap_or_default();
            let now = Explained::of(&table, HOT).unwrap_or_default();
            if now != last.0 {
                let seconds = begun.elapsed().as_secs_f64();
                println!(
                    "  `{HOT}` is of tier {}, {} publications ({seconds:.1} s)",
                    now.tier, now.published
                );
                last = (now, Instant::now());
            }
            if now.published > 0 && last.1.elapsed() > QUIET {
                return Ok(());
            }
            thread::sleep(QUIET / 20);
        }
        println!("  `{HOT}` is still changing, or native");
        Ok(())
    }
}
