//! `uruk run --trace`, `--report` and `--stats`: what they tell of a run. What the trace
//! holds is what Perfetto reads.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

#[path = "../../report/tests/perfetto/mod.rs"]
mod perfetto;

/// [`source`] that takes about a second.
const SOON: u64 = 60_000;

/// A function that is hot enough to move up, called `calls - 1` times by one that never is.
fn source(calls: u64) -> String {
    SOURCE.replace("CALLS", &calls.to_string())
}

const SOURCE: &str = r#"
    define i64 @hot(i64 %n) {
    entry:
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
      %square = mul i64 %i, %i
      %more = xor i64 %square, %sum
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
      %i = phi i64 [ 1, %entry ], [ %next, %loop ]
      %r = call i64 @hot(i64 10000)
      %next = add i64 %i, 1
      %end = icmp eq i64 %next, CALLS
      br i1 %end, label %done, label %loop
    done:
      ret i32 0
    }
"#;

/// A `main` that is entered once and has a loop in a loop.
const NESTED: &str = "
    define i32 @main(i32 %argc) {
    entry:
      br label %outer
    outer:
      %i = phi i32 [ 0, %entry ], [ %i1, %next ]
      br label %inner
    inner:
      %j = phi i32 [ 0, %outer ], [ %j1, %inner ]
      %s = phi i32 [ %argc, %outer ], [ %s1, %inner ]
      %s1 = mul i32 %s, %i
      %j1 = add i32 %j, 1
      %last = icmp eq i32 %j1, 10
      br i1 %last, label %next, label %inner
    next:
      %i1 = add i32 %i, 1
      %end = icmp eq i32 %i1, 10
      br i1 %end, label %done, label %outer
    done:
      %r = mul i32 %s1, 0
      ret i32 %r
    }
";

/// A folder of a test's own, with the program, whose name is odd on purpose.
fn folder(test: &str, source: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("uruk-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program \u{7f}.ll");
    std::fs::write(&program, source).unwrap();
    (folder, program)
}

#[test]
fn a_trace_of_a_run_is_read() {
    let (folder, program) = folder("trace", &source(SOON));
    let trace = folder.join("trace.json");
    let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
    let status = uruk
        .args(["run", "--trace"])
        .arg(&trace)
        .arg(&program)
        .status();
    assert!(status.unwrap().success());
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let seen = perfetto::read(&bytes).unwrap();
    // Two functions compiled and published, at least; two processes with their tracks.
    assert!(seen.spans >= 4 && seen.instants >= 2, "{seen:?}");
    assert!(seen.metadata >= 6, "{seen:?}");
}

#[test]
fn what_a_run_is_said_to_have_done_is_what_it_did() {
    // On a busy machine a short run may be over before better code is there, or a sample.
    let mut calls = [SOON, 8 * SOON, 64 * SOON].into_iter();
    let moved_up = calls.any(what_a_run_did);
    assert!(moved_up, "nothing moves up, or nothing is sampled");
}

/// Runs `source` with a report: the page, and what is said of the run.
fn report(test: &str, source: &str, options: &[&str]) -> (String, Value) {
    let (folder, program) = folder(test, source);
    let page = folder.join("page.html");
    let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
    let output = uruk
        .args(["run", "--stats=json"])
        .args(options)
        .arg("--report")
        .arg(&page)
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success());
    let page = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (page, serde_json::from_slice(&output.stderr).unwrap())
}

/// Checks that the parts of a run's processor time are there, and are all of it.
fn check_parts(parts: &Value) {
    let ms = |name: &str, clock: &str| {
        let time = parts[name][clock].as_f64();
        time.unwrap_or_else(|| panic!("{name}: {parts}"))
    };
    let once = [
        "setup",
        "reading",
        "planning",
        "materializing",
        "copying",
        "emitting",
        "linking",
        "publishing",
    ];
    for name in once {
        assert!(ms(name, "wall_ms") > 0.0, "{name}: {parts}");
    }
    assert!(ms("waiting", "wall_ms") > 0.0, "{parts}");
    let members = parts.as_object().unwrap().keys();
    let shares = members.filter(|name| !["process", "waiting"].contains(&name.as_str()));
    let (shares, all): (Vec<f64>, f64) = (
        shares.map(|name| ms(name, "cpu_ms")).collect(),
        ms("process", "cpu_ms"),
    );
    // Each is rounded to thousandths.
    let rounding = 0.0005 * (shares.len() + 1) as f64;
    assert!(
        (shares.iter().sum::<f64>() - all).abs() <= rounding,
        "{parts}"
    );
    assert!(ms("before", "cpu_ms") > 0.0 && all > 0.0, "{parts}");
}

/// Checks what is said of a run of [`source`]. False: it was too short for anything to move up,
/// or to be sampled.
fn what_a_run_did(calls: u64) -> bool {
    let (page, stats) = report("stats", &source(calls), &[]);
    check_parts(&stats["parts"]);
    let run = &stats["run"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{stats}"));
    assert_eq!((number(&run["defined"]), number(&run["compiled"])), (2, 2));
    let tiers = run["tiers"].as_array().unwrap();
    assert_eq!(tiers.len(), 3);
    // A worker takes the compile of a first call over from the thread that compiles ahead, if that
    // one does not get on; of the two versions one is dropped.
    let taken_over = number(&run["dropped"]);
    let first = number(&tiers[0]["compiled"]);
    assert!((2..=2 + taken_over).contains(&first), "{run}");
    let published: u64 = tiers.iter().map(|tier| number(&tier["published"])).sum();
    assert_eq!(published, 2);
    let within: u64 = tiers.iter().map(|tier| number(&tier["samples"])).sum();
    assert_eq!(number(&run["samples"]), within + number(&run["outside"]));
    let mut hottest = run["hottest"].as_array().unwrap().iter();
    let hot = hottest.find(|function| function["name"] == "hot").unwrap();
    if within == 0 || number(&hot["tier"]) < 2 {
        return false;
    }
    // Its loop may have been left for a continuation that is sampled more often.
    let first = run["hottest"][0]["name"].as_str().unwrap();
    assert!(first == "hot" || first.starts_with("hot@"), "{run}");
    assert!(number(&hot["versions"]) >= 2, "{run}");
    assert!(number(&tiers[1]["compiled"]) >= 1 && number(&tiers[1]["code_bytes"]) > 0);
    assert!(run["sampling"].is_string(), "{run}");
    let overhead = run["sampling_overhead"].as_f64().unwrap();
    assert!(overhead > 0.0 && overhead < 0.5, "{run}");
    // Code of tier 2 may count no entries.
    assert!((1..calls).contains(&number(&hot["calls_counted"])), "{run}");

    for part in ["warm-up", "tiers", "functions", "compile"] {
        assert!(
            page.contains(&format!("aria-labelledby=\"{part}\"")),
            "{part}"
        );
    }
    for tier in 1..=number(&hot["tier"]) {
        let code = format!("aria-label=\"Machine code at tier {tier}\"");
        assert!(page.contains(&code), "no code of tier {tier}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
    true
}

#[test]
fn only_a_main_whose_loops_cannot_be_left_starts_at_tier_2() {
    let stuck = NESTED.replacen(
        "entry:",
        "entry: %frame = call ptr @llvm.frameaddress.p0(i32 0)",
        1,
    ) + "declare ptr @llvm.frameaddress.p0(i32)";
    for (name, source, tier) in [
        ("nested", NESTED, 1),
        ("simple", &source(SOON), 1),
        ("stuck", &stuck, 2),
    ] {
        let (folder, program) = folder(name, source);
        let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
        // Nothing moves up.
        let words = [
            "run",
            "--stats=json",
            "--set",
            "lindy=0",
            "--set",
            "outlook=0ns",
        ];
        let output = uruk.args(words).arg(&program).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(output.status.success());
        let stats: Value = serde_json::from_slice(&output.stderr).unwrap();
        let hottest = stats["run"]["hottest"].as_array().unwrap();
        let main = hottest.iter().find(|function| function["name"] == "main");
        assert_eq!(main.unwrap()["tier"], tier, "{stats}");
    }
}

#[test]
fn the_page_shows_what_goes_on_for_a_loop() {
    let (page, stats) = report("left", NESTED, &["--osr-loops", "3"]);
    assert_eq!(stats["run"]["compiled"], 1, "{stats}");
    assert!(stats["continuations"]["left"].as_u64() >= Some(1));
    // In the table of functions, with its code, and among the events.
    let (before, events) = page.split_once("id=\"compile\"").unwrap();
    for part in [before, events] {
        assert!(part.contains("<code>main@loop"), "{part}");
    }
    let mut moves = events.split("<span class=\"when\">").skip(1);
    let shown = moves.any(|one| one.contains("<code>main@loop") && one.contains("\"move\""));
    assert!(shown, "{events}");
    assert!(before.contains("aria-label=\"Machine code at tier 2\""));
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_the_program_runs() {
    for option in ["--trace", "--report"] {
        let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
        let output = uruk
            .args(["run", option, "/nonexistent/file", "absent.ll"])
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(
            said.starts_with("uruk: /nonexistent/file cannot be written: "),
            "{said}"
        );
    }
}
