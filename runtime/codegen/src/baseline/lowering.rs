//! Calls of intrinsics: what the table says each becomes, with its operands.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::LLVMIsConstant;
use smallvec::smallvec;
use uruk_baseline::ir::{
    Argument, BitOp, Call, Callee, Cast, FloatOp, FloatPredicate, IntOp, IntPredicate, MemoryOp,
    Op, Operand, Ordering, OverflowOp, Passing, Returned, Tail, Term, Type,
};

use super::intrinsics::Becomes;
use super::operands::number_of;
use super::reading::{Covered, Reading, not};
use super::types::Shape;
use crate::handles::{InstructionRef, ValueRef};

const INT: Type = Type::Int(32);

impl<'m> Reading<'_, 'm> {
    pub(super) fn intrinsic(&mut self, it: InstructionRef<'m>, becomes: Becomes) -> Covered<()> {
        use Becomes as B;
        match becomes {
            B::Nothing => self.nothing(it),
            B::First => {
                let scalars = self.scalars(self.operand(it, 0))?;
                self.known.values.set(it.raw() as usize, scalars);
                Ok(())
            }
            B::True => self.stand(it, [Operand::Int(1)]),
            B::Int(op) => self.int_intrinsic(it, op),
            B::Overflow(op) => self.overflow(it, op),
            B::Bits(op) => self.bits(it, op),
            B::Funnel(left) => {
                let ty = self.narrow(it)?;
                let list = self.three(it)?;
                self.emit_for(it, Op::Funnel(left, ty, list))
            }
            B::Float(op) => {
                let ty = self.scalar_type(*it)?;
                let list = [self.one_of(it, 0)?, self.one_of(it, 1)?];
                self.emit_for(it, Op::Float(op, ty, list))
            }
            B::FloatUnary(op) => {
                let ty = self.scalar_type(*it)?;
                let one = self.one_of(it, 0)?;
                self.emit_for(it, Op::FloatUnary(op, ty, one))
            }
            B::Fma => {
                let ty = self.scalar_type(*it)?;
                let list = self.three(it)?;
                self.emit_for(it, Op::Fma(ty, list))
            }
            B::MulAdd => {
                let ty = self.scalar_type(*it)?;
                let [a, b, c] = self.three(it)?;
                // It is two in a copy.
                self.notes.instructions += 1;
                let product = self.emit_one(Op::Float(FloatOp::Mul, ty, [a, b]));
                self.emit_for(it, Op::Float(FloatOp::Add, ty, [product, c]))
            }
            B::Library(name) => self.library_call(it, name),
            B::Power => self.power(it),
            B::Memory(op) => self.memory(it, op),
            B::Saturated(signed) => self.saturated(it, signed),
            B::Order(signed) => self.order(it, signed),
            B::FloatClass => self.float_class(it),
            B::IsConstant => {
                let is = is_manifest(self.operand(it, 0), 0);
                self.stand(it, [Operand::Int(u64::from(is))])
            }
            B::ObjectSize => self.object_size(it),
            B::Mask => {
                let list = [self.one_of(it, 0)?, self.one_of(it, 1)?];
                self.emit_for(it, Op::Int(IntOp::And, Type::PTR, list))
            }
            B::LoadRelative => self.load_relative(it),
            other => self.machine(it, other),
        }
    }

    /// What has to do with the machine, the stack, or threads.
    fn machine(&mut self, it: InstructionRef<'m>, becomes: Becomes) -> Covered<()> {
        use Becomes as B;
        match becomes {
            B::StackSave => self.emit_for(it, Op::StackSave),
            B::StackRestore => {
                self.notes.restores = true;
                let one = self.one_of(it, 0)?;
                self.end(Op::StackRestore(one))
            }
            B::ThreadLocal => {
                let variable = self.operand(it, 0);
                if !variable.is_global() {
                    return not("an unusual thread-local variable");
                }
                let symbol = self.symbol(variable)?;
                self.emit_for(it, Op::ThreadLocal(symbol))
            }
            B::VaStart => {
                let one = self.one_of(it, 0)?;
                self.end(Op::VaStart(one))
            }
            B::VaCopy => {
                let list = [self.one_of(it, 0)?, self.one_of(it, 1)?];
                self.end(Op::VaCopy(list))
            }
            B::TypeId => match self.caught(self.operand(it, 0))? {
                Some(symbol) => self.emit_for(it, Op::TypeId(symbol)),
                None => not("the number of all types"),
            },
            B::FrameAddress | B::ReturnAddress => {
                let depth = number_of(self.operand(it, 0)).unwrap_or(0) as u32;
                self.emit_for(
                    it,
                    match becomes {
                        B::FrameAddress => Op::FrameAddress(depth),
                        _ => Op::ReturnAddress(depth),
                    },
                )
            }
            B::AddressOfReturnAddress => {
                // Behind the saved frame pointer.
                let frame = self.emit_one(Op::FrameAddress(0));
                let address = self.at(frame, 8);
                self.stand(it, [address])
            }
            B::Prefetch => {
                let one = self.one_of(it, 0)?;
                self.end(Op::Prefetch(one))
            }
            B::CycleCounter => self.emit_for(it, Op::CycleCounter),
            B::Pause => self.end(Op::Pause),
            B::Trap => self.end(Op::Trap),
            _ => not("an intrinsic"),
        }
    }

    /// `va_arg`, which is an instruction.
    pub(super) fn va_arg(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let ty = self.scalar_type(*it)?;
        let list = self.one_of(it, 0)?;
        self.emit_for(it, Op::VaArg(ty, list))
    }

    /// Of what has no effect: a result, if there is one, that nobody may rely on.
    fn nothing(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let known = self.known_type(*it);
        let count = self.leaves(known)?.len();
        match count {
            0 => Ok(()),
            _ => self.stand(it, std::iter::repeat_n(Operand::Undef, count)),
        }
    }

    fn three(&mut self, it: InstructionRef<'m>) -> Covered<[Operand; 3]> {
        Ok([
            self.one_of(it, 0)?,
            self.one_of(it, 1)?,
            self.one_of(it, 2)?,
        ])
    }

    /// The type of a result of at most 64 bits.
    fn narrow(&mut self, it: InstructionRef<'m>) -> Covered<Type> {
        let known = self.known_type(*it);
        match self.shape_of(known) {
            Shape::Scalar(ty) => Ok(ty),
            Shape::Wide => not("an intrinsic of 128 bits"),
            _ => {
                self.leaves(known)?;
                not("an operation on a vector")
            }
        }
    }

    fn int_intrinsic(&mut self, it: InstructionRef<'m>, op: IntOp) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let known = self.known_type(*it);
        if self.shape_of(known) == Shape::Wide {
            return self.wide_choice(it, op, [a, b]);
        }
        if let (Shape::Vector { lane, .. }, true) =
            (self.shape_of(known), self.known.types.by_lanes)
        {
            self.leaves(known)?;
            return self.lane_by_lane(it, |list| Op::Int(op, lane, list));
        }
        let ty = self.narrow(it)?;
        let list = [self.one(a)?, self.one(b)?];
        self.emit_for(it, Op::Int(op, ty, list))
    }

    fn overflow(&mut self, it: InstructionRef<'m>, op: OverflowOp) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let known = self.known_type(a);
        match self.shape_of(known) {
            Shape::Scalar(ty) => {
                let list = [self.one(a)?, self.one(b)?];
                self.emit_for(it, Op::Overflow(op, ty, list))
            }
            Shape::Wide => self.wide_overflow(it, op, [a, b]),
            _ => {
                self.leaves(known)?;
                not("an intrinsic of an aggregate")
            }
        }
    }

    fn bits(&mut self, it: InstructionRef<'m>, op: BitOp) -> Covered<()> {
        let value = self.operand(it, 0);
        let known = self.known_type(*it);
        if self.shape_of(known) == Shape::Wide {
            return self.wide_bits(it, op, value);
        }
        let ty = self.narrow(it)?;
        let one = self.one(value)?;
        self.emit_for(it, Op::Bits(op, ty, one))
    }

    fn memory(&mut self, it: InstructionRef<'m>, op: MemoryOp) -> Covered<()> {
        let [to, from, length, volatile] = [0, 1, 2, 3].map(|index| self.operand(it, index));
        let width = self.scalar_type(length)?;
        let length = self.one(length)?;
        let length = self.resize(width, Type::PTR, length);
        let volatile = number_of(volatile).is_none_or(|it| it != 0);
        let list = [self.one(to)?, self.one(from)?, length];
        self.end(Op::Memory(op, list, volatile))
    }

    fn saturated(&mut self, it: InstructionRef<'m>, signed: bool) -> Covered<()> {
        let value = self.operand(it, 0);
        let (from, to) = (self.scalar_type(value)?, self.narrow(it)?);
        let one = self.one(value)?;
        let cast = match signed {
            true => Cast::FpToSiSat,
            false => Cast::FpToUiSat,
        };
        self.emit_for(it, Op::Cast(cast, from, to, one))
    }

    /// Whether it is greater, less whether it is less.
    fn order(&mut self, it: InstructionRef<'m>, signed: bool) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let known = self.known_type(a);
        let (less, greater) = match signed {
            true => (IntPredicate::SLt, IntPredicate::SGt),
            false => (IntPredicate::ULt, IntPredicate::UGt),
        };
        let to = self.narrow(it)?;
        let compare = |predicate, reading: &mut Self| -> Covered<Operand> {
            Ok(match reading.shape_of(known) {
                Shape::Scalar(ty) => {
                    let list = [reading.one(a)?, reading.one(b)?];
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

    /// A size that nobody knows: as large as can be, or nothing, as is asked.
    fn object_size(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let Type::Int(bits) = self.narrow(it)? else {
            return not("an intrinsic");
        };
        let least = number_of(self.operand(it, 1)).is_none_or(|it| it != 0);
        let size = match least {
            true => 0,
            false => u64::MAX >> (64 - bits),
        };
        self.stand(it, [Operand::Int(size)])
    }

    /// What lies at an offset from a table is a distance from it.
    fn load_relative(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [base, index] = [0, 1].map(|index| self.operand(it, index));
        let width = self.scalar_type(index)?;
        let (base, index) = (self.one(base)?, self.one(index)?);
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

    /// A call of what the C library has for a type.
    fn library_call(&mut self, it: InstructionRef<'m>, name: &str) -> Covered<()> {
        let value = self.operand(it, 0);
        let ending = match self.scalar_type(value)? {
            Type::F32 => "f",
            Type::F64 => "",
            Type::F80 => "l",
            _ => return not("a function of the library for an unusual type"),
        };
        self.call_library(it, &format!("{name}{ending}"))
    }

    fn power(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let name = match self.scalar_type(*it)? {
            Type::F32 => "__powisf2",
            Type::F64 => "__powidf2",
            Type::F80 => "__powixf2",
            _ => return not("a function of the library for an unusual type"),
        };
        self.call_library(it, name)
    }

    fn call_library(&mut self, it: InstructionRef<'m>, name: &str) -> Covered<()> {
        // SAFETY: a call.
        let count = unsafe { inkwell::llvm_sys::core::LLVMGetNumArgOperands(it.raw()) };
        let mut arguments = Vec::new();
        for index in 0..count {
            let value = self.operand(it, index);
            arguments.push(Argument {
                operand: self.one(value)?,
                ty: self.scalar_type(value)?,
                passing: Passing::Plain,
            });
        }
        let ty = self.narrow(it)?;
        let callee = Callee::Symbol(self.library(name));
        self.emit_for(
            it,
            Op::Call(Box::new(Call {
                callee,
                arguments,
                returns: smallvec![Returned {
                    ty,
                    extension: None
                }],
                is_variadic: false,
                tail: Tail::No,
                returns_twice: false,
            })),
        )
    }

    /// Tests of what kind a number is, of those that a comparison tells.
    fn float_class(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        /// A number that is none, of both kinds.
        const NAN: i64 = 0b11;
        const INFINITE: i64 = 1 << 2 | 1 << 9;
        const ALL: i64 = (1 << 10) - 1;
        const ORDERED: i64 = ALL & !NAN;
        const FINITE: i64 = ALL & !NAN & !INFINITE;
        const NOT_INFINITE: i64 = ALL & !INFINITE;
        const NOT_FINITE: i64 = NAN | INFINITE;
        let value = self.operand(it, 0);
        let ty = self.scalar_type(value)?;
        let infinity = match ty {
            Type::F32 => Operand::Float(0x7f80_0000),
            Type::F64 => Operand::Float(0x7ff0_0000_0000_0000),
            _ => return not("llvm.is.fpclass"),
        };
        let one = self.one(value)?;
        let predicate = match number_of(self.operand(it, 1)) {
            Some(NAN) => {
                return self.emit_for(it, Op::FloatCompare(FloatPredicate::Uno, ty, [one, one]));
            }
            Some(ORDERED) => {
                return self.emit_for(it, Op::FloatCompare(FloatPredicate::Ord, ty, [one, one]));
            }
            Some(INFINITE) => FloatPredicate::OEq,
            Some(FINITE) => FloatPredicate::OLt,
            Some(NOT_INFINITE) => FloatPredicate::UNe,
            Some(NOT_FINITE) => FloatPredicate::UGe,
            _ => return not("llvm.is.fpclass"),
        };
        let size = Op::FloatUnary(uruk_baseline::ir::FloatUnary::Abs, ty, one);
        let size = self.emit_one(size);
        self.emit_for(it, Op::FloatCompare(predicate, ty, [size, infinity]))
    }
}

/// Whether a constant is one before it is placed: no address is in it.
fn is_manifest(value: ValueRef<'_>, depth: u32) -> bool {
    // SAFETY: a live value.
    let constant = unsafe { LLVMIsConstant(value.raw()) } != 0;
    constant
        && depth < 16
        && !value.is_global()
        && value.kind() != LLVMValueKind::LLVMBlockAddressValueKind
        && value.parts().all(|part| is_manifest(part, depth + 1))
}
