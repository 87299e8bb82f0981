//! Wrong uses of the command: what it says, and its exit status.

#[path = "command/older.rs"]
mod older;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "define i32 @main() { ret i32 7 }\n";

/// A folder with `program.ll`, `no_main.ll` and `poem.bc`.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("command");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("program.ll", PROGRAM);
    write("no_main.ll", &PROGRAM.replace("main", "start"));
    write("poem.bc", "He who saw the deep\n");
    folder
}

/// The exit status of `uruk` with these words, and what it says.
fn uruk(folder: &Path, words: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    command
        .current_dir(folder)
        .args(words.split(' '))
        .stdin(Stdio::null());
    let output = command.output().expect("uruk starts");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// LLVM's objects stay until the process has ended, so nothing waits for a compile that uses them.
#[test]
fn the_end_of_a_program_does_not_wait_for_compiles_under_way() {
    let (status, said) = uruk(&folder(), "run -vv program.ll");
    assert_eq!(status, Some(7), "{said}");
    // The log is there.
    assert!(said.contains("DEBUG"), "{said}");
    assert!(!said.contains("waits for compiles under way"), "{said}");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let folder = folder();
    for (words, status, pieces) in [
        (
            "program.ll",
            2,
            &[
                "unrecognized",
                "tip: to run a program: `uruk run program.ll`",
            ][..],
        ),
        (
            "run poem.bc",
            125,
            &["uruk: poem.bc:1:1: error: ", "tip: neither bitcode nor"],
        ),
        (
            "run no_main.ll",
            125,
            &["no entry function `main`", "tip: `--entry NAME`"],
        ),
        (
            "run program.ll word",
            125,
            &["uruk: word: No such file", "come after `--`"],
        ),
        ("run absent.ll", 125, &["uruk: absent.ll: No such file"]),
        (
            "run --set jobz=1 program.ll",
            2,
            &["no setting \"jobz\"", "--print-config"],
        ),
        (
            "run --set jobs=2 program.ll",
            2,
            &["`jobs` follows from --jobs and this machine"],
        ),
        (
            "run --set reclaim.jobs=1 program.ll",
            2,
            &["reclaim: there is no setting \"jobs\""],
        ),
        (
            "run --set reclaim.interval=5 program.ll",
            2,
            &["with ns, us, ms or s"],
        ),
        (
            "run --dump-asm nobody program.ll",
            7,
            &["no function `nobody` to disassemble"],
        ),
        (
            "run --watch absent.ll program.ll",
            7,
            &["absent.ll does not exist yet"],
        ),
    ] {
        let (actual, said) = uruk(&folder, words);
        assert_eq!(actual, Some(status), "{words}: {said}");
        for piece in pieces {
            assert!(said.contains(piece), "{words}: {said}");
        }
        assert!(said.lines().count() <= 8, "{words}: {said}");
    }
}

#[test]
fn printed_settings_are_those_of_a_run() {
    let print = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
        let output = command.args(words).output().expect("uruk starts");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = print(&["run", "--print-config", "--jobs", "1"]);
    let cpus = std::thread::available_parallelism().expect("a number");
    for line in ["jobs = 1".to_owned(), format!("cpus = {cpus}")] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    // Printed settings can be set, and are printed the same again.
    let settings = text.lines().filter(|line| !line.starts_with('#'));
    let settings = settings.map(|line| line.split_once(" = ").expect("NAME = VALUE"));
    let settings = settings.filter(|(name, _)| !["jobs", "cpus"].contains(name));
    let settings: Vec<String> = settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut words = vec!["run", "--print-config", "--jobs", "1"];
    words.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    assert_eq!(print(&words), text);
    let set = print(&[
        "run",
        "--print-config",
        "--set",
        "lindy=2",
        "--set",
        "reclaim.interval=5ms",
    ]);
    assert!(
        set.contains("\nlindy = 2\n") && set.contains("\nreclaim.interval = 5ms\n"),
        "{set}"
    );
}

/// Calls a function that is hot at once, for a second or so.
const BUSY: &str = "
define i64 @hot(i64 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 1, %entry ], [ %more, %loop ]
  %product = mul i64 %s, 6364136223846793005
  %more = xor i64 %product, %i
  %next = add i64 %i, 1
  %end = icmp eq i64 %next, %n
  br i1 %end, label %done, label %loop
done:
  ret i64 %more
}
define i32 @main() {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %r = call i64 @hot(i64 100000)
  %next = add i64 %i, 1
  %end = icmp eq i64 %next, 2000000
  br i1 %end, label %done, label %loop
done:
  ret i32 0
}
";

/// Name and niceness of each thread of a process.
fn threads(process: u32) -> Vec<(String, i64)> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task"));
    let stats = folder.into_iter().flatten().flatten();
    let stats = stats.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let thread = |stat: String| {
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let nice = fields.split(' ').nth(16)?.parse().ok()?;
        Some((name.to_owned(), nice))
    };
    stats.filter_map(thread).collect()
}

#[test]
fn compile_threads_are_as_many_as_was_asked_for_and_those_behind_give_way() {
    const JOBS: usize = 3;
    const ENOUGH: Duration = Duration::from_millis(500);
    const LATE: Duration = Duration::from_secs(120);
    // SAFETY: takes numbers; an error is that of no such process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // The program begins with the priority of the test, and 19 is the lowest.
    let lower = i64::from(own + 5).min(19);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("busy.ll");
    std::fs::write(&file, BUSY).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    command
        .args(["run", "--jobs", &JOBS.to_string()])
        .arg(&file);
    let mut child = command.spawn().expect("uruk starts");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    // By name: a thread that is just being made has that of its maker.
    let (mut first, mut behind, mut nice) = (BTreeSet::new(), BTreeSet::new(), None);
    while child.try_wait().expect("a child").is_none() {
        let mut last = None;
        for (name, niceness) in threads(child.id()) {
            let numbered = |prefix| {
                let number = name.strip_prefix(prefix).map(str::parse::<u32>);
                number.is_some_and(|number| number.is_ok())
            };
            if numbered("uruk-opt-") {
                last = last.max(Some(niceness));
                behind.insert(name);
            } else if numbered("uruk-") {
                first.insert(name);
            }
        }
        // A thread has its name before it has its priority.
        nice = last.or(nice);
        let all = nice == Some(lower) && first.len() == JOBS && start.elapsed() > ENOUGH;
        if all || start.elapsed() > LATE {
            child.kill().expect("a child of ours");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(first.len(), JOBS, "{first:?}");
    let limit = JOBS.min(cpus.div_ceil(2));
    assert!((1..=limit).contains(&behind.len()), "{behind:?}");
    assert_eq!(nice, Some(lower));
}

#[test]
fn of_an_option_given_twice_the_later_counts() {
    let words = "run --entry nobody --tiers 1 --tiers 2 --entry main --jobs 1 --jobs 2 program.ll";
    assert_eq!(uruk(&folder(), words), (Some(7), String::new()));
    // A log that is no terminal has no colours.
    let (status, log) = uruk(&folder(), "run -v program.ll");
    assert!(
        status == Some(7) && log.contains("INFO") && !log.contains('\u{1b}'),
        "{log}"
    );
}

#[test]
fn what_the_baseline_compiler_covers_is_told() {
    let folder = folder();
    let functions = "define i32 @f(i32 %a) {\n  ret i32 %a\n}\n\
                     define void @g() {\n  call void asm sideeffect \"hlt\", \"\"()\n  ret void\n}\n";
    std::fs::write(folder.join("covered.ll"), functions).expect("a file");
    let told = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .current_dir(&folder)
        .args(["baseline", "--coverage", "covered.ll"])
        .output()
        .expect("uruk starts");
    assert_eq!(
        String::from_utf8_lossy(&told.stdout),
        "covered.ll: 1 of 2 functions (50.0 %)\n       1 assembly\n"
    );
    assert_eq!(told.status.code(), Some(0));
    let (status, said) = uruk(&folder, "baseline --coverage poem.bc");
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("poem.bc"), "{said}");
}
