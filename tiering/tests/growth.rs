//! The next expected calls are found in a bounded number of steps for each call, with any number of
//! functions in the program. Callgrind counts instructions, so that the machine's load changes
//! nothing.

use std::process::Command;

use uruk_tiering::FunctionId;
use uruk_tiering::foresight::{Course, Foresight, Sketch};

/// Variable that tells this program the number of functions to call.
const SIZE: &str = "URUK_GROWTH_SIZE";

/// A function that calls `n` others in turn, each of which is either guessed or called first.
fn follow(n: u32) {
    let calls = (0..n).map(|at| (0, FunctionId(at + 1)));
    let sketch = Sketch {
        starts: vec![0, 0],
        calls: calls.collect(),
        ..Sketch::default()
    };
    let mut foresight = Foresight::default();
    foresight.called(FunctionId(0));
    foresight.add(FunctionId(0), Course::new(&sketch));
    for at in 0..n {
        foresight.called(FunctionId(at + 1));
        foresight.add(FunctionId(at + 1), Course::new(&Sketch::default()));
        foresight.guess();
    }
}

/// Instructions that this program executes for `n` calls.
fn counted(n: u32) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "steps_do_not_grow_with_the_square"])
        .env(SIZE, n.to_string())
        .output()
        .expect("valgrind");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.expect("a count");
    count.trim().parse().expect("a number")
}

#[test]
fn steps_do_not_grow_with_the_square() {
    if let Ok(n) = std::env::var(SIZE) {
        return follow(n.parse().expect("a number"));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: not tried");
        return;
    }
    let [idle, least, most] = [0, 4_000, 16_000].map(counted);
    let growth = (most - idle) as f64 / (least - idle) as f64;
    assert!(
        growth < 6.0,
        "4 times the calls take {growth:.1} times the steps"
    );
}
