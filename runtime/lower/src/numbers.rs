//! Intrinsics about floating-point numbers.

use smallvec::smallvec;
use uruk_baseline::ir::{
    Argument, Call, Callee, FloatPredicate, FloatUnary, Op, Operand, Passing, Returned, Tail, Type,
};
use uruk_bitcode::ir::Instruction;

use crate::lanes::{Lanes, Numbers, plain_load};
use crate::reading::{Covered, Reading, TYPES, invalid, not};

impl Reading<'_> {
    /// A call of the C library's function for a type.
    pub(crate) fn library_call(&mut self, it: &Instruction, name: &str) -> Covered<()> {
        let [value] = self.arguments(it)?;
        let Numbers { ty, .. } = self.numbers(self.type_of(value)?)?;
        let ending = match ty {
            Type::F32 => "f",
            Type::F64 => "",
            Type::F80 => "l",
            _ => return not("a function of the library for an unusual type"),
        };
        self.call_library(it, &format!("{name}{ending}"))
    }

    pub(crate) fn power(&mut self, it: &Instruction) -> Covered<()> {
        let name = match self.float_result(it)?.ty {
            Type::F32 => "__powisf2",
            Type::F64 => "__powidf2",
            Type::F80 => "__powixf2",
            _ => return not("a function of the library for an unusual type"),
        };
        self.call_library(it, name)
    }

    fn call_library(&mut self, it: &Instruction, name: &str) -> Covered<()> {
        let body = self.body;
        let all = body.operands_of(it).get(1..).unwrap_or_default();
        let result = self.narrow(it)?;
        let mut lists = Vec::with_capacity(all.len());
        for &value in all {
            let numbers = self.numbers(self.type_of(value)?)?;
            // A scalar operand is used for each lane of the others.
            if numbers
                .lanes
                .is_some_and(|lanes| result.lanes != Some(lanes))
            {
                return invalid(TYPES);
            }
            lists.push((self.lanes_as(value, numbers)?, numbers.ty));
        }
        let callee = Callee::Symbol(self.library(name));
        let mut results = Lanes::new();
        for at in 0..result.count() {
            let arguments = lists.iter().map(|(lanes, ty)| Argument {
                operand: lanes[at.min(lanes.len() - 1)],
                ty: *ty,
                passing: Passing::Plain,
            });
            let call = Call {
                callee,
                arguments: arguments.collect(),
                returns: smallvec![Returned {
                    ty: result.ty,
                    extension: None
                }],
                is_variadic: false,
                tail: Tail::No,
                returns_twice: false,
            };
            results.push(self.emit_one(Op::Call(Box::new(call))));
        }
        self.stand(it, results)
    }

    /// A fraction, and the integral part, which the library writes to memory.
    pub(crate) fn fraction(&mut self, it: &Instruction) -> Covered<()> {
        let [value] = self.arguments(it)?;
        let (operand, ty) = self.typed(value)?;
        let name = match ty {
            Type::F32 => "modff",
            Type::F64 => "modf",
            Type::F80 => "modfl",
            _ => return invalid(TYPES),
        };
        let room = self.room()?;
        let argument = |operand, ty| Argument {
            operand,
            ty,
            passing: Passing::Plain,
        };
        let call = Call {
            callee: Callee::Symbol(self.library(name)),
            arguments: vec![argument(operand, ty), argument(room, Type::PTR)],
            returns: smallvec![Returned {
                ty,
                extension: None
            }],
            is_variadic: false,
            tail: Tail::No,
            returns_twice: false,
        };
        let fraction = self.emit_one(Op::Call(Box::new(call)));
        let whole = self.emit_one(plain_load(ty, room));
        self.stand(it, [fraction, whole])
    }

    /// Tests the class of a number, for classes that one comparison can decide.
    pub(crate) fn float_class(&mut self, it: &Instruction) -> Covered<()> {
        /// Both kinds of NaN.
        const NAN: i64 = 0b11;
        const INFINITE: i64 = 1 << 2 | 1 << 9;
        const ALL: i64 = (1 << 10) - 1;
        const ORDERED: i64 = ALL & !NAN;
        const FINITE: i64 = ALL & !NAN & !INFINITE;
        const NOT_INFINITE: i64 = ALL & !INFINITE;
        const NOT_FINITE: i64 = NAN | INFINITE;
        let [value, which] = self.arguments(it)?;
        let numbers @ Numbers { ty, .. } = self.numbers(self.type_of(value)?)?;
        let infinity = match ty {
            Type::F32 => Operand::Float(0x7f80_0000),
            Type::F64 => Operand::Float(0x7ff0_0000_0000_0000),
            _ => return not("llvm.is.fpclass"),
        };
        let predicate = match self.number(which) {
            Some(NAN) => {
                return self.each_op(it, [value], numbers, |[one]| {
                    Op::FloatCompare(FloatPredicate::Uno, ty, [one, one])
                });
            }
            Some(ORDERED) => {
                return self.each_op(it, [value], numbers, |[one]| {
                    Op::FloatCompare(FloatPredicate::Ord, ty, [one, one])
                });
            }
            Some(INFINITE) => FloatPredicate::OEq,
            Some(FINITE) => FloatPredicate::OLt,
            Some(NOT_INFINITE) => FloatPredicate::UNe,
            Some(NOT_FINITE) => FloatPredicate::UGe,
            _ => return not("llvm.is.fpclass"),
        };
        self.each(it, [value], numbers, |reading, [one]| {
            let size = reading.emit_one(Op::FloatUnary(FloatUnary::Abs, ty, one));
            reading.emit_one(Op::FloatCompare(predicate, ty, [size, infinity]))
        })
    }
}
