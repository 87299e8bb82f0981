//! Lowers calls of intrinsics: the table's replacement, with their operands.

use smallvec::smallvec;
use uruk_baseline::ir::{
    BitOp, Cast, FloatOp, IntOp, IntPredicate, MemoryOp, Op, Operand, Ordering, OverflowOp, Reach,
    Term, Type,
};
use uruk_bitcode::ir::{self as bitcode, Constant, Definition, Instruction, ValueId};

use crate::intrinsics::Becomes;
use crate::lanes::Numbers;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

const INT: Type = Type::Int(32);

/// Most nested constants that are visited.
const DEPTH: u32 = 16;

impl Reading<'_> {
    pub(crate) fn intrinsic(
        &mut self,
        it: &Instruction,
        call: &bitcode::Call,
        becomes: Becomes,
    ) -> Covered<()> {
        use Becomes as B;
        if call.has_bundles && becomes != B::Nothing {
            return not("a bundle of operands");
        }
        match becomes {
            B::Nothing => self.nothing(it),
            B::First => {
                let [value] = self.arguments(it)?;
                if self.type_of(value)? != self.result(it)? {
                    return invalid(TYPES);
                }
                let scalars = self.scalars(value)?;
                self.bind(it, scalars)
            }
            B::True => self.stand(it, [Operand::Int(1)]),
            B::Library(name) => self.library_call(it, name),
            B::Power => self.power(it),
            B::Fraction => self.fraction(it),
            B::Memory(op) => self.memory(it, op),
            B::Saturated(signed) => self.saturated(it, signed),
            B::Order(signed) => self.order(it, signed),
            B::FloatClass => self.float_class(it),
            B::IsConstant => {
                let [value] = self.arguments(it)?;
                let is = self.is_manifest(value, 0)?;
                self.stand(it, [Operand::Int(u64::from(is))])
            }
            B::ObjectSize => self.object_size(it),
            B::Mask => {
                let list = self.arguments(it)?;
                let list = self.all_as(list, Type::PTR)?;
                self.emit_for(it, Op::Int(IntOp::And, Type::PTR, list))
            }
            B::LoadRelative => self.load_relative(it),
            B::Reduce(by) => self.reduce(it, by),
            B::Signs => self.signs(it),
            B::Lanes(op) => self.machine_lanes(it, op),
            other => self.number_intrinsic(it, other),
        }
    }

    /// Intrinsics on numbers, lane by lane, and those on the machine.
    fn number_intrinsic(&mut self, it: &Instruction, becomes: Becomes) -> Covered<()> {
        use Becomes as B;
        match becomes {
            B::Int(op) => self.int_intrinsic(it, op),
            B::Overflow(op) => self.overflow(it, op),
            B::Bits(op) => self.bits(it, op),
            B::Funnel(left) => {
                let numbers @ Numbers { ty, .. } = self.narrow(it)?;
                let list = self.arguments(it)?;
                match ty.is_int() {
                    true => self.each_op(it, list, numbers, |list| Op::Funnel(left, ty, list)),
                    false => invalid(TYPES),
                }
            }
            B::Float(op) => {
                let numbers @ Numbers { ty, .. } = self.float_result(it)?;
                let list = self.arguments(it)?;
                self.each_op(it, list, numbers, |list| Op::Float(op, ty, list))
            }
            B::FloatUnary(op) => {
                let numbers @ Numbers { ty, .. } = self.float_result(it)?;
                let list = self.arguments(it)?;
                self.each_op(it, list, numbers, |[one]| Op::FloatUnary(op, ty, one))
            }
            B::Fma => {
                let numbers @ Numbers { ty, .. } = self.float_result(it)?;
                let list = self.arguments(it)?;
                self.each_op(it, list, numbers, |list| Op::Fma(ty, list))
            }
            B::MulAdd => {
                let numbers @ Numbers { ty, .. } = self.float_result(it)?;
                let list = self.arguments(it)?;
                // A copy has two instructions here.
                self.notes.instructions += 1;
                self.each(it, list, numbers, |reading, [a, b, c]| {
                    let product = reading.emit_one(Op::Float(FloatOp::Mul, ty, [a, b]));
                    reading.emit_one(Op::Float(FloatOp::Add, ty, [product, c]))
                })
            }
            other => self.machine(it, other),
        }
    }

    /// Intrinsics on the machine, the stack, or threads.
    fn machine(&mut self, it: &Instruction, becomes: Becomes) -> Covered<()> {
        use Becomes as B;
        match becomes {
            B::StackSave => self.emit_for(it, Op::StackSave),
            B::StackRestore => {
                self.notes.restores = true;
                let one = self.pointer(it)?;
                self.end(Op::StackRestore(one))
            }
            B::ThreadLocal => {
                let [variable] = self.arguments(it)?;
                let Some(Definition::Global(global)) = self.definition(variable) else {
                    return not("an unusual thread-local variable");
                };
                let symbol = self.symbol(global)?;
                match self.out.symbols[symbol.index()].reach {
                    Reach::ThreadLocal => self.emit_for(it, Op::ThreadLocal(symbol)),
                    _ => not("an unusual thread-local variable"),
                }
            }
            B::VaStart => {
                let one = self.pointer(it)?;
                match self.out.is_variadic {
                    true => self.end(Op::VaStart(one)),
                    false => invalid("variable arguments where there are none"),
                }
            }
            B::VaCopy => {
                let list = self.arguments(it)?;
                let list = self.all_as(list, Type::PTR)?;
                self.end(Op::VaCopy(list))
            }
            B::TypeId => {
                let [value] = self.arguments(it)?;
                match self.caught(value)? {
                    Some(symbol) => self.emit_for(it, Op::TypeId(symbol)),
                    None => not("the number of all types"),
                }
            }
            B::FrameAddress | B::ReturnAddress => {
                let [depth] = self.arguments(it)?;
                let depth = self.number(depth).unwrap_or(0) as u32;
                self.emit_for(
                    it,
                    match becomes {
                        B::FrameAddress => Op::FrameAddress(depth),
                        _ => Op::ReturnAddress(depth),
                    },
                )
            }
            B::AddressOfReturnAddress => {
                // The address behind the saved frame pointer.
                let frame = self.emit_one(Op::FrameAddress(0));
                let address = self.at(frame, 8);
                self.stand(it, [address])
            }
            B::Prefetch => {
                let one = self.pointer(it)?;
                self.end(Op::Prefetch(one))
            }
            B::CycleCounter => self.emit_for(it, Op::CycleCounter),
            B::ThreadPointer => self.emit_for(it, Op::ThreadPointer),
            B::Pause => self.end(Op::Pause),
            B::Rounding => self.rounding(it),
            B::Trap => self.end(Op::Trap),
            _ => not("an intrinsic"),
        }
    }

    /// `va_arg`, which is an instruction.
    pub(crate) fn va_arg(&mut self, it: &Instruction) -> Covered<()> {
        let ty = self.scalar_result(it)?;
        let [list] = self.operands(it)?;
        let list = self.address(list)?;
        self.emit_for(it, Op::VaArg(ty, list))
    }

    /// Lowers an intrinsic without effect: its result, if any, is undefined.
    fn nothing(&mut self, it: &Instruction) -> Covered<()> {
        let Some(result) = it.result else {
            return Ok(());
        };
        let count = self.leaves(self.type_of(result)?)?.len();
        self.stand(it, std::iter::repeat_n(Operand::Undef, count))
    }

    /// The first arguments of a call.
    pub(crate) fn arguments<const N: usize>(&self, it: &Instruction) -> Covered<[ValueId; N]> {
        let operands = self.body.operands_of(it);
        match operands.get(1..).and_then(|all| all.first_chunk()) {
            Some(first) => Ok(*first),
            None => invalid("another number of arguments"),
        }
    }

    /// An argument that is an address.
    fn pointer(&mut self, it: &Instruction) -> Covered<Operand> {
        let [value] = self.arguments(it)?;
        self.address(value)
    }

    /// The type of a result that is floating-point numbers.
    pub(crate) fn float_result(&self, it: &Instruction) -> Covered<Numbers> {
        let numbers = self.numbers(self.result(it)?)?;
        match numbers.ty {
            Type::Int(_) => invalid(TYPES),
            _ => Ok(numbers),
        }
    }

    /// The type of a result with numbers of at most 64 bits.
    pub(crate) fn narrow(&self, it: &Instruction) -> Covered<Numbers> {
        let known = self.result(it)?;
        match self.shape_of(known) {
            Shape::Wide => not("an intrinsic of 128 bits"),
            _ => self.numbers(known),
        }
    }

    /// The type of a result with one number of at most 64 bits.
    fn narrow_one(&self, it: &Instruction) -> Covered<Type> {
        match self.narrow(it)? {
            Numbers { ty, lanes: None } => Ok(ty),
            _ => not("an unusual intrinsic of vectors"),
        }
    }

    fn int_intrinsic(&mut self, it: &Instruction, op: IntOp) -> Covered<()> {
        let [a, b] = self.arguments(it)?;
        let known = self.result(it)?;
        if self.shape_of(known) == Shape::Wide {
            return self.wide_choice(it, op, [a, b]);
        }
        let numbers @ Numbers { ty, .. } = self.narrow(it)?;
        match ty.is_int() {
            true => self.each_op(it, [a, b], numbers, |list| Op::Int(op, ty, list)),
            false => invalid(TYPES),
        }
    }

    fn overflow(&mut self, it: &Instruction, op: OverflowOp) -> Covered<()> {
        let [a, b] = self.arguments(it)?;
        let known = self.type_of(a)?;
        match self.shape_of(known) {
            Shape::Scalar(ty @ Type::Int(_)) => {
                let list = self.all_as([a, b], ty)?;
                self.emit_for(it, Op::Overflow(op, ty, list))
            }
            Shape::Wide => self.wide_overflow(it, op, [a, b]),
            _ => self.lanes_overflow(it, op, [a, b]),
        }
    }

    fn bits(&mut self, it: &Instruction, op: BitOp) -> Covered<()> {
        let [value] = self.arguments(it)?;
        let known = self.result(it)?;
        if self.shape_of(known) == Shape::Wide {
            return self.wide_bits(it, op, value);
        }
        let numbers @ Numbers { ty, .. } = self.narrow(it)?;
        match ty.is_int() {
            true => self.each_op(it, [value], numbers, |[one]| Op::Bits(op, ty, one)),
            false => invalid(TYPES),
        }
    }

    fn memory(&mut self, it: &Instruction, op: MemoryOp) -> Covered<()> {
        let [to, from, length, volatile] = self.arguments(it)?;
        let (length, width) = self.typed(length)?;
        if !width.is_int() {
            return invalid(TYPES);
        }
        let length = self.resize(width, Type::PTR, length);
        let volatile = self.number(volatile).is_none_or(|it| it != 0);
        let of = match op {
            MemoryOp::Set => Type::Int(8),
            _ => Type::PTR,
        };
        let list = [self.address(to)?, self.one_as(from, of)?, length];
        self.end(Op::Memory(op, list, volatile))
    }

    fn saturated(&mut self, it: &Instruction, signed: bool) -> Covered<()> {
        let list = self.arguments(it)?;
        let numbers @ Numbers { ty: from, .. } = self.numbers(self.type_of(list[0])?)?;
        let Numbers { ty: to, .. } = self.narrow(it)?;
        if from.is_int() || !to.is_int() {
            return invalid(TYPES);
        }
        let cast = match signed {
            true => Cast::FpToSiSat,
            false => Cast::FpToUiSat,
        };
        self.each_op(it, list, numbers, |[one]| Op::Cast(cast, from, to, one))
    }

    /// Greater (0 or 1), minus less (0 or 1).
    fn order(&mut self, it: &Instruction, signed: bool) -> Covered<()> {
        let [a, b] = self.arguments(it)?;
        let known = self.type_of(a)?;
        let (less, greater) = match signed {
            true => (IntPredicate::SLt, IntPredicate::SGt),
            false => (IntPredicate::ULt, IntPredicate::UGt),
        };
        let to = self.narrow_one(it)?;
        if !matches!(to, Type::Int(2..)) {
            return invalid(TYPES);
        }
        let compare = |predicate, reading: &mut Self| -> Covered<Operand> {
            Ok(match reading.shape_of(known) {
                Shape::Scalar(ty @ Type::Int(_)) => {
                    let list = reading.all_as([a, b], ty)?;
                    reading.emit_one(Op::Compare(predicate, ty, list))
                }
                _ => {
                    let ([a, b], [c, d]) = (reading.halves(a)?, reading.halves(b)?);
                    reading.emit_one(Op::WideCompare(predicate, [a, b, c, d]))
                }
            })
        };
        let less = compare(less, self)?;
        let greater = compare(greater, self)?;
        let bit = Type::Int(1);
        let less = self.emit_one(Op::Cast(Cast::ZExt, bit, to, less));
        let greater = self.emit_one(Op::Cast(Cast::ZExt, bit, to, greater));
        self.emit_for(it, Op::Int(IntOp::Sub, to, [greater, less]))
    }

    /// An unknown size: the largest number, or 0, depending on the second argument.
    fn object_size(&mut self, it: &Instruction) -> Covered<()> {
        let Type::Int(bits) = self.narrow_one(it)? else {
            return not("an intrinsic");
        };
        let [_, least] = self.arguments(it)?;
        let least = self.number(least).is_none_or(|it| it != 0);
        let size = match least {
            true => 0,
            false => u64::MAX >> (64 - bits),
        };
        self.stand(it, [Operand::Int(size)])
    }

    /// Loads a distance from a table, at an offset, and adds the table's address.
    fn load_relative(&mut self, it: &Instruction) -> Covered<()> {
        let [base, index] = self.arguments(it)?;
        let base = self.address(base)?;
        let (index, width) = self.typed(index)?;
        let term = |operand, bits| Term {
            operand,
            bits,
            scale: 1,
        };
        let Type::Int(bits) = width else {
            return not("an intrinsic");
        };
        let place = self.emit_one(Op::Offset {
            base,
            terms: smallvec![term(index, bits)],
            bytes: 0,
        });
        let distance = self.emit_one(Op::Load {
            ty: INT,
            address: place,
            align: 4,
            ordering: Ordering::Plain,
            volatile: false,
        });
        self.emit_for(
            it,
            Op::Offset {
                base,
                terms: smallvec![term(distance, 32)],
                bytes: 0,
            },
        )
    }

    /// Whether a value is a constant before addresses are known: it contains none.
    fn is_manifest(&mut self, value: ValueId, depth: u32) -> Covered<bool> {
        self.count_part(0)?;
        let Some(Definition::Constant(constant)) = self.definition(value) else {
            return Ok(false);
        };
        let parts = match constant {
            _ if depth >= DEPTH => return Ok(false),
            Constant::Aggregate(parts) | Constant::Offset(_, parts) => &parts[..],
            Constant::Cast(_, one) => std::slice::from_ref(one),
            Constant::Binary(_, a, b) => {
                return Ok(self.is_manifest(*a, depth + 1)? && self.is_manifest(*b, depth + 1)?);
            }
            Constant::Label(..) | Constant::Assembly(_) | Constant::Other => return Ok(false),
            _ => return Ok(true),
        };
        for &part in parts {
            if !self.is_manifest(part, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
