//! Arguments and locals for debuggers: present if requested, with the types near to them, and the
//! code is the same without.

mod support;

use std::fmt::Write;

use object::{Object, ObjectSection};
use support::{id, plan, reader};
use uruk_codegen::{Compile, Counters, Tier};

/// `walk` has an argument that is kept in memory, a local that is a value, one in a block of its
/// own, and one that is computed of two values. Types refer to each other in a circle; `T0` refers
/// to `T1`, and so on, `COUNT` times.
const SOURCE: &str = r#"
    define i64 @walk(ptr %list, i64 %n) !dbg !10 {
    entry:
      %kept = alloca ptr
      store ptr %list, ptr %kept
      #dbg_declare(ptr %kept, !20, !DIExpression(), !12)
      #dbg_value(i64 %n, !21, !DIExpression(), !12)
      #dbg_value(i64 7, !22, !DIExpression(), !13)
      %first = load ptr, ptr %kept, !dbg !13
      %value = load i64, ptr %first, !dbg !13
      %sum = add i64 %value, %n, !dbg !13
      #dbg_value(i64 %sum, !23, !DIExpression(), !14)
      #dbg_value(!DIArgList(i64 %sum, i64 %n), !24, !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_plus, DW_OP_stack_value), !13)
      ret i64 %sum, !dbg !14
    }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "main.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !4 = !DISubroutineType(types: !5)
    !5 = !{!6, !30, !6}
    !6 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
    !10 = distinct !DISubprogram(name: "walk", file: !1, line: 7, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !12 = !DILocation(line: 8, column: 3, scope: !10)
    !13 = !DILocation(line: 9, column: 3, scope: !10)
    !14 = !DILocation(line: 10, column: 3, scope: !15)
    !15 = distinct !DILexicalBlock(scope: !10, file: !1, line: 9)
    !20 = !DILocalVariable(name: "the_list", arg: 1, scope: !10, file: !1, line: 7, type: !30)
    !21 = !DILocalVariable(name: "the_number", arg: 2, scope: !10, file: !1, line: 7, type: !6)
    !22 = !DILocalVariable(name: "the_constant", scope: !10, file: !1, line: 8, type: !100)
    !23 = !DILocalVariable(name: "the_sum", scope: !15, file: !1, line: 9, type: !6)
    !24 = !DILocalVariable(name: "the_pair", scope: !10, file: !1, line: 9, type: !6)
    !30 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !31, size: 64)
    !31 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "node", file: !1, line: 1, size: 192, elements: !32)
    !32 = !{!33, !34, !35}
    !33 = !DIDerivedType(tag: DW_TAG_member, name: "the_value", scope: !31, file: !1, line: 2, baseType: !6, size: 64)
    !34 = !DIDerivedType(tag: DW_TAG_member, name: "the_next", scope: !31, file: !1, line: 3, baseType: !30, size: 64, offset: 64)
    !35 = !DIDerivedType(tag: DW_TAG_member, name: "the_circle", scope: !31, file: !1, line: 3, baseType: !40, size: 64, offset: 128)
    !40 = distinct !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !40, size: 64)
"#;

const COUNT: usize = 300;

/// The source, with its chain of types.
fn source() -> String {
    let mut text = String::from(SOURCE);
    for index in 0..COUNT {
        let (own, pointer) = (100 + 4 * index, 101 + 4 * index);
        let (members, member) = (102 + 4 * index, 103 + 4 * index);
        let next = match index + 1 == COUNT {
            true => 6,
            false => own + 4,
        };
        let _ = writeln!(
            text,
            "!{own} = distinct !DICompositeType(tag: DW_TAG_structure_type, name: \"T{index}.\", file: !1, size: 64, elements: !{members})\n\
             !{pointer} = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !{next}, size: 64)\n\
             !{members} = !{{!{member}}}\n\
             !{member} = !DIDerivedType(tag: DW_TAG_member, name: \"of_T{index}.\", scope: !{own}, file: !1, baseType: !{pointer}, size: 64)"
        );
    }
    text
}

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
fn variables_are_written_when_asked_for() {
    let mut reader = reader(&source());
    let (plan, walk) = (plan(&reader), id(&reader, "walk"));
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        for counters in [Counters::None, Counters::Entry, Counters::Full] {
            // Repeated, as nodes made before are still in the context.
            for _ in 0..3 {
                let lines = Compile::at(tier).counting(counters).with_lines(true);
                let made = reader.compile(&plan, walk, &lines).expect("compiles");
                let text = section(&made.object, ".debug_str");
                assert!(mentions(&text, "walk") && !mentions(&text, "the_list"));

                let how = lines.with_variables(true);
                let made = reader.compile(&plan, walk, &how).expect("compiles");
                let text = section(&made.object, ".debug_str");
                for name in ["the_list", "the_number", "the_constant", "the_sum"] {
                    assert!(mentions(&text, name), "{name} at {tier:?}");
                }
                for name in ["node", "the_value", "the_next", "the_circle", "long"] {
                    assert!(mentions(&text, name), "{name} at {tier:?}");
                }
            }
        }
    }
}

#[test]
fn types_that_are_far_have_names_only() {
    let mut reader = reader(&source());
    let (plan, walk) = (plan(&reader), id(&reader, "walk"));
    let how = Compile::baseline().with_lines(true).with_variables(true);
    let made = reader.compile(&plan, walk, &how).expect("compiles");
    let text = section(&made.object, ".debug_str");
    let known = |what: &str| {
        (0..COUNT)
            .filter(|index| mentions(&text, &format!("{what}{index}.")))
            .count()
    };
    let (described, members) = (known("T"), known("of_T"));
    assert!((20..COUNT).contains(&members), "{members}");
    assert_eq!(described, members + 1, "the next one by its name");
}

#[test]
fn code_is_the_same_with_variables() {
    let mut reader = reader(&source());
    let (plan, walk) = (plan(&reader), id(&reader, "walk"));
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let mut code = |variables| {
            let how = Compile::at(tier).with_lines(variables);
            let how = how.with_variables(variables);
            let made = reader.compile(&plan, walk, &how).expect("compiles");
            section(&made.object, ".text")
        };
        assert_eq!(code(false), code(true));
    }
}
