//! The demos as a person runs them.

use std::io::Write;
use std::process::{Command, Stdio};

/// Standard output of a demo that has to succeed.
fn run(demo: &str, words: &[&str], input: &[u8]) -> String {
    let mut child = Command::new(demo)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("the demo reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the demo ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

/// The answer to each line that was entered, times left out.
fn answers(lines: &[&str]) -> Vec<String> {
    let text = run(
        env!("CARGO_BIN_EXE_embed"),
        &[],
        (lines.join("\n") + "\n").as_bytes(),
    );
    let mut answers = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("> ") {
            Some(_) => answers.push(String::new()),
            None => {
                let answer = line.split("    (").next().unwrap_or_default();
                answers.last_mut().expect("a line before").push_str(answer);
            }
        }
    }
    // The prompt that the end of the input answers.
    answers.truncate(lines.len());
    answers
}

const FIB: &str = "(def (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))";

#[test]
fn kernels_move_through_the_tiers() {
    // On a busy machine compiling in the background takes its time.
    for seconds in ["0.2", "2", "20"] {
        let text = run(env!("CARGO_BIN_EXE_tiers"), &[seconds], b"");
        assert_eq!(
            text.matches("calls, all with the same result").count(),
            3,
            "{text}"
        );
        assert_eq!(text.matches(": tier 1").count(), 6, "{text}");
        if ["interpret: tier 2", "escape: tier 2", "sweep: tier 2"]
            .iter()
            .all(|news| text.contains(news))
        {
            return;
        }
    }
    panic!("a kernel stays at tier 1");
}

#[test]
fn a_server_is_replaced_under_load() {
    let text = run(env!("CARGO_BIN_EXE_hotswap"), &["30"], b"");
    assert!(
        text.starts_with("30 replacements of 3 functions in "),
        "{text}"
    );
    let answered = text.lines().nth(1).expect("a second line");
    let (count, rest) = answered.split_once(' ').expect("a count");
    assert!(count.parse::<u64>().expect("a number") >= 30, "{text}");
    assert_eq!(rest, "requests answered, 0 failed, 0 torn");
}

#[test]
fn the_language_computes() {
    let cases = [
        ("1.5", "1.5"),
        ("(+ 1 (* 2 3))", "7"),
        ("(/ 1 0)", "inf"),
        ("(if (< 1 2) 3 4)", "3"),
        ("(for i 1 10 x 1 (* x i))", "3628800"),
        ("(for i 1 0 x 7 (nan))", "error: `nan` is not defined"),
        ("(for i 1 0 x 7 nan)", "7"),
        ("(for i 1 3 x 0 (for j 1 i y x (+ y j)))", "10"),
        (FIB, "fib.9"),
        ("(fib 20)", "6765"),
        ("(def (seven) 7)", "seven.11"),
        ("(- (seven) 9)", "-2"),
    ];
    let (lines, expected): (Vec<&str>, Vec<&str>) = cases.into_iter().unzip();
    assert_eq!(answers(&lines), expected);
}

#[test]
fn a_definition_is_compiled_when_it_is_called_and_later_ones_replace_it_for_later_lines() {
    let lines = [
        "(def (area r) (* 3 (* r r)))",
        "(def (ring a b) (- (area a) (area b)))",
        ":tier area",
        "(ring 2 1)",
        ":tier area",
        "(def (area r) (* 10 r))",
        ":tier area",
        "(area 1)",
        "(ring 2 1)",
    ];
    let expected = [
        "area.1",
        "ring.2",
        "area.1 is not compiled yet",
        "9",
        "area.1 runs at tier 1",
        "area.6",
        "area.6 is not compiled yet",
        "10",
        "9",
    ];
    assert_eq!(answers(&lines), expected);
}

#[test]
fn what_is_wrong_with_a_line_is_told_and_the_next_one_works() {
    let deep = "(- 1 ".repeat(5000);
    let cases = [
        ("(fib 1)", "error: `fib` is not defined"),
        ("(def (f a) (+ a b))", "error: `b` is not a value here"),
        ("(f 1)", "error: `f` is not defined"),
        ("(+ 1)", "error: `+` is not used like this"),
        ("((", "error: a `)` is missing"),
        (")", "error: there is nothing `)` could close"),
        ("1 2", "error: the line goes on after its end"),
        ("()", "error: a list starts with a name"),
        (
            "(def f 1)",
            "error: `def` takes a list of names and a value",
        ),
        ("(def () 1)", "error: what is defined has no name"),
        ("(def (f (x)) 1)", "error: only names can be defined"),
        (
            deep.as_str(),
            "error: more than 200 parentheses in each other",
        ),
        (
            ":what",
            "error: there are `:tier NAME` and `:race VALUE`, not `:what`",
        ),
        (":tier", "error: `` is not defined"),
        (":race (g)", "error: `g` is not defined"),
        ("", ""),
        (
            "\u{e9}\u{4e16}",
            "error: `\u{e9}\u{4e16}` is not a value here",
        ),
        ("(def (down n) (+ 1 (down n)))", "down.18"),
        ("(down 1)", "error: the recursion is too deep"),
        ("(def (line a) a)", "line.20"),
        ("(line 1)", "1"),
    ];
    let (lines, expected): (Vec<&str>, Vec<&str>) = cases.into_iter().unzip();
    assert_eq!(answers(&lines), expected);
}

#[test]
fn what_is_called_often_moves_up() {
    for rounds in ["100", "1000", "10000"] {
        let work = format!("(for i 1 {rounds} x 0 (fib 18))");
        let answers = answers(&[FIB, &work, ":tier fib"]);
        assert_eq!(answers[1], "2584");
        let tier = answers[2].strip_prefix("fib.1 runs at tier ");
        if tier.is_some_and(|tier| ["2", "3"].contains(&tier)) {
            return;
        }
    }
    panic!("fib stays at tier 1");
}

#[test]
fn other_engines_run_the_same_module() {
    let table = &run(
        env!("CARGO_BIN_EXE_embed"),
        &[],
        format!("{FIB}\n:race (fib 15)\n").as_bytes(),
    );
    for engine in ["uruk", "MCJIT", "default<O2>, MCJIT"] {
        let line = table.lines().find(|line| line.starts_with(engine));
        let line = line.unwrap_or_else(|| panic!("no {engine} in\n{table}"));
        assert!(line.ends_with(" 610"), "{line}");
    }
}
