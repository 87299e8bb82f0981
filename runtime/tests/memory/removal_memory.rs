//! Modules with data that come and go: the process holds what is there, not what was.
//!
//! Measured is resident memory, of a child process, because what a module costs is mostly not
//! in the session's own counts: LLVM's contexts, readers, tables by name.

use uruk::{Jit, Tier};
use uruk_testing::Child;

/// Set in the child: how many modules come and go.
const CYCLES: &str = "URUK_CYCLES";

/// Bytes that the process may grow by between the second and the last quarter of the cycles. A
/// module that stays costs about a megabyte.
const ALLOWED: u64 = 6 << 20;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there is /proc");
    let pages = statm.split(' ').nth(1).and_then(|text| text.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}

fn cycle(jit: &Jit, number: u64) {
    let tracker = jit.main().create_tracker().expect("a tracker");
    let text = format!(
        "@count = global i64 {number}
         @name = constant [6 x i8] c\"hello\\00\"
         @llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
           [{{ i32, ptr, ptr }} {{ i32 65535, ptr @make, ptr null }}]
         @llvm.global_dtors = appending global [1 x {{ i32, ptr, ptr }}]
           [{{ i32, ptr, ptr }} {{ i32 65535, ptr @unmake, ptr null }}]
         declare i32 @atexit(ptr)
         define internal void @make() {{ ret void }}
         define internal void @unmake() {{ ret void }}
         define i64 @next() {{
           %a = call i32 @atexit(ptr @unmake)
           %c = load i64, ptr @count
           %n = add i64 %c, 1
           store i64 %n, ptr @count
           ret i64 %n }}"
    );
    tracker.add_ir("module", &text).expect("valid IR");
    // SAFETY: the constructor above.
    unsafe { jit.initialize() }.expect("initialized");
    // SAFETY: the function above.
    let next = unsafe { jit.function::<extern "C" fn() -> i64>("next") }.expect("typed");
    assert_eq!(next.call(), number as i64 + 1);
    if number.is_multiple_of(64) {
        jit.compile_at("next", Tier::Optimized).expect("compiled");
        assert_eq!(next.call(), number as i64 + 2);
    }
    // SAFETY: no thread uses it any more.
    unsafe { tracker.remove() }.expect("once");
}

#[test]
fn modules_with_data_that_come_and_go_leave_no_memory() {
    let Some(cycles) = std::env::var(CYCLES)
        .ok()
        .and_then(|text| text.parse().ok())
    else {
        let name = "modules_with_data_that_come_and_go_leave_no_memory";
        Child::of(module_path!(), name).env(CYCLES, "600").passes();
        return;
    };
    let cycles: u64 = cycles;
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let mut early = 0;
    for number in 0..cycles {
        if number == cycles / 4 {
            early = resident();
        }
        cycle(&jit, number);
    }
    let late = resident();
    println!(
        "{early} bytes after {} cycles, {late} after {cycles}",
        cycles / 4
    );
    assert!(late < early + ALLOWED, "{early} grew to {late}");
}
