//! `uruk run --trace`: what it writes is what Perfetto reads.

use std::process::Command;

#[path = "../report/tests/perfetto/mod.rs"]
mod perfetto;

/// A function that is hot enough to move up, called by one that never is.
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
      %end = icmp eq i64 %next, 20000
      br i1 %end, label %done, label %loop
    done:
      ret i32 0
    }
"#;

#[test]
fn a_trace_of_a_run_is_read() {
    let folder = std::env::temp_dir().join(format!("uruk-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (program, trace) = (folder.join("program \u{7f}.ll"), folder.join("trace.json"));
    std::fs::write(&program, SOURCE).unwrap();
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
