//! Threads of the library use the C library's allocator only with a pass of the gate. A process
//! that the program copies by `_Fork` or `clone` is made while no pass is given: the allocator's
//! locks are then the program's own affair, as natively, where those threads do not exist.
//!
//! A binary of its own: it stands in for the C library's allocator.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uruk::{Jit, Level, Replacement, Tier, Tiers};

type Answer = extern "C" fn(i32) -> i32;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
}

thread_local! {
    /// Whether the thread has a name of ours, or is being asked for one.
    static OURS: Cell<bool> = const { Cell::new(false) };
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Places where a thread of ours allocated without a pass.
static FOUND: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The number of requests of our threads to the allocator.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread is one of the library's. It never gets another name.
fn is_ours() -> bool {
    if !OURS.get() {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes at most 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        OURS.set(name.starts_with(b"uruk-"));
    }
    OURS.get()
}

fn look() {
    if ASKING.replace(true) {
        return;
    }
    let ours = is_ours();
    SEEN.fetch_add(usize::from(ours), Ordering::Relaxed);
    if ours && uruk_base::locks::covers() == 0 {
        let trace = Backtrace::force_capture().to_string();
        // Allocations before and after the thread's work are the concern of the code that copies
        // the process.
        if trace.contains("src/thread.rs:") {
            let lines = trace.lines().filter(|line| line.contains(": "));
            let text: Vec<_> = lines.take(40).collect();
            let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
            found.insert(text.join("\n"));
        }
    }
    ASKING.set(false);
}

/// # Safety
/// As the C library's; so are the others.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    look();
    // SAFETY: the caller's.
    unsafe { __libc_malloc(size) }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    look();
    // SAFETY: the caller's.
    unsafe { __libc_calloc(count, size) }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    look();
    // SAFETY: the caller's.
    unsafe { __libc_realloc(old, size) }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(old: *mut c_void) {
    if !old.is_null() {
        look();
    }
    // SAFETY: the caller's.
    unsafe { __libc_free(old) }
}

fn looping(version: i32) -> String {
    format!(
        "define i32 @callee(i32 %x) {{ %r = add i32 %x, {version} ret i32 %r }}
        define i32 @f(i32 %n) {{
        entry: br label %loop
        loop:
          %i = phi i32 [ 0, %entry ], [ %next, %loop ]
          %s = phi i32 [ 0, %entry ], [ %t, %loop ]
          %t = call i32 @callee(i32 %s)
          %next = add i32 %i, 1
          %more = icmp slt i32 %next, %n
          br i1 %more, label %loop, label %end
        end: ret i32 %t
        }}"
    )
}

fn session(tiers: Tiers) {
    let jit = Jit::builder()
        .jobs(2)
        .tiers(tiers)
        .build()
        .expect("a session");
    jit.add_ir("m", &looping(1)).expect("valid");
    // SAFETY: of that type, and stays.
    let f = unsafe { jit.function::<Answer>("f") }.expect("typed");
    for round in 0..300 {
        assert_eq!(f.call(1000), 1000);
        std::thread::sleep(Duration::from_millis(u64::from(round % 8 == 0)));
    }
    jit.compile_at("f", Tier::Optimized).expect("valid");
    for version in 2..6 {
        let level = match version % 2 {
            0 => Level::Immediate,
            _ => Level::Quiescent {
                wait: Duration::from_secs(120),
            },
        };
        let new = Replacement::ir("new", &looping(version)).level(level);
        jit.main().replace(new).expect("replaced");
        assert_eq!(f.call(100), 100 * version);
    }
    jit.reclaim(uruk::ReclaimKind::Evacuate, Duration::from_secs(5));
    assert!(jit.lookup("missing").is_err());
    let tracker = jit.main().create_tracker().expect("there");
    let missing = tracker.add_ir(
        "bad",
        "declare i32 @nowhere() define i32 @bad() { %r = call i32 @nowhere() ret i32 %r }",
    );
    assert!(missing.is_err());
    // SAFETY: no thread calls it.
    unsafe { tracker.remove() }.expect("there");
}

#[test]
fn threads_of_ours_allocate_with_a_pass_only() {
    for tiers in [Tiers::default(), Tiers::Churn] {
        session(tiers);
    }
    // Several looks of the first worker at the main thread.
    std::thread::sleep(Duration::from_millis(350));
    let seen = SEEN.load(Ordering::Relaxed);
    println!("{seen} calls");
    assert!(seen > 10_000, "{seen}");
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found: Vec<_> = found.iter().cloned().collect();
    assert!(
        found.is_empty(),
        "{} places:\n{}",
        found.len(),
        found.join("\n\n")
    );
}
