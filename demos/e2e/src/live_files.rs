//! Programs whose shared libraries carry bitcode, too: they behave as natively while functions of both
//! are compiled again, and functions of a library are exchanged as the program's are.
//!
//! | program | library |
//! |---|---|
//! | position-independent, and fixed (which copies the library's variables, and has addresses of its own for the library's functions) | as `uruk c++ -shared` builds it |
//! | position-independent | bound to its own names (`-Bsymbolic`) |
//! | without bitcode | as above |

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How often is looked whether the program answers.
const ATTEMPTS: u32 = 600;

/// Options of the program and of the library, and whether the program carries bitcode.
const BUILDS: [(&[&str], &[&str], bool); 4] = [
    (&[], &[], true),
    (&["-fno-pie", "-no-pie"], &[], true),
    (&[], &["-Wl,-Bsymbolic"], true),
    (&["-Xclang", "-fembed-bitcode=off"], &[], false),
];

/// Lines that tables must contain, each with a name and a reason. The first: the library's
/// thread-local of that name is the program's.
const TOLD: [(&str, &str); 2] = [
    ("thread_value_of_both ", "thread-local"),
    ("opened.so", "opened while the program ran"),
];

/// Runs each build natively and live.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    for (number, (program, library, with_bitcode)) in BUILDS.into_iter().enumerate() {
        let built = Built::build(bench, number, program, library)?;
        let job = built.job(Job::new(&built.program, LIMIT));
        let native = built.execute(bench, job)?;
        if native.ending != Ending::Status(0) {
            let ending = verdict::ending(native.ending);
            return Err(format!("build {number}, natively: {ending}"));
        }
        for force in ["--force=all", "--force=flip"] {
            let mut live = bench.subject.job(LIMIT);
            for word in ["live", force, "--no-control", "--explain", "--"] {
                live.arg(word);
            }
            live.arg(&built.program);
            let ours = built.execute(bench, built.job(live))?;
            if let Some(text) = verdict::difference(&native, &ours, false) {
                return Err(format!("build {number}, {force}: {text}"));
            }
            check_table(&String::from_utf8_lossy(&ours.stderr), with_bitcode)
                .map_err(|text| format!("build {number}, {force}: {text}"))?;
        }
    }
    Ok(())
}

/// Whether functions of the library, and of the program if it has bitcode, were compiled again.
fn check_table(table: &str, with_bitcode: bool) -> Result<(), String> {
    let line = |name: &str| table.lines().find(|line| line.contains(name));
    let published = |name: &str| {
        let count = line(name).and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        count.is_some_and(|count: u64| count > 0)
    };
    for (name, why) in TOLD {
        if !line(name).is_some_and(|line| line.contains(why)) {
            return Err(format!("`{name}` is not told of: {table}"));
        }
    }
    let fits = published(" _Z4workPKii ")
        && published(" call_back ")
        && published(" ask_weak ")
        && published(" thread_count ")
        && published(" thread_value ")
        && published(" _Z5roundi ") == with_bitcode;
    match fits {
        true => Ok(()),
        false => Err(format!("not what was to be compiled: {table}")),
    }
}

/// A program, its library, and one that it opens.
struct Built {
    folder: PathBuf,
    program: PathBuf,
    opened: PathBuf,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../live")
        .join(name)
}

impl Built {
    fn build(
        bench: &Bench,
        number: usize,
        program: &[&str],
        library: &[&str],
    ) -> Result<Built, String> {
        let folder = bench.scratch(&format!("live-files-{number}"));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let shared = ["-fPIC", "-shared"];
        let own = folder.join("libwork.so");
        let opened = folder.join("opened.so");
        compile(
            bench,
            &[&shared, library].concat(),
            &[&source("library.cpp")],
            &own,
        )?;
        compile(bench, &shared, &[&source("opened.cpp")], &opened)?;
        let to = folder.join("program");
        let main = source("libraries.cpp");
        compile(bench, program, &[&main, &own], &to)?;
        Ok(Built {
            folder,
            program: to,
            opened,
        })
    }

    fn job(&self, mut job: Job) -> Job {
        job.arg(&self.opened);
        job
    }

    fn execute(&self, bench: &Bench, job: Job) -> Result<Outcome, String> {
        let name = self.folder.file_name().unwrap_or_default();
        let scratch = bench.scratch(&format!("{}-run", name.to_string_lossy()));
        job.run(&scratch).map_err(|error| error.to_string())
    }
}

fn compile(bench: &Bench, flags: &[&str], from: &[&Path], to: &Path) -> Result<(), String> {
    let mut job = bench.subject.job(LIMIT);
    job.args
        .extend(["c++", "-O2", "-w", "-pthread"].map(Into::into));
    job.args.extend(flags.iter().map(Into::into));
    job.args.extend(from.iter().map(Into::into));
    job.arg("-o").arg(to);
    let built = job.run(&bench.scratch("live-files-build"));
    let built = built.map_err(|error| error.to_string())?;
    match built.ending {
        Ending::Status(0) => Ok(()),
        _ => Err(verdict::excerpt(&built.stderr)),
    }
}

/// Ends the program, whatever happens.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Exchanges a function of the library while the program runs, and goes back.
///
/// # Errors
/// The failure, in words.
pub fn judge_swap(bench: &Bench) -> Result<(), String> {
    let built = Built::build(bench, BUILDS.len(), &[], &[])?;
    let fix = built.folder.join("fix.o");
    let flags = ["-DFIXED", "-fPIC", "-c"];
    compile(bench, &flags, &[&source("library.cpp")], &fix)?;
    let failed = |error: std::io::Error| error.to_string();
    let mut command = Command::new(bench.subject.program());
    command.args(["live", "--after", "0", "--"]);
    command.arg(&built.program).arg("serve");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut served = Served(command.spawn().map_err(failed)?);
    let (Some(mut to), Some(from)) = (served.0.stdin.take(), served.0.stdout.take()) else {
        return Err("no pipes".to_owned());
    };
    let mut lines = BufReader::new(from).lines();
    let mut next = || lines.next().unwrap_or(Ok(String::new())).map_err(failed);
    let process = served.0.id().to_string();
    let swap = |words: &[&Path]| {
        let mut job = bench.subject.job(LIMIT);
        job.arg("swap").arg(&process);
        job.args.extend(words.iter().map(Into::into));
        let done = job.run(&bench.scratch("live-files-swap"));
        let done = done.map_err(|error| error.to_string())?;
        let text = verdict::excerpt(&done.stdout) + &verdict::excerpt(&done.stderr);
        Ok::<_, String>((done.ending == Ending::Status(0), text))
    };
    if next()? != "ready" {
        return Err("the program did not begin".to_owned());
    }
    let mut attempts = 0;
    while !swap(&[Path::new("--stats")])?.0 {
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err("nobody answers in the program".to_owned());
        }
        thread::sleep(LIMIT / ATTEMPTS);
    }
    let steps: [(Option<&Path>, &str); 4] = [
        (None, "10"),
        (Some(&fix), "20"),
        (Some(Path::new("--rollback")), "10"),
        (Some(&fix), "20"),
    ];
    for (step, expected) in steps {
        if let Some(step) = step {
            let (done, text) = swap(&[step])?;
            if !done || !text.contains("work") {
                return Err(format!("{}: {text}", step.display()));
            }
        }
        to.write_all(b"\n").map_err(failed)?;
        let said = next()?;
        if said != expected {
            return Err(format!("{step:?}: {said}, not {expected}"));
        }
    }
    Ok(())
}
