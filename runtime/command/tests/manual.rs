//! The command and each of its subcommands have manual pages.

use std::process::{Command, Output};

fn uruk(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    command.args(words).output().expect("uruk starts")
}

#[test]
fn each_subcommand_has_a_manual_page() {
    for (words, name) in [
        (&["man"][..], "uruk"),
        (&["man", "run"], "uruk-run"),
        (&["man", "compare"], "uruk-compare"),
        (&["man", "c++"], "uruk-c++"),
        (&["man", "live"], "uruk-live"),
        (&["man", "baseline"], "uruk-baseline"),
    ] {
        let output = uruk(words);
        let page = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{words:?}");
        assert!(page.contains(&format!(".TH {name} 1")), "{words:?}: {page}");
        assert!(page.contains(".SH SYNOPSIS"), "{words:?}");
    }
}

#[test]
fn an_unknown_subcommand_is_told_those_that_there_are() {
    let output = uruk(&["man", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("uruk: no subcommand `nothing`; there are run, compare, "),
        "{said}"
    );
}
