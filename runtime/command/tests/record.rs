//! Records of the tiering policy's inputs in a run, replayed; results of the tuner.

#[path = "../../../tiering/tests/simulator/mod.rs"]
mod simulator;

use std::path::{Path, PathBuf};
use std::process::Command;

use simulator::{Machine, Replay, Truth, parse};
use uruk_tiering::stream::Input;
use uruk_tiering::{Config, Nanos, Outcome, Tier};

/// Squares are summed up again and again, for long enough to be noticed.
const PROGRAM: &str = "
define i64 @sum(i64 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %more, %loop ]
  %square = mul i64 %i, %i
  %odd = xor i64 %s, %i
  %more = add i64 %odd, %square
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %more
}
define i32 @main() {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = call i64 @sum(i64 100000)
  %next = add i32 %i, 1
  %done = icmp eq i32 %next, 4000
  br i1 %done, label %exit, label %loop
exit:
  ret i32 0
}";

/// A folder of its own, with the program.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uruk-record-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("sum.ll"), PROGRAM).expect("written");
    folder
}

fn run(options: &[&str], program: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    let command = command.arg("run").args(options).arg(program);
    command.output().expect("uruk starts")
}

#[test]
fn a_recorded_run_can_be_replayed() {
    let folder = folder("whole");
    let (program, record) = (folder.join("sum.ll"), folder.join("record"));
    let option = format!("--record={}", record.display());
    // `main` has one loop: both start at tier 1.
    let output = run(&[&option], &program);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&record).expect("written");
    let inputs = parse(&text).expect("whole lines");
    let published = inputs.iter().any(|(_, input)| {
        matches!(
            input,
            Input::Finished(_, _, Tier::Optimized, Outcome::Published { .. })
        )
    });
    let counted = inputs
        .iter()
        .filter(|(_, input)| matches!(input, Input::Counters(..)));
    assert!(published && counted.count() > 2, "{text}");
    let config = Config::default();
    let mut machine = Machine::new(&config, Truth::default(), Replay::new(inputs), 1);
    machine.run(Nanos::from_ms(60_000));
    assert!(
        machine.controller.stats().promoted[1] > 0,
        "{:?}",
        machine.log
    );
}

#[test]
fn a_record_that_cannot_be_written_is_an_error_at_once() {
    let folder = folder("refused");
    let program = folder.join("sum.ll");
    let output = run(&["--record=/nowhere/record"], &program);
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("/nowhere/record cannot be written"), "{text}");
    std::fs::remove_dir_all(&folder).expect("ours");
}

/// Only words behind `--` are the program's arguments.
#[test]
fn a_tuned_program_has_its_arguments_and_no_more() {
    let folder = folder("arguments");
    let program = folder.join("count.ll");
    let text = "define i32 @main(i32 %count, ptr %words) { ret i32 %count }";
    std::fs::write(&program, text).expect("written");
    let mut tune = Command::new(env!("CARGO_BIN_EXE_uruk"));
    tune.args(["tune", "--tuning"]).arg(folder.join("kept"));
    let output = tune
        .arg(&program)
        .args(["--", "one", "--two"])
        .output()
        .expect("uruk starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    std::fs::remove_dir_all(&folder).expect("ours");
}

/// Tuning of native programs needs trials.
#[test]
fn no_trials_and_a_file_of_them_is_an_error() {
    let mut live = Command::new(env!("CARGO_BIN_EXE_uruk"));
    live.args(["live", "--tuning", "kept", "--no-tune", "true"]);
    let output = live.output().expect("uruk starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("--tuning <FILE>") && told.contains("cannot be used with '--no-tune'"),
        "{told}"
    );
    assert!(!std::path::Path::new("kept").exists());
}

/// A file of what was learned is written, read, and used as far as it is of use; `uruk tune` writes
/// it run by run.
#[test]
fn what_was_tuned_is_kept() {
    let folder = folder("tuned");
    let (program, file) = (folder.join("sum.ll"), folder.join("tuning"));
    let option = format!("--tuning={}", file.display());
    let before = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let output = run(&[&option, "--stats"], &program);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("functions tuned"), "{told}");
        let kept = std::fs::read_to_string(&file).expect("it is there");
        assert!(kept.starts_with("uruk tuning 1\ncpu "), "{kept}");
        (told, kept)
    };
    let (told, kept) = before("");
    assert!(!told.contains("what was known"), "{told}");
    let (told, _) = before(&kept);
    assert!(told.contains(" functions known\n"), "{told}");
    let (told, _) = before(&kept.replace("cpu ", "cpu another "));
    assert!(
        told.contains("1 lines not readable") || told.contains("0 functions"),
        "{told}"
    );
    let (told, _) = before("\u{0}\u{1}");
    assert!(told.contains("not used: it begins with"), "{told}");
    let leftover = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(leftover, 2, "the program and the file");

    let mut tune = Command::new(env!("CARGO_BIN_EXE_uruk"));
    tune.args(["tune", "--runs", "2", "--tuning"])
        .arg(&file)
        .arg(&program);
    let output = tune.output().expect("uruk starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.starts_with("uruk tune: run 1: "),
        "{told}"
    );
    let _ = std::fs::remove_dir_all(&folder);
}
