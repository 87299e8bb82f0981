//! Layouts of variables in two versions of a module, by debug information and by types of the IR.

mod support;

use support::bitcode;
use uruk_codegen::fatal;
use uruk_codegen::native::{Contents, Method, contents};

const TOLD: &str = r#"
target datalayout = "e-m:e-i64:64-n8:16:32:64-S128"
%struct.s = type { i32, i32 }
@v = global %struct.s zeroinitializer, !dbg !0
!llvm.dbg.cu = !{!2}
!llvm.module.flags = !{!9}
!0 = !DIGlobalVariableExpression(var: !1, expr: !DIExpression())
!1 = distinct !DIGlobalVariable(name: "v", scope: !2, file: !3, line: 1, type: !11, isLocal: false, isDefinition: true)
!2 = distinct !DICompileUnit(language: DW_LANG_C11, file: !3, isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, retainedTypes: !12, globals: !10)
!3 = !DIFile(filename: "v.c", directory: "/")
!4 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "s", file: !3, line: 1, size: 64, elements: !5)
!5 = !{!6, !7}
!6 = !DIDerivedType(tag: DW_TAG_member, name: "a", scope: !4, file: !3, line: 1, baseType: !8, size: 32)
!7 = !DIDerivedType(tag: DW_TAG_member, name: "b", scope: !4, file: !3, line: 1, baseType: !8, size: 32, offset: 32)
!8 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!9 = !{i32 2, !"Debug Info Version", i32 3}
!10 = !{!0}
!11 = !DIDerivedType(tag: DW_TAG_typedef, name: "t", file: !3, line: 2, baseType: !4)
!12 = !{!13}
!13 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !14, size: 64)
!14 = distinct !DICompositeType(tag: DW_TAG_class_type, name: "far", file: !3, line: 1, size: 64, elements: !15, identifier: "_ZTS3far")
!15 = !{!16, !17}
!16 = !DIDerivedType(tag: DW_TAG_inheritance, scope: !14, baseType: !4, extraData: i32 0)
!17 = !DIDerivedType(tag: DW_TAG_member, name: "next", scope: !14, file: !3, line: 1, baseType: !13, size: 64, offset: 64)
"#;

fn of(ir: &str) -> Contents {
    let bytes = bitcode(ir);
    fatal::guard(|_| {}, || contents("m", &bytes, Method::Records)).expect("it can be read")
}

/// The difference of `@v` between a module and its copy with changed text.
fn difference(ir: &str, changes: &[(&str, &str)]) -> Option<String> {
    let text = changes
        .iter()
        .fold(ir.to_owned(), |text, (old, new)| text.replace(old, new));
    let (old, new) = (of(ir), of(&text));
    old.variables["v"].difference(&new.variables["v"])
}

#[test]
fn members_that_swap_places_or_change_their_kind_are_told_by_name() {
    let swapped = [
        ("name: \"a\"", "name: \"c\""),
        ("name: \"b\"", "name: \"a\""),
        ("name: \"c\"", "name: \"b\""),
    ];
    assert_eq!(
        difference(TOLD, &swapped).as_deref(),
        Some("whose `b` is at byte 0 here and at byte 4 in the program")
    );
    let float = ("name: \"int\"", "name: \"float\"");
    assert_eq!(
        difference(TOLD, &[float]).as_deref(),
        Some("whose `a` is a floating-point number here and an integer in the program")
    );
    let wider = [(
        "baseType: !8, size: 32, offset: 32",
        "baseType: !8, size: 16, offset: 32",
    )];
    assert_eq!(
        difference(TOLD, &wider).as_deref(),
        Some("which has other members than in the program")
    );
}

#[test]
fn other_names_and_signs_are_the_same_layout() {
    assert_eq!(difference(TOLD, &[]), None);
    assert_eq!(
        difference(TOLD, &[("name: \"a\"", "name: \"first\"")]),
        None
    );
    assert_eq!(
        difference(TOLD, &[("name: \"int\"", "name: \"unsigned int\"")]),
        None
    );
}

#[test]
fn structures_are_told_that_only_pointers_lead_to() {
    let old = of(TOLD);
    let new = of(&TOLD.replace("name: \"next\"", "name: \"last\""));
    let float = of(&TOLD.replace("name: \"int\"", "name: \"double\""));
    let mut names: Vec<&str> = old.types.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["_ZTS3far", "s"]);
    let far = |it: &Contents| old.types["_ZTS3far"].difference(&it.types["_ZTS3far"]);
    assert_eq!(far(&new), None);
    assert_eq!(
        far(&float).as_deref(),
        Some("whose `a` is a floating-point number here and an integer in the program")
    );
}

#[test]
fn types_tell_kinds_of_numbers_and_nothing_of_unions() {
    let module = |kind: &str| {
        format!(
            "target datalayout = \"e-m:e-i64:64-n8:16:32:64-S128\"
             %struct.s = type {{ i32, float }}
             %struct.t = type {{ float, i32 }}
             %union.u = type {{ i64 }}
             %union.w = type {{ double }}
             @v = global {kind} zeroinitializer"
        )
    };
    let differ = |old: &str, new: &str| {
        difference(
            &module(old),
            &[(&*format!("global {old}"), &*format!("global {new}"))],
        )
    };
    assert_eq!(
        differ("i32", "float").as_deref(),
        Some("which is a floating-point number here and an integer in the program")
    );
    assert!(differ("[4 x i64]", "[4 x double]").is_some());
    assert!(differ("i64", "ptr").is_some());
    assert!(differ("%struct.s", "%struct.t").is_some());
    assert_eq!(differ("%union.u", "%union.w"), None);
    assert_eq!(differ("{ i32, i32 }", "{ i32, float }"), None);
}
