//! `uruk compare` as a person runs it: what it prints, its page, its exit status.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Counts what it reads, prints that and its first argument, and exits with 3.
const PROGRAM: &str = r#"
@format = constant [15 x i8] c"%d bytes, %.9s\00"
declare i32 @printf(ptr, ...)
declare i32 @getchar()
define i32 @main(i32 %argc, ptr %argv) {
entry:
  br label %read
read:
  %count = phi i32 [ 0, %entry ], [ %more, %read ]
  %byte = call i32 @getchar()
  %end = icmp slt i32 %byte, 0
  %more = add i32 %count, 1
  br i1 %end, label %print, label %read
print:
  %at = getelementptr ptr, ptr %argv, i64 1
  %argument = load ptr, ptr %at
  %n = call i32 (ptr, ...) @printf(ptr @format, i32 %count, ptr %argument)
  ret i32 3
}
"#;

/// Prints its process id, so that no two runs say the same.
const RESTLESS: &str = r#"
@format = constant [12 x i8] c"one\0A%ld two\00"
declare i32 @printf(ptr, ...)
declare i32 @getpid()
define i32 @main() {
  %id = call i32 @getpid()
  %wide = sext i32 %id to i64
  %n = call i32 (ptr, ...) @printf(ptr @format, i64 %wide)
  ret i32 0
}
"#;

/// A folder of a test's own, empty.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("scratch")).expect("a folder");
    folder
}

/// Runs `uruk compare` in a folder; what it leaves behind is an error.
fn compare(folder: &Path, words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .current_dir(folder)
        .env("TMPDIR", folder.join("scratch"))
        .arg("compare")
        .args(words)
        .output()
        .expect("uruk starts");
    let left = fs::read_dir(folder.join("scratch")).expect("the folder");
    assert_eq!(left.count(), 0, "files are left behind");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last cell of a way's line.
fn verdict(table: &str, way: &str) -> String {
    let line = table.lines().find(|line| line.starts_with(way));
    let line = line.unwrap_or_else(|| panic!("no {way} in\n{table}"));
    line.rsplit("  ").next().unwrap_or_default().to_owned()
}

#[test]
fn every_way_of_running_a_program_is_in_the_table_and_on_the_page() {
    let folder = folder("ways");
    fs::write(folder.join("count.ll"), PROGRAM).expect("written");
    fs::write(folder.join("words"), "hello").expect("written");
    let words = [
        "--runs",
        "2",
        "--stdin",
        "words",
        "--html",
        "page.html",
        "count.ll",
        "--",
        "arg",
    ];
    let output = compare(&folder, &words);
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{errors}");
    let note = "count.ll: exit status 3, 12 bytes of output; medians of 2 runs";
    assert_eq!(table.lines().next(), Some(note));
    for way in [
        "tier 1",
        "tier 2",
        "tier 3",
        "tiered",
        "clang -O0",
        "clang -O1",
        "clang -O2",
        "clang -O3",
    ] {
        assert_eq!(verdict(&table, way), "same", "{way} in\n{table}");
    }
    let page = fs::read_to_string(folder.join("page.html")).expect("the page");
    assert!(
        page.contains("clang -O3") && page.contains("tiered"),
        "{page}"
    );
}

/// Adds up, as many times as its first argument says, in thousands.
const WORK: &str = r#"
declare i32 @atoi(ptr)
@sum = global i64 0
define i32 @main(i32 %argc, ptr %argv) {
entry:
  %at = getelementptr ptr, ptr %argv, i64 1
  %argument = load ptr, ptr %at
  %thousands = call i32 @atoi(ptr %argument)
  %times = mul i32 %thousands, 1000
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %old = load volatile i64, ptr @sum
  %new = add i64 %old, 7
  store volatile i64 %new, ptr @sum
  %next = add i32 %i, 1
  %again = icmp slt i32 %next, %times
  br i1 %again, label %loop, label %out
out:
  ret i32 0
}
"#;

#[test]
fn what_more_work_takes_is_shown_beside_the_whole() {
    let folder = folder("steady");
    fs::write(folder.join("work.ll"), WORK).expect("written");
    let words = ["--runs", "1", "--steady", "200000", "work.ll", "--", "1"];
    let output = compare(&folder, &words);
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{errors}");
    let head = table.lines().find(|line| line.starts_with("way "));
    let head = head.unwrap_or_default();
    assert!(
        head.contains("steady") && head.contains("its speed"),
        "{table}"
    );
    // 199 million turns take longer than a start does.
    for (way, times) in [
        ("tier 1", 3),
        ("tier 2", 3),
        ("tiered", 3),
        ("clang -O2", 4),
    ] {
        let line = table.lines().find(|line| line.starts_with(way));
        let cells = line.unwrap_or_default().split("  ").map(str::trim);
        let found = cells.filter(|cell| cell.ends_with('s')).count();
        assert_eq!(found, times, "{way} in\n{table}");
    }
}

#[test]
fn a_way_that_does_something_else_is_named() {
    let folder = folder("restless");
    fs::write(folder.join("restless.ll"), RESTLESS).expect("written");
    let output = compare(&folder, &["--runs", "3", "--no-native", "restless.ll"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}");
    for way in ["tier 1", "tier 2", "tier 3", "tiered"] {
        let verdict = verdict(&table, way);
        let what = verdict.strip_prefix("differs: line 2 is `");
        let (found, wanted) = what
            .and_then(|what| what.split_once(" two`, not `"))
            .expect(&table);
        let wanted = wanted.strip_suffix(" two`").expect(&table);
        assert!(
            found.parse::<u32>().is_ok() && found != wanted,
            "{way} in\n{table}"
        );
    }
}

#[test]
fn without_clang_the_tiers_are_compared_and_the_reason_is_told() {
    let folder = folder("no-clang");
    fs::write(folder.join("count.ll"), PROGRAM).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .current_dir(&folder)
        .env("PATH", folder.join("scratch"))
        .args(["compare", "--runs", "1", "count.ll", "--", "arg"])
        .output()
        .expect("uruk starts");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(
        verdict(&table, "clang").starts_with("skipped: neither clang-"),
        "{table}"
    );
    assert_eq!(verdict(&table, "tiered"), "same", "{table}");
}

#[test]
fn what_cannot_be_run_is_an_error_with_its_reason() {
    let folder = folder("errors");
    fs::write(folder.join("noise.ll"), "define i32 @main( {").expect("written");
    fs::write(folder.join("count.ll"), PROGRAM).expect("written");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["absent.bc"], 125, "absent.bc"),
        (&["noise.ll"], 125, "noise.ll:1:"),
        (&["--stdin", "absent", "count.ll"], 125, "absent"),
        (&["--runs", "0", "count.ll"], 2, "--runs"),
        (&[], 2, "FILE"),
    ];
    for (words, status, reason) in cases {
        let output = compare(&folder, words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(reason), "{words:?}: {errors}");
        assert!(
            output.stdout.is_empty(),
            "{words:?}: {}",
            text(&output.stdout)
        );
    }
}

/// Says that it runs, by a file, and goes on for ever; SIGTERM it ignores.
const ENDLESS: &str = r#"
@name = constant [8 x i8] c"started\00"
declare i32 @creat(ptr, i32)
declare ptr @signal(i32, ptr)
declare i32 @pause()
define i32 @main() {
  %old = call ptr @signal(i32 15, ptr inttoptr (i64 1 to ptr))
  %file = call i32 @creat(ptr @name, i32 384)
  br label %wait
wait:
  %n = call i32 @pause()
  br label %wait
}
"#;

/// Waits until something is so.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}: never");
        sleep(Duration::from_millis(10));
    }
}

/// Processes whose working directory is the folder.
fn processes_in(folder: &Path) -> usize {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let here = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd"));
    all.filter(|entry| here(entry).is_ok_and(|at| at == folder))
        .count()
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for (name, signal, ignored) in [("INT", 2, false), ("TERM", 15, false), ("HUP", 1, true)] {
        let folder = folder(&format!("signal-{name}"));
        fs::write(folder.join("endless.ll"), ENDLESS).expect("a file");
        let uruk = env!("CARGO_BIN_EXE_uruk");
        // The process that runs the tests may ignore signals, as a shell does for commands started with
        // `&`.
        let hangup = if ignored {
            "--ignore-signal=HUP"
        } else {
            "--default-signal=HUP"
        };
        let mut child = Command::new("env")
            .current_dir(&folder)
            .env("TMPDIR", folder.join("scratch"))
            .args([
                "--default-signal=INT,TERM",
                hangup,
                uruk,
                "compare",
                "endless.ll",
            ])
            .spawn()
            .expect("uruk starts");
        wait_for("its first run", || folder.join("started").exists());
        assert_eq!(processes_in(&folder), 2);
        let kill = |name: &str| {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-s", name, &id]).status();
            assert!(sent.expect("kill runs").success());
        };
        kill(name);
        if ignored {
            sleep(Duration::from_millis(200));
            assert_eq!(processes_in(&folder), 2, "it is ignored");
            kill("INT");
        }
        let ended = child.wait().expect("it ends");
        assert_eq!(ended.signal(), Some(if ignored { 2 } else { signal }));
        wait_for("the end of its child", || processes_in(&folder) == 0);
        let left = fs::read_dir(folder.join("scratch")).expect("the folder");
        assert_eq!(left.count(), 0, "files are left behind");
    }
}
