//! A function of a module as the baseline compiler takes it, read in place: no copy is made, and
//! nothing of the module is changed.
//!
//! | file | is about |
//! |---|---|
//! | [`reading`] | the function as far as it was read, its blocks in order, phis |
//! | [`values`], [`operands`] | which scalars stand for what; constants and symbols |
//! | [`types`], [`attributes`] | what LLVM's types and attributes come to, found out once in a context |
//! | [`arithmetic`], [`wide`] | integers, floating point; 128 bits |
//! | [`memory`] | memory, addresses, aggregates, atomics |
//! | [`calls`], [`intrinsics`], [`lowering`], [`assembly`] | whom calls reach, and intrinsics |
//! | [`control`], [`jumps`] | ends of blocks, landing pads; tables of labels |
//! | [`loops`] | what is counted, and which loops can be left |
//!
//! # Invariants
//! - What is not covered is said by a constant text, and nothing is left of the attempt.
//! - Symbols have the names and the reach that a copy's declarations would have, so the code is
//!   linked likewise.
//! - A loop can be left if the copy's could be, for the same continuation: both ask the same
//!   analysis ([`decide`](crate::continuation::offer::decide)).
//!
//! # Why
//! LLVM-C costs some nanoseconds a question, tens for each instruction: so each is asked once.
//! Attributes and types are looked at once in a context, callees once in a function.

use uruk_base::Tier;
use uruk_base::parts::{self, Part};
use uruk_baseline::{Uncovered, ir};

use crate::compile::{Compile, Compiled, Counters};
use crate::error::CodegenError;
use crate::flow::Flow;
use crate::labels::{self, Labels};
use crate::plan::ModulePlan;
use crate::reader::{Reader, Verify};
use crate::shape::Shape;
use crate::source::Source;
use crate::summary::SymbolId;

mod arithmetic;
mod assembly;
mod attributes;
mod calls;
mod control;
mod intrinsics;
mod jumps;
mod loops;
mod lowering;
mod memory;
mod operands;
mod reading;
mod types;
mod values;
mod vectors;
mod wide;

pub(crate) use reading::Findings;
use reading::{Covered, Reading};

/// A function that was read.
#[derive(Debug, Clone)]
pub struct Read {
    /// What is compiled.
    pub function: ir::Function,
    /// What a compile would have found out about it; its object is empty.
    pub compiled: Compiled,
}

impl Reader {
    /// Reads one function for a compile of tier 1 as `how` says. Its body is made available and
    /// verified, and nothing of the module is changed.
    ///
    /// Symbols have the names of `plan`; a call of a function, itself too, is one of its plain
    /// name. Counters and words of loops are [`COUNTERS`](crate::COUNTERS) and
    /// [`LOOPS`](crate::LOOPS).
    ///
    /// # Errors
    /// An unreadable or invalid body; that it was cancelled. Inside, why it is not covered.
    pub fn baseline(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Result<Read, Uncovered>, CodegenError> {
        if let Some(what) = asks_for_more(how) {
            return Ok(Err(Uncovered { what }));
        }
        let mut findings = self.take_findings();
        let read = self.watched(how, |reader| {
            let function = reader.function(function)?;
            reader.materialize(function, Verify::Yes)?;
            let _lowering = parts::enter(Part::Lowering);
            let source = Source { reader, plan };
            let shape = Shape::of(Flow::of(function), 0, 0);
            let mut reading = Reading::new(source, &mut findings, function, &shape);
            let done = read(&mut reading, how);
            match done {
                // What vectors are not covered for as a whole may be so by lanes.
                Err(uncovered) if uncovered.what.contains("vector") => {
                    findings.types.by_lanes = true;
                    let source = Source { reader, plan };
                    let mut reading = Reading::new(source, &mut findings, function, &shape);
                    let done = read(&mut reading, how);
                    findings.types.by_lanes = false;
                    Ok(done.map_err(|_| uncovered))
                }
                done => Ok(done),
            }
        });
        self.keep_findings(findings);
        read
    }

    /// Takes a function back that was compiled: the next one has its room.
    pub fn take_back(&mut self, function: ir::Function) {
        let mut findings = self.take_findings();
        findings.room = emptied(function);
        self.keep_findings(findings);
    }
}

/// A function with nothing in it, in the room of another.
fn emptied(mut function: ir::Function) -> ir::Function {
    /// Instructions that room is kept for.
    const MOST: usize = 20_000;
    if function.instructions.capacity() > MOST {
        return ir::Function::default();
    }
    function.types.clear();
    function.blocks.clear();
    function.instructions.clear();
    function.symbols.clear();
    function.parameters.clear();
    ir::Function {
        types: function.types,
        blocks: function.blocks,
        instructions: function.instructions,
        symbols: function.symbols,
        parameters: function.parameters,
        ..ir::Function::default()
    }
}

/// What of a compile's settings is not covered.
pub(crate) fn asks_for_more(how: &Compile) -> Option<&'static str> {
    match how {
        _ if how.tier != Tier::Baseline => Some("a higher tier"),
        _ if how.start.is_some() => Some("a continuation"),
        _ if how.counters == Counters::Full => Some("probes"),
        _ if how.transform.is_some() => Some("a change of the code by the embedder"),
        _ => None,
    }
}

/// Reads all of a function.
fn read(reading: &mut Reading<'_, '_>, how: &Compile) -> Covered<Read> {
    reading.run()?;
    let (counts, heads) = reading.count(how)?;
    let (measure, notes) = (reading.shape.measure, &reading.notes);
    Ok(Read {
        compiled: Compiled {
            instructions: notes.instructions,
            unit_instructions: notes.instructions,
            loops: measure.loops,
            nested: measure.nested,
            labels: match notes.labels {
                true => labels::of(reading.function),
                false => Labels::None,
            },
            calls: notes.calls,
            keeps_stack: !notes.restores,
            counts,
            heads,
            ..Compiled::default()
        },
        function: std::mem::take(&mut reading.out),
    })
}
