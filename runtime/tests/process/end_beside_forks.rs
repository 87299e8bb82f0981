//! Sessions that end while another thread forks: the thread that forks may then hold the last handle.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use uruk::Jit;
use uruk_testing::in_own_process;

/// Forks beside which sessions end.
const FORKS: u32 = 200;

/// How long all of it may take; beyond, it hangs.
const PATIENCE_S: u32 = 300;

fn session() -> u64 {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir(
        "m",
        "define i64 @f(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn(u64) -> u64>("f") }.expect("typed");
    f.call(14)
}

/// Forks a process that ends at once, and waits for it.
fn fork() {
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a child of this thread, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_session_may_end_while_a_thread_forks() {
    if !in_own_process(module_path!(), "a_session_may_end_while_a_thread_forks") {
        return;
    }
    static DONE: AtomicBool = AtomicBool::new(false);
    static ENDED: AtomicU32 = AtomicU32::new(0);
    // SAFETY: takes a number.
    unsafe { libc::alarm(PATIENCE_S) };
    session();
    let ending = || {
        while !DONE.load(Ordering::Relaxed) {
            assert_eq!(session(), 42);
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
    };
    let threads = [(); 2].map(|()| std::thread::spawn(ending));
    for _ in 0..FORKS {
        fork();
        std::thread::sleep(Duration::from_micros(500));
    }
    // Both go on.
    let before = ENDED.load(Ordering::Relaxed);
    while ENDED.load(Ordering::Relaxed) < before + 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    DONE.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
}
