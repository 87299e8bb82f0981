//! `uruk swap`: what is exchanged, what is refused, and that what is refused changes nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uruk_guests::execute::Job;

use crate::live_talk::{LIMIT, Talk, driver, fresh, make, source};
use crate::subject::STATUS_USAGE;
use crate::trial::Bench;

/// The program's answer to three letters, as it is built.
const BEFORE: &str = "10 1003 10 21";

/// The program, live, and where its files are.
struct Exchanged<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    words: &'static [&'static str],
    talk: Talk<'b>,
}

impl<'b> Exchanged<'b> {
    fn start(bench: &'b Bench, name: &str, words: &'static [&'static str]) -> Result<Self, String> {
        let folder = fresh(bench, name)?;
        let from = source("exchanged.c");
        let program = make(driver(bench), words, &[&from], folder.join("program"))?;
        let mut talk = Talk::live(bench, &folder, &program)?;
        talk.expect(BEFORE, "before anything was exchanged")?;
        Ok(Self {
            bench,
            folder,
            words,
            talk,
        })
    }

    /// An object of the program's source with more words.
    fn object(&self, name: &str, words: &[&str]) -> Result<PathBuf, String> {
        let words = [self.words, words, &["-c"]].concat();
        let to = self.folder.join(name);
        make(driver(self.bench), &words, &[&source("exchanged.c")], to)
    }

    /// The file that clang itself compiles from a source.
    fn clang(&self, name: &str, words: &[&str]) -> Result<PathBuf, String> {
        let words = [&["-O2", "-c"], words].concat();
        let clang = Job::new(&self.bench.tools.clang, LIMIT);
        let to = self.folder.join(name);
        make(clang, &words, &[&source("exchanged.c")], to)
    }
}

/// The program closes all files that it did not open, the library's files among them; it still
/// answers a client that attaches afterwards. The program then opens files under the same numbers.
/// The library takes none of these for its own.
///
/// # Errors
/// The failure, in words.
pub fn judge_closed(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-closed", &[])?;
    let twelve = it.object("twelve.o", &["-DNUMBER=12"])?;
    for _ in 0..2 {
        it.talk.close_files()?;
        it.talk.expect(BEFORE, "as files were closed")?;
        // Of the first two the socket of before may still take one.
        for _ in 0..3 {
            it.talk.swapped(["--stats"], &["0 not added"])?;
        }
        it.talk.swapped([twelve.as_os_str()], &["number"])?;
        it.talk.expect("10 1203 10 21", "after files were closed")?;
        it.talk.swapped(["--rollback"], &["number"])?;
        it.talk.expect(BEFORE, "back after files were closed")?;
    }
    Ok(())
}

/// Bitcode takes the place of functions as objects do, optimized or not; and all the while no memory of
/// the program is writable and executable.
///
/// # Errors
/// The failure, in words.
pub fn judge_bitcode(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-bitcode", &[])?;
    check_maps(&it.talk, false)?;
    let optimized = it.clang("optimized.bc", &["-emit-llvm", "-DNUMBER=20"])?;
    it.talk.swapped([&optimized], &["exchanged: number\n"])?;
    // The thread in the loop of `converse` finishes with the old body.
    it.talk.expect("10 2003 10 21", "after bitcode")?;
    it.talk.again()?;
    it.talk
        .expect("20 2003 10 21", "after bitcode, in new code")?;
    check_maps(&it.talk, true)?;
    it.talk.swapped(["--rollback"], &["back: number"])?;
    it.talk.again()?;
    it.talk.expect(BEFORE, "after one step back")?;
    // Bodies as they are in the program, but one.
    let words = ["-emit-llvm", "-Xclang", "-disable-llvm-passes", "-c"];
    let words = [&words[..], &["-DCHANGED=5"]].concat();
    let from = source("exchanged.c");
    let plain = it.folder.join("plain.bc");
    let plain = make(driver(bench), &words, &[&from], plain)?;
    let (done, text) = it.talk.swap([&plain])?;
    let exchanged = text.lines().filter(|line| line.starts_with("exchanged: "));
    if !done || !exchanged.eq(["exchanged: asks"]) {
        return Err(format!("`asks` alone was to be exchanged: {text}"));
    }
    it.talk
        .expect("10 1003 15 21", "after bitcode of `uruk cc`")?;
    it.talk.swapped(["--rollback"], &["back: asks"])?;
    it.talk.expect(BEFORE, "after another step back")?;
    check_maps(&it.talk, true)
}

/// No mapping can be written to and executed; code of ours is there, if so is said.
fn check_maps(talk: &Talk<'_>, with_code: bool) -> Result<(), String> {
    let maps = talk.maps()?;
    let rights = |line: &str| {
        line.split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    let is_both = |line: &&str| rights(line).contains('w') && rights(line).contains('x');
    if let Some(both) = maps.lines().find(is_both) {
        return Err(format!("writable and executable: {both}"));
    }
    let is_ours = |line: &str| rights(line).contains('x') && line.contains("/memfd:");
    match !with_code || maps.lines().any(is_ours) {
        true => Ok(()),
        false => Err(format!("where is the new code?\n{maps}")),
    }
}

/// Exchanges that are refused, with the reason that is printed.
const REFUSED: [(&str, &[&str], &str); 4] = [
    (
        "held.o",
        &["-DSMALL=2"],
        "`small` may be inlined in `asks`, which calls `dlsym`",
    ),
    ("stays.o", &["-DCHANGED=1"], "`asks` calls `dlsym`"),
    (
        "variable.o",
        &["-DREADS"],
        "`noted` uses the variable `seen`, which the optimizer removed",
    ),
    ("signature.o", &["-DWIDE"], "`scaled`"),
];

/// A refused exchange is reported by name, and changes nothing.
///
/// # Errors
/// As [`judge_bitcode`].
pub fn judge_refused(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-refused", &["-DASKS"])?;
    let mut files = Vec::new();
    for (name, words, said) in REFUSED {
        files.push((it.object(name, words)?, said));
    }
    let plain = it.clang("plain.o", &["-DNUMBER=20"])?;
    files.push((plain, "neither bitcode nor an object of `uruk cc`"));
    let other = it.folder.join("other.o");
    let from = source("driver/part.c");
    let other = make(driver(bench), &["-c"], &[&from], other)?;
    files.push((
        other,
        "defines no function that the program has, weak ones aside",
    ));
    files.push((it.folder.join("nowhere.o"), "No such file"));
    files.push((source("exchanged.c"), "neither bitcode nor an object"));
    files.push((it.object("same.o", &[])?, "as the program has them"));
    let table = it.talk.swap(["--explain"])?;
    for (file, said) in files {
        refused(&it.talk, &file, said)?;
        it.talk.expect(BEFORE, said)?;
        let (back, text) = it.talk.swap(["--rollback"])?;
        if back {
            return Err(format!("{said}: there was something to go back to: {text}"));
        }
        let now = it.talk.swap(["--explain"])?;
        if now != table {
            return Err(format!("{said}: {}\nbefore:\n{}", now.1, table.1));
        }
    }
    let mut job = bench.subject.job(LIMIT);
    for word in ["swap", "1", "x.o", "--quiescent", "1", "--osr"] {
        job.arg(word);
    }
    let both = crate::live_talk::run(&job, &it.folder.join("usage"))?;
    if both.ending != uruk_guests::execute::Ending::Status(STATUS_USAGE) {
        return Err(format!("--quiescent and --osr: {both:?}"));
    }
    let good = it.object("good.o", &["-DNUMBER=20"])?;
    it.talk.swapped([&good], &["exchanged: number\n"])?;
    it.talk.expect("10 2003 10 21", "after all that")
}

fn refused(talk: &Talk<'_>, file: &Path, said: &str) -> Result<(), String> {
    let (done, text) = talk.swap([file])?;
    match !done && text.contains(said) {
        true => Ok(()),
        false => Err(format!("{}: not `{said}`: {text}", file.display())),
    }
}

/// A function gets another type, if that is allowed.
///
/// # Errors
/// As [`judge_bitcode`].
pub fn judge_signatures(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-signatures", &[])?;
    let wide = it.object("wide.o", &["-DWIDE"])?;
    refused(&it.talk, &wide, "signature")?;
    it.talk.expect(BEFORE, "after a signature was refused")?;
    // Twice, as it has to be whole again after it was taken back.
    for _ in 0..2 {
        let words = [wide.as_os_str(), "--allow-signatures".as_ref()];
        let said = ["exchanged: scaled\n", "exchanged: total"];
        it.talk.swapped(words, &said)?;
        it.talk
            .expect("10 1003 10 3000", "after a signature was allowed")?;
        it.talk.swapped(["--rollback"], &["back: scaled"])?;
        it.talk
            .expect(BEFORE, "after the signature was taken back")?;
    }
    Ok(())
}

/// A client that ends while its exchange waits takes it back; others are answered meanwhile.
///
/// # Errors
/// As [`judge_bitcode`].
pub fn judge_withdrawn(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-withdrawn", &[])?;
    let twelve = it.object("twelve.o", &["-DNUMBER=12"])?;
    // The program is in what is exchanged as long as it runs.
    let words = [
        "--quiescent".as_ref(),
        "3600000".as_ref(),
        twelve.as_os_str(),
    ];
    withdrawn(&mut it, &words, BEFORE)?;
    while_stopped(&mut it, &twelve)?;
    it.talk
        .expect(BEFORE, "after a client of a stopped program ended")?;
    it.talk.swapped([&twelve], &["exchanged: number\n"])?;
    it.talk.expect("10 1203 10 21", "after another client")
}

/// Asks for what waits as long as the program runs, and ends the client.
fn withdrawn(it: &mut Exchanged<'_>, words: &[&OsStr], answer: &str) -> Result<(), String> {
    let mut client = Command::new(it.bench.subject.program());
    client.arg("swap").arg(it.talk.process().to_string());
    let client = client.args(words);
    let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut client = client.map_err(|error| error.to_string())?;
    for _ in 0..20 {
        let (done, text) = it.talk.swap(["--stats"])?;
        if !done {
            return Err(format!("figures while {words:?} waits: {text}"));
        }
        it.talk.expect(answer, "while a client waits")?;
    }
    if client.try_wait().is_ok_and(|ended| ended.is_some()) {
        return Err(format!("{words:?} did not wait"));
    }
    // It was alive until now.
    let _ = client.kill();
    let _ = client.wait();
    Ok(())
}

/// Asks a stopped program for an exchange, ends the client, and lets the program go on.
fn while_stopped(it: &mut Exchanged<'_>, object: &Path) -> Result<(), String> {
    /// The number of the system call that reads from a socket.
    const RECEIVES: &str = "45 ";
    let process = it.talk.process().to_string();
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &process]).status();
        match done.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err(format!("kill {name} {process} failed")),
        }
    };
    signal("-STOP")?;
    let mut client = Command::new(it.bench.subject.program());
    client.arg("swap").arg(&process).arg(object);
    let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut client = client.map_err(|error| error.to_string())?;
    // The question is in the socket once the client waits for the answer.
    let call = format!("/proc/{}/syscall", client.id());
    while !std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with(RECEIVES)) {
        if client.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err("a client of a stopped program ended".to_owned());
        }
        std::thread::yield_now();
    }
    let _ = client.kill();
    let _ = client.wait();
    signal("-CONT")
}

/// An exchange that waited goes back by waiting; a rollback that is refused, or whose client ends, changes
/// nothing; one at once goes back whatever threads are in.
///
/// # Errors
/// As [`judge_bitcode`].
pub fn judge_back(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-back", &[])?;
    let changed = it.object("changed.o", &["-DCHANGED=5"])?;
    let twelve = it.object("twelve.o", &["-DNUMBER=12"])?;
    for back in [&["--rollback"][..], &["--rollback", "--quiescent", "60000"]] {
        let words = [
            "--quiescent".as_ref(),
            "60000".as_ref(),
            changed.as_os_str(),
        ];
        it.talk.swapped(words, &["exchanged: asks"])?;
        it.talk.expect("10 1003 15 21", "after a wait")?;
        it.talk.swapped(back, &["back: asks"])?;
        it.talk.expect(BEFORE, "back after a wait")?;
    }
    it.talk.swapped([&twelve], &["exchanged: number\n"])?;
    it.talk.again()?;
    // The program is in what is to go back as long as it runs.
    let after = "12 1203 10 21";
    it.talk.expect(after, "in new code")?;
    let table = it.talk.swap(["--explain"])?;
    let waits = ["--rollback", "--quiescent", "50"];
    let (done, text) = it.talk.swap(waits)?;
    let said = [
        "old code is still running",
        "converse",
        "--rollback --immediate",
    ];
    if done || !said.iter().all(|said| text.contains(said)) {
        return Err(format!("not refused with {said:?}: {text}"));
    }
    it.talk.expect(after, "after a refusal")?;
    let words = ["--rollback", "--quiescent", "3600000"].map(OsStr::new);
    withdrawn(&mut it, &words, after)?;
    it.talk.expect(after, "after a client ended")?;
    let now = it.talk.swap(["--explain"])?;
    if now != table {
        return Err(format!("{}\nbefore:\n{}", now.1, table.1));
    }
    it.talk
        .swapped(["--rollback", "--immediate"], &["back: number\n"])?;
    it.talk.expect("12 1003 10 21", "back, in new code")?;
    it.talk.again()?;
    it.talk.expect(BEFORE, "back")
}

/// The reports about a thread in a loop that cannot be left, and about one in a loop that can.
const STAYS: &str = "loop: converse: goes on in the old body: its code has no way out of a loop";
const GOES_ON: [&str; 2] = ["loop: converse, loop ", ": goes on in the new body\n"];

/// A thread in a loop of native code continues there, and the report names it. A thread in a loop
/// of exchanged code continues in the code of the next exchange, and of a rollback.
///
/// # Errors
/// As [`judge_bitcode`].
pub fn judge_loops(bench: &Bench) -> Result<(), String> {
    let mut it = Exchanged::start(bench, "live-exchange-loops", &[])?;
    let mut objects = Vec::new();
    for word in ["-DNUMBER=20", "-DNUMBER=30", "-DNUMBER=40"] {
        let name = format!("{}.o", objects.len());
        let object = it.object(&name, &[word])?;
        objects.push([object.into_os_string(), "--osr".into()]);
    }
    it.talk
        .swapped(&objects[0], &["exchanged: converse\n", STAYS])?;
    it.talk.expect("10 2003 10 21", "in native code")?;
    it.talk.again()?;
    it.talk.expect("20 2003 10 21", "in new code")?;
    it.talk.swapped(&objects[1], &GOES_ON)?;
    // Until it comes to the loop's head.
    it.talk.expect("20 3003 10 21", "before the loop's head")?;
    it.talk.expect("30 3003 10 21", "led on")?;
    it.talk.swapped(&objects[2], &GOES_ON)?;
    it.talk.expect("30 4003 10 21", "before the next head")?;
    it.talk.expect("40 4003 10 21", "led on once more")?;
    for (before, after) in [
        ("40 3003 10 21", "30 3003 10 21"),
        ("30 2003 10 21", "20 2003 10 21"),
    ] {
        it.talk.swapped(["--rollback"], &["back: converse"])?;
        it.talk.expect(before, "before the head, back")?;
        it.talk.expect(after, "led back")?;
    }
    Ok(())
}
