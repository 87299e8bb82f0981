//! Labels whose addresses are taken (`&&label`), tables of them, and jumps by them (`goto *p`).
//!
//! A label is a number here: its place among the entries of all tables of the function, and behind
//! those the labels that are named elsewhere. A load from a table is then its index, and a jump is
//! a switch; no address of code is anywhere.
//!
//! # Invariants
//! - Numbers go nowhere but to such jumps: through phis, selects and variables of the frame that
//!   are only loaded and stored. And what goes to such a jump is a number. Both are checked when
//!   all is read ([`Reading::number_jumps`]), over all values that are connected; where it is not
//!   so, nothing is lowered.
//!
//! # Why
//! A function that lets its labels out is compiled at a higher tier at once, and keeps that
//! version: there is nothing to be gained here for it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use uruk_baseline::ir::{Block, Cast, IntOp, Op, Operand, Term, Type};
use uruk_bitcode::ir::{
    self as bitcode, BlockId, Constant, Definition, GlobalKind, Instruction, Linkage, ValueId,
};

use crate::flow::UNREACHED;
use crate::intrinsics::Becomes;
use crate::reading::{Covered, Reading};
use crate::{Named, Refused};

/// Bytes of an entry.
const ENTRY: i64 = 8;

/// Labels that are met, and jumps.
#[derive(Default)]
pub(crate) struct Jumps {
    /// What each number stands for.
    blocks: Vec<Block>,
    /// The first number of each block.
    numbers: FxHashMap<Block, u32>,
    /// The first number of each table, by global.
    tables: FxHashMap<u32, u32>,
    /// What addresses of entries are loaded as.
    places: FxHashMap<ValueId, Operand>,
    /// Loads of them, and constant labels.
    sources: Vec<ValueId>,
    /// Jumps: by what, and where they are.
    jumps: Vec<(ValueId, u32)>,
    /// How many edges lead from a jump to a block, both by place, once jumps are switches.
    edges: FxHashMap<(u32, u32), usize>,
    /// Places of those.
    switches: FxHashSet<u32>,
    /// The instructions that take each value, once somebody asked.
    users: Option<FxHashMap<ValueId, SmallVec<[u32; 4]>>>,
}

impl Jumps {
    /// Gives a number to a block.
    fn add(&mut self, block: Block) -> u32 {
        let number = self.blocks.len() as u32;
        self.blocks.push(block);
        self.numbers.entry(block).or_insert(number);
        number
    }
}

/// Not lowered because of labels.
fn kept<T>() -> Covered<T> {
    Err(Refused::Unread("a label that is kept"))
}

impl<'a> Reading<'a> {
    /// Whether labels were met.
    pub(crate) fn has_labels(&self) -> bool {
        !self.jumps.blocks.is_empty()
    }

    /// The number of the first entry, if a value is a table of this function's labels.
    pub(crate) fn table(&mut self, value: ValueId) -> Covered<Option<u32>> {
        let Some(Definition::Global(global)) = self.definition(value) else {
            return Ok(None);
        };
        let module = self.module;
        let details = match &module.globals[global as usize] {
            it if it.kind != GlobalKind::Variable => None,
            _ => module.details.get(global as usize),
        };
        let is_own = |linkage| matches!(linkage, Linkage::Internal | Linkage::Private);
        let initializer = match details {
            Some(it) if it.is_constant && is_own(it.linkage) => it.initializer,
            _ => None,
        };
        let Some(Definition::Constant(Constant::Aggregate(parts))) =
            initializer.and_then(|it| self.definition(it))
        else {
            return Ok(None);
        };
        let is_label = |&part: &ValueId| {
            let definition = self.definition(part);
            matches!(definition, Some(Definition::Constant(Constant::Label(..))))
        };
        // Where others are labels, it is nothing that can be read here.
        if !parts.first().is_some_and(is_label) {
            return Ok(None);
        }
        if let Some(&first) = self.jumps.tables.get(&global) {
            return Ok(Some(first));
        }
        let first = self.jumps.blocks.len() as u32;
        for &part in parts {
            let Some(Definition::Constant(&Constant::Label(function, block))) =
                self.definition(part)
            else {
                return kept();
            };
            let block = self.block_of(function, block)?;
            self.jumps.add(block);
        }
        self.jumps.tables.insert(global, first);
        Ok(Some(first))
    }

    /// The block of a label.
    fn block_of(&self, function: ValueId, block: BlockId) -> Covered<Block> {
        if self.definition(function) != Some(Definition::Global(self.number)) {
            return Err(Refused::Unread("a label of another function"));
        }
        match self.flow.places.get(block.0 as usize) {
            Some(&place) if place != UNREACHED => Ok(Block(place)),
            _ => Err(Refused::Unread("a label that is not reached")),
        }
    }

    /// What a constant label is, which is the operand of an instruction.
    pub(crate) fn label(
        &mut self,
        value: ValueId,
        function: ValueId,
        block: BlockId,
    ) -> Covered<Operand> {
        let block = self.block_of(function, block)?;
        self.jumps.sources.push(value);
        let known = self.jumps.numbers.get(&block).copied();
        let number = known.unwrap_or_else(|| self.jumps.add(block));
        Ok(Operand::Int(number.into()))
    }

    /// Notes the address of an entry: so many bytes and these terms behind the table that begins
    /// with `first`.
    pub(crate) fn entry(
        &mut self,
        it: &Instruction,
        first: u32,
        bytes: i64,
        terms: &[Term],
    ) -> Covered<()> {
        let Some(place) = it.result else {
            return kept();
        };
        let whole = bytes % ENTRY == 0 && terms.iter().all(|term| term.scale == ENTRY as u64);
        if !whole || !self.is_only_loaded(place) {
            return kept();
        }
        let start = i64::from(first).wrapping_add(bytes / ENTRY) as u64;
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
            _ => return kept(),
        };
        self.jumps.places.insert(place, number);
        Ok(())
    }

    /// What a load gives, if it is of a table's entry.
    pub(crate) fn loaded_label(&mut self, it: &Instruction) -> Covered<Option<Operand>> {
        let [address] = self.operands(it)?;
        let number = match self.jumps.places.get(&address) {
            Some(number) => Some(*number),
            None => self.table(address)?.map(|first| Operand::Int(first.into())),
        };
        if let (Some(_), Some(result)) = (number, it.result) {
            self.jumps.sources.push(result);
        }
        Ok(number)
    }

    /// A jump to what may be a label.
    pub(crate) fn indirect(&mut self, it: &Instruction) -> Covered<()> {
        let [value] = self.operands(it)?;
        let address = self.address(value)?;
        self.jumps.jumps.push((value, self.block));
        self.end(Op::IndirectJump(address))
    }

    /// Makes switches of jumps, if labels were met.
    pub(crate) fn number_jumps(&mut self) -> Covered<()> {
        if self.jumps.jumps.is_empty() && !self.has_labels() {
            return Ok(());
        }
        self.number_labels_of_phis()?;
        if !self.has_labels() {
            return Ok(());
        }
        if !self.are_apart() {
            return kept();
        }
        for at in 0..self.jumps.jumps.len() {
            let (_, place) = self.jumps.jumps[at];
            let data = &mut self.out.blocks[place as usize];
            let end = data.instructions.end as usize - 1;
            let listed: FxHashSet<Block> = data.successors.iter().copied().collect();
            let numbers = (0u64..).zip(self.jumps.blocks.iter().copied());
            // A jump to what it does not list is undefined.
            let cases = numbers.filter(|(_, block)| listed.contains(block));
            let (values, blocks): (Vec<u64>, SmallVec<[Block; 2]>) = cases.unzip();
            let Some(&first) = blocks.first() else {
                return kept();
            };
            data.successors = std::iter::once(first).chain(blocks).collect();
            self.jumps.switches.insert(place);
            for to in &data.successors {
                *self.jumps.edges.entry((place, to.0)).or_insert(0) += 1;
            }
            let instruction = &mut self.out.instructions[end];
            if let Op::IndirectJump(number) = instruction.op {
                instruction.op = Op::Switch(Type::PTR, number, values);
            }
        }
        Ok(())
    }

    /// Gives numbers to labels that only phis name, which are read last.
    fn number_labels_of_phis(&mut self) -> Covered<()> {
        for at in 0..self.phis.len() {
            let (phi, _) = self.phis[at];
            let body = self.body;
            for &value in body.operands_of(&body.instructions[phi as usize]) {
                if let Some(Definition::Constant(Constant::Label(..))) = self.definition(value) {
                    self.scalars(value)?;
                }
            }
        }
        Ok(())
    }

    /// How many edges lead from a block to another, both by place, where that is not what the body
    /// says.
    pub(crate) fn numbered_edges(&self, from: u32, to: u32) -> Option<usize> {
        let edges = &self.jumps.edges;
        let is_one = self.jumps.switches.contains(&from);
        is_one.then(|| edges.get(&(from, to)).copied().unwrap_or(0))
    }

    /// The instructions that take a value.
    fn users_of(&mut self, value: ValueId) -> SmallVec<[u32; 4]> {
        let body = self.body;
        let users = self.jumps.users.get_or_insert_with(|| {
            let mut users: FxHashMap<ValueId, SmallVec<[u32; 4]>> = FxHashMap::default();
            for (at, it) in (0..).zip(&body.instructions) {
                for &operand in body.operands_of(it) {
                    users.entry(operand).or_default().push(at);
                }
            }
            users
        });
        users.get(&value).cloned().unwrap_or_default()
    }

    fn is_only_loaded(&mut self, address: ValueId) -> bool {
        let body = self.body;
        let is_load = |at: u32| {
            let op = &body.instructions[at as usize].op;
            matches!(op, bitcode::Op::Load { .. })
        };
        self.users_of(address).into_iter().all(is_load)
    }

    /// Whether numbers and addresses do not meet: all values connected with tables and jumps are
    /// of those that only pass numbers on.
    fn are_apart(&mut self) -> bool {
        let mut open = self.jumps.sources.clone();
        open.extend(self.jumps.jumps.iter().map(|(by, _)| *by));
        let mut seen: FxHashSet<ValueId> = FxHashSet::default();
        while let Some(value) = open.pop() {
            if seen.insert(value) && !self.passes_on(value, &mut open) {
                return false;
            }
        }
        true
    }

    /// Whether a value is a number that is only passed on; what it is connected with is added.
    fn passes_on(&mut self, value: ValueId, open: &mut Vec<ValueId>) -> bool {
        use bitcode::Op as O;
        match self.definition(value) {
            Some(Definition::Constant(Constant::Label(..))) => {}
            Some(Definition::Constant(Constant::Undef | Constant::Poison)) => return true,
            Some(Definition::Result(_)) => {
                let Some(made) = self.body.maker(value) else {
                    return false;
                };
                let operands = self.body.operands_of(made);
                match (&made.op, operands) {
                    (O::Phi(_) | O::Freeze, _) => open.extend(operands),
                    (O::Select, [a, b, _]) => open.extend([a, b]),
                    (O::Load { .. }, &[from]) => {
                        let is_entry = self.jumps.places.contains_key(&from)
                            || matches!(self.table(from), Ok(Some(_)));
                        if !is_entry && !self.add_variable(from, open) {
                            return false;
                        }
                    }
                    _ => return false,
                }
            }
            _ => return false,
        }
        self.users_of(value).into_iter().all(|at| {
            let user = &self.body.instructions[at as usize];
            match (&user.op, self.body.operands_of(user)) {
                (O::IndirectBranch(_), _) => true,
                (O::Phi(_) | O::Select | O::Freeze, _) => {
                    open.extend(user.result);
                    true
                }
                (O::Store { .. }, &[to, stored]) if stored == value && to != value => {
                    self.add_variable(to, open)
                }
                _ => false,
            }
        })
    }

    /// Whether a value is a variable of the frame that is only loaded and stored; then what is
    /// loaded from it and what is stored there is added.
    fn add_variable(&mut self, value: ValueId, open: &mut Vec<ValueId>) -> bool {
        use bitcode::Op as O;
        let maker = self.body.maker(value);
        if !maker.is_some_and(|it| matches!(it.op, O::Alloca { .. })) {
            return false;
        }
        self.users_of(value).into_iter().all(|at| {
            let user = &self.body.instructions[at as usize];
            match (&user.op, self.body.operands_of(user)) {
                (O::Load { .. }, _) => {
                    open.extend(user.result);
                    true
                }
                (O::Store { .. }, &[to, stored]) if stored != value && to == value => {
                    open.push(stored);
                    true
                }
                (O::Call(_), &[callee, ..]) => self.is_marker(callee),
                _ => false,
            }
        })
    }

    /// Whether a callee is an intrinsic that does nothing.
    fn is_marker(&self, callee: ValueId) -> bool {
        match self.definition(callee) {
            Some(Definition::Global(global)) => matches!(
                self.lowering.named[global as usize],
                Named::Intrinsic(Becomes::Nothing)
            ),
            _ => false,
        }
    }
}
