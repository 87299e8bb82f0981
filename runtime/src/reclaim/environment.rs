//! What the engine needs done, with the session's real parts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uruk_heap::Retired;
use uruk_link::relocate;
use uruk_reclaim::{
    Affinity, Block, Copied, CopyError, Dead, Environment, EnvironmentError, Fixed, GroupId,
    MayHold, Memory, Missing, Nanos, Pin, ScanAnswer, Silence, Space, Span, Swing, ThreadId,
};
use uruk_roots::{How, Wanted, Why};
use uruk_tiering::{Entry, VersionId};

use crate::blocks::{Code, Piece, Table};
use crate::core::Core;
use crate::guest::threads;

/// Stands for stacks no thread is on: registered, or found in memory.
const REGISTERED: ThreadId = ThreadId(0);

/// Bytes of freed code that are kept for a report.
const KEPT_BYTES: usize = 4 << 20;

/// How long a scan may take.
const ANSWER: Duration = Duration::from_millis(20);

/// What the thread that reclaims works with.
#[derive(Default)]
pub(crate) struct Hands {
    pub(crate) table: Table,
    pub(crate) generation: u64,
    /// Code of versions that were freed, for whoever writes about the run.
    kept: HashMap<VersionId, (u64, Vec<u8>)>,
    kept_bytes: usize,
}

impl Hands {
    pub(crate) fn with<'a>(&'a mut self, core: &'a Arc<Core>) -> Work<'a> {
        Work { hands: self, core }
    }

    /// The bytes of a version and the address of its first.
    pub(crate) fn code_of(&self, version: VersionId) -> Option<(u64, Vec<u8>)> {
        if let Some(kept) = self.kept.get(&version) {
            return Some(kept.clone());
        }
        let mut pieces = self.table.codes.values();
        let piece = pieces.find(|piece| piece.version == version)?;
        Some((piece.code.entry, piece.code.body()?.to_vec()))
    }

    /// Keeps the bytes of a piece that is about to be freed, if there is room.
    fn keep(&mut self, piece: &Piece) {
        let Some(body) = piece.code.body() else {
            return;
        };
        if self.kept_bytes + body.len() <= KEPT_BYTES && !self.kept.contains_key(&piece.version) {
            self.kept_bytes += body.len();
            let kept = (piece.code.entry, body.to_vec());
            self.kept.insert(piece.version, kept);
        }
    }
}

/// The space that holds a piece of code.
pub(crate) fn space_of(code: &Code) -> Space {
    space(code.memory.space())
}

fn space(number: usize) -> Space {
    match number {
        0 => Space::A,
        _ => Space::B,
    }
}

pub(crate) struct Work<'a> {
    hands: &'a mut Hands,
    core: &'a Arc<Core>,
}

impl Work<'_> {
    /// Copies a piece to where the heap allocates now.
    fn copy_piece(&mut self, block: &Block) -> Result<Copied, CopyError> {
        let piece = self.hands.table.codes.get(&block.id);
        let piece = piece.ok_or(CopyError::Superseded)?;
        let code = &piece.code;
        let Some(moves) = &code.moves else {
            return Err(CopyError::Fixed(Fixed::Unrecorded));
        };
        let size = code.memory.len();
        let full = |_| CopyError::OutOfSpace {
            asked: size as u64,
            held: self.core.heap.stats().code.sum().used as u64,
        };
        let mut draft = self
            .core
            .heap
            .allocate(uruk_heap::Pool::Code, size, moves.align())
            .map_err(full)?;
        let (from, to) = (code.memory.address(), draft.address());
        let mut bytes = code.memory.bytes().map(<[u8]>::to_vec).unwrap_or_default();
        relocate(&mut bytes, moves, from, to).map_err(|_| CopyError::Fixed(Fixed::OutOfReach))?;
        draft.write(0, &bytes).map_err(full)?;
        let memory = draft.seal().map_err(full)?;
        let copy = code.moved(memory);
        let rows = self.core.register_rows(&copy.rows, copy.name);
        if rows.is_err() {
            // The address is taken in the index: a piece there was not unregistered.
            return Err(CopyError::Superseded);
        }
        self.core.add_body(copy.entry, copy.body_end, copy.name);
        if let Some(function) = piece.function {
            let version = VersionId(block.version.0);
            let sampling = &self.core.tiers.sampling;
            sampling.add_code(copy.range(), function, version);
        }
        self.core.tools.moved(code, &copy);
        let range = copy.range();
        let span = Span {
            start: range.start,
            end: range.end,
        };
        let space = space_of(&copy);
        let function = piece.function;
        let depends = Arc::clone(&piece.depends);
        let id = self.hands.table.next_id();
        let piece = Piece {
            depends,
            fixed: None,
            version: VersionId(block.version.0),
            function,
            code: copy,
        };
        self.hands.table.codes.insert(id, piece);
        Ok(Copied { id, span, space })
    }
}

impl Environment for Work<'_> {
    fn fork_generation(&self) -> u64 {
        self.hands.generation
    }

    fn memory(&self) -> Memory {
        let code = self.core.heap.stats().code.sum();
        Memory {
            fragmented: code.fragmented as u64,
            held: code.resident as u64,
        }
    }

    fn affinity(&mut self) -> Affinity {
        Affinity {
            heat: self.core.tiers.versions.heat(),
            calls: self.core.tiers.sampling.neighbours(),
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        Ok(space(self.core.heap.flip_spaces()))
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        self.copy_piece(block)
    }

    fn swing(&mut self, old: &Block, new: &Block) -> Swing {
        let codes = &self.hands.table.codes;
        let (Some(from), Some(to)) = (codes.get(&old.id), codes.get(&new.id)) else {
            return Swing::Superseded;
        };
        let Some(function) = from.function else {
            return Swing::Superseded;
        };
        let version = VersionId(old.version.0);
        let (before, after) = (Entry(from.code.entry), Entry(to.code.entry));
        let (entry, body_end, range) = (to.code.entry, to.code.body_end, to.code.range());
        let versions = self.core.tiers.versions.of(function);
        let stubs = &self.core.stubs;
        let moved = versions.moved(version, before, after, |entry| {
            stubs.publish(function, entry.0)
        });
        // Else it may be one that a rollback goes back to.
        let replacing = &self.core.replacing;
        if !moved && !replacing.moved(function, version, before, after) {
            return Swing::Superseded;
        }
        self.core
            .tiers
            .versions
            .set_place(function, version, entry, body_end, range);
        // Whoever retires the version from here on means the copy.
        self.hands.table.live.insert(version, new.id);
        Swing::Done
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        uruk_roots::fence_all_threads().map_err(|e| EnvironmentError::NoFence(e.to_string()))
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        let failed = |cause: &dyn std::fmt::Display| EnvironmentError::NoScan(cause.to_string());
        let wanted = ranges.iter().map(|span| span.start..span.end);
        let wanted = Wanted::new(wanted.collect()).map_err(|cause| failed(&cause))?;
        let roots = self.core.roots().map_err(|cause| failed(&cause))?;
        let report = {
            // What this thread knows of the blocks is no root.
            let _exempt = roots.exempt_current_thread();
            self.core.scan_stacks(roots, &wanted, ANSWER)
        };
        let report = report.ok_or_else(|| failed(&"the program switches stacks by itself"))?;
        // After the scan: one that began to run code meanwhile is missing.
        let idle = threads::idle();
        if let Some(trouble) = &report.trouble {
            return Err(failed(&format!("{trouble:?}")));
        }
        let mut answer = ScanAnswer {
            longest_handshake: nanos(report.longest_handshake),
            ..ScanAnswer::default()
        };
        let memory = report.memory.into_iter();
        let memory = memory.flat_map(|memory| memory.keeps);
        answer.pins.extend(memory.map(|range| Pin {
            range,
            thread: REGISTERED,
        }));
        for stack in report.stacks {
            let thread = REGISTERED;
            let keeps = stack.keeps.into_iter();
            answer.pins.extend(keeps.map(|range| Pin { range, thread }));
        }
        for thread in report.threads {
            let id = ThreadId(thread.tid);
            let keeps = thread.keeps.into_iter();
            let pin = |range| Pin { range, thread: id };
            answer.pins.extend(keeps.map(pin));
            match thread.how {
                // Ours block all signals.
                How::Unanswered { .. } if idle.contains(&thread.tid) => answer.threads += 1,
                How::Unanswered { why } => answer.missing.push(Missing {
                    thread: id,
                    why: silence(why),
                    may_hold: MayHold::All,
                }),
                _ => answer.threads += 1,
            }
        }
        Ok(answer)
    }

    fn drain_samples(&mut self) {
        self.core.drain_all_samples();
    }

    fn unregister(&mut self, block: &Block) {
        let range = block.span.start..block.span.end;
        self.core.region.remove(range.clone());
        self.core.tiers.sampling.remove_code(range.clone());
        self.core.remove_bodies(range);
        if let Some(piece) = self.hands.table.codes.get(&block.id) {
            self.core.tools.remove(&piece.code);
        }
    }

    fn free(&mut self, batch: Vec<Dead>) {
        let mut retired: Vec<Retired> = Vec::with_capacity(batch.len());
        for dead in batch {
            if let Some(piece) = self.hands.table.codes.remove(&dead.id()) {
                if self.core.events.recorder().is_some() {
                    self.hands.keep(&piece);
                }
                retired.push(piece.code.memory.retire());
            }
        }
        uruk_reclaim::shrink(&mut self.hands.table.codes);
        // SAFETY: a `Dead` is the engine's proof that no thread executes the block or can
        // return into it, that its samples were drained and that it was unregistered.
        unsafe { self.core.heap.free(retired) };
    }

    fn release(&mut self, _: GroupId) {}
}

fn silence(why: Why) -> Silence {
    match why {
        Why::SignalBlocked => Silence::SignalBlocked,
        Why::HandlerReplaced => Silence::HandlerReplaced,
        Why::Hidden(_) => Silence::Unreadable,
        Why::UnknownStack(_) | Why::LargeStack(_) | Why::ManyStacks => Silence::Unreadable,
        _ => Silence::TimedOut,
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
