//! The child of a fork that cannot start threads, or has little address space: calls fail, or are
//! answered, but do not wait for threads that do not exist.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use uruk::{Error, Event, FailedCall, Func, GeneratorRequest, Jit, JitBuilder, Tier, Tiers};
use uruk_testing::in_own_process;

use super::fork_lost::in_child;
use super::fork_pending::{asked, begin, watch_children};

type Number = extern "C" fn() -> i32;

extern "C" fn minus_one() -> i32 {
    -1
}

/// The number of processes and threads that the user may have.
fn limit_threads(threads: libc::rlim_t) {
    // SAFETY: plain data, and calls about this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit), 0);
        limit.rlim_cur = threads.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
    }
}

/// Set while children are to have no more threads.
static LIMITED: AtomicBool = AtomicBool::new(false);

/// Makes children of forks have one thread while [`LIMITED`] is set. Before the first session:
/// handlers of children run in the order in which they are registered.
fn limit_children() {
    unsafe extern "C" fn in_child() {
        /// A user without other processes, to whom the limit applies.
        const USER: libc::uid_t = 34_567;
        if LIMITED.load(Ordering::Relaxed) {
            limit_threads(0);
            // SAFETY: the child has one thread. It fails if the user is not root: the limit applies.
            unsafe { libc::setuid(USER) };
        }
    }
    // SAFETY: a function that lives as long as the process.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(registered, 0);
    LIMITED.store(true, Ordering::Relaxed);
}

/// Causes of failed calls.
type Causes = Arc<Mutex<Vec<String>>>;

/// A session whose failed calls return -1, and the causes.
fn session(builder: JitBuilder) -> (Jit, Causes) {
    let causes = Causes::default();
    let seen = Arc::clone(&causes);
    let failed = move |call: &FailedCall<'_>| {
        let cause = call
            .cause
            .map(|cause| format!("{}: {cause}", call.function));
        seen.lock().expect("no panic").extend(cause);
        minus_one as *const ()
    };
    let builder = builder.on_failed_call(Arc::new(failed));
    let jit = builder.build().expect("a session");
    let text = "define i32 @base() { ret i32 1 } define i32 @late() { ret i32 42 }
        define i32 @later() { ret i32 43 }";
    jit.add_ir("m", text).expect("valid");
    assert_eq!(function(&jit, "base").call(), 1);
    (jit, causes)
}

fn function(jit: &Jit, name: &str) -> Func<Number> {
    // SAFETY: functions of that type.
    unsafe { jit.function(name) }.expect("typed")
}

#[test]
fn a_child_without_threads_fails_its_calls_until_it_can_start_one() {
    if !in_own_process(
        module_path!(),
        "a_child_without_threads_fails_its_calls_until_it_can_start_one",
    ) {
        return;
    }
    limit_children();
    watch_children();
    let (jit, causes) = session(Jit::builder());
    let (late, later) = (function(&jit, "late"), function(&jit, "later"));
    assert!(in_child(|| {
        let failed = late.call() == -1 && late.call_guarded().is_ok_and(|value| value == -1);
        let causes = causes.lock().expect("no panic").clone();
        let told = causes.len() == 2 && causes.iter().all(|cause| cause.contains("late: thread"));
        limit_threads(libc::RLIM_INFINITY);
        let answered = late.call() == 42 && later.call() == 43;
        failed && told && answered && jit.lookup("late").is_ok()
    }));
    assert_eq!(late.call(), 42);
}

#[test]
fn a_child_without_threads_calls_completions_in_its_next_lookup() {
    if !in_own_process(
        module_path!(),
        "a_child_without_threads_calls_completions_in_its_next_lookup",
    ) {
        return;
    }
    limit_children();
    watch_children();
    let asked = asked();
    let receiver = begin(&asked, &Arc::default());
    assert!(in_child(|| {
        let found = asked.dylib.lookup("number6").ok() == Some(6);
        found && receiver.try_recv() == Ok(Some(2))
    }));
    asked.end();
    assert_eq!(receiver.recv(), Ok(Some(2)));
}

/// The worker has a thread, and the code of the embedder that its compile needs has none.
#[test]
fn a_compile_without_a_thread_for_its_generator_fails() {
    if !in_own_process(
        module_path!(),
        "a_compile_without_a_thread_for_its_generator_fails",
    ) {
        return;
    }
    limit_children();
    watch_children();
    let (jit, causes) = session(Jit::builder().tiers(Tiers::Fixed(Tier::Baseline)));
    let generator = |_: &GeneratorRequest| Ok::<(), Error>(());
    jit.main().add_generator(generator).expect("a live dylib");
    let text = "declare i32 @getpagesize()
        define i32 @read() { %v = call i32 @getpagesize() ret i32 %v }";
    jit.add_ir("n", text).expect("valid");
    let (late, read) = (function(&jit, "late"), function(&jit, "read"));
    assert!(in_child(|| {
        // A worker only. The limit is not exact for a user with other processes.
        limit_threads(2);
        let answered = late.call() == 42;
        limit_threads(0);
        let failed = read.call() == -1;
        let causes = causes.lock().expect("no panic").len();
        !answered || failed && causes == 1
    }));
    assert_eq!(read.call(), 4096);
}

#[test]
fn a_child_with_little_address_space_uses_inherited_stacks() {
    if !in_own_process(
        module_path!(),
        "a_child_with_little_address_space_uses_inherited_stacks",
    ) {
        return;
    }
    watch_children();
    let (jit, _) = session(Jit::builder());
    let late = function(&jit, "late");
    limit_space(1 << 20);
    assert!(in_child(|| late.call() == 42));
}

/// Leaves so many bytes of address space.
fn limit_space(left: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("there");
    let pages = pages.split(' ').next().and_then(|word| word.parse().ok());
    let pages: u64 = pages.expect("a number");
    // SAFETY: plain data, and calls about this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        limit.rlim_cur = pages * 4096 + left;
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
    }
}

/// The only worker is lost, and no other can be started.
#[test]
fn calls_fail_after_the_last_worker_is_lost() {
    if !in_own_process(module_path!(), "calls_fail_after_the_last_worker_is_lost") {
        return;
    }
    // Threads that rest take the place of the first workers that are lost.
    const BAD: usize = 16;
    let listener = |event: &Event| {
        if matches!(event, Event::Compiled { function, .. } if function.starts_with("bad")) {
            limit_space(1 << 20);
            // Past the hook, which would print.
            std::panic::resume_unwind(Box::new("a fault of the listener's"));
        }
    };
    let builder = Jit::builder().jobs(1).tiers(Tiers::Fixed(Tier::Baseline));
    let (jit, causes) = session(builder.speculate(false).on_event(listener));
    let define = |number| format!("define i32 @bad{number}() {{ ret i32 {number} }}\n");
    jit.add_ir("bad", &(0..BAD).map(define).collect::<String>())
        .expect("valid");
    let bad: Vec<_> = (0..BAD)
        .map(|number| function(&jit, &format!("bad{number}")))
        .collect();
    let later = function(&jit, "later");
    bad.iter().for_each(|bad| assert_eq!(bad.call(), -1));
    assert_eq!(later.call(), -1);
    let told = causes.lock().expect("no panic").last().cloned();
    let told = told.expect("each failed call has a cause");
    assert!(told.starts_with("later: thread uruk-0"), "{told}");
    limit_space(1 << 40);
    assert_eq!(later.call(), 43);
}
