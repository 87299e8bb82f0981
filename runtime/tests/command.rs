//! Wrong uses of the command: what it says, and its exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
