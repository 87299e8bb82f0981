//! The engine in the world of `check`: random runs, and the table of its guards.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod check;

use check::{Guard, Tally, moves, run};

const LENGTH: usize = 4_000;

/// No sequence of moves breaks the protocol, and together the sequences cause every event.
#[test]
fn random_runs_keep_the_promises() {
    let mut sum = Tally::default();
    for seed in 0..300 {
        match run(&moves(seed, LENGTH), None) {
            Ok(tally) => sum += tally,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{sum}");
    let counts = [
        sum.calls,
        sum.published,
        sum.moved,
        sum.freed,
        sum.pinned,
        sum.incomplete,
        sum.forks,
        sum.removed,
        sum.short,
    ];
    assert!(counts.iter().all(|&count| count > 300), "{sum}");
}

/// Without any one of its barriers and checks the protocol breaks.
#[test]
fn every_guard_is_needed() {
    println!("{:<36} {:>5}  what breaks", "without", "seed");
    let mut idle = Vec::new();
    for guard in Guard::ALL {
        let mut runs = 0..400_u64;
        let broken =
            runs.find_map(|seed| Some((seed, run(&moves(seed, LENGTH), Some(guard)).err()?)));
        match broken {
            Some((seed, violation)) => println!("{guard:<36} {seed:>5}  {violation}"),
            None => idle.push(guard),
        }
    }
    assert!(idle.is_empty(), "nothing breaks without {idle:?}");
}

/// A longer run: `cargo test -p uruk-reclaim --release --test world -- --ignored`.
#[test]
#[ignore = "takes a minute"]
fn many_random_runs_keep_the_promises() {
    for seed in 1_000..60_000 {
        if let Err(violation) = run(&moves(seed, LENGTH), None) {
            panic!("seed {seed}: {violation}");
        }
    }
}

/// A run depends on its moves alone.
#[test]
fn runs_repeat() {
    let moves = moves(11, LENGTH);
    assert_eq!(run(&moves, None), run(&moves, None));
    assert!(run(&[], None).is_ok());
    for byte in 0..=u8::MAX {
        let same = [byte; 600];
        assert_eq!(run(&same, None).err(), None, "{byte}");
        let pairs: Vec<u8> = same
            .iter()
            .enumerate()
            .map(|(at, b)| b ^ at as u8)
            .collect();
        assert_eq!(run(&pairs, None).err(), None, "{byte}");
    }
}
