//! The session alone: ready lookups, and publishing a symbol of a custom unit.
//! ORC does the same in the same run, through LLVM's C interface.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use uruk_session::{
    Dylib, Flags, Interface, PoolConfig, Responsibility, Session, SessionConfig, Symbol, Unit,
};

use crate::bench::Bench;
use crate::clock::{self, Moment};
use crate::orc::Orc;
use crate::row::{Figure, Row, Target, Unit as In};

/// Ready symbols that are looked up in turn.
const READY: usize = 1_000;
/// Lookups of one timed loop, ours and ORC's: a few milliseconds, so that many
/// loops run without anyone else on their processors.
const LOOKUPS: usize = 400_000;
const ORC_LOOKUPS: usize = 5_000;
/// Symbols published in one timed loop.
const PUBLISHED: usize = 20_000;

/// A unit of one symbol whose address is known.
struct Trivial(Symbol, u64);

impl Unit for Trivial {
    fn name(&self) -> &str {
        "trivial"
    }

    fn interface(&self) -> Interface {
        Interface::from_iter([(self.0, Flags::EXPORTED)])
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        if responsibility.resolve(&[(self.0, self.1)]).is_ok() {
            // A failure shows in the lookup, which is checked.
            let _ = responsibility.emit(&[]);
        }
    }
}

/// Ready lookups on one thread and on two.
///
/// # Errors
/// What the session or ORC reports.
pub fn measure_lookups(bench: &Bench) -> Result<Vec<Row>> {
    let session = session();
    let dylib = session.create_dylib("main")?;
    let names: Vec<String> = (0..READY).map(|n| format!("function_{n}")).collect();
    let symbols: Vec<Symbol> = names.iter().map(|name| session.intern(name)).collect();
    let orc = Orc::new()?;
    for (name, symbol) in names.iter().zip(&symbols) {
        publish(&dylib, *symbol)?;
        orc.define_address(name, 16)?;
        orc.lookup(name)?;
    }
    let by_name = |n: usize| dylib.lookup_name(&names[n]).unwrap_or(0);
    let by_symbol = |n: usize| dylib.lookup(symbols[n]).unwrap_or(0);
    let by_orc = |n: usize| orc.lookup(&names[n]).unwrap_or(0);
    let mut rates: [Rates; 6] = Default::default();
    for _ in 0..bench.rounds(150) {
        for (threads, rates) in [1, 2].into_iter().zip(rates.chunks_mut(3)) {
            rates[0].round(threads, LOOKUPS, &by_name);
            rates[1].round(threads, 4 * LOOKUPS, &by_symbol);
            rates[2].round(threads, ORC_LOOKUPS, &by_orc);
        }
    }
    let [name, symbol, peer, name2, symbol2, peer2] = rates.map(Rates::figure);
    let row = |what: &str, figure: &Figure| Row::new(what, In::MillionPerSecond, figure.clone());
    let note = "threads on a processor each, wall-clock time from the first start to the last end; the third of the rounds \
                in which other processes disturbed least";
    let scaling = |what: &str, two: &Figure, one: &Figure| {
        row(what, two).peer("one thread", one.clone()).note(note)
    };
    Ok(vec![
        row("ready lookup by name", &name)
            .peer("ORC", peer.clone())
            .target(Target::AtLeast(10.0)),
        row("  by symbol", &symbol)
            .peer("ORC by name", peer.clone())
            .target(Target::AtLeast(10.0)),
        scaling("ready lookup by name, two threads", &name2, &name)
            .target(Target::RatioAtLeast(1.8)),
        scaling("  by symbol, two threads", &symbol2, &symbol).target(Target::RatioAtLeast(1.8)),
        scaling("  ORC by name, two threads", &peer2, &peer),
    ])
}

/// Define, look up, materialize, resolve, emit: a symbol of a custom unit.
///
/// # Errors
/// What the session or ORC reports.
pub fn measure_publish(bench: &Bench) -> Result<Vec<Row>> {
    let mut ours = Vec::new();
    let mut peer = Vec::new();
    let names: Vec<String> = (0..PUBLISHED).map(|n| format!("symbol_{n}")).collect();
    for _ in 0..bench.rounds(15) {
        let session = session();
        let dylib = session.create_dylib("main")?;
        let symbols: Vec<Symbol> = names.iter().map(|name| session.intern(name)).collect();
        ours.push(per_item_us(&symbols, |symbol| publish(&dylib, *symbol))?);
        let orc = Orc::new()?;
        let symbols = names
            .iter()
            .map(|name| orc.intern(name))
            .collect::<Result<Vec<_>>>()?;
        peer.push(per_item_us(&symbols, |symbol| {
            orc.publish_custom(*symbol, 16)
        })?);
    }
    let row = Row::new(
        "publish a symbol of a custom unit",
        In::Us,
        Figure::of(ours),
    )
    .peer("ORC", Figure::of(peer))
    .target(Target::AtMost(1.0))
    .note("processor time of define, look up, materialize, resolve, emit; names interned before");
    Ok(vec![row])
}

fn publish(dylib: &Dylib, symbol: Symbol) -> Result<()> {
    dylib.define(Trivial(symbol, 16))?;
    dylib.lookup(symbol)?;
    Ok(())
}

/// A session whose tasks run in the threads that wait for them.
fn session() -> Session {
    let pool = PoolConfig {
        jobs: 0,
        ..PoolConfig::default()
    };
    Session::new(SessionConfig {
        pool,
        ..SessionConfig::default()
    })
}

/// Rates of one way to look up.
#[derive(Default)]
struct Rates {
    /// Part of the time that others had the processors; the rate.
    rounds: Vec<(f64, f64)>,
}

impl Rates {
    /// Times `count` lookups on each of `threads` threads: million lookups a second,
    /// from the first one's start to the last one's end.
    fn round(&mut self, threads: usize, count: usize, lookup: &(impl Fn(usize) -> u64 + Sync)) {
        let arrived = AtomicUsize::new(0);
        let run = &|index: usize| {
            let _pinned = clock::pin(index);
            // Spinning, so that all have a processor when they start; relaxed, as
            // nothing but the count is handed over.
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < threads {
                std::hint::spin_loop();
            }
            let start = Moment::now();
            let mut sum = 0u64;
            for n in 0..count {
                sum = sum.wrapping_add(lookup(n % READY));
            }
            std::hint::black_box(sum);
            (start, Moment::now())
        };
        let runs: Vec<(Moment, Moment)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|index| scope.spawn(move || run(index)))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        let start = runs
            .iter()
            .map(|run| run.0.wall_ns())
            .fold(f64::INFINITY, f64::min);
        let end = runs.iter().map(|run| run.1.wall_ns()).fold(0.0, f64::max);
        let delays = runs.iter().map(|(start, end)| end.delay_since(*start));
        let disturbed = delays.fold(0.0, f64::max) / (end - start);
        let lookups = (runs.len() * count) as f64;
        self.rounds.push((disturbed, lookups / (end - start) * 1e3));
    }

    /// The rates of the least disturbed third of the rounds: threads that did not run
    /// at the same time say nothing about scaling.
    fn figure(mut self) -> Figure {
        self.rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let kept = self.rounds.len().div_ceil(3);
        Figure::of(self.rounds.into_iter().take(kept).map(|round| round.1))
    }
}

fn per_item_us<T>(items: &[T], each: impl Fn(&T) -> Result<()>) -> Result<f64> {
    let start = clock::thread_ns();
    items.iter().try_for_each(each)?;
    Ok((clock::thread_ns() - start) / 1e3 / items.len() as f64)
}
