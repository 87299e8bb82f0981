//! `stress_reclaim/body.rs`, bounded: 100,000 functions replaced, and 100,000 publications
//! besides where the library is built with optimization and without assertions, else 6
//! seconds of it. The example `stress` runs it for long.
//!
//! `URUK_STRESS_SEED` is the seed (1).

#[path = "stress_reclaim/body.rs"]
mod body;

use std::time::Duration;

#[test]
fn nothing_is_wrong_while_code_comes_moves_and_goes() {
    let seed = std::env::var("URUK_STRESS_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let release = !cfg!(debug_assertions);
    let plan = body::Plan {
        publications: 100_000,
        seed,
        sets: 2,
        wide: 4,
        replacements: 100_000,
        limit: Duration::from_secs(if release { 120 } else { 6 }),
    };
    let outcome = body::run(&plan).expect("no error");
    println!("seed {seed}: {outcome:#?}");
    let [start, middle, end] = outcome.memory;
    assert!(outcome.calls > 500 && outcome.removed > 10, "{outcome:#?}");
    assert!(outcome.moved > 500 && outcome.freed > 500, "{outcome:#?}");
    let replaced = &outcome.replaced;
    assert!(
        replaced.immediate > 10 && replaced.rolled_back > 2,
        "{outcome:#?}"
    );
    assert!(replaced.all() >= 100_000, "{outcome:#?}");
    assert!(replaced.quiescent + replaced.given_up > 2, "{outcome:#?}");
    // Live memory is the same throughout; held memory must not grow with time.
    let most = start.held.max(middle.held) + (256 << 10);
    assert!(end.held <= most, "memory grows: {outcome:#?}");
}
