//! `uruk run --perf-map`: perf asks the map for names in private memory only.

use std::path::Path;
use std::process::{Command, Stdio};

use uruk_tools::PERF_MAP_FOLDER;

/// Shows what is mapped in its process.
const SOURCE: &str = r#"
    @maps = constant [26 x i8] c"exec cat /proc/$PPID/maps\00"
    declare i32 @system(ptr)
    define i32 @mapped() noinline { %r = call i32 @system(ptr @maps) ret i32 %r }
    define i32 @main() { %r = call i32 @mapped() ret i32 %r }
"#;

/// Address range and path, if it has one, of a line of `/proc/PID/maps`.
fn mapping(line: &str) -> Option<(std::ops::Range<u64>, Option<&str>)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(start)?..number(end)?, words.nth(4)))
}

#[test]
fn what_the_map_names_has_no_file() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perf_map.ll");
    std::fs::write(&file, SOURCE).expect("a file");
    let child = Command::new(env!("CARGO_BIN_EXE_uruk"))
        .args(["run", "--perf-map"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("uruk starts");
    let map = Path::new(PERF_MAP_FOLDER).join(format!("perf-{}.map", child.id()));
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    let names = std::fs::read_to_string(&map).expect("a map");
    std::fs::remove_file(&map).expect("its file");
    for own in [" uruk stubs", " uruk first calls"] {
        assert!(names.lines().any(|line| line.ends_with(own)), "{names}");
    }
    let maps = String::from_utf8(output.stdout).expect("text");
    let mapped = names
        .lines()
        .find(|line| line.ends_with(" mapped [tier 1]"));
    let start = mapped.and_then(|line| line.split(' ').next());
    let start = start.and_then(|start| u64::from_str_radix(start, 16).ok());
    let start = start.unwrap_or_else(|| panic!("not in the map: {names}"));
    let around = maps.lines().filter_map(mapping);
    let around = around.into_iter().find(|(range, _)| range.contains(&start));
    let (_, path) = around.unwrap_or_else(|| panic!("{start:#x} is not in {maps}"));
    assert_eq!(path, None, "perf would look for names in a file");
}
