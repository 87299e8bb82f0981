//! Compares descriptions of loops from bitcode with those from LLVM's memory: equal bodies must
//! give equal decisions.

use std::path::{Path, PathBuf};

use inkwell::llvm_sys::target::LLVMGetModuleDataLayout;
use uruk_bitcode::ir::Body;
use uruk_leaving::{Anatomy, Decision, Shape, decide};

use super::Numbered;
use crate::bitcode::Bitcode;
use crate::continuation::anatomy::{DescribedBody, LlvmBody as InMemory};
use crate::handles::InstructionRef;
use crate::reader::{Reader, Verify};
use crate::shape;
use crate::summary::SymbolId;
use crate::table::Rewritten;

/// Counts of compared items.
#[derive(Debug, Default)]
struct Compared {
    bodies: usize,
    loops: usize,
    heads: usize,
    variables: usize,
}

fn check_same(name: &str, theirs: &Anatomy, ours: &Anatomy) {
    if theirs != ours {
        let (theirs, ours) = (format!("{theirs:#?}"), format!("{ours:#?}"));
        let mut lines = theirs.lines().zip(ours.lines()).enumerate();
        let first = lines.find(|(_, (theirs, ours))| theirs != ours);
        panic!("{name}: {first:?}");
    }
}

/// All decisions, as text.
fn text_of(decision: &Decision) -> String {
    let Decision {
        heads,
        latches,
        chosen,
        frame,
    } = decision;
    let variables = frame.as_ref().map(|it| &it.variables);
    format!("{heads:?} {latches:?} {chosen:?} {variables:?}")
}

/// Compares all bodies of a module.
fn compare(bitcode: &Bitcode) -> Compared {
    let reader = Reader::new(bitcode).expect("valid");
    let numbered = Numbered::read(bitcode, reader.summary()).expect("read here, too");
    let mut body = Body::default();
    let mut compared = Compared::default();
    for index in 0..reader.summary().symbols.len() as u32 {
        let symbol = SymbolId(index);
        let Some(number) = numbered.body(symbol) else {
            continue;
        };
        let bytes = numbered.bytes();
        let read = numbered.source.read_body(bytes, number, &mut body);
        let global = numbered.global(symbol);
        let told = read.map(|()| numbered.lowering().tell(&body, global, false));
        let Ok(Ok(ours)) = told else {
            continue;
        };
        let function = reader.function(symbol).expect("a function");
        reader.materialize(function, Verify::Yes).expect("valid");
        let shape = shape::measure(function);
        let is_fused = |it: InstructionRef<'_>| {
            let callee = it.callee();
            callee.and_then(|it| reader.table().rewritten(it)) == Some(Rewritten::MulAdd)
        };
        // SAFETY: a live module, which owns the layout.
        let theirs = unsafe {
            let layout = LLVMGetModuleDataLayout(reader.module().raw());
            InMemory::in_place(function, layout, &is_fused)
        };
        let theirs = DescribedBody::of(theirs, reader.kinds(), &shape.flow).anatomy;
        check_same(&function.name(), &theirs, &ours);
        compared.bodies += 1;
        let loops: Shape<'_> = shape.of_loops();
        let decision = decide(&ours, loops, |_| true);
        let again = decide(&theirs, loops, |_| true);
        assert_eq!(text_of(&decision), text_of(&again), "{}", function.name());
        compared.loops += loops.count as usize;
        compared.heads += decision.heads.counted.len();
        let crossings = decision.chosen.iter().map(|(_, what)| what.variables.len());
        compared.variables += crossings.sum::<usize>();
    }
    compared
}

const TEXT: &str = r#"
    @table = constant [1 x ptr] [ptr blockaddress(@labelled, %head)]
    declare void @use(...)
    declare i32 @personality(...)
    declare double @llvm.fmuladd.f64(double, double, double)
    declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
    declare ptr @llvm.stacksave.p0()
    declare void @llvm.stackrestore.p0(ptr)
    declare void @llvm.va_start.p0(ptr)
    declare void @llvm.va_end.p0(ptr)
    declare i32 @llvm.eh.typeid.for.p0(ptr)
    declare void @llvm.lifetime.start.p0(ptr)
    declare void @llvm.lifetime.end.p0(ptr)
    declare void @llvm.assume(i1)
    define double @rooms(ptr noalias %p, i64 %n, i128 %w, <4 x i32> %v) {
    entry:
        %scalar = alloca i64
        %bytes = alloca [6 x i32], align 16
        %watched = alloca i32
        %two = alloca i64, i32 2
        %held = alloca ptr
        %large = alloca [100 x i64]
        %many = alloca i8, i64 %n
        %wide = alloca i128
        %odd = alloca { i8, i64, <3 x float> }
        store ptr %p, ptr %held
        store volatile i32 1, ptr %watched
        %third = getelementptr i8, ptr %bytes, i64 12
        store i128 %w, ptr %wide
        br label %head
    head:
        %i = phi i64 [ 0, %entry ], [ %next, %latch ]
        %x = phi double [ 0.0, %entry ], [ %sum, %latch ]
        call void @llvm.lifetime.start.p0(ptr %two)
        %at = load ptr, ptr %held
        %element = getelementptr i64, ptr %at, i64 %i
        store atomic i64 %i, ptr %element release, align 8
        call void @llvm.memcpy.p0.p0.i64(ptr %third, ptr %large, i64 8, i1 false)
        call void @llvm.memcpy.p0.p0.i64(ptr %odd, ptr %large, i64 8, i1 true)
        %sum = call double @llvm.fmuladd.f64(double %x, double 2.0, double %x)
        call void @llvm.assume(i1 true) ["align"(ptr %many, i64 8)]
        %c = icmp ult i64 %i, %n
        br i1 %c, label %inner, label %latch
    inner:
        %k = phi i64 [ %i, %head ], [ %k2, %inner ]
        %k2 = sub i64 %k, 1
        store i64 %k2, ptr %scalar
        %saved = call ptr @llvm.stacksave.p0()
        %more = alloca i8, i64 %k2
        call void (...) @use(ptr %more, <4 x i32> %v)
        call void @llvm.stackrestore.p0(ptr %saved)
        %d = icmp eq i64 %k2, 0
        %e = select i1 %d, i1 %c, i1 true
        br i1 %e, label %latch, label %inner
    latch:
        call void @llvm.lifetime.end.p0(ptr %two)
        %next = add i64 %i, 1
        %again = icmp ult i64 %next, 100
        br i1 %again, label %head, label %done
    done:
        %w2 = load i128, ptr %wide
        %w3 = trunc i128 %w2 to i64
        %w4 = sitofp i64 %w3 to double
        %r = fadd double %sum, %w4
        ret double %r
    }
    define void @labelled(i64 %n) {
    entry: br label %head
    head:
        %i = phi i64 [ 0, %entry ], [ %j, %head ]
        %j = add i64 %i, 1
        %c = icmp ult i64 %j, %n
        br i1 %c, label %head, label %done
    done: ret void
    }
    define void @arguments(i64 %n, ...) {
    entry:
        %list = alloca [24 x i8]
        br label %head
    head:
        %i = phi i64 [ 0, %entry ], [ %j, %head ]
        %j = add i64 %i, 1
        call void @llvm.va_start.p0(ptr %list)
        call void @llvm.va_end.p0(ptr %list)
        %c = icmp ult i64 %j, %n
        br i1 %c, label %head, label %done
    done: ret void
    }
    define i32 @catches(i64 %n) personality ptr @personality {
    entry:
        %slot = alloca i32
        br label %head
    head:
        %i = phi i64 [ 0, %entry ], [ %j, %good ]
        %j = add i64 %i, 1
        invoke void (...) @use() to label %good unwind label %bad
    good:
        %c = icmp ult i64 %j, %n
        br i1 %c, label %head, label %done
    bad:
        %lp = landingpad { ptr, i32 } catch ptr @table
        %exception = extractvalue { ptr, i32 } %lp, 0
        %which = extractvalue { ptr, i32 } %lp, 1
        store i32 %which, ptr %slot
        %id = call i32 @llvm.eh.typeid.for.p0(ptr @table)
        br label %walk
    walk:
        %m = phi i64 [ 0, %bad ], [ %m2, %walk ]
        %m2 = add i64 %m, 1
        call void (...) @use(ptr %exception)
        %d = icmp ult i64 %m2, %n
        br i1 %d, label %walk, label %compare
    compare:
        %back = load i32, ptr %slot
        %is = icmp eq i32 %back, %id
        %r = zext i1 %is to i32
        ret i32 %r
    done: ret i32 0
    }
"#;

#[test]
fn loops_are_told_alike() {
    let bitcode = Bitcode::from_ir_text("m", TEXT).expect("valid");
    let compared = compare(&bitcode);
    assert_eq!((compared.bodies, compared.loops), (4, 6));
    // `arguments` and one of `catches` are not left.
    assert_eq!(compared.heads, 4, "{compared:?}");
}

/// Runs on the inputs of the baseline compiler's tests, and on some modules of guests.
#[test]
fn loops_of_programs_are_told_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut heads = 0;
    for path in files(&root.join("tests/baseline"), "ll") {
        let text = std::fs::read_to_string(&path).expect("text");
        heads += compare(&Bitcode::from_ir_text("m", &text).expect("valid")).heads;
    }
    assert!(heads >= 3, "{heads}");
    for path in files(&root.join("../../target/guests"), "bc") {
        const SOME_BYTES: u64 = 150_000;
        if path.metadata().is_ok_and(|it| it.len() <= SOME_BYTES) {
            let bytes = std::fs::read(&path).expect("readable");
            compare(&Bitcode::new("guest.bc", bytes));
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == ending));
    files.sort();
    files
}

/// Runs on the files that `URUK_BITCODE` names, with spaces between them.
#[test]
#[ignore = "files are to be named"]
fn loops_of_files_are_told_alike() {
    let files = std::env::var("URUK_BITCODE").expect("names of files");
    for file in files.split_whitespace() {
        let bytes = std::fs::read(file).expect("readable");
        println!("{file}: {:?}", compare(&Bitcode::new(file, bytes)));
    }
}
