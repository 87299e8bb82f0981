//! A made-up program: functions with shapes, and phases in which they take their shares.

use std::collections::BTreeMap;

use uruk_testing::Random;
use uruk_tiering::stream::Input;
use uruk_tiering::{Facts, FunctionId, Nanos, Tier};

use super::{Guest, Workload};

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionShape {
    /// The facts that a compiler gets.
    pub facts: Facts,
    /// Time between two entries or back edges at tier 1, in ns.
    pub event_ns: f64,
    /// Back edges per entry.
    pub loops_per_entry: f64,
    /// Speedups of tiers 2 and 3 over tier 1.
    pub speedup: [f64; 2],
    /// It is entered once and stays in its loop: new code does not reach it.
    pub resident: bool,
}

impl FunctionShape {
    /// A function of a size, with typical numbers.
    pub fn of(instructions: u32) -> FunctionShape {
        FunctionShape {
            facts: Facts {
                instructions,
                ..Facts::default()
            },
            event_ns: f64::from(instructions.clamp(1, 100)) * 0.4,
            loops_per_entry: 0.0,
            speedup: [2.5, 2.9],
            resident: false,
        }
    }

    /// Like [`FunctionShape::of`], with a loop that runs so often per entry.
    pub fn looping(instructions: u32, loops_per_entry: f64) -> FunctionShape {
        let mut shape = FunctionShape::of(instructions);
        shape.facts.loops = 1;
        shape.event_ns /= 2.0;
        shape.loops_per_entry = loops_per_entry;
        shape
    }

    fn speedup(&self, tier: Tier) -> f64 {
        match tier {
            Tier::Native | Tier::Baseline => 1.0,
            Tier::Optimized => self.speedup[0],
            Tier::Guided => self.speedup[1],
        }
    }
}

/// A stretch of the program in which the functions' shares of the work stay the same.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The work, as time it takes at tier 1.
    pub work: Nanos,
    /// Functions and their shares of it, relative to each other.
    pub mix: Vec<(FunctionId, f64)>,
}

/// A program of one thread: function `n` has the `n`-th shape.
#[derive(Clone, Debug)]
pub struct Program {
    shapes: Vec<FunctionShape>,
    phases: Vec<Phase>,
    /// Time per sample; `None`: not sampled.
    period: Option<Nanos>,
    /// Whether the first phase follows the last one again.
    repeats: bool,
    phase: usize,
    done: f64,
    /// Time until which it waits for a first compile.
    blocked: Nanos,
    /// Compiled functions of this phase: an index into its mix.
    arrived: usize,
    /// Tier at which resident functions were entered.
    entered: BTreeMap<FunctionId, Tier>,
    /// Fractions of events and entries.
    partial: BTreeMap<FunctionId, f64>,
    told: bool,
    worked: f64,
}

impl Program {
    /// A program that ends after its phases.
    pub fn new(shapes: Vec<FunctionShape>, phases: Vec<Phase>, period: Option<Nanos>) -> Program {
        Program {
            shapes,
            phases,
            period,
            repeats: false,
            phase: 0,
            done: 0.0,
            blocked: Nanos::ZERO,
            arrived: 0,
            entered: BTreeMap::new(),
            partial: BTreeMap::new(),
            told: false,
            worked: 0.0,
        }
    }

    /// Repeats the phases for ever.
    pub fn repeating(mut self) -> Program {
        self.repeats = true;
        self
    }

    /// Work done, as time it would have taken at tier 1.
    pub fn worked(&self) -> Nanos {
        Nanos::from_f64(self.worked)
    }

    fn shape(&self, function: FunctionId) -> FunctionShape {
        let shape = self.shapes.get(function.0 as usize);
        shape.copied().unwrap_or(FunctionShape::of(1))
    }

    /// The speedup over tier 1 at which a function runs at present.
    fn speedup(&self, function: FunctionId, guest: &Guest) -> f64 {
        let entered = self.entered.get(&function).copied();
        let tier = entered.or(guest.tier(function)).unwrap_or(Tier::Baseline);
        self.shape(function).speedup(tier)
    }

    /// Makes the first calls of the phase, one after the other. False while it waits for one.
    fn arrive(&mut self, at: &mut Nanos, to: Nanos, guest: &mut Guest) -> bool {
        loop {
            if self.blocked > to {
                *at = to;
                return false;
            }
            *at = self.blocked.max(*at);
            let Some(phase) = self.phases.get(self.phase) else {
                return false;
            };
            let Some(&(function, _)) = phase.mix.get(self.arrived) else {
                return true;
            };
            self.arrived += 1;
            let shape = self.shape(function);
            if guest.tier(function).is_none() {
                self.blocked = *at + guest.first_call(*at, function, shape.facts);
            }
            if let (true, Some(tier)) = (shape.resident, guest.tier(function)) {
                self.entered.entry(function).or_insert(tier);
            }
        }
    }

    /// Runs the phase for up to `left` ns. Returns the time that it took.
    fn work(&mut self, left: f64, guest: &mut Guest, random: &mut Random) -> f64 {
        let Some(phase) = self.phases.get(self.phase) else {
            return left;
        };
        let mix = phase.mix.clone();
        let total: f64 = mix.iter().map(|&(_, share)| share).sum();
        let slowness = |&(function, share): &(FunctionId, f64)| {
            share / total.max(1e-12) / self.speedup(function, guest)
        };
        // Time per unit of work, with the code that runs now.
        let rate: f64 = mix.iter().map(slowness).sum();
        let rest = (phase.work.as_f64() - self.done).max(0.0);
        let took = match rate > 0.0 {
            true => left.min(rest * rate),
            false => left.min(rest),
        };
        let work = match rate > 0.0 {
            true => took / rate,
            false => took,
        };
        for (function, share) in mix {
            let own = work * share / total.max(1e-12);
            let time = own / self.speedup(function, guest);
            self.observe(function, own, time, guest, random);
        }
        self.done += work;
        self.worked += work;
        if self.done >= phase_work(&self.phases, self.phase) - 0.5 {
            self.done = 0.0;
            self.arrived = 0;
            self.phase += 1;
            if self.repeats && self.phase >= self.phases.len() {
                self.phase = 0;
            }
        }
        took
    }

    /// Records the counts and samples of `own` work that took `time`.
    fn observe(
        &mut self,
        function: FunctionId,
        own: f64,
        time: f64,
        guest: &mut Guest,
        random: &mut Random,
    ) {
        let shape = self.shape(function);
        let partial = self.partial.entry(function).or_default();
        *partial += own / shape.event_ns.max(1e-3);
        let events = partial.floor();
        *partial -= events;
        let entries = match shape.resident {
            true => 0,
            false => round(random, events / (1.0 + shape.loops_per_entry)),
        };
        let entries = entries.min(events as u64);
        guest.count(function, entries, events as u64 - entries);
        if let Some(period) = self.period {
            let samples = round(random, time / period.as_f64().max(1.0)) as u32;
            guest.sample(function, samples, Nanos(period.0 * u64::from(samples)));
        }
    }
}

fn phase_work(phases: &[Phase], index: usize) -> f64 {
    phases.get(index).map_or(0.0, |phase| phase.work.as_f64())
}

impl Workload for Program {
    fn run(&mut self, from: Nanos, to: Nanos, guest: &mut Guest, random: &mut Random) {
        if !self.told {
            self.told = true;
            guest.tell(from, Input::Sampling(self.period));
        }
        let mut at = from;
        while at < to && !self.is_done() {
            if !self.arrive(&mut at, to, guest) {
                return;
            }
            let took = self.work((to - at).as_f64(), guest, random);
            at = at + Nanos::from_f64(took.ceil().max(1.0));
        }
    }

    fn is_done(&self) -> bool {
        self.phase >= self.phases.len()
    }
}

/// A random whole number with the mean `mean`.
fn round(random: &mut Random, mean: f64) -> u64 {
    let whole = mean.max(0.0).floor();
    whole as u64 + u64::from(random.unit() < mean - whole)
}
