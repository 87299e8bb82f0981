//! The small examples print what their first comment says. Cargo builds them beside the tests, if
//! it is not told to build this test only (`cargo build -p uruk --examples` does, too).

use std::path::{Path, PathBuf};
use std::process::Command;

/// What an example is to print: the first block of text in its comment.
fn expected(source: &str) -> String {
    let comment = source.lines().take_while(|line| line.starts_with("//!"));
    let lines = comment.map(|line| line.trim_start_matches("//!").trim_start_matches(' '));
    let block = lines.skip_while(|line| *line != "```text").skip(1);
    let block: Vec<&str> = block.take_while(|line| *line != "```").collect();
    block.join("\n") + "\n"
}

fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test has a path");
    let folder = own
        .ancestors()
        .nth(2)
        .expect("it is in a folder of the profile");
    folder.join("examples").join(name)
}

fn prints(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.rs"));
    let source = std::fs::read_to_string(&source).expect("an example");
    let wanted = expected(&source);
    assert!(wanted.len() > 5, "{name} says nothing of what it prints");
    let output = Command::new(built(name)).output();
    let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name}: {}\n{errors}",
        output.status
    );
    assert_eq!(said, wanted, "{name}: {errors}");
}

macro_rules! examples {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            prints(stringify!($name));
        }
    )*};
}

examples! {
    first_call, host_functions, redefine, tiers, threads, unloading, any_order, generator, guarded,
    inkwell,
}
