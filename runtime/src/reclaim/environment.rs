//! Implements the environment of the engine, with the session's real parts.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use uruk_base::VersionId;
use uruk_heap::{Draft, Pool, Sealed};
use uruk_link::relocate;
use uruk_reclaim::{
    Affinity, Block, BlockId, Copied, CopyError, Dead, Environment, EnvironmentError, Fixed,
    MayHold, Memory, Missing, Nanos, Pin, ScanAnswer, Silence, Space, Span, Swing, ThreadId,
};
use uruk_roots::{How, Why};
use uruk_tiering::{EntryAddress, FunctionVersions};

use crate::code::blocks::{BlockTable, VersionShape, View};
use crate::code::records::VersionPlace;
use crate::error::Error;
use crate::fork::threads;
use crate::reclaim::Reclaim;

/// Stands for stacks that no thread runs on: registered, or found in memory.
const REGISTERED: ThreadId = ThreadId(0);

/// Code lies at multiples of it, and takes at least as much.
const GRANULE: u64 = 16;

/// Bytes of freed code that are kept for a report.
const KEPT_BYTES: usize = 4 << 20;

/// How long a scan may take.
const ANSWER: Duration = Duration::from_millis(20);

/// The working data of the reclaiming thread.
#[derive(Default)]
pub(crate) struct ReclaimState {
    pub(crate) table: BlockTable,
    pub(crate) generation: u64,
    /// Code of versions that were freed, for recordings of the run.
    kept: HashMap<VersionId, (u64, Vec<u8>)>,
    kept_bytes: usize,
    /// A copy is prepared here before it is written; empty between steps.
    bytes: Vec<u8>,
}

impl ReclaimState {
    pub(crate) fn with<'a>(&'a mut self, reclaim: &'a Arc<Reclaim>) -> ReclaimWork<'a> {
        ReclaimWork {
            hands: self,
            reclaim,
        }
    }

    /// The bytes of a version and the address of its first.
    pub(crate) fn code_of(&self, version: VersionId) -> Option<(u64, Vec<u8>)> {
        if let Some(kept) = self.kept.get(&version) {
            return Some(kept.clone());
        }
        let mut all = self.table.iter();
        let (_, code) = all.find(|(_, code)| code.shape.version == version)?;
        Some((code.entry(), code.body()?.to_vec()))
    }

    /// Keeps the bytes of a block that is about to be freed, if there is room.
    fn keep(&mut self, id: BlockId) {
        let Some(code) = self.table.get(id) else {
            return;
        };
        let (version, body) = (code.shape.version, code.body().unwrap_or_default());
        if self.kept_bytes + body.len() <= KEPT_BYTES && !self.kept.contains_key(&version) {
            self.kept_bytes += body.len();
            let kept = (code.entry(), body.to_vec());
            self.kept.insert(version, kept);
        }
    }
}

/// The space that holds a piece of code.
pub(super) fn space_of(memory: &Sealed) -> Space {
    space(memory.space())
}

fn space(number: usize) -> Space {
    match number {
        0 => Space::A,
        _ => Space::B,
    }
}

pub(crate) struct ReclaimWork<'a> {
    hands: &'a mut ReclaimState,
    reclaim: &'a Arc<Reclaim>,
}

/// How a block is copied: its number, size and alignment.
struct WantedCopy {
    at: usize,
    size: usize,
    align: usize,
}

/// Memory for copies, each with its index among the blocks, and the reason why the next one has
/// none.
struct CopyMemory {
    drafts: Vec<(usize, Draft)>,
    full: Option<(usize, CopyError)>,
}

impl ReclaimWork<'_> {
    /// Memory for as many copies as fit.
    fn room(&self, wanted: &[WantedCopy]) -> CopyMemory {
        let heap = &self.reclaim.heap;
        let mut drafts: Vec<(usize, Draft)> = Vec::with_capacity(wanted.len());
        while let Some(next) = wanted.get(drafts.len()) {
            let left = &wanted[drafts.len()..];
            let asked: Vec<_> = left.iter().map(|one| (one.size, one.align)).collect();
            let many = heap.allocate_all(Pool::Code, &asked);
            let any = !many.is_empty();
            drafts.extend(left.iter().zip(many).map(|(one, draft)| (one.at, draft)));
            if any {
                continue;
            }
            // Pages may have to be emptied first.
            match heap.allocate(Pool::Code, next.size, next.align) {
                Ok(draft) => drafts.push((next.at, draft)),
                Err(_) => {
                    let full = Some((next.at, self.full(next.size)));
                    return CopyMemory { drafts, full };
                }
            }
        }
        CopyMemory { drafts, full: None }
    }

    fn full(&self, asked: usize) -> CopyError {
        CopyError::OutOfSpace {
            asked: asked as u64,
            held: self.reclaim.heap.stats().code.sum().used as u64,
        }
    }

    /// Copies a block into a draft, relocated.
    fn write(&mut self, from: BlockId, mut draft: Draft) -> Result<Sealed, CopyError> {
        let ReclaimState { table, bytes, .. } = &mut *self.hands;
        let code = table.get(from).ok_or(CopyError::Superseded)?;
        let Some(moves) = &code.shape.moves else {
            return Err(CopyError::Fixed(Fixed::Unrecorded));
        };
        let (start, end) = (code.memory.address(), draft.address());
        let size = code.memory.len();
        bytes.clear();
        bytes.extend_from_slice(code.memory.bytes().unwrap_or_default());
        relocate(bytes, moves, start, end).map_err(|_| CopyError::Fixed(Fixed::OutOfReach))?;
        let written = draft.write(0, bytes).and_then(|()| draft.seal());
        written.map_err(|_| self.full(size))
    }

    /// Registers the unwind rows of copies.
    fn register(&self, copies: &[(&Block, BlockId)]) -> Result<(), Error> {
        let table = &self.hands.table;
        let pairs = copies.iter().filter_map(|&(original, id)| {
            let copy = table.get(id)?;
            Some((copy, table.get(original.id)))
        });
        let (views, originals): (Vec<View<'_>>, Vec<_>) = pairs.unzip();
        self.reclaim.make_copies_findable(&views, &originals)
    }

    /// Describes a copy for the engine.
    fn copied(&self, id: BlockId) -> Result<Copied, CopyError> {
        let code = self.hands.table.get(id).ok_or(CopyError::Superseded)?;
        let range = code.range();
        let span = Span {
            start: range.start,
            end: range.end,
        };
        let space = space_of(code.memory);
        Ok(Copied { id, span, space })
    }
}

/// Dead blocks by address, joined where nothing can lie between them.
fn joined(blocks: &[Block]) -> Vec<Range<u64>> {
    let mut spans: Vec<Span> = blocks.iter().map(|block| block.span).collect();
    spans.sort_unstable();
    let mut runs: Vec<Range<u64>> = Vec::new();
    for span in spans {
        match runs.last_mut() {
            Some(run) if run.end.next_multiple_of(GRANULE) == span.start => run.end = span.end,
            _ => runs.push(span.start..span.end),
        }
    }
    runs
}

impl Environment for ReclaimWork<'_> {
    fn fork_generation(&self) -> u64 {
        self.hands.generation
    }

    fn memory(&self) -> Memory {
        let code = self.reclaim.heap.stats().code.sum();
        Memory {
            fragmented: code.fragmented as u64,
            held: code.resident as u64,
        }
    }

    fn affinity(&mut self) -> Affinity {
        Affinity {
            heat: self.reclaim.versions.heat(),
            calls: self.reclaim.tiers.sampling.neighbours(),
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        Ok(space(self.reclaim.heap.flip_spaces()))
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        let mut answers = self.copy_all(std::slice::from_ref(block));
        answers.pop().unwrap_or(Err(CopyError::Superseded))
    }

    fn copy_all(&mut self, blocks: &[Block]) -> Vec<Result<Copied, CopyError>> {
        let mut answers = Vec::with_capacity(blocks.len());
        let mut wanted = Vec::with_capacity(blocks.len());
        for (at, block) in blocks.iter().enumerate() {
            let code = self.hands.table.get(block.id);
            let moves = code.map(|code| (code, code.shape.moves.as_ref()));
            // The result of a copy below replaces this answer.
            answers.push(Err(match moves {
                Some((_, None)) => CopyError::Fixed(Fixed::Unrecorded),
                _ => CopyError::Superseded,
            }));
            if let Some((code, Some(moves))) = moves {
                let (size, align) = (code.memory.len(), moves.align());
                wanted.push(WantedCopy { at, size, align });
            }
        }
        let CopyMemory { drafts, full } = self.room(&wanted);
        let mut copies = Vec::with_capacity(drafts.len());
        for (at, draft) in drafts {
            let block = &blocks[at];
            match self.write(block.id, draft) {
                Ok(memory) => {
                    let copy = self.hands.table.add_copy(block.id, memory);
                    copies.extend(copy.map(|id| (block, id)));
                    answers[at] = copy.map_or(Err(CopyError::Superseded), |id| self.copied(id));
                }
                Err(why) => answers[at] = Err(why),
            }
        }
        if let Err(cause) = self.register(&copies) {
            // Rows outside of the region belong to no block of the heap.
            warn!(%cause, "copies of code have no unwind rows and are not used");
            for &(_, id) in &copies {
                drop(self.hands.table.remove(id));
            }
            answers.fill_with(|| Err(CopyError::Superseded));
        }
        if let Some((at, full)) = full {
            answers.truncate(at);
            answers.push(Err(full));
        }
        answers
    }

    fn swing(&mut self, old: &Block, new: &Block) -> Swing {
        let mut swings = self.swing_all(&[(*old, *new)]);
        swings.pop().unwrap_or(Swing::Superseded)
    }

    fn swing_all(&mut self, copies: &[(Block, Block)]) -> Vec<Swing> {
        let (reclaim, table) = (self.reclaim, &mut self.hands.table);
        let function = |(old, _): &(Block, Block)| table.get(old.id)?.shape.function;
        let versions = reclaim.versions.of_all(copies.iter().map(function));
        let mut places = Vec::with_capacity(copies.len());
        let swing = |((old, new), versions): (&(Block, Block), Option<Arc<FunctionVersions>>)| {
            let (from, to) = (table.get(old.id)?, table.get(new.id)?);
            let VersionShape {
                function, version, ..
            } = *to.shape;
            let function = function?;
            let (before, after) = (EntryAddress(from.entry()), EntryAddress(to.entry()));
            let store = |entry: EntryAddress| reclaim.stubs.publish(function, entry);
            let moved = versions?.moved(version, before, after, store);
            // Else it may be a version that is kept for a rollback.
            let engines = reclaim.engines();
            if !moved && !engines.moved(function, version, before, after) {
                return None;
            }
            places.push(VersionPlace {
                function,
                version,
                entry: to.entry(),
                body_end: to.body_end(),
                code: to.range(),
            });
            table.set_live(new.id);
            Some(Swing::Done)
        };
        let swings = copies.iter().zip(versions).map(swing);
        let swings = swings.map(|swing| swing.unwrap_or(Swing::Superseded));
        let swings = swings.collect();
        reclaim.versions.set_places(places);
        swings
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        uruk_roots::fence_all_threads().map_err(|e| EnvironmentError::NoFence(e.to_string()))
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        let failed = |cause: &dyn std::fmt::Display| EnvironmentError::NoScan(cause.to_string());
        let wanted = ranges.iter().map(|span| span.start..span.end);
        let wanted = uruk_roots::Wanted::new(wanted.collect()).map_err(|cause| failed(&cause))?;
        let roots = self.reclaim.roots().map_err(|cause| failed(&cause))?;
        let report = {
            // The addresses of the blocks on this thread's stack are no roots.
            let _exempt = roots.exempt_current_thread();
            self.reclaim.scan_stacks(roots, &wanted, ANSWER)
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
            // The runtime's threads run no such code, and their copies of block addresses are no
            // roots. They block all signals, and are read where they sleep.
            if idle.contains(&thread.tid) {
                answer.threads += 1;
                continue;
            }
            let id = ThreadId(thread.tid);
            let keeps = thread.keeps.into_iter();
            let pin = |range| Pin { range, thread: id };
            answer.pins.extend(keeps.map(pin));
            match thread.how {
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
        self.reclaim.drain_all_samples();
    }

    fn unregister(&mut self, block: &Block) {
        self.unregister_all(std::slice::from_ref(block));
    }

    fn unregister_all(&mut self, blocks: &[Block]) {
        let table = &self.hands.table;
        let views = blocks.iter().filter_map(|block| table.get(block.id));
        self.reclaim.forget_code(joined(blocks), views);
    }

    fn free(&mut self, batch: Vec<Dead>) {
        let mut memory = Vec::with_capacity(batch.len());
        let mut rest = Vec::new();
        for dead in batch {
            if self.reclaim.events.recorder().is_some() {
                self.hands.keep(dead.id());
            }
            if let Some((block, shape)) = self.hands.table.remove(dead.id()) {
                memory.push(block);
                rest.extend(shape);
            }
        }
        let retired = self.reclaim.heap.retire(memory);
        // SAFETY: a `Dead` is the engine's proof that no thread executes the block or can
        // return into it, that its samples were drained and that it was unregistered.
        unsafe { self.reclaim.heap.free(retired) };
        // Resources that only this code needed are dropped after it.
        drop(rest);
    }
}

fn silence(why: Why) -> Silence {
    match why {
        Why::SignalBlocked => Silence::SignalBlocked,
        Why::SmallStack => Silence::SmallStack,
        Why::HandlerReplaced => Silence::HandlerReplaced,
        Why::Hidden(_) => Silence::Unreadable,
        Why::UnknownStack(_) | Why::LargeStack(_) | Why::ManyStacks => Silence::Unreadable,
        _ => Silence::TimedOut,
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
