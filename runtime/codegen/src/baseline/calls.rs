//! Calls: whom, with what, and how it is passed.
//!
//! What a call says of its arguments and what its callee's declaration says count both, as for
//! LLVM's own code. A callee is looked at once in each function.

use inkwell::llvm_sys::core::{
    LLVMGetCalledFunctionType, LLVMGetCalledValue, LLVMGetInstructionCallConv,
    LLVMGetNumArgOperands, LLVMGetNumOperandBundles, LLVMGetTailCallKind, LLVMIsAInlineAsm,
    LLVMIsFunctionVarArg, LLVMTypeOf,
};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMTailCallKind};
use rustc_hash::FxHashMap;
use uruk_baseline::ir::{Argument, Call, Callee, Function, Op, Passing, Symbol, Tail, Type};

use super::assembly;
use super::attributes::{Passed, Says};
use super::intrinsics::{self, Becomes};
use super::reading::{Covered, Reading, not};
use super::types::{Known, Shape};
use crate::handles::{InstructionRef, TypeRef, ValueRef};
use crate::reader::Verify;
use crate::summary::SymbolId;

/// Whom calls of one function reach.
#[derive(Default)]
pub(super) struct Callees {
    known: FxHashMap<usize, Target>,
    /// What declarations say of results and arguments, one function's behind the other.
    passed: Vec<Passed>,
    pub(super) symbols: FxHashMap<SymbolId, Symbol>,
}

impl Callees {
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.passed.clear();
        self.symbols.clear();
    }
}

/// What is called.
#[derive(Clone, Copy)]
enum Target {
    Function(Named),
    Intrinsic(Becomes),
    /// What is computed.
    Value,
    /// No machine code.
    Empty,
    Not(&'static str),
}

/// A function that is called by its name.
#[derive(Clone, Copy)]
struct Named {
    symbol: Symbol,
    /// It counts as a call for whoever measures.
    counts: bool,
    returns_twice: bool,
    /// Where what it says of its result and its arguments begins, and how many it says it of.
    passed: (u32, u32),
}

/// Whether values are passed as in C.
pub(super) fn convention(number: u32) -> Covered<()> {
    /// `ccc`, `fastcc`, `coldcc`, and the one of System V, by LLVM's numbers.
    const AS_C: [u32; 4] = [0, 8, 9, 78];
    match AS_C.contains(&number) {
        true => Ok(()),
        false => not("a calling convention"),
    }
}

impl<'m> Reading<'_, 'm> {
    pub(super) fn call(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: a call.
        let callee = unsafe { ValueRef::of(LLVMGetCalledValue(it.raw())) };
        match self.target(callee) {
            Target::Intrinsic(becomes) => self.intrinsic(it, becomes),
            Target::Empty => self.empty_assembly(it, callee),
            target => {
                let call = self.ordinary(it, callee, target)?;
                // SAFETY: a call.
                let kind = unsafe { LLVMGetTailCallKind(it.raw()) };
                let must = kind == LLVMTailCallKind::LLVMTailCallKindMustTail;
                if must && self.out.is_variadic {
                    return not("a tail call that passes variable arguments on");
                }
                let tail = if must { Tail::Must } else { Tail::No };
                self.emit_for(it, Op::Call(Box::new(Call { tail, ..call })))
            }
        }
    }

    pub(super) fn invoke(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: such a call.
        let callee = unsafe { ValueRef::of(LLVMGetCalledValue(it.raw())) };
        match self.target(callee) {
            Target::Intrinsic(_) => not("an intrinsic that is invoked"),
            Target::Empty => not("assembly"),
            target => {
                let call = self.ordinary(it, callee, target)?;
                self.emit_for(it, Op::Invoke(Box::new(call)))
            }
        }
    }

    /// Whom a call of `callee` reaches.
    fn target(&mut self, callee: ValueRef<'m>) -> Target {
        let key = callee.raw() as usize;
        if let Some(&known) = self.known.callees.known.get(&key) {
            return known;
        }
        if self.known.values.get(key).is_some_and(|it| it.count == 1) && !callee.is_global() {
            return Target::Value;
        }
        let target = self.look_at(callee);
        self.known.callees.known.insert(key, target);
        target
    }

    fn look_at(&mut self, callee: ValueRef<'m>) -> Target {
        let Some(function) = callee.as_function() else {
            // SAFETY: a live value.
            if unsafe { !LLVMIsAInlineAsm(callee.raw()).is_null() } {
                return match assembly::is_empty(callee) {
                    true => Target::Empty,
                    false => Target::Not("assembly"),
                };
            }
            return match callee.is_global() {
                true => self.named(callee).unwrap_or_else(Target::Not),
                false => Target::Value,
            };
        };
        match function.intrinsic() {
            0 if self.source.is_inline_body(callee) && !self.may_be_called(callee) => {
                Target::Not("a function that is always inlined")
            }
            0 => self.named(callee).unwrap_or_else(Target::Not),
            number => intrinsics::becomes(number).map_or_else(Target::Not, Target::Intrinsic),
        }
    }

    /// Whether an `alwaysinline` function does the same where it is called: it has code of its own,
    /// and asks for nothing of the frame that it would be in.
    fn may_be_called(&self, callee: ValueRef<'m>) -> bool {
        let id = self.source.id(callee);
        let has_code = id.is_some_and(|id| self.source.plan.import(id).defined);
        has_code && self.minds_no_frame(callee, 0)
    }

    fn minds_no_frame(&self, callee: ValueRef<'m>, depth: u32) -> bool {
        /// Functions inlined in each other, at most.
        const DEPTH: u32 = 8;
        let Some(function) = callee.as_function().filter(|_| depth < DEPTH) else {
            return false;
        };
        let reader = self.source.reader;
        if reader.materialize(function, Verify::Yes).is_err() {
            return false;
        }
        let mut called = function.instructions().filter_map(InstructionRef::callee);
        called.all(|callee| match callee.as_function() {
            Some(function) if function.is_intrinsic() => {
                !intrinsics::minds_frame(function.intrinsic())
            }
            Some(_) if self.source.is_inline_body(callee) => self.minds_no_frame(callee, depth + 1),
            _ => true,
        })
    }

    fn named(&mut self, callee: ValueRef<'m>) -> Result<Target, &'static str> {
        let symbol = self.symbol(callee).map_err(|it| it.what)?;
        let mut named = Named {
            symbol,
            counts: false,
            returns_twice: false,
            passed: (0, 0),
        };
        if let Some(function) = callee.as_function() {
            named.counts = true;
            let first = self.known.callees.passed.len() as u32;
            let attributes = &mut self.known.attributes;
            attributes.of_function(function, LLVMAttributeFunctionIndex, |says| {
                named.returns_twice |= says == Says::ReturnsTwice;
            });
            // SAFETY: a live function.
            let count = unsafe { inkwell::llvm_sys::core::LLVMCountParams(function.raw()) };
            for index in 0..=count {
                let passed = attributes.passed(function, index);
                self.known.callees.passed.push(passed);
            }
            named.passed = (first, count + 1);
        }
        Ok(Target::Function(named))
    }

    /// A call of something that has code.
    fn ordinary(
        &mut self,
        it: InstructionRef<'m>,
        callee: ValueRef<'m>,
        target: Target,
    ) -> Covered<Call> {
        // SAFETY: a call.
        let (number, bundles, count, is_variadic, returns) = unsafe {
            let ty = LLVMGetCalledFunctionType(it.raw());
            (
                LLVMGetInstructionCallConv(it.raw()),
                LLVMGetNumOperandBundles(it.raw()),
                LLVMGetNumArgOperands(it.raw()),
                LLVMIsFunctionVarArg(ty) != 0,
                TypeRef::of(LLVMTypeOf(it.raw())),
            )
        };
        convention(number)?;
        if bundles != 0 {
            return not("a bundle of operands");
        }
        let (to, named) = match target {
            Target::Function(named) => (Callee::Symbol(named.symbol), Some(named)),
            Target::Not(what) => return not(what),
            _ => (Callee::Operand(self.one(callee)?), None),
        };
        let (first, described) = named.map_or((0, 0), |it| it.passed);
        let mut call = Call {
            callee: to,
            arguments: Vec::with_capacity(count as usize),
            returns: Default::default(),
            is_variadic,
            tail: Tail::No,
            returns_twice: self.returns_twice(it, named)?,
        };
        self.notes.calls += u32::from(named.is_some_and(|it| it.counts));
        for index in 0..=count {
            let mut passed = match index < described {
                true => self.known.callees.passed[(first + index) as usize],
                false => Passed::default(),
            };
            self.known.attributes.passed_by(it, index, &mut passed);
            if index == 0 {
                call.returns = self.returned(returns, passed)?;
                continue;
            }
            self.argument(it, index - 1, passed, &mut call.arguments)?;
        }
        Ok(call)
    }

    /// Whether a call may return twice.
    fn returns_twice(&mut self, it: InstructionRef<'m>, named: Option<Named>) -> Covered<bool> {
        let mut twice = named.is_some_and(|it| it.returns_twice);
        let mut not_covered = None;
        let attributes = &mut self.known.attributes;
        attributes.of_call(it, LLVMAttributeFunctionIndex, |says| match says {
            Says::ReturnsTwice => twice = true,
            Says::Not(what) => not_covered = Some(what),
            _ => {}
        });
        not_covered.map_or(Ok(twice), not)
    }

    /// Adds the scalars of an argument.
    fn argument(
        &mut self,
        it: InstructionRef<'m>,
        index: u32,
        passed: Passed,
        into: &mut Vec<Argument>,
    ) -> Covered<()> {
        let value = self.operand(it, index);
        let known = self.known_type(value);
        let scalars = self.scalars(value)?;
        self.passing(known, passed, |_, ty, passing, _| {
            // The operand comes below.
            let operand = uruk_baseline::ir::Operand::Undef;
            into.push(Argument {
                operand,
                ty,
                passing,
            });
        })?;
        let operands = self.known.values.of(scalars);
        let start = into.len().saturating_sub(operands.len());
        for (argument, operand) in into[start..].iter_mut().zip(operands) {
            argument.operand = *operand;
        }
        Ok(())
    }

    /// Tells how each scalar of a parameter or argument is passed.
    pub(super) fn passing(
        &mut self,
        known: Known,
        passed: Passed,
        mut each: impl FnMut(usize, Type, Passing, &mut Function),
    ) -> Covered<()> {
        if let Some(what) = passed.not {
            return not(what);
        }
        let whole = if let Some(ty) = passed.by_value {
            // SAFETY: a live type.
            let copied = self.known.types.know(unsafe { TypeRef::of(ty) });
            let info = self.known.types.info(copied);
            let align = match (passed.stack_align, passed.align) {
                (0, 0) => info.align.max(8),
                (0, align) | (align, _) => align.max(8),
            };
            let size = u32::try_from(info.size).ok().filter(|&it| it < 1 << 30);
            let Some(size) = size else {
                return not("a very large argument");
            };
            Some(Passing::Memory { size, align })
        } else if passed.is_result {
            Some(Passing::Result)
        } else if passed.is_nest {
            Some(Passing::Nest)
        } else {
            None
        };
        if self.known.types.by_lanes
            && let Shape::Vector { .. } = self.shape_of(known)
        {
            return not("a vector that is passed");
        }
        for at in 0..self.leaves(known)?.len() {
            let leaf = self.leaves(known)?[at];
            let passing = match (whole, passed.extension, leaf.ty) {
                (Some(passing), ..) => passing,
                _ if leaf.paired => Passing::Paired,
                (_, Some(extension), Type::Int(..64)) => match extension {
                    uruk_baseline::ir::Extension::Sign => Passing::SignExtended,
                    uruk_baseline::ir::Extension::Zero => Passing::ZeroExtended,
                },
                _ => Passing::Plain,
            };
            each(at, leaf.ty, passing, &mut self.out);
        }
        Ok(())
    }
}
