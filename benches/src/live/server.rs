//! A server under `uruk live`: processor time of a request, beside the same server natively.
//!
//! Both servers run all the time, and two clients ask one of them and then the other, in turns of half
//! a second. All threads of a process are counted: those that serve, and ours. The figure is the
//! median of the later half of the turns, when hot code was compiled and compared; the row before it
//! has the mean of all turns, the start included.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use uruk_guests::guest::live_server;
use uruk_guests::server::{Client, Server};

use super::{Built, compiler};
use crate::bench::{Bench, progress};
use crate::row::{Figure, Row, Target, Unit};

/// Turns of each server, and their length.
const TURNS: usize = 100;
const QUICK: usize = 20;
const TURN: Duration = Duration::from_millis(500);

/// Clients that ask at the same time.
const CLIENTS: usize = 2;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Of so many requests one sets a value, one gets it, and the others have a word scored.
const ROUND: usize = 8;

/// How often what a client says is repeated to be scored.
const LENGTH: usize = 25;

/// The largest ratio of the later turns, and of all.
const LATER: f64 = 1.0;
const ALL: f64 = 1.05;

/// The server, natively and live.
///
/// # Errors
/// It cannot be built or started, or a request is not answered as it should be.
pub fn measure_server(bench: &Bench) -> Result<Vec<Row>> {
    let compiler = compiler(bench)?;
    let built = Built::of(bench, &compiler, "server", &live_server())?;
    let command = built.command(bench);
    let words: Vec<&OsStr> = command.iter().skip(1).map(AsRef::as_ref).collect();
    let (uruk, plain) = (bench.uruk.as_os_str(), built.plain.as_os_str());
    let sockets = ["plain", "live"].map(|name| bench.directory.join(format!("{name}.socket")));
    let servers = [
        Server::start(plain, &[], &sockets[0])?,
        Server::start(uruk, &words, &sockets[1])?,
    ];
    let turns = if bench.quick { QUICK } else { TURNS };
    progress(&format!("asking two servers, {turns} turns each"));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..turns {
        for ((server, socket), times) in servers.iter().zip(&sockets).zip(&mut times) {
            let before = server.spent()?.all;
            let answered = ask(socket)?;
            let spent = server.spent()?.all.saturating_sub(before);
            times.push(spent.as_secs_f64() * 1e6 / answered.max(1) as f64);
        }
    }
    let [plain, live] = times;
    let mean = |times: &[f64]| Figure::of([times.iter().sum::<f64>() / times.len() as f64]);
    let later = |times: &[f64]| Figure::of(times[times.len() / 2..].iter().copied());
    let row = |name, figure: &dyn Fn(&[f64]) -> Figure, most| {
        let row = Row::new(name, Unit::Us, figure(&live)).peer("clang -O2", figure(&plain));
        row.target(Target::RatioAtMost(most))
    };
    Ok(vec![
        row("server, live, processor time of a request", &later, LATER),
        row("  the same, mean from the start on", &mean, ALL),
    ])
}

/// Has clients ask for the time of a turn; returns the number of answers.
fn ask(socket: &Path) -> Result<usize> {
    let end = Instant::now() + TURN;
    std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || talk(socket, number, end)));
        let clients: Vec<_> = clients.collect();
        let answers = clients.into_iter().map(|client| match client.join() {
            Ok(answers) => answers,
            Err(_) => bail!("a client panicked"),
        });
        answers.sum()
    })
}

/// Asks until `end`; returns the number of answers.
fn talk(socket: &Path, number: usize, end: Instant) -> Result<usize> {
    let mut client = Client::connect(socket, LIMIT).context("cannot connect")?;
    let key = format!("client{number}");
    let mut answers = 0;
    while Instant::now() < end {
        let value = format!("round {}", answers / ROUND);
        match answers % ROUND {
            0 => client.set(&key, &value)?,
            1 => client.get(&key, &value)?,
            _ => client.score(&format!("word{:03}", answers % 1000).repeat(LENGTH))?,
        };
        answers += 1;
    }
    Ok(answers)
}
