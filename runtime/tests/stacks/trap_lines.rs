//! Frames of traps have lines of the source, at all tiers, in moved and in replaced code.

use std::time::Duration;

use uruk::{Jit, ReclaimKind, Replacement, Tier, Tiers, ToolSettings, Trap};

type F = extern "C" fn(i64) -> i64;

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// `outer` calls `div`, at the line behind that of its division.
fn text(line: u32) -> String {
    format!(
        r#"
define i64 @div(i64 %n) noinline !dbg !2 {{
  %q = sdiv i64 9, %n, !dbg !3
  ret i64 %q, !dbg !3
}}
define i64 @outer(i64 %n) !dbg !6 {{
  %q = call i64 @div(i64 %n), !dbg !7
  %r = add i64 %q, 1, !dbg !7
  ret i64 %r, !dbg !7
}}
define i64 @bare(i64 %n) {{
  %q = sdiv i64 9, %n
  ret i64 %q
}}
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!5}}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "div.lang", directory: "/source")
!2 = distinct !DISubprogram(name: "div", file: !1, line: 3, type: !4, unit: !0, spFlags: DISPFlagDefinition)
!3 = !DILocation(line: {line}, scope: !2)
!4 = !DISubroutineType(types: !{{}})
!5 = !{{i32 2, !"Debug Info Version", i32 3}}
!6 = distinct !DISubprogram(name: "outer", file: !1, line: 1, type: !4, unit: !0, spFlags: DISPFlagDefinition)
!7 = !DILocation(line: {behind}, scope: !6)
"#,
        behind = line + 1
    )
}

fn session(tier: Tier, lines: bool) -> Jit {
    let mut tools = ToolSettings::default();
    tools.lines = lines;
    let jit = Jit::builder().tiers(Tiers::Fixed(tier)).tools(tools);
    let jit = jit.build().expect("a session");
    jit.add_ir("m", &text(7)).expect("valid IR");
    jit
}

fn trap(jit: &Jit, name: &str) -> Trap {
    // SAFETY: functions of the module above, of that type.
    let function = unsafe { jit.function::<F>(name) }.expect("typed");
    function.call_guarded(0).expect_err("by zero")
}

fn sources(trap: &Trap) -> Vec<Option<(&str, u32)>> {
    let source =
        |frame: &'_ uruk::Frame| frame.source.as_ref().map(|it| (it.file.clone(), it.line));
    let all = trap.backtrace.iter().map(source);
    all.map(|it| it.map(|(file, line)| (&*file.leak(), line)))
        .collect()
}

#[test]
fn frames_have_lines_at_each_tier_after_moves_and_replacements() {
    const FILE: &str = "/source/div.lang";
    for tier in ALL_TIERS {
        let jit = session(tier, true);
        let seen = trap(&jit, "outer");
        assert_eq!(
            sources(&seen),
            [Some((FILE, 7)), Some((FILE, 8))],
            "{tier:?}"
        );
        let said = seen.to_string();
        let expected = "in div (/source/div.lang:7), called by outer (/source/div.lang:8)";
        assert!(said.ends_with(expected), "{said}");
        assert_eq!(sources(&trap(&jit, "bare")), [None]);

        let limit = Duration::from_secs(60);
        assert!(jit.reclaim(ReclaimKind::Evacuate, limit));
        assert!(jit.stats().memory.moved.0 > 0);
        assert_eq!(sources(&trap(&jit, "outer")), sources(&seen), "{tier:?}");

        let new = Replacement::ir("n", &text(20));
        let _ = jit.main().replace(new).expect("replaced");
        let seen = trap(&jit, "outer");
        assert_eq!(
            sources(&seen),
            [Some((FILE, 20)), Some((FILE, 21))],
            "{tier:?}"
        );
    }
}

#[test]
fn nothing_is_kept_unless_asked_for() {
    let jit = session(Tier::Baseline, false);
    assert_eq!(sources(&trap(&jit, "outer")), [None, None]);
}
