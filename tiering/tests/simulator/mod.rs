//! A simulated machine: a virtual clock, virtual compile workers and a simulated program around the
//! real controller.
//!
//! A [`Workload`] is the behaviour of the program ([`Program`]: functions and phases; [`Replay`]: a
//! recorded stream), [`Truth`] has the real compile times, and [`Machine`] runs both with a
//! [`Controller`], step by step:
//!
//! ```text
//! run the program up to the next poll, end of a compile, or millisecond
//! -> first codes and other inputs, at their times
//! -> compiles that ended: publish, `finished`
//! -> at a poll: samples, then counters
//! -> `next` until it returns `None`
//! ```
//!
//! The same seed, workload and settings give the same [`Machine::log`], line by line.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part"
)]

use std::fmt;
use std::sync::Arc;

use uruk_testing::Random;
use uruk_tiering::stream::Input;
use uruk_tiering::{
    Config, Controller, Decision, Facts, FunctionId, Nanos, Outcome, Tier, VersionId, VersionIds,
};

mod guest;
mod program;
mod reading;
mod replay;
pub mod scenarios;

use guest::Body;
pub use guest::Guest;
pub use program::{FunctionShape, Phase, Program};
pub use reading::{feed, parse};
pub use replay::Replay;

/// The behaviour of a simulated program.
pub trait Workload {
    /// Runs from `from` to `to`.
    fn run(&mut self, from: Nanos, to: Nanos, guest: &mut Guest, random: &mut Random);

    /// Whether it has nothing left to do.
    fn is_done(&self) -> bool;

    /// The time of a compile, if the workload knows it better than [`Truth`].
    fn compile_time(&self, _function: FunctionId, _tier: Tier) -> Option<Nanos> {
        None
    }
}

/// The real properties of the simulated machine, which the controller does not know.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    /// Compile time of an empty function, by tier.
    pub base: [Nanos; 3],
    /// Compile time of each instruction, by tier.
    pub slope: [Nanos; 3],
    /// Compile time of a loop and of each of two calls, by tier.
    pub part: [Nanos; 3],
    /// Compiles vary by up to this part, up and down.
    pub noise: f64,
    /// Part of the background compiles that fail.
    pub failures: f64,
    /// Time of one poll of the counters.
    pub look: Nanos,
}

impl Default for Truth {
    fn default() -> Truth {
        Truth {
            // As measured on sqlite, Lua and zstd.
            base: [80, 800, 1800].map(Nanos::from_us),
            slope: [1, 50, 100].map(Nanos::from_us),
            part: [0, 2500, 12_000].map(Nanos::from_us),
            noise: 0.4,
            failures: 0.0,
            look: Nanos::from_us(2),
        }
    }
}

impl Truth {
    /// Time of a compile, without noise.
    pub fn compile(&self, tier: Tier, facts: &Facts) -> Nanos {
        let index = tier.index();
        let times = |each: Nanos, count: u32| Nanos(each.0.saturating_mul(u64::from(count)));
        let parts = facts.calls.min(2) + facts.loops.min(1);
        let instructions = times(self.slope[index], facts.instructions);
        self.base[index] + instructions + times(self.part[index], parts)
    }
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The time.
    pub at: Nanos,
    /// The event.
    pub what: What,
}

/// An event in the log.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The controller decided.
    Decided(Decision),
    /// A compile ended.
    Ended(FunctionId, VersionId, Tier, Outcome),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3} ms  ", self.at.as_ms())?;
        match &self.what {
            What::Decided(Decision::Compile {
                function,
                version,
                tier,
                reason,
                ..
            }) => write!(f, "compile   {function} {tier} ({version}): {reason}"),
            What::Decided(Decision::Revert { function, version }) => {
                write!(f, "revert    {function} ({version})")
            }
            What::Decided(Decision::Cancel { function, version }) => {
                write!(f, "cancel    {function} ({version})")
            }
            What::Decided(other) => write!(f, "{other:?}"),
            What::Ended(function, version, tier, outcome) => {
                let word = match outcome {
                    Outcome::Published { .. } => "published",
                    Outcome::Late { .. } => "late     ",
                    Outcome::Failed { .. } => "failed   ",
                    Outcome::Cancelled => "cancelled",
                    Outcome::NoMemory => "no memory",
                };
                write!(f, "{word} {function} {tier} ({version})")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Work {
    function: FunctionId,
    version: VersionId,
    tier: Tier,
    took: Nanos,
    ends: Nanos,
    fails: bool,
    cancelled: bool,
    counters: bool,
}

/// A simulated machine; see the module.
#[derive(Debug)]
pub struct Machine<W> {
    /// The controller under test.
    pub controller: Controller,
    /// Decisions and ends of compiles so far.
    pub log: Vec<Line>,
    /// Number of polls of the counters.
    pub polls: u64,
    /// Most candidates that waited at one time.
    pub longest_queue: usize,
    workload: W,
    truth: Truth,
    guest: Guest,
    random: Random,
    now: Nanos,
    next_poll: Nanos,
    work: Vec<Work>,
}

impl<W: Workload> Machine<W> {
    /// A machine at time 0.
    pub fn new(config: &Config, truth: Truth, workload: W, seed: u64) -> Machine<W> {
        let ids = Arc::new(VersionIds::default());
        let controller = Controller::new(config, Arc::clone(&ids));
        let next_poll = controller.poll_interval(Nanos::ZERO);
        Machine {
            controller,
            log: Vec::new(),
            polls: 0,
            longest_queue: 0,
            workload,
            truth,
            guest: Guest::new(ids, truth),
            random: Random::new(seed),
            now: Nanos::ZERO,
            next_poll,
            work: Vec::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The workload.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// The tier that a function runs at.
    pub fn tier(&self, function: FunctionId) -> Option<Tier> {
        self.guest.tier(function)
    }

    /// Time the program waited for first compiles.
    pub fn first_time(&self) -> Nanos {
        self.guest.first_time
    }

    /// Time at which a version of a function was first published at a tier, in the background.
    pub fn published_at(&self, function: FunctionId, tier: Tier) -> Option<Nanos> {
        let found = self.log.iter().find(|line| {
            matches!(line.what, What::Ended(f, _, t, Outcome::Published { .. })
                if f == function && t == tier)
        });
        found.map(|line| line.at)
    }

    /// Compiles that were begun.
    pub fn compiles(&self) -> usize {
        let begun = |line: &&Line| matches!(line.what, What::Decided(Decision::Compile { .. }));
        self.log.iter().filter(begun).count()
    }

    /// Runs until the program is done, at most until `limit`.
    pub fn run(&mut self, limit: Nanos) {
        while self.now < limit && !self.workload.is_done() {
            self.step(limit);
        }
    }

    fn step(&mut self, limit: Nanos) {
        let ends = self.work.iter().map(|work| work.ends).min();
        let to = (self.now + Nanos::from_ms(1))
            .min(self.next_poll)
            .min(ends.unwrap_or(limit))
            .min(limit)
            .max(self.now);
        let (guest, random) = (&mut self.guest, &mut self.random);
        self.workload.run(self.now, to, guest, random);
        self.now = to;
        for (at, input) in std::mem::take(&mut self.guest.inputs) {
            feed(input, at.min(to), &mut self.controller);
        }
        while let Some(index) = self.work.iter().position(|work| work.ends <= to) {
            let work = self.work.remove(index);
            self.end(&work);
        }
        if to >= self.next_poll {
            for input in self.guest.poll() {
                feed(input, to, &mut self.controller);
            }
            self.controller.polled(to, self.truth.look);
            self.polls += 1;
            self.next_poll = to + self.controller.poll_interval(to);
        } else {
            let sooner = to + self.controller.poll_interval(to);
            self.next_poll = self.next_poll.min(sooner);
        }
        self.longest_queue = self.longest_queue.max(self.controller.stats().queued);
        while let Some(decision) = self.controller.next(to) {
            self.log.push(Line {
                at: to,
                what: What::Decided(decision),
            });
            self.obey(decision);
        }
    }

    fn obey(&mut self, decision: Decision) {
        match decision {
            Decision::Compile {
                function,
                version,
                tier,
                counters,
                ..
            } => {
                let known = self.workload.compile_time(function, tier);
                let body = self.guest.bodies.get(&function);
                let facts = body.map_or(Facts::default(), |body| body.facts);
                let exact = self.truth.compile(tier, &facts);
                let varied = 1.0 + self.truth.noise * (2.0 * self.random.unit() - 1.0);
                let took = known.unwrap_or(Nanos::from_f64(exact.as_f64() * varied));
                self.work.push(Work {
                    function,
                    version,
                    tier,
                    took,
                    ends: self.now + took,
                    fails: self.random.unit() < self.truth.failures,
                    cancelled: false,
                    counters: counters || tier == Tier::Baseline,
                });
            }
            Decision::Cancel { version, .. } => {
                let mut all = self.work.iter_mut();
                if let Some(work) = all.find(|work| work.version == version) {
                    work.cancelled = true;
                    work.ends = self.now;
                }
            }
            Decision::Revert { function, version } => {
                if let Some(body) = self.guest.revert(function, version) {
                    let Body {
                        version,
                        tier,
                        counters,
                        ..
                    } = body;
                    let input = Input::Reverted(function, version, tier, counters);
                    feed(input, self.now, &mut self.controller);
                }
            }
            other => panic!("{other:?} is not simulated"),
        }
    }

    fn end(&mut self, work: &Work) {
        let &Work {
            function,
            version,
            tier,
            took: compile,
            counters,
            ..
        } = work;
        let outcome = match (work.cancelled, work.fails) {
            (true, _) => Outcome::Cancelled,
            (_, true) => Outcome::Failed { compile },
            _ => Outcome::Published { compile, counters },
        };
        if matches!(outcome, Outcome::Published { .. }) {
            self.guest.publish(function, version, tier, counters);
        }
        self.log.push(Line {
            at: self.now,
            what: What::Ended(function, version, tier, outcome),
        });
        let input = Input::Finished(function, version, tier, outcome);
        feed(input, self.now, &mut self.controller);
    }
}
