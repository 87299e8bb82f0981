//! One function that is being read: what was made of it so far.
//!
//! Blocks are read in reverse postorder, so that whatever dominates a use has been read before
//! it, and what cannot be reached is never read. Operands of phis are read at the end.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMCountIncoming, LLVMGetFirstParam, LLVMGetFunctionCallConv, LLVMGetGC, LLVMGetIncomingBlock,
    LLVMGetIncomingValue, LLVMGetInstructionParent, LLVMGetNextParam, LLVMGetPersonalityFn,
    LLVMGetReturnType, LLVMGlobalGetValueType, LLVMHasPersonalityFn, LLVMHasPrefixData,
    LLVMHasPrologueData, LLVMIsFunctionVarArg, LLVMTypeOf,
};
use smallvec::SmallVec;
use uruk_baseline::Uncovered;
use uruk_baseline::ir::{
    Block, BlockData, Function, Instruction, NO_LINE, Op, Operand, Parameter, Returned, Symbol,
    Type, Value,
};

use super::attributes::{Attributes, Passed, Says};
use super::calls::Callees;
use super::jumps::Jumps;
use super::types::{Known, Shape as TypeShape, Types};
use super::values::{Scalars, Values};
use crate::handles::{FunctionRef, InstructionRef, TypeRef, ValueRef};
use crate::shape::Shape;
use crate::source::Source;

/// What is found out of a context, and buffers: kept from function to function.
pub(crate) struct Findings {
    pub(super) types: Types,
    pub(super) attributes: Attributes,
    pub(super) values: Values,
    pub(super) callees: Callees,
    /// A function that was compiled, for the room it has.
    pub(super) room: Function,
}

impl Default for Findings {
    fn default() -> Findings {
        Findings {
            types: Types::new(),
            attributes: Attributes::new(),
            values: Values::new(),
            callees: Callees::default(),
            room: Function::default(),
        }
    }
}

/// Why something is not covered, where there is a result otherwise.
pub(super) type Covered<T> = Result<T, Uncovered>;

/// Not covered.
pub(super) fn not<T>(what: &'static str) -> Covered<T> {
    Err(Uncovered { what })
}

/// The function, as far as it was read.
pub(super) struct Reading<'a, 'm> {
    pub(super) source: Source<'m>,
    pub(super) known: &'a mut Findings,
    pub(super) function: FunctionRef<'m>,
    pub(super) shape: &'a Shape<'m>,
    pub(super) out: Function,
    /// The place of each block of LLVM's among ours.
    pub(super) numbers: Vec<Option<Block>>,
    /// The block that is being read.
    pub(super) block: Block,
    /// Phis, with the first of the instructions they became.
    phis: Vec<(InstructionRef<'m>, u32)>,
    /// Operands of phis are read: no instruction may be added.
    at_edges: bool,
    pub(super) notes: Notes,
    pub(super) jumps: Jumps<'m>,
}

/// What is noted on the way.
#[derive(Default)]
pub(super) struct Notes {
    /// Instructions of LLVM's.
    pub(super) instructions: u32,
    /// Calls of named functions.
    pub(super) calls: u32,
    /// It names a label of its own.
    pub(super) labels: bool,
    /// It goes back to stack pointers.
    pub(super) restores: bool,
    /// Arrays are to be guarded.
    pub(super) guarded: bool,
    /// Bytes of its frame, as far as LLVM's code says so.
    pub(super) frame: u64,
}

impl<'a, 'm> Reading<'a, 'm> {
    pub(super) fn new(
        source: Source<'m>,
        known: &'a mut Findings,
        function: FunctionRef<'m>,
        shape: &'a Shape<'m>,
    ) -> Reading<'a, 'm> {
        known.values.clear();
        known.callees.clear();
        let out = std::mem::take(&mut known.room);
        Reading {
            source,
            known,
            function,
            shape,
            out,
            numbers: vec![None; shape.flow.blocks.len()],
            block: Block(0),
            phis: Vec::new(),
            at_edges: false,
            notes: Notes::default(),
            jumps: Jumps::default(),
        }
    }

    /// Reads all of it.
    pub(super) fn run(&mut self) -> Covered<()> {
        if self.shape.flow.blocks.is_empty() {
            return not("a function without a body");
        }
        self.head()?;
        let order = self.shape.flow.graph.reverse_postorder();
        for (place, &block) in (0..).zip(&order) {
            self.numbers[block as usize] = Some(Block(place));
            let key = self.shape.flow.blocks[block as usize].raw() as usize;
            let scalars = Scalars {
                first: place,
                count: 0,
            };
            self.known.values.set(key, scalars);
        }
        for &block in &order {
            self.block(block)?;
        }
        for block in (0..self.shape.flow.blocks.len()).filter(|&it| self.numbers[it].is_none()) {
            let instructions = self.shape.flow.blocks[block].instructions();
            self.notes.instructions += instructions.count() as u32;
        }
        self.number_jumps()?;
        self.fill_phis()?;
        match self.notes.guarded && self.notes.frame > 8 {
            true => not("a guarded stack"),
            false => Ok(()),
        }
    }

    /// What is said of the function as a whole, its parameters and its result.
    fn head(&mut self) -> Covered<()> {
        let function = self.function;
        let mut not_covered = None;
        let (mut probes, mut guarded) = (false, false);
        self.known
            .attributes
            .of_function(function, FUNCTION, |says| match says {
                Says::ProbesStack => probes = true,
                Says::Guarded => guarded = true,
                Says::StackAlign(_) => not_covered = Some("a stack of another alignment"),
                Says::Not(what) => not_covered = Some(what),
                _ => {}
            });
        self.out.probes_stack = probes;
        self.notes.guarded = guarded;
        if let Some(what) = not_covered {
            return not(what);
        }
        // SAFETY: a live function, its type, and the type of what it returns.
        let unusual = unsafe {
            match () {
                () if !LLVMGetGC(function.raw()).is_null() => Some("a collector of garbage"),
                () if LLVMHasPrefixData(function.raw()) != 0 => Some("data before a function"),
                () if LLVMHasPrologueData(function.raw()) != 0 => Some("data in a function"),
                () => None,
            }
        };
        if let Some(what) = unusual {
            return not(what);
        }
        // SAFETY: as above.
        let (convention, returns, personality) = unsafe {
            let ty = LLVMGlobalGetValueType(function.raw());
            self.out.is_variadic = LLVMIsFunctionVarArg(ty) != 0;
            let convention = LLVMGetFunctionCallConv(function.raw());
            let has = LLVMHasPersonalityFn(function.raw()) != 0;
            let personality = has.then(|| ValueRef::of(LLVMGetPersonalityFn(function.raw())));
            (convention, TypeRef::of(LLVMGetReturnType(ty)), personality)
        };
        if let Some(personality) = personality {
            match self.one(personality)? {
                Operand::Address(symbol, 0) => self.out.personality = Some(symbol),
                _ => return not("an unusual personality"),
            }
        }
        super::calls::convention(convention)?;
        let passed = self.known.attributes.passed(function, 0);
        let returns = self.returned(returns, passed)?;
        self.out.returns.extend(returns);
        self.parameters()
    }

    fn parameters(&mut self) -> Covered<()> {
        // SAFETY: walks the parameters of a live function to the null end.
        let mut next = unsafe { LLVMGetFirstParam(self.function.raw()) };
        let mut index = 1;
        while !next.is_null() {
            let passed = self.known.attributes.passed(self.function, index);
            // SAFETY: a live parameter and its type.
            let ty = unsafe { TypeRef::of(LLVMTypeOf(next)) };
            let known = self.known.types.know(ty);
            let first = self.out.parameters.len() as u32;
            self.passing(known, passed, |_, ty, passing, out| {
                out.parameters.push(Parameter { ty, passing });
                out.types.push(ty);
            })?;
            let last = self.out.parameters.len() as u32;
            self.define(next as usize, first..last);
            index += 1;
            // SAFETY: see above.
            next = unsafe { LLVMGetNextParam(next) };
        }
        Ok(())
    }

    /// The scalars of a result.
    pub(super) fn returned(
        &mut self,
        ty: TypeRef<'m>,
        passed: Passed,
    ) -> Covered<SmallVec<[Returned; 2]>> {
        if let Some(what) = passed.not {
            return not(what);
        }
        let known = self.known.types.know(ty);
        if self.known.types.by_lanes
            && let TypeShape::Vector { .. } = self.shape_of(known)
        {
            return not("a vector that is passed");
        }
        let leaves = self.leaves(known)?;
        Ok(leaves
            .iter()
            .map(|leaf| Returned {
                ty: leaf.ty,
                extension: passed.extension.filter(|_| leaf.ty.is_int()),
            })
            .collect())
    }

    fn block(&mut self, at: u32) -> Covered<()> {
        let Some(number) = self.numbers[at as usize] else {
            return Ok(());
        };
        self.block = number;
        let start = self.out.instructions.len() as u32;
        for instruction in self.shape.flow.blocks[at as usize].instructions() {
            self.notes.instructions += 1;
            self.instruction(instruction)?;
        }
        let successors = self.shape.flow.graph.successors(at).iter();
        let successors = successors.map(|&to| self.numbers[to as usize].unwrap_or(Block(0)));
        self.out.blocks.push(BlockData {
            instructions: start..self.out.instructions.len() as u32,
            successors: successors.collect(),
        });
        Ok(())
    }

    fn instruction(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        use LLVMOpcode as O;
        let opcode = it.opcode();
        match opcode {
            O::LLVMLoad => self.load(it),
            O::LLVMStore => self.store(it),
            O::LLVMGetElementPtr => self.element(it),
            O::LLVMAlloca => self.alloca(it),
            O::LLVMCall => self.call(it),
            O::LLVMBr => self.branch(it),
            O::LLVMPHI => self.phi(it),
            O::LLVMICmp => self.compare(it),
            O::LLVMFCmp => self.float_compare(it),
            O::LLVMSelect => self.select(it),
            O::LLVMRet => self.ret(it),
            O::LLVMInvoke => self.invoke(it),
            O::LLVMSwitch => self.switch(it),
            O::LLVMUnreachable => self.end(Op::Unreachable),
            O::LLVMLandingPad => self.landing_pad(it),
            O::LLVMResume => self.resume(it),
            O::LLVMIndirectBr => self.indirect(it),
            O::LLVMExtractValue => self.extract(it),
            O::LLVMInsertValue => self.insert(it),
            O::LLVMFreeze => self.freeze(it),
            O::LLVMFNeg => self.negate(it),
            O::LLVMAtomicRMW => self.rmw(it),
            O::LLVMAtomicCmpXchg => self.compare_exchange(it),
            O::LLVMFence => self.fence(it),
            O::LLVMVAArg => self.va_arg(it),
            O::LLVMTrunc
            | O::LLVMZExt
            | O::LLVMSExt
            | O::LLVMFPToUI
            | O::LLVMFPToSI
            | O::LLVMUIToFP
            | O::LLVMSIToFP
            | O::LLVMFPTrunc
            | O::LLVMFPExt
            | O::LLVMPtrToInt
            | O::LLVMPtrToAddr
            | O::LLVMIntToPtr
            | O::LLVMBitCast
            | O::LLVMAddrSpaceCast => self.cast(it, opcode),
            O::LLVMCallBr => not("asm goto"),
            O::LLVMExtractElement | O::LLVMInsertElement | O::LLVMShuffleVector
                if !self.known.types.by_lanes =>
            {
                not("an operation on a vector")
            }
            O::LLVMExtractElement => self.extract_lane(it),
            O::LLVMInsertElement => self.insert_lane(it),
            O::LLVMShuffleVector => self.shuffle(it),
            O::LLVMCleanupRet
            | O::LLVMCatchRet
            | O::LLVMCatchPad
            | O::LLVMCleanupPad
            | O::LLVMCatchSwitch => not("a funclet"),
            _ => self.binary(it, opcode),
        }
    }

    fn phi(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let known = self.known_type(*it);
        let first = self.out.instructions.len() as u32;
        let value = self.out.types.len() as u32;
        for at in 0..self.leaves(known)?.len() {
            let ty = self.leaves(known)?[at].ty;
            self.emit(Op::Phi(ty, Vec::new()));
        }
        self.phis.push((it, first));
        let last = self.out.types.len() as u32;
        self.define(it.raw() as usize, value..last);
        Ok(())
    }

    fn fill_phis(&mut self) -> Covered<()> {
        self.at_edges = true;
        for (phi, first) in std::mem::take(&mut self.phis) {
            // SAFETY: a live phi.
            let count = unsafe { LLVMCountIncoming(phi.raw()) };
            for index in 0..count {
                // SAFETY: an index below the count.
                let (value, from) = unsafe {
                    let from = LLVMGetIncomingBlock(phi.raw(), index) as usize;
                    (ValueRef::of(LLVMGetIncomingValue(phi.raw(), index)), from)
                };
                let Some(from) = self.known.values.get(from) else {
                    // It cannot be reached.
                    continue;
                };
                let scalars = self.scalars(value)?;
                let times = self.edges(Block(from.first), phi, index);
                for at in 0..scalars.count {
                    let operand = self.known.values.of(scalars)[at as usize];
                    let into = &mut self.out.instructions[(first + at) as usize];
                    if let Op::Phi(_, incoming) = &mut into.op {
                        if index == 0 {
                            incoming.reserve_exact(count as usize);
                        }
                        let edge = (Block(from.first), operand);
                        incoming.extend(std::iter::repeat_n(edge, times));
                    }
                }
            }
        }
        Ok(())
    }

    /// How many edges an entry of a phi stands for.
    fn edges(&self, from: Block, phi: InstructionRef<'m>, index: u32) -> usize {
        // SAFETY: a live phi; indices are below its count.
        let block_at = |index| unsafe { LLVMGetIncomingBlock(phi.raw(), index) };
        // SAFETY: as above.
        let block = unsafe { LLVMGetInstructionParent(phi.raw()) };
        let to = self.known.values.get(block as usize);
        let numbered = to.and_then(|to| self.numbered_edges(from, Block(to.first)));
        match numbered {
            None => 1,
            // The first entry of several stands for all.
            Some(_) if (0..index).any(|it| block_at(it) == block_at(index)) => 0,
            Some(count) => count,
        }
    }

    /// Adds an instruction; its results.
    pub(super) fn emit(&mut self, op: Op) -> std::ops::Range<u32> {
        debug_assert!(!self.at_edges);
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
    pub(super) fn emit_one(&mut self, op: Op) -> Operand {
        Operand::Value(Value(self.emit(op).start))
    }

    /// Adds the last instruction of a block.
    pub(super) fn end(&mut self, op: Op) -> Covered<()> {
        self.emit(op);
        Ok(())
    }

    /// Whether instructions may be added now.
    pub(super) fn may_emit(&self) -> bool {
        !self.at_edges
    }

    /// Has values of ours stand for one of LLVM's.
    pub(super) fn define(&mut self, key: usize, values: std::ops::Range<u32>) {
        let operands = values.map(|it| Operand::Value(Value(it)));
        let scalars = self.known.values.add(operands);
        self.known.values.set(key, scalars);
    }

    /// Has operands stand for an instruction.
    pub(super) fn stand(
        &mut self,
        it: InstructionRef<'m>,
        operands: impl IntoIterator<Item = Operand>,
    ) -> Covered<()> {
        let scalars = self.known.values.add(operands);
        self.known.values.set(it.raw() as usize, scalars);
        Ok(())
    }

    /// Adds an instruction that stands for one of LLVM's.
    pub(super) fn emit_for(&mut self, it: InstructionRef<'m>, op: Op) -> Covered<()> {
        let results = self.emit(op);
        self.define(it.raw() as usize, results);
        Ok(())
    }

    /// The type of a value.
    pub(super) fn known_type(&mut self, value: ValueRef<'m>) -> Known {
        // SAFETY: a live value has a type.
        let ty = unsafe { TypeRef::of(LLVMTypeOf(value.raw())) };
        self.known.types.know(ty)
    }

    /// The scalars of a type.
    pub(super) fn leaves(&self, known: Known) -> Covered<&[super::types::Leaf]> {
        self.known
            .types
            .leaves(known)
            .map_err(|what| Uncovered { what })
    }

    pub(super) fn shape_of(&self, known: Known) -> TypeShape {
        self.known.types.info(known).shape
    }

    /// The type of a value of one scalar.
    pub(super) fn scalar_type(&mut self, value: ValueRef<'m>) -> Covered<Type> {
        let known = self.known_type(value);
        match self.shape_of(known) {
            TypeShape::Scalar(ty) => Ok(ty),
            TypeShape::Vector { .. } => not("an operation on a vector"),
            _ => {
                self.leaves(known)?;
                not("an operation on an aggregate")
            }
        }
    }

    /// What is known of a symbol.
    pub(super) fn symbol_data(&self, symbol: Symbol) -> &uruk_baseline::ir::SymbolData {
        &self.out.symbols[symbol.index()]
    }
}

/// The index of a function's own attributes.
const FUNCTION: u32 = inkwell::llvm_sys::LLVMAttributeFunctionIndex;
