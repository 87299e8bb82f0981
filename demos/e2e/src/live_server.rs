//! A native server under load, in which functions are exchanged and put back while it answers.
//!
//! Clients ask without a pause, and look at each reply: it must be one that the old or the new source
//! gives, whole. A request that is sent when an exchange is done must be answered by what came of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uruk_guests::execute::Ending;

use crate::trial::Bench;
use crate::verdict;

/// Clients, each with a connection of its own.
const CLIENTS: usize = 4;

/// Exchanges, each of which is put back.
const EXCHANGES: usize = 3;

/// Replies that are waited for between two steps.
const REPLIES: u64 = 200;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How often is looked whether the program answers.
const ATTEMPTS: u32 = 600;

/// Nobody can say which source answers.
const CHANGING: usize = 2;

/// The names that replies have for the sources.
const VERSIONS: [&str; 2] = ["old", "new"];

/// Ends the server, whatever happens.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What clients and the one who exchanges tell each other.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Which source answers, or [`CHANGING`].
    version: AtomicUsize,
    replies: AtomicU64,
}

/// Builds the server, loads it, and exchanges.
///
/// # Errors
/// What went wrong, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-server");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/server.c");
    let (program, fix) = (folder.join("server"), folder.join("fix.o"));
    compile(bench, &[], &source, &program)?;
    compile(bench, &["-DFIXED", "-c"], &source, &fix)?;
    let socket = folder.join("socket");
    // Of an earlier run.
    let _ = fs::remove_file(&socket);
    let mut server = start(bench, &program, &socket)?;
    let shared = Shared::default();
    let changed = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let (shared, socket) = (&shared, &socket);
                    move || client(shared, socket, number)
                })
            })
            .collect();
        let changed = exchange(bench, &shared, server.0.id(), &fix);
        shared.stop.store(true, Ordering::SeqCst);
        let ended = clients
            .into_iter()
            .map(|client| client.join().unwrap_or(Err("a panic".into())));
        ended.chain([changed]).collect::<Result<Vec<()>, String>>()
    });
    let ended = server.0.try_wait().map_err(|error| error.to_string())?;
    if let Some(status) = ended {
        return Err(format!("the server ended: {status}"));
    }
    changed?;
    story(bench, server.0.id(), &folder.join("story.html"))
}

/// The page about all that, written while the server runs.
fn story(bench: &Bench, process: u32, page: &Path) -> Result<(), String> {
    let mut job = bench.subject.job(LIMIT);
    job.arg("swap").arg(process.to_string());
    job.arg("--report").arg(page);
    let done = job.run(&bench.scratch("live-server-story"));
    let done = done.map_err(|error| error.to_string())?;
    if done.ending != Ending::Status(0) {
        return Err(verdict::excerpt(&done.stderr));
    }
    let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
    match text.contains("answer") && text.contains("tier 0, native") {
        true => Ok(()),
        false => Err(format!("{} does not tell the story", page.display())),
    }
}

/// Quiescent exchanges wait for connections, whose threads are in a function that may hold a copy of
/// what is exchanged, and not for `main`, which waits for connections for ever.
///
/// # Errors
/// What went wrong, in words.
pub fn judge_quiescent(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-quiescent");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/server.c");
    let (program, fix) = (folder.join("server"), folder.join("fix.o"));
    compile(bench, &[], &source, &program)?;
    compile(bench, &["-DFIXED", "-c"], &source, &fix)?;
    let socket = folder.join("socket");
    // Of an earlier run.
    let _ = fs::remove_file(&socket);
    let server = start(bench, &program, &socket)?;
    let process = server.0.id().to_string();
    attach(bench, &process)?;
    let swap = |wait: &str| {
        let mut job = bench.subject.job(LIMIT);
        job.arg("swap").arg(&process).arg("--quiescent").arg(wait);
        job.arg(&fix);
        let done = job.run(&bench.scratch("live-quiescent-swap"));
        let done = done.map_err(|error| error.to_string())?;
        let text = verdict::excerpt(&done.stdout) + &verdict::excerpt(&done.stderr);
        Ok::<_, String>((done.ending == Ending::Status(0), text))
    };
    let connected = ask(&socket, "old")?;
    let (done, text) = swap("200")?;
    if done || !text.contains("serve") {
        return Err(format!("not refused for who is in `serve`: {text}"));
    }
    drop(connected);
    let (done, text) = swap("30000")?;
    if !done || !text.contains("answer") || text.contains("main") {
        return Err(format!("not exchanged: {text}"));
    }
    let (done, text) = swap("0")?;
    if done || !text.contains("as the program has them") {
        return Err(format!("exchanged for the same: {text}"));
    }
    ask(&socket, "new").map(drop)
}

/// Asks once, and has the answer of that version; the connection.
fn ask(socket: &PathBuf, version: &str) -> Result<UnixStream, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    stream.write_all(b"word\n").map_err(failed)?;
    let mut reply = String::new();
    let mut replies = BufReader::new(stream.try_clone().map_err(failed)?);
    replies.read_line(&mut reply).map_err(failed)?;
    match reply.starts_with(version) {
        true => Ok(stream),
        false => Err(format!("not answered by {version} code: {reply}")),
    }
}

fn compile(bench: &Bench, more: &[&str], source: &Path, to: &Path) -> Result<(), String> {
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O2", "-pthread"].map(Into::into));
    job.args.extend(more.iter().map(Into::into));
    job.arg(source).arg("-o").arg(to);
    let scratch = bench.scratch("live-server-build");
    let built = job.run(&scratch).map_err(|error| error.to_string())?;
    match to.exists() {
        true => Ok(()),
        false => Err(verdict::excerpt(&built.stderr)),
    }
}

fn start(bench: &Bench, program: &Path, socket: &Path) -> Result<Server, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut command = Command::new(bench.subject.program());
    command
        .args(["live", "--after", "0", "--record", "--"])
        .arg(program)
        .arg(socket);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut server = Server(child.map_err(failed)?);
    let mut line = String::new();
    if let Some(stdout) = server.0.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    match line.trim() {
        "ready" => Ok(server),
        other => Err(format!("the server said `{other}`")),
    }
}

/// Asks until it is told to stop.
fn client(shared: &Shared, socket: &PathBuf, number: usize) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("client {number}: {error}");
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    let mut replies = BufReader::new(stream.try_clone().map_err(failed)?);
    let mut reply = String::new();
    for round in 0.. {
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
        let word = format!("word{}", round % 100);
        let before = shared.version.load(Ordering::SeqCst);
        stream
            .write_all(format!("{word}\n").as_bytes())
            .map_err(failed)?;
        reply.clear();
        replies.read_line(&mut reply).map_err(failed)?;
        let after = shared.version.load(Ordering::SeqCst);
        let said = check(&word, &reply)?;
        let is_known = before == after && before != CHANGING;
        if is_known && VERSIONS[before] != said {
            return Err(format!("answered by {said} code: {reply}"));
        }
        shared.replies.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// By which source a reply was made, all of it.
fn check(word: &str, reply: &str) -> Result<&'static str, String> {
    let words: Vec<&str> = reply.split_whitespace().collect();
    let version = VERSIONS
        .into_iter()
        .find(|version| words.first() == Some(version));
    let version = version.ok_or_else(|| format!("no reply: {reply}"))?;
    let letters = match version {
        "old" => &word.as_bytes()[..word.len() - 1],
        _ => word.as_bytes(),
    };
    let rounds: u64 = (0..400).map(|round| round % 7 + 1).sum();
    let worth = rounds * letters.iter().map(|&letter| u64::from(letter)).sum::<u64>();
    let fits = words.len() == 5 && words[4] == version && words[2] == worth.to_string();
    match fits {
        true => Ok(version),
        false => Err(format!("a torn reply to {word}: {reply}")),
    }
}

/// Exchanges, and puts back.
fn exchange(bench: &Bench, shared: &Shared, process: u32, fix: &Path) -> Result<(), String> {
    let process = process.to_string();
    attach(bench, &process)?;
    for _ in 0..EXCHANGES {
        for version in [1, 0] {
            wait(shared)?;
            let mut job = bench.subject.job(LIMIT);
            job.arg("swap").arg(&process);
            match version {
                1 => job.arg(fix),
                _ => job.arg("--rollback"),
            };
            shared.version.store(CHANGING, Ordering::SeqCst);
            let done = job.run(&bench.scratch("live-server-swap"));
            let done = done.map_err(|error| error.to_string())?;
            let text = verdict::excerpt(&done.stdout);
            if !text.contains("answer") {
                let error = verdict::excerpt(&done.stderr);
                let (command, ending) = (job.command_line(), verdict::ending(done.ending));
                return Err(format!("{command}: {ending}: {text}{error}"));
            }
            shared.version.store(version, Ordering::SeqCst);
        }
    }
    wait(shared)
}

/// Until the program answers whoever attaches: it first reads its bitcode.
fn attach(bench: &Bench, process: &str) -> Result<(), String> {
    let mut job = bench.subject.job(LIMIT);
    job.arg("swap").arg(process).arg("--stats");
    for _ in 0..ATTEMPTS {
        let done = job.run(&bench.scratch("live-server-swap"));
        let done = done.map_err(|error| error.to_string())?;
        if done.ending == Ending::Status(0) {
            return Ok(());
        }
        thread::sleep(LIMIT / ATTEMPTS);
    }
    Err("nobody answers in the program".to_owned())
}

/// Until there were some more replies.
fn wait(shared: &Shared) -> Result<(), String> {
    let before = shared.replies.load(Ordering::SeqCst);
    let mut waited = Duration::ZERO;
    while shared.replies.load(Ordering::SeqCst) < before + REPLIES {
        let pause = Duration::from_millis(5);
        thread::sleep(pause);
        waited += pause;
        if waited > LIMIT {
            return Err("no replies come".to_owned());
        }
    }
    Ok(())
}
