//! `uruk::fuzz::run` for a few seconds of random steps.
//!
//! `URUK_STRESS_SEED` is the first seed (1), `URUK_STRESS_SECONDS` how long (4).

use std::time::{Duration, Instant};

#[test]
fn random_sequences_do_what_the_model_says() {
    let setting = |name, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse::<u64>().expect("a number"))
    };
    let mut seed = setting("URUK_STRESS_SEED", 1);
    let limit = Duration::from_secs(setting("URUK_STRESS_SECONDS", 4));
    let began = Instant::now();
    while began.elapsed() < limit {
        let mut state = seed;
        let bytes: Vec<u8> = (0..160)
            .map(|_| {
                // Knuth's constants; the high byte is the random one.
                state = state.wrapping_mul(6_364_136_223_846_793_005);
                state = state.wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        println!("seed {seed}");
        uruk::fuzz::run(&bytes);
        seed += 1;
    }
}
