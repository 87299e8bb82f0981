//! Describes a body of bitcode as an [`Anatomy`], which decides which of its loops can be left.
//!
//! The description must equal the one of the body in LLVM's memory (`uruk_codegen`): a test there
//! compares them.

use rustc_hash::FxHashSet;
use uruk_bitcode::ir::{
    Attribute, Attributes, BinaryOp, Body, Call, CastOp, Constant, Definition, GlobalKind,
    Instruction, Module, Op, Ordering, Type, TypeId, ValueId,
};
use uruk_leaving::{Anatomy, Carried, Code, Facts, Meaning, NONE, Reason, Simple};

use crate::refused::{Covered, invalid};
use crate::types::Types;
use crate::{Lowering, Named, Refused, intrinsics::Becomes};

/// Attributes by LLVM's number in bitcode.
mod attribute {
    pub(super) const NAKED: u32 = 7;
    pub(super) const NOALIAS: u32 = 9;
    pub(super) const RETURNS_TWICE: u32 = 23;
    pub(super) const COROUTINE: u32 = 83;
    /// `inalloca`, `swifterror`, `preallocated`.
    pub(super) const SPECIALLY: [u32; 3] = [38, 47, 65];
}

/// Properties of a module that are computed once.
#[derive(Debug)]
pub(crate) struct Known {
    /// Representations by type.
    carried: Box<[Carried]>,
    /// Meanings of intrinsics by global.
    meanings: Box<[Meaning]>,
    /// By list of attributes: whether an argument is passed that is no plain value.
    specially: Box<[bool]>,
    /// Functions with a block whose address is a constant of the module.
    pub(crate) labelled: FxHashSet<u32>,
}

impl Known {
    /// Computes the properties of a module.
    pub(crate) fn of(module: &Module, types: &Types) -> Known {
        let carried = (0..).map(TypeId).zip(&module.types);
        let meanings = module.globals.iter().map(|global| match global.kind {
            GlobalKind::Function => Meaning::of(module.name(global)),
            _ => Meaning::Nothing,
        });
        let passes = |list: &Attributes| {
            let mut all = list.parameters.iter();
            all.any(|(_, list)| attribute::SPECIALLY.iter().any(|&kind| has(list, kind)))
        };
        let constants = module.constants.iter();
        let labelled = constants.filter_map(|(_, constant)| match constant {
            Constant::Label(function, _) => Some(function.0),
            _ => None,
        });
        Known {
            carried: carried.map(|(id, ty)| carry(id, ty, types)).collect(),
            meanings: meanings.collect(),
            specially: module.attributes.iter().map(passes).collect(),
            labelled: labelled.collect(),
        }
    }

    fn carried(&self, ty: TypeId) -> Carried {
        let carried = self.carried.get(ty.index()).copied();
        carried.unwrap_or(Carried::Never)
    }
}

fn has(list: &[Attribute], kind: u32) -> bool {
    list.iter().any(|it| match *it {
        Attribute::Flag(it) | Attribute::Number(it, _) | Attribute::Typed(it, _) => it == kind,
        Attribute::Text(..) => false,
    })
}

/// The representation of values of a type across a head.
fn carry(id: TypeId, ty: &Type, types: &Types) -> Carried {
    let simple = match *ty {
        Type::Integer(bits) => Simple::integer(bits),
        Type::Float => Some(Simple::FLOAT),
        Type::Double => Some(Simple::DOUBLE),
        Type::Pointer(space) => Some(Simple::pointer(space)),
        _ => None,
    };
    match types.info(id).size {
        Some(_) => Carried::or_stored(simple),
        None => Carried::Never,
    }
}

struct Telling<'a> {
    lowering: &'a Lowering,
    module: &'a Module,
    body: &'a Body,
    /// True if copies have two instructions in the place of `fmuladd`.
    splits: bool,
    anatomy: &'a mut Anatomy,
}

/// Describes the body of a global; `contract` is as for the compile of a copy.
pub(crate) fn tell(
    lowering: &Lowering,
    body: &Body,
    global: u32,
    contract: bool,
    anatomy: &mut Anatomy,
) -> Covered<()> {
    anatomy.clear();
    let mut telling = Telling {
        lowering,
        module: &lowering.module,
        body,
        splits: !contract,
        anatomy,
    };
    telling.head(global)?;
    for (block, range) in (0..).zip(&body.blocks) {
        telling.anatomy.begin_block();
        for at in range.clone() {
            telling.instruction(at as usize, block == 0)?;
        }
    }
    anatomy.finish();
    Ok(())
}

impl Telling<'_> {
    /// Describes properties of the body as a whole, and its parameters.
    fn head(&mut self, number: u32) -> Covered<()> {
        let Some(global) = self.module.globals.get(number as usize) else {
            return invalid("no such function");
        };
        let list = self.module.attributes(global.attributes);
        let function = |kind| has(&list.function, kind);
        let is_odd =
            global.is_special || function(attribute::NAKED) || function(attribute::RETURNS_TWICE);
        self.anatomy.whole = match function(attribute::COROUTINE) {
            true => Some(Reason::Coroutine),
            false => is_odd.then_some(Reason::Other),
        };
        for index in 0..self.body.parameters {
            let mut lists = list.parameters.iter();
            let promised = lists.any(|(at, list)| *at == index && has(list, attribute::NOALIAS));
            let ty = self.body.types[index as usize];
            let carried = self.lowering.known.carried(ty);
            self.anatomy.add_parameter(carried, promised);
        }
        Ok(())
    }

    /// The number of a value, if it is a parameter's or an instruction's.
    fn number(&self, value: ValueId) -> u32 {
        let Body {
            first,
            parameters,
            ref constants,
            ref makers,
            ..
        } = *self.body;
        let Some(own) = value.0.checked_sub(first) else {
            return NONE;
        };
        if own < parameters {
            return own;
        }
        let result = (own - parameters).checked_sub(constants.len() as u32);
        let maker = result.and_then(|it| makers.get(it as usize));
        maker.map_or(NONE, |&it| parameters + it)
    }

    /// Adds the operands that are values.
    fn add(&mut self, operands: &[ValueId]) {
        for &operand in operands {
            let number = self.number(operand);
            if number != NONE {
                self.anatomy.add_operand(number);
            }
        }
    }

    fn instruction(&mut self, at: usize, is_entry: bool) -> Covered<()> {
        let body = self.body;
        let it = &body.instructions[at];
        let operands = body.operands_of(it);
        let Some(code) = code_of(&it.op) else {
            return Err(Refused::Unread("an unusual instruction"));
        };
        let result = it.result.and_then(|it| body.type_of(self.module, it));
        let mut carried = match result {
            Some(ty) => self.lowering.known.carried(ty),
            None => Carried::Never,
        };
        let mut facts = Facts::none();
        match &it.op {
            Op::Load {
                volatile, ordering, ..
            } => facts = special(*volatile, *ordering),
            Op::Store {
                volatile, ordering, ..
            } => return self.store(code, special(*volatile, *ordering), operands),
            Op::ExtractValue(path) => facts = Facts::FIRST.when(**path == [0]),
            Op::GetElementPtr(_) | Op::Cast(CastOp::BitCast) => {
                let fixed = operands.iter().skip(1).all(|&it| self.is_constant(it));
                let is_pointer =
                    result.is_some_and(|ty| matches!(self.module.ty(ty), Type::Pointer(_)));
                facts = Facts::FIXED.when(fixed) | Facts::POINTER.when(is_pointer);
            }
            Op::Alloca { of, .. } => {
                carried = self.lowering.known.carried(*of);
                facts = self.room(*of, operands, is_entry);
            }
            Op::Call(call) | Op::Invoke(call, _) => return self.call(at, code, call, carried),
            _ => {}
        }
        self.operands(it, operands);
        self.anatomy.add(code, Meaning::Nothing, facts, carried);
        Ok(())
    }

    /// Describes a store, whose type is that of the stored value.
    fn store(&mut self, code: Code, facts: Facts, operands: &[ValueId]) -> Covered<()> {
        let &[to, value] = operands else {
            return invalid("another number of operands");
        };
        let carried = match self.body.type_of(self.module, value) {
            Some(ty) => self.lowering.known.carried(ty),
            None => return invalid("a value without a type"),
        };
        self.anatomy.add_operand(self.number(value));
        self.anatomy.add_operand(self.number(to));
        self.anatomy.add(code, Meaning::Nothing, facts, carried);
        Ok(())
    }

    /// Describes the instruction `at`, a call with a result of that kind; records for debuggers are
    /// no calls.
    fn call(&mut self, at: usize, code: Code, call: &Call, carried: Carried) -> Covered<()> {
        let body = self.body;
        let operands = body.operands_of(&body.instructions[at]);
        let Some((&callee, arguments)) = operands.split_first() else {
            return invalid("another number of operands");
        };
        let lists = &self.lowering.known.specially;
        let specially = lists.get(call.attributes.0 as usize) == Some(&true);
        let mut meaning = Meaning::Nothing;
        let mut facts =
            Facts::MUST_TAIL.when(call.must_tail) | Facts::PASSES_SPECIALLY.when(specially);
        if let Some(Definition::Global(global)) = body.definition(self.module, callee) {
            if self.name(global).starts_with("llvm.dbg.") {
                let none = (Meaning::Nothing, Facts::none(), Carried::Never);
                self.anatomy.add(Code::Nothing, none.0, none.1, none.2);
                return Ok(());
            }
            meaning = self.lowering.known.meanings[global as usize];
            let volatile = meaning == Meaning::Memory && self.is_volatile(arguments);
            facts = facts
                | Facts::SPECIAL.when(volatile)
                | Facts::FUSED.when(self.splits && self.is_fused(global));
        }
        self.add(arguments);
        self.add(body.bundled(at));
        self.add(&[callee]);
        self.anatomy.add(code, meaning, facts, carried);
        Ok(())
    }

    fn operands(&mut self, it: &Instruction, operands: &[ValueId]) {
        match &it.op {
            Op::Phi(from) => {
                for (&value, from) in operands.iter().zip(from) {
                    self.anatomy.add_incoming(self.number(value), from.0);
                }
            }
            // The condition comes first.
            Op::Select => {
                let (values, condition) = operands.split_at(operands.len().saturating_sub(1));
                self.add(condition);
                self.add(values);
            }
            _ => self.add(operands),
        }
    }

    fn name(&self, global: u32) -> &str {
        self.lowering.name(global)
    }

    fn is_fused(&self, global: u32) -> bool {
        matches!(
            self.lowering.named[global as usize],
            Named::Intrinsic(Becomes::MulAdd)
        )
    }

    fn is_constant(&self, value: ValueId) -> bool {
        matches!(
            self.body.definition(self.module, value),
            Some(Definition::Constant(_) | Definition::Global(_))
        )
    }

    /// Whether an intrinsic about memory is volatile.
    fn is_volatile(&self, arguments: &[ValueId]) -> bool {
        let flag = arguments.get(3);
        flag.and_then(|&it| self.word(it)).is_none_or(|it| it != 0)
    }

    /// The low word of a constant number, without a sign.
    fn word(&self, value: ValueId) -> Option<u64> {
        let Some(Definition::Constant(constant)) = self.body.definition(self.module, value) else {
            return None;
        };
        let ty = self.body.type_of(self.module, value)?;
        let Type::Integer(bits @ 1..=64) = *self.module.ty(ty) else {
            return None;
        };
        match constant {
            Constant::Null => Some(0),
            Constant::Integer(words) => words.first().map(|it| it & (u64::MAX >> (64 - bits))),
            _ => None,
        }
    }

    /// The facts about an `alloca`.
    fn room(&mut self, of: TypeId, operands: &[ValueId], is_entry: bool) -> Facts {
        let count = operands.first().and_then(|&it| self.word(it));
        let Some(count) = count else {
            return Facts::none();
        };
        if is_entry && matches!(self.module.ty(of), Type::Vector(_, _, true)) {
            self.anatomy.scalable = true;
        } else if is_entry {
            let bytes = self.lowering.types.info(of).size;
            self.anatomy.add_room(bytes.unwrap_or(u64::MAX), count);
        }
        Facts::COUNTED
    }
}

fn special(volatile: bool, ordering: Ordering) -> Facts {
    Facts::SPECIAL.when(volatile || ordering != Ordering::NotAtomic)
}

/// The kind of an instruction; `None` if it is not read here.
fn code_of(op: &Op) -> Option<Code> {
    Some(match op {
        Op::Binary(op, _) => binary(*op),
        Op::Cast(op) => cast(*op),
        Op::FNeg(_) => Code::FNeg,
        Op::GetElementPtr(_) => Code::GetElementPtr,
        Op::ExtractValue(_) => Code::ExtractValue,
        Op::InsertValue(_) => Code::InsertValue,
        Op::Select => Code::Select,
        Op::ExtractElement => Code::ExtractElement,
        Op::InsertElement => Code::InsertElement,
        Op::ShuffleVector => Code::ShuffleVector,
        Op::Compare(_) => Code::Compare,
        Op::Phi(_) => Code::Phi,
        Op::Alloca { .. } => Code::Alloca,
        Op::Load { .. } => Code::Load,
        Op::Store { .. } => Code::Store,
        Op::CompareExchange { .. } => Code::CompareExchange,
        Op::Rmw { .. } => Code::Rmw,
        Op::Fence(_) => Code::Fence,
        Op::Call(_) => Code::Call,
        Op::Invoke(..) => Code::Invoke,
        Op::LandingPad(..) => Code::LandingPad,
        Op::Resume => Code::Resume,
        Op::VaArg => Code::VaArg,
        Op::Freeze => Code::Freeze,
        Op::Return => Code::Return,
        Op::Jump(_) | Op::Branch(_) => Code::Branch,
        Op::Switch(_) => Code::Switch,
        Op::IndirectBranch(_) => Code::IndirectBranch,
        Op::Unreachable => Code::Unreachable,
        Op::Other(_) => return None,
    })
}

fn binary(op: BinaryOp) -> Code {
    match op {
        BinaryOp::Add => Code::Add,
        BinaryOp::Sub => Code::Sub,
        BinaryOp::Mul => Code::Mul,
        BinaryOp::UDiv => Code::UDiv,
        BinaryOp::SDiv => Code::SDiv,
        BinaryOp::URem => Code::URem,
        BinaryOp::SRem => Code::SRem,
        BinaryOp::Shl => Code::Shl,
        BinaryOp::LShr => Code::LShr,
        BinaryOp::AShr => Code::AShr,
        BinaryOp::And => Code::And,
        BinaryOp::Or => Code::Or,
        BinaryOp::Xor => Code::Xor,
    }
}

fn cast(op: CastOp) -> Code {
    match op {
        CastOp::Trunc => Code::Trunc,
        CastOp::ZExt => Code::ZExt,
        CastOp::SExt => Code::SExt,
        CastOp::FpToUi => Code::FpToUi,
        CastOp::FpToSi => Code::FpToSi,
        CastOp::UiToFp => Code::UiToFp,
        CastOp::SiToFp => Code::SiToFp,
        CastOp::FpTrunc => Code::FpTrunc,
        CastOp::FpExt => Code::FpExt,
        CastOp::PtrToInt => Code::PtrToInt,
        CastOp::IntToPtr => Code::IntToPtr,
        CastOp::BitCast => Code::BitCast,
        CastOp::AddrSpaceCast => Code::AddrSpaceCast,
        CastOp::PtrToAddr => Code::PtrToAddr,
    }
}
