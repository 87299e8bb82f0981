//! Functions of a library's session that are produced by their first call, and replaced: gdb stops
//! in their bodies alone, at the lines of the version that runs.

use std::process::{Command, Stdio};

use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::{Jit, Replacement, Tier, Tiers, ToolSettings};

/// Says that the process is the one to look at.
const LOOKED_AT: &str = "URUK_TEST_GDB";

/// `jit_made(n)`, all of it at one line.
fn text(line: u32) -> String {
    format!(
        r#"
    define i64 @jit_made(i64 %n) noinline !dbg !10 {{
      %r = add i64 %n, {line}, !dbg !11
      ret i64 %r, !dbg !11
    }}
    !llvm.dbg.cu = !{{!0}}
    !llvm.module.flags = !{{!2}}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "made_up.c", directory: "/source")
    !2 = !{{i32 2, !"Debug Info Version", i32 3}}
    !4 = !DISubroutineType(types: !{{}})
    !10 = distinct !DISubprogram(name: "jit_made", file: !1, line: 31, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: {line}, column: 3, scope: !10)
"#
    )
}

/// The program: three versions of a function, of which the first is made when it is called.
fn looked_at() {
    let mut tools = ToolSettings::default();
    tools.gdb = true;
    let jit = Jit::builder()
        .tools(tools)
        .tiers(Tiers::Fixed(Tier::Baseline));
    let jit = jit.build().expect("a session");
    jit.main()
        .define_lazy::<extern "C" fn(i64) -> i64>("jit_made", |module| {
            let text = std::ffi::CString::new(text(40))?;
            let text = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "made");
            let made = module.get_context().create_module_from_ir(text);
            let made = made.map_err(|cause| cause.to_string())?;
            module.link_in_module(made).map_err(|it| it.to_string())?;
            Ok(())
        })
        .expect("defined");
    // SAFETY: the function above, of its type.
    let made = unsafe { jit.function::<extern "C" fn(i64) -> i64>("jit_made") }.expect("typed");
    assert_eq!(made.call(1), 41);
    for line in [50, 60] {
        let new = Replacement::ir("new", &text(line));
        let _ = jit.main().replace(new).expect("replaced");
        assert_eq!(made.call(1), i64::from(line) + 1);
    }
}

#[test]
fn produced_and_replaced_functions_are_stopped_in_at_their_lines() {
    const NAME: &str = "replaced::produced_and_replaced_functions_are_stopped_in_at_their_lines";
    if std::env::var_os(LOOKED_AT).is_some() {
        return looked_at();
    }
    let own = std::env::current_exe().expect("a path");
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    let commands = [
        "maint set target-non-stop off",
        "set breakpoint pending on",
        "set print thread-events off",
        "break jit_made",
        "run",
        "bt 1",
        "continue",
        "bt 1",
        "continue",
        "bt 1",
        "continue",
    ];
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.arg("--args")
        .arg(own)
        .args(["--exact", NAME, "--nocapture"]);
    let output = gdb.env(LOOKED_AT, "1").stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("skipped, gdb does not start");
        return;
    };
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let stops: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("#0 "))
        .collect();
    assert_eq!(stops.len(), 3, "{text}");
    for (stop, line) in stops.iter().zip([40, 50, 60]) {
        assert!(stop.contains("jit_made"), "{text}");
        assert!(stop.ends_with(&format!("made_up.c:{line}")), "{text}");
    }
    assert!(text.contains("exited normally"), "{text}");
}
