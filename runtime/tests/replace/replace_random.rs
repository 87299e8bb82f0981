//! Random sequences of add, call, compile, replace (good and bad) and roll back, against a
//! model that is a list of constants.

use uruk::{Jit, Replacement, Tier};
use uruk_testing::Random;

/// Functions `f0` to `f5`: `fI` returns its constant, plus what `f(I+1)` returns if it
/// calls it.
const FUNCTIONS: usize = 6;
const STEPS: usize = 120;
const KEPT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Body {
    constant: i32,
    calls_next: bool,
}

type Model = [Body; FUNCTIONS];

fn value(model: &Model, function: usize) -> i32 {
    let Body {
        constant,
        calls_next,
    } = model[function];
    match calls_next && function + 1 < FUNCTIONS {
        true => constant + value(model, function + 1),
        false => constant,
    }
}

fn text(model: &Model, functions: &[usize]) -> String {
    let mut text = String::new();
    for function in 0..FUNCTIONS {
        if !functions.contains(&function) {
            text += &format!("declare i32 @f{function}()\n");
        }
    }
    for &function in functions {
        let Body {
            constant,
            calls_next,
        } = model[function];
        let next = function + 1;
        text += &match calls_next && next < FUNCTIONS {
            true => format!(
                "define i32 @f{function}() {{ %x = call i32 @f{next}() %y = add i32 %x, {constant} ret i32 %y }}\n"
            ),
            false => format!("define i32 @f{function}() {{ ret i32 {constant} }}\n"),
        };
    }
    text
}

/// Draws bodies and sets.
struct Bodies(Random);

impl Bodies {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn body(&mut self) -> Body {
        Body {
            constant: self.below(1000) as i32,
            calls_next: self.below(3) != 0,
        }
    }

    fn set(&mut self) -> Vec<usize> {
        let all = 0..FUNCTIONS;
        let mut set: Vec<usize> = all.filter(|_| self.below(3) == 0).collect();
        if set.is_empty() {
            set.push(self.below(FUNCTIONS));
        }
        set
    }
}

fn run(seed: u64) {
    let mut random = Bodies(Random::new(seed));
    let mut model: Model = std::array::from_fn(|_| random.body());
    let jit = Jit::builder()
        .jobs(1)
        .replacements_kept(KEPT)
        .build()
        .expect("a session");
    let all: Vec<usize> = (0..FUNCTIONS).collect();
    jit.add_ir("m", &text(&model, &all)).expect("valid");
    let mut history: Vec<Model> = Vec::new();
    for step in 0..STEPS {
        let function = random.below(FUNCTIONS);
        let name = format!("f{function}");
        match random.below(10) {
            0..=3 => {
                // SAFETY: the functions above.
                let f = unsafe { jit.function::<extern "C" fn() -> i32>(&name) }.expect("typed");
                assert_eq!(
                    f.call(),
                    value(&model, function),
                    "seed {seed}, step {step}, {name}"
                );
            }
            4 | 5 => {
                let tiers = [Tier::Baseline, Tier::Optimized, Tier::Guided];
                jit.compile_at(&name, tiers[random.below(3)])
                    .expect("compiles");
            }
            6 | 7 => {
                let set = random.set();
                let before = model;
                set.iter()
                    .for_each(|&function| model[function] = random.body());
                let replacement = Replacement::ir("new", &text(&model, &set));
                jit.main().replace(replacement).expect("replaceable");
                history.push(before);
                if history.len() > KEPT {
                    history.remove(0);
                }
            }
            8 => {
                let set = random.set();
                let mut other = model;
                set.iter()
                    .for_each(|&function| other[function] = random.body());
                let good = text(&other, &set);
                let last = format!("@f{}()", set[set.len() - 1]);
                let bad = match random.below(3) {
                    0 => good.replace(&format!("i32 {last}"), &format!("i64 {last}")),
                    1 => {
                        good + "declare void @gone() define void @g() { call void @gone() ret void }"
                    }
                    _ => good + "define void @g() { ret i32 0 }",
                };
                jit.main()
                    .replace(Replacement::ir("bad", &bad))
                    .expect_err("bad");
            }
            _ => match (jit.rollback(), history.pop()) {
                (Ok(_), Some(before)) => model = before,
                (Err(_), None) => {}
                (outcome, expected) => panic!("seed {seed}, step {step}: {outcome:?} {expected:?}"),
            },
        }
    }
    for function in 0..FUNCTIONS {
        // SAFETY: the functions above.
        let f = unsafe { jit.function::<extern "C" fn() -> i32>(&format!("f{function}")) };
        assert_eq!(
            f.expect("typed").call(),
            value(&model, function),
            "seed {seed}"
        );
    }
}

#[test]
fn random_sequences_agree_with_the_model() {
    for seed in [1, 0x9e37_79b9, 0xdead_beef_cafe] {
        run(seed);
    }
}
