//! The child of a fork, where other threads were answering lookups or making symbols: lookups and
//! calls in the child do not wait for threads that are not in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use uruk::{
    Dylib, Error, Flags, Func, Generator, GeneratorRequest, Interface, Jit, Responsibility, Symbol,
    Unit,
};
use uruk_testing::in_own_process;

/// How long a child may take; beyond, it hangs.
pub(super) const PATIENCE_S: u32 = 100;

/// Runs `work` in a child of a fork; whether it was true.
pub(super) fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only uses the session, which is whole there, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(PATIENCE_S) };
        let code = if work() { 0 } else { 1 };
        // SAFETY: no handlers of the test's own process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child of above.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    waited == child && status == 0
}

/// Comes when it is told to, which a child of a fork never is.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) entered: Arc<Barrier>,
    leave: Arc<AtomicBool>,
}

impl Held {
    pub(super) fn new() -> Held {
        Held {
            entered: Arc::new(Barrier::new(2)),
            leave: Arc::default(),
        }
    }

    pub(super) fn wait(&self) {
        self.entered.wait();
        self.stay();
    }

    /// Like `wait`, without a second thread that notices it.
    pub(super) fn stay(&self) {
        while !self.leave.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn release(&self) {
        self.leave.store(true, Ordering::Release);
    }
}

pub(super) fn numbers(dylib: &Dylib, ask: &GeneratorRequest) -> Result<(), Error> {
    let numbers = ask.missing().iter().filter_map(|(symbol, _)| {
        let number = ask.jit().name_of(*symbol).strip_prefix("number")?;
        Some((*symbol, number.parse().ok()?, Flags::EXPORTED))
    });
    // SAFETY: numbers, which are neither read nor called.
    unsafe { dylib.define_addresses(numbers) }
}

#[test]
fn a_generator_on_another_thread_keeps_no_lookup_in_line() {
    if !in_own_process(
        module_path!(),
        "a_generator_on_another_thread_keeps_no_lookup_in_line",
    ) {
        return;
    }
    let jit = Jit::new().expect("a session");
    let dylib = jit.create_dylib("numbers").expect("a new name");
    let held = Held::new();
    let inside = held.clone();
    let generator = move |ask: &GeneratorRequest| {
        let asked = ask.missing().iter();
        let mut names = asked.map(|(symbol, _)| ask.jit().name_of(*symbol));
        if names.any(|name| name == "number1") {
            inside.wait();
        }
        numbers(&ask.dylib(), ask)
    };
    dylib.add_generator(generator).expect("a live dylib");
    let other = dylib.clone();
    let first = std::thread::spawn(move || other.lookup("number1").ok());
    held.entered.wait();
    assert!(in_child(|| dylib.lookup("number2").ok() == Some(2)));
    held.release();
    assert_eq!(first.join().expect("no panic"), Some(1));
    assert_eq!(dylib.lookup("number2").ok(), Some(2));
}

/// A function of the host, made when the test says so.
pub(super) struct Late(pub(super) Symbol, pub(super) Held);

extern "C" fn forty_two() -> i64 {
    42
}

impl Unit for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn interface(&self) -> Interface {
        [(self.0, Flags::EXPORTED)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        self.1.wait();
        let address = forty_two as *const () as u64;
        responsibility
            .publish(&[(self.0, address)], &[])
            .expect("it is not removed");
    }
}

#[test]
fn what_another_thread_was_making_has_failed() {
    if !in_own_process(module_path!(), "what_another_thread_was_making_has_failed") {
        return;
    }
    let jit = Jit::new().expect("a session");
    let held = Held::new();
    let symbol = jit.intern("late");
    let unit = Late(symbol, held.clone());
    jit.main().define(unit).expect("a new name");
    let other = jit.clone();
    let first = std::thread::spawn(move || other.lookup("late").is_ok());
    held.entered.wait();
    assert!(in_child(|| jit.lookup("late").is_err()));
    held.release();
    assert!(first.join().expect("no panic"));
    assert!(jit.lookup("late").is_ok());
}

/// A function whose compile asks the generators for a function of the process.
fn reading(jit: &Jit) -> Func<extern "C" fn() -> i32> {
    let text = "declare i32 @getpagesize()
        define i32 @read() { %v = call i32 @getpagesize() ret i32 %v }";
    jit.add_ir("m", text).expect("valid");
    // SAFETY: of that type.
    unsafe { jit.function("read") }.expect("typed")
}

#[test]
fn a_function_whose_compile_waits_is_whole_in_the_child() {
    if !in_own_process(
        module_path!(),
        "a_function_whose_compile_waits_is_whole_in_the_child",
    ) {
        return;
    }
    fork_beside_compiles();
}

/// The thread that answers for the generator begins before the one that passed the question to it
/// goes on.
#[test]
fn a_function_whose_compile_waits_on_one_processor_is_whole_in_the_child() {
    if !in_own_process(
        module_path!(),
        "a_function_whose_compile_waits_on_one_processor_is_whole_in_the_child",
    ) {
        return;
    }
    // SAFETY: plain data, and calls about the calling thread, whose threads to come inherit the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let processor = libc::sched_getcpu();
        libc::CPU_SET(usize::try_from(processor).expect("a number"), &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
    fork_beside_compiles();
}

/// Forks while a compile on another thread waits for a generator, and calls the function in the
/// child.
fn fork_beside_compiles() {
    for _ in 0..10 {
        let jit = Jit::new().expect("a session");
        let held = Held::new();
        let armed = Arc::new(AtomicBool::new(false));
        let (inside, once) = (held.clone(), Arc::clone(&armed));
        // It defines nothing: the process has what is asked for.
        let generator = move |_: &GeneratorRequest| {
            if once.swap(false, Ordering::AcqRel) {
                inside.wait();
            }
            Ok::<(), Error>(())
        };
        jit.main().add_generator(generator).expect("a live dylib");
        let read = reading(&jit);
        armed.store(true, Ordering::Release);
        let other = read.clone();
        let first = std::thread::spawn(move || other.call());
        held.entered.wait();
        // The compile of `read` waits for the generator, which goes on from here.
        held.release();
        assert!(in_child(|| read.call() == 4096));
        assert_eq!(first.join().expect("no panic"), 4096);
    }
}

#[test]
fn a_compile_that_is_not_in_the_child_keeps_no_call_waiting() {
    if !in_own_process(
        module_path!(),
        "a_compile_that_is_not_in_the_child_keeps_no_call_waiting",
    ) {
        return;
    }
    let jit = Jit::new().expect("a session");
    let armed = Arc::new(AtomicBool::new(false));
    let asked: Arc<Mutex<Option<GeneratorRequest>>> = Arc::default();
    let generator = Keeping(Arc::clone(&armed), Arc::clone(&asked));
    jit.main().add_generator(generator).expect("a live dylib");
    let read = reading(&jit);
    armed.store(true, Ordering::Release);
    let other = read.clone();
    let first = std::thread::spawn(move || other.call());
    let kept = || asked.lock().expect("no panic");
    while kept().is_none() {
        std::thread::yield_now();
    }
    let answer = || {
        let ask = kept().take().expect("it is kept");
        ask.finish(Ok::<(), Error>(()));
    };
    // Only this thread answers, so the fork does not wait for the compile of `read` to end.
    assert!(in_child(|| {
        answer();
        read.call_guarded().is_ok_and(|size| size == 4096)
    }));
    answer();
    assert_eq!(first.join().expect("no panic"), 4096);
}

/// Keeps the first question after it was told to.
struct Keeping(Arc<AtomicBool>, Arc<Mutex<Option<GeneratorRequest>>>);

impl Generator for Keeping {
    fn generate(&self, ask: GeneratorRequest) {
        match self.0.swap(false, Ordering::AcqRel) {
            true => *self.1.lock().expect("no panic") = Some(ask),
            false => ask.finish(Ok::<(), Error>(())),
        }
    }
}
