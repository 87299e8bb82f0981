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

const FIB: &str = "fib(n) = if n < 2 then n else fib(n - 1) + fib(n - 2)";

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
        assert_eq!(text.matches(": tier 1").count(), 7, "{text}");
        // The fourth is called once: it is its loop that moves.
        let moved = text.contains("once@loop") && text.contains(": one call, in its parts");
        let news = ["interpret: tier 2", "escape: tier 2", "sweep: tier 2"];
        if moved && news.iter().all(|news| text.contains(news)) {
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

/// Enters lines and compares their answers.
fn check(cases: &[(&str, &str)]) {
    let (lines, expected): (Vec<&str>, Vec<&str>) = cases.iter().copied().unzip();
    assert_eq!(answers(&lines), expected);
}

#[test]
fn the_language_computes() {
    check(&[
        ("1.5", "1.5"),
        ("1 + 2 * 3 - 4 / 8", "6.5"),
        ("8 - 4 - 2", "2"),
        ("(8 - (4 - 2)) * 10", "60"),
        ("1 + 1 < 3 * 1", "1"),
        ("1 / 0", "inf"),
        ("if 1 < 2 then 3 else 4", "3"),
        ("if 0 then 1 else if 1 then 2 else 3", "2"),
        ("1 + if 0 then 1 else 2 * 3", "7"),
        (FIB, "defined fib()"),
        ("fib(20)", "6765"),
        ("seven() = 7", "defined seven()"),
        ("seven() - 9", "-2"),
        (
            "first(a, b) = if b < 1 then a else first(b * a, b - 1)",
            "defined first()",
        ),
        ("first(1, 3)", "6"),
        // Names of libm that LLVM would compute itself.
        ("floor(x) = x * 10", "defined floor()"),
        ("floor(1.5)", "15"),
    ]);
}

#[test]
fn a_definition_is_compiled_when_it_is_called_and_replaced_for_its_callers() {
    check(&[
        ("area(r) = 3 * r * r", "defined area()"),
        ("ring(a, b) = area(a) - area(b)", "defined ring()"),
        (":tier area()", "area() is not compiled yet"),
        ("ring(2, 1)", "9"),
        (":tier area()", "area() runs at tier 1"),
        ("area(r) = 10 * r", "replaced area()"),
        ("ring(2, 1)", "10"),
        ("area(a, b) = a", "error: `area()` has other parameters"),
        ("area(r) = unknown(r)", "error: `unknown` is not defined"),
        ("ring(2, 1)", "10"),
    ]);
}

#[test]
fn what_is_wrong_with_a_line_is_told_and_the_next_one_works() {
    let deep = "1 - (".repeat(5000);
    check(&[
        ("fib(1)", "error: `fib` is not defined"),
        ("f(a) = a + b", "error: `b` is not defined"),
        ("f(1)", "error: `f` is not defined"),
        ("1 +", "error: the line ends too early"),
        ("(1", "error: a `)` is missing"),
        (")", "error: `)` is not defined"),
        ("1 2", "error: the line goes on after its end"),
        ("if 1 then 2", "error: a `else` is missing"),
        ("= 1", "error: what is defined has no name"),
        (deep.as_str(), "error: the line is too long"),
        (":what", "error: `:what` is not defined"),
        (":tier g", "error: undefined symbols: `g`"),
        ("", ""),
        ("\u{e9}\u{4e16}", "error: `\u{e9}\u{4e16}` is not defined"),
        ("down(n) = 1 + down(n)", "defined down()"),
        ("down(1)", "error: the recursion is too deep"),
        ("both(n) = both(n) + both(n)", "defined both()"),
        ("both(1)", "error: the recursion is too deep"),
        ("same(a) = a", "defined same()"),
        ("same(1)", "1"),
        ("same(1, 2)", "error: a `)` is missing"),
    ]);
}

#[test]
fn what_is_called_often_moves_up_and_follows_a_callee_that_is_replaced() {
    const FIB: &str = "fib(n) = if n < 2 then one(n) else fib(n - 1) + fib(n - 2)";
    let first = ["one(n) = 1", FIB];
    let last = [":tier fib()", "one(n) = 2", "fib(18)"];
    for rounds in [30, 300, 3000] {
        let lines = [&first[..], &vec!["fib(18)"; rounds], &last[..]].concat();
        let answers = answers(&lines);
        assert!(answers[2..rounds + 2].iter().all(|answer| answer == "4181"));
        assert_eq!(answers[rounds + 4], "8362");
        let tier = answers[rounds + 2].strip_prefix("fib() runs at tier ");
        if tier.is_some_and(|tier| ["2", "3"].contains(&tier)) {
            return;
        }
    }
    panic!("fib stays at tier 1");
}

#[test]
fn other_engines_run_the_same_module() {
    let table = &run(env!("CARGO_BIN_EXE_race"), &[FIB, "fib(15)"], b"");
    for engine in ["uruk", "MCJIT", "default<O2>, MCJIT"] {
        let line = table.lines().find(|line| line.starts_with(engine));
        let line = line.unwrap_or_else(|| panic!("no {engine} in\n{table}"));
        assert!(line.ends_with(" 610"), "{line}");
    }
}

#[test]
fn formulas_are_units() {
    let lines = "f(x) = g(x) * 2 + 1\nf(3)\ng(x) = x * x\nf(3)\nf(x) = g(x + 1) - (x + g(2))\n\
                 h(x) = f(x) * f(g(x))\nh(2)\ng(x) = x + 10\nf(5)\ng(x = 3\n";
    let text = run(env!("CARGO_BIN_EXE_units"), &[], lines.as_bytes());
    let answers: Vec<&str> = text.lines().filter(|line| !line.starts_with('>')).collect();
    let [missing, nineteen, h, f, wrong] = answers[..] else {
        panic!("{text}")
    };
    assert!(missing.contains("g"), "{missing}");
    assert_eq!((nineteen, h, f), ("19", "51", "-1"), "{text}");
    assert!(wrong.starts_with("error: "), "{wrong}");
}

#[test]
fn hot_formulas_get_faster() {
    let formula = "(x + 1 - 2 * 3) * (x - (2 + f(x)) * (3 - x * (x + f(x + 7) * 5))) - g(x) * x";
    let lines =
        format!("f(x) = x * x\ng(x) = 9 - 8\nh(x) = {formula}\nh(5)\nhot h(5)\nh(5)\nh(-3)\n");
    let text = run(env!("CARGO_BIN_EXE_units"), &[], lines.as_bytes());
    let answers: Vec<&str> = text.lines().filter(|line| !line.starts_with('>')).collect();
    let [slow, hot, fast, other] = answers[..] else {
        panic!("{text}")
    };
    // x = 5: f(12) = 144, f(5) = 25. x = -3: f(4) = 16, f(-3) = 9.
    let of =
        |x: i64, f: i64, later: i64| (x + 1 - 6) * (x - (2 + f) * (3 - x * (x + later * 5))) - x;
    let [five, three] = [of(5, 25, 144), of(-3, 9, 16)].map(|it| it.to_string());
    assert_eq!((slow, fast, other), (&*five, &*five, &*three), "{text}");
    assert!(hot.contains("tier 2: "), "{text}");
}
