//! Tables of labels, and jumps by them (`goto *table[i]`).
//!
//! A copy has a table of its own, of addresses in its code. Here a label that comes from a table
//! is a number instead: its place among the entries of all tables. A load from a table is then
//! its index, and a jump to what was loaded is a switch; no address of code is anywhere.
//!
//! # Invariants
//! - Numbers go nowhere but to such jumps: through phis, selects and variables of the frame that
//!   are only loaded and stored. And what goes to such a jump is a number. Both are checked at
//!   the end ([`Reading::number_jumps`]), over all values that are connected.

use inkwell::llvm_sys::core::{LLVMGetBlockAddressBasicBlock, LLVMGetBlockAddressFunction};
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use uruk_baseline::ir::{Block, Cast, IntOp, Op, Operand, Term, Type};

use super::reading::{Covered, Reading, not};
use crate::continuation::intrinsics::{Meaning, is_intrinsic};
use crate::handles::{InstructionRef, ValueRef};
use crate::summary::{Placement, SymbolId};

const TABLE: &str = "a table of labels";

/// Bytes of an entry.
const ENTRY: i64 = 8;

/// Labels of tables, and jumps.
#[derive(Default)]
pub(super) struct Jumps<'m> {
    /// Labels are numbers: a table was met.
    pub(super) numbered: bool,
    /// What each number stands for.
    blocks: Vec<Block>,
    /// The first number of each table.
    tables: FxHashMap<SymbolId, u32>,
    /// What addresses of entries are loaded as.
    places: FxHashMap<usize, Operand>,
    /// Loads of them, and constant labels.
    sources: Vec<ValueRef<'m>>,
    /// `indirectbr`s, with their blocks.
    jumps: Vec<(InstructionRef<'m>, Block)>,
}

impl<'m> Reading<'_, 'm> {
    /// The number of the first entry, if a value is a table of this function's labels.
    pub(super) fn table(&mut self, value: ValueRef<'m>) -> Covered<Option<u32>> {
        if value.kind() != LLVMValueKind::LLVMGlobalVariableValueKind {
            return Ok(None);
        }
        let Some(id) = self.source.id(value) else {
            return Ok(None);
        };
        if !matches!(self.source.info(id).placement, Placement::WithFunction(_)) {
            return Ok(None);
        }
        if let Some(&first) = self.jumps.tables.get(&id) {
            return Ok(Some(first));
        }
        if self.notes.labels && !self.jumps.numbered {
            return not("labels beside a table of labels");
        }
        self.jumps.numbered = true;
        self.notes.labels = true;
        let first = self.jumps.blocks.len() as u32;
        let initializer = value.as_variable().and_then(|it| it.initializer());
        let parts = initializer.into_iter().flat_map(ValueRef::parts);
        for part in parts {
            if part.kind() != LLVMValueKind::LLVMBlockAddressValueKind {
                return not(TABLE);
            }
            let block = self.block_of(part)?;
            self.jumps.blocks.push(block);
        }
        self.jumps.tables.insert(id, first);
        Ok(Some(first))
    }

    /// The block of a label.
    fn block_of(&self, label: ValueRef<'m>) -> Covered<Block> {
        // SAFETY: a block address; its function and block are live.
        let (function, block) = unsafe {
            let function = LLVMGetBlockAddressFunction(label.raw());
            let block = LLVMGetBlockAddressBasicBlock(label.raw());
            (function, block as usize)
        };
        if function != self.function.raw() {
            return not("a label of another function");
        }
        match self.known.values.get(block) {
            Some(number) => Ok(Block(number.first)),
            None => not("a label that is not reached"),
        }
    }

    /// A constant label.
    pub(super) fn label(&mut self, value: ValueRef<'m>) -> Covered<Operand> {
        let block = self.block_of(value)?;
        self.notes.labels = true;
        if !self.jumps.numbered {
            return Ok(Operand::Label(block));
        }
        self.jumps.sources.push(value);
        let blocks = &mut self.jumps.blocks;
        let known = blocks.iter().position(|it| *it == block);
        let number = known.unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        });
        Ok(Operand::Int(number as u64))
    }

    /// Notes the address of an entry: so many bytes and these terms behind the table that begins
    /// with `first`.
    pub(super) fn entry(
        &mut self,
        it: InstructionRef<'m>,
        first: u32,
        bytes: i64,
        terms: &[Term],
    ) -> Covered<()> {
        if bytes % ENTRY != 0 || terms.iter().any(|term| term.scale != ENTRY as u64) {
            return not(TABLE);
        }
        let start = (i64::from(first) + bytes / ENTRY) as u64;
        let number = match *terms {
            [] => Operand::Int(start),
            [term] => {
                let from = Type::Int(term.bits);
                let mut index = term.operand;
                if from != Type::PTR {
                    index = self.emit_one(Op::Cast(Cast::SExt, from, Type::PTR, index));
                }
                match start {
                    0 => index,
                    _ => {
                        let list = [index, Operand::Int(start)];
                        self.emit_one(Op::Int(IntOp::Add, Type::PTR, list))
                    }
                }
            }
            _ => return not(TABLE),
        };
        self.jumps.places.insert(it.raw() as usize, number);
        Ok(())
    }

    /// What a load from an address gives, if that is an entry's.
    pub(super) fn loaded_label(&mut self, it: InstructionRef<'m>) -> Option<Operand> {
        let address = self.operand(it, 0);
        let number = self.jumps.places.get(&(address.raw() as usize)).copied()?;
        self.jumps.sources.push(*it);
        Some(number)
    }

    pub(super) fn indirect(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let address = self.one_of(it, 0)?;
        self.jumps.jumps.push((it, self.block));
        self.end(Op::IndirectJump(address))
    }

    /// Makes switches of jumps, if labels are numbers.
    pub(super) fn number_jumps(&mut self) -> Covered<()> {
        if !self.jumps.numbered {
            return Ok(());
        }
        if !self.are_apart() {
            return not(TABLE);
        }
        for at in 0..self.jumps.jumps.len() {
            let (_, block) = self.jumps.jumps[at];
            let data = &mut self.out.blocks[block.index()];
            let end = data.instructions.end as usize - 1;
            let listed: FxHashSet<Block> = data.successors.iter().copied().collect();
            let numbers = (0u64..).zip(self.jumps.blocks.iter().copied());
            // A jump to what it does not list is undefined.
            let cases = numbers.filter(|(_, block)| listed.contains(block));
            let (values, blocks): (Vec<u64>, SmallVec<[Block; 2]>) = cases.unzip();
            let Some(&first) = blocks.first() else {
                return not(TABLE);
            };
            data.successors = std::iter::once(first).chain(blocks).collect();
            let instruction = &mut self.out.instructions[end];
            if let Op::IndirectJump(number) = instruction.op {
                instruction.op = Op::Switch(Type::PTR, number, values);
            }
        }
        Ok(())
    }

    /// How many edges lead from a block to another, where that is not what LLVM's phis say.
    pub(super) fn numbered_edges(&self, from: Block, to: Block) -> Option<usize> {
        let mut jumps = self.jumps.jumps.iter();
        let is_one = self.jumps.numbered && jumps.any(|(_, block)| *block == from);
        is_one.then(|| {
            let successors = &self.out.blocks[from.index()].successors;
            successors.iter().filter(|it| **it == to).count()
        })
    }

    /// Whether numbers and addresses do not meet: all values connected with tables and jumps are
    /// of those that only pass numbers on.
    fn are_apart(&self) -> bool {
        let jumps = self.jumps.jumps.iter();
        let targets = jumps.map(|(it, _)| self.operand(*it, 0));
        let mut open: Vec<ValueRef<'m>> = self.jumps.sources.clone();
        open.extend(targets);
        let mut seen: FxHashSet<ValueRef<'m>> = FxHashSet::default();
        while let Some(value) = open.pop() {
            if seen.insert(value) && !self.passes_on(value, &mut open) {
                return false;
            }
        }
        true
    }

    /// Whether a value is a number that is only passed on; what it is connected with is added.
    fn passes_on(&self, value: ValueRef<'m>, open: &mut Vec<ValueRef<'m>>) -> bool {
        match value.kind() {
            LLVMValueKind::LLVMBlockAddressValueKind => {}
            LLVMValueKind::LLVMUndefValueValueKind | LLVMValueKind::LLVMPoisonValueKind => {
                return true;
            }
            _ => {
                let Some(made) = value.as_instruction() else {
                    return false;
                };
                let mut operands = made.operands().flatten();
                match made.opcode() {
                    LLVMOpcode::LLVMPHI | LLVMOpcode::LLVMFreeze => open.extend(operands),
                    LLVMOpcode::LLVMSelect => open.extend(operands.skip(1)),
                    LLVMOpcode::LLVMLoad => match operands.next() {
                        Some(from) if self.jumps.places.contains_key(&(from.raw() as usize)) => {}
                        Some(from) if is_variable(from) => add_variable(from, open),
                        _ => return false,
                    },
                    _ => return false,
                }
            }
        }
        value.users().all(|user| {
            let Some(user) = user.as_instruction() else {
                // The table itself.
                return value.kind() == LLVMValueKind::LLVMBlockAddressValueKind;
            };
            if user.function() != Some(self.function) {
                return true;
            }
            match user.opcode() {
                LLVMOpcode::LLVMIndirectBr => true,
                LLVMOpcode::LLVMPHI | LLVMOpcode::LLVMSelect | LLVMOpcode::LLVMFreeze => {
                    open.push(*user);
                    true
                }
                LLVMOpcode::LLVMStore => {
                    let to = user.operands().nth(1).flatten();
                    let to = to.filter(|to| is_variable(*to));
                    to.inspect(|to| add_variable(*to, open)).is_some()
                }
                _ => false,
            }
        })
    }
}

/// Whether a value is a variable of the frame that is only loaded and stored.
fn is_variable(value: ValueRef<'_>) -> bool {
    let alloca = value.as_instruction();
    let is_alloca = alloca.is_some_and(|it| it.opcode() == LLVMOpcode::LLVMAlloca);
    is_alloca
        && value.users().all(|user| {
            user.as_instruction()
                .is_some_and(|user| match user.opcode() {
                    LLVMOpcode::LLVMLoad => true,
                    LLVMOpcode::LLVMStore => user.operands().next().flatten() != Some(value),
                    _ => is_intrinsic(user, Meaning::is_marker),
                })
        })
}

/// Adds what is loaded from a variable, and what is stored there.
fn add_variable<'m>(variable: ValueRef<'m>, open: &mut Vec<ValueRef<'m>>) {
    for user in variable.users().filter_map(ValueRef::as_instruction) {
        match user.opcode() {
            LLVMOpcode::LLVMLoad => open.push(*user),
            LLVMOpcode::LLVMStore => open.extend(user.operands().next().flatten()),
            _ => {}
        }
    }
}
