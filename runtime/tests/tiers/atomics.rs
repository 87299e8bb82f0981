//! Atomic accesses of all sizes and alignments: each tier does one by an instruction exactly where
//! the others do, so that they exclude each other.
//!
//! LLVM has libatomic do what is aligned to less than its size; libatomic may take a lock, which an
//! instruction would not see. Here the functions of libatomic are the test's, and are counted.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Barrier;

use uruk::{Baseline, Func, Jit, Tier, Tiers};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn called() {
    CALLS.set(CALLS.get() + 1);
}

unsafe extern "C" fn load(size: usize, from: *const u8, to: *mut u8, _: i32) {
    called();
    // SAFETY: both have `size` bytes.
    unsafe { to.copy_from_nonoverlapping(from, size) };
}

unsafe extern "C" fn store(size: usize, to: *mut u8, from: *const u8, _: i32) {
    called();
    // SAFETY: both have `size` bytes.
    unsafe { to.copy_from_nonoverlapping(from, size) };
}

unsafe extern "C" fn exchange(size: usize, at: *mut u8, from: *const u8, to: *mut u8, _: i32) {
    called();
    // SAFETY: all have `size` bytes.
    unsafe {
        to.copy_from_nonoverlapping(at, size);
        at.copy_from_nonoverlapping(from, size);
    }
}

unsafe extern "C" fn compare_exchange(
    size: usize,
    at: *mut u8,
    expected: *mut u8,
    from: *const u8,
    _: i32,
    _: i32,
) -> bool {
    called();
    // SAFETY: all have `size` bytes.
    unsafe {
        let [there, wanted] = [at, expected].map(|it| std::slice::from_raw_parts(it, size));
        let same = there == wanted;
        match same {
            true => at.copy_from_nonoverlapping(from, size),
            false => expected.copy_from_nonoverlapping(at, size),
        }
        same
    }
}

/// One access.
struct Access {
    name: String,
    text: String,
    /// Whether libatomic is called for it.
    is_call: bool,
    /// The accesses that the baseline compiler covers are compiled by it.
    is_covered: bool,
}

const WHOLE: [&str; 15] = [
    "xchg",
    "add",
    "sub",
    "and",
    "nand",
    "or",
    "xor",
    "max",
    "min",
    "umax",
    "umin",
    "uinc_wrap",
    "udec_wrap",
    "usub_cond",
    "usub_sat",
];

/// A type, its size, operations, and how many of those the baseline compiler has.
type Kind = (&'static str, u32, &'static [&'static str], usize);

const KINDS: [Kind; 10] = [
    ("i8", 1, &WHOLE, 11),
    ("i16", 2, &WHOLE, 11),
    ("i32", 4, &WHOLE, 11),
    ("i64", 8, &WHOLE, 11),
    ("i128", 16, &WHOLE, 0),
    ("i256", 32, &WHOLE, 0),
    ("ptr", 8, &["xchg"], 1),
    ("half", 2, &["xchg", "fadd"], 0),
    (
        "float",
        4,
        &["xchg", "fadd", "fsub", "fmax", "fmin", "fmaximum"],
        3,
    ),
    (
        "double",
        8,
        &["xchg", "fadd", "fsub", "fmax", "fmin", "fmaximum"],
        3,
    ),
];

fn accesses() -> Vec<Access> {
    let mut all = Vec::new();
    for kind @ (_, size, ..) in KINDS {
        let aligns = [1, 2, 4, 8, 16, 32].into_iter();
        for align in aligns.filter(|align| *align <= 2 * size) {
            all.extend(of_kind(kind, align));
        }
    }
    all
}

fn of_kind((ty, size, operations, covered): Kind, align: u32) -> Vec<Access> {
    let mut all = Vec::new();
    // `body` has the words before and behind the access.
    let mut add = |name: &str, is_covered: bool, body: &dyn Fn(&str, &str) -> String| {
        // In turns, as each function costs a compile at each tier.
        let (what, scope) = match all.len() % 2 {
            0 => ("", ""),
            _ => ("volatile ", "syncscope(\"singlethread\") "),
        };
        let name = format!("{name}.{ty}.{align}");
        let body = body(what, scope);
        all.push(Access {
            text: format!(
                "define void @\"{name}\"(ptr %at, ptr %from, ptr %to) {{\n  \
                 %value = load {ty}, ptr %from, align 1\n{body}  ret void\n}}\n"
            ),
            name,
            is_call: align < size || size > 16,
            is_covered: is_covered && align >= size,
        });
    };
    let result = format!("  store {ty} %old, ptr %to, align 1\n");
    for (number, operation) in operations.iter().enumerate() {
        let made = |what: &str, scope: &str| {
            format!(
                "  %old = atomicrmw {what}{operation} ptr %at, {ty} %value {scope}seq_cst, \
                 align {align}\n"
            )
        };
        let is_covered = number < covered;
        add(operation, is_covered, &|what, scope| {
            made(what, scope) + &result
        });
        if align >= size {
            add(&format!("{operation}.unused"), is_covered, &made);
        }
    }
    add("load", covered != 0, &|what, scope| {
        let end = format!("{scope}seq_cst, align {align}");
        format!("  %old = load atomic {what}{ty}, ptr %at {end}\n{result}")
    });
    add("store", covered != 0, &|what, scope| {
        let end = format!("{scope}seq_cst, align {align}");
        format!("  store atomic {what}{ty} %value, ptr %at {end}\n")
    });
    if ty.starts_with('i') || ty == "ptr" {
        add("cmpxchg", covered != 0, &|what, scope| {
            let end = format!("{scope}seq_cst monotonic, align {align}");
            format!(
                "  %there = load {ty}, ptr %at, align 1\n  %pair = cmpxchg {what}ptr %at, {ty} \
                 %there, {ty} %value {end}\n  %old = extractvalue {{ {ty}, i1 }} %pair, 0\n{result}"
            )
        });
    }
    all
}

type Body = extern "C" fn(*mut u8, *const u8, *mut u8);

#[repr(C, align(64))]
#[derive(Clone, PartialEq, Debug)]
struct Bytes([[u8; 32]; 3]);

fn session(baseline: Baseline, tier: Tier, text: &str) -> Jit {
    let builder = Jit::builder().baseline(baseline).tiers(Tiers::Fixed(tier));
    let jit = builder.build().expect("a session");
    jit.add_ir("atomics", text).expect("valid");
    jit
}

/// A session in which calls of libatomic are counted.
fn counted(baseline: Baseline, tier: Tier, text: &str) -> Jit {
    let jit = session(baseline, tier, text);
    let all = [
        ("__atomic_load", load as *const c_void),
        ("__atomic_store", store as *const c_void),
        ("__atomic_exchange", exchange as *const c_void),
        (
            "__atomic_compare_exchange",
            compare_exchange as *const c_void,
        ),
    ];
    for (name, address) in all {
        // SAFETY: these have the types of libatomic's.
        unsafe { jit.main().define_address(name, address.cast::<()>()) }.expect("a new name");
    }
    jit
}

#[test]
fn all_tiers_call_libatomic_for_the_same() {
    let all = accesses();
    let text: String = all.iter().map(|it| &*it.text).collect();
    let sessions = [
        (Baseline::On, Tier::Baseline),
        (Baseline::Off, Tier::Baseline),
        (Baseline::On, Tier::Optimized),
        (Baseline::On, Tier::Guided),
    ]
    .map(|(baseline, tier)| counted(baseline, tier, &text));
    for access in &all {
        let outcomes = sessions.each_ref().map(|jit| {
            // SAFETY: it has this type.
            let body: Func<Body> = unsafe { jit.function(&access.name) }.expect("typed");
            // Small numbers, as floats are compared, too.
            let mut bytes = Bytes([[0x11; 32], [0x22; 32], [0; 32]]);
            CALLS.set(0);
            let [at, from, to] = &mut bytes.0;
            body.call(at.as_mut_ptr(), from.as_ptr(), to.as_mut_ptr());
            (bytes, CALLS.get() != 0)
        });
        for (at, (bytes, is_call)) in outcomes.iter().enumerate() {
            assert_eq!(*is_call, access.is_call, "session {at}: {}", access.text);
            assert_eq!(*bytes, outcomes[1].0, "session {at}: {}", access.text);
        }
    }
    // Accesses with the alignment are not left to LLVM.
    let covered = all.iter().filter(|it| it.is_covered).count() as u64;
    let stats = sessions[0].stats().baseline;
    assert_eq!(stats.compiled, covered, "{:?}", stats.uncovered);
}

/// Additions of one thread.
const TIMES: u32 = 200_000;

const MANY: &str = "
define void @many(ptr %at, i32 %times) {
entry:
  br label %head
head:
  %n = phi i32 [ 0, %entry ], [ %more, %head ]
  %old = atomicrmw add ptr %at, i32 1 seq_cst, align 1
  %more = add i32 %n, 1
  %on = icmp ult i32 %more, %times
  br i1 %on, label %head, label %end
end:
  ret void
}
";

#[test]
fn no_update_is_lost_between_tiers() {
    let mut bytes = Bytes([[0; 32]; 3]);
    // In two words of 16 bytes: libatomic takes a lock.
    let at = &raw mut bytes.0[0][13];
    let at = at as usize;
    let ready = Barrier::new(Tier::ALL.len());
    std::thread::scope(|threads| {
        for tier in Tier::ALL {
            let ready = &ready;
            threads.spawn(move || {
                let jit = session(Baseline::On, tier, MANY);
                // SAFETY: it has this type.
                let many: Func<extern "C" fn(*mut u8, u32)> =
                    unsafe { jit.function("many") }.expect("typed");
                // All have code before the first addition that counts.
                many.call(at as *mut u8, 1);
                ready.wait();
                many.call(at as *mut u8, TIMES);
            });
        }
    });
    let mut sum = [0; 4];
    sum.copy_from_slice(&bytes.0[0][13..17]);
    let threads = Tier::ALL.len() as u32;
    assert_eq!(u32::from_le_bytes(sum), (TIMES + 1) * threads);
}
