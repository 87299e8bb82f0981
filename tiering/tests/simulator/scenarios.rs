//! Made-up programs as test cases for a policy.

use uruk_testing::Random;
use uruk_tiering::{FunctionId, Nanos};

use super::{FunctionShape, Phase, Program};

/// Names and descriptions.
pub const ALL: [(&str, &str); 11] = [
    ("hello", "a few functions for a millisecond in all"),
    (
        "startup",
        "400 functions called a few times each, as an interpreter's start",
    ),
    (
        "hot-function",
        "one function of 200 instructions, called all the time",
    ),
    (
        "hot-loop",
        "one function entered once, with the program in its loop",
    ),
    (
        "interpreter",
        "one function of 5,000 instructions and twenty small ones",
    ),
    (
        "dispatch",
        "Lua: a loop of 9,000 instructions and calls in which the program is",
    ),
    (
        "database",
        "sqlite: a second over 150 functions, none with more than a tenth of it",
    ),
    ("phases", "another set of functions is hot every second"),
    ("flapping", "two functions take turns every 5 ms"),
    ("crowd", "3,000 functions at once, hot by Zipf's law"),
    ("never-quiet", "new functions become hot for ever"),
];

/// Time per sample of the scenarios.
const PERIOD: Nanos = Nanos::from_ms(1);

/// The program of a name; `None` for an unknown one.
pub fn named(name: &str, seed: u64) -> Option<Program> {
    let mut random = Random::new(seed ^ 0x5ce7_a210);
    Some(match name {
        "hello" => one_phase(vec![FunctionShape::of(40); 6], 1, |_| 1.0),
        "startup" => {
            let shapes = sizes(400, &mut random);
            one_phase(shapes, 10, |_| 1.0)
        }
        "hot-function" => one_phase(vec![FunctionShape::of(200)], 2000, |_| 1.0),
        "hot-loop" => {
            let mut shape = FunctionShape::looping(60, 0.0);
            shape.resident = true;
            one_phase(vec![shape], 1000, |_| 1.0)
        }
        "interpreter" => {
            let mut shapes = sizes(20, &mut random);
            let mut main = FunctionShape::looping(5000, 1e9);
            main.facts.loops = 40;
            shapes.insert(0, main);
            one_phase(shapes, 3000, |index| if index == 0 { 20.0 } else { 1.0 })
        }
        "dispatch" => {
            let mut shapes = called(30, &mut random);
            let mut main = FunctionShape::looping(9081, 1e4);
            (main.facts.loops, main.facts.calls) = (7, 175);
            shapes.insert(0, main);
            one_phase(shapes, 6000, |index| if index == 0 { 200.0 } else { 1.0 })
        }
        "database" => {
            let shapes = called(150, &mut random);
            one_phase(shapes, 1000, |index| 1.0 / (index + 5) as f64)
        }
        "phases" => {
            let shapes = sizes(40, &mut random);
            let phases = (0..4).map(|phase| Phase {
                work: Nanos::from_ms(1000),
                mix: (0..10).map(|i| (FunctionId(phase * 10 + i), 1.0)).collect(),
            });
            Program::new(shapes, phases.collect(), Some(PERIOD))
        }
        "flapping" => {
            let phases = (0..2).map(|function| Phase {
                work: Nanos::from_ms(5),
                mix: vec![(FunctionId(function), 1.0)],
            });
            Program::new(
                vec![FunctionShape::of(150); 2],
                phases.collect(),
                Some(PERIOD),
            )
            .repeating()
        }
        "crowd" => {
            let shapes = sizes(3000, &mut random);
            one_phase(shapes, 3000, |index| 1.0 / (index + 1) as f64)
        }
        "never-quiet" => {
            let shapes = sizes(4000, &mut random);
            let phases = (0..200).map(|phase| Phase {
                work: Nanos::from_ms(20),
                mix: (0..20).map(|i| (FunctionId(phase * 20 + i), 1.0)).collect(),
            });
            Program::new(shapes, phases.collect(), Some(PERIOD)).repeating()
        }
        _ => return None,
    })
}

/// Functions of the sizes and loops of a C program: a few instructions to a thousand, a
/// third with a loop.
fn sizes(count: u32, random: &mut Random) -> Vec<FunctionShape> {
    let shape = |_| {
        let instructions = (8.0 * (random.unit() * 4.8).exp()) as u32;
        match random.below(3) {
            0 => FunctionShape::looping(instructions, 20.0),
            _ => FunctionShape::of(instructions),
        }
    };
    (0..count).map(shape).collect()
}

/// Like [`sizes`], with calls in most functions, as in larger programs.
fn called(count: u32, random: &mut Random) -> Vec<FunctionShape> {
    let mut shapes = sizes(count, random);
    for shape in &mut shapes {
        shape.facts.calls = random.below(5) as u32;
    }
    shapes
}

/// All functions in one phase; `share` gives the part of the work of each.
fn one_phase(shapes: Vec<FunctionShape>, work_ms: u64, share: impl Fn(usize) -> f64) -> Program {
    let functions = 0..shapes.len();
    let mix = functions.map(|index| (FunctionId(index as u32), share(index)));
    let phase = Phase {
        work: Nanos::from_ms(work_ms),
        mix: mix.collect(),
    };
    Program::new(shapes, vec![phase], Some(PERIOD))
}
