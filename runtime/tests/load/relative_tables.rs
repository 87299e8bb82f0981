//! Tables of distances to functions of libraries, which are farther away than a distance of 32
//! bits reaches: relative vtables of C++, `dso_local_equivalent`, `lea` of objects.

use std::path::Path;
use std::process::Command;

use uruk::{Jit, Tier};

/// A table with the distances of three functions, and a function that calls by it.
const TABLE: &str = "
    @table = constant [3 x i32] [
      i32 trunc (i64 sub (i64 ptrtoint (ptr @labs to i64),
        i64 ptrtoint (ptr @table to i64)) to i32),
      i32 trunc (i64 sub (i64 ptrtoint (ptr dso_local_equivalent @llabs to i64),
        i64 ptrtoint (ptr @table to i64)) to i32),
      i32 trunc (i64 sub (i64 ptrtoint (ptr @twice to i64),
        i64 ptrtoint (ptr @table to i64)) to i32)]
    declare i64 @labs(i64)
    declare i64 @llabs(i64)
    define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }
    define i64 @call(i64 %which, i64 %x) {
      %entry = getelementptr i32, ptr @table, i64 %which
      %short = load i32, ptr %entry
      %distance = sext i32 %short to i64
      %function = getelementptr i8, ptr @table, i64 %distance
      %result = call i64 %function(i64 %x)
      ret i64 %result
    }";

fn check(jit: &Jit) {
    // SAFETY: functions of the tests' modules, which only compute.
    let call = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("call") };
    let call = call.expect("typed");
    let answers = [0, 1, 2].map(|which| call.call(which, -21));
    assert_eq!(answers, [21, 21, -42]);
}

fn object(name: &str, text: &str, options: &[&str]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("relative-{name}.ll"));
    let object = folder.join(format!("relative-{name}.o"));
    std::fs::write(&source, text).expect("written");
    let mut clang = Command::new("clang-22");
    clang.args(["-w", "-c", "-O1"]).args(options);
    let ran = clang.arg(&source).arg("-o").arg(&object).status();
    assert!(ran.expect("clang runs").success());
    std::fs::read(&object).expect("an object")
}

#[test]
fn tables_of_bitcode_reach_functions_of_libraries() {
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", TABLE).expect("valid");
        jit.compile_at("call", tier).expect("compiles");
        check(&jit);
    }
}

#[test]
fn tables_of_objects_reach_functions_of_libraries() {
    for option in ["-fPIC", "-fPIE", "-fno-pic"] {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        let bytes = object(option, TABLE, &[option]);
        jit.main().add_object("table.o", bytes).expect(option);
        check(&jit);
    }
}

#[test]
fn addresses_that_code_of_executables_takes_are_called() {
    // `lea labs(%rip)`: what code for an executable does.
    let text = "declare dso_local i64 @labs(i64)
        @kept = global ptr null
        define i64 @call(i64 %which, i64 %x) {
          store volatile ptr @labs, ptr @kept
          %function = load volatile ptr, ptr @kept
          %result = call i64 %function(i64 %x)
          ret i64 %result
        }";
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.main()
        .add_object("lea.o", object("lea", text, &["-fPIE"]))
        .expect("linked");
    // SAFETY: the function above.
    let call = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("call") };
    assert_eq!(call.expect("typed").call(0, -5), 5);
}

#[test]
fn variables_have_no_entry() {
    let text = "@environ = external global ptr
        @distance = constant i32 trunc (i64 sub (i64 ptrtoint (ptr @environ to i64),
          i64 ptrtoint (ptr @distance to i64)) to i32)";
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let cause = jit.add_ir("m", text).expect_err("too far");
    assert!(cause.to_string().contains("does not fit"), "{cause}");
}
