//! Random functions whose loops are left, against the same that run whole: results, and memory.
//!
//! `URUK_LEAVE_SEEDS` is how many modules of random functions are made (a few by itself),
//! `URUK_LEAVE_FIRST` the first.

mod generate;
mod statements;

use std::cell::Cell;

use generate::function;
use uruk::{Jit, Tier, Tiers};
use uruk_testing::Random;

/// Functions of one module.
const FUNCTIONS: usize = 12;

/// Modules of an ordinary run.
const SEEDS: u64 = 2;

/// Which heads are left, at which passes: numbers up to 50 are passes, of every head; larger ones
/// choose a pass for each head of each function.
const LEAVES: [u32; 9] = [1, 2, 3, 5, 1001, 1002, 1003, 1004, 1005];

const INPUTS: [i64; 3] = [0, 29, -7_777_777_777];

type Body = extern "C-unwind" fn(*mut i64, i64, i64) -> i64;

thread_local! {
    /// The array that was last touched.
    static KNOWN: Cell<*mut i64> = const { Cell::new(std::ptr::null_mut()) };
}

/// Adds up an array of eight words, changes one, and keeps its address.
extern "C" fn touch(array: *mut i64, with: i64) -> i64 {
    KNOWN.set(array);
    again(with)
}

extern "C" fn again(with: i64) -> i64 {
    let array = KNOWN.get();
    let mut sum = with;
    for place in 0..8 {
        // SAFETY: an array of the frame that called `touch`, which is still there.
        unsafe {
            sum = sum.wrapping_mul(7).wrapping_add(array.add(place).read());
            if with & 7 == place as i64 {
                array.add(place).write(sum);
            }
        }
    }
    sum
}

fn module(seed: u64) -> String {
    let mut random = Random::new(seed);
    let functions = (0..FUNCTIONS).map(|number| function(&mut random, number));
    let functions: Vec<String> = functions.collect();
    format!("{}{}", generate::PRELUDE, functions.join("\n"))
}

/// The results of all functions, the memory that they leave, and the number of loops that were
/// left.
fn run(ir: &str, tiers: Tiers) -> (Vec<(i64, [i64; 32])>, u64) {
    let jit = Jit::builder().tiers(tiers).build().expect("a session");
    // SAFETY: the functions have the types they are declared with.
    unsafe {
        jit.main()
            .define_address("touch", touch as *const ())
            .expect("a name");
        jit.main()
            .define_address("again", again as *const ())
            .expect("a name");
    }
    jit.add_ir("random", ir)
        .unwrap_or_else(|cause| panic!("{cause}\n{ir}"));
    let mut results = Vec::new();
    for number in 0..FUNCTIONS {
        let address = jit.lookup(&format!("f{number}")).expect("known") as usize;
        // SAFETY: the function has this type.
        let body = unsafe { std::mem::transmute::<usize, Body>(address) };
        for input in INPUTS {
            let mut memory: [i64; 32] = std::array::from_fn(|it| it as i64 * 77 - 5);
            let result = body(memory.as_mut_ptr(), input, 1);
            results.push((result, memory));
        }
    }
    (results, jit.stats().continuations.left)
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |text| text.parse().expect(variable))
}

#[test]
fn who_leaves_comes_to_the_same() {
    let first = number("URUK_LEAVE_FIRST", 1);
    let mut left = 0;
    for seed in first..first + number("URUK_LEAVE_SEEDS", SEEDS) {
        let ir = module(seed);
        let (expected, none) = run(&ir, Tiers::Fixed(Tier::Baseline));
        assert_eq!(none, 0);
        let (optimized, _) = run(&ir, Tiers::Fixed(Tier::Optimized));
        assert!(expected == optimized, "seed {seed} is not well defined");
        for passes in LEAVES {
            let (found, here) = run(&ir, Tiers::Leave(passes));
            left += here;
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let (function, input) = (at / INPUTS.len(), INPUTS[at % INPUTS.len()]);
                if found != expected {
                    let path = std::env::temp_dir().join(format!("leave-{seed}.ll"));
                    let _ = std::fs::write(&path, &ir);
                    panic!(
                        "seed {seed}, f{function}({input}), left after {passes}: {} is not {} ({})",
                        found.0,
                        expected.0,
                        path.display()
                    );
                }
            }
        }
    }
    assert!(left > 100, "only {left} loops were left");
    println!("{left} loops were left");
}
