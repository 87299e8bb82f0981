//! An input that cannot be loaded leaves nothing in its session, and a session in which it could not be
//! loaded leaves nothing in the process: counted in bytes that Rust and LLVM hold of the C library's
//! allocator. One test, in a process of its own.

use crate::counting;
use crate::cycles::one_function;

use std::path::PathBuf;

use uruk::{Jit, Program, ProgramOptions, ReclaimKind};
use uruk_testing::in_own_process;

/// Cycles between the two counts.
const COUNTED: usize = 1000;
/// Bytes that may stay of a cycle, and that tables may grow by meanwhile.
const ALLOWED: usize = 30;
const TABLES: usize = 40 << 10;

/// Bytes that may stay of a cycle beyond Rust's, and that arenas may grow by: lists of free blocks of
/// threads that came and went count as allocated.
const FOREIGN: usize = 600;
const ARENAS: usize = 512 << 10;

/// Bytes that are allocated: by Rust, and in all.
fn allocated() -> [usize; 2] {
    // SAFETY: reads counters of the allocator.
    let all = unsafe { libc::mallinfo2() };
    [counting::allocated(), all.uordblks + all.hblkhd]
}

const MISSING: &str = "@word = global ptr @missing
    declare i64 @missing(i64)
    define i64 @f(i64 %x) { %y = call i64 @missing(i64 %x) ret i64 %y }";
const CONSTRUCTOR: &str = "declare i64 @fails(i64)
    @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
      [{ i32, ptr, ptr } { i32 100, ptr @begin, ptr null }]
    @state = global i64 5
    define internal void @begin() { %a = load i64, ptr @state %x = call i64 @fails(i64 %a) ret void }
    define i64 @f(i64 %x) { ret i64 %x }";

#[derive(Debug, thiserror::Error)]
#[error("not wanted")]
struct Unwanted;

/// Bitcode of a module, cut.
fn damaged() -> Vec<u8> {
    let context = uruk::inkwell::context::Context::create();
    let module = context.create_module("m");
    let word = context.i64_type();
    let function = module.add_function("f", word.fn_type(&[word.into()], false), None);
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, ""));
    let x = function.get_nth_param(0).expect("it has one");
    builder.build_return(Some(&x)).expect("built");
    let mut bytes = module.write_bitcode_to_memory().as_slice().to_vec();
    let middle = bytes.len() / 2;
    bytes.truncate(middle / 4 * 4);
    bytes
}

/// A way in which something cannot be loaded.
#[derive(Debug, Clone, Copy)]
enum Way {
    Text,
    Missing,
    Damaged,
    Object,
    Constructor,
    Twice,
}

const WAYS: [Way; 6] = [
    Way::Text,
    Way::Missing,
    Way::Damaged,
    Way::Object,
    Way::Constructor,
    Way::Twice,
];

fn session() -> Jit {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.define_fn("fails", |_: i64| Err::<i64, _>(Unwanted))
        .expect("defined");
    jit
}

/// Has an input refused in a session.
fn refused(jit: &Jit, way: Way, damaged: &[u8]) {
    let main = jit.main();
    match way {
        Way::Text => drop(main.add_ir("m", "this is no IR").expect_err("no IR")),
        Way::Missing => drop(main.add_ir("m", MISSING).expect_err("missing")),
        Way::Damaged => drop(
            main.add_bitcode("m", damaged.to_vec())
                .expect_err("damaged"),
        ),
        Way::Object => {
            let mut object = one_function::object("f", 42);
            let end = object.len() / 2;
            object.truncate(end);
            drop(main.add_object("f.o", object).expect_err("cut"));
        }
        Way::Constructor => {
            let tracker = main.create_tracker().expect("a tracker");
            tracker.add_ir("m", CONSTRUCTOR).expect("added");
            // SAFETY: its constructor returns an error.
            unsafe { main.initialize() }.expect_err("it fails");
            // SAFETY: nothing of it is used.
            unsafe { tracker.remove() }.expect("once");
        }
        Way::Twice => {
            let tracker = main.create_tracker().expect("a tracker");
            tracker
                .add_ir("m", "define i64 @g() { ret i64 1 }")
                .expect("added");
            let again = "@v = global i64 3 define i64 @g() { ret i64 2 }";
            drop(tracker.add_ir("n", again).expect_err("twice"));
            // SAFETY: nothing of it is used.
            unsafe { tracker.remove() }.expect("once");
        }
    }
}

/// The same, once threads of sessions that ended are gone: the least that is seen until it falls no
/// more.
fn settled() -> [usize; 2] {
    const LOOKS: usize = 20;
    let (mut least, mut same) = (allocated(), 0);
    while same < LOOKS {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = allocated();
        let lower = [least[0].min(now[0]), least[1].min(now[1])];
        same = if lower == least { same + 1 } else { 0 };
        least = lower;
    }
    least
}

/// Rounds of cycles, of which one must leave nothing: one in which a thread more came to rest, with its
/// buffers, leaves those.
const ROUNDS: usize = 4;

/// Checks what stays of cycles, of which as many come before. What waits to be freed meanwhile takes
/// the same each time.
fn check(what: &str, mut cycle: impl FnMut(), settle: impl Fn(), counted: usize) {
    let mut all = || {
        for number in 0..counted {
            cycle();
            if number % 100 == 99 {
                settle();
            }
        }
        settled()
    };
    let mut seen = vec![all()];
    for _ in 0..ROUNDS {
        let (before, after) = (seen[seen.len() - 1], all());
        let most = [
            before[0] + counted * ALLOWED + TABLES,
            before[1] + counted * FOREIGN + ARENAS,
        ];
        if after[0] <= most[0] && after[1] <= most[1] {
            return;
        }
        seen.push(after);
    }
    panic!("{what}: {seen:?}, each after {counted} cycles more");
}

#[test]
fn nothing_stays_of_what_cannot_be_loaded() {
    if !in_own_process(module_path!(), "nothing_stays_of_what_cannot_be_loaded") {
        return;
    }
    let bytes = damaged();
    for way in WAYS {
        let jit = session();
        let cycle = || refused(&jit, way, &bytes);
        let limit = std::time::Duration::from_secs(60);
        let settle = || (0..2).for_each(|_| assert!(jit.reclaim(ReclaimKind::Sweep, limit)));
        check(&format!("{way:?}"), cycle, settle, COUNTED);
    }
    let folder = std::env::temp_dir().join(format!("uruk-refused-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let files: [(&str, &[u8]); 5] = [
        ("text.ll", b"this is no IR"),
        ("missing.ll", MISSING.as_bytes()),
        ("damaged.bc", &bytes),
        ("entry.ll", b"define i64 @f() { ret i64 1 }"),
        ("data.o", &one_function::object("f", 42)[..200]),
    ];
    for (name, bytes) in files {
        let file: PathBuf = folder.join(name);
        std::fs::write(&file, bytes).expect("written");
        let cycle = || {
            let jit = session();
            let files = std::slice::from_ref(&file);
            let loaded = Program::load(&jit, files, ProgramOptions::default());
            assert!(loaded.is_err(), "{name}");
        };
        check(&format!("program {name}"), cycle, || (), 400);
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
