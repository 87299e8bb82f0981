//! A small model world for tests of the engine: functions, threads with stacks, memory that is
//! reused, stores that become visible late, forks; and a check after every move.
//!
//! [`run`] plays a sequence of moves given as bytes. Each choice takes one byte, so the same bytes
//! give the same run, and a fuzzer's bytes serve as well as a seed's. Threads move between any two
//! calls of the environment, and between any two steps of a scan.
//!
//! Checked:
//! - a thread executes, and returns into, the version it expects, as its own core sees memory (a
//!   core may keep instructions that were overwritten until it is serialised);
//! - executed code has unwind rows;
//! - samples are attributed to the executed version;
//! - freed memory has no rows, and memory shared with a child is not written;
//! - a slot holds the version last published;
//! - in the end, when all threads returned and answer, exactly the live blocks are left.
//!
//! [`Guard`] names the conditions of the protocol; [`run`] without one of them fails for some seed.

mod guards;
mod promises;
mod wiring;
mod world;

use std::fmt;

use thiserror::Error;
use uruk_reclaim::{
    BlockId, Config, Engine, FunctionId, Kind, Nanos, Note, Span, Step, ThreadId, VersionId,
};

pub use guards::Guard;
use world::World;

/// A violated condition of the world.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A thread executed another version than it should.
    #[error("{thread} executed {found:?} at {address:#x} instead of {expected}")]
    Executed {
        /// The thread.
        thread: ThreadId,
        /// The address.
        address: u64,
        /// The expected version.
        expected: VersionId,
        /// The version that its core saw; `None`: a trap.
        found: Option<VersionId>,
    },
    /// Code without unwind rows was executed.
    #[error("{version} runs at {address:#x} without unwind rows")]
    NoRows {
        /// The version.
        version: VersionId,
        /// The address.
        address: u64,
    },
    /// A sample was counted for another version, or for none.
    #[error("a sample of {expected} was counted for {found:?}")]
    Sample {
        /// The executed version.
        expected: VersionId,
        /// The version it was counted for.
        found: Option<VersionId>,
    },
    /// Freed memory still has unwind rows.
    #[error("{span} was freed with rows for it")]
    Rows {
        /// The memory.
        span: Span,
    },
    /// Memory that a child shares was written.
    #[error("{span} was overwritten, which another process shares")]
    Shared {
        /// The memory.
        span: Span,
    },
    /// A copy of a block that must stay was requested.
    #[error("{0} must stay where it is and was to be copied")]
    Moved(BlockId),
    /// A slot does not hold the version published last.
    #[error("the slot of {function} holds {found:?}, {expected:?} was published")]
    Slot {
        /// The function.
        function: FunctionId,
        /// The published version.
        expected: Option<VersionId>,
        /// The version in the slot.
        found: Option<VersionId>,
    },
    /// In the end the remaining blocks are not exactly the live ones.
    #[error("blocks {found:?} are left, {expected:?} are live")]
    Leak {
        /// The live blocks.
        expected: Vec<BlockId>,
        /// The blocks that the engine or the memory still has.
        found: Vec<BlockId>,
    },
    /// In the end memory is in use that belongs to no live block.
    #[error("{found} bytes are in use, {expected} are live")]
    Memory {
        /// Live bytes.
        expected: u64,
        /// Bytes in use.
        found: u64,
    },
    /// The engine did not become idle.
    #[error("the engine still works after {0} steps")]
    Restless(u32),
    /// A note was refused.
    #[error("a note was refused: {0}")]
    Note(String),
}

/// Counts of events in a run; a run without events checks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls into code.
    pub calls: u64,
    /// Versions published.
    pub published: u64,
    /// Blocks moved.
    pub moved: u64,
    /// Blocks freed.
    pub freed: u64,
    /// Blocks found on a stack.
    pub pinned: u64,
    /// Scans that a thread did not answer.
    pub incomplete: u64,
    /// Forks.
    pub forks: u64,
    /// Functions removed.
    pub removed: u64,
    /// Times that memory ran short.
    pub short: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "calls {}, published {}, moved {}, freed {}, pinned {}, incomplete {}, forks {}, \
             removed {}, short {}",
            self.calls,
            self.published,
            self.moved,
            self.freed,
            self.pinned,
            self.incomplete,
            self.forks,
            self.removed,
            self.short
        )
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.calls += other.calls;
        self.published += other.published;
        self.moved += other.moved;
        self.freed += other.freed;
        self.pinned += other.pinned;
        self.incomplete += other.incomplete;
        self.forks += other.forks;
        self.removed += other.removed;
        self.short += other.short;
    }
}

/// `length` bytes from a seed (xorshift64*, S. Vigna 2016).
pub fn moves(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Settings under which small worlds have many cycles.
fn config() -> Config {
    Config {
        sweep_floor: 48,
        sweep_fraction: 0.25,
        sweep_after: Nanos(20_000),
        evacuate_floor: 96,
        evacuate_fraction: 0.25,
        cpu_fraction: 1.0,
        interval: Nanos(1),
        backoff_min: Nanos(500),
        backoff_max: Nanos(4_000),
        step_blocks: 2,
        scan_blocks: 6,
        listed: 2,
        ..Config::default()
    }
}

/// Time between two moves.
const TICK: Nanos = Nanos(100);

/// Maximal steps in which the engine must finish the remaining work at the end.
const LAST_STEPS: u32 = 2_000;

/// Plays the moves; without the guard `left_out`, if given.
///
/// # Errors
/// The first violation.
pub fn run(moves: &[u8], left_out: Option<Guard>) -> Result<Tally, Violation> {
    let mut world = World::new(moves, left_out);
    let mut engine = Engine::new(&config(), 0);
    while world.has_moves() {
        world.now = world.now + TICK;
        match world.below(3) {
            0 => step(&mut engine, &mut world)?,
            1 => world.guest_move(),
            _ => match world.below(24) {
                0 => world.notes.push(request(Kind::Sweep)),
                1 | 2 => world.notes.push(request(Kind::Evacuate)),
                3 => world.fork(),
                4 => world.now = world.now + Nanos(5_000),
                5 => world.remove(),
                _ => world.guest_move(),
            },
        }
        world.check()?;
    }
    settle(&mut engine, &mut world)?;
    let stats = engine.stats(world.now);
    Ok(Tally {
        moved: stats.moved.blocks,
        freed: stats.freed.blocks,
        incomplete: stats.incomplete,
        ..world.tally
    })
}

fn request(kind: Kind) -> Note {
    Note::Request { kind, ticket: 0 }
}

fn step(engine: &mut Engine, world: &mut World<'_>) -> Result<(), Violation> {
    for note in std::mem::take(&mut world.notes) {
        if let Err(error) = engine.apply(note, world.now) {
            return Err(Violation::Note(error.to_string()));
        }
    }
    let now = world.now;
    if let Step::Finished(summary) = engine.step(world, now) {
        world.tally.pinned += summary.pinned;
    }
    world.check()
}

/// Lets all threads return and answer; then only live blocks may be left.
fn settle(engine: &mut Engine, world: &mut World<'_>) -> Result<(), Violation> {
    world.come_back();
    world.check()?;
    world.notes.push(request(Kind::Sweep));
    for _ in 0..LAST_STEPS {
        world.now = world.now + TICK;
        step(engine, world)?;
        let stats = engine.stats(world.now);
        let left = stats.retired.blocks + stats.pinned.blocks + stats.dead.blocks;
        if left == 0 && !engine.is_busy() && world.notes.is_empty() {
            let now = world.now;
            let idle = engine.step(world, now);
            if matches!(idle, Step::Idle { until: None }) {
                return world.check_end(&|id| engine.state(id).is_some());
            }
        }
    }
    Err(Violation::Restless(LAST_STEPS))
}
