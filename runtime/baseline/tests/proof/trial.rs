//! Takes one function through all steps: checks, interprets and compiles it, checks its code, runs
//! and compares it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::ir::{self, Block, Function, Parameter, Passing, Type};
use uruk_baseline::{Code, Compiler, Options};

use crate::chance::{Chance, edges};
use crate::interpret::{self, Given, Input, Ran};
use crate::native;
use crate::world::{PIECES, Pieces, ROOM};

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This many runs gave equal results.
    Same(usize),
    /// The compiler does not cover it.
    Uncovered(&'static str),
    /// An error.
    Wrong(String),
}

impl Outcome {
    pub fn is_wrong(&self) -> bool {
        matches!(self, Outcome::Wrong(_))
    }
}

/// Tries a function with inputs; skips those with undefined behaviour.
pub fn try_inputs(function: &Function, inputs: Vec<Input>, options: &Options) -> Outcome {
    if let Err(broken) = ir::check(function) {
        return Outcome::Wrong(format!("the function itself: {broken}"));
    }
    let (function, code, exits) = match compiled(function, options) {
        Ok(compiled) => compiled,
        Err(outcome) => return outcome,
    };
    let function = &function;
    let layout = native::layout();
    let mut runs: Vec<(Input, Ran)> = Vec::new();
    for input in inputs {
        if let Ok(ran) = interpret::run(function, &input, &layout) {
            runs.push((input, ran));
        }
    }
    if let Err(what) = crate::oracle::check(function, &code, &exits) {
        return Outcome::Wrong(format!("the code itself: {what}"));
    }
    match native::compare(function, &code, &exits, &runs) {
        Ok(()) => Outcome::Same(runs.len()),
        Err((nth, what)) => {
            let input = runs.get(nth).map(|(input, _)| &input.arguments);
            Outcome::Wrong(format!("{what}\nwith {input:x?}"))
        }
    }
}

/// Compiles a function and its exits. The exits of the result pass only values that the function
/// keeps: those are what a run can compare.
fn compiled(function: &Function, options: &Options) -> Result<(Function, Code, Code), Outcome> {
    let mut function = function.clone();
    let mut alone = None;
    loop {
        let mut compiler = Compiler::new(*options);
        let made = catch_unwind(AssertUnwindSafe(|| compiler.compile_exits(&function)));
        let (code, exits) = match made {
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| it.to_string()));
                let text = text.unwrap_or_default();
                return Err(Outcome::Wrong(format!("the compiler panics: {text}")));
            }
            Ok(Err(uncovered)) => return Err(Outcome::Uncovered(uncovered.what)),
            Ok(Ok(made)) => made,
        };
        // Exits are no part of the function.
        let own = code.fingerprint();
        if *alone.get_or_insert(own) != own {
            return Err(Outcome::Wrong("other code with other exits".to_string()));
        }
        let has_exit = |block: Block| exits.blocks.iter().any(|exit| exit.0 == block);
        let mut heads = function.counting.heads.iter_mut();
        let Some(head) = heads.find(|head| !has_exit(head.block)) else {
            return Ok((function, code, exits));
        };
        if head.arguments.is_empty() {
            // Its block is not reached, or is a landing pad.
            let block = head.block;
            function.counting.heads.retain(|head| head.block != block);
            alone = None;
            continue;
        }
        let last = head.arguments.len() as u32 - 1;
        head.arguments.pop();
        head.loaded.retain(|&at| at != last);
        head.stored.retain(|it| it.argument != last);
    }
}

/// An input with random values.
pub fn random_input(function: &Function, pieces: &Rc<Pieces>, chance: &mut Chance) -> Input {
    let arguments = function.parameters.iter().map(|one| given(*one, chance));
    Input {
        arguments: arguments.collect(),
        pieces: Rc::clone(pieces),
    }
}

/// An argument; one that must be an address gets one of test memory.
fn given(parameter: Parameter, chance: &mut Chance) -> Given {
    match parameter.passing {
        Passing::Memory { size, .. } => {
            let bytes = (0..size).map(|_| chance.next() as u8);
            Given::Memory(bytes.collect())
        }
        Passing::Result => {
            let room = native::layout().pieces + 512;
            Given::Bits(u128::from(room))
        }
        _ => Given::Bits(chance.bits(parameter.ty)),
    }
}

/// The contents of memory: numbers of all types; for loops, counts that are about to end and words
/// that hold null or a host.
pub fn pieces(chance: &mut Chance) -> Rc<Pieces> {
    let layout = native::layout();
    let piece = |name: &&str| {
        let mut bytes = [0; ROOM];
        for (index, word) in bytes.chunks_mut(8).enumerate() {
            let ty = [Type::Int(64), Type::Int(32), Type::F64, Type::Int(8)][index % 4];
            let mut bits = chance.bits(ty) as u64;
            if *name == "loops" {
                let host = layout.address_of("host7").unwrap_or(0);
                bits = match index % 3 {
                    0 => chance.one_of(&[0, host]),
                    2 => layout.exit(8 * index as u32),
                    _ => chance.one_of(&[0, 7, 0x8000_0000, 0xffff_fff0, 0xffff_fffe, 0xffff_ffff]),
                };
            }
            word.copy_from_slice(&bits.to_le_bytes());
        }
        bytes
    };
    Rc::new(Pieces::new(PIECES.iter().map(piece).collect()))
}

/// Inputs with each pair of edge values, at most `most`, then random ones.
pub fn edge_inputs(function: &Function, most: usize, chance: &mut Chance) -> Vec<Input> {
    let pieces = pieces(chance);
    let lists: Vec<Rc<[u128]>> = function
        .parameters
        .iter()
        .map(|one| edges(one.ty))
        .collect();
    let all: usize = lists.iter().map(|list| list.len()).product();
    let mut inputs = Vec::new();
    for nth in 0..all.min(most) {
        // All pairs if they are few enough, else some of them.
        let mut left = match all <= most {
            true => nth,
            false => chance.below(all),
        };
        let mut input = random_input(function, &pieces, chance);
        for (given, list) in input.arguments.iter_mut().zip(&lists) {
            if let Given::Bits(bits) = given {
                *bits = list[left % list.len()];
            }
            left /= list.len();
        }
        inputs.push(input);
    }
    for _ in 0..most / 4 {
        inputs.push(random_input(function, &pieces, chance));
    }
    inputs
}
