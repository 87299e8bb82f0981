//! The engine against callers and publishers under loom, every interleaving up to a bound of
//! preemptions: `RUSTFLAGS="--cfg loom" cargo test -p uruk-reclaim --release --test loom`.
//!
//! One function. A slot holds a cell and the version the cell should hold; a freed cell holds a
//! trap, or a publisher's next version. Callers must execute the version their slot named.
//!
//! Examination of a thread, as by `uruk-roots`:
//! - blocked, by its count of switches, its stack, and the count again; none of these reads makes
//!   the thread see a store, so `fence` must (`membarrier`: a `SeqCst` fence on both sides);
//! - running, by a signal, which comes between two instructions and is an exchange with the thread:
//!   a lock around each instruction pair "load slot, be there".
//!
//! Each model is run again without one guard, and must fail then: loom 0.7 does not explore
//! everything, and a model that cannot fail shows nothing.
//!
//! | field | written by | read by | ordering |
//! |---|---|---|---|
//! | `slot` | publisher, engine, under `function` | callers | release; acquire: code is whole |
//! | `Caller::switches` | its caller | engine | relaxed, `SeqCst` fences on both sides |
//! | `Caller::word` | its caller | engine | release when it leaves; acquire: reads come before the free |
//! | `cells` | the owner of the cell | callers | relaxed, ordered by `slot` and `word` |
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(loom)]

use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use uruk_reclaim::{
    Block, BlockId, Config, Copied, CopyError, Dead, Engine, Environment, EnvironmentError,
    FunctionId, Inbox, Kind, Memory, Nanos, Note, Pin, ScanAnswer, Space, Span, Swing, ThreadId,
    VersionId,
};

const CELLS: usize = 3;
const TRAP: usize = 0;
const NOWHERE: usize = usize::MAX;

/// The guard that a model runs without.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    Fence,
    Pins,
    ScanAfter,
    VersionCheck,
    StoreBeforeNote,
}

struct Caller {
    /// Number of times it started or stopped running; even at rest.
    switches: AtomicUsize,
    /// The cell it is in.
    word: AtomicUsize,
    /// Held between two instructions that a signal cannot separate.
    core: Mutex<()>,
}

/// The record of the function, under its lock.
struct Function {
    published: Block,
}

struct Shared {
    slot: AtomicUsize,
    cells: [AtomicUsize; CELLS],
    free: Mutex<Vec<usize>>,
    function: Mutex<Function>,
    callers: Vec<Caller>,
    inbox: Inbox<Note>,
    without: Without,
}

fn block(cell: usize, id: u64, version: usize) -> Block {
    let start = (cell * 16) as u64;
    Block {
        id: BlockId(id),
        span: Span {
            start,
            end: start + 15,
        },
        space: Space::A,
        function: FunctionId(0),
        version: VersionId(version as u64),
        fixed: None,
    }
}

fn target(cell: usize, version: usize) -> usize {
    cell * 16 + version
}

impl Shared {
    fn new(callers: usize, without: Without) -> Arc<Shared> {
        let first = block(0, 1, 1);
        let shared = Shared {
            slot: AtomicUsize::new(target(0, 1)),
            cells: std::array::from_fn(|cell| AtomicUsize::new(if cell == 0 { 1 } else { TRAP })),
            // The last is taken first: a freed cell is reused at once.
            free: Mutex::new((1..CELLS).rev().collect()),
            function: Mutex::new(Function { published: first }),
            callers: (0..callers)
                .map(|_| Caller {
                    switches: AtomicUsize::new(0),
                    word: AtomicUsize::new(NOWHERE),
                    core: Mutex::new(()),
                })
                .collect(),
            inbox: Inbox::default(),
            without,
        };
        shared.inbox.push(Note::Born(first));
        Arc::new(shared)
    }

    /// A thread comes out of a system call, calls the function, and goes back.
    fn call(&self, caller: usize) {
        let me = &self.callers[caller];
        me.switches.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `Engine::fence`: the thread's side of `membarrier`.
        fence(Ordering::SeqCst);
        let slot = {
            let _instructions = me.core.lock().unwrap();
            let slot = self.slot.load(Ordering::Acquire);
            me.word.store(slot / 16, Ordering::Relaxed);
            slot
        };
        let found = self.cells[slot / 16].load(Ordering::Relaxed);
        assert_eq!(found, slot % 16, "executed what is not there");
        // Release: pairs with the engine's acquire; the read above comes before a free.
        me.word.store(NOWHERE, Ordering::Release);
        me.switches.fetch_add(1, Ordering::Release);
    }

    fn allocate(&self, version: usize) -> Option<usize> {
        let cell = self.free.lock().unwrap().pop()?;
        self.cells[cell].store(version, Ordering::Relaxed);
        Some(cell)
    }

    /// A publisher puts a new version in the slot.
    fn publish(&self, version: usize) {
        let Some(cell) = self.allocate(version) else {
            return;
        };
        let new = block(cell, 10 + version as u64, version);
        self.inbox.push(Note::Born(new));
        let mut function = self.function.lock().unwrap();
        let old = std::mem::replace(&mut function.published, new);
        if self.without == Without::StoreBeforeNote {
            self.inbox.push(Note::Retired(old.id));
            thread::yield_now();
        }
        self.slot.store(target(cell, version), Ordering::Release);
        drop(function);
        if self.without != Without::StoreBeforeNote {
            self.inbox.push(Note::Retired(old.id));
        }
    }

    /// The cell a thread is in, as seen from outside.
    fn look(&self, caller: usize) -> usize {
        let thread = &self.callers[caller];
        let before = thread.switches.load(Ordering::Acquire);
        if before % 2 == 0 {
            let word = thread.word.load(Ordering::Acquire);
            if thread.switches.load(Ordering::Acquire) == before {
                return word;
            }
        }
        let _signal = thread.core.lock().unwrap();
        thread.word.load(Ordering::Acquire)
    }
}

/// The engine's side.
struct Env {
    shared: Arc<Shared>,
    numbers: u64,
    early: Vec<usize>,
}

impl Environment for Env {
    fn fork_generation(&self) -> u64 {
        0
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        if self.shared.without == Without::ScanAfter {
            self.early = (0..self.shared.callers.len())
                .map(|caller| self.shared.look(caller))
                .collect();
        }
        Ok(Space::B)
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        let version = block.version.0 as usize;
        let cell = self.shared.allocate(version);
        let cell = cell.ok_or(CopyError::OutOfSpace { asked: 1, held: 0 })?;
        self.numbers += 1;
        Ok(Copied {
            id: BlockId(self.numbers),
            span: crate::block(cell, 0, 0).span,
            space: Space::B,
        })
    }

    fn swing(&mut self, old: &Block, new: &Block) -> Swing {
        let mut function = self.shared.function.lock().unwrap();
        let is_old = function.published.id == old.id;
        if !is_old && self.shared.without != Without::VersionCheck {
            return Swing::Superseded;
        }
        function.published = *new;
        let cell = (new.span.start / 16) as usize;
        let slot = target(cell, new.version.0 as usize);
        self.shared.slot.store(slot, Ordering::Release);
        Swing::Done
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        if self.shared.without != Without::Fence {
            // Pairs with the fence in `Shared::call`.
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        let mut answer = ScanAnswer::default();
        for caller in 0..self.shared.callers.len() {
            let word = match self.shared.without {
                Without::ScanAfter => self.early.get(caller).copied().unwrap_or(NOWHERE),
                _ => self.shared.look(caller),
            };
            let held = ranges
                .iter()
                .position(|span| word != NOWHERE && span.is_pinned_by(word as u64 * 16));
            if let Some(range) = held.filter(|_| self.shared.without != Without::Pins) {
                answer.pins.push(Pin {
                    range,
                    thread: ThreadId(caller as i32),
                });
            }
        }
        Ok(answer)
    }

    fn drain_samples(&mut self) {}

    fn unregister(&mut self, _block: &Block) {}

    fn free(&mut self, batch: Vec<Dead>) {
        for dead in batch {
            let cell = (dead.span().start / 16) as usize;
            self.shared.cells[cell].store(TRAP, Ordering::Relaxed);
            self.shared.free.lock().unwrap().push(cell);
        }
    }
}

fn steps(engine: &mut Engine, env: &mut Env, now: &mut Nanos, count: usize) {
    for _ in 0..count {
        *now = *now + Nanos(10);
        for note in env.shared.inbox.take() {
            engine.apply(note, *now).unwrap();
        }
        engine.step(env, *now);
    }
}

/// Runs callers and publishers beside an engine that runs a cycle; when all is quiet, only live
/// blocks may be left.
fn play(callers: usize, calls: usize, publications: usize, kind: Kind, without: Without) {
    let shared = Shared::new(callers, without);
    let mut threads = Vec::new();
    for caller in 0..callers {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            for _ in 0..calls {
                shared.call(caller);
            }
        }));
    }
    if publications > 0 {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            for version in 0..publications {
                shared.publish(2 + version);
            }
        }));
    }
    let config = Config {
        sweep_after: Nanos(0),
        interval: Nanos(0),
        backoff_min: Nanos(1),
        backoff_max: Nanos(1),
        ..Config::default()
    };
    let mut engine = Engine::new(&config, 0);
    let mut now = Nanos(0);
    let mut env = Env {
        shared: Arc::clone(&shared),
        numbers: 100,
        early: Vec::new(),
    };
    shared
        .inbox
        .request(|ticket| Note::Request { kind, ticket });
    // Begin, copy, prove, free; and once more for what was pinned or came late.
    steps(&mut engine, &mut env, &mut now, 4);
    for thread in threads {
        thread.join().unwrap();
    }
    steps(&mut engine, &mut env, &mut now, 12);
    let stats = engine.stats(now);
    let left = stats.retired.blocks + stats.pinned.blocks + stats.dead.blocks;
    assert_eq!((left, stats.live.blocks), (0, 1), "something leaks");
    assert_eq!(shared.free.lock().unwrap().len(), CELLS - 1, "memory leaks");
    let slot = shared.slot.load(Ordering::Relaxed);
    let found = shared.cells[slot / 16].load(Ordering::Relaxed);
    assert_eq!(found, slot % 16, "the slot holds freed code");
}

fn model(bound: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(check);
}

/// The message of the first interleaving that fails.
fn breaks(bound: usize, check: impl Fn() + Sync + Send + 'static) -> Option<String> {
    let run = std::panic::AssertUnwindSafe(|| model(bound, check));
    let payload = std::panic::catch_unwind(run).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| (*payload.downcast_ref::<&str>().unwrap_or(&"?")).to_owned()))
}

#[test]
fn evacuation_beside_a_caller() {
    model(3, || play(1, 2, 0, Kind::Evacuate, Without::Nothing));
}

#[test]
fn evacuation_beside_two_callers() {
    model(3, || play(2, 1, 0, Kind::Evacuate, Without::Nothing));
}

#[test]
fn evacuation_beside_a_publisher() {
    model(3, || play(1, 1, 1, Kind::Evacuate, Without::Nothing));
}

#[test]
fn sweeps_beside_a_publisher_that_reuses_memory() {
    model(3, || play(1, 2, 2, Kind::Sweep, Without::Nothing));
}

#[test]
fn every_guard_is_needed() {
    use Kind::{Evacuate, Sweep};
    let cases = [
        ("fence", Without::Fence, 1, 0, Evacuate),
        ("pins", Without::Pins, 1, 0, Evacuate),
        ("scan after unreachable", Without::ScanAfter, 1, 0, Evacuate),
        (
            "version check in swing",
            Without::VersionCheck,
            0,
            1,
            Evacuate,
        ),
        (
            "retired after the store",
            Without::StoreBeforeNote,
            1,
            1,
            Sweep,
        ),
    ];
    for (name, without, callers, publications, kind) in cases {
        let broken = breaks(3, move || play(callers, 1, publications, kind, without));
        let broken = broken.unwrap_or_else(|| panic!("nothing fails without: {name}"));
        println!(
            "without {name}: {}",
            broken.lines().next().unwrap_or_default()
        );
    }
}
