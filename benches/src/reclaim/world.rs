//! The runtime's parts for code that needs no compiler: heap, stubs, versions, the engine
//! of reclaim and the scanner, put together as the session does it.
//!
//! Blocks are machine code that runs anywhere, so a copy is the same bytes elsewhere. A thread that
//! replaces code leaves notes. One thread, the [`Reclaimer`], applies them, steps the engine and
//! does the work it asks for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::{Mutex, MutexGuard};
use uruk_heap::{Heap, HeapConfig, Pool, Sealed};
use uruk_reclaim::{
    Affinity, Block, BlockId, Config, Copied, CopyError, Dead, Engine, Environment,
    EnvironmentError, Kind, MayHold, Memory, Missing, Nanos, Note, Pin, ScanAnswer, Silence, Space,
    Span, Step, Swing, ThreadId,
};
use uruk_roots::{How, Roots, Wanted};
use uruk_stubs::{FunctionId, StubTable};
use uruk_tiering::{
    EntryAddress, FunctionVersions, Publication, Purpose, Tier, VersionId, VersionIds,
};

use crate::clock;

/// Notes are left to gather for so long, as in the session.
const GATHER: Duration = Duration::from_millis(5);
/// How long a scan may take, as in the session.
const ANSWER: Duration = Duration::from_millis(20);
/// Alignment of blocks.
const ALIGN: usize = 16;

/// Code under stubs, and what is needed to replace it.
pub struct World {
    heap: Heap,
    table: Arc<StubTable>,
    ids: VersionIds,
    functions: Vec<(FunctionId, FunctionVersions)>,
    told: Mutex<Vec<Told>>,
    began: Instant,
}

/// A note for the reclaimer.
enum Told {
    Live(usize, VersionId, Sealed),
    Retired(VersionId),
}

impl World {
    /// One function for each of `bodies`, in that order in memory.
    ///
    /// # Errors
    /// No memory for code.
    pub fn new(bodies: impl IntoIterator<Item = Vec<u8>>) -> Result<World> {
        let heap = Heap::new(HeapConfig::default())?;
        let table = StubTable::new(&heap)?;
        let mut world = World {
            heap,
            table,
            ids: VersionIds::default(),
            functions: Vec::new(),
            told: Mutex::default(),
            began: Instant::now(),
        };
        for (number, body) in bodies.into_iter().enumerate() {
            let id = world.table.allocate()?;
            world.functions.push((id, FunctionVersions::new()));
            world.replace(number, &body)?;
        }
        Ok(world)
    }

    /// The stub of a function: its address for callers.
    pub fn stub(&self, number: usize) -> u64 {
        self.table.stub_address(self.functions[number].0).0
    }

    /// Makes `body` what calls of a function reach, and leaves what it was to the
    /// reclaimer.
    ///
    /// # Errors
    /// No memory for code.
    pub fn replace(&self, number: usize, body: &[u8]) -> Result<()> {
        let (id, versions) = &self.functions[number];
        let version = self.ids.next();
        let ticket = versions.request(version, Tier::Baseline, Purpose::Change)?;
        versions.start(ticket)?;
        let mut draft = self.heap.allocate(Pool::Code, body.len(), ALIGN)?;
        draft.write(0, body)?;
        let memory = draft.seal()?;
        versions.ready(ticket, EntryAddress(memory.address()))?;
        self.told().push(Told::Live(number, version, memory));
        let published = versions.publish(ticket, |entry| self.table.publish(*id, entry))?;
        let Publication::Published { released, .. } = published else {
            bail!("nobody else publishes");
        };
        let notes = released.map(Told::Retired);
        self.told().extend(notes);
        Ok(())
    }

    /// Bytes of code memory that are in use or were not given back.
    pub fn held(&self) -> f64 {
        let code = self.heap.stats().code.sum();
        (code.used + code.retired + code.fragmented) as f64
    }

    /// Places machine code that calls the functions of `numbers` in turn, each through its
    /// slot; its address.
    ///
    /// # Errors
    /// No memory for code.
    pub fn caller_of(&self, numbers: &[usize]) -> Result<u64> {
        // push rax; then call *slot(%rip) for each; pop rax; ret
        const CALL: usize = 6;
        let size = 3 + numbers.len() * CALL;
        let mut draft = self.heap.allocate(Pool::Code, size, ALIGN)?;
        let mut code = vec![0x50];
        for &number in numbers {
            let slot = self.table.slot_address(self.functions[number].0).0;
            let next = draft.address() + (code.len() + CALL) as u64;
            code.extend([0xff, 0x15]);
            code.extend((slot.wrapping_sub(next) as u32).to_le_bytes());
        }
        code.extend([0x58, 0xc3]);
        draft.write(0, &code)?;
        Ok(draft.seal()?.address())
    }

    fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock()
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The engine and its hands.
pub struct Reclaimer<'a> {
    engine: Engine,
    hands: Hands<'a>,
    tickets: u64,
}

struct Hands<'a> {
    world: &'a World,
    roots: Roots,
    blocks: HashMap<BlockId, (usize, Sealed)>,
    live: HashMap<VersionId, BlockId>,
    next: u64,
    heat: Vec<(uruk_reclaim::VersionId, u64)>,
}

impl<'a> Reclaimer<'a> {
    /// For a world that has none yet.
    ///
    /// # Errors
    /// Threads cannot be looked at here.
    pub fn new(world: &'a World, config: &Config) -> Result<Reclaimer<'a>> {
        let range = world.heap.pool_range(Pool::Code);
        let roots = Roots::new(range, uruk_roots::Config::default())?;
        Ok(Reclaimer {
            engine: Engine::new(config, 0),
            hands: Hands {
                world,
                roots,
                blocks: HashMap::new(),
                live: HashMap::new(),
                next: 0,
                heat: Vec::new(),
            },
            tickets: 0,
        })
    }

    /// Reclaims until told to stop.
    pub fn run(mut self, stop: &AtomicBool) -> Reclaimer<'a> {
        // Relaxed: nothing is handed over by it.
        while !stop.load(Ordering::Relaxed) {
            if matches!(self.step(), Step::Idle { .. }) {
                std::thread::sleep(GATHER);
            }
        }
        self
    }

    /// One cycle, now, that knows how hot each function is; its processor time in
    /// nanoseconds.
    ///
    /// # Errors
    /// It did not come to an end.
    pub fn cycle(&mut self, kind: Kind, heat: impl Fn(usize) -> u64) -> Result<f64> {
        const PATIENCE: Duration = Duration::from_secs(20);
        self.read_notes();
        let hands = &mut self.hands;
        let heat_of = |(version, block): (&VersionId, &BlockId)| {
            let (number, _) = hands.blocks.get(block)?;
            Some((uruk_reclaim::VersionId(version.0), heat(*number)))
        };
        hands.heat = hands.live.iter().filter_map(heat_of).collect();
        self.tickets += 1;
        let ticket = self.tickets;
        let note = Note::Request { kind, ticket };
        let (start, began) = (clock::thread_ns(), Instant::now());
        self.engine.apply(note, self.hands.world.now())?;
        while began.elapsed() < PATIENCE {
            if let Step::Finished(summary) = self.step()
                && summary.answered >= ticket
            {
                return Ok(clock::thread_ns() - start);
            }
        }
        bail!("a cycle did not end")
    }

    /// The counters of the engine.
    pub fn stats(&self) -> uruk_reclaim::Stats {
        self.engine.stats(self.hands.world.now())
    }

    fn step(&mut self) -> Step {
        self.read_notes();
        let now = self.hands.world.now();
        let start = clock::thread_ns();
        let step = self.engine.step(&mut self.hands, now);
        self.engine
            .charge(Nanos((clock::thread_ns() - start) as u64));
        step
    }

    fn read_notes(&mut self) {
        let told = std::mem::take(&mut *self.hands.world.told());
        let now = self.hands.world.now();
        for told in told {
            let note = match told {
                Told::Live(number, version, memory) => {
                    Some(Note::Born(self.hands.enter(number, version, memory)))
                }
                Told::Retired(version) => self.hands.live.remove(&version).map(Note::Retired),
            };
            let applied = note.map(|note| self.engine.apply(note, now));
            assert!(matches!(applied, Some(Ok(()))), "{applied:?}");
        }
    }
}

impl Hands<'_> {
    /// Files a block that is live.
    fn enter(&mut self, number: usize, version: VersionId, memory: Sealed) -> Block {
        self.next += 1;
        let id = BlockId(self.next);
        let block = Block {
            id,
            span: span(&memory),
            space: space(memory.space()),
            function: uruk_reclaim::FunctionId(number as u32),
            version: uruk_reclaim::VersionId(version.0),
            fixed: None,
        };
        self.live.insert(version, id);
        self.blocks.insert(id, (number, memory));
        block
    }

    fn copied(&mut self, block: &Block) -> Result<Copied> {
        let world = self.world;
        let (number, old) = self.blocks.get(&block.id).context("a block that is live")?;
        let number = *number;
        let mut draft = world.heap.allocate(Pool::Code, old.len(), ALIGN)?;
        draft.write(0, old.bytes().unwrap_or_default())?;
        let memory = draft.seal()?;
        self.next += 1;
        let id = BlockId(self.next);
        let copied = Copied {
            id,
            span: span(&memory),
            space: space(memory.space()),
        };
        self.blocks.insert(id, (number, memory));
        Ok(copied)
    }
}

impl Environment for Hands<'_> {
    fn fork_generation(&self) -> u64 {
        0
    }

    fn memory(&self) -> Memory {
        let code = self.world.heap.stats().code.sum();
        Memory {
            fragmented: code.fragmented as u64,
            held: code.resident as u64,
        }
    }

    fn affinity(&mut self) -> Affinity {
        Affinity {
            heat: std::mem::take(&mut self.heat),
            calls: Vec::new(),
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        Ok(space(self.world.heap.flip_spaces()))
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        self.copied(block).map_err(|_| CopyError::OutOfSpace {
            asked: block.span.len(),
            held: self.world.held() as u64,
        })
    }

    fn swing(&mut self, old: &Block, new: &Block) -> Swing {
        let (id, versions) = &self.world.functions[old.function.0 as usize];
        let version = VersionId(old.version.0);
        let entries = (EntryAddress(old.span.start), EntryAddress(new.span.start));
        let table = &self.world.table;
        let store = |entry: EntryAddress| table.publish(*id, entry);
        if !versions.moved(version, entries.0, entries.1, store) {
            return Swing::Superseded;
        }
        self.live.insert(version, new.id);
        Swing::Done
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        uruk_roots::fence_all_threads().map_err(|e| EnvironmentError::NoFence(e.to_string()))
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        let wanted = ranges.iter().map(|span| span.start..span.end).collect();
        let wanted = Wanted::new(wanted).map_err(|e| EnvironmentError::NoScan(e.to_string()))?;
        let report = {
            let _exempt = self.roots.exempt_current_thread();
            self.roots.scan(&wanted, ANSWER)
        };
        if let Some(trouble) = report.trouble {
            return Err(EnvironmentError::NoScan(format!("{trouble:?}")));
        }
        let mut answer = ScanAnswer {
            longest_handshake: Nanos(report.longest_handshake.as_nanos() as u64),
            ..ScanAnswer::default()
        };
        for thread in report.threads {
            let id = ThreadId(thread.tid);
            match thread.how {
                How::Unanswered { .. } => answer.missing.push(Missing {
                    thread: id,
                    why: Silence::TimedOut,
                    may_hold: MayHold::All,
                }),
                _ => answer.threads += 1,
            }
            let pin = |range| Pin { range, thread: id };
            answer.pins.extend(thread.keeps.into_iter().map(pin));
        }
        Ok(answer)
    }

    fn drain_samples(&mut self) {}

    fn unregister(&mut self, _: &Block) {}

    fn free(&mut self, batch: Vec<Dead>) {
        let blocks = batch
            .iter()
            .filter_map(|dead| self.blocks.remove(&dead.id()));
        let retired: Vec<_> = blocks.map(|(_, memory)| memory.retire()).collect();
        // SAFETY: a `Dead` is the engine's proof that no thread is in the block or comes
        // back to it; nothing is sampled or registered here.
        unsafe { self.world.heap.free(retired) };
    }
}

fn span(memory: &Sealed) -> Span {
    let start = memory.address();
    Span {
        start,
        end: start + memory.len() as u64,
    }
}

fn space(number: usize) -> Space {
    match number {
        0 => Space::A,
        _ => Space::B,
    }
}

/// A body of `bytes` bytes that answers `value` after `turns` turns of a loop.
pub fn body(value: u32, turns: u32, bytes: usize) -> Vec<u8> {
    // mov ecx, turns; again: dec ecx; jnz again; mov eax, value; ret
    let mut code = vec![0xb9];
    code.extend(turns.to_le_bytes());
    code.extend([0xff, 0xc9, 0x75, 0xfc, 0xb8]);
    code.extend(value.to_le_bytes());
    code.push(0xc3);
    code.resize(bytes.max(code.len()), 0xcc);
    code
}
