//! A native server under load, in which functions are exchanged and put back while it answers.
//!
//! Clients send requests without a pause, and check each reply: it must be a whole reply of the old
//! or of the new source. A request that is sent after an exchange must be answered by the code that
//! the exchange produced. Before the first exchange the server has become faster by itself: samples
//! made the runtime publish better code. This test does not measure the gain;
//! `cargo xtask demo live` prints it.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uruk_guests::execute::Ending;
use uruk_guests::server::{self, Client, Explained, Server, Version};

use crate::trial::Bench;
use crate::verdict;

/// Clients, each with a connection of its own.
const CLIENTS: usize = 4;

/// Exchanges, each of which is put back.
const EXCHANGES: usize = 3;

/// How often a word is repeated to be scored.
const LENGTH: usize = 20;

/// Replies that are waited for between two steps.
const REPLIES: u64 = 200;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How often is looked whether the program answers.
const ATTEMPTS: u32 = 600;

/// During an exchange the answering source is undetermined.
const CHANGING: usize = 2;

/// The sources.
const VERSIONS: [Version; 2] = [Version::Old, Version::New];

/// The function that clients keep busy, and into which scoring is inlined.
const HOT: &str = "answer";

/// State shared between the clients and the thread that exchanges.
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
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-server");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = server::source();
    let (program, fix) = (folder.join("server"), folder.join("fix.o"));
    compile(bench, &[], &source, &program)?;
    compile(bench, &["-DFIXED", "-c"], &source, &fix)?;
    let socket = folder.join("socket");
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
        let process = server.id().to_string();
        let changed = attach(bench, &process)
            .and_then(|()| grown(bench, &process))
            .and_then(|()| exchange(bench, &shared, &process, &fix));
        shared.stop.store(true, Ordering::SeqCst);
        let ended = clients
            .into_iter()
            .map(|client| client.join().unwrap_or(Err("a panic".into())));
        ended.chain([changed]).collect::<Result<Vec<()>, String>>()
    });
    server.check().map_err(|error| error.to_string())?;
    changed?;
    refusals(&socket)?;
    story(bench, server.id(), &folder.join("story.html"))
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
    let told = |what: &str| text.matches(&format!("<b>{what}</b>")).count();
    let came_and_went = told("replaced") == EXCHANGES && told("rolled back") == EXCHANGES;
    match came_and_went && text.contains(HOT) && text.contains("tier 0, native") {
        true => Ok(()),
        false => Err(format!("{} does not tell the story", page.display())),
    }
}

/// The server answers a malformed request or closes the connection, and continues.
fn refusals(socket: &Path) -> Result<(), String> {
    let connect = || Client::connect(socket, LIMIT).map_err(|error| error.to_string());
    let mut client = connect()?;
    let long = "k".repeat(40);
    let cases = [
        ("get nothing", "none"),
        ("get ", "error no key"),
        (&*format!("set {long} x"), "error key too long"),
        (
            &*format!("set k {}", "v".repeat(200)),
            "error value too long",
        ),
        ("set k", "stored"),
        ("get k", "value "),
    ];
    for (asked, answer) in cases {
        client
            .expect(asked, answer)
            .map_err(|wrong| wrong.to_string())?;
    }
    let line = connect()?
        .line(&"x".repeat(300))
        .map(str::to_owned)
        .map_err(|wrong| wrong.to_string())?;
    if line != "error line too long" {
        return Err(format!("a line that is too long is answered: {line}"));
    }
    client
        .score("word")
        .map(drop)
        .map_err(|wrong| wrong.to_string())
}

/// Quiescent exchanges do not wait for connections, whose threads are in a function that calls what is
/// exchanged and has no copy of it, nor for `main`, which waits for connections for ever.
///
/// # Errors
/// The failure, in words.
pub fn judge_quiescent(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-quiescent");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = server::source();
    let (program, fix) = (folder.join("server"), folder.join("fix.o"));
    compile(bench, &[], &source, &program)?;
    compile(bench, &["-DFIXED", "-c"], &source, &fix)?;
    let socket = folder.join("socket");
    let server = start(bench, &program, &socket)?;
    let process = server.id().to_string();
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
    let mut connected = ask(&socket, Version::Old)?;
    let (done, text) = swap("30000")?;
    if !done || !text.contains("answer") || text.contains("main") {
        return Err(format!("not exchanged: {text}"));
    }
    let said = connected.score("word").map_err(|wrong| wrong.to_string())?;
    if said != Version::New {
        return Err(format!("a connection from before has {} code", said.name()));
    }
    let (done, text) = swap("0")?;
    if done || !text.contains("as the program has them") {
        return Err(format!("exchanged for the same: {text}"));
    }
    ask(&socket, Version::New).map(drop)
}

/// Asks once, and has the answer of that version; the connection.
fn ask(socket: &Path, version: Version) -> Result<Client, String> {
    let mut client = Client::connect(socket, LIMIT).map_err(|error| error.to_string())?;
    let said = client.score("word").map_err(|wrong| wrong.to_string())?;
    match said == version {
        true => Ok(client),
        false => Err(format!("answered by {} code", said.name())),
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
    let words = ["live", "--after", "0", "--record", "--"].map(OsStr::new);
    let words = words.into_iter().chain([program.as_os_str()]);
    let words: Vec<&OsStr> = words.collect();
    let uruk = bench.subject.program().as_os_str();
    Server::start(uruk, &words, socket).map_err(|error| format!("{error:#}"))
}

/// Sends requests until it is told to stop: for scores, and for values that no other client sets.
fn client(shared: &Shared, socket: &Path, number: usize) -> Result<(), String> {
    let mut client = Client::connect(socket, LIMIT).map_err(|error| error.to_string())?;
    let key = format!("client{number}");
    for round in 0_usize.. {
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
        // A value set by the code of one version is visible to the other.
        let value = format!("round {}", round / 3);
        let before = shared.version.load(Ordering::SeqCst);
        let said = match round % 3 {
            0 => client.set(&key, &value),
            1 => client.get(&key, &value),
            _ => client.score(&format!("word{}", round % 100).repeat(LENGTH)),
        };
        let said = said.map_err(|wrong| format!("client {number}: {wrong}"))?;
        let after = shared.version.load(Ordering::SeqCst);
        let is_known = before == after && before != CHANGING;
        if is_known && VERSIONS[before] != said {
            let name = said.name();
            return Err(format!("client {number}: answered by {name} code"));
        }
        shared.replies.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Waits until the runtime has published better code of the function that clients keep busy,
/// without a request for it.
fn grown(bench: &Bench, process: &str) -> Result<(), String> {
    let mut table = String::new();
    for _ in 0..ATTEMPTS {
        let mut job = bench.subject.job(LIMIT);
        job.arg("swap").arg(process).arg("--explain");
        let done = job.run(&bench.scratch("live-server-explain"));
        let done = done.map_err(|error| error.to_string())?;
        table = String::from_utf8_lossy(&done.stdout).into_owned();
        if Explained::of(&table, HOT).is_some_and(|row| row.published > 0) {
            return Ok(());
        }
        thread::sleep(LIMIT / ATTEMPTS);
    }
    Err(format!("`{HOT}` stays native under load:\n{table}"))
}

/// Exchanges, and puts back.
fn exchange(bench: &Bench, shared: &Shared, process: &str, fix: &Path) -> Result<(), String> {
    for _ in 0..EXCHANGES {
        for version in [1, 0] {
            wait(shared)?;
            let mut job = bench.subject.job(LIMIT);
            job.arg("swap").arg(process);
            match version {
                1 => job.arg(fix),
                _ => job.arg("--rollback"),
            };
            shared.version.store(CHANGING, Ordering::SeqCst);
            let done = job.run(&bench.scratch("live-server-swap"));
            let done = done.map_err(|error| error.to_string())?;
            let text = verdict::excerpt(&done.stdout);
            if !text.contains(HOT) {
                let error = verdict::excerpt(&done.stderr);
                let (command, ending) = (job.command_line(), verdict::ending(done.ending));
                return Err(format!("{command}: {ending}: {text}{error}"));
            }
            shared.version.store(version, Ordering::SeqCst);
        }
    }
    wait(shared)
}

/// Waits until the program answers a client that attaches: it reads its bitcode first.
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
