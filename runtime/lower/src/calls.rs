//! Calls: callees and arguments. `signatures` decides how arguments are passed.
//!
//! Attributes of the call and of its callee's declaration both apply to arguments, as in LLVM's own
//! code.

use uruk_baseline::ir::{Call, Callee, Op, Symbol, Tail};
use uruk_bitcode::ir::{
    self as bitcode, AttributesId, BlockId, Body, Constant, Definition, GlobalKind, Instruction,
    Module, Type as BitcodeType, ValueId,
};

use crate::Named;
use crate::intrinsics::Becomes;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::rounding::Control;
use crate::values::NOWHERE;

/// The callee of a call.
#[derive(Clone, Copy)]
enum Target {
    /// A function by its name, with the attributes of its declaration; or another name.
    Named(Symbol, Option<AttributesId>),
    Intrinsic(Becomes),
    /// Assembly that reads or writes the x87's control word.
    Control(Control),
    /// Assembly without instructions.
    Nothing,
    /// A computed pointer.
    Value,
}

/// The globals that instructions of a body call by their names.
pub(crate) fn called<'a>(body: &'a Body, module: &'a Module) -> impl Iterator<Item = u32> + 'a {
    let calls = body
        .instructions
        .iter()
        .filter(|it| matches!(it.op, bitcode::Op::Call(_) | bitcode::Op::Invoke(..)));
    let callees = calls.filter_map(|it| body.operands_of(it).first());
    callees.filter_map(|&callee| match body.definition(module, callee)? {
        Definition::Global(global) => Some(global),
        _ => None,
    })
}

impl Reading<'_> {
    pub(crate) fn call(&mut self, it: &Instruction, call: &bitcode::Call) -> Covered<()> {
        let Some((&callee, arguments)) = self.body.operands_of(it).split_first() else {
            return invalid("another number of operands");
        };
        if call.must_tail && !self.is_returned(it) {
            return invalid("a tail call without a return behind it");
        }
        match self.target(callee)? {
            Target::Intrinsic(_) if !self.is_called_as_declared(call, callee) => invalid(TYPES),
            Target::Intrinsic(becomes) => self.intrinsic(it, call, becomes),
            Target::Control(kind) => self.control(it, kind),
            Target::Nothing => self.empty_assembly(it, call, callee),
            target => {
                let made = self.ordinary(call, callee, target, arguments)?;
                if call.must_tail && self.out.is_variadic {
                    return not("a tail call that passes variable arguments on");
                }
                let tail = if call.must_tail { Tail::Must } else { Tail::No };
                let call = Op::Call(Box::new(Call { tail, ..made }));
                match it.result {
                    Some(result) if self.holds_vectors(self.type_of(result)?) => {
                        if tail == Tail::Must {
                            return not("a tail call that gives a vector");
                        }
                        let results = self.emit(call);
                        let lanes = self.unpacked(self.type_of(result)?, results.start)?;
                        self.stand(it, lanes)
                    }
                    _ => self.emit_for(it, call),
                }
            }
        }
    }

    /// Whether a call of an intrinsic has its declared type.
    fn is_called_as_declared(&self, call: &bitcode::Call, callee: ValueId) -> bool {
        let Some(Definition::Global(global)) = self.definition(callee) else {
            return false;
        };
        self.module.globals[global as usize].ty == call.function
    }

    /// Whether a return of the call's result comes right behind it.
    fn is_returned(&self, it: &Instruction) -> bool {
        let block = self.flow.order[self.block as usize];
        let range = self.body.blocks[block as usize].clone();
        let all = &self.body.instructions[range.start as usize..range.end as usize];
        let [.., call, end] = all else {
            return false;
        };
        let gives = self.body.operands_of(end);
        std::ptr::eq(call, it)
            && matches!(end.op, bitcode::Op::Return)
            && gives.first().copied() == it.result
    }

    pub(crate) fn invoke(
        &mut self,
        it: &Instruction,
        call: &bitcode::Call,
        [on, pad]: [BlockId; 2],
    ) -> Covered<()> {
        let Some((&callee, arguments)) = self.body.operands_of(it).split_first() else {
            return invalid("another number of operands");
        };
        if !self.is_pad(pad) {
            return not("an invoke without a landing pad");
        }
        match self.target(callee)? {
            Target::Intrinsic(_) => not("an intrinsic that is invoked"),
            Target::Nothing => not("assembly"),
            target => {
                let call = self.ordinary(call, callee, target, arguments)?;
                if let Some(result) = it.result
                    && self.holds_vectors(self.type_of(result)?)
                {
                    return not("a vector of an invoke");
                }
                self.emit_for(it, Op::Invoke(Box::new(call)))?;
                if let Some(result) = it.result {
                    // The result exists only where the call returned normally.
                    let on = self.flow.places[on.0 as usize];
                    let place = match self.flow.predecessors(on) {
                        [_] => on,
                        _ => NOWHERE,
                    };
                    self.values.move_to(result.0, place);
                }
                Ok(())
            }
        }
    }

    /// The callee that a call of `callee` reaches.
    fn target(&mut self, callee: ValueId) -> Covered<Target> {
        let global = match self.definition(callee) {
            Some(Definition::Global(global)) => global,
            Some(Definition::Constant(Constant::Assembly(it))) => {
                if let Some(kind) = Control::of(it) {
                    return Ok(Target::Control(kind));
                }
                return match !it.is_special && crate::assembly::is_empty(&it.text) {
                    true => Ok(Target::Nothing),
                    false => not("assembly"),
                };
            }
            _ => return Ok(Target::Value),
        };
        match self.lowering.named[global as usize] {
            Named::Intrinsic(becomes) => Ok(Target::Intrinsic(becomes)),
            Named::Not(what) => not(what),
            Named::Function if self.outside.must_be_inlined(global) => {
                not("a function that is always inlined")
            }
            Named::Function | Named::Other => {
                let symbol = self.symbol(global)?;
                let it = &self.module.globals[global as usize];
                let is_function = it.kind == GlobalKind::Function;
                Ok(Target::Named(symbol, is_function.then_some(it.attributes)))
            }
        }
    }

    /// A call of ordinary code.
    fn ordinary(
        &mut self,
        call: &bitcode::Call,
        callee: ValueId,
        target: Target,
        arguments: &[ValueId],
    ) -> Covered<Call> {
        let module = self.module;
        let BitcodeType::Function(returns, ref parameters, is_variadic) = *module.ty(call.function)
        else {
            return invalid(TYPES);
        };
        crate::signatures::convention(call.convention)?;
        if call.has_bundles {
            return not("a bundle of operands");
        }
        if arguments.len() < parameters.len() || arguments.len() > parameters.len() && !is_variadic
        {
            return invalid("another number of arguments");
        }
        let (to, declared) = match target {
            Target::Named(symbol, declared) => (Callee::Symbol(symbol), declared),
            _ => (Callee::Operand(self.address(callee)?), None),
        };
        let lists = &self.lowering.lists;
        let whole = lists.whole(call.attributes);
        if let Some(what) = whole.not {
            return not(what);
        }
        let by_declaration = declared.is_some_and(|list| lists.whole(list).returns_twice);
        let passed = |index| match declared {
            Some(list) => lists
                .passed(list, index)
                .and(lists.passed(call.attributes, index)),
            None => lists.passed(call.attributes, index),
        };
        self.notes.calls += u32::from(declared.is_some());
        let mut made = Call {
            callee: to,
            arguments: Vec::with_capacity(arguments.len()),
            returns: self.returned(returns, passed(0))?,
            is_variadic,
            tail: Tail::No,
            returns_twice: whole.returns_twice || by_declaration,
        };
        for (index, &value) in arguments.iter().enumerate() {
            let ty = self.type_of(value)?;
            if parameters.get(index).is_some_and(|&its| its != ty) {
                return invalid(TYPES);
            }
            self.argument(value, ty, passed(index as u32 + 1), &mut made.arguments)?;
        }
        Ok(made)
    }
}
