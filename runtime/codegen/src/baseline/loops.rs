//! What is counted, and which loops can be left with what: said, where a copy has instructions
//! inserted.

use inkwell::llvm_sys::debuginfo::LLVMGetSubprogram;
use uruk_baseline::ir::{Argument, Counting, Head, Passing, Reach, Symbol, SymbolData, Type};

use super::reading::{Covered, Reading, not};
use super::types::Shape as TypeShape;
use crate::compile::{COUNTERS, Compile, Counters, LOOPS};
use crate::continuation::anatomy::Body;
use crate::continuation::frame::{Kind, Variable};
use crate::continuation::offer::{Decision, Heads, Places, decide};
use crate::handles::{InstructionRef, ValueRef};

impl<'m> Reading<'_, 'm> {
    /// Says what is counted; whether anything is, and at which heads.
    pub(super) fn count(&mut self, how: &Compile) -> Covered<(bool, Heads)> {
        // SAFETY: a live function.
        if how.lines && unsafe { !LLVMGetSubprogram(self.function.raw()).is_null() } {
            return not("lines");
        }
        if how.counters != Counters::Entry {
            return Ok((false, Heads::default()));
        }
        let counters = self.add_words(COUNTERS);
        self.out.counting.counters = Some(counters);
        let latches = match how.leaves {
            true => return self.leave_loops(how).map(|heads| (true, heads)),
            false => self.shape.latches(),
        };
        self.count_latches(latches);
        Ok((true, Heads::default()))
    }

    fn add_words(&mut self, name: &str) -> Symbol {
        self.add_symbol(SymbolData {
            name: name.into(),
            reach: Reach::Near,
            is_weak: false,
        })
    }

    fn count_latches(&mut self, latches: &[u32]) {
        let numbers = &self.numbers;
        let latches = latches.iter().filter_map(|&it| numbers[it as usize]);
        self.out.counting.latches = latches.collect();
        self.out.counting.latches.sort_unstable();
    }

    fn leave_loops(&mut self, how: &Compile) -> Covered<Heads> {
        let reader = self.source.reader;
        let is_fused = |it: InstructionRef<'m>| {
            let callee = it.callee();
            !how.contract && callee.is_some_and(|callee| reader.table().is_fmuladd(callee))
        };
        // SAFETY: the layout is kept beside us.
        let body = unsafe { Body::in_place(self.function, self.known.types.layout(), &is_fused) };
        let can_pass = |kind: Kind| kind != Kind::Stored;
        let decision = decide(reader.kinds(), body, self.shape, can_pass);
        let Decision {
            heads,
            latches,
            chosen,
            frame,
        } = decision;
        self.count_latches(&latches);
        let (Some(frame), false) = (frame, chosen.is_empty()) else {
            return Ok(heads);
        };
        let words = self.add_words(LOOPS);
        let mut leaving = Vec::with_capacity(chosen.len());
        for (place, (own, (_, what))) in heads.counted.iter().zip(&chosen).enumerate() {
            let Some(block) = self.numbers[own.block as usize] else {
                return not("a loop that is not reached");
            };
            let Places { slot, count, left } = Heads::places(place, chosen.len());
            let mut head = Head {
                block,
                slot: slot as u32,
                count: count as u32,
                left: left as u32,
                arguments: Vec::with_capacity(what.variables.len()),
                loaded: Vec::new(),
                stored: Vec::new(),
            };
            for &variable in &what.variables {
                self.cross(frame.variables[variable as usize], &mut head)?;
            }
            leaving.push(head);
        }
        leaving.sort_unstable_by_key(|head| head.block);
        self.out.counting = Counting {
            loops: Some(words),
            heads: leaving,
            ..std::mem::take(&mut self.out.counting)
        };
        Ok(heads)
    }

    /// Adds what crosses for a variable.
    fn cross(&mut self, variable: Variable<'m>, head: &mut Head) -> Covered<()> {
        let value: ValueRef<'m> = variable.value;
        let operand = self.one(value)?;
        let ty = match variable.kind {
            Kind::Value | Kind::Scalar => {
                let known = self.known.types.know(variable.ty);
                match self.known.types.info(known).shape {
                    TypeShape::Scalar(ty) => ty,
                    _ => return not("what lives across a loop's head"),
                }
            }
            _ => Type::PTR,
        };
        if variable.kind == Kind::Scalar {
            head.loaded.push(head.arguments.len() as u32);
        }
        head.arguments.push(Argument {
            operand,
            ty,
            passing: Passing::Plain,
        });
        Ok(())
    }
}
