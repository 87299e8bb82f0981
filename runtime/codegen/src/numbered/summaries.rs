//! Summaries made from bytes against those made from LLVM's reading.

use super::damage::damaged;
use super::{Numbered, interface};
use crate::bitcode::Bitcode;
use crate::reader::Reader;
use crate::summary::SymbolId;

/// All kinds of globals, and their linkage.
pub(super) const TEXT: &str = r#"
    source_filename = "m"
    target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
    target triple = "x86_64-pc-linux-gnu"
    $any = comdat any
    $kept = comdat nodeduplicate
    $key = comdat any
    @llvm.used = appending global [2 x ptr] [ptr @internal, ptr @second], section "llvm.metadata"
    @llvm.compiler.used = appending global [1 x ptr] [ptr @table], section "llvm.metadata"
    @llvm.global_ctors = appending global [3 x { i32, ptr, ptr }] [
        { i32, ptr, ptr } { i32 65535, ptr @start, ptr null },
        { i32, ptr, ptr } { i32 101, ptr @start, ptr @any },
        { i32, ptr, ptr } zeroinitializer]
    @llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [
        { i32, ptr, ptr } { i32 7, ptr @stop, ptr null }]
    @any = linkonce_odr global i32 3, comdat
    @also = internal global i32 4, comdat($any)
    @kept = weak global i32 5, comdat
    @guard = linkonce_odr hidden global i64 0, comdat($key)
    @internal = internal global i32 7
    @0 = private unnamed_addr constant [3 x i8] c"ab\00"
    @"\01plain" = global i8 1
    @table = protected constant [3 x i32] [i32 1, i32 2, i32 3]
    @tentative = common global i64 0
    @there = external global i32
    @maybe = extern_weak global i32
    @copy = available_externally constant i32 9
    @thread = thread_local global i32 1
    @thread.there = external thread_local(initialexec) global i32
    @own.labels = internal constant [2 x ptr]
        [ptr blockaddress(@jumps, %a), ptr blockaddress(@jumps, %b)]
    @differences = private constant [1 x i32] [i32 trunc (i64 sub (
        i64 ptrtoint (ptr blockaddress(@jumps, %b) to i64),
        i64 ptrtoint (ptr blockaddress(@jumps, %a) to i64)) to i32)]
    @shared.labels = global [1 x ptr] [ptr blockaddress(@shared, %a)]
    @second = alias i32, ptr @internal
    @inside = weak alias i32, getelementptr inbounds ([3 x i32], ptr @table, i64 0, i64 1)
    @of.alias = hidden alias i32, ptr @second
    @of.thread = thread_local alias i32, ptr @thread
    @again = internal alias void (), ptr @start
    @chosen = ifunc i32 (i32), ptr @resolver
    @chosen2 = internal ifunc i32 (i32), ptr @resolver.alias
    @resolver.alias = internal alias ptr (), ptr @resolver
    declare i32 @puts(ptr)
    declare extern_weak void @absent()
    declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
    define internal void @start() { ret void }
    define weak_odr void @stop() comdat($key) { ret void }
    define linkonce hidden i32 @inlined() alwaysinline { ret i32 1 }
    define available_externally i32 @elsewhere() { ret i32 1 }
    define ptr @resolver() { ret ptr @inlined }
    define void @prefixed() prefix i32 7 { ret void }
    define void @prologue() prologue i8 144 { ret void }
    define void @collected() gc "erlang" { ret void }
    define void @other() gc "statepoint-example" { ret void }
    define void @jumps(ptr %to) {
        indirectbr ptr %to, [label %a, label %b]
        a: ret void
        b: ret void }
    define void @shared(ptr %to) {
        indirectbr ptr %to, [label %a]
        a: ret void }
    define internal void @1() { ret void }
    module asm ".globl from_assembly"
    module asm "from_assembly:"
"#;

/// Whether the module is read without LLVM; then both summaries must be equal.
fn compare(bitcode: &Bitcode) -> bool {
    let Some(alone) = Numbered::alone(bitcode) else {
        return false;
    };
    let reader = Reader::new(bitcode).expect("what is taken is valid");
    let (theirs, ours) = (reader.summary(), alone.summary());
    for (theirs, ours) in theirs.symbols.iter().zip(&ours.symbols) {
        assert_eq!(ours, theirs, "{}", bitcode.name());
    }
    assert_eq!(**ours, **theirs, "{}", bitcode.name());
    assert!(Numbered::read(bitcode, theirs).is_some());
    compare_interfaces(&alone, &reader);
    true
}

/// Compares types, signatures and inferred attributes read without LLVM with LLVM's.
fn compare_interfaces(alone: &Numbered, reader: &Reader) {
    let name = reader.bitcode().name();
    if let Some(ours) = interface::interprocedural(alone) {
        assert_eq!(ours, reader.interprocedural(), "{name}");
    }
    let types = reader.types();
    for (index, (info, theirs)) in alone.summary().symbols.iter().zip(&types).enumerate() {
        let symbol = SymbolId(index as u32);
        if let Some(ours) = interface::type_of(alone, symbol) {
            assert_eq!(*ours, **theirs, "{name}: {}", info.name);
        }
        if let Some(ours) = interface::signature(alone, symbol) {
            assert_eq!(ours, reader.signature(symbol), "{name}: {}", info.name);
        }
    }
}

fn bitcode(text: &str) -> Bitcode {
    Bitcode::from_ir_text("m", text).expect("valid syntax")
}

#[test]
fn summaries_are_as_llvm_makes_them() {
    assert!(compare(&bitcode(TEXT)));
    assert!(compare(&bitcode("")));
    assert!(compare(&bitcode("define void @f() { ret void }")));
}

#[test]
fn interfaces_are_as_llvm_writes_them() {
    let text = bitcode(
        r#"
    define cc 10 i8 @conv(i64 %a, ...) { ret i8 0 }
    define signext i8 @ext(i8 zeroext %a, i16 signext %b, i32 inreg noundef %c, ptr nest %d) { ret i8 0 }
    define zeroext i16 @extended(i8 zeroext %a, i64 %b, i16 signext %c, ...) { ret i16 0 }
    define zeroext i1 @returns(...) { ret i1 0 }
    define void @mem(ptr byval({ i64, [3 x i16] }) align 8 %a, ptr sret(<{ i8, i32 }>) %b, ptr %c) { ret void }
    define void @two(i32 inreg signext %a) { ret void }
    define void @none(...) noreturn { unreachable }
    define { {}, <{}>, i32 } @empty({} %a) { ret { {}, <{}>, i32 } zeroinitializer }
    define <4 x float> @vector(<2 x i128> %a, half %b, bfloat %c, x86_fp80 %d, fp128 %e) { ret <4 x float> zeroinitializer }
    define ptr addrspace(1) @space(ptr addrspace(2) %a, ptr alignstack(16) %b) { ret ptr addrspace(1) null }
    declare void @llvm.dbg.value(metadata, metadata, metadata)
    declare token @llvm.coro.id(i32, ptr, ptr, ptr)
    @pair = global { i32, [2 x ptr] } zeroinitializer
    @packed = external global <{ i8, double }>"#,
    );
    let alone = Numbered::alone(&text).expect("plain");
    assert!(compare(&text));
    let known = |at: &str| {
        let symbols = &alone.summary().symbols;
        let index = symbols.iter().position(|it| it.name == at).expect("there");
        let symbol = SymbolId(index as u32);
        (
            interface::type_of(&alone, symbol).is_some(),
            interface::signature(&alone, symbol).is_some(),
        )
    };
    // LLVM writes sizes into the types of functions that pass structs in memory.
    for (name, type_and_signature) in [
        ("conv", (true, true)),
        ("ext", (false, true)),
        ("extended", (true, true)),
        ("returns", (true, true)),
        ("mem", (false, true)),
        ("none", (true, true)),
        ("empty", (true, true)),
        ("vector", (true, true)),
        ("space", (false, true)),
        ("two", (false, false)),
        ("pair", (true, false)),
    ] {
        assert_eq!(known(name), type_and_signature, "{name}");
    }

    for (inferred, is_evidence) in [
        ("nofree", true),
        ("norecurse", true),
        ("nofree optnone noinline", false),
        ("cold", false),
    ] {
        let text = bitcode(&format!("define void @f() {inferred} {{ ret void }}"));
        assert!(compare(&text));
        let said = interface::interprocedural(&Numbered::alone(&text).expect("plain"));
        assert_eq!(said.expect("known").is_some(), is_evidence, "{inferred}");
    }
    assert!(compare(&bitcode("@c = local_unnamed_addr global i32 1")));
    let named = bitcode("%pair = type { i32, i32 }\ndefine %pair @f(%pair %a) { ret %pair %a }");
    assert!(compare(&named));
    let named = Numbered::alone(&named).expect("plain");
    assert_eq!(interface::type_of(&named, SymbolId(0)), None);
    assert!(interface::signature(&named, SymbolId(0)).is_some());
}

/// Runs on the files that `URUK_BITCODE` names, with spaces between them.
#[test]
#[ignore = "files are to be named"]
fn summaries_of_files_are_as_llvm_makes_them() {
    let files = std::env::var("URUK_BITCODE").expect("names of files");
    let mut refused = 0;
    for file in files.split_whitespace() {
        let bytes = std::fs::read(file).expect("readable");
        if !compare(&Bitcode::new(file, bytes)) {
            println!("{file} is LLVM's");
            refused += 1;
        }
    }
    println!("{refused} are LLVM's");
}

#[test]
fn what_llvm_refuses_is_left_to_it() {
    let wrong = [
        "@a = internal global i32 1 @b = alias i32, ptr @c @c = external global i32",
        "@llvm.used = appending global [1 x ptr] [ptr null]",
        "@c = common global i32 1",
        "@llvm.global_ctors = appending global [1 x i32] [i32 1]",
        "target triple = \"aarch64-linux-gnu\"",
        "target datalayout = \"E-m:e-i64:64-n32:64\"",
    ];
    for text in wrong {
        let context = crate::context::LlvmContext::new().expect("a context");
        // The parser of text refuses some.
        if let Ok(module) = crate::bitcode::parse(&context, "m", text) {
            let bitcode = Bitcode::write("m", &module);
            assert!(Numbered::alone(&bitcode).is_none(), "{text}");
            assert!(Reader::new(&bitcode).is_err(), "{text}");
        }
    }
}

/// LLVM reports damage in modules that are not summarized here, or when it reads them.
#[test]
fn damage_never_panics() {
    let good = bitcode(TEXT);
    let mut whole = 0;
    for bytes in damaged(good.bytes(), 0x2545_f491_4f6c_dd1d, 4000) {
        whole += u32::from(Numbered::alone(&Bitcode::new("m", bytes)).is_some());
    }
    assert!(whole > 1000, "{whole}");
}
