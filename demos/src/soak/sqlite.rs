//! SQLite with four threads, whose transactions have sums and checksums.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use uruk_guests::server::Client;

use super::drive::{CLIENTS, End, Run};
use super::edits::{self, FLAGS, FUNCTIONS};
use super::program::Program;
use super::tally::Kind;
use super::{Outcome, Stage};
use uruk_testing::Random;

use super::random::numbers;

/// Milliseconds that an exchange waits at most for functions to be left.
const WAIT: &str = "300";

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Between two looks at the longest transaction.
const LOOK: Duration = Duration::from_millis(250);

/// So many looks for each child.
const FORKS: usize = 2;

/// One of the functions, edited.
#[derive(Debug)]
pub struct Edited {
    /// Its name.
    pub function: &'static str,
    object: PathBuf,
    /// Whether it can be exchanged, and what was said.
    pub done: bool,
    /// The first line of the answer.
    pub said: String,
    /// From the start of the command to its end.
    pub ms: f64,
    /// Processor time of the program meanwhile, in steps of 10 ms.
    pub cpu: f64,
}

/// Counts of the program.
struct State {
    transactions: u64,
    wrong: u64,
    longest: f64,
    hits: u64,
    signals: u64,
}

fn state(client: &mut Client) -> anyhow::Result<State> {
    let reply = client.line("state")?;
    let mut words = reply.split(' ').skip(1).map(str::parse);
    let mut next = || {
        words
            .next()
            .context("the state is short")?
            .context("no number")
    };
    Ok(State {
        transactions: next()?,
        wrong: next()?,
        longest: next()? as f64 / 1e3,
        hits: next()?,
        signals: next()?,
    })
}

/// Tries each edit while the threads wait between two transactions, and takes it back.
fn try_edits(stage: &Stage<'_>, program: &Program) -> anyhow::Result<Vec<Edited>> {
    let folder = edits::folder()?;
    let mut tried = Vec::new();
    let mut client = Client::connect(program.socket(), LIMIT)?;
    client.line("pause")?;
    // The first question may have to wait for the program's bitcode.
    program.swap(&["--stats"])?;
    for function in FUNCTIONS {
        let object = edits::edited(stage, &folder, function)?;
        let before = program.spent()?;
        let answer = program.swap(&[&object.to_string_lossy()])?;
        let spent = program.spent()? - before;
        if answer.done {
            let back = program.swap(&["--rollback"])?;
            if !back.done {
                bail!("{function} was not taken back: {}", back.text);
            }
        }
        let said = answer.text.lines().next().unwrap_or_default().to_owned();
        tried.push(Edited {
            function,
            object,
            done: answer.done,
            said,
            ms: answer.ms,
            cpu: spent.all.as_secs_f64() * 1e3,
        });
    }
    client.line("go")?;
    Ok(tried)
}

/// Looks at the longest transaction, and has children make one.
fn watch(run: &Run<'_>) -> anyhow::Result<()> {
    let mut client = Client::connect(run.program.socket(), LIMIT)?;
    let first = state(&mut client)?;
    for look in 1_usize.. {
        if run.is_over() {
            break;
        }
        thread::sleep(LOOK);
        run.gap(state(&mut client)?.longest);
        if look.is_multiple_of(FORKS) {
            let begun = Instant::now();
            let reply = client.line("fork")?.to_owned();
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            if reply != "fork 0" {
                run.wrong(format!("a child: {reply}"));
            }
            run.with(|tally| tally.forks = (tally.forks.0 + 1, tally.forks.1.max(ms)));
        }
    }
    let last = state(&mut client)?;
    if last.hits == first.hits {
        run.wrong("no edited function counted".to_owned());
    }
    if last.wrong > 0 {
        run.wrong(format!("{} transactions", last.wrong));
    }
    run.with(|tally| {
        tally.requests = last.transactions - first.transactions;
        tally.signals = last.signals;
    });
    Ok(())
}

/// Builds the program, and runs it.
///
/// # Errors
/// It cannot be built or started.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Outcome> {
    println!(
        "sqlite: building it and {} edited functions",
        FUNCTIONS.len()
    );
    let folder = edits::folder()?;
    let include = format!("-I{}", folder.display());
    let program = stage.folder.join("sqlite");
    let mut flags = FLAGS.to_vec();
    flags.push(&include);
    let sources = [stage.source("sqlite.c"), folder.join("sqlite3.c")];
    stage.compile(&flags, &sources.each_ref().map(PathBuf::as_path), &program)?;
    let program = stage.start(&program, "sqlite")?;
    let tried = try_edits(stage, &program)?;
    let good: Vec<&Edited> = tried.iter().filter(|it| it.done).collect();
    if good.is_empty() {
        bail!("no function of SQLite can be exchanged: {}", tried[0].said);
    }
    let run = Run::new(&program, stage.plan);
    thread::scope(|scope| {
        let (run, good) = (&run, &good);
        let _end = End(run);
        scope.spawn(move || {
            if let Err(cause) = watch(run) {
                run.wrong(format!("the client that watches: {cause:#}"));
                run.end();
            }
        });
        stage.calm(run);
        println!("sqlite: exchanging");
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let mut random = numbers(stage.plan.seed, 200 + client);
                scope.spawn(move || run.client(|run| question(run, good, client, &mut random)));
            }
        });
    });
    let last = program.figures();
    let last = last.map_err(|cause| run.wrong(format!("at the end: {cause:#}")));
    Ok(Outcome::new("sqlite", run.into_tally(), last.ok(), tried))
}

fn question(
    run: &Run<'_>,
    good: &[&Edited],
    client: usize,
    random: &mut Random,
) -> anyhow::Result<()> {
    if random.one_in(10) {
        let words: &[&str] = match random.one_in(4) {
            true => &["--rollback", "--quiescent", WAIT],
            false => &["--rollback"],
        };
        return run.ask(client, Kind::Rollback, words).map(drop);
    }
    if random.one_in(20) {
        return run.ask(client, Kind::Stats, &["--stats"]).map(drop);
    }
    let object = good[random.below(good.len())].object.to_string_lossy();
    match random.one_in(3) {
        true => run.ask(client, Kind::Quiescent, &["--quiescent", WAIT, &object]),
        false => run.ask(client, Kind::Immediate, &[&object]),
    }
    .map(drop)
}
