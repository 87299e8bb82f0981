//! Allocas that became variables: their live ranges.
//!
//! A variable is written in many places, so its live range needs the usual equations. It is live
//! into a block if it is read there before it is written, or is live out and not written. Only
//! variables need that, usually a few dozen, so sets of 64 are words.

use crate::ir::{Block, Function, Op};

use super::life::{Kinds, Life, State};
use super::order::{NONE, Order};
use super::uses;

/// The most words of sets; functions with more have no variables.
const MOST_WORDS: usize = 1 << 20;

/// Variables and the blocks in which they live.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// The number of the first variable among the lives.
    first: u32,
    count: usize,
    words: usize,
    /// By place of block, `words` each: variables read before they are written; after solving,
    /// variables live in.
    live_in: Vec<u64>,
    /// Variables that are written, by place of block.
    written: Vec<u64>,
    /// Variables seen on a walk.
    seen: Vec<u64>,
}

impl Variables {
    /// Turns allocas into variables where possible, numbered behind all values.
    pub(super) fn choose(&mut self, function: &Function, order: &Order, lives: &mut Vec<Life>) {
        self.first = lives.len() as u32;
        for (id, instruction) in function.of_block(Block(0)) {
            let Op::Alloca { size, align } = instruction.op else {
                continue;
            };
            let value = instruction.results.start as usize;
            let life = &lives[value];
            if life.kinds.has(Kinds::ESCAPES) || life.state == State::Dead || align > 16 {
                continue;
            }
            let Some(ty) = uses::type_of(life.hint) else {
                continue;
            };
            if u64::from(ty.bytes()) > size {
                continue;
            }
            let mut variable = Life::new(ty);
            variable.from = NONE;
            variable.by = id.0;
            lives[value].state = State::Variable(lives.len() as u32);
            lives.push(variable);
        }
        self.count = lives.len() - self.first as usize;
        self.words = self.count.div_ceil(64);
        let words = self.words * order.blocks.len();
        if words > MOST_WORDS {
            for life in &mut lives[..self.first as usize] {
                if let State::Variable(_) = life.state {
                    life.state = State::Placed;
                }
            }
            lives.truncate(self.first as usize);
            self.none(lives.len());
            return;
        }
        for set in [&mut self.live_in, &mut self.written] {
            set.clear();
            set.resize(words, 0);
        }
    }

    /// Selects no variables; `values` is the number of values.
    pub(super) fn none(&mut self, values: usize) {
        self.first = values as u32;
        self.count = 0;
        self.words = 0;
        self.live_in.clear();
        self.written.clear();
    }

    /// The position of a variable's bit.
    fn bit(&self, variable: u32, block: u32) -> (usize, u64) {
        let number = (variable - self.first) as usize;
        (
            block as usize * self.words + number / 64,
            1 << (number % 64),
        )
    }

    /// Records a read in the block at a place.
    pub(super) fn read(&mut self, variable: u32, block: u32) {
        let (word, bit) = self.bit(variable, block);
        self.live_in[word] |= bit & !self.written[word];
    }

    /// Records a write in the block at a place.
    pub(super) fn write(&mut self, variable: u32, block: u32) {
        let (word, bit) = self.bit(variable, block);
        self.written[word] |= bit;
    }

    /// Solves the equations and extends the live ranges.
    pub(super) fn finish(&mut self, function: &Function, order: &Order, lives: &mut [Life]) {
        if self.count == 0 {
            return;
        }
        self.solve(function, order);
        self.lengthen(function, order, lives);
        for life in &mut lives[self.first as usize..] {
            if life.from == NONE {
                life.state = State::Dead;
            } else {
                life.to = life.to.max(life.from + 1);
            }
        }
    }

    fn solve(&mut self, function: &Function, order: &Order) {
        let words = self.words;
        let mut changed = true;
        while changed {
            changed = false;
            for place in (0..order.blocks.len()).rev() {
                let block = order.blocks[place];
                for successor in &function.blocks[block.index()].successors {
                    let to = order.place[successor.index()] as usize;
                    for word in 0..words {
                        let out = self.live_in[to * words + word];
                        let at = place * words + word;
                        let new = self.live_in[at] | out & !self.written[at];
                        changed |= new != self.live_in[at];
                        self.live_in[at] = new;
                    }
                }
            }
            // Without a back edge, one walk is enough.
            changed &= !order.loops.is_empty();
        }
    }

    /// Extends each range from the first block that the variable is live into to the end of the
    /// last one that it is live out of.
    fn lengthen(&mut self, function: &Function, order: &Order, lives: &mut [Life]) {
        let words = self.words;
        let first = self.first as usize;
        self.seen.clear();
        self.seen.resize(words, 0);
        for place in 0..order.blocks.len() {
            for word in 0..words {
                let mut new = self.live_in[place * words + word] & !self.seen[word];
                self.seen[word] |= new;
                while new != 0 {
                    let life = &mut lives[first + word * 64 + new.trailing_zeros() as usize];
                    life.from = life.from.min(order.start[place]);
                    life.to = life.to.max(order.start[place]);
                    new &= new - 1;
                }
            }
        }
        self.seen.fill(0);
        for (place, block) in order.blocks.iter().enumerate().rev() {
            for successor in &function.blocks[block.index()].successors {
                let to = order.place[successor.index()] as usize;
                for word in 0..words {
                    let mut new = self.live_in[to * words + word] & !self.seen[word];
                    self.seen[word] |= new;
                    while new != 0 {
                        let life = &mut lives[first + word * 64 + new.trailing_zeros() as usize];
                        life.to = life.to.max(order.start[place + 1]);
                        new &= new - 1;
                    }
                }
            }
        }
    }
}
