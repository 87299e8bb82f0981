//! What operands are: values that were read, constants, and addresses of symbols.
//!
//! Constants are looked at once in each function, but addresses of thread-local variables, which
//! are computed wherever they are used.

use inkwell::llvm_sys::core::{
    LLVMConstBitCast, LLVMConstIntGetSExtValue, LLVMConstIntGetZExtValue, LLVMGetAggregateElement,
    LLVMGetConstOpcode, LLVMGetGEPSourceElementType, LLVMGetNumOperands, LLVMGetOperand,
    LLVMGetTypeContext, LLVMIntTypeInContext, LLVMIsAConstantInt, LLVMPrintValueToString,
    LLVMTypeOf,
};
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};
use uruk_baseline::ir::{Op, Operand, Reach, Symbol, SymbolData, Type};

use super::reading::{Covered, Reading, not};
use super::types::{Known, Shape};
use super::values::Scalars;
use crate::context::take_message;
use crate::handles::{InstructionRef, TypeRef, ValueRef};
use crate::plan::Access;
use crate::summary::{Kind, Linkage, Placement, SymbolId};

const EXPRESSION: &str = "a constant expression";

/// Constant expressions nested in each other, at most.
const DEPTH: u32 = 16;

impl<'m> Reading<'_, 'm> {
    /// An operand of an instruction, below the number it has.
    pub(super) fn operand(&self, it: InstructionRef<'m>, index: u32) -> ValueRef<'m> {
        // SAFETY: an instruction with that operand; operands live as it does.
        unsafe { ValueRef::of(LLVMGetOperand(it.raw(), index)) }
    }

    /// Whatever stands for a value.
    pub(super) fn scalars(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        match self.known.values.get(value.raw() as usize) {
            Some(scalars) => Ok(scalars),
            None => self.constant(value),
        }
    }

    /// The scalar that stands for a value which is one.
    pub(super) fn one(&mut self, value: ValueRef<'m>) -> Covered<Operand> {
        let scalars = self.scalars(value)?;
        match self.known.values.of(scalars) {
            [operand] => Ok(*operand),
            _ => not("an operation on an aggregate"),
        }
    }

    /// An operand that is one scalar.
    pub(super) fn one_of(&mut self, it: InstructionRef<'m>, index: u32) -> Covered<Operand> {
        let value = self.operand(it, index);
        self.one(value)
    }

    fn constant(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        use LLVMValueKind as K;
        let kind = value.kind();
        let scalars = match kind {
            K::LLVMConstantIntValueKind => self.integer(value)?,
            K::LLVMConstantPointerNullValueKind => self.known.values.add([Operand::Int(0)]),
            K::LLVMConstantFPValueKind => self.floating(value)?,
            K::LLVMUndefValueValueKind | K::LLVMPoisonValueKind => {
                let known = self.known_type(value);
                let count = self.leaves(known)?.len();
                let operands = std::iter::repeat_n(Operand::Undef, count);
                self.known.values.add(operands)
            }
            K::LLVMConstantAggregateZeroValueKind => {
                let known = self.known_type(value);
                self.zero(known)?
            }
            K::LLVMConstantStructValueKind
            | K::LLVMConstantArrayValueKind
            | K::LLVMConstantDataArrayValueKind => self.aggregate(value)?,
            K::LLVMFunctionValueKind
            | K::LLVMGlobalVariableValueKind
            | K::LLVMGlobalAliasValueKind
            | K::LLVMGlobalIFuncValueKind => {
                let symbol = self.symbol(value)?;
                if self.symbol_data(symbol).reach == Reach::ThreadLocal {
                    return self.thread_local(symbol);
                }
                self.known.values.add([Operand::Address(symbol, 0)])
            }
            K::LLVMConstantExprValueKind => {
                let operand = match self.evaluate(value, 0)? {
                    (Some(symbol), bytes) => Operand::Address(symbol, bytes),
                    (None, bytes) => Operand::Int(bytes as u64),
                };
                self.known.values.add([operand])
            }
            K::LLVMBlockAddressValueKind => {
                let label = self.label(value)?;
                self.known.values.add([label])
            }
            K::LLVMConstantVectorValueKind | K::LLVMConstantDataVectorValueKind => {
                match self.known.types.by_lanes {
                    true => self.aggregate(value)?,
                    false => self.lanes(value)?,
                }
            }
            K::LLVMInlineAsmValueKind => return not("assembly"),
            _ => return not("an unusual value"),
        };
        self.known.values.set(value.raw() as usize, scalars);
        Ok(scalars)
    }

    fn integer(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        let known = self.known_type(value);
        match self.shape_of(known) {
            Shape::Scalar(_) => {
                // SAFETY: a constant integer.
                let bits = unsafe { LLVMConstIntGetZExtValue(value.raw()) };
                Ok(self.known.values.add([Operand::Int(bits)]))
            }
            Shape::Wide => {
                let bits = printed(value)?;
                let halves = [bits as u64, (bits >> 64) as u64].map(Operand::Int);
                Ok(self.known.values.add(halves))
            }
            _ => {
                self.leaves(known)?;
                not("an unusual constant")
            }
        }
    }

    fn floating(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        let known = self.known_type(value);
        let Shape::Scalar(ty) = self.shape_of(known) else {
            self.leaves(known)?;
            return not("an unusual constant");
        };
        let bits = match ty {
            Type::F32 => 32,
            Type::F64 => 64,
            _ => 80,
        };
        // SAFETY: a constant, its context, and an integer type as wide as it is: LLVM gives the
        // integer with its bits.
        let same = unsafe {
            let context = LLVMGetTypeContext(LLVMTypeOf(value.raw()));
            let integer = LLVMIntTypeInContext(context, bits);
            ValueRef::of(LLVMConstBitCast(value.raw(), integer))
        };
        if same.kind() != LLVMValueKind::LLVMConstantIntValueKind {
            return not("an unusual constant");
        }
        let operand = match bits {
            80 => {
                let index = self.out.wide.len() as u32;
                let bits = printed(same)? & ((1 << 80) - 1);
                self.out.wide.push(bits.to_le_bytes());
                Operand::Wide(index)
            }
            // SAFETY: a constant integer.
            _ => Operand::Float(unsafe { LLVMConstIntGetZExtValue(same.raw()) }),
        };
        Ok(self.known.values.add([operand]))
    }

    fn zero(&mut self, known: Known) -> Covered<Scalars> {
        let mut operands = Vec::new();
        for at in 0..self.leaves(known)?.len() {
            let operand = match self.leaves(known)?[at].ty {
                Type::Int(_) => Operand::Int(0),
                Type::F32 | Type::F64 => Operand::Float(0),
                Type::F80 | Type::V128 | Type::V64 => {
                    self.out.wide.push([0; 16]);
                    Operand::Wide(self.out.wide.len() as u32 - 1)
                }
            };
            operands.push(operand);
        }
        Ok(self.known.values.add(operands))
    }

    /// A constant struct or array: what its parts are, in order.
    fn aggregate(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        let known = self.known_type(value);
        self.leaves(known)?;
        let mut operands = Vec::new();
        for index in 0.. {
            // SAFETY: a live constant, whose parts live as it does; null behind the last.
            let part = unsafe { LLVMGetAggregateElement(value.raw(), index) };
            // SAFETY: as above.
            let Some(part) = (unsafe { ValueRef::from_raw(part) }) else {
                break;
            };
            let scalars = self.scalars(part)?;
            operands.extend_from_slice(self.known.values.of(scalars));
        }
        Ok(self.known.values.add(operands))
    }

    /// A constant vector of 16 bytes.
    fn lanes(&mut self, value: ValueRef<'m>) -> Covered<Scalars> {
        let known = self.known_type(value);
        self.leaves(known)?;
        let Shape::Vector { lane, lanes } = self.shape_of(known) else {
            return not("an unusual constant");
        };
        let (mut all, size) = ([0; 16], lane.bytes() as usize);
        for (index, bytes) in (0..lanes).zip(all.chunks_exact_mut(size)) {
            // SAFETY: a live constant with so many lanes, which live as it does.
            let part = unsafe { ValueRef::of(LLVMGetAggregateElement(value.raw(), index)) };
            let bits = match self.one(part)? {
                Operand::Int(bits) | Operand::Float(bits) => bits,
                Operand::Undef => 0,
                _ => return not("an address in a constant vector"),
            };
            bytes.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        self.out.wide.push(all);
        let wide = Operand::Wide(self.out.wide.len() as u32 - 1);
        Ok(self.known.values.add([wide]))
    }

    fn thread_local(&mut self, symbol: Symbol) -> Covered<Scalars> {
        if !self.may_emit() {
            return not("a thread-local variable in a phi");
        }
        let address = self.emit_one(Op::ThreadLocal(symbol));
        Ok(self.known.values.add([address]))
    }

    /// An address, or a number, that an expression comes to.
    fn evaluate(&mut self, value: ValueRef<'m>, depth: u32) -> Covered<(Option<Symbol>, i64)> {
        use LLVMValueKind as K;
        if depth > DEPTH {
            return not(EXPRESSION);
        }
        if value.is_global() {
            let symbol = self.symbol(value)?;
            return match self.symbol_data(symbol).reach {
                Reach::ThreadLocal => not("a constant expression of a thread-local variable"),
                _ => Ok((Some(symbol), 0)),
            };
        }
        match value.kind() {
            K::LLVMConstantPointerNullValueKind => Ok((None, 0)),
            K::LLVMConstantIntValueKind if self.is_word(value) => {
                // SAFETY: a constant integer of 64 bits.
                Ok((None, unsafe { LLVMConstIntGetSExtValue(value.raw()) }))
            }
            K::LLVMConstantExprValueKind => self.evaluate_expression(value, depth + 1),
            _ => not(EXPRESSION),
        }
    }

    fn is_word(&mut self, value: ValueRef<'m>) -> bool {
        let known = self.known_type(value);
        self.shape_of(known) == Shape::Scalar(Type::PTR)
    }

    fn evaluate_expression(
        &mut self,
        value: ValueRef<'m>,
        depth: u32,
    ) -> Covered<(Option<Symbol>, i64)> {
        // SAFETY: a constant expression, whose operands are constants.
        let (opcode, parts) = unsafe {
            let parts = LLVMGetNumOperands(value.raw()).max(0) as u32;
            let part = |at| ValueRef::of(LLVMGetOperand(value.raw(), at));
            let opcode = LLVMGetConstOpcode(value.raw());
            (opcode, (0..parts).map(part).collect::<Vec<_>>())
        };
        if !self.is_word(value) {
            return not(EXPRESSION);
        }
        match (opcode, &parts[..]) {
            (LLVMOpcode::LLVMGetElementPtr, [base, indices @ ..]) => {
                let (symbol, mut bytes) = self.evaluate(*base, depth)?;
                // SAFETY: an expression with such a type.
                let source = unsafe { TypeRef::of(LLVMGetGEPSourceElementType(value.raw())) };
                let mut within = self.known.types.know(source);
                for (at, index) in indices.iter().enumerate() {
                    let Some(number) = number_of(*index) else {
                        return not(EXPRESSION);
                    };
                    let step = match at {
                        0 => Step::Each(self.known.types.info(within).size),
                        _ => self.step(within)?,
                    };
                    let (moved, next) = self.take(step, within, number);
                    bytes = bytes.wrapping_add(moved);
                    within = next;
                }
                Ok((symbol, bytes))
            }
            (
                LLVMOpcode::LLVMBitCast
                | LLVMOpcode::LLVMAddrSpaceCast
                | LLVMOpcode::LLVMPtrToInt
                | LLVMOpcode::LLVMPtrToAddr
                | LLVMOpcode::LLVMIntToPtr,
                [one],
            ) if self.is_word(*one) => self.evaluate(*one, depth),
            (LLVMOpcode::LLVMAdd, [a, b]) => {
                let (a, b) = (self.evaluate(*a, depth)?, self.evaluate(*b, depth)?);
                match (a, b) {
                    ((symbol, a), (None, b)) | ((None, a), (symbol, b)) => {
                        Ok((symbol, a.wrapping_add(b)))
                    }
                    _ => not(EXPRESSION),
                }
            }
            (LLVMOpcode::LLVMSub, [a, b]) => {
                let (a, b) = (self.evaluate(*a, depth)?, self.evaluate(*b, depth)?);
                match (a, b) {
                    ((symbol, a), (None, b)) => Ok((symbol, a.wrapping_sub(b))),
                    ((Some(x), a), (Some(y), b)) if x == y => Ok((None, a.wrapping_sub(b))),
                    _ => not(EXPRESSION),
                }
            }
            _ => not(EXPRESSION),
        }
    }

    /// What an index into a type does.
    pub(super) fn step(&self, within: Known) -> Covered<Step> {
        match self.shape_of(within) {
            Shape::Struct { fields } => Ok(Step::Field(fields)),
            Shape::Array { element, stride } => Ok(Step::Element(element, stride)),
            _ => not("an index into a vector"),
        }
    }

    /// Where a constant index leads: bytes, and the type there.
    pub(super) fn take(&self, step: Step, within: Known, index: i64) -> (i64, Known) {
        match step {
            Step::Each(size) => (index.wrapping_mul(size as i64), within),
            Step::Element(element, stride) => (index.wrapping_mul(stride as i64), element),
            Step::Field(fields) => {
                let field = self.known.types.field(fields, index as u32);
                (field.offset as i64, field.ty)
            }
        }
    }

    /// The symbol that a global is.
    pub(super) fn symbol(&mut self, global: ValueRef<'m>) -> Covered<Symbol> {
        let Some(id) = self.source.id(global) else {
            return not("a symbol from elsewhere");
        };
        if let Some(&known) = self.known.callees.symbols.get(&id) {
            return Ok(known);
        }
        if matches!(self.source.info(id).placement, Placement::WithFunction(_)) {
            return not("a table of labels");
        }
        let symbol = self.add_symbol(self.symbol_of(id));
        self.known.callees.symbols.insert(id, symbol);
        Ok(symbol)
    }

    fn symbol_of(&self, id: SymbolId) -> SymbolData {
        let (info, import) = (self.source.info(id), self.source.plan.import(id));
        let reach = match self.source.effective_kind(id) {
            Kind::Function | Kind::Ifunc { .. } => Reach::Indirect,
            Kind::ThreadLocal => Reach::ThreadLocal,
            _ if import.access == Access::Near => Reach::Near,
            _ => Reach::Indirect,
        };
        SymbolData {
            name: import.name.clone(),
            reach,
            is_weak: info.linkage == Linkage::DeclaredWeak,
        }
    }

    /// A function that the compiler's code calls by its name.
    pub(super) fn library(&mut self, name: &str) -> Symbol {
        let known = self.out.symbols.iter().position(|it| &*it.name == name);
        match known {
            Some(at) => Symbol(at as u32),
            None => self.add_symbol(SymbolData {
                name: name.into(),
                reach: Reach::Indirect,
                is_weak: false,
            }),
        }
    }

    pub(super) fn add_symbol(&mut self, data: SymbolData) -> Symbol {
        self.out.symbols.push(data);
        Symbol(self.out.symbols.len() as u32 - 1)
    }
}

/// What an index does.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// The first one: so many whole values on.
    Each(u64),
    /// To an element of that type, so many bytes each.
    Element(Known, u64),
    /// To a field of the struct whose fields begin there.
    Field(u32),
}

/// The value of a constant integer of at most 64 bits.
pub(super) fn number_of(value: ValueRef<'_>) -> Option<i64> {
    // SAFETY: a live value; it is asked for its number if it is one.
    unsafe {
        (!LLVMIsAConstantInt(value.raw()).is_null()).then(|| LLVMConstIntGetSExtValue(value.raw()))
    }
}

/// The bits of a constant integer of at most 128 bits. LLVM-C tells the low half only: the rest
/// is read off its text.
fn printed(value: ValueRef<'_>) -> Covered<u128> {
    // SAFETY: a live constant, whose text is ours.
    let text = unsafe { take_message(LLVMPrintValueToString(value.raw())) };
    let number = text.rsplit(' ').next().unwrap_or_default();
    match number.parse::<i128>() {
        Ok(number) => Ok(number as u128),
        Err(_) => not("an unusual constant"),
    }
}
