//! Tests of the analysis as text: functions in, states and live ranges out.

use super::{Analysis, State};
use crate::text;

/// States of all used values, with the live ranges of those that have places, then variables.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let function = text::parse(text).expect("a function");
    text::check(&function).expect("a valid function");
    let mut analysis = Analysis::default();
    analysis.of(&function);
    let values = function.types.len() as u32;
    let name = |number: u32| match number.checked_sub(values) {
        Some(variable) => format!("v{variable}"),
        None => format!("%{number}"),
    };
    let lines: Vec<String> = analysis
        .lives
        .iter()
        .enumerate()
        .filter(|(_, life)| life.state != State::Dead)
        .map(|(number, life)| {
            let state = match life.state {
                State::Placed => format!("{}..{}", life.from, life.to),
                State::Same(of) => format!("same as {}", name(of)),
                State::Made(of) => format!("made in {}", name(of)),
                State::Read(of) => format!("read from {}", name(of)),
                State::Variable(of) => name(of),
                State::Folded => String::from("folded"),
                State::Frame => String::from("frame"),
                State::Dead => String::from("dead"),
            };
            format!("{} {state}", name(number as u32))
        })
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn conditions_are_made_by_branches() {
    check(
        "function(i32 %0, i64 %1) -> i32
        b0:
          %2 = load i32 %1 align 4
          %3 = icmp slt i32 %0, %2
          branch %3 b1, b2
        b1:
          return 1
        b2:
          return %0",
        &["%0 0..5", "%1 0..3", "%2 folded", "%3 folded"],
    );
    // A comparison with two uses is a value.
    check(
        "function(i32 %0) -> i1
        b0:
          %1 = icmp slt i32 %0, 5
          branch %1 b1, b2
        b1:
          return 1
        b2:
          return %1",
        &["%0 0..1", "%1 1..4"],
    );
}

#[test]
fn loads_stay_before_writes() {
    check(
        "function(i64 %0, i64 %1) -> i32
        b0:
          %2 = load i32 %0 align 4
          %3 = load i32 %1 align 4
          store i32 1 to %1 align 4
          %4 = add i32 %2, %3
          return %4",
        &["%0 0..1", "%1 0..3", "%2 1..4", "%3 2..4", "%4 4..5"],
    );
    // A comparison that is emitted behind a write does not fold the load.
    check(
        "function(i64 %0) -> i32
        b0:
          %1 = load i32 %0 align 4
          %2 = icmp eq i32 %1, 3
          store i32 1 to %0 align 4
          branch %2 b1, b2
        b1:
          return 1
        b2:
          return 2",
        &["%0 0..3", "%1 1..4", "%2 folded"],
    );
}

#[test]
fn memory_is_changed_in_place() {
    check(
        "function(i64 %0, i32 %1)
        b0:
          %2 = offset %0 8
          %3 = load i32 %2 align 4
          %4 = or i32 %3, %1
          store i32 %4 to %2 align 4
          return",
        &["%0 0..4", "%1 0..4", "%2 folded", "%3 folded", "%4 folded"],
    );
    check(
        "function(i64 %0, i64 %1)
        b0:
          %2 = load i32 %0 align 4
          store i32 0 to %1 align 4
          %3 = add i32 %2, 1
          store i32 %3 to %0 align 4
          return",
        &["%0 0..4", "%1 0..2", "%2 1..3", "%3 3..4"],
    );
}

#[test]
fn addresses_are_made_by_those_who_use_them() {
    check(
        "function(i64 %0, i64 %1) -> i32
        b0:
          %2 = alloca 64 align 16
          %3 = offset %2 16
          %4 = offset %0 [%1 i64 8] 0
          %5 = offset %4 4
          %6 = load i32 %5 align 4
          store i32 %6 to %3 align 4
          %7 = offset %2 [%1 i64 3] 0
          %8 = load i32 %7 align 4
          return %8",
        &[
            "%0 0..5",
            "%1 0..7",
            "%2 frame",
            "%3 frame",
            "%4 folded",
            "%5 folded",
            "%6 5..6",
            "%7 7..8",
            "%8 8..9",
        ],
    );
}

#[test]
fn allocas_become_variables() {
    check(
        "function(i32 %0) -> i32
        b0:
          %1 = alloca 4 align 4
          %2 = alloca 4 align 4
          store i32 %0 to %1 align 4
          store i32 0 to %2 align 4
          jump b1
        b1:
          %3 = load i32 %2 align 4
          %4 = load i32 %1 align 4
          %5 = icmp slt i32 %3, %4
          branch %5 b2, b3
        b2:
          %6 = load i32 %2 align 4
          %7 = add i32 %6, 1
          store i32 %7 to %2 align 4
          jump b1
        b3:
          %8 = load i32 %2 align 4
          return %8",
        &[
            "%0 made in v0",
            "%1 v0",
            "%2 v1",
            "%3 read from v1",
            "%4 read from v0",
            "%5 folded",
            "%6 read from v1",
            "%7 made in v1",
            "%8 read from v1",
            "v0 0..14",
            "v1 4..15",
        ],
    );
}

#[test]
fn a_value_that_outlives_its_variable_has_a_place() {
    check(
        "function(i32 %0) -> i32
        b0:
          %1 = alloca 4 align 4
          store i32 %0 to %1 align 4
          %2 = load i32 %1 align 4
          %3 = add i32 %2, 1
          store i32 %3 to %1 align 4
          %4 = mul i32 %2, %3
          store i32 7 to %1 align 4
          %5 = load i32 %1 align 4
          %6 = sub i32 %5, %4
          %7 = sub i32 %6, %3
          return %7",
        &[
            "%0 made in v0",
            "%1 v0",
            "%2 3..6",
            "%3 4..10",
            "%4 6..9",
            "%5 read from v0",
            "%6 9..10",
            "%7 10..11",
            "v0 0..9",
        ],
    );
}

#[test]
fn what_escapes_stays_in_memory() {
    check(
        "function()
        symbol @f indirect
        b0:
          %0 = alloca 4 align 4
          %1 = alloca 4 align 4
          %2 = alloca 4 align 4
          store i32 1 to %0 align 4
          store i32 2 to %1 align 4 volatile
          store i32 3 to %2 align 4
          %3 = load i16 %2 align 4
          call @f(i64 %0, i16 %3)
          return",
        &["%0 frame", "%1 frame", "%2 frame", "%3 7..8"],
    );
}

#[test]
fn what_a_loop_needs_lives_to_its_end() {
    check(
        "function(i32 %0, i32 %1) -> i32
        b0:
          jump b1
        b1:
          %2 = phi i32 [b0 0] [b2 %4]
          %3 = icmp eq i32 %2, %0
          branch %3 b3, b2
        b2:
          %4 = add i32 %2, %1
          jump b1
        b3:
          return %2",
        &["%0 0..7", "%1 0..7", "%2 2..7", "%3 folded", "%4 5..6"],
    );
}
