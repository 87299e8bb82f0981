//! Reads one body.
//!
//! Numbers of values are relative to the count of values so far: a reference to a later value carries
//! its type behind the number.

use crate::constants;
use crate::ir::{
    AttributesId, BlockId, Body, Call, Instruction, Op, Ordering, Type, TypeId, ValueId,
};
use crate::marks::{Mark, Mentioned};
use crate::module::{Refused, Source, block};
use crate::stream::What;
use crate::walk::{Entry, Walk};

mod calls;
mod memory;
mod values;

/// Stands for metadata in place of a value.
const METADATA: ValueId = ValueId(u32::MAX);

/// Codes of records that are not instructions.
mod code {
    pub(super) const BLOCKS: u64 = 1;
    pub(super) const LINE_AGAIN: u64 = 33;
    pub(super) const LINE: u64 = 35;
    pub(super) const BUNDLE: u64 = 55;
    pub(super) const LABEL_USERS: u64 = 60;
    /// Debug records.
    pub(super) const DEBUG: std::ops::RangeInclusive<u64> = 61..=66;
}

/// A body in progress.
struct Reading<'a> {
    source: &'a Source,
    types: &'a [Type],
    body: &'a mut Body,
    /// The number of the next value.
    next: u32,
    /// Number of blocks that the body declares.
    blocks: u32,
    /// Whether the current block still needs a terminator.
    open: bool,
    /// The greatest value number that was mentioned.
    greatest: u32,
    /// Values that were mentioned before their definition, with the types given there.
    forwards: Vec<(ValueId, TypeId)>,
    /// Whether operand bundles wait for their call.
    bundles: bool,
    line: (u32, u32),
    /// The numbers of the current record that are indices, if they are requested.
    marks: Option<Vec<Mark>>,
}

/// The remaining operands of a record.
struct Operands<'r> {
    record: &'r [u64],
    at: usize,
}

impl Operands<'_> {
    fn number(&mut self) -> Result<u64, Refused> {
        let number = self.record.get(self.at).ok_or(Refused::OutOfRange)?;
        self.at += 1;
        Ok(*number)
    }

    /// The next number, or zero if there is none.
    fn option(&mut self) -> u64 {
        self.number().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.at >= self.record.len()
    }

    fn short(&mut self) -> Result<u32, Refused> {
        u32::try_from(self.number()?).map_err(|_| Refused::OutOfRange)
    }
}

impl Source {
    /// Reads body number `number` into `body`. `bytes` are those of the module.
    ///
    /// # Errors
    /// The body has a form that is not read here.
    pub fn read_body(&self, bytes: &[u8], number: usize, body: &mut Body) -> Result<(), Refused> {
        self.read_marked(bytes, number, body, None, |_, _, _| {})
    }

    /// Like [`read_body`](Source::read_body). With a list of `marks`, calls `each` for every record of
    /// the body: its code, its numbers, and the marks of those that are indices.
    pub(crate) fn read_marked(
        &self,
        bytes: &[u8],
        number: usize,
        body: &mut Body,
        marks: Option<Vec<Mark>>,
        mut each: impl FnMut(u64, &[u64], &[Mark]),
    ) -> Result<(), Refused> {
        let &extent = self.bodies.get(number).ok_or(Refused::OutOfRange)?;
        let stream = bytes.get(self.stream.clone()).ok_or(Refused::OutOfRange)?;
        let first = (self.module.globals.len() + self.module.constants.len()) as u32;
        clear(body, first);
        let mut reading = Reading {
            source: self,
            types: &self.module.types,
            body,
            next: first,
            blocks: 0,
            open: false,
            greatest: 0,
            forwards: Vec::new(),
            bundles: false,
            line: (0, 0),
            marks,
        };
        reading.parameters(self.defined[number])?;
        let mut walk = Walk::new(stream);
        if extent.end > walk.cursor.end {
            return Err(Refused::OutOfRange);
        }
        let mut inside = walk.enter(extent, &self.standard);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => break,
                Entry::Block(extent) if extent.number == block::CONSTANTS => {
                    if !reading.body.instructions.is_empty() {
                        return Err(walk.cursor.fail(What::Place).into());
                    }
                    let Body {
                        types, constants, ..
                    } = &mut *reading.body;
                    let all = reading.types;
                    constants::read(&mut walk, extent, &self.standard, all, |ty, one| {
                        types.push(ty);
                        constants.push(one);
                    })?;
                    reading.next = first + reading.body.types.len() as u32;
                }
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(code) => {
                    reading.record(code, &walk.record)?;
                    if let Some(marks) = &mut reading.marks {
                        each(code, &walk.record, marks);
                        marks.clear();
                    }
                }
            }
        }
        reading.finish()
    }
}

fn clear(body: &mut Body, first: u32) {
    body.first = first;
    body.parameters = 0;
    body.types.clear();
    body.constants.clear();
    body.blocks.clear();
    body.instructions.clear();
    body.operands.clear();
    body.makers.clear();
    body.labels_elsewhere = false;
}

impl<'a> Reading<'a> {
    fn parameters(&mut self, global: u32) -> Result<(), Refused> {
        let ty = self.source.module.globals[global as usize].ty;
        let Type::Function(_, parameters, _) = self.ty(ty) else {
            return Err(Refused::OutOfRange);
        };
        self.body.types.extend_from_slice(parameters);
        self.body.parameters = parameters.len() as u32;
        self.next += self.body.parameters;
        Ok(())
    }

    fn ty(&self, id: TypeId) -> &'a Type {
        self.types.get(id.index()).unwrap_or(&Type::Other)
    }

    fn record(&mut self, code: u64, record: &[u64]) -> Result<(), Refused> {
        match code {
            code::BLOCKS => {
                let count = record.first().copied().unwrap_or_default();
                self.blocks = u32::try_from(count).map_err(|_| Refused::OutOfRange)?;
                return Ok(());
            }
            code::LINE => {
                let at = |index: usize| record.get(index).copied().unwrap_or_default();
                let short = |number: u64| u32::try_from(number).unwrap_or_default();
                self.line = (short(at(0)), short(at(1)));
                return self.put_line();
            }
            code::LINE_AGAIN => return self.put_line(),
            code::BUNDLE => {
                self.bundles = true;
                let mut operands = Operands { record, at: 1 };
                while !operands.is_empty() {
                    self.typed(&mut operands)?;
                }
                return Ok(());
            }
            code::LABEL_USERS => {
                self.body.labels_elsewhere = true;
                return Ok(());
            }
            code if code::DEBUG.contains(&code) => return Ok(()),
            _ => {}
        }
        let mut operands = Operands { record, at: 0 };
        let start = self.body.operands.len() as u32;
        if !self.open {
            let at = self.body.instructions.len() as u32;
            self.body.blocks.push(at..at);
            self.open = true;
        }
        let (op, ty) = self.instruction(code, &mut operands)?;
        // Flags may follow operations with a value; other numbers are damage, or of a later release.
        let flagged = matches!(
            op,
            Op::Binary(..) | Op::Cast(_) | Op::FNeg(_) | Op::Select | Op::Compare(_) | Op::Phi(_)
        );
        if operands.record.len() > operands.at + usize::from(flagged) {
            return Err(Refused::OutOfRange);
        }
        self.put(op, ty, start);
        Ok(())
    }

    /// The operation of an instruction, and the type of its result.
    fn instruction(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        match code {
            2 | 3 | 28 | 29 | 43 | 56 | 58 => self.value(code, operands),
            6 | 7 | 8 | 26 | 27 => self.part(code, operands),
            16 => self.phi(operands),
            19 | 20 | 23 | 36 | 41 | 44 | 45 | 46 | 59 => self.memory(code, operands),
            10 | 11 | 12 | 15 | 31 | 39 => self.terminator(code, operands),
            13 | 34 | 47 => self.call(code, operands),
            48..=52 => Err(Refused::Unknown("funclets")),
            57 if self.marks.is_some() => self.branching_call(operands),
            57 => Err(Refused::Unknown("callbr")),
            _ => Err(Refused::Unknown("an instruction of an old form")),
        }
    }

    fn put(&mut self, op: Op, ty: Option<TypeId>, start: u32) {
        let ends = matches!(
            op,
            Op::Return
                | Op::Jump(_)
                | Op::Branch(_)
                | Op::Switch(_)
                | Op::IndirectBranch(_)
                | Op::Unreachable
                | Op::Resume
                | Op::Invoke(..)
        );
        let result = ty.map(|ty| {
            self.body.types.push(ty);
            let maker = self.body.instructions.len() as u32;
            self.body.makers.push(maker);
            let value = ValueId(self.next);
            self.next += 1;
            value
        });
        let operands = start..self.body.operands.len() as u32;
        self.body.instructions.push(Instruction {
            op,
            operands,
            result,
            line: (0, 0),
        });
        if let Some(block) = self.body.blocks.last_mut() {
            block.end = self.body.instructions.len() as u32;
        }
        self.open = !ends;
    }

    fn put_line(&mut self) -> Result<(), Refused> {
        let last = self.body.instructions.last_mut();
        last.ok_or(Refused::OutOfRange)?.line = self.line;
        Ok(())
    }

    /// Checks that all numbers refer to existing values.
    fn finish(self) -> Result<(), Refused> {
        let whole = !self.open && self.body.blocks.len() as u32 == self.blocks;
        let in_range = self.greatest < self.next || self.next == 0;
        let fits = |&(value, ty): &(ValueId, TypeId)| self.type_of(value) == Some(ty);
        let fit = self.forwards.iter().all(fits);
        match whole && in_range && fit && !self.bundles && self.blocks != 0 {
            true => Ok(()),
            false => Err(Refused::OutOfRange),
        }
    }

    // Operands and their parts.

    /// Notes that the last number read is an index.
    #[inline]
    fn mark(&mut self, operands: &Operands<'_>, to: Mentioned) {
        if let Some(marks) = &mut self.marks {
            let at = operands.at - 1;
            marks.push(Mark { at, to });
        }
    }

    fn mention(&mut self, value: ValueId) -> ValueId {
        if value != METADATA {
            self.greatest = self.greatest.max(value.0);
        }
        self.body.operands.push(value);
        value
    }

    /// A value whose type is known from its context.
    fn relative(&mut self, operands: &mut Operands<'_>) -> Result<ValueId, Refused> {
        let number = operands.number()? as u32;
        let value = ValueId(self.next.wrapping_sub(number));
        self.mark(operands, Mentioned::Value(value));
        Ok(self.mention(value))
    }

    /// A value, and its type.
    fn typed(&mut self, operands: &mut Operands<'_>) -> Result<(ValueId, TypeId), Refused> {
        let value = self.relative(operands)?;
        let ty = match value.0 >= self.next {
            true => {
                let ty = self.type_id(operands)?;
                self.forwards.push((value, ty));
                ty
            }
            false => self.type_of(value).ok_or(Refused::OutOfRange)?,
        };
        Ok((value, ty))
    }

    /// A value of the given type.
    fn relative_as(&mut self, ty: TypeId, operands: &mut Operands<'_>) -> Result<(), Refused> {
        let value = self.relative(operands)?;
        self.said(value, ty)
    }

    /// Checks that a value has the type given for it.
    fn said(&mut self, value: ValueId, ty: TypeId) -> Result<(), Refused> {
        match value.0 >= self.next {
            true => self.forwards.push((value, ty)),
            false if self.type_of(value) == Some(ty) => {}
            false => return Err(Refused::OutOfRange),
        }
        Ok(())
    }

    /// A value by its absolute number.
    fn absolute(&mut self, operands: &mut Operands<'_>) -> Result<ValueId, Refused> {
        let value = ValueId(operands.short()?);
        self.mark(operands, Mentioned::Value(value));
        Ok(self.mention(value))
    }

    fn type_of(&self, value: ValueId) -> Option<TypeId> {
        self.body.type_of(&self.source.module, value)
    }

    fn type_id(&mut self, operands: &mut Operands<'_>) -> Result<TypeId, Refused> {
        let number = operands.short()?;
        self.mark(operands, Mentioned::Type(TypeId(number)));
        match (number as usize) < self.types.len() {
            true => Ok(TypeId(number)),
            false => Err(Refused::OutOfRange),
        }
    }

    /// The attributes of a call.
    fn attributes(&mut self, operands: &mut Operands<'_>) -> Result<u32, Refused> {
        let number = operands.short()?;
        self.mark(operands, Mentioned::Attributes(AttributesId(number)));
        Ok(number)
    }

    fn block(&self, operands: &mut Operands<'_>) -> Result<BlockId, Refused> {
        let number = operands.short()?;
        match number < self.blocks {
            true => Ok(BlockId(number)),
            false => Err(Refused::OutOfRange),
        }
    }

    /// The number of a type that results may have; the module has it if it uses it.
    fn known(&self, ty: &Type) -> Result<TypeId, Refused> {
        let id = self.source.known.id(ty);
        id.ok_or(Refused::Unknown("a type that the module does not name"))
    }

    /// The result type of comparisons of values of a type.
    fn bit_like(&self, ty: TypeId) -> Result<TypeId, Refused> {
        let bit = self.known(&Type::Integer(1))?;
        match *self.ty(ty) {
            Type::Vector(count, _, scalable) => self.known(&Type::Vector(count, bit, scalable)),
            _ => Ok(bit),
        }
    }

    // Terminators.

    fn terminator(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        let op = match code {
            10 => {
                if !operands.is_empty() {
                    self.typed(operands)?;
                }
                Op::Return
            }
            11 => {
                let to = self.block(operands)?;
                match operands.is_empty() {
                    true => Op::Jump(to),
                    false => {
                        let other = self.block(operands)?;
                        self.relative(operands)?;
                        Op::Branch([to, other])
                    }
                }
            }
            12 => self.switch(operands)?,
            15 => Op::Unreachable,
            31 => {
                let ty = self.type_id(operands)?;
                self.relative_as(ty, operands)?;
                let mut to = Vec::new();
                while !operands.is_empty() {
                    to.push(self.block(operands)?);
                }
                Op::IndirectBranch(to.into())
            }
            _ => {
                self.typed(operands)?;
                Op::Resume
            }
        };
        Ok((op, None))
    }

    fn switch(&mut self, operands: &mut Operands<'_>) -> Result<Op, Refused> {
        let ty = self.type_id(operands)?;
        self.relative_as(ty, operands)?;
        let mut to = vec![self.block(operands)?];
        while !operands.is_empty() {
            let case = self.absolute(operands)?;
            self.said(case, ty)?;
            to.push(self.block(operands)?);
        }
        Ok(Op::Switch(to.into()))
    }
}

/// The atomic ordering with a number in bitcode.
fn ordering(number: u64) -> Result<Ordering, Refused> {
    const ALL: [Ordering; 7] = [
        Ordering::NotAtomic,
        Ordering::Unordered,
        Ordering::Monotonic,
        Ordering::Acquire,
        Ordering::Release,
        Ordering::AcqRel,
        Ordering::SeqCst,
    ];
    let known = ALL.get(number as usize).copied();
    known.ok_or(Refused::OutOfRange)
}

/// A call without its operands and flags.
fn plain_call(attributes: u32, convention: u32, function: TypeId, has_bundles: bool) -> Call {
    Call {
        attributes: AttributesId(attributes),
        convention,
        function,
        tail: false,
        must_tail: false,
        fast_math: 0,
        has_bundles,
    }
}
