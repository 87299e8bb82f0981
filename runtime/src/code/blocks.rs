//! The memory of versions: the records of each block, and moving it.
//!
//! A version is one allocation of code memory: text, and data that only its own instructions and
//! the unwinder read (literal pools, jump tables, GOT words, unwind records, exception tables).
//! Data that only this version writes (the words of its probes) lives as long, however often the
//! code moves. Constants that other code may read lie with the module's (`constants`), and stay.
//!
//! # Why
//! Blocks of code are in tables by place (`uruk_reclaim::Slots`), and are copied, swung and
//! unregistered 256 at a time: blocks that were copied together are read together.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::allocated::{of_arc, of_slice, of_vec};
use uruk_base::{FunctionId, VersionId};
use uruk_heap::{Pool, Sealed};
use uruk_link::{FdeRow, Moves};
use uruk_reclaim::{BlockId, Fixed, IdMap, Slots};
use uruk_unwind::Row;

use crate::code::constants::Constants;
use crate::code::holding::HeldMemory;
use crate::code::holding::Uses;
use crate::code::host_state::HostState;
use crate::code::kept::KeptResources;
use crate::code::loops::Loops;
use crate::code::words::ProbeWords;
use crate::host::listed::Listed;
use crate::host::mapping::Mapping;
use crate::host::tls;

/// The linked code of one version.
#[derive(Debug)]
pub(crate) struct LinkedCode {
    pub(crate) memory: Sealed,
    /// The address of calls; 0 for code that is no version.
    pub(crate) entry: u64,
    /// End of the function itself.
    pub(crate) body_end: u64,
    /// Bytes of machine code at its start; constants follow.
    pub(crate) text_size: usize,
    /// Unwind rows of its functions.
    pub(crate) rows: Vec<FdeRow>,
    /// Name of all of its rows.
    pub(crate) name: &'static CStr,
    /// Bytes of its unwind records.
    pub(crate) unwind: usize,
    /// How it is moved, if it is movable.
    pub(crate) moves: Option<Moves>,
    pub(crate) rest: Arc<Rest>,
}

/// The resources of a version besides its code.
pub(crate) struct Rest {
    data: Vec<Sealed>,
    /// Kept for the code that counts in them.
    words: Option<ProbeWords>,
    /// Kept for the code that counts in them and looks for continuations there.
    loops: Option<Arc<Loops>>,
    /// Kept for exits of loops, which count in them, and call continuations.
    _left: Option<Arc<Loops>>,
    /// Kept for the code that was linked against it.
    _uses: Uses,
    /// Kept for the code that uses them.
    thread_locals: Option<tls::OwnedSlot>,
    /// Its entry in the list of images, if it has one.
    listed: Option<Listed>,
    /// Variables of its image in separate mappings.
    apart: Arc<[Mapping]>,
    /// Kept for the code that refers to them, should the module go before it.
    constants: Option<Arc<Constants>>,
    /// Kept for the code at the request of its maker.
    _kept: Option<KeptResources>,
    /// Kept for the code that calls the host with them.
    states: Box<[HostState]>,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest")
            .field("data", &self.data)
            .field("states", &self.states.len())
            .finish_non_exhaustive()
    }
}

impl HeldMemory for Rest {
    fn bytes_beside(&self) -> usize {
        let loops = self.loops.as_ref().map_or(0, |_| of_arc::<Loops>());
        of_arc::<Rest>() + of_vec(&self.data) + of_slice(&self.states) + loops
    }
}

impl Rest {
    pub(crate) fn new(data: Vec<Sealed>, words: Option<ProbeWords>, uses: Uses) -> Rest {
        Rest {
            data,
            words,
            loops: None,
            _left: None,
            _uses: uses,
            thread_locals: None,
            listed: None,
            apart: Arc::default(),
            constants: None,
            _kept: None,
            states: Box::default(),
        }
    }

    /// Bytes of its data.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.words.as_ref().map_or(0, ProbeWords::bytes);
        let loops = self.loops.as_ref().map_or(0, |loops| loops.bytes());
        words + loops + self.data.iter().map(Sealed::held).sum::<usize>()
    }

    /// The constants its code refers to.
    pub(crate) fn constants(&self) -> Option<&Arc<Constants>> {
        self.constants.as_ref()
    }

    /// Adds the thread-locals of its code, its entry in the list of images, and variables in
    /// separate mappings.
    pub(crate) fn of_image(
        mut self,
        thread_locals: Option<tls::OwnedSlot>,
        listed: Option<Listed>,
        apart: Arc<[Mapping]>,
    ) -> Rest {
        (self.thread_locals, self.listed, self.apart) = (thread_locals, listed, apart);
        self
    }

    /// Adds resources that the maker of its code keeps.
    pub(crate) fn with_kept(mut self, kept: KeptResources) -> Rest {
        self._kept = Some(kept);
        self
    }

    /// Adds state of the host that its code passes to it.
    pub(crate) fn with_states(mut self, states: Box<[HostState]>) -> Rest {
        self.states = states;
        self
    }

    /// Adds the words of its loops.
    pub(crate) fn with_loops(mut self, loops: Option<Arc<Loops>>) -> Rest {
        self.loops = loops;
        self
    }

    /// Adds the loops that its code leaves.
    pub(crate) fn leaving(mut self, loops: &Arc<Loops>) -> Rest {
        self._left = Some(Arc::clone(loops));
        self
    }

    /// Adds the constants its code refers to.
    pub(crate) fn with_constants(mut self, constants: Option<Arc<Constants>>) -> Rest {
        self.constants = constants;
        self
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(loops) = &self.loops {
            loops.code_freed();
        }
        let data = std::mem::take(&mut self.data);
        if let Some(listed) = self.listed.take() {
            let thread_locals = self.thread_locals.take();
            let apart = std::mem::take(&mut self.apart);
            // SAFETY: as below.
            unsafe { listed.end(data, thread_locals, apart) };
            return;
        }
        for memory in data {
            // SAFETY: the code it belongs to holds it until it is freed, when no thread can be in
            // it; a program that kept pointers to data of a removed image must not use them
            // (`Tracker::remove`).
            unsafe { memory.release() };
        }
    }
}

/// Splits the allocations of a link into code and the rest.
pub(crate) fn split(memory: Vec<Sealed>) -> (Option<Sealed>, Vec<Sealed>) {
    let (code, data): (Vec<_>, Vec<_>) = memory
        .into_iter()
        .partition(|memory| memory.pool() == Pool::Code);
    (code.into_iter().next(), data)
}

impl LinkedCode {
    /// The addresses of the code.
    pub(crate) fn range(&self) -> Range<u64> {
        self.memory.address()..self.memory.address() + self.memory.len() as u64
    }
}

/// A new piece of code, and its owner.
pub(crate) struct NewBlock {
    /// Functions from which it took bodies or facts.
    pub(crate) depends: Arc<[FunctionId]>,
    /// Why it cannot move.
    pub(crate) fixed: Option<Fixed>,
    pub(crate) version: VersionId,
    pub(crate) function: Option<FunctionId>,
    pub(crate) code: LinkedCode,
}

/// The properties of a version that do not depend on its place; addresses are offsets from its
/// first byte. A copy refers to it by a number, because counting in an [`Arc`] costs a cache miss
/// and a barrier each time. Tables of them are read from front to back.
pub(crate) struct VersionShape {
    pub(crate) function: Option<FunctionId>,
    pub(crate) version: VersionId,
    pub(crate) moves: Option<Moves>,
    pub(crate) name: &'static CStr,
    pub(crate) depends: Arc<[FunctionId]>,
    /// Bytes of its unwind records.
    pub(crate) unwind: usize,
    entry: u64,
    body_end: u64,
    text_size: u64,
    first: Option<FdeRow>,
    others: Box<[FdeRow]>,
    /// Number of blocks that have it.
    blocks: usize,
    /// The block that calls reach.
    live: BlockId,
    /// Dropped with the last of its blocks.
    rest: Arc<Rest>,
}

/// Bytes of an entry of [`BlockTable::live`], half of whose places are used.
const LIVE: usize = 2 * size_of::<(VersionId, BlockId)>();

/// One block.
struct PlacedBlock {
    memory: Sealed,
    shape: BlockId,
}

/// A block with the properties of its version.
#[derive(Clone, Copy)]
pub(crate) struct View<'t> {
    pub(crate) memory: &'t Sealed,
    pub(crate) shape: &'t VersionShape,
}

impl VersionShape {
    /// Its resources besides its code.
    pub(crate) fn rest(&self) -> &Arc<Rest> {
        &self.rest
    }
}

impl View<'_> {
    fn at(&self, offset: u64) -> u64 {
        self.memory.address().wrapping_add(offset)
    }

    pub(crate) fn entry(&self) -> u64 {
        self.at(self.shape.entry)
    }

    pub(crate) fn body_end(&self) -> u64 {
        self.at(self.shape.body_end)
    }

    /// The addresses of the code.
    pub(crate) fn range(&self) -> Range<u64> {
        self.memory.address()..self.at(self.memory.len() as u64)
    }

    /// The addresses of its machine code, without its constants: pointers to those are not return
    /// addresses.
    pub(crate) fn text(&self) -> Range<u64> {
        self.memory.address()..self.at(self.shape.text_size)
    }

    /// The bytes of the function itself.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        let place = |offset: u64| usize::try_from(offset).ok();
        let VersionShape {
            entry, body_end, ..
        } = *self.shape;
        self.memory.bytes()?.get(place(entry)?..place(body_end)?)
    }

    /// Bytes that it takes in the tables of code and of unwind rows.
    pub(crate) fn bytes_of_tables(&self) -> usize {
        let shape = self.shape;
        let rows = usize::from(shape.first.is_some()) + shape.others.len();
        let shared = of_slice(&shape.others) + shape.moves.as_ref().map_or(0, Moves::bytes);
        size_of::<Option<(BlockId, PlacedBlock)>>()
            + uruk_reclaim::BLOCK_BYTES
            + uruk_unwind::object_bytes(rows)
            + (size_of::<Option<(BlockId, VersionShape)>>() + shared + LIVE) / shape.blocks.max(1)
    }

    /// Its unwind rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        let at = self.memory.address();
        let rows = self.shape.first.iter().chain(&self.shape.others);
        rows.map(move |row| {
            let FdeRow { start, end, fde } = row.moved(0, at);
            Row { start, end, fde }
        })
    }
}

/// All existing code, live and retired, by block. Used by the thread that reclaims.
#[derive(Default)]
pub(crate) struct BlockTable {
    held: Slots<PlacedBlock>,
    shapes: Slots<VersionShape>,
    /// The shapes of live versions.
    live: IdMap<VersionId, BlockId>,
    /// Shapes by their function, and by each function that they depend on.
    concerned: BTreeSet<(FunctionId, BlockId)>,
}

/// The functions that a version's code belongs to and depends on.
fn concerned(shape: &VersionShape) -> impl Iterator<Item = FunctionId> {
    shape
        .function
        .into_iter()
        .chain(shape.depends.iter().copied())
}

impl BlockTable {
    /// Adds a new version.
    pub(crate) fn add(&mut self, piece: NewBlock) -> BlockId {
        let NewBlock { code, version, .. } = piece;
        let at = code.memory.address();
        let mut rows = code.rows.iter().map(|row| row.moved(at, 0));
        let shape = self.shapes.add(VersionShape {
            function: piece.function,
            version,
            // Allocated by this thread, they lie next to each other.
            moves: code.moves.clone(),
            name: code.name,
            depends: piece.depends,
            unwind: code.unwind,
            entry: code.entry.wrapping_sub(at),
            body_end: code.body_end.wrapping_sub(at),
            text_size: code.text_size as u64,
            first: rows.next(),
            others: rows.collect(),
            blocks: 1,
            live: BlockId(0),
            rest: code.rest,
        });
        let id = self.held.add(PlacedBlock {
            memory: code.memory,
            shape,
        });
        if let Some(found) = self.shapes.get_mut(shape) {
            found.live = id;
            let pairs = concerned(found).map(|function| (function, shape));
            self.concerned.extend(pairs);
        }
        self.live.insert(version, shape);
        id
    }

    /// The blocks of `functions`, and of code that depends on them, each once.
    pub(crate) fn concerning(
        &self,
        functions: impl IntoIterator<Item = FunctionId>,
    ) -> impl Iterator<Item = (BlockId, View<'_>)> {
        let mut shapes = BTreeSet::new();
        for function in functions {
            let pairs = (function, BlockId(0))..=(function, BlockId(u64::MAX));
            shapes.extend(self.concerned.range(pairs).map(|&(_, shape)| shape));
        }
        let mut found = Vec::with_capacity(shapes.len());
        // Versions that are being moved have two blocks, which only the table of all lists.
        shapes.retain(|&key| match self.shapes.get(key) {
            Some(shape) if shape.blocks == 1 => {
                found.push(shape.live);
                false
            }
            _ => true,
        });
        if !shapes.is_empty() {
            let held = self.held.iter();
            found.extend(held.filter_map(|(id, it)| shapes.contains(&it.shape).then_some(id)));
        }
        found.into_iter().filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Adds a copy of a block, which is not reachable yet.
    pub(crate) fn add_copy(&mut self, of: BlockId, memory: Sealed) -> Option<BlockId> {
        let shape = self.held.get(of)?.shape;
        self.shapes.get_mut(shape)?.blocks += 1;
        Some(self.held.add(PlacedBlock { memory, shape }))
    }

    /// Makes this copy the one that calls of the version reach: retiring the version retires this
    /// copy.
    pub(crate) fn set_live(&mut self, id: BlockId) {
        let shape = self.held.get(id).map(|held| held.shape);
        if let Some(shape) = shape.and_then(|shape| self.shapes.get_mut(shape)) {
            shape.live = id;
        }
    }

    /// Retires a version that cannot be called any more; returns its block.
    pub(crate) fn retire(&mut self, version: VersionId) -> Option<BlockId> {
        let shape = self.live.remove(&version)?;
        uruk_reclaim::shrink(&mut self.live);
        Some(self.shapes.get(shape)?.live)
    }

    /// The block that calls of a live version reach.
    pub(crate) fn live(&self, version: VersionId) -> Option<(BlockId, View<'_>)> {
        let id = self.shapes.get(*self.live.get(&version)?)?.live;
        Some((id, self.get(id)?))
    }

    pub(crate) fn get(&self, id: BlockId) -> Option<View<'_>> {
        let PlacedBlock { memory, shape } = self.held.get(id)?;
        let shape = self.shapes.get(*shape)?;
        Some(View { memory, shape })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, View<'_>)> {
        let view = |(id, _)| Some((id, self.get(id)?));
        self.held.iter().filter_map(view)
    }

    /// Removes a block, and with the last of a version its shape.
    pub(crate) fn remove(&mut self, id: BlockId) -> Option<(Sealed, Option<VersionShape>)> {
        let PlacedBlock { memory, shape: key } = self.held.remove(id)?;
        let last = self.shapes.get_mut(key).is_some_and(|shape| {
            shape.blocks -= 1;
            shape.blocks == 0
        });
        let shape = if last { self.shapes.remove(key) } else { None };
        for function in shape.iter().flat_map(concerned) {
            self.concerned.remove(&(function, key));
        }
        Some((memory, shape))
    }
}
