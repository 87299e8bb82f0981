//! Line tables: present if requested, and only then.

mod support;

use object::{Object, ObjectSection};
use support::{id, plan, reader};
use uruk_codegen::{Compile, Counters, Tier};

/// `f` calls `inlined`, of another file; the loop's metadata names places as well, and
/// `fmuladd` is rewritten while it is copied.
const SOURCE: &str = r#"
    define i32 @inlined(i32 %x) !dbg !20 {
      %y = mul i32 %x, 3, !dbg !21
      ret i32 %y, !dbg !21
    }
    declare double @llvm.fmuladd.f64(double, double, double)
    define double @f(i32 %n, double %d) !dbg !10 {
    entry:
      br label %loop, !dbg !11
    loop:
      %i = phi i32 [ 1, %entry ], [ %j, %loop ], !dbg !11
      %s = phi double [ 0.0, %entry ], [ %t, %loop ]
      %j = call i32 @inlined(i32 %i), !dbg !12
      %t = call double @llvm.fmuladd.f64(double %s, double %d, double 1.0), !dbg !12
      %c = icmp slt i32 %j, %n, !dbg !13
      br i1 %c, label %loop, label %out, !dbg !13, !llvm.loop !30
    out:
      ret double %t, !dbg !14
    }
    define void @plain() { ret void }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2, !3}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "main.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !3 = !{i32 7, !"Dwarf Version", i32 5}
    !4 = !DISubroutineType(types: !{})
    !5 = !DIFile(filename: "other.h", directory: "/source")
    !10 = distinct !DISubprogram(name: "f", file: !1, line: 7, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: 8, column: 3, scope: !10)
    !12 = !DILocation(line: 9, column: 3, scope: !15)
    !13 = !DILocation(line: 10, column: 3, scope: !15)
    !14 = !DILocation(line: 12, column: 3, scope: !10)
    !15 = distinct !DILexicalBlock(scope: !10, file: !1, line: 8)
    !20 = distinct !DISubprogram(name: "inlined", file: !5, line: 70, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !21 = !DILocation(line: 71, column: 3, scope: !20)
    !30 = distinct !{!30, !11, !13}
"#;

/// Bytes of a section; empty if there is none.
fn section(object: &[u8], name: &str) -> Vec<u8> {
    let file = object::File::parse(object).expect("an object");
    let found = file.section_by_name(name);
    found.map_or_else(Vec::new, |found| found.data().expect("bytes").to_vec())
}

fn mentions(bytes: &[u8], name: &str) -> bool {
    bytes
        .windows(name.len())
        .any(|found| found == name.as_bytes())
}

#[test]
fn lines_are_written_when_asked_for() {
    let mut reader = reader(SOURCE);
    let (plan, f, plain) = (plan(&reader), id(&reader, "f"), id(&reader, "plain"));
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        for counters in [Counters::None, Counters::Entry, Counters::Full] {
            let how = Compile::at(tier).counting(counters);
            // In turns, as the pipeline is kept.
            for _ in 0..2 {
                let made = reader.compile(&plan, f, &how).expect("compiles");
                assert!(section(&made.object, ".debug_line").is_empty());

                let how = how.clone().with_lines(true);
                let made = reader.compile(&plan, f, &how).expect("compiles");
                let lines = section(&made.object, ".debug_line");
                assert!(mentions(&lines, "main.c"));
                // Callees come from the library, which keeps no lines.
                assert!(!mentions(&lines, "other.h"));
                assert!(mentions(&section(&made.object, ".debug_str"), "uruk"));
                let made = reader.compile(&plan, plain, &how).expect("compiles");
                assert!(section(&made.object, ".debug_line").is_empty());
            }
        }
    }
}

#[test]
fn code_is_the_same_with_lines() {
    let mut reader = reader(SOURCE);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let mut code = |lines| {
            let how = Compile::at(tier).with_lines(lines);
            let made = reader.compile(&plan, f, &how).expect("compiles");
            section(&made.object, ".text")
        };
        assert_eq!(code(false), code(true));
    }
}
