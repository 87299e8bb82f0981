//! Takes one function through all steps: checks, interprets and compiles it, checks its code, runs
//! and compares it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::ir::{self, Function, Parameter, Passing, Type};
use uruk_baseline::{Options, compile};

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
    let layout = native::layout();
    let mut runs: Vec<(Input, Ran)> = Vec::new();
    for input in inputs {
        if let Ok(ran) = interpret::run(function, &input, &layout) {
            runs.push((input, ran));
        }
    }
    let compiled = catch_unwind(AssertUnwindSafe(|| compile(function, options)));
    let code = match compiled {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            return Outcome::Wrong(format!("the compiler panics: {}", text.unwrap_or_default()));
        }
        Ok(Err(uncovered)) => return Outcome::Uncovered(uncovered.what),
        Ok(Ok(code)) => code,
    };
    if let Err(what) = crate::oracle::check(function, &code) {
        return Outcome::Wrong(format!("the code itself: {what}"));
    }
    match native::compare(function, &code, &runs) {
        Ok(()) => Outcome::Same(runs.len()),
        Err((nth, what)) => {
            let input = runs.get(nth).map(|(input, _)| &input.arguments);
            Outcome::Wrong(format!("{what}\nwith {input:x?}"))
        }
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
