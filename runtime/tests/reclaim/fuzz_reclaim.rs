//! `sequences` for a few seconds of random steps.
//!
//! `URUK_STRESS_SEED` is the first seed (1), `URUK_STRESS_SECONDS` how long (4).

use std::time::{Duration, Instant};

use uruk_testing::Random;

use crate::sequences;

#[test]
fn random_sequences_do_what_the_model_says() {
    let setting = |name, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse::<u64>().expect("a number"))
    };
    let mut seed = setting("URUK_STRESS_SEED", 1);
    let limit = Duration::from_secs(setting("URUK_STRESS_SECONDS", 4));
    let began = Instant::now();
    while began.elapsed() < limit {
        let mut bytes = [0; 160];
        Random::new(seed).fill(&mut bytes);
        println!("seed {seed}");
        sequences::run(&bytes);
        seed += 1;
    }
}
