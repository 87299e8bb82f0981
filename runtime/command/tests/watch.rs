//! `uruk run --watch`: a file that changes while its program runs.

#[path = "../../tests/support/clang.rs"]
mod clang;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints what `answer` returns whenever that changes, and ends when it is 3.
fn program(answer: &str) -> String {
    format!(
        r#"
@format = private constant [4 x i8] c"%d\0A\00"
@last = internal global i32 0
declare i32 @printf(ptr, ...)
declare i32 @fflush(ptr)
declare i32 @usleep(i32)
{answer}
define i32 @main() {{
entry: br label %loop
loop:
  %x = call i32 @answer()
  %last = load i32, ptr @last
  %same = icmp eq i32 %x, %last
  br i1 %same, label %wait, label %tell
tell:
  store i32 %x, ptr @last
  call i32 (ptr, ...) @printf(ptr @format, i32 %x)
  call i32 @fflush(ptr null)
  br label %wait
wait:
  call i32 @usleep(i32 5000)
  %done = icmp eq i32 %x, 3
  br i1 %done, label %end, label %loop
end:
  ret i32 0
}}"#
    )
}

fn answer(value: i32) -> String {
    program(&format!("define i32 @answer() {{ ret i32 {value} }}"))
}

#[test]
fn what_changes_is_replaced_or_the_reason_is_told() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("program.ll");
    let write = |text: &str| {
        // As compilers do: complete, then in place.
        let fresh = folder.join("program.ll.new");
        std::fs::write(&fresh, text).expect("written");
        std::fs::rename(&fresh, &file).expect("renamed");
    };
    write(&answer(1));
    let mut child = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .args(["run", "--watch"])
        .arg(&file)
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("uruk starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || out.next().expect("a line").expect("text");
    let mut error = || errors.next().expect("a line").expect("text");

    assert_eq!(line(), "1");
    write(&answer(2));
    assert_eq!(line(), "2");
    let told = error();
    assert!(
        told.contains("program.ll: replaced 2 function(s): answer, main"),
        "{told}"
    );
    write("define i32 @answer( {");
    let told = error();
    assert!(told.starts_with("uruk: not replaced: "), "{told}");
    assert!(told.contains("program.ll"), "{told}");
    write(
        &program("define i32 @answer() { ret i64 2 }")
            .replace("i32 @answer() { ret", "i64 @answer() { ret")
            .replace("call i32 @answer()", "call i32 @other()")
            .replace(
                "declare i32 @fflush",
                "declare i32 @other()\ndeclare i32 @fflush",
            ),
    );
    let told = error();
    assert!(
        told.contains("not replaced: ") && told.contains("signature of `answer`"),
        "{told}"
    );
    write(&answer(3));
    assert_eq!(line(), "3");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn an_object_that_changes_is_replaced_as_a_whole() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch_object");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (main, part) = (folder.join("main.ll"), folder.join("part.o"));
    std::fs::write(&main, program("declare i32 @answer()")).expect("written");
    let write = |text: &str| {
        let fresh = folder.join("part.o.new");
        let object = clang::compile("watch_object", "part.c", text, &["-O2"]);
        std::fs::write(&fresh, object).expect("written");
        std::fs::rename(&fresh, &part).expect("renamed");
    };
    let source = |value: i32, more: &str| {
        format!(
            "int kept = 0; int help(void) {{ return {value}; }} {more}
            int answer(void) {{ kept += help(); return help() + 0 * kept; }}"
        )
    };
    write(&source(1, ""));
    let mut child = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .args(["run", "--watch"])
        .arg(&part)
        .arg(&main)
        .arg(&part)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("uruk starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || out.next().expect("a line").expect("text");
    let mut error = || errors.next().expect("a line").expect("text");

    assert_eq!(line(), "1");
    write("int answer(void) { return 9; }");
    let told = error();
    assert!(
        told.contains("can only be replaced as a whole; missing: `help`"),
        "{told}"
    );
    write(&source(
        2,
        "static int fresh; int more(void) { return fresh++; }",
    ));
    let told = error();
    assert!(
        told.contains("part.o: replaced 2 function(s)")
            && told.contains("new function(s): more")
            && told.contains("fresh local variable(s): fresh"),
        "{told}"
    );
    assert_eq!(line(), "2");
    write(&source(3, "int more(void) { return 0; }"));
    assert_eq!(line(), "3");
    assert!(child.wait().expect("ends").success());
}

/// A program that is all one loop: nothing is ever called anew. Its variables have the names that
/// debuggers are told.
#[test]
fn a_main_loop_that_runs_changes_at_its_next_pass() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch_loop");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("loop.bc");
    let write = |value: i32, more: &str| {
        let source = format!(
            "int printf(const char *, ...); int fflush(void *); int usleep(unsigned);
            int main(void) {{
                int last = 0, rounds = 0;
                for (;;) {{
                    if (last != {value}) {{
                        printf(\"%d %d\\n\", {value}, rounds > 0);
                        fflush(0);
                    }}
                    last = {value};
                    rounds += 1;
                    {more}
                    if (last == 3)
                        return rounds > 2 ? 7 : 1;
                    usleep(5000);
                }}
            }}"
        );
        let flags = ["-g", "-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm"];
        let bitcode = clang::compile("watch_loop", "loop.c", &source, &flags);
        let fresh = folder.join("loop.bc.new");
        std::fs::write(&fresh, bitcode).expect("written");
        std::fs::rename(&fresh, &file).expect("renamed");
    };
    write(1, "");
    let mut child = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .args(["run", "--watch"])
        .arg(&file)
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("uruk starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || out.next().expect("a line").expect("text");
    let mut error = || errors.next().expect("a line").expect("text");
    assert_eq!(line(), "1 0");
    write(2, "rounds += last & 1;");
    assert_eq!(line(), "2 1");
    let told = error();
    assert!(told.contains("1 running loop(s)"), "{told}");
    write(3, "");
    assert_eq!(line(), "3 1");
    assert_eq!(child.wait().expect("ends").code(), Some(7));
}
