//! gdb on a program that `uruk run --gdb` runs: breakpoints that were set before it
//! started, backtraces, lines.
//!
//! A line, other than a name, is not waited for well: as long as its function is not
//! compiled, gdb takes the next line of the file that has code.

#[path = "gdb/replaced.rs"]
mod replaced;
#[path = "gdb/variables.rs"]
mod variables;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uruk::{Jit, ReclaimKind, ToolSettings};

/// Output of clang at -O0 for a function of four lines and a `main` of three.
const SOURCE: &str = r#"
    define i32 @jit_fib(i32 %n) noinline !dbg !10 {
      %small = icmp slt i32 %n, 2, !dbg !11
      br i1 %small, label %base, label %more, !dbg !11
    base:
      ret i32 %n, !dbg !12
    more:
      %m = sub i32 %n, 1, !dbg !13
      %a = call i32 @jit_fib(i32 %m), !dbg !13
      %l = sub i32 %n, 2, !dbg !13
      %b = call i32 @jit_fib(i32 %l), !dbg !13
      %r = add i32 %a, %b, !dbg !13
      ret i32 %r, !dbg !13
    }
    define i32 @main() !dbg !20 {
      %r = call i32 @jit_fib(i32 7), !dbg !21
      call void @jit_plain(), !dbg !22
      ret i32 %r, !dbg !22
    }
    define void @jit_plain() noinline { ret void }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "made_up.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !4 = !DISubroutineType(types: !{})
    !10 = distinct !DISubprogram(name: "jit_fib", file: !1, line: 31, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: 32, column: 3, scope: !10)
    !12 = !DILocation(line: 33, column: 3, scope: !10)
    !13 = !DILocation(line: 34, column: 3, scope: !10)
    !20 = distinct !DISubprogram(name: "main", file: !1, line: 41, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !21 = !DILocation(line: 42, column: 3, scope: !20)
    !22 = !DILocation(line: 43, column: 3, scope: !20)
"#;

/// `leaf` has a call that the compiler inlined into it; all else can be inlined by us.
const INLINED: &str = r#"
    declare void @abort()
    define void @leaf(i32 %n) !dbg !10 {
      %bad = icmp eq i32 %n, 3, !dbg !11
      br i1 %bad, label %early, label %done, !dbg !11
    early:
      call void @abort(), !dbg !12
      unreachable, !dbg !12
    done:
      ret void, !dbg !11
    }
    define void @middle(i32 %n) !dbg !20 {
      %m = add i32 %n, 1, !dbg !21
      call void @leaf(i32 %m), !dbg !21
      ret void, !dbg !21
    }
    define i32 @main(i32 %argc) !dbg !30 {
      %n = add i32 %argc, 1, !dbg !31
      call void @middle(i32 %n), !dbg !31
      ret i32 0, !dbg !31
    }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "made_up.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !3 = !DISubroutineType(types: !{})
    !4 = !DIFile(filename: "early.h", directory: "/source")
    !10 = distinct !DISubprogram(name: "leaf", file: !1, line: 10, type: !3, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: 11, column: 3, scope: !10)
    !12 = !DILocation(line: 52, column: 3, scope: !14, inlinedAt: !15)
    !13 = distinct !DISubprogram(name: "early", file: !4, line: 50, type: !3, unit: !0, spFlags: DISPFlagDefinition)
    !14 = distinct !DILexicalBlock(scope: !13, file: !4, line: 51, column: 1)
    !15 = distinct !DILocation(line: 12, column: 3, scope: !10)
    !20 = distinct !DISubprogram(name: "middle", file: !1, line: 20, type: !3, unit: !0, spFlags: DISPFlagDefinition)
    !21 = !DILocation(line: 21, column: 3, scope: !20)
    !30 = distinct !DISubprogram(name: "main", file: !1, line: 30, type: !3, unit: !0, spFlags: DISPFlagDefinition)
    !31 = !DILocation(line: 31, column: 3, scope: !30)
"#;

/// Output of gdb for the program with `options`; `None`, with a message, if there is no gdb.
fn debug(source: &str, name: &str, options: &[&str], commands: &[&str]) -> Option<String> {
    let file: PathBuf =
        std::env::temp_dir().join(format!("uruk-gdb-{name}-{}.ll", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    // By default gdb lets threads go on one after the other: where the first ends the process
    // before it comes to the second, it says that it could not get registers, and gives up.
    let start = [
        "maint set target-non-stop off",
        "set breakpoint pending on",
        "set print thread-events off",
    ];
    for command in start.iter().chain(commands) {
        gdb.args(["-ex", command]);
    }
    gdb.args(["--args", env!("CARGO_BIN_EXE_uruk"), "run", "--gdb"]);
    gdb.args(options).arg(&file).stdin(Stdio::null());
    let output = gdb.output();
    std::fs::remove_file(&file).unwrap();
    match output {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            eprintln!("{text}");
            Some(text)
        }
        Err(error) => {
            eprintln!("skipped, gdb does not start: {error}");
            None
        }
    }
}

/// The list that debuggers read, as the GDB manual lays it out.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *const Entry,
    first: *const Entry,
}

#[repr(C)]
struct Entry {
    next: *const Entry,
    previous: *const Entry,
    file: *const u8,
    file_bytes: u64,
}

unsafe extern "C" {
    static __jit_debug_descriptor: Descriptor;
}

/// Files in the list of this process.
fn registered() -> usize {
    // SAFETY: the list is whole while nothing is compiled or freed; volatile, because it
    // changes behind the compiler's back.
    let mut entry = unsafe { (&raw const __jit_debug_descriptor.first).read_volatile() };
    let mut count = 0;
    while !entry.is_null() {
        count += 1;
        // SAFETY: as above.
        entry = unsafe { (&raw const (*entry).next).read_volatile() };
    }
    count
}

#[test]
fn what_is_removed_is_no_longer_registered() {
    const LIMIT: Duration = Duration::from_secs(120);
    let mut tools = ToolSettings::default();
    tools.gdb = true;
    let jit = Jit::builder().tools(tools).build().unwrap();
    jit.pause_tiers();
    let before = registered();
    let text = "define i32 @gone(i32 %x) { %y = add i32 %x, 1 ret i32 %y }";
    // On a thread that ends: words on a stack that look like return addresses hold code.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let tracker = jit.main().create_tracker().unwrap();
            tracker.add_ir("m", text).unwrap();
            // SAFETY: a plain function of the module above.
            let gone = unsafe { jit.function::<extern "C" fn(i32) -> i32>("gone") }.unwrap();
            assert_eq!(gone.call(1), 2);
            assert!(registered() > before);
            // SAFETY: no code keeps an address of its data.
            unsafe { tracker.remove() }.unwrap();
        });
    });
    let start = Instant::now();
    while registered() != before {
        assert!(
            start.elapsed() < LIMIT,
            "{} of {before}: {:?}",
            registered(),
            jit.stats()
        );
        jit.reclaim(ReclaimKind::Sweep, LIMIT);
    }
}

/// The line of the backtrace that begins so.
fn frame<'t>(text: &'t str, number: &str) -> &'t str {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with(number)).unwrap_or("")
}

#[test]
fn breakpoints_wait_for_functions() {
    let commands = [
        "break jit_fib",
        "run",
        "bt 3",
        "delete",
        "break made_up.c:34",
        "continue",
        "info line",
        "delete",
        "break jit_plain",
        "continue",
        "info breakpoints",
        // While gdb steps over a breakpoint, the end of another thread confuses it.
        "delete",
        "continue",
    ];
    let Some(text) = debug(SOURCE, "waits", &["--tiers", "1"], &commands) else {
        return;
    };
    let top = frame(&text, "#0 ");
    assert!(top.contains("jit_fib () at ") && top.contains("made_up.c:32"));
    let caller = frame(&text, "#1 ");
    assert!(caller.contains("main () at ") && caller.contains("made_up.c:42"));
    assert!(text.contains("Line 34 of "), "a stop by line");
    // Without debug information a name is enough.
    assert!(text.contains("in jit_plain ()"));
    assert!(text.contains("exited with code 015"), "goes on to the end");
}

#[test]
fn optimized_code_has_lines_as_well() {
    let commands = ["break jit_fib", "run", "bt 2", "delete", "continue"];
    let Some(text) = debug(SOURCE, "optimized", &["--tiers", "2"], &commands) else {
        return;
    };
    assert!(frame(&text, "#0 ").contains("made_up.c:3"));
    assert!(text.contains("exited with code 015"));
}

#[test]
fn what_was_inlined_has_frames() {
    for tier in ["1", "2"] {
        let name = format!("inlined-{tier}");
        let Some(text) = debug(INLINED, &name, &["--tiers", tier], &["run", "bt"]) else {
            return;
        };
        let mut frames = text
            .lines()
            .filter(|line| line.contains(" () at early.h") || line.contains(" () at made_up.c"));
        for expected in [
            "early () at early.h:52",
            "leaf () at made_up.c:12",
            "middle () at made_up.c:21",
            "main () at made_up.c:31",
        ] {
            let frame = frames.next().unwrap_or_default();
            assert!(frame.ends_with(expected), "tier {tier}: {frame}");
        }
    }
}
