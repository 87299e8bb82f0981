//! `uruk cc`: what it makes is what clang makes, in all ways that makefiles ask for it, and programs
//! made of it can be compiled again while they run.
//!
//! | asked for | is |
//! |---|---|
//! | `-E`, `-M`, `-MD -MF`, `-fsyntax-only` | clang's, byte for byte |
//! | `-S -emit-llvm` | clang's with the same room for entries: the bitcode is not embedded in itself |
//! | `-c`, then linked; all at once; of a response file; `-S`, then `-c`, then linked; `-emit-llvm`, then linked; by a makefile | a program that does natively and live what it does built by clang |

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use uruk_guests::execute::{Ending, Job};
use uruk_guests::toolchain::find;

use crate::live_talk::{LIMIT, driver, fresh, make, published, quiet, run, source};
use crate::trial::Bench;
use crate::verdict;

/// The sources, without their ends.
const PARTS: [&str; 2] = ["main", "part"];

/// Room for entries, as the driver asks for it.
const ROOM: [&str; 2] = ["-falign-functions=16", "-fpatchable-function-entry=64,62"];

/// A copy of the sources, and what clang makes of them.
struct Folder<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    /// The output of the program.
    printed: String,
}

/// Builds in each way.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-driver")?;
    for name in ["main.c", "part.c", "part.h", "Makefile"] {
        let from = source("driver").join(name);
        fs::copy(&from, folder.join(name)).map_err(|error| error.to_string())?;
    }
    let mut it = Folder {
        bench,
        folder,
        printed: String::new(),
    };
    let sources = PARTS.map(|part| it.file(&format!("{part}.c")));
    let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    let plain = make(it.clang(), &[], &sources, it.file("plain"))?;
    it.printed = quiet(&Job::new(&plain, LIMIT), &it.file("plain-run"))?;
    it.judge_texts()?;
    it.judge_once(&sources)?;
    it.judge_steps("objects", "o", &["-c"])?;
    it.judge_steps("assembly", "s", &["-S"])?;
    it.judge_steps("bitcode", "bc", &["-c", "-emit-llvm"])?;
    it.judge_response()?;
    it.judge_archive()?;
    it.judge_make()
}

impl Folder<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn clang(&self) -> Job {
        let mut job = Job::new(&self.bench.tools.clang, LIMIT);
        job.arg("-O2");
        job
    }

    /// Text that the driver prints or writes to a file equals clang's.
    fn judge_texts(&self) -> Result<(), String> {
        let texts: [(&[&str], &[&str], &str); 5] = [
            (&["-E"], &[], "# 1 "),
            (&["-M"], &[], "part.h"),
            (&["-fsyntax-only"], &[], ""),
            (&["-S", "-emit-llvm", "-o", "-"], &ROOM, "define"),
            (&["-c", "-MD", "-MT", "x.o"], &[], "part.h"),
        ];
        for (words, more, holds) in texts {
            let made = |job: Job, more: &[&str], who: &str| {
                let mut job = job;
                job.args.extend(words.iter().map(Into::into));
                job.args.extend(more.iter().map(Into::into));
                let deps = self.file(&format!("{who}.d"));
                if words.contains(&"-MD") {
                    job.arg("-MF").arg(&deps);
                    job.arg("-o").arg(self.file(&format!("{who}.o")));
                }
                job.arg(self.file("main.c"));
                let printed = quiet(&job, &self.file("texts"))?;
                let written = fs::read_to_string(&deps).unwrap_or_default();
                Ok::<_, String>(printed + &written)
            };
            let native = made(self.clang(), more, "clang")?;
            let ours = made(driver(self.bench), &[], "ours")?;
            if ours != native || !ours.contains(holds) {
                return Err(format!("{words:?}: {ours}\nclang's:\n{native}"));
            }
        }
        Ok(())
    }

    fn judge_once(&self, sources: &[&Path]) -> Result<(), String> {
        let program = make(driver(self.bench), &[], sources, self.file("once"))?;
        self.judge_program(&program)
    }

    /// Each source by itself to a file of that kind; that to an object, unless it is one; and those to
    /// a program.
    fn judge_steps(&self, name: &str, kind: &str, words: &[&str]) -> Result<(), String> {
        let mut objects = Vec::new();
        for part in PARTS {
            let from = self.file(&format!("{part}.c"));
            let to = self.file(&format!("{name}-{part}.{kind}"));
            let mut made = make(driver(self.bench), words, &[&from], to)?;
            if kind != "o" {
                let to = made.with_extension("o");
                let mut job = driver(self.bench);
                // Of no use for assembly, of which clang warns.
                job.args.retain(|word| word != "-O2" || kind != "s");
                made = make(job, &["-c"], &[&made], to)?;
            }
            objects.push(made);
        }
        let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
        let program = make(driver(self.bench), &[], &objects, self.file(name))?;
        self.judge_program(&program)
    }

    /// The words of each step are in a file, one of them in quotes.
    fn judge_response(&self) -> Result<(), String> {
        let mut link = String::new();
        for part in PARTS {
            let object = self.file(&format!("response {part}.o"));
            let from = self.file(&format!("{part}.c"));
            let (object, from) = (object.display(), from.display());
            self.respond(&format!("-c\n\"{from}\"\n-o \"{object}\"\n"))?;
            link += &format!("\"{object}\"\n");
        }
        let program = self.file("response");
        self.respond(&format!("{link}-o \"{}\"\n", program.display()))?;
        self.judge_program(&program)?;
        // The words of a response file count as words of the command line.
        let mut job = driver(self.bench);
        let foreign = self.file("foreign");
        let (from, to) = (self.file("part.c"), self.file("foreign.s"));
        let text = "--target=aarch64-linux-gnu -S -ffreestanding\n";
        fs::write(&foreign, text).map_err(|error| error.to_string())?;
        job.arg(at(&foreign)).arg(from).arg("-o").arg(&to);
        quiet(&job, &self.file("response-build"))?;
        let made = fs::read_to_string(&to).map_err(|error| error.to_string())?;
        match made.contains("llvmbc") || made.contains("__patchable") {
            true => Err("something was added for another machine".to_owned()),
            false => Ok(()),
        }
    }

    fn respond(&self, words: &str) -> Result<(), String> {
        let file = self.file("words");
        fs::write(&file, words).map_err(|error| error.to_string())?;
        let mut job = driver(self.bench);
        job.arg(at(&file));
        quiet(&job, &self.file("response-build")).map(drop)
    }

    /// `ar` and `nm` find the symbols of objects, whatever plugins they load: an LLVM plugin that is
    /// older than the bitcode finds none in an object of link-time optimization.
    fn judge_archive(&self) -> Result<(), String> {
        let (Some(ar), Some(nm)) = (find("ar"), find("nm")) else {
            eprintln!("no archive is made: binutils are not installed");
            return Ok(());
        };
        if !Path::new("/usr/lib/bfd-plugins/LLVMgold-14.so").exists() {
            eprintln!("no plugin of another version: llvm-14-linker-tools is not installed");
        }
        let object = self.file("archived.o");
        let object = make(driver(self.bench), &["-c"], &[&self.file("part.c")], object)?;
        let archive = self.file("libarchived.a");
        let mut job = Job::new(ar, LIMIT);
        job.arg("rcs").arg(&archive).arg(&object);
        quiet(&job, &self.file("archive-build"))?;
        let mut job = Job::new(nm, LIMIT);
        job.arg("--print-armap").arg(&archive);
        let listed = quiet(&job, &self.file("archive-list"))?;
        match listed.contains(" in archived.o\n") && listed.contains(" T ") {
            true => {}
            false => return Err(format!("the archive has no index: {listed}")),
        }
        let program = self.file("archived");
        let sources = [&*self.file("main.c"), &*archive];
        let program = make(driver(self.bench), &[], &sources, program)?;
        self.judge_program(&program)
    }

    /// A makefile that knows nothing of the driver. Where there is no `make`, its steps by hand.
    fn judge_make(&self) -> Result<(), String> {
        let program = self.file("program");
        match find("make") {
            Some(make) => {
                let mut job = Job::new(make, LIMIT);
                let command = self.bench.subject.program().display();
                job.env.push(("CC".to_owned(), format!("{command} cc")));
                let clang = self.bench.tools.clang.display().to_string();
                job.env.push(("URUK_CC".to_owned(), clang));
                job.arg("-C").arg(&self.folder).arg("program");
                quiet(&job, &self.file("make-run"))?;
                // The dependency files hold: what depends on the header is made again.
                fs::remove_file(self.file("part.h")).map_err(|error| error.to_string())?;
                let broken = run(&job, &self.file("make-run"))?;
                if broken.ending == Ending::Status(0) {
                    return Err("`make` does not know of the header".to_owned());
                }
            }
            None => {
                eprintln!("there is no `make`: the steps of the makefile are done by hand");
                let mut objects = Vec::new();
                for part in PARTS {
                    let (from, to) = (format!("{part}.c"), format!("{part}.o"));
                    let words = ["-MMD", "-c"];
                    let from = self.file(&from);
                    objects.push(make(driver(self.bench), &words, &[&from], self.file(&to))?);
                }
                let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
                make(driver(self.bench), &[], &objects, program.clone())?;
            }
        }
        let dependencies = fs::read_to_string(self.file("main.d"));
        let dependencies = dependencies.map_err(|error| error.to_string())?;
        if !dependencies.contains("part.h") {
            return Err(format!("main.d: {dependencies}"));
        }
        self.judge_program(&program)
    }

    /// A program does what it does built by clang, natively and with all its functions compiled again.
    fn judge_program(&self, program: &Path) -> Result<(), String> {
        let shown = program.display();
        let native = quiet(&Job::new(program, LIMIT), &self.file("run"))?;
        let mut job = self.bench.subject.job(LIMIT);
        for word in ["live", "--force=all", "--no-control", "--explain", "--"] {
            job.arg(word);
        }
        job.arg(program);
        let ours = run(&job, &self.file("run"))?;
        let printed = String::from_utf8_lossy(&ours.stdout);
        let table = String::from_utf8_lossy(&ours.stderr);
        if native != self.printed || printed != native || ours.ending != Ending::Status(0) {
            let (clangs, ending) = (&self.printed, verdict::ending(ours.ending));
            return Err(format!(
                "{shown}: {native}live: {ending}: {printed}clang's: {clangs}"
            ));
        }
        match published(&table, "part") > 0 && published(&table, "main") > 0 {
            true => Ok(()),
            false => Err(format!("{shown}: not compiled again:\n{table}")),
        }
    }
}

/// The word for a response file.
fn at(file: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from("@");
    word.push(AsRef::<OsStr>::as_ref(file));
    word
}
