//! The states of closures that are functions of the host: dropped once, whatever their size, on
//! threads that end.

use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::{Jit, Removal};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A state without a size.
struct Token;

impl Drop for Token {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_state_without_a_size_is_dropped() {
    let jit = Jit::new().expect("a session");
    let token = Token;
    let add = move |x: i64| {
        let _kept = &token;
        x + 1
    };
    assert_eq!(size_of_val(&add), 0);
    jit.define_fn("add", add).expect("defined");
    jit.add_ir(
        "m",
        "declare i64 @add(i64) define i64 @f(i64 %x) { %y = call i64 @add(i64 %x) ret i64 %y }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn(i64) -> i64>("f") }.expect("typed");
    assert_eq!(f.call(41), 42);
    assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
    drop(f);
    drop(jit);
    assert_eq!(DROPPED.load(Ordering::SeqCst), 1);
}

/// Threads of this process that run code of embedders.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.flatten().filter_map(|task| name(task).ok());
    names.filter(|name| name.trim() == "uruk-unit").count()
}

#[test]
fn threads_that_dropped_states_end() {
    let jit = Jit::new().expect("a session");
    for round in 0..200_usize {
        let dylib = jit.create_dylib(&format!("d{round}")).expect("a dylib");
        let state = [round; 16];
        let length = move || state.len() as i64;
        dylib.define_fn("length", length).expect("defined");
        // SAFETY: nothing calls it.
        unsafe { dylib.remove(Removal::Forced) }.expect("removed");
    }
    while threads() != 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
