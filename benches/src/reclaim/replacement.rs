//! One hot function, replaced over and over while threads call it: how fast, and whether
//! memory stays where it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use uruk::Tier;
use uruk_reclaim::Config;

use super::callers::{BYTES, CALLERS, Callers, TURNS};
use super::memory::{held_bytes, trend};
use super::program::{HOT, program};
use super::world::{Reclaimer, World, body};
use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Replacements of linked code, and with a compile each.
const LINKED: usize = 100_000;
const COMPILED: usize = 10_000;
/// Linked code is replaced so many times a second: a fifth of what one thread can do at
/// most, which nothing that compiles or links reaches. At the most, the thread that
/// reclaims cannot follow on two processors that callers and publisher keep busy.
const PACE: f64 = 20_000.0;
/// Replacements without a pause, after the others.
const BURST: usize = 20_000;
/// Functions that live beside the hot one: together about a mebibyte.
const OTHERS: usize = 2_000;
/// Moments at which memory is looked at, after the first.
const POINTS: usize = 10;
/// Replacements between two looks at the code memory.
const LOOK_EVERY: usize = 50;
/// A pause that is worth it.
const SLEEP: Duration = Duration::from_micros(200);
/// Growth over a whole run that is none: a window of the heap.
const STEP_BYTES: f64 = 65_536.0;
/// The memory left over for one small function: twice `sweep_floor`, `evacuate_floor`, and the
/// window that receives code.
const FLOOR_BYTES: f64 = 4.0 * 65_536.0;

/// Linked code, then a compile each; among others and alone.
///
/// # Errors
/// No memory for code, or a compile fails.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for others in [OTHERS, 0] {
        rows.extend(linked(bench, others)?.rows("linked code", others));
        rows.extend(compiled(bench, others)?.rows("compiled code", others));
    }
    Ok(rows)
}

/// Bytes of code.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    held: f64,
    live: f64,
    pinned: f64,
}

impl Held {
    /// Over the live and what is pinned beyond.
    fn ratio(&self) -> f64 {
        (self.held - self.pinned) / self.live
    }
}

/// The results of a run.
struct Run {
    count: usize,
    /// Of all threads but the callers', in nanoseconds.
    cpu: f64,
    /// A second of wall-clock time, where it was slowed down.
    paced: Option<f64>,
    /// A second of wall-clock time, at the most.
    rate: f64,
    /// Where the code took most of what is live.
    worst: Held,
    /// Replacements so far, and bytes of the process.
    points: Vec<(f64, f64)>,
}

fn linked(bench: &Bench, others: usize) -> Result<Run> {
    let bodies = (0..others).map(|number| body(number as u32, TURNS, 512));
    let world = World::new([body(0, TURNS, BYTES)].into_iter().chain(bodies))?;
    let live = BYTES + others * 512;
    let reclaimer = Reclaimer::new(&world, &Config::default())?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| reclaimer.run(&stop));
        let run = Callers::during(world.stub(0), |callers| {
            // The version a caller is in is pinned, and not counted as such: it is less
            // than what is asked for.
            let look = || Held {
                held: world.held(),
                live: live as f64,
                pinned: 0.0,
            };
            drive(callers, bench.rounds(LINKED), Some(PACE), look, |number| {
                world.replace(0, &body(number as u32, TURNS, BYTES))
            })
        });
        stop.store(true, Ordering::Relaxed);
        run
    })
}

fn compiled(bench: &Bench, others: usize) -> Result<Run> {
    let jit = program(others)?;
    jit.compile_at(HOT, Tier::Baseline)?;
    let run = Callers::during(jit.lookup(HOT)?, |callers| {
        let look = || {
            let memory = jit.stats().memory;
            Held {
                held: memory.held as f64,
                live: memory.live as f64,
                pinned: memory.pinned as f64,
            }
        };
        drive(callers, bench.rounds(COMPILED), None, look, |_| {
            Ok(jit.compile_at(HOT, Tier::Baseline)?)
        })
    });
    drop(jit);
    clock::until_one_thread();
    run
}

/// Replaces `count` times, at `pace` a second at most, after a tenth of that to warm up.
fn drive(
    callers: &Callers,
    count: usize,
    pace: Option<f64>,
    look: impl Fn() -> Held,
    mut replace: impl FnMut(usize) -> Result<()>,
) -> Result<Run> {
    let warm = count / POINTS;
    let begun = Instant::now();
    let mut replace = |number: usize, paced: bool| {
        let due = pace.map_or(0.0, |pace| number as f64 / pace);
        let early = due - begun.elapsed().as_secs_f64();
        if paced && early > 0.0 {
            thread::sleep(Duration::from_secs_f64(early).max(SLEEP));
        }
        replace(number)
    };
    for number in 0..warm {
        replace(number, true)?;
    }
    let mut worst = Held::default();
    let mut points = vec![(0.0, held_bytes())];
    let (start, cpu, earlier) = (Instant::now(), clock::process_ns(), callers.done());
    for number in 1..=count {
        replace(warm + number, true)?;
        if number % LOOK_EVERY == 0 {
            let now = look();
            let most = worst.live > 0.0 && worst.ratio() >= now.ratio();
            worst = if most { worst } else { now };
        }
        if number % (count / POINTS) == 0 {
            points.push((number as f64, held_bytes()));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = clock::process_ns() - cpu - callers.done().cpu_since(&earlier);
    let mut rate = count as f64 / seconds;
    if pace.is_some() {
        let start = Instant::now();
        for number in 1..=BURST {
            replace(warm + count + number, false)?;
        }
        rate = BURST as f64 / start.elapsed().as_secs_f64();
    }
    Ok(Run {
        count,
        paced: pace.map(|_| count as f64 / seconds),
        rate,
        cpu,
        worst,
        points,
    })
}

impl Run {
    fn rows(self, what: &str, others: usize) -> Vec<Row> {
        let kib: Vec<String> = self
            .points
            .iter()
            .map(|(_, bytes)| format!("{:.0}", bytes / 1024.0))
            .collect();
        progress(&format!(
            "{what} beside {others} others, KiB held: {}",
            kib.join(" ")
        ));
        let Held { held, live, pinned } = self.worst;
        let code = format!(
            "code, data and gaps at the worst of {} moments: {held:.0} bytes, of which {pinned:.0} pinned; \
             live {live:.0}",
            self.count / LOOK_EVERY
        );
        if others == 0 {
            let name = format!("code memory, {what}, one function, beyond twice live and pinned");
            let beyond = Figure::of([held - pinned - 2.0 * live]);
            let row = Row::new(name, Unit::Bytes, beyond).target(Target::AtMost(FLOOR_BYTES));
            return vec![row.note(format!(
                "{code}; allowed are twice sweep_floor, evacuate_floor and a window of the heap, 64 KiB each"
            ))];
        }
        let rate = Figure::of([self.count as f64 / self.cpu * 1e9]);
        let name = format!("replacements, {what}");
        let speed = Row::new(name, Unit::IterationsPerSecond, rate).note(format!(
            "{} replacements under {CALLERS} callers{}; processor time of all threads but the callers'; \
             without a pause {:.0} a second of wall-clock time",
            self.count,
            self.paced
                .map_or_else(String::new, |rate| format!(", {rate:.0} a second")),
            self.rate,
        ));
        let found = trend(&self.points[1..]);
        let noise = (3.0 * found.error).max(STEP_BYTES / self.count as f64);
        let flat = Row::new(
            format!("  growth of the process for each, {what}"),
            Unit::Bytes,
            Figure::of([found.slope.max(0.0)]),
        )
        .peer("noise", Figure::of([noise]))
        .target(Target::RatioAtMost(1.0))
        .note(format!(
            "slope of the memory held at {POINTS} points (each page once), in KiB: {}; noise: three \
             standard errors, at least 64 KiB over the run",
            kib[1..].join(" ")
        ));
        let ratio = Row::new(
            format!("  code memory over live, {what}"),
            Unit::Times,
            Figure::of([self.worst.ratio()]),
        );
        vec![speed, flat, ratio.target(Target::AtMost(2.0)).note(code)]
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, TURNS, World, body};
    use crate::reclaim::world::Reclaimer;
    use uruk_reclaim::{Config, Kind};

    /// By counts: whatever was replaced is gone, but for the version to go back to and
    /// what this thread's own stack happens to hold.
    #[test]
    fn memory_is_flat_however_often_a_function_is_replaced() {
        const ROUNDS: u32 = 20;
        const EACH: u32 = 100;
        let world = World::new([body(0, TURNS, BYTES)]).expect("a heap");
        let mut reclaimer = Reclaimer::new(&world, &Config::default()).expect("roots");
        let mut most = 0.0_f64;
        for round in 0..ROUNDS {
            for number in 0..EACH {
                let code = body(round * EACH + number, TURNS, BYTES);
                world.replace(0, &code).expect("memory");
            }
            reclaimer.cycle(Kind::Sweep, |_| 0).expect("a cycle");
            most = most.max(world.held());
        }
        let stats = reclaimer.stats();
        assert_eq!(stats.live.blocks, 2, "{stats:?}");
        let all = u64::from(ROUNDS * EACH) + 1;
        let kept = all - stats.live.blocks - stats.freed.blocks;
        assert_eq!(kept, stats.retired.blocks + stats.pinned.blocks);
        assert!(kept < 16, "{stats:?}");
        assert!(most < 65_536.0, "{most} bytes for {BYTES} live");
    }
}
