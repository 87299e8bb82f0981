//! The world's state, and the moves of its threads and publishers.
//!
//! Memory is two spaces of cells of 16 bytes. A slot has two values: the stored one, and the one
//! that other threads see; the second follows at a fence, or some time later.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uruk_reclaim::{
    Block, BlockId, Fixed, FunctionId, Kind, Nanos, Note, Space, Span, ThreadId, VersionId,
};

use super::{Guard, Tally, Violation};

const CELL: u64 = 16;
/// Number of cells of one space.
const CELLS: usize = 40;
/// Number of cells of a page.
const PAGE: usize = 4;
const BASE: u64 = 0x1000;
const FUNCTIONS: usize = 5;
const THREADS: usize = 4;
const DEPTH: usize = 4;

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The return address.
    pub(super) word: u64,
    pub(super) block: Block,
}

/// A thread of the program.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) id: ThreadId,
    pub(super) stack: Vec<Frame>,
    /// Whether it does not answer.
    pub(super) silent: bool,
    /// Instructions that its core fetched and still keeps.
    instructions: HashMap<usize, Option<VersionId>>,
}

/// A function of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    /// The block published last.
    pub(super) published: Option<Block>,
    /// The fallback block.
    pub(super) fallback: Option<Block>,
    /// The slot as stored.
    pub(super) slot: Option<Block>,
    /// The slot as other threads see it.
    visible: Option<Block>,
}

/// See the module.
pub(super) struct World<'a> {
    pub(super) moves: std::slice::Iter<'a, u8>,
    pub(super) left_out: Option<Guard>,
    pub(super) now: Nanos,
    pub(super) notes: Vec<Note>,
    pub(super) tally: Tally,
    pub(super) functions: Vec<Function>,
    pub(super) threads: Vec<Thread>,
    pub(super) cells: Vec<Option<VersionId>>,
    pub(super) used: Vec<bool>,
    pub(super) current: Space,
    /// Cells that a child shares.
    pub(super) shared: BTreeSet<usize>,
    pub(super) generation: u64,
    /// Unwind rows and address map, by start.
    pub(super) rows: BTreeMap<u64, Block>,
    pub(super) samples: Vec<(u64, VersionId)>,
    pub(super) retired: BTreeSet<BlockId>,
    /// Stores that a publisher delayed although it left the note.
    pub(super) late: Vec<(usize, Option<Block>)>,
    /// Threads and their words at the last scan; for a left-out guard.
    pub(super) before: Vec<(ThreadId, Vec<u64>)>,
    pub(super) numbers: u64,
    pub(super) broken: Option<Violation>,
}

impl<'a> World<'a> {
    pub(super) fn new(moves: &'a [u8], left_out: Option<Guard>) -> World<'a> {
        let mut world = World {
            moves: moves.iter(),
            left_out,
            now: Nanos::ZERO,
            notes: Vec::new(),
            tally: Tally::default(),
            functions: Vec::new(),
            threads: Vec::new(),
            cells: vec![None; 2 * CELLS],
            used: vec![false; 2 * CELLS],
            current: Space::A,
            shared: BTreeSet::new(),
            generation: 0,
            rows: BTreeMap::new(),
            samples: Vec::new(),
            retired: BTreeSet::new(),
            late: Vec::new(),
            before: Vec::new(),
            numbers: 0,
            broken: None,
        };
        for _ in 0..FUNCTIONS {
            world.functions.push(Function {
                published: None,
                fallback: None,
                slot: None,
                visible: None,
            });
        }
        world.spawn();
        world.spawn();
        world
    }

    pub(super) fn has(&self, guard: Guard) -> bool {
        self.left_out != Some(guard)
    }

    pub(super) fn has_moves(&self) -> bool {
        !self.moves.as_slice().is_empty()
    }

    /// A choice; 0 after the last move.
    pub(super) fn below(&mut self, count: usize) -> usize {
        let byte = self.moves.next().copied().unwrap_or(0);
        usize::from(byte) % count.max(1)
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn fail(&mut self, violation: Violation) {
        self.broken.get_or_insert(violation);
    }

    /// Some moves of the program, while the engine is at work.
    pub(super) fn interlude(&mut self) {
        for _ in 0..self.below(4) {
            self.guest_move();
        }
    }

    /// One move of the program or its publishers.
    pub(super) fn guest_move(&mut self) {
        match self.below(16) {
            1..=4 => self.call(),
            5..=7 => self.come_from_call(),
            8 | 9 => self.publish(),
            10 => self.go_back(),
            11 => self.spawn(),
            12 => self.exit(),
            13 => self.turn_silent(),
            14 => self.drain(),
            15 => self.settle_stores(),
            _ => {}
        }
    }

    fn index(address: u64) -> usize {
        ((address - BASE) / CELL) as usize
    }

    pub(super) fn cells_of(span: Span) -> std::ops::Range<usize> {
        Self::index(span.start)..Self::index(span.end - 1) + 1
    }

    /// Memory for a version in the current space.
    pub(super) fn allocate(&mut self, count: usize, version: VersionId) -> Option<Span> {
        let base = if self.current == Space::A { 0 } else { CELLS };
        let taken = |cell: usize| self.used[cell] || self.shared.contains(&cell);
        let free = |at: &usize| !(*at..at + count).any(taken);
        let at = (base..=base + CELLS - count).find(free)?;
        self.used[at..at + count].fill(true);
        self.cells[at..at + count].fill(Some(version));
        let start = BASE + at as u64 * CELL;
        Some(Span {
            start,
            end: start + count as u64 * CELL,
        })
    }

    /// A block of a new number in the current space.
    pub(super) fn place(&mut self, like: &Block) -> Option<Block> {
        let count = Self::cells_of(like.span).len();
        let span = self.allocate(count, like.version)?;
        Some(Block {
            id: BlockId(self.number()),
            span,
            space: self.current,
            ..*like
        })
    }

    fn publish(&mut self) {
        let at = self.below(FUNCTIONS);
        let function = self.functions[at];
        let cells = 1 + self.below(3);
        let fixed = (self.below(6) == 1).then_some(Fixed::Labels);
        let keep = self.below(2) == 1;
        let version = VersionId(self.number());
        let span = Span {
            start: BASE,
            end: BASE + cells as u64 * CELL,
        };
        let like = Block {
            id: BlockId(0),
            span,
            space: self.current,
            function: FunctionId(at as u32),
            version,
            fixed,
        };
        let Some(block) = self.place(&like) else {
            self.tally.short += 1;
            let (kind, ticket) = (Kind::Evacuate, 0);
            self.notes.push(Note::Request { kind, ticket });
            return;
        };
        self.tally.published += 1;
        self.rows.insert(block.span.start, block);
        self.notes.push(Note::Born(block));
        let (old, fallback) = (function.published, function.fallback);
        self.functions[at].published = Some(block);
        self.functions[at].fallback = if keep { old } else { None };
        self.store(at, Some(block));
        self.retired(fallback);
        if !keep || !self.has(Guard::FallbackIsLive) {
            self.retired(old);
        }
    }

    fn retired(&mut self, block: Option<Block>) {
        // A fallback that was retired too early is not retired again.
        if let Some(block) = block.filter(|block| self.retired.insert(block.id)) {
            self.notes.push(Note::Retired(block.id));
        }
    }

    fn store(&mut self, at: usize, block: Option<Block>) {
        if self.has(Guard::NoteAfterStore) {
            self.functions[at].slot = block;
        } else {
            self.late.retain(|&(function, _)| function != at);
            self.late.push((at, block));
        }
    }

    /// Restores the superseded version.
    fn go_back(&mut self) {
        let at = self.below(FUNCTIONS);
        let function = &mut self.functions[at];
        let Some(fallback) = function.fallback.take() else {
            return;
        };
        let old = function.published.replace(fallback);
        self.store(at, Some(fallback));
        self.retired(old);
    }

    /// Removes a function: none of its blocks can be started.
    pub(super) fn remove(&mut self) {
        let at = self.below(FUNCTIONS);
        let function = &mut self.functions[at];
        let (published, fallback) = (function.published.take(), function.fallback.take());
        self.store(at, None);
        self.tally.removed += 1;
        self.retired(published);
        self.retired(fallback);
    }

    fn spawn(&mut self) {
        if self.threads.len() < THREADS {
            let id = ThreadId(self.number() as i32);
            self.threads.push(Thread {
                id,
                stack: Vec::new(),
                silent: false,
                instructions: HashMap::new(),
            });
        }
    }

    fn exit(&mut self) {
        let at = self.below(self.threads.len());
        if self.threads.len() > 1 && self.threads[at].stack.is_empty() {
            self.threads.remove(at);
        }
    }

    fn turn_silent(&mut self) {
        let at = self.below(self.threads.len());
        let silent = self.below(4) == 1;
        self.threads[at].silent = silent;
    }

    /// All stores become visible.
    pub(super) fn settle_stores(&mut self) {
        for (at, block) in std::mem::take(&mut self.late) {
            self.functions[at].slot = block;
        }
        self.show_stores();
    }

    pub(super) fn show_stores(&mut self) {
        for function in &mut self.functions {
            function.visible = function.slot;
        }
    }

    fn call(&mut self) {
        let at = self.below(self.threads.len());
        let called = self.below(FUNCTIONS);
        let Some(block) = self.functions[called].visible else {
            return;
        };
        if self.threads[at].stack.len() == DEPTH {
            return;
        }
        self.tally.calls += 1;
        self.execute(at, block.span.start, &block);
        let last = self.below(3) == 1;
        let word = if last {
            block.span.end
        } else {
            block.span.start + 5
        };
        self.threads[at].stack.push(Frame { word, block });
    }

    fn come_from_call(&mut self) {
        let at = self.below(self.threads.len());
        if let Some(frame) = self.threads[at].stack.pop() {
            // For an end address, the code that unwinds or runs belongs to the byte before.
            self.execute(at, frame.word - 1, &frame.block);
        }
    }

    /// A thread executes a byte of a block.
    pub(super) fn execute(&mut self, at: usize, address: u64, block: &Block) {
        let cell = Self::index(address);
        let memory = self.cells[cell];
        let thread = &mut self.threads[at];
        let (id, expected) = (thread.id, block.version);
        let found = *thread.instructions.entry(cell).or_insert(memory);
        if found != Some(expected) {
            self.fail(Violation::Executed {
                thread: id,
                address,
                expected,
                found,
            });
        }
        if self.row_at(address) != Some(expected) {
            self.fail(Violation::NoRows {
                version: expected,
                address,
            });
        }
        self.samples.push((address, expected));
    }

    fn row_at(&self, address: u64) -> Option<VersionId> {
        let (_, row) = self.rows.range(..=address).next_back()?;
        (address < row.span.end).then_some(row.version)
    }

    pub(super) fn drain(&mut self) {
        for (address, expected) in std::mem::take(&mut self.samples) {
            let found = self.row_at(address);
            if found != Some(expected) {
                self.fail(Violation::Sample { expected, found });
            }
        }
    }

    /// Makes every core discard its fetched instructions.
    pub(super) fn serialise(&mut self) {
        for thread in &mut self.threads {
            thread.instructions.clear();
        }
    }

    /// Frees memory, or only abandons it if a child shares it.
    pub(super) fn free(&mut self, span: Span, frozen: bool) {
        let shared = Self::cells_of(span).any(|cell| self.shared.contains(&cell));
        if shared && !(frozen && self.has(Guard::Frozen)) {
            self.fail(Violation::Shared { span });
        }
        if self.rows.range(span.start..span.end).next().is_some() {
            self.fail(Violation::Rows { span });
        }
        for cell in Self::cells_of(span) {
            if !frozen {
                self.cells[cell] = None;
            }
            self.used[cell] = false;
        }
    }

    /// Forks the process, and continues as the parent, or as the child with one thread.
    pub(super) fn fork(&mut self) {
        self.tally.forks += 1;
        self.generation += 1;
        self.shared.clear();
        for (cell, used) in self.used.iter().enumerate() {
            if *used {
                self.shared.insert(cell);
            }
        }
        if self.below(2) == 1 {
            self.threads.truncate(1);
        }
    }

    /// Free bytes in pages that are partly used.
    pub(super) fn fragmented(&self) -> u64 {
        let pages = self.used.chunks(PAGE);
        let partly = pages.filter(|page| page.contains(&true));
        partly
            .map(|page| page.iter().filter(|used| !**used).count() as u64 * CELL)
            .sum()
    }

    pub(super) fn held(&self) -> u64 {
        self.used.iter().filter(|used| **used).count() as u64 * CELL
    }
}
