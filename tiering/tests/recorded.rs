//! Inputs of a controller, recorded and replayed.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod simulator;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use simulator::{Machine, Replay, Truth, Workload, parse, scenarios};
use uruk_tiering::stream::Input;
use uruk_tiering::{Config, Controller, FunctionId, Nanos, Outcome, Tier, VersionIds};

/// A file with two owners.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn run<W: Workload>(workload: W, out: Option<Shared>) -> Machine<W> {
    let mut machine = Machine::new(&Config::default(), Truth::default(), workload, 1);
    if let Some(out) = out {
        machine.controller.record(Box::new(out), u64::MAX).unwrap();
    }
    machine.run(Nanos::from_ms(2_000));
    machine.controller.end_recording().unwrap();
    machine
}

/// The functions published, with their tiers.
fn published(text: &str) -> Vec<(FunctionId, Tier)> {
    let mut found = Vec::new();
    for (_, input) in parse(text).unwrap() {
        if let Input::Finished(function, _, tier, Outcome::Published { .. }) = input {
            found.push((function, tier));
        }
    }
    found
}

#[test]
fn a_replay_decides_what_was_decided() {
    let recorded = Shared::default();
    run(
        scenarios::named("hot-function", 1).expect("a scenario"),
        Some(recorded.clone()),
    );
    let first = published(&recorded.text());
    assert!(!first.is_empty());
    let again = Shared::default();
    let inputs = parse(&recorded.text()).unwrap();
    run(Replay::new(inputs), Some(again.clone()));
    assert_eq!(published(&again.text())[0], first[0]);
}

#[test]
fn wishes_are_recorded_in_their_order() {
    let out = Shared::default();
    let mut controller = Controller::new(&Config::default(), Arc::new(VersionIds::default()));
    controller.record(Box::new(out.clone()), u64::MAX).unwrap();
    let (now, function) = (Nanos::from_ms(3), FunctionId(7));
    controller.on_processor_time(now, Nanos(9));
    controller.pin(function, Some(Tier::Optimized));
    controller.pause();
    controller.on_sampling(Some(Nanos(1_000)));
    // Recorded once.
    controller.on_sampling(Some(Nanos(1_000)));
    controller.resume();
    controller.replaced(function);
    controller.end_recording().unwrap();
    controller.pause();
    let text = out.text();
    let kinds: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        kinds,
        [
            "3000000 processor ns=9",
            "3000000 pin f7 tier=2",
            "3000000 pause",
            "3000000 sampling ns=1000",
            "3000000 resume",
            "3000000 replaced f7",
        ]
    );
}

/// A writer with limited room, like a full disk.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_first_error_is_told_at_the_end_and_changes_nothing_else() {
    let mut controller = Controller::new(&Config::default(), Arc::new(VersionIds::default()));
    controller.record(Box::new(Full(40)), u64::MAX).unwrap();
    for _ in 0..9 {
        controller.pause();
    }
    assert!(controller.is_paused());
    let cause = controller.end_recording().expect_err("no room");
    assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
    controller.end_recording().expect("ended");
}
