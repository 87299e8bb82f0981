//! Types of operands, as LLVM's verifier and its reader of bitcode require them.
//!
//! Lowering distinguishes only what matters for code: an address and an integer of 64 bits are one
//! scalar for it. LLVM distinguishes types, and refuses a body whose types do not fit. Each
//! instruction is checked here before it is lowered; a refused body is left to LLVM, which reports
//! the error. So a check may refuse valid but unusual IR, and must not accept invalid IR.
//!
//! The requirements of lowering itself are not checked again: that definitions dominate uses, that
//! phis have the edges of their block. Metadata is not read.
//!
//! # Why
//! Types are compared by their numbers: a module has each type once.

use uruk_bitcode::ir::{
    BinaryOp, CastOp, Constant, Definition, Instruction, Op, Ordering, Type, TypeId, ValueId, Words,
};

use crate::reading::{Covered, Reading, TYPES, invalid};

/// The kind of a scalar, or of each lane of a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Integer(u32),
    /// By its bits, and their format.
    Float(u32, u8),
    Pointer(u32),
    Other,
}

impl Lane {
    fn is_integer(self) -> bool {
        matches!(self, Lane::Integer(_))
    }

    fn is_float(self) -> bool {
        matches!(self, Lane::Float(..))
    }

    fn is_pointer(self) -> bool {
        matches!(self, Lane::Pointer(_))
    }
}

/// Refuses the body unless the condition holds.
fn ensure(holds: bool) -> Covered<()> {
    match holds {
        true => Ok(()),
        false => invalid(TYPES),
    }
}

impl Reading<'_> {
    /// The kind of a scalar or vector type, and its count of lanes, 0 for a scalar.
    fn lane(&self, ty: TypeId) -> (Lane, u32) {
        match *self.module.ty(ty) {
            Type::Vector(count, of, false) => (scalar(self.module.ty(of)), count),
            ref ty => (scalar(ty), 0),
        }
    }

    pub(crate) fn returns_nothing(&self) -> bool {
        *self.module.ty(self.returns) == Type::Void
    }

    /// Whether a value has the type of field numbers.
    pub(crate) fn is_field_number(&self, value: ValueId) -> Covered<bool> {
        let ty = self.type_of(value)?;
        Ok(*self.module.ty(ty) == Type::Integer(32))
    }

    pub(crate) fn is_pointer(&self, value: ValueId) -> Covered<bool> {
        let ty = self.type_of(value)?;
        Ok(matches!(self.module.ty(ty), Type::Pointer(_)))
    }

    fn is_integer(&self, value: ValueId) -> Covered<bool> {
        let ty = self.type_of(value)?;
        Ok(matches!(self.module.ty(ty), Type::Integer(_)))
    }

    /// Checks the types of one instruction.
    pub(crate) fn check(&self, it: &Instruction) -> Covered<()> {
        let operands = self.body.operands_of(it);
        match (&it.op, operands) {
            (Op::Load { ordering, .. }, &[address]) => {
                let of = self.result(it)?;
                let ordered = !matches!(ordering, Ordering::Release | Ordering::AcqRel);
                ensure(ordered && self.is_pointer(address)?)?;
                self.check_access(of, *ordering)
            }
            (Op::Store { ordering, .. }, &[address, value]) => {
                let of = self.type_of(value)?;
                let ordered = !matches!(ordering, Ordering::Acquire | Ordering::AcqRel);
                ensure(ordered && self.is_pointer(address)?)?;
                self.check_access(of, *ordering)
            }
            (Op::GetElementPtr(source), [base, indices @ ..]) => {
                self.check_element(*source, *base, indices)
            }
            (Op::Call(call), [callee, arguments @ ..]) => {
                self.check_call(it, call, *callee, arguments)
            }
            (Op::Invoke(call, [on, pad]), [callee, arguments @ ..]) => {
                ensure(on != pad)?;
                self.check_call(it, call, *callee, arguments)
            }
            (Op::Binary(op, _), &[a, b]) => {
                let ty = self.type_of(a)?;
                let (lane, _) = self.lane(ty);
                let of_floats = matches!(
                    op,
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::SDiv | BinaryOp::SRem
                );
                ensure(lane.is_integer() || lane.is_float() && of_floats)?;
                ensure(self.type_of(b)? == ty && self.result(it)? == ty)
            }
            (Op::Compare(predicate), &[a, b]) => {
                let ty = self.type_of(a)?;
                let (lane, _) = self.lane(ty);
                ensure(self.type_of(b)? == ty)?;
                ensure(match predicate {
                    0..16 => lane.is_float(),
                    _ => lane.is_integer() || lane.is_pointer(),
                })
            }
            (Op::Cast(op), &[value]) => {
                let (from, to) = (self.type_of(value)?, self.result(it)?);
                ensure(self.casts(*op, from, to))
            }
            (Op::Select, &[a, b, bit]) => {
                let ty = self.result(it)?;
                let (bit, lanes) = self.lane(self.type_of(bit)?);
                let fits = bit == Lane::Integer(1) && (lanes == 0 || lanes == self.lane(ty).1);
                ensure(fits && self.type_of(a)? == ty && self.type_of(b)? == ty)
            }
            (Op::Jump(_) | Op::Unreachable | Op::Return | Op::Phi(_), _) => Ok(()),
            (Op::Branch(_), &[bit]) => {
                let bit = self.type_of(bit)?;
                ensure(*self.module.ty(bit) == Type::Integer(1))
            }
            (Op::Alloca { .. }, &[count]) => ensure(self.is_integer(count)?),
            _ => self.check_rare(it, operands),
        }
    }

    /// Checks an instruction that few bodies have.
    fn check_rare(&self, it: &Instruction, operands: &[ValueId]) -> Covered<()> {
        match (&it.op, operands) {
            (Op::Switch(_), [value, cases @ ..]) => {
                ensure(self.is_integer(*value)?)?;
                self.check_cases(cases)
            }
            (Op::FNeg(_), &[value]) => {
                let ty = self.type_of(value)?;
                ensure(self.lane(ty).0.is_float() && self.result(it)? == ty)
            }
            (Op::ExtractValue(path), &[_]) => ensure(!path.is_empty()),
            (Op::InsertValue(path), &[whole, _]) => {
                ensure(!path.is_empty() && self.type_of(whole)? == self.result(it)?)
            }
            (Op::ExtractElement, &[vector, index]) => {
                ensure(self.lane(self.type_of(vector)?).1 != 0 && self.is_integer(index)?)
            }
            (Op::InsertElement, &[vector, lane, index]) => {
                let ty = self.type_of(vector)?;
                let Type::Vector(_, of, false) = *self.module.ty(ty) else {
                    return invalid(TYPES);
                };
                ensure(self.type_of(lane)? == of && self.is_integer(index)?)
            }
            (Op::ShuffleVector, &[a, b, mask]) => {
                let ty = self.type_of(a)?;
                let (lane, _) = self.lane(self.type_of(mask)?);
                let fits = lane == Lane::Integer(32) && self.lane(ty).1 != 0;
                ensure(fits && self.type_of(b)? == ty)
            }
            (Op::Rmw { op, .. }, &[address, value]) => {
                // Exchanges, and operations on floating-point numbers.
                let (exchanges, of_floats) = (*op == 0, matches!(op, 11..=14));
                let (lane, lanes) = self.lane(self.type_of(value)?);
                let fits = match lane {
                    Lane::Integer(_) => !of_floats,
                    Lane::Float(..) => exchanges || of_floats,
                    Lane::Pointer(_) => exchanges,
                    Lane::Other => false,
                };
                ensure(fits && lanes == 0 && is_atomic(lane) && self.is_pointer(address)?)
            }
            (Op::CompareExchange { .. }, &[address, expected, new]) => {
                let ty = self.type_of(new)?;
                let (lane, lanes) = self.lane(ty);
                let fits = (lane.is_integer() || lane.is_pointer()) && is_atomic(lane);
                ensure(fits && lanes == 0 && self.is_pointer(address)?)?;
                ensure(self.type_of(expected)? == ty)
            }
            (Op::LandingPad(cleanup, filters), clauses) => {
                ensure(*cleanup || !clauses.is_empty())?;
                for (&clause, &is_filter) in clauses.iter().zip(filters) {
                    let ty = self.type_of(clause)?;
                    ensure(match self.module.ty(ty) {
                        Type::Array(..) => is_filter,
                        Type::Pointer(_) => !is_filter,
                        _ => false,
                    })?;
                }
                self.check_exception(self.result(it)?)
            }
            (Op::Resume, &[value]) => self.check_exception(self.type_of(value)?),
            (Op::IndirectBranch(_) | Op::VaArg, &[address]) => ensure(self.is_pointer(address)?),
            (Op::Freeze | Op::Fence(_), _) => Ok(()),
            _ => invalid("another number of operands"),
        }
    }

    /// Checks the type of an atomic access.
    fn check_access(&self, of: TypeId, ordering: Ordering) -> Covered<()> {
        if ordering == Ordering::NotAtomic {
            return Ok(());
        }
        let (lane, lanes) = self.lane(of);
        ensure(lanes == 0 && is_atomic(lane))
    }

    fn check_element(&self, source: TypeId, base: ValueId, indices: &[ValueId]) -> Covered<()> {
        ensure(!indices.is_empty() && self.lane(self.type_of(base)?).0.is_pointer())?;
        let mut within = source;
        for (at, &index) in indices.iter().enumerate() {
            let (lane, lanes) = self.lane(self.type_of(index)?);
            ensure(lane.is_integer())?;
            if at == 0 {
                continue;
            }
            within = match self.module.ty(within) {
                Type::Array(_, of) => *of,
                Type::Struct(fields, _) => {
                    ensure(lane == Lane::Integer(32))?;
                    // A vector of one number: lowering determines the field.
                    if lanes != 0 {
                        return Ok(());
                    }
                    let number = self.number(index).and_then(|it| usize::try_from(it).ok());
                    match number.and_then(|it| fields.get(it)) {
                        Some(field) => *field,
                        None => return invalid(TYPES),
                    }
                }
                _ => return invalid(TYPES),
            };
        }
        Ok(())
    }

    fn check_call(
        &self,
        it: &Instruction,
        call: &uruk_bitcode::ir::Call,
        callee: ValueId,
        arguments: &[ValueId],
    ) -> Covered<()> {
        let Type::Function(returns, ref parameters, _) = *self.module.ty(call.function) else {
            return invalid(TYPES);
        };
        ensure(self.is_pointer(callee)? && arguments.len() >= parameters.len())?;
        for (&argument, &ty) in arguments.iter().zip(parameters) {
            match self.body.type_of(self.module, argument) {
                Some(its) => ensure(its == ty)?,
                None => ensure(*self.module.ty(ty) == Type::Metadata)?,
            }
        }
        if call.fast_math != 0 {
            ensure(self.lane(returns).0.is_float())?;
        }
        if let Some(&immediate) = self.lowering.immediates.get(callee.index())
            && immediate != 0
        {
            let mut all = (0..32).zip(arguments);
            ensure(all.all(|(at, &it)| immediate >> at & 1 == 0 || self.number(it).is_some()))?;
        }
        if call.must_tail {
            self.check_tail_call(call, returns, parameters)?;
        }
        let lists = &self.lowering.lists;
        if lists.wants_nothing(call.attributes) {
            return Ok(());
        }
        let mut types = arguments
            .iter()
            .map(|&it| self.body.type_of(self.module, it));
        let result = it.result.map(|_| returns);
        self.check_attributes(call.attributes, result, &mut types)
    }

    /// A guaranteed tail call passes and returns the same as its caller, in the same way.
    fn check_tail_call(
        &self,
        call: &uruk_bitcode::ir::Call,
        returns: TypeId,
        parameters: &[TypeId],
    ) -> Covered<()> {
        let own = &self.body.types[..self.body.parameters as usize];
        let lists = &self.lowering.lists;
        let same = (0..=parameters.len() as u32).all(|index| {
            let [ours, theirs] = [self.global.attributes, call.attributes].map(|list| {
                let passed = lists.passed(list, index);
                let copied = passed.by_value.map(|ty| (ty, passed.align));
                (copied, passed.is_result, passed.stack_align)
            });
            ours == theirs
        });
        ensure(same && own == parameters && returns == self.returns)?;
        ensure(call.convention == self.global.convention)
    }

    /// Checks that attributes fit the types of their values.
    pub(crate) fn check_attributes(
        &self,
        list: uruk_bitcode::ir::AttributesId,
        result: Option<TypeId>,
        parameters: &mut dyn Iterator<Item = Option<TypeId>>,
    ) -> Covered<()> {
        let lists = &self.lowering.lists;
        let mut count = 0;
        for ty in std::iter::once(result).chain(parameters) {
            let Some(wants) = lists.wants(list, count) else {
                return Ok(());
            };
            count += 1;
            if !wants.is_nothing() {
                let (lane, lanes) = ty.map_or((Lane::Other, 0), |ty| self.lane(ty));
                let (pointer, integer) = (lane.is_pointer(), lane.is_integer());
                ensure(wants.allow(ty.is_some(), pointer, integer, lanes))?;
            }
        }
        ensure(lists.wants(list, count).is_none())
    }

    /// All exceptions of one function have one type.
    fn check_exception(&self, ty: TypeId) -> Covered<()> {
        let first = self.pad.get().unwrap_or(ty);
        self.pad.set(Some(first));
        ensure(first == ty && self.global.personality.is_some())
    }

    /// All cases have different numbers.
    fn check_cases(&self, cases: &[ValueId]) -> Covered<()> {
        let number = |&case: &ValueId| match (self.number(case), self.definition(case)) {
            (Some(number), _) => Ok(Words::from_slice(&[number as u64])),
            (None, Some(Definition::Constant(Constant::Null))) => Ok(Words::new()),
            // As many words as the number needs.
            (None, Some(Definition::Constant(Constant::Integer(words)))) => {
                let used = words.iter().rposition(|&word| word != 0);
                Ok(Words::from_slice(&words[..used.map_or(0, |at| at + 1)]))
            }
            _ => invalid("a case that is no number"),
        };
        let mut numbers = cases.iter().map(number).collect::<Covered<Vec<Words>>>()?;
        numbers.sort_unstable();
        ensure(numbers.windows(2).all(|pair| pair[0] != pair[1]))
    }

    /// Whether a cast from one type to another is valid.
    pub(crate) fn casts(&self, op: CastOp, from: TypeId, to: TypeId) -> bool {
        use CastOp as C;
        let ((a, lanes), (b, others)) = (self.lane(from), self.lane(to));
        let (less, more) = match (a, b) {
            (Lane::Integer(a), Lane::Integer(b)) | (Lane::Float(a, _), Lane::Float(b, _)) => {
                (a > b, a < b)
            }
            _ => (false, false),
        };
        let integers = a.is_integer() && b.is_integer();
        let floats = a.is_float() && b.is_float();
        let fits = match op {
            C::Trunc => integers && less,
            C::ZExt | C::SExt => integers && more,
            C::FpTrunc => floats && less,
            C::FpExt => floats && more,
            C::FpToUi | C::FpToSi => a.is_float() && b.is_integer(),
            C::UiToFp | C::SiToFp => a.is_integer() && b.is_float(),
            C::PtrToInt | C::PtrToAddr => a.is_pointer() && b.is_integer(),
            C::IntToPtr => a.is_integer() && b.is_pointer(),
            C::AddrSpaceCast => a.is_pointer() && b.is_pointer() && a != b,
            // Between vectors of other lanes the bits must match, and pointers stay pointers.
            C::BitCast => {
                let bits = |lane, lanes: u32| match lane {
                    Lane::Integer(bits) | Lane::Float(bits, _) => {
                        Some(u64::from(bits) * u64::from(lanes.max(1)))
                    }
                    _ => None,
                };
                return match (bits(a, lanes), bits(b, others)) {
                    (Some(a), Some(b)) => a == b,
                    _ => a == b && a.is_pointer() && lanes == others,
                };
            }
        };
        fits && lanes == others
    }
}

fn scalar(ty: &Type) -> Lane {
    match *ty {
        Type::Integer(bits) => Lane::Integer(bits),
        Type::Half => Lane::Float(16, 0),
        Type::BFloat => Lane::Float(16, 1),
        Type::Float => Lane::Float(32, 0),
        Type::Double => Lane::Float(64, 0),
        Type::X86Fp80 => Lane::Float(80, 0),
        Type::Fp128 => Lane::Float(128, 0),
        Type::Pointer(space) => Lane::Pointer(space),
        _ => Lane::Other,
    }
}

/// Whether a scalar can be accessed atomically.
fn is_atomic(lane: Lane) -> bool {
    match lane {
        Lane::Integer(bits) | Lane::Float(bits, _) => bits >= 8 && bits.is_power_of_two(),
        Lane::Pointer(_) => true,
        Lane::Other => false,
    }
}
