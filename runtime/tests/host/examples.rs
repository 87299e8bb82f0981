//! The examples print what their first comment says, each in a process of its own.
//!
//! They are modules of this test, too, so that nothing else has to be built for it: the process is
//! this test again, told by a variable to run the example instead of checking it.

use uruk_testing::Child;

/// Names the example that this process is to run.
const RUN: &str = "URUK_TEST_EXAMPLE";
/// Stands before and after what an example prints: the test's own lines are around it.
const MARK: &str = "\n-- example --\n";

/// The output that an example must print: the first block of text in its comment.
fn expected(source: &str) -> String {
    let comment = source.lines().take_while(|line| line.starts_with("//!"));
    let lines = comment.map(|line| line.trim_start_matches("//!").trim_start_matches(' '));
    let block = lines.skip_while(|line| *line != "```text").skip(1);
    let block: Vec<&str> = block.take_while(|line| *line != "```").collect();
    block.join("\n") + "\n"
}

fn prints(name: &str, source: &str) {
    let wanted = expected(source);
    assert!(wanted.len() > 5, "{name} says nothing of what it prints");
    let child = Child::of(module_path!(), name).env(RUN, name);
    let output = child.in_first_thread().passes();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = said.split(MARK).nth(1);
    assert_eq!(said, Some(wanted.as_str()), "{name}: {errors}");
}

macro_rules! examples {
    ($($name:ident $file:literal),* $(,)?) => {$(
        #[path = $file]
        mod $name;

        #[test]
        fn $name() {
            let name = stringify!($name);
            if std::env::var(RUN).is_ok_and(|asked| asked == name) {
                print!("{MARK}");
                $name::main().expect("the example ends well");
                print!("{MARK}");
            } else {
                prints(name, include_str!($file));
            }
        }
    )*};
}

examples! {
    first_call "../../examples/first_call.rs",
    host_functions "../../examples/host_functions.rs",
    redefine "../../examples/redefine.rs",
    tiers "../../examples/tiers.rs",
    threads "../../examples/threads.rs",
    unloading "../../examples/unloading.rs",
    any_order "../../examples/any_order.rs",
    generator "../../examples/generator.rs",
    guarded "../../examples/guarded.rs",
    inkwell "../../examples/inkwell.rs",
}
