//! State of reading one function.
//!
//! Blocks are read in reverse postorder, so that all dominators of a use have been read before it,
//! and unreachable blocks are never read. Operands of phis are read at the end.

use std::cell::Cell;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use uruk_baseline::Uncovered;
use uruk_baseline::ir::{
    Block, BlockData, Extension, Function, Instruction, NO_LINE, Op, Operand, Parameter, Returned,
    Symbol, Type, Value,
};
use uruk_bitcode::ir::{self as bitcode, Body, Global, Module, TypeId, ValueId};
use uruk_leaving::Anatomy;

pub(crate) use crate::refused::{Covered, TYPES, invalid, not};

use crate::attributes::Passed;
use crate::flow::Flow;
use crate::jumps::Jumps;
use crate::types::{Leaf, Shape};
use crate::values::{EVERYWHERE, Scalars, Values};
use crate::{Buffers, Lowered, Lowering, Outside, Refused, Wanted};

/// The function, as far as it was read.
pub(crate) struct Reading<'a> {
    /// The type of exceptions, once one was met.
    pub(crate) pad: Cell<Option<TypeId>>,
    pub(crate) lowering: &'a Lowering,
    pub(crate) module: &'a Module,
    pub(crate) body: &'a Body,
    pub(crate) outside: &'a dyn Outside,
    pub(crate) values: &'a mut Values,
    pub(crate) flow: &'a mut Flow,
    pub(crate) global: &'a Global,
    /// Its number.
    pub(crate) number: u32,
    /// Its result's type.
    pub(crate) returns: TypeId,
    pub(crate) out: Function,
    /// The place of the block that is being read.
    pub(crate) block: u32,
    /// The first of the block's instructions that is no phi.
    pub(crate) first: u32,
    /// Phis, with the first of the instructions they became.
    pub(crate) phis: &'a mut Vec<(u32, u32)>,
    pub(crate) edges: &'a mut Vec<(u32, u32)>,
    pub(crate) anatomy: &'a mut Anatomy,
    /// Operands of phis are read: no instruction may be added.
    pub(crate) at_edges: bool,
    /// Parts of constant expressions that were visited.
    pub(crate) parts: u32,
    /// Functions that the compiler's code calls by name.
    pub(crate) libraries: FxHashMap<Box<str>, Symbol>,
    /// Bytes of the frame that vectors pass through.
    pub(crate) room: Option<Operand>,
    pub(crate) jumps: Jumps,
    pub(crate) notes: Notes,
}

/// Properties noted while reading.
#[derive(Default)]
pub(crate) struct Notes {
    /// Instructions of the body.
    pub(crate) instructions: u32,
    /// Calls of named functions.
    pub(crate) calls: u32,
    /// It restores stack pointers.
    pub(crate) restores: bool,
    /// Arrays are to be guarded.
    guarded: bool,
    /// Bytes of its frame, as far as its IR shows.
    pub(crate) frame: u64,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        lowering: &'a Lowering,
        body: &'a Body,
        number: u32,
        outside: &'a dyn Outside,
        buffers: &'a mut Buffers,
    ) -> Covered<Reading<'a>> {
        let module = &*lowering.module;
        let Some(global) = module.globals.get(number as usize) else {
            return invalid("no such function");
        };
        let bitcode::Type::Function(returns, ref parameters, is_variadic) = *module.ty(global.ty)
        else {
            return invalid("no such function");
        };
        if body.blocks.is_empty() || parameters.len() != body.parameters as usize {
            return invalid("no such body");
        }
        let Buffers {
            values,
            flow,
            phis,
            edges,
            anatomy,
            spare,
        } = buffers;
        values.start(body.first as usize + body.types.len(), module.globals.len());
        flow.look(body);
        phis.clear();
        Ok(Reading {
            pad: Cell::default(),
            lowering,
            module,
            body,
            outside,
            values,
            flow,
            global,
            number,
            returns,
            out: Function {
                is_variadic,
                ..std::mem::take(spare)
            },
            block: 0,
            first: 0,
            phis,
            edges,
            anatomy,
            at_edges: false,
            parts: 0,
            libraries: FxHashMap::default(),
            room: None,
            jumps: Jumps::default(),
            notes: Notes::default(),
        })
    }

    /// Reads the whole function.
    pub(crate) fn run(mut self, wanted: Wanted<'_>) -> Covered<Lowered> {
        let loops = self.flow.loops();
        self.head()?;
        let reached = self.flow.order.len();
        self.out.blocks.reserve(reached);
        let most = self.body.instructions.len();
        self.out.instructions.reserve(most + most / 8);
        self.out.types.reserve(most);
        for place in 0..reached as u32 {
            self.block(place)?;
        }
        self.check_unreached()?;
        self.notes.instructions += most as u32;
        self.fill_phis()?;
        if self.notes.guarded && self.notes.frame > 8 {
            return not("a guarded stack");
        }
        let heads = self.count(wanted)?;
        Ok(Lowered {
            instructions: self.notes.instructions,
            calls: self.notes.calls,
            loops,
            nested: self.flow.is_nested(),
            keeps_stack: !self.notes.restores,
            counts: wanted.counters.is_some(),
            heads,
            has_labels: self.has_labels(),
            function: self.out,
        })
    }

    /// Reads the attributes of the function as a whole, its parameters and its result.
    fn head(&mut self) -> Covered<()> {
        let whole = self.lowering.lists.whole(self.global.attributes);
        self.out.probes_stack = whole.probes_stack;
        self.notes.guarded = whole.guarded;
        if let Some(what) = whole.not {
            return not(what);
        }
        if whole.stack_align {
            return not("a stack of another alignment");
        }
        if self.global.is_special {
            return not("a collector of garbage, or data at a function");
        }
        if let Some(personality) = self.global.personality {
            if personality.0 >= self.body.first {
                return invalid("an unusual personality");
            }
            match self.one(personality)? {
                Operand::Address(symbol, 0) => self.out.personality = Some(symbol),
                _ => return not("an unusual personality"),
            }
        }
        crate::signatures::convention(self.global.convention)?;
        let own = &self.body.types[..self.body.parameters as usize];
        let mut own = own.iter().map(|&ty| Some(ty));
        let returns = Some(self.returns).filter(|&ty| *self.module.ty(ty) != bitcode::Type::Void);
        self.check_attributes(self.global.attributes, returns, &mut own)?;
        let passed = self.passed(0);
        let mut returns = self.returned(self.returns, passed)?;
        if let [
            Returned {
                ty: Type::Int(1),
                extension,
            },
        ] = &mut returns[..]
        {
            // Callers in C read a `bool` from eight bits.
            extension.get_or_insert(Extension::Zero);
        }
        self.out.returns.extend(returns);
        for index in 0..self.body.parameters {
            let passed = self.passed(index + 1);
            let first = self.out.parameters.len() as u32;
            let ty = self.body.types[index as usize];
            self.passing(ty, passed, |ty, passing, out| {
                out.parameters.push(Parameter { ty, passing });
                out.types.push(ty);
            })?;
            let last = self.out.parameters.len() as u32;
            let scalars = self
                .values
                .add((first..last).map(|it| Operand::Value(Value(it))));
            self.values
                .set(self.body.first + index, EVERYWHERE, scalars);
        }
        Ok(())
    }

    fn passed(&self, index: u32) -> Passed {
        self.lowering.lists.passed(self.global.attributes, index)
    }

    fn block(&mut self, place: u32) -> Covered<()> {
        self.block = place;
        let block = self.flow.order[place as usize];
        let range = self.body.blocks[block as usize].clone();
        let all = &self.body.instructions[range.start as usize..range.end as usize];
        let phis = all
            .iter()
            .take_while(|it| matches!(it.op, bitcode::Op::Phi(_)));
        let phis = phis.count() as u32;
        self.first = range.start + phis;
        if place == 0 && phis != 0 {
            return invalid("a phi in the entry");
        }
        let start = self.out.instructions.len() as u32;
        if place == 0 {
            self.take_vectors()?;
        }
        for (at, it) in range.zip(all) {
            self.instruction(at, it)?;
        }
        let successors: SmallVec<[Block; 2]> = match all.last().map(|it| &it.op) {
            Some(bitcode::Op::IndirectBranch(to)) => self.jump_successors(to),
            _ => {
                let successors = self.flow.successors(block).iter();
                let places = successors.map(|&to| Block(self.flow.places[to as usize]));
                places.collect()
            }
        };
        if successors.contains(&Block(0)) {
            return invalid("an edge to the entry");
        }
        self.out.blocks.push(BlockData {
            instructions: start..self.out.instructions.len() as u32,
            successors,
        });
        Ok(())
    }

    fn instruction(&mut self, at: u32, it: &'a bitcode::Instruction) -> Covered<()> {
        use bitcode::Op as O;
        self.check(it)?;
        match &it.op {
            O::Load {
                align,
                volatile,
                ordering,
            } => self.load(it, *align, *volatile, *ordering),
            O::Store {
                align,
                volatile,
                ordering,
            } => self.store(it, *align, *volatile, *ordering),
            O::GetElementPtr(of) => self.element(it, *of),
            O::Alloca {
                of,
                align,
                is_special,
            } => self.alloca(it, *of, *align, *is_special),
            O::Call(call) => self.call(it, call),
            O::Jump(_) => self.end(Op::Jump),
            O::Branch(_) => self.branch(it),
            O::Phi(from) => self.phi(at, it, from.len()),
            O::Compare(predicate) => self.compare(it, *predicate),
            O::Select => self.select(it),
            O::Return => self.ret(it),
            O::Invoke(call, to) => self.invoke(it, call, *to),
            O::Switch(to) => self.switch(it, to.len()),
            O::Unreachable => self.end(Op::Unreachable),
            O::LandingPad(cleanup, filters) => self.landing_pad(at, it, *cleanup, filters),
            O::Resume => self.resume(it),
            O::IndirectBranch(to) => self.indirect(it, to),
            O::ExtractValue(path) => self.extract(it, path),
            O::InsertValue(path) => self.insert(it, path),
            O::Freeze => self.freeze(it),
            O::FNeg(_) => self.negate(it),
            O::Rmw { op, align, .. } => self.rmw(it, *op, *align),
            O::CompareExchange { align, .. } => self.compare_exchange(it, *align),
            O::Fence(ordering) => self.fence(*ordering),
            O::VaArg => self.va_arg(it),
            O::Cast(op) => self.cast(it, *op),
            O::Binary(op, _) => self.binary(it, *op),
            O::ExtractElement => self.extract_lane(it),
            O::InsertElement => self.insert_lane(it),
            O::ShuffleVector => self.shuffle(it),
            O::Other(_) => Err(Refused::Unread("an unusual instruction")),
        }
    }

    /// Adds an instruction; returns its results.
    pub(crate) fn emit(&mut self, op: Op) -> std::ops::Range<u32> {
        let first = self.out.types.len() as u32;
        self.out.types.extend(op.results());
        let results = first..self.out.types.len() as u32;
        self.out.instructions.push(Instruction {
            op,
            results: results.clone(),
            line: NO_LINE,
        });
        results
    }

    /// Adds an instruction with one result.
    pub(crate) fn emit_one(&mut self, op: Op) -> Operand {
        Operand::Value(Value(self.emit(op).start))
    }

    /// Adds an instruction without a result.
    pub(crate) fn end(&mut self, op: Op) -> Covered<()> {
        self.emit(op);
        Ok(())
    }

    /// Whether instructions may be added now.
    pub(crate) fn may_emit(&self) -> bool {
        !self.at_edges
    }

    /// Makes new values the scalars of an instruction's result.
    pub(crate) fn define(
        &mut self,
        it: &bitcode::Instruction,
        values: std::ops::Range<u32>,
    ) -> Covered<()> {
        let scalars = self.values.add(values.map(|it| Operand::Value(Value(it))));
        self.bind(it, scalars)
    }

    /// Makes operands the scalars of an instruction's result.
    pub(crate) fn stand(
        &mut self,
        it: &bitcode::Instruction,
        operands: impl IntoIterator<Item = Operand>,
    ) -> Covered<()> {
        let scalars = self.values.add(operands);
        self.bind(it, scalars)
    }

    /// Makes scalars those of an instruction's result; checks them against its type.
    pub(crate) fn bind(&mut self, it: &bitcode::Instruction, scalars: Scalars) -> Covered<()> {
        let Some(result) = it.result else {
            return match scalars.count {
                0 => Ok(()),
                _ => invalid(TYPES),
            };
        };
        let ty = self.type_of(result)?;
        let leaves = self.leaves(ty)?;
        let operands = self.values.of(scalars);
        let mut pairs = leaves.iter().zip(operands);
        let fit = leaves.len() == operands.len()
            && pairs.all(|(leaf, operand)| match operand {
                Operand::Value(value) => self.out.types[value.index()] == leaf.ty,
                Operand::Int(_) => leaf.ty.is_int(),
                Operand::Float(_) => matches!(leaf.ty, Type::F32 | Type::F64),
                Operand::Wide(_) => matches!(leaf.ty, Type::F80 | Type::V128),
                Operand::Address(..) | Operand::Label(_) => leaf.ty == Type::PTR,
                Operand::Undef => true,
            });
        if !fit || self.shape_of(ty) == Shape::Nothing {
            return invalid(TYPES);
        }
        self.values.set(result.0, self.block, scalars);
        Ok(())
    }

    /// Adds an instruction that replaces one of the body.
    pub(crate) fn emit_for(&mut self, it: &bitcode::Instruction, op: Op) -> Covered<()> {
        let results = self.emit(op);
        self.define(it, results)
    }

    /// The type of a value.
    pub(crate) fn type_of(&self, value: ValueId) -> Covered<TypeId> {
        match self.body.type_of(self.module, value) {
            Some(ty) => Ok(ty),
            None => invalid("a value without a type"),
        }
    }

    /// The type of an instruction's result.
    pub(crate) fn result(&self, it: &bitcode::Instruction) -> Covered<TypeId> {
        match it.result {
            Some(value) => self.type_of(value),
            None => invalid("no result"),
        }
    }

    /// The scalars of a type.
    pub(crate) fn leaves(&self, ty: TypeId) -> Covered<&'a [Leaf]> {
        let lowering: &'a Lowering = self.lowering;
        let leaves = lowering.types.leaves(ty);
        leaves.map_err(|what| Refused::Uncovered(Uncovered { what }))
    }

    pub(crate) fn shape_of(&self, ty: TypeId) -> Shape {
        self.lowering.types.info(ty).shape
    }

    /// A type of one scalar.
    pub(crate) fn scalar(&self, ty: TypeId) -> Covered<Type> {
        match self.shape_of(ty) {
            Shape::Scalar(ty) => Ok(ty),
            _ => {
                self.leaves(ty)?;
                not("an operation on an aggregate")
            }
        }
    }

    /// The type of a result of one scalar.
    pub(crate) fn scalar_result(&self, it: &bitcode::Instruction) -> Covered<Type> {
        self.scalar(self.result(it)?)
    }
}
