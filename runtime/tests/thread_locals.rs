//! Threads of the library register destructors of thread-local variables at their start only.
//!
//! The C library registers these under the dynamic loader's lock. A thread of the program may hold that
//! lock while it waits for a thread of the library. One test, in a binary of its own: it stands in
//! for the C library's function.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uruk::{Error, Jit, ReclaimKind, Replacement, Tier};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Places in the work of the library's threads that register a destructor.
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Registrations that the library's threads made at their start.
static AT_START: Mutex<usize> = Mutex::new(0);

type Destructor = unsafe extern "C" fn(*mut c_void);
type Register = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: Destructor,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    if !INSIDE.replace(true) {
        note();
        INSIDE.set(false);
    }
    // SAFETY: the C library's function of this name and type, with the caller's arguments.
    unsafe {
        let name = c"__cxa_thread_atexit_impl";
        let real = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        assert!(!real.is_null());
        std::mem::transmute::<*mut c_void, Register>(real)(destructor, object, library)
    }
}

fn note() {
    let trace = Backtrace::force_capture().to_string();
    // Names come from debug information, which has no paths.
    let passes = |name| trace.contains(&format!(": {name}\n")) && trace.contains("fork/thread.rs");
    if passes("live") {
        FOUND.lock().unwrap().push(format!("{}: {trace}", name()));
    } else if passes("begin") {
        *AT_START.lock().unwrap() += 1;
    }
}

/// The calling thread's name.
fn name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: writes at most 16 bytes, with the null.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn module(round: u64) -> String {
    format!(
        "define i64 @inner(i64 %n) noinline {{ %r = add i64 %n, {round} ret i64 %r }}
        define i64 @work(i64 %n) {{
        entry:
          br label %loop
        loop:
          %i = phi i64 [ 0, %entry ], [ %next, %loop ]
          %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
          %x = call i64 @inner(i64 %i)
          %more = add i64 %sum, %x
          %next = add i64 %i, 1
          %done = icmp uge i64 %next, %n
          br i1 %done, label %end, label %loop
        end:
          ret i64 %more
        }}"
    )
}

/// Calls and changes code.
fn use_everything(jit: &Jit) -> Result<(), Error> {
    let expected = |round: u64, n: u64| n * (n - 1) / 2 + n * round;
    jit.add_ir("m", &module(0))?;
    // SAFETY: the function above, of this type, which only computes.
    let work = unsafe { jit.function::<extern "C" fn(u64) -> u64>("work") }?;
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until {
        assert_eq!(work.call(5_000), expected(0, 5_000));
    }
    change(jit)?;
    assert_eq!(work.call(100), expected(18, 100));
    assert!(jit.reclaim(ReclaimKind::Evacuate, Duration::from_secs(60)));
    Ok(())
}

/// Replaces the module by its versions 1 to 19, and goes back to version 18.
fn change(jit: &Jit) -> Result<(), Error> {
    jit.compile_at("work", Tier::Optimized)?;
    for round in 1..20 {
        jit.main().replace(Replacement::ir("new", &module(round)))?;
        jit.main().compile_ahead(&["work", "inner"]);
    }
    jit.rollback()?;
    jit.memory();
    Ok(())
}

/// Changes code from a thread of the library's, as `uruk live` does.
fn change_from_own_thread() {
    static DONE: AtomicBool = AtomicBool::new(false);
    let change_all = || {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", &module(0)).expect("valid IR");
        let other = jit.create_dylib("other").expect("a new name");
        other.add_ir("m", &module(0)).expect("valid IR");
        change(&jit).expect("works");
        DONE.store(true, Ordering::Release);
    };
    uruk::live::spawn_own("uruk-test", change_all).expect("a thread");
    while !DONE.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn destructors_are_registered_at_the_start_of_threads() {
    for jobs in [1, 2] {
        let builder = Jit::builder().jobs(jobs).tune(true);
        let jit = builder.build().expect("a session");
        use_everything(&jit).expect("works");
    }
    change_from_own_thread();
    assert!(*AT_START.lock().unwrap() > 0, "registrations are not seen");
    let found = FOUND.lock().unwrap();
    assert!(found.is_empty(), "{} such:\n{}", found.len(), found[0]);
}
