//! Constants that LLVM makes while it compiles a version, and that a callee reads after the version
//! is gone: freed code is closed, so that a thread that reads it dies of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use uruk::{Freed, HeapConfig, Jit, ReclaimConfig, ReclaimKind, Tier};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

fn jit() -> Jit {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 4 << 20,
    };
    let mut reclaim = ReclaimConfig::default();
    for (name, value) in [
        ("backoff_min", "1ms"),
        ("backoff_max", "10ms"),
        ("interval", "0ns"),
    ] {
        reclaim.set(name, value).expect("a setting");
    }
    let builder = Jit::builder().heap(heap).reclaim(reclaim).jobs(1);
    builder.build().expect("a session")
}

/// Compiles and moves `name` until its first code is long gone, unless it is held.
fn churn(jit: &Jit, name: &str) {
    for tier in Tier::ALL.into_iter().cycle().take(9) {
        jit.compile_at(name, tier).expect("a function");
        assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
    }
}

/// 1 once the callee below sleeps.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// 1 once it may go on.
static WOKEN: AtomicU32 = AtomicU32::new(0);
/// The first eight bytes of what it was given.
static READ: AtomicU64 = AtomicU64::new(0);

// Stands for `puts` that waits for the lock of its stream. While it sleeps in the kernel, its
// argument is in rbx only, which no other thread can read.
std::arch::global_asm!(
    ".globl uruk_test_puts",
    ".type uruk_test_puts, @function",
    "uruk_test_puts:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov rbx, rdi",
    "lea rdi, [rip + {asleep}]",
    "mov dword ptr [rdi], 1",
    "2:",
    "lea rdi, [rip + {woken}]",
    // FUTEX_WAIT for as long as the word is 0.
    "mov eax, 202",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "syscall",
    "lea rdi, [rip + {woken}]",
    "cmp dword ptr [rdi], 0",
    "je 2b",
    "mov rax, qword ptr [rbx]",
    "mov qword ptr [rip + {read}], rax",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    asleep = sym ASLEEP,
    woken = sym WOKEN,
    read = sym READ,
);

unsafe extern "C" {
    fn uruk_test_puts(text: *const u8) -> i32;
}

/// `printf` of a line becomes `puts` of a string that no module has.
#[test]
fn a_string_made_by_llvm_is_read_by_a_callee_that_slept() {
    let jit = jit();
    // SAFETY: takes a string, and returns.
    unsafe {
        jit.main()
            .define_address("puts", uruk_test_puts as *const ())
    }
    .expect("a new name");
    jit.add_ir(
        "m",
        "@line = private unnamed_addr constant [12 x i8] c\"one string\\0A\\00\", align 1
         declare i32 @printf(ptr, ...)
         define void @say() {
           %n = call i32 (ptr, ...) @printf(ptr @line)
           ret void
         }",
    )
    .expect("valid IR");
    jit.compile_at("say", Tier::Optimized).expect("a function");
    // SAFETY: the function above.
    let say = unsafe { jit.function::<extern "C" fn()>("say") }.expect("typed");
    let sayer = std::thread::spawn(move || say.call());
    while ASLEEP.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    churn(&jit, "say");
    WOKEN.store(1, Ordering::SeqCst);
    // SAFETY: wakes every thread that waits for the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WOKEN.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            0usize,
            0usize,
            0,
        )
    };
    sayer.join().expect("it ends");
    let read = READ.load(Ordering::SeqCst).to_le_bytes();
    assert_eq!(&read, b"one stri", "{read:x?}");
}

/// The argument that the callee below got last.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// One test at a time looks at it.
static ONE: Mutex<()> = Mutex::new(());

extern "C" fn keep(text: *const u8) -> i32 {
    GIVEN.store(text as u64, Ordering::SeqCst);
    1
}

/// A module whose function `name` says a line of `size` bytes.
fn sayer(name: &str, size: usize) -> String {
    let line = "y".repeat(size - 2);
    format!(
        "@line = private unnamed_addr constant [{size} x i8] c\"{line}\\0A\\00\", align 1
         declare i32 @printf(ptr, ...)
         define void @{name}() {{
           %n = call i32 (ptr, ...) @printf(ptr @line)
           ret void
         }}"
    )
}

/// The argument that `name` gives to `puts` at its tier.
fn given(jit: &Jit, name: &str) -> u64 {
    // SAFETY: functions of these tests take and give nothing.
    let say = unsafe { jit.function::<extern "C" fn()>(name) }.expect("typed");
    say.call();
    GIVEN.load(Ordering::SeqCst)
}

/// Bytes held once nothing is retired.
fn held(jit: &Jit) -> u64 {
    for _ in 0..100 {
        assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
        if jit.stats().memory.retired == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    jit.stats().memory.held
}

/// Versions that need equal constants share them, so that compiling a function for ever
/// takes no more memory; and they go with the module.
#[test]
fn equal_constants_are_one_and_go_with_their_module() {
    const SIZE: u64 = 100_000;
    let _one = ONE.lock();
    let jit = jit();
    // SAFETY: takes a string.
    unsafe { jit.main().define_address("puts", keep as *const ()) }.expect("a new name");
    jit.add_ir("other", &sayer("other", 16)).expect("valid IR");
    jit.compile_at("other", Tier::Optimized)
        .expect("a function");
    let other = given(&jit, "other");
    let tracker = jit.main().create_tracker().expect("a tracker");
    let both = sayer("say", SIZE as usize);
    let both = format!(
        "{both}
         define void @again() {{
           %n = call i32 (ptr, ...) @printf(ptr @line)
           ret void
         }}"
    );
    tracker.add_ir("m", &both).expect("valid IR");
    let before = held(&jit);
    jit.compile_at("say", Tier::Optimized).expect("a function");
    jit.compile_at("again", Tier::Guided).expect("a function");
    let at = given(&jit, "say");
    assert_eq!(given(&jit, "again"), at);
    for _ in 0..10 {
        for tier in [Tier::Optimized, Tier::Guided] {
            jit.compile_at("say", tier).expect("a function");
            assert_eq!(given(&jit, "say"), at);
        }
    }
    let with = held(&jit);
    assert!(
        (before + SIZE..before + 2 * SIZE).contains(&with),
        "{before} and with one constant {with}"
    );
    // SAFETY: no thread keeps an address of it.
    unsafe { tracker.remove() }.expect("once");
    let after = held(&jit);
    assert!(after + SIZE <= with, "{with}, and removed {after}");
    // Another module's are not touched.
    // SAFETY: a string of a module that is there.
    let text = unsafe { std::ffi::CStr::from_ptr(other as *const _) };
    assert_eq!(text.to_bytes(), [b'y'; 14]);
}

/// A table of addresses: of strings of the module, of another module, of functions.
#[test]
fn tables_of_addresses_outlive_the_versions_they_were_made_for() {
    let jit = jit();
    jit.add_ir("d", "@there = constant [6 x i8] c\"there\\00\"")
        .expect("valid IR");
    let cases: String = (0..8).map(|i| format!("i32 {i}, label %c{i}\n")).collect();
    let blocks: String = (0..8).map(|i| format!("c{i}:\n br label %end\n")).collect();
    let texts: String = (0..6)
        .map(|i| format!("@t{i} = private constant [3 x i8] c\"t{i}\\00\"\n"))
        .collect();
    let values = (0..6).map(|i| format!("[ @t{i}, %c{i} ]"));
    let values: Vec<String> = values
        .chain(["[ @there, %c6 ]".into(), "[ @name, %c7 ]".into()])
        .collect();
    let ir = format!(
        "@there = external constant [6 x i8]
         {texts}
         define ptr @name(i32 %i) {{
         entry:
           switch i32 %i, label %other [ {cases} ]
         {blocks}
         other:
           br label %end
         end:
           %p = phi ptr {}, [ null, %other ]
           ret ptr %p
         }}",
        values.join(", ")
    );
    jit.add_ir("m", &ir).expect("valid IR");
    // SAFETY: the function above.
    let name = unsafe { jit.function::<extern "C" fn(i32) -> *const u8>("name") };
    let name = name.expect("typed");
    let all = || -> Vec<u64> { (0..9).map(|i| name.call(i) as u64).collect() };
    let expected = all();
    assert_eq!(expected[6], jit.lookup("there").expect("defined"));
    assert_eq!(expected[7], jit.lookup("name").expect("defined"));
    for tier in Tier::ALL.into_iter().cycle().take(9) {
        jit.compile_at("name", tier).expect("a function");
        assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
        assert_eq!(all(), expected, "at {tier:?}");
    }
}
