//! Clients that ask without a pause, and what is counted meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uruk_guests::server::{Client, Server, Spent, Version, Wrong};

use super::table;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Of so many requests one sets a value, one gets it, and the others have a word scored.
const ROUND: usize = 8;

/// How often what a client says is repeated to be scored.
const LENGTH: usize = 25;

/// Anybody may answer: see [`Load::expected`].
const ANYBODY: u8 = 2;

/// Clients at work.
#[derive(Debug, Default)]
pub struct Load {
    stop: AtomicBool,
    /// The version that has to answer: old code, new code, or [`ANYBODY`].
    expected: AtomicU8,
    answered: AtomicU64,
    failed: AtomicU64,
    torn: AtomicU64,
    stale: AtomicU64,
}

/// The counts of a stretch of time.
#[derive(Debug, Clone)]
pub struct Step {
    pub name: String,
    wall: Duration,
    spent: Spent,
    answered: u64,
    /// Requests without a reply, so far.
    pub failed: u64,
    /// Replies that no source makes, so far.
    pub torn: u64,
    /// Replies by code that was to be gone, so far.
    pub stale: u64,
}

impl Load {
    /// Has so many clients ask while `body` runs; old code has to answer first.
    pub fn with<T>(socket: &Path, clients: usize, body: impl FnOnce(&Load) -> T) -> T {
        let load = Load::default();
        thread::scope(|scope| {
            for number in 0..clients {
                let load = &load;
                scope.spawn(move || load.client(socket, number));
            }
            let _stop = Stop(&load.stop);
            body(&load)
        })
    }

    /// Sets the version that has to answer from now on; any version may while that changes.
    pub fn expect(&self, version: Option<Version>) {
        let expected = version.map_or(ANYBODY, |version| version as u8);
        self.expected.store(expected, Ordering::SeqCst);
    }

    /// Counts for so long.
    ///
    /// # Errors
    /// The server has ended.
    pub fn step(&self, name: &str, server: &Server, length: Duration) -> anyhow::Result<Step> {
        let answered = || self.answered.load(Ordering::SeqCst);
        let (begun, spent, before) = (Instant::now(), server.spent()?, answered());
        thread::sleep(length);
        Ok(Step {
            name: name.to_owned(),
            wall: begun.elapsed(),
            spent: server.spent()? - spent,
            answered: answered() - before,
            failed: self.failed.load(Ordering::SeqCst),
            torn: self.torn.load(Ordering::SeqCst),
            stale: self.stale.load(Ordering::SeqCst),
        })
    }

    /// Asks until it is to stop; connects again after a failure.
    fn client(&self, socket: &Path, number: usize) {
        while !self.stop.load(Ordering::SeqCst) {
            let asked = Client::connect(socket, LIMIT)
                .map_err(|_| &self.failed)
                .and_then(|client| {
                    self.talk(client, number).map_err(|wrong| match wrong {
                        Wrong::Torn { .. } => &self.torn,
                        _ => &self.failed,
                    })
                });
            if let Err(counter) = asked {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn talk(&self, mut client: Client, number: usize) -> Result<(), Wrong> {
        let key = format!("client{number}");
        for round in 0_usize.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let value = format!("round {}", round / ROUND);
            let before = self.expected.load(Ordering::SeqCst);
            let said = match round % ROUND {
                0 => client.set(&key, &value)?,
                1 => client.get(&key, &value)?,
                _ => client.score(&format!("word{:03}", round % 1000).repeat(LENGTH))?,
            };
            let after = self.expected.load(Ordering::SeqCst);
            if before == after && before != ANYBODY && before != said as u8 {
                self.stale.fetch_add(1, Ordering::SeqCst);
            }
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Has clients stop, whatever happens.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Step {
    fn per_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.answered.max(1) as f64
    }

    fn per_second(&self) -> f64 {
        self.answered as f64 / self.wall.as_secs_f64()
    }

    /// In a few words.
    pub fn line(&self) -> String {
        let (rate, time) = (self.per_second(), self.per_request(self.spent.serving));
        format!("{}: {rate:.0} requests/s, {time:.1} us/request", self.name)
    }
}

/// All steps, beside the first.
pub fn table(steps: &[Step]) -> String {
    let heads = [
        "step",
        "requests/s",
        "us/request",
        "ours",
        "times as fast",
        "failed",
        "torn",
        "stale",
    ];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    let first = steps
        .first()
        .map(|step| step.per_request(step.spent.serving));
    for step in steps {
        let serving = step.per_request(step.spent.serving);
        let ours = step.per_request(step.spent.all.saturating_sub(step.spent.serving));
        let ratio = first
            .filter(|_| serving > 0.0)
            .map_or(1.0, |first| first / serving);
        lines.push(vec![
            step.name.clone(),
            format!("{:.0}", step.per_second()),
            format!("{serving:.1}"),
            format!("{ours:.1}"),
            format!("{ratio:.2}"),
            step.failed.to_string(),
            step.torn.to_string(),
            step.stale.to_string(),
        ]);
    }
    table::align(&lines)
}
