//! One program's run: two clients that exchange functions at their times, and what is counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Plan;
use super::program::{Answer, Program};
use super::tally::{Kind, Tally};

/// As many clients exchange at once.
pub const CLIENTS: usize = 2;

/// The exchange after which the program is looked at first.
const FIRST_LOOK: usize = 100;

/// Part of the questions that are exchanges; the others are rollbacks and figures, or are refused.
const EXCHANGES: f64 = 0.8;

/// A run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program.
    pub program: &'a Program,
    plan: Plan,
    begun: Instant,
    stop: AtomicBool,
    tally: Mutex<Tally>,
    /// The last question of each client.
    asked: Mutex<[String; CLIENTS]>,
}

impl<'a> Run<'a> {
    /// Begins.
    pub fn new(program: &'a Program, plan: Plan) -> Run<'a> {
        Run {
            program,
            plan,
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            tally: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// Counts.
    pub fn with<T>(&self, body: impl FnOnce(&mut Tally) -> T) -> T {
        // A panic while it is counted ends the run by itself.
        body(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a fault.
    pub fn wrong(&self, text: String) {
        let second = self.begun.elapsed().as_secs_f64();
        self.with(|tally| tally.wrong(format!("{second:.1} s: {text}")));
    }

    /// Counts the time of an answer to the program's own clients.
    pub fn gap(&self, ms: f64) {
        let second = self.begun.elapsed().as_secs_f64();
        let asked = || {
            let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.join(", ")
        };
        self.with(|tally| tally.gap(ms, second, asked));
    }

    /// All that was counted.
    pub fn into_tally(self) -> Tally {
        self.tally
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Ends the run.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// One question of a client, counted.
    ///
    /// # Errors
    /// Those of [`Program::swap`].
    pub fn ask(&self, client: usize, kind: Kind, words: &[&str]) -> anyhow::Result<Answer> {
        let said = |how: &str| {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked[client] = format!("{} {how}", kind.name());
        };
        said("begun");
        let answer = self.program.swap(words)?;
        said(if answer.done { "done" } else { "refused" });
        let before = self.with(|tally| {
            let before = tally.exchanges;
            tally.answer(kind, &answer);
            before
        });
        if before + 1 == FIRST_LOOK && answer.done {
            let figures = self.program.figures()?;
            self.with(|tally| tally.hundredth = Some(figures));
        }
        Ok(answer)
    }

    /// Has a client ask again and again, at times that share the plan's length out, until the time
    /// or the number of exchanges is reached.
    pub fn client(&self, mut question: impl FnMut(&Run<'a>) -> anyhow::Result<()>) {
        let begun = Instant::now();
        let length = Duration::from_secs_f64(self.plan.minutes * 60.0);
        let count = self.plan.swaps as f64 / (EXCHANGES * CLIENTS as f64);
        let pause = length.div_f64(count.max(1.0));
        for turn in 0_u32.. {
            let due = begun + pause * turn;
            while Instant::now() < due && !self.is_over() {
                let rest = due.saturating_duration_since(Instant::now());
                thread::sleep(rest.min(Duration::from_millis(50)));
            }
            let enough = self.with(|tally| tally.exchanges >= self.plan.swaps);
            if self.is_over() || enough || begun.elapsed() >= length {
                break;
            }
            if let Err(cause) = question(self) {
                self.wrong(format!("{cause:#}"));
                self.end();
            }
        }
    }
}

/// Ends a run, whatever happens.
pub struct End<'r, 'a>(pub &'r Run<'a>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
