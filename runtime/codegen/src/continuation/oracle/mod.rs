//! An oracle for the values that cross a head: by the definition, path by path.
//!
//! A value crosses the head of a loop if there is a path from behind the head's phis to a use of it
//! that does not pass its definition. A variable whose address leaves has no definition, and
//! crosses if there is also a path from a use of it to the head. [`frame`](super::frame) finds that
//! by sets of blocks, for all at once. Here each value is looked for by itself, by a walk from each
//! head. How a variable crosses is found from its uses by another reading of the table in
//! `continuation/mod.rs`. The two are compared, set for set. Inputs are bodies written for this
//! test, and those of the guests, if their bitcode is in `target/guests`. `URUK_BODIES` names
//! another folder, and all of it is read then.

mod body;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use uruk_leaving::Forbidden;

use super::anatomy::{DescribedBody, LlvmBody as Read};
use super::frame::{Frame, Kind};
use crate::bitcode::Bitcode;
use crate::handles::FunctionRef;
use crate::reader::{Reader, Verify};
use crate::shape;

use body::{Body, Way, key, text_of};

/// Steps of walks that one body may take; of larger bodies, only the first heads are checked.
const MOST_STEPS: usize = 40_000_000;

/// Bitcode of guests that an ordinary run reads: so many files, each up to so many bytes.
const SOME_FILES: usize = 48;
const SOME_BYTES: u64 = 150_000;

/// Counts of compared items, and the differences.
#[derive(Default, Debug)]
struct Seen {
    bodies: usize,
    heads: usize,
    variables: usize,
    differences: Vec<String>,
}

impl Seen {
    /// Compares all heads of one body.
    fn body(&mut self, reader: &Reader, function: FunctionRef<'_>) {
        let shape = shape::measure(function);
        let Some(loops) = shape.loops.as_deref().filter(|it| !it.is_empty()) else {
            return;
        };
        let graph = &shape.flow.graph;
        let read = Read::copied(reader.module(), function);
        let told = DescribedBody::of(read, reader.kinds(), &shape.flow);
        let Ok(forbidden) = Forbidden::of(&told.anatomy) else {
            return;
        };
        let loops: Vec<_> = loops
            .iter()
            .filter(|it| forbidden.at(&told.anatomy, graph, it).is_none())
            .collect();
        let Ok(frame) = Frame::of(told, graph) else {
            return;
        };
        let body = Body::of(reader.module(), function);
        self.bodies += 1;
        let mut steps = 0;
        for it in loops {
            if steps > MOST_STEPS {
                continue;
            }
            let Ok(what) = frame.crossing(it.head) else {
                continue;
            };
            let found: BTreeMap<usize, Way> = what
                .variables
                .iter()
                .map(|&at| {
                    let variable = frame.variables[at as usize];
                    let way = match variable.kind {
                        Kind::Value | Kind::Stored => Way::Itself,
                        Kind::Scalar => Way::Content,
                        Kind::Bytes(_) => Way::ByAddress,
                        Kind::Kept { .. } => Way::Stays,
                    };
                    (key(variable.value), way)
                })
                .collect();
            self.heads += 1;
            self.variables += found.len();
            let mut difference = |variable: usize, what: &str| {
                let text = body.names.get(&variable).map(|&it| text_of(it));
                let text = text.unwrap_or_default();
                let name = function.name();
                self.differences
                    .push(format!("{name}, block {}: {what}: {text}", it.head));
            };
            for (&variable, &way) in &body.ways {
                let mut live = body.is_live(variable, it.head, &mut steps);
                if way == Way::Stays && body.leaves(variable) {
                    live &= body.is_met(variable, it.head);
                }
                match found.get(&variable) {
                    Some(_) if !live => difference(variable, "crosses though nothing reads it"),
                    None if live => difference(variable, "is read and does not cross"),
                    Some(&other) if other != way => difference(variable, "crosses in another way"),
                    _ => {}
                }
            }
            for &variable in found.keys().filter(|it| !body.ways.contains_key(it)) {
                difference(variable, "crosses and is nothing");
            }
        }
    }

    fn bitcode(&mut self, bitcode: &Bitcode) {
        let Ok(reader) = Reader::new(bitcode) else {
            return;
        };
        let functions: Vec<FunctionRef<'_>> = reader.module().functions().collect();
        for function in functions {
            let read = reader.materialize(function, Verify::No);
            if read.is_ok() && !function.is_declaration() {
                self.body(&reader, function);
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let before = self.differences.len();
        let bytes = std::fs::read(path).expect("a readable file");
        self.bitcode(&Bitcode::new("guest.bc", &*bytes));
        for difference in &mut self.differences[before..] {
            *difference = format!("{}: {difference}", path.display());
        }
    }

    fn check(&self) {
        let some: Vec<_> = self.differences.iter().take(20).cloned().collect();
        let all = self.differences.len();
        assert!(all == 0, "{all} differences\n{}", some.join("\n"));
    }
}

fn check(ir: &str) -> Seen {
    let mut seen = Seen::default();
    seen.bitcode(&Bitcode::from_ir_text("oracle.ll", ir).expect("valid IR"));
    seen.check();
    seen
}

#[test]
fn values_cross_where_they_are_used_behind() {
    let seen = check(
        "define i64 @f(ptr %p, i64 %n, i64 %unused) {
         entry:
           %before = add i64 %n, 3
           %only = mul i64 %before, 5
           br label %outer
         outer:
           %i = phi i64 [ 0, %entry ], [ %i1, %latch ]
           %twice = add i64 %i, %i
           br label %inner
         inner:
           %j = phi i64 [ %only, %outer ], [ %k, %inner ]
           %last = phi i64 [ 7, %outer ], [ %j, %inner ]
           %k = add i64 %j, 1
           store i64 %last, ptr %p
           %c = icmp ult i64 %k, %twice
           br i1 %c, label %inner, label %latch
         latch:
           %i1 = add i64 %i, 1
           %d = icmp ult i64 %i1, %n
           br i1 %d, label %outer, label %done
         done: ret i64 %k }",
    );
    assert_eq!((seen.heads, seen.variables), (2, 4 + 7));
}

#[test]
fn variables_cross_in_each_way() {
    let seen = check(
        "define i64 @f(i64 %n) {
         entry:
           %content = alloca i64
           %filled = alloca i64
           %array = alloca [8 x i64]
           %stays = alloca [8 x i64]
           %alone = alloca [800 x i64]
           %watched = alloca i64
           %unborn = alloca [4 x i64]
           %partly = alloca i32
           store i32 1, ptr %partly
           store i64 1, ptr %content
           store volatile i64 1, ptr %watched
           %third = getelementptr [8 x i64], ptr %array, i64 0, i64 3
           store i64 2, ptr %third
           call void @g(ptr %stays)
           br label %head
         head:
           %i = phi i64 [ 0, %entry ], [ %j, %head ]
           %a = load i64, ptr %content
           store i8 3, ptr %partly
           %whole = load i32, ptr %partly
           store i64 %a, ptr %filled
           %b = load i64, ptr %filled
           %c = load i64, ptr %third
           %d = load i64, ptr %stays
           %at = getelementptr [800 x i64], ptr %alone, i64 0, i64 %i
           store i64 %d, ptr %at
           %e = load volatile i64, ptr %watched
           call void @llvm.lifetime.start.p0(ptr %unborn)
           store i64 %e, ptr %unborn
           %f = load i64, ptr %unborn
           call void @llvm.lifetime.end.p0(ptr %unborn)
           %j = add i64 %i, %f
           %more = icmp ult i64 %j, %n
           br i1 %more, label %head, label %done
         done: ret i64 %c }
         declare void @g(ptr)
         declare void @llvm.lifetime.start.p0(ptr)
         declare void @llvm.lifetime.end.p0(ptr)",
    );
    // The number, the phi, and all variables except those filled or born behind the head.
    assert_eq!((seen.heads, seen.variables), (1, 2 + 6));
}

/// The address of a variable is taken before its life begins.
#[test]
fn an_address_is_the_same_in_every_life() {
    let seen = check(
        "define i64 @f(i64 %n, i64 %k) {
         entry:
           %a = alloca [64 x i64]
           %at = getelementptr [64 x i64], ptr %a, i64 0, i64 %k
           br label %head
         head:
           %i = phi i64 [ 0, %entry ], [ %j, %head ]
           call void @llvm.lifetime.start.p0(ptr %a)
           call void @g(ptr %a)
           %x = load i64, ptr %at
           call void @llvm.lifetime.end.p0(ptr %a)
           %j = add i64 %i, %x
           %more = icmp ult i64 %j, %n
           br i1 %more, label %head, label %done
         done: ret i64 %j }
         declare void @g(ptr)
         declare void @llvm.lifetime.start.p0(ptr)
         declare void @llvm.lifetime.end.p0(ptr)",
    );
    assert_eq!((seen.heads, seen.variables), (1, 4));
}

/// No other code has the address, but the body has it in a value of its own.
#[test]
fn an_address_that_crosses_keeps_its_variable_where_it_is() {
    let seen = check(
        "define i64 @f(i64 %n, i64 %k) {
         entry:
           %a = alloca [8 x i64]
           %b = alloca [8 x i64]
           call void @llvm.memset.p0.i64(ptr %a, i8 1, i64 64, i1 false)
           call void @llvm.memset.p0.i64(ptr %b, i8 1, i64 64, i1 false)
           %at = getelementptr [8 x i64], ptr %a, i64 0, i64 %k
           br label %head
         head:
           %i = phi i64 [ 0, %entry ], [ %j, %head ]
           %x = load i64, ptr %at
           %here = getelementptr [8 x i64], ptr %b, i64 0, i64 %k
           store i64 %x, ptr %here
           %y = load i64, ptr %a
           %j = add i64 %i, %y
           %more = icmp ult i64 %j, %n
           br i1 %more, label %head, label %done
         done: ret i64 %j }
         declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    );
    assert_eq!((seen.heads, seen.variables), (1, 6));
}

/// Bitcode of guests: some of it, or all of the folder in `URUK_BODIES`.
#[test]
fn bodies_of_guests_cross_by_the_definition() {
    let named = std::env::var_os("URUK_BODIES").map(PathBuf::from);
    let all = named.is_some();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests");
    let folder = named.unwrap_or(workspace);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(!all, "{} cannot be read", folder.display());
        return;
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == "bc"));
    files.sort();
    if !all {
        let small = |it: &PathBuf| it.metadata().is_ok_and(|it| it.len() <= SOME_BYTES);
        files.retain(small);
        let step = (files.len() / SOME_FILES).max(1);
        files = files.into_iter().step_by(step).collect();
    }
    let mut seen = Seen::default();
    for file in &files {
        seen.file(file);
    }
    println!(
        "{} files, {} bodies, {} heads, {} that cross",
        files.len(),
        seen.bodies,
        seen.heads,
        seen.variables
    );
    seen.check();
}
