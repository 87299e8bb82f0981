//! Fibers of a host that makes them itself. Either it registers their stacks and is trusted, or it
//! says nothing. Then the names in its executable are the reason why memory is searched. Freed code
//! is closed, so that a thread that executes it dies of it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{Event, Freed, HeapConfig, Jit, JitBuilder, ReclaimConfig, ReclaimKind, Tier};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// The tests share the contexts.
static ALONE: Mutex<()> = Mutex::new(());

fn builder(stacks: &str) -> JitBuilder {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 4 << 20,
    };
    let mut reclaim = ReclaimConfig::default();
    for (name, value) in [
        ("backoff_min", "1ms"),
        ("backoff_max", "10ms"),
        ("interval", "0ns"),
        ("stacks", stacks),
    ] {
        reclaim.set(name, value).expect("a setting");
    }
    Jit::builder().heap(heap).reclaim(reclaim).jobs(1)
}

/// Compiles and moves `name` until its first code is long gone, unless it is held.
fn churn(jit: &Jit, name: &str) {
    for tier in Tier::ALL.into_iter().cycle().take(9) {
        jit.compile_at(name, tier).expect("a function");
        assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
    }
}

static HOME: AtomicU64 = AtomicU64::new(0);
static AWAY: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn getcontext(context: *mut libc::ucontext_t) -> libc::c_int;
    fn makecontext(context: *mut libc::ucontext_t, start: extern "C" fn(), count: libc::c_int, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> libc::c_int;
}

/// Called by JIT'd code on the fiber.
extern "C" fn go_home() {
    let (away, home) = (AWAY.load(Ordering::Relaxed), HOME.load(Ordering::Relaxed));
    // SAFETY: both are contexts of the test below.
    unsafe { swapcontext(away as *mut _, home as *const _) };
}

static START: AtomicU64 = AtomicU64::new(0);
static RESULT: AtomicU64 = AtomicU64::new(0);

extern "C" fn fiber() {
    // SAFETY: the JIT'd function of the test below.
    let run: extern "C" fn(u64) -> u64 =
        unsafe { std::mem::transmute(START.load(Ordering::Relaxed)) };
    RESULT.store(run(40), Ordering::Relaxed);
}

/// Rests on a fiber while its code is replaced, and comes back.
fn rest(jit: &Jit, register: bool) {
    // SAFETY: a function that takes and gives nothing.
    unsafe { jit.main().define_address("go_home", go_home as *const ()) }.expect("a new name");
    jit.add_ir(
        "m",
        "declare void @go_home()
         define i64 @away(i64 %x) {
           %y = add i64 %x, 1
           call void @go_home()
           %z = add i64 %y, 1
           ret i64 %z
         }",
    )
    .expect("valid IR");
    START.store(jit.lookup("away").expect("defined"), Ordering::Relaxed);
    let mut stack = vec![0u64; 16384];
    let range = stack.as_ptr_range();
    let held = register.then(|| {
        // SAFETY: the memory lives until the end of the test.
        let held = unsafe { jit.register_stack(range.start as u64..range.end as u64) };
        held.expect("a place")
    });
    // SAFETY: contexts are integers and pointers.
    let mut home: Box<libc::ucontext_t> = unsafe { Box::new(std::mem::zeroed()) };
    // SAFETY: the same.
    let mut away: Box<libc::ucontext_t> = unsafe { Box::new(std::mem::zeroed()) };
    HOME.store(&raw mut *home as u64, Ordering::Relaxed);
    AWAY.store(&raw mut *away as u64, Ordering::Relaxed);
    // SAFETY: fills the context.
    unsafe { getcontext(&mut *away) };
    away.uc_stack.ss_sp = stack.as_mut_ptr().cast::<c_void>();
    away.uc_stack.ss_size = stack.len() * 8;
    away.uc_link = &raw mut *home;
    // SAFETY: a filled context with a stack of its own.
    unsafe { makecontext(&mut *away, fiber, 0) };
    // SAFETY: two contexts; `go_home` comes back.
    unsafe { swapcontext(&mut *home, &*away) };
    churn(jit, "away");
    assert!(jit.stats().memory.pinned > 0, "the fiber holds its code");
    // SAFETY: as above; the fiber's end comes back.
    unsafe { swapcontext(&mut *home, &*away) };
    assert_eq!(RESULT.load(Ordering::Relaxed), 42);
    stack.fill(0);
    drop(held);
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
}

#[test]
fn a_fiber_whose_stack_is_registered_returns_into_its_code() {
    let _alone = ALONE.lock();
    let jit = builder("told").build().expect("a session");
    rest(&jit, true);
}

#[test]
fn a_host_that_makes_fibers_is_known_by_what_it_names() {
    let _alone = ALONE.lock();
    let causes: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&causes);
    let jit = builder("auto").on_event(move |event| {
        if let Event::StacksSearched { cause, .. } = event {
            told.lock().expect("no panic").push(cause.clone());
        }
    });
    let jit = jit.build().expect("a session");
    rest(&jit, false);
    let causes = causes.lock().expect("no panic").clone();
    assert!(
        causes.len() == 1 && causes[0].contains("context"),
        "{causes:?}"
    );
}
