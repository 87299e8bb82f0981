//! Labels whose addresses are taken (`&&label`), and jumps by them (`goto *p`).
//!
//! The address of a label is a place in the *label space* of its function. Its distance from the
//! start of the space, in bytes, is the number of the label's block in the body. The space is
//! empty, and contains no code. So a label has one address in all code of the module, from either
//! compiler, in data, and in all versions of the function. A jump dispatches on the distance from
//! the start of the space.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use uruk_baseline::ir::{Block, IntOp, Op, Operand, Symbol, Type};
use uruk_bitcode::ir::{self as bitcode, BlockId, Definition, Instruction, ValueId};

use crate::reading::{Covered, Reading, invalid};

/// Label spaces that a function mentions.
#[derive(Default)]
pub(crate) struct Jumps {
    /// By the global of their function.
    spaces: FxHashMap<u32, Symbol>,
    /// Some block ends in a jump by an address.
    has_jumps: bool,
}

impl<'a> Reading<'a> {
    /// Whether the body mentions addresses of labels, or jumps to them.
    pub(crate) fn has_labels(&self) -> bool {
        self.jumps.has_jumps || !self.jumps.spaces.is_empty()
    }

    /// The symbol of the label space of a function.
    fn label_space(&mut self, function: u32) -> Covered<Symbol> {
        if let Some(&known) = self.jumps.spaces.get(&function) {
            return Ok(known);
        }
        let data = self.outside.label_space(function)?;
        let symbol = self.add_symbol(data);
        self.jumps.spaces.insert(function, symbol);
        Ok(symbol)
    }

    /// The address of a label: a symbol, and the distance from it.
    pub(crate) fn label(&mut self, function: ValueId, block: BlockId) -> Covered<(Symbol, i64)> {
        let Some(Definition::Global(function)) = self.definition(function) else {
            return invalid("a label of no function");
        };
        Ok((self.label_space(function)?, i64::from(block.0)))
    }

    /// A jump to the address of a label of this function: to one of the listed blocks.
    pub(crate) fn indirect(&mut self, it: &Instruction, to: &[BlockId]) -> Covered<()> {
        let [value] = self.operands(it)?;
        let address = self.address(value)?;
        self.jumps.has_jumps = true;
        if to.is_empty() {
            return self.end(Op::Unreachable);
        }
        let space = self.label_space(self.number)?;
        let blocks = || to.iter().map(|it| it.0);
        // Distances from the least of the labels, so that tables begin there.
        let least = blocks().min().unwrap_or(0);
        let operands = [address, Operand::Address(space, least.into())];
        let number = self.emit_one(Op::Int(IntOp::Sub, Type::PTR, operands));
        let values = distinct(to).map(|it| u64::from(it.0 - least)).collect();
        self.end(Op::Dispatch(number, values))
    }

    /// The successors of the dispatch made for a jump. A jump to an unlisted block is undefined.
    pub(crate) fn jump_successors(&self, to: &[BlockId]) -> SmallVec<[Block; 2]> {
        let places = distinct(to).map(|it| Block(self.flow.places[it.0 as usize]));
        places.collect()
    }

    /// Whether a block, by place, ends in a jump. A jump has one edge to each of its blocks, even
    /// if it lists them repeatedly.
    pub(crate) fn is_jump(&self, from: u32) -> bool {
        let block = &self.body.blocks[self.flow.order[from as usize] as usize];
        let end = &self.body.instructions[block.end as usize - 1];
        matches!(end.op, bitcode::Op::IndirectBranch(_))
    }
}

/// Blocks, each once.
fn distinct(list: &[BlockId]) -> impl Iterator<Item = BlockId> {
    let mut seen = FxHashSet::default();
    list.iter().copied().filter(move |it| seen.insert(it.0))
}
