//! Prints the costs of a session, beside ORC 22.1.8's figures where they exist.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use uruk_session::graph::{Graph, NodeId};
use uruk_session::{
    DependenceGroup, Dylib, Flags, Interface, Lookup, PoolConfig, Responsibility, Session,
    SessionConfig, Symbol, Unit, Visibility,
};

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
            let _ = responsibility.emit(&[]);
        }
    }
}

/// A unit of many symbols; `below` names the dependences of each.
struct Many(
    Dylib,
    Vec<Symbol>,
    fn(usize, usize) -> Option<usize>,
    Option<Symbol>,
);

impl Unit for Many {
    fn name(&self) -> &str {
        "many"
    }
    fn interface(&self) -> Interface {
        self.1.iter().map(|s| (*s, Flags::EXPORTED)).collect()
    }
    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let addresses: Vec<_> = self.1.iter().map(|s| (*s, 16)).collect();
        let group = |n: usize| DependenceGroup {
            symbols: vec![self.1[n]],
            dependences: (self.2)(n, self.1.len())
                .map(|m| self.1[m])
                .into_iter()
                .chain(self.3)
                .map(|symbol| (self.0.id(), symbol))
                .collect(),
        };
        let groups: Vec<_> = (0..self.1.len()).map(group).collect();
        let resolved = responsibility.resolve(&addresses);
        resolved
            .and_then(|()| responsibility.emit(&groups))
            .expect("emitted");
    }
}

/// A unit that keeps its responsibility and never answers.
struct Never(Symbol, Arc<Mutex<Option<Responsibility>>>);

impl Unit for Never {
    fn name(&self) -> &str {
        "never"
    }
    fn interface(&self) -> Interface {
        Interface::from_iter([(self.0, Flags::EXPORTED)])
    }
    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        *self.1.lock().expect("not poisoned") = Some(responsibility);
    }
}

fn session(jobs: usize) -> Session {
    Session::new(SessionConfig {
        pool: PoolConfig {
            jobs,
            ..PoolConfig::default()
        },
        ..SessionConfig::default()
    })
}

const READY: usize = 1_000;
const ROUNDS: usize = 20_000_000;

/// Nanoseconds that this thread has run: on a busy machine the wall clock says
/// nothing about scaling.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next().and_then(|ns| ns.parse().ok());
    first.unwrap_or(0.0)
}

/// Million lookups a second of processor time, summed over the threads.
fn rate(threads: usize, lookup: impl Fn(usize) -> u64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let run = || {
        barrier.wait();
        let start = cpu_ns();
        let mut sum = 0u64;
        for n in 0..ROUNDS {
            sum = sum.wrapping_add(lookup(n % READY));
        }
        std::hint::black_box(sum);
        ROUNDS as f64 / (cpu_ns() - start) * 1e3
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let rates = threads.into_iter().map(|t| t.join().expect("no panic"));
        rates.sum()
    })
}

fn ready() {
    let session = session(0);
    let dylib = session.create_dylib("main").expect("new");
    let names: Vec<String> = (0..READY).map(|n| format!("function_{n}")).collect();
    let symbols: Vec<Symbol> = names.iter().map(|name| session.intern(name)).collect();
    for symbol in &symbols {
        dylib.define(Trivial(*symbol, 16)).expect("defined");
        dylib.lookup(*symbol).expect("found");
    }
    let by_symbol = |n: usize| dylib.lookup(symbols[n]).unwrap_or(0);
    let by_name = |n: usize| dylib.lookup_name(&names[n]).unwrap_or(0);
    let intern = |n: usize| u64::from(session.intern(&names[n]).id());
    let line = |what: &str, one: f64, two: f64| {
        println!(
            "{what:32} {one:8.1} M/s  {:6.1} ns   two threads {two:8.1} M/s  x{:.2}",
            1e3 / one,
            two / one
        );
    };
    let spin = |n: usize| std::hint::black_box(n) as u64;
    line("an empty loop, for scale", rate(1, spin), rate(2, spin));
    line(
        "ready lookup by symbol",
        rate(1, by_symbol),
        rate(2, by_symbol),
    );
    line("ready lookup by name", rate(1, by_name), rate(2, by_name));
    line("intern an existing name", rate(1, intern), rate(2, intern));
    println!(
        "  (ORC 22.1.8 by name: 0.5 to 1.1 M/s, two threads x1.35 to 1.5; intern 24 to 32 ns, x0.57)"
    );
}

fn publish(jobs: usize, pending: usize) {
    const COUNT: usize = 200_000;
    let kept = Arc::default();
    let session = session(jobs);
    let dylib = session.create_dylib("main").expect("new");
    // A cycle that waits for a symbol that is never emitted.
    let symbols: Vec<Symbol> = (0..pending)
        .map(|n| session.intern(&format!("ring{n}")))
        .collect();
    if let Some(first) = symbols.first().copied() {
        let open = session.intern("open");
        dylib
            .define(Never(open, Arc::clone(&kept)))
            .expect("defined");
        session.lookup_future(Lookup::new([(dylib.clone(), Visibility::All)]).symbol(open));
        let unit = Many(
            dylib.clone(),
            symbols,
            |n, len| Some((n + 1) % len),
            Some(open),
        );
        dylib.define(unit).expect("defined");
        session.lookup_future(Lookup::new([(dylib.clone(), Visibility::All)]).symbol(first));
    }
    let symbols: Vec<Symbol> = (0..COUNT)
        .map(|n| session.intern(&format!("s{n}")))
        .collect();
    let start = cpu_ns();
    for symbol in &symbols {
        dylib.define(Trivial(*symbol, 16)).expect("defined");
        dylib.lookup(*symbol).expect("found");
    }
    let each = (cpu_ns() - start) / COUNT as f64;
    println!(
        "define, look up, materialize, publish, {jobs} workers, {pending} pending in a cycle: \
         {each:.0} ns each (ORC 4,300; with 64,000 pending 114,000)"
    );
}

fn graph(what: &str, orc: &str, len: usize, below: fn(usize, usize) -> Option<usize>) {
    let session = session(0);
    let dylib = session.create_dylib("main").expect("new");
    let symbols: Vec<Symbol> = (0..len).map(|n| session.intern(&format!("s{n}"))).collect();
    let first = symbols[0];
    dylib
        .define(Many(dylib.clone(), symbols, below, None))
        .expect("defined");
    let start = Instant::now();
    dylib.lookup(first).expect("found");
    println!(
        "{what}: {:.2} ms {orc}",
        start.elapsed().as_secs_f64() * 1e3
    );
}

/// A ring that is emitted one by one and closed by its last member.
fn open_ring(len: usize) {
    let mut graph = Graph::new();
    let start = Instant::now();
    let ids: Vec<NodeId> = (0..len).map(|n| graph.add(n)).collect();
    let mut ready = Vec::new();
    for n in 0..len {
        graph.emit(ids[n], &[ids[(n + 1) % len]], &mut ready);
    }
    assert_eq!(ready.len(), len);
    println!(
        "graph alone, ring of {len} emitted one by one: {:.2} ms",
        start.elapsed().as_secs_f64() * 1e3
    );
}

fn drop_tracker(others: usize) {
    const COUNT: usize = 100_000;
    let session = session(0);
    let dylib = session.create_dylib("main").expect("new");
    for n in 0..others {
        let symbol = session.intern(&format!("other{n}"));
        dylib.define(Trivial(symbol, 16)).expect("defined");
    }
    let tracker = dylib.create_tracker().expect("new");
    let symbols = (0..COUNT)
        .map(|n| session.intern(&format!("p{n}")))
        .collect();
    tracker
        .define(Many(dylib.clone(), symbols, |_, _| None, None))
        .expect("defined");
    let start = Instant::now();
    tracker.remove().expect("removed");
    let took = start.elapsed().as_secs_f64() * 1e3;
    println!("remove a tracker of {COUNT} symbols, {others} others pending: {took:.2} ms");
    let tracker = dylib.create_tracker().expect("new");
    tracker
        .define(Trivial(session.intern("lone"), 16))
        .expect("defined");
    let start = Instant::now();
    tracker.remove().expect("removed");
    let took = start.elapsed().as_secs_f64() * 1e6;
    println!("remove a tracker of one symbol, {others} others pending: {took:.2} us");
}

fn main() {
    ready();
    publish(0, 0);
    publish(1, 0);
    publish(0, 64_000);
    graph(
        "chain of 4,000 in one unit",
        "(ORC 58,800)",
        4_000,
        |n, len| (n + 1 < len).then_some(n + 1),
    );
    graph(
        "ring of 1,000 in one unit",
        "(ORC 7,100)",
        1_000,
        |n, len| Some((n + 1) % len),
    );
    graph("ring of 64,000 in one unit", "", 64_000, |n, len| {
        Some((n + 1) % len)
    });
    open_ring(64_000);
    drop_tracker(0);
    drop_tracker(400_000);
}
