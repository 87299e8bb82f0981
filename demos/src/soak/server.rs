//! The server of `demos/live/soaked`: every answer carries the versions that computed it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use uruk_guests::server::Client;

use super::answers::{self, Parsed};
use super::drive::{End, Run};
use super::tally::Kind;
use super::window::Window;
use super::{Outcome, Stage};
use uruk_testing::Random;

use super::random::numbers;

/// Versions of each file, besides the program's own.
const VERSIONS: usize = 40;

/// Milliseconds that an exchange waits at most for functions to be left.
const WAIT: &str = "100";

/// Clients that ask without a pause.
const BUSY: usize = 2;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two children, or new threads.
const FORKS: Duration = Duration::from_millis(50);

/// One source of the program.
#[derive(Debug)]
struct Source {
    /// The function that an answer to a rollback names.
    function: &'static str,
    /// The program's own first, which has no object: it is what a rollback leads to.
    objects: Vec<PathBuf>,
    window: Window,
    /// The program's own version and all that were exchanged since and not rolled back.
    history: Mutex<Vec<u32>>,
}

/// State that all threads share.
struct Soak {
    single: Source,
    pair: Source,
    /// Rollbacks go back to before whatever was exchanged last.
    turn: RwLock<()>,
}

impl Source {
    fn new(stage: &Stage<'_>, name: &str, function: &'static str) -> anyhow::Result<Source> {
        let mut objects = Vec::new();
        for version in 1..=VERSIONS {
            let define = format!("-DVERSION={version}");
            let to = stage.folder.join(format!("{name}-{version}.o"));
            stage.compile(
                &[&define, "-c"],
                &[&stage.source(&format!("{name}.c"))],
                &to,
            )?;
            objects.push(to);
        }
        Ok(Source {
            function,
            objects,
            window: Window::new(0),
            history: Mutex::new(vec![0]),
        })
    }

    fn history<T>(&self, body: impl FnOnce(&mut Vec<u32>) -> T) -> T {
        body(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn current(&self) -> u32 {
        self.history(|all| all.last().copied().unwrap_or_default())
    }

    /// Exchanges it for another version.
    fn exchange(
        &self,
        run: &Run<'_>,
        client: usize,
        kind: Kind,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let current = self.current();
        let mut next = 1 + random.below(VERSIONS);
        if next as u32 == current {
            next = 1 + next % VERSIONS;
        }
        let object = self.objects[next - 1].to_string_lossy();
        let words: &[&str] = match kind {
            Kind::Quiescent => &["--quiescent", WAIT, &object],
            _ => &[&object],
        };
        self.window.change(vec![current, next as u32]);
        let answer = run.ask(client, kind, words)?;
        if answer.done {
            self.history(|all| all.push(next as u32));
        }
        self.window.change(vec![self.current()]);
        Ok(())
    }
}

impl Soak {
    fn question(&self, run: &Run<'_>, client: usize, random: &mut Random) -> anyhow::Result<()> {
        if random.one_in(10) {
            return self.roll_back(run, client, random);
        }
        if random.one_in(20) {
            return run.ask(client, Kind::Stats, &["--stats"]).map(drop);
        }
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        match client {
            0 => self.pair.exchange(run, client, Kind::Quiescent, random),
            _ => {
                let waits = random.one_in(4);
                let kind = if waits {
                    Kind::Quiescent
                } else {
                    Kind::Immediate
                };
                self.single.exchange(run, client, kind, random)
            }
        }
    }

    /// Goes back, by waiting where the exchange did, or in any case; the answer says of which file.
    fn roll_back(&self, run: &Run<'_>, client: usize, random: &mut Random) -> anyhow::Result<()> {
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        let sources = [&self.single, &self.pair];
        for source in sources {
            let possible = source.history(|all| all[all.len().saturating_sub(2)..].to_vec());
            source.window.change(possible);
        }
        let words: &[&str] = match random.one_in(4) {
            true => &["--rollback", "--quiescent", WAIT],
            false => &["--rollback"],
        };
        let answer = run.ask(client, Kind::Rollback, words)?;
        for source in sources {
            let line = format!("back: {}", source.function);
            if answer.done && answer.text.lines().any(|it| it == line) {
                source.history(|all| all.pop());
            }
            source.window.change(vec![source.current()]);
        }
        Ok(())
    }

    /// Asks without a pause.
    fn busy(&self, run: &Run<'_>, random: &mut Random) -> anyhow::Result<()> {
        let mut client = Client::connect(run.program.socket(), LIMIT)?;
        while !run.is_over() {
            let number = random.next() >> 20;
            let is_pair = random.one_in(3);
            let (source, name) = match is_pair {
                true => (&self.pair, "pair"),
                false => (&self.single, "single"),
            };
            let asked = format!("{name} {number}");
            let since = source.window.now();
            let begun = Instant::now();
            let reply = client.line(&asked)?;
            run.gap(begun.elapsed().as_secs_f64() * 1e3);
            let words: Vec<&str> = reply.split(' ').collect();
            self.judge(run, &words, is_pair, number, since);
            run.with(|tally| tally.requests += 1);
        }
        Ok(())
    }

    /// Children and new threads, whose answers have both kinds of numbers.
    fn forks(&self, run: &Run<'_>) -> anyhow::Result<()> {
        let mut client = Client::connect(run.program.socket(), LIMIT)?;
        for number in 0_u64.. {
            if run.is_over() {
                break;
            }
            let name = ["fork", "thread"][number as usize % 2];
            let since = (self.single.window.now(), self.pair.window.now());
            let begun = Instant::now();
            let reply = client.line(&format!("{name} {number}"))?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            let words: Vec<&str> = reply.split(' ').collect();
            let (single, pair) = words.split_at(words.len().min(4));
            self.judge(run, single, false, number, since.0);
            self.judge(run, pair, true, number, since.1);
            run.with(|tally| tally.forks = (tally.forks.0 + 1, tally.forks.1.max(ms)));
            thread::sleep(FORKS);
        }
        Ok(())
    }

    fn judge(&self, run: &Run<'_>, words: &[&str], is_pair: bool, number: u64, since: usize) {
        let (window, parsed) = match is_pair {
            true => (&self.pair.window, answers::pair(words, number)),
            false => (&self.single.window, answers::single(words, number)),
        };
        match parsed {
            Parsed::By(version) if window.allows(since, version) => {}
            Parsed::By(version) => run.wrong(format!(
                "{} to {number} is by version {version}, possible now: {:?}",
                words.join(" "),
                window.possible()
            )),
            Parsed::Mixed(_) => run.wrong(format!("mixed: {} to {number}", words.join(" "))),
            Parsed::Wrong => run.wrong(format!("wrong: {} to {number}", words.join(" "))),
        }
    }
}

/// Counts of the server's own.
#[derive(Debug)]
struct State {
    signals: u64,
    mixed: u64,
    asked: u64,
    calls: u64,
}

fn state(run: &Run<'_>) -> anyhow::Result<State> {
    let mut client = Client::connect(run.program.socket(), LIMIT)?;
    let reply = client.line("state")?;
    let mut words = reply.split(' ').skip(1).map(str::parse);
    let mut next = || {
        words
            .next()
            .context("the state is short")?
            .context("no number")
    };
    Ok(State {
        signals: next()?,
        mixed: next()?,
        asked: next()?,
        calls: next()?,
    })
}

/// Builds the server, and runs it.
///
/// # Errors
/// It cannot be built or started.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Outcome> {
    println!("server: building it and {VERSIONS} versions of two of its files");
    let program = stage.folder.join("server");
    let sources = ["server.c", "single.c", "pair.c"].map(|name| stage.source(name));
    stage.compile(&[], &sources.each_ref().map(PathBuf::as_path), &program)?;
    let soak = Soak {
        single: Source::new(stage, "single", "single")?,
        pair: Source::new(stage, "pair", "outer")?,
        turn: RwLock::new(()),
    };
    let program = stage.start(&program, "server")?;
    let seed = stage.plan.seed;
    let run = Run::new(&program, stage.plan);
    let counted = |what: &str, done: anyhow::Result<()>| {
        if let Err(cause) = done {
            run.wrong(format!("{what}: {cause:#}"));
            run.end();
        }
    };
    thread::scope(|scope| {
        let (run, soak, counted) = (&run, &soak, &counted);
        let _end = End(run);
        for number in 0..BUSY {
            let mut random = numbers(seed, number);
            scope.spawn(move || counted("a client", soak.busy(run, &mut random)));
        }
        scope.spawn(move || counted("the client of forks", soak.forks(run)));
        stage.calm(run);
        println!("server: exchanging");
        thread::scope(|scope| {
            for client in 0..super::drive::CLIENTS {
                let mut random = numbers(seed, 100 + client);
                scope.spawn(move || run.client(|run| soak.question(run, client, &mut random)));
            }
        });
    });
    let last = program.figures();
    let last = match (last, state(&run)) {
        (Ok(last), Ok(state)) => {
            settle(&run, &state);
            Some(last)
        }
        (Err(cause), _) | (_, Err(cause)) => {
            run.wrong(format!("at the end: {cause:#}"));
            None
        }
    };
    let tally = run.into_tally();
    if tally.requests == 0 {
        bail!("the server answered nothing: {:?}", tally.examples);
    }
    Ok(Outcome::new("server", tally, last, Vec::new()))
}

/// Judges what the server counted.
fn settle(run: &Run<'_>, state: &State) {
    run.with(|tally| tally.signals = state.signals);
    if state.mixed > 0 {
        run.wrong(format!(
            "{} handlers found numbers of two versions",
            state.mixed
        ));
    }
    if state.asked != state.calls {
        run.wrong(format!(
            "a static variable lost counts: {} instead of {}",
            state.calls, state.asked
        ));
    }
}
