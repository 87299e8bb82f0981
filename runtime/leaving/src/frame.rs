//! Liveness at the heads of a body's loops: the values that OSR passes to a continuation.
//!
//! One backward analysis over blocks, of values and of the contents of `alloca`s: a load uses, a
//! store of the whole defines, and lifetime markers end the contents before and after. But an
//! escaped address stays valid in all lifetimes: an `alloca` whose address escapes crosses if it is
//! mentioned on a path to the head, and behind it. Two copies of one body have equal answers, in
//! one order: [`Crossing`] carries a fingerprint that matches the two ends of a call.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::anatomy::{Anatomy, Carried, Code, Facts, NONE};
use crate::graph::Graph;
use crate::reasons::Reason;
use crate::rooms::Reading;

/// Larger `alloca`s are not copied but stay in the old frame.
pub const COPIED_BYTES: u64 = 512;

/// Limit of bits of one analysis: values times blocks.
const MOST_BITS: usize = 32 << 20;

/// How a variable crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An argument or the result of an instruction, as a scalar.
    Value,
    /// Such a value, through memory.
    Stored,
    /// The contents of an `alloca`, as a scalar.
    Scalar,
    /// The contents of an `alloca`, this many bytes, by its address.
    Bytes(u64),
    /// An `alloca` that stays in the old frame; its address crosses.
    Kept {
        /// Its size.
        bytes: u64,
        /// Whether no other pointer to it exists.
        alone: bool,
    },
}

/// A variable that may live across heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The number of the argument, instruction or `alloca`.
    pub value: u32,
    /// How it crosses.
    pub kind: Kind,
}

/// The variables of a body, and their liveness.
#[derive(Debug, Default)]
pub struct Frame {
    /// All variables, in the order of their numbers.
    pub variables: Vec<Variable>,
    /// The variable of each value.
    places: Vec<u32>,
    /// The `alloca` from which a pointer is derived by constants only; such pointers are recomputed
    /// at their uses. Empty if there are none.
    derived: Vec<u32>,
    /// `alloca`s of saved stack pointers.
    stacks: Vec<u32>,
    /// Variables that may hold a number that is valid in one version only.
    numbered: Vec<u32>,
    words: usize,
    /// Variables that are live behind the phis of each block.
    live: Vec<u64>,
    fingerprint: u64,
}

/// The variables that cross at one head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Indexes of the variables.
    pub variables: Vec<u32>,
    /// Equal for equal bodies, heads and variables.
    pub fingerprint: u64,
}

/// Sets of variables of each block, as rows of words: the rows of one block lie side by side.
struct Sets {
    words: usize,
    rows: Vec<u64>,
}

/// The sets of a block.
#[derive(Clone, Copy)]
enum Set {
    /// Live behind its phis: the result.
    Live,
    /// Used before they are defined.
    Used,
    Defined,
    /// Its phis.
    Phis,
    /// Used by phis of successors.
    AtEnd,
    /// Mentioned; filled if an `alloca` escapes.
    Mentioned,
}

/// Number of sets of a block.
const SETS: usize = 6;

impl Sets {
    fn new(words: usize, blocks: usize) -> Sets {
        let rows = vec![0; SETS * words * blocks];
        Sets { words, rows }
    }

    /// The index of the first word of a set.
    fn start(&self, block: u32, set: Set) -> usize {
        (block as usize * SETS + set as usize) * self.words
    }

    fn put(&mut self, block: u32, set: Set, variable: u32) {
        let at = self.start(block, set) + variable as usize / 64;
        self.rows[at] |= 1 << (variable % 64);
    }

    fn has(&self, block: u32, set: Set, variable: u32) -> bool {
        let at = self.start(block, set) + variable as usize / 64;
        self.rows[at] >> (variable % 64) & 1 != 0
    }

    /// The sets of a block, side by side.
    fn block(&self, block: u32) -> &[u64] {
        let own = self.start(block, Set::Live);
        &self.rows[own..own + SETS * self.words]
    }

    /// Evaluates liveness of one block, in a row of its own; whether it changed.
    fn evaluate(&mut self, block: u32, successors: &[u32], live: &mut [u64]) -> bool {
        let words = live.len();
        let row = |set: Set| set as usize * words..(set as usize + 1) * words;
        live.copy_from_slice(&self.block(block)[row(Set::AtEnd)]);
        for &next in successors {
            let sets = self.block(next);
            let (next, phis) = (&sets[row(Set::Live)], &sets[row(Set::Phis)]);
            for (word, live) in live.iter_mut().enumerate() {
                *live |= next[word] & !phis[word];
            }
        }
        let own = self.start(block, Set::Live);
        let sets = &mut self.rows[own..own + SETS * words];
        let mut changed = false;
        for (word, &live) in live.iter().enumerate() {
            let used = sets[Set::Used as usize * words + word];
            let live = used | live & !sets[Set::Defined as usize * words + word];
            changed |= sets[word] != live;
            sets[word] = live;
        }
        changed
    }
}

impl Frame {
    /// Analyzes a body whose loops are in `graph`.
    ///
    /// # Errors
    /// The reason why no head of it supports OSR.
    pub fn of(anatomy: &Anatomy, graph: &Graph) -> Result<Frame, Reason> {
        let reading = Reading::of(anatomy)?;
        let (variables, places) = reading.variables()?;
        let words = variables.len().div_ceil(64);
        if words * 64 * graph.len() > MOST_BITS {
            return Err(Reason::TooLarge);
        }
        let mut frame = Frame {
            numbered: reading.numbered(&places)?,
            variables,
            places,
            words,
            live: Vec::new(),
            fingerprint: 0,
            derived: reading.derived,
            stacks: reading.stacks,
        };
        frame.live = frame.solve(anatomy, graph);
        frame.fingerprint = frame.sign(anatomy);
        Ok(frame)
    }

    /// The variables that cross at the head `block`.
    ///
    /// # Errors
    /// The reason why OSR is impossible there.
    pub fn crossing(&self, block: u32) -> Result<Crossing, Reason> {
        let at = block as usize * self.words;
        let row = &self.live[at..at + self.words];
        let is_live = |&it: &u32| row[it as usize / 64] >> (it % 64) & 1 != 0;
        let variables: Vec<u32> = (0..self.variables.len() as u32).filter(is_live).collect();
        if variables.iter().any(|it| self.numbered.contains(it)) {
            return Err(Reason::Exception);
        }
        let mut hasher = FxHasher::default();
        (self.fingerprint, block, &variables).hash(&mut hasher);
        Ok(Crossing {
            variables,
            fingerprint: hasher.finish(),
        })
    }

    /// The index of a value among the variables.
    pub fn place(&self, value: u32) -> Option<u32> {
        let place = self.places.get(value as usize).copied();
        place.filter(|&it| it != NONE)
    }

    /// Whether a value is recomputed at its uses: a pointer derived from an `alloca` and constants
    /// only, or the number of a caught type.
    pub fn is_derived(&self, value: u32) -> bool {
        let derived = self.derived.get(value as usize);
        derived.is_some_and(|&it| it != NONE)
    }

    /// Whether an `alloca` holds saved stack pointers.
    pub fn is_stack(&self, value: u32) -> bool {
        self.stacks.contains(&value)
    }

    /// Whether a variable is a parameter or a result of an instruction, not an `alloca` of the
    /// frame.
    pub fn is_value(&self, variable: u32) -> bool {
        let kind = self.variables[variable as usize].kind;
        matches!(kind, Kind::Value | Kind::Stored)
    }

    /// The fingerprint of the body and its variables, which is equal in another copy.
    fn sign(&self, anatomy: &Anatomy) -> u64 {
        let mut hasher = FxHasher::default();
        let mut put = |code: Code, kind: Option<Kind>| {
            // One word for most instructions.
            let (kind, bytes) = match kind {
                None => (0, 0),
                Some(Kind::Value) => (1, 0),
                Some(Kind::Stored) => (2, 0),
                Some(Kind::Scalar) => (3, 0),
                Some(Kind::Bytes(bytes)) => (4, bytes),
                Some(Kind::Kept { bytes, alone }) => (5 + u64::from(alone), bytes),
            };
            hasher.write_u64(code as u64 | kind << 8);
            if bytes != 0 {
                hasher.write_u64(bytes);
            }
        };
        for block in &anatomy.blocks {
            put(Code::Nothing, None);
            for at in block.clone() {
                let it = anatomy.at(at);
                let mut code = it.code;
                if code == Code::Nothing {
                    continue;
                }
                if it.facts.has(Facts::FUSED) {
                    // The product is used in its block only.
                    put(Code::Mul, None);
                    code = Code::Add;
                }
                let place = self.places[anatomy.value(at) as usize];
                let variable = self.variables.get(place as usize);
                put(code, variable.map(|it| it.kind));
            }
        }
        hasher.finish()
    }

    /// Solves liveness behind the phis of each block.
    fn solve(&self, anatomy: &Anatomy, graph: &Graph) -> Vec<u64> {
        let blocks = graph.len();
        let leaving = (0..self.variables.len() as u32).filter(|&it| self.leaves(it));
        let leaving: Vec<u32> = leaving.collect();
        let mut sets = self.read_blocks(anatomy, blocks, !leaving.is_empty());
        // Times, in evaluated blocks: a block is evaluated again after a successor changed.
        let mut now = 1u32;
        let mut row = vec![0; self.words];
        let mut evaluated = vec![0u32; blocks];
        let mut altered = vec![1u32; blocks];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in (0..blocks as u32).rev() {
                let last = evaluated[index as usize];
                let successors = graph.successors(index);
                if last != 0 && successors.iter().all(|&it| altered[it as usize] <= last) {
                    continue;
                }
                now += 1;
                evaluated[index as usize] = now;
                if sets.evaluate(index, successors, &mut row) {
                    changed = true;
                    // A block that leads to itself is behind its own change.
                    now += 1;
                    altered[index as usize] = now;
                }
            }
        }
        if !leaving.is_empty() {
            self.leave_out_unmet(graph, &leaving, &mut sets);
        }
        let of_block = sets.rows.chunks_exact(SETS * self.words.max(1));
        of_block
            .flat_map(|rows| &rows[..self.words])
            .copied()
            .collect()
    }

    /// Finds uses and definitions; where variables are mentioned, if `mentions`.
    fn read_blocks(&self, anatomy: &Anatomy, blocks: usize, mentions: bool) -> Sets {
        let mut sets = Sets::new(self.words, blocks);
        for (block, index) in anatomy.blocks.iter().zip(0u32..) {
            for at in block.clone() {
                let place = self.place(anatomy.value(at));
                let place = place.filter(|&it| self.is_value(it));
                if place.is_none() && !self.mentions_any(anatomy, at) {
                    continue;
                }
                if anatomy.at(at).code == Code::Phi {
                    place.inspect(|&it| sets.put(index, Set::Phis, it));
                    for (value, from) in anatomy.incoming(at) {
                        if let Some(it) = self.mentioned(value) {
                            sets.put(from, Set::AtEnd, it);
                            sets.put(from, Set::Mentioned, it);
                        }
                    }
                    continue;
                }
                self.events(anatomy, at, |it, defines| match defines {
                    true => sets.put(index, Set::Defined, it),
                    false => {
                        if mentions {
                            sets.put(index, Set::Mentioned, it);
                        }
                        if !sets.has(index, Set::Defined, it) {
                            sets.put(index, Set::Used, it);
                        }
                    }
                });
                place.inspect(|&it| sets.put(index, Set::Defined, it));
            }
        }
        sets
    }

    /// Removes escaped `alloca`s that no path to a block mentions: no pointer to them can exist
    /// there.
    fn leave_out_unmet(&self, graph: &Graph, leaving: &[u32], sets: &mut Sets) {
        let words = self.words;
        let mut mask = vec![0u64; words];
        for &at in leaving {
            mask[at as usize / 64] |= 1 << (at % 64);
        }
        let mut met = vec![0u64; words * graph.len()];
        let mut behind = vec![0u64; words];
        // Blocks whose row changed since it was passed on.
        let mut open = vec![true; graph.len()];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in 0..graph.len() {
                if !std::mem::take(&mut open[index]) {
                    continue;
                }
                let mentioned = sets.start(index as u32, Set::Mentioned);
                let mentioned = &sets.rows[mentioned..mentioned + words];
                let own = &met[index * words..(index + 1) * words];
                for (word, behind) in behind.iter_mut().enumerate() {
                    *behind = (own[word] | mentioned[word]) & mask[word];
                }
                for &next in graph.successors(index as u32) {
                    let next = next as usize;
                    let row = &mut met[next * words..(next + 1) * words];
                    let mut more = false;
                    for (met, behind) in row.iter_mut().zip(&behind) {
                        more |= behind & !*met != 0;
                        *met |= behind;
                    }
                    open[next] |= more;
                    changed |= more;
                }
            }
        }
        for index in 0..graph.len() {
            let live = sets.start(index as u32, Set::Live);
            for word in 0..words {
                sets.rows[live + word] &= met[index * words + word] | !mask[word];
            }
        }
    }

    /// Whether the address of an `alloca` escapes.
    fn leaves(&self, variable: u32) -> bool {
        let kind = self.variables[variable as usize].kind;
        matches!(kind, Kind::Kept { alone: false, .. })
    }

    /// The variable that an operand is, or is derived from.
    fn mentioned(&self, operand: u32) -> Option<u32> {
        // Most bodies have no such pointers.
        let root = self.derived.get(operand as usize).copied();
        self.place(root.filter(|&it| it != NONE).unwrap_or(operand))
    }

    /// Whether an instruction mentions a variable: most mention results of their own block only.
    fn mentions_any(&self, anatomy: &Anatomy, at: u32) -> bool {
        let mut operands = anatomy.operands_of(at).iter();
        operands.any(|&it| self.mentioned(it).is_some())
    }

    /// Calls `each` with each variable that an instruction, no phi, mentions, and whether the
    /// instruction defines it as a whole. Uses come first. Lifetime markers of escaped `alloca`s
    /// are ignored.
    fn events(&self, anatomy: &Anatomy, at: u32, mut each: impl FnMut(u32, bool)) {
        let it = anatomy.at(at);
        let operands = anatomy.operands_of(at);
        if it.code == Code::Store
            && let [value, to] = *operands
            && let Some(place) = self.place(to)
            && self.variables[place as usize].kind == Kind::Scalar
            && self.held(anatomy, to) == Some(it.carried)
        {
            self.mentioned(value).inspect(|&it| each(it, false));
            return each(place, true);
        }
        let is_marker = it.code == Code::Call && it.meaning.is_marker();
        for &operand in operands {
            match self.mentioned(operand) {
                Some(place) if is_marker && self.leaves(place) => {}
                Some(place) => each(place, is_marker),
                None => {}
            }
        }
    }

    /// The type of an `alloca`'s contents.
    fn held(&self, anatomy: &Anatomy, room: u32) -> Option<Carried> {
        anatomy.maker(room).map(|it| anatomy.at(it).carried)
    }
}
