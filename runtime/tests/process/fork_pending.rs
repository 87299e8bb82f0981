//! The child of a fork, where lookups were waiting: in line for a generator that another thread
//! answered for, or for a unit on another thread. `fork` returns in the child, and code of
//! embedders runs after the repair.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use uruk::{Dylib, Error, GeneratorRequest, Jit, Lookup, LookupResult, Visibility};
use uruk_testing::in_own_process;

use super::fork_lost::{Held, Late, PATIENCE_S, in_child, numbers};

/// Makes a child end that hangs inside of `fork`. Before the first session: handlers of children run
/// in the order in which they are registered.
pub(super) fn watch_children() {
    unsafe extern "C" fn in_child() {
        // SAFETY: sets a timer of the process.
        unsafe { libc::alarm(PATIENCE_S) };
    }
    // SAFETY: a function that lives as long as the process.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(registered, 0);
}

/// A dylib whose generator makes numbers, and the thread that it holds for `number1`. The generator
/// also holds the thread that asks for `number5`.
pub(super) struct Asked {
    pub(super) jit: Jit,
    pub(super) dylib: Dylib,
    held: Held,
    first: std::thread::JoinHandle<Option<u64>>,
}

pub(super) fn asked() -> Asked {
    watch_children();
    let jit = Jit::new().expect("a session");
    let dylib = jit.create_dylib("numbers").expect("a new name");
    let held = Held::new();
    let inside = held.clone();
    let generator = move |ask: &GeneratorRequest| {
        let asked = ask.missing().iter();
        for name in asked.map(|(symbol, _)| ask.jit().name_of(*symbol)) {
            match name {
                "number1" => inside.wait(),
                "number5" => inside.stay(),
                _ => {}
            }
        }
        numbers(&ask.dylib(), ask)
    };
    dylib.add_generator(generator).expect("a live dylib");
    let other = dylib.clone();
    let first = std::thread::spawn(move || other.lookup("number1").ok());
    held.entered.wait();
    Asked {
        jit,
        dylib,
        held,
        first,
    }
}

impl Asked {
    fn lookup(&self, name: &str) -> Lookup {
        Lookup::new([(&self.dylib, Visibility::All)]).symbol(self.jit.intern(name))
    }

    pub(super) fn end(self) {
        self.held.release();
        assert_eq!(self.first.join().expect("no panic"), Some(1));
    }
}

/// Waits until a thread sleeps in a futex: its lookup is in line.
fn wait_until_asleep(thread: &AtomicI32) {
    let futex = format!("{} ", libc::SYS_futex);
    loop {
        let id = thread.load(Ordering::Acquire);
        let call = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
        if id != 0 && call.is_ok_and(|call| call.starts_with(&futex)) {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_lookup_in_line_whose_thread_is_lost_asks_nothing() {
    if !in_own_process(
        module_path!(),
        "a_lookup_in_line_whose_thread_is_lost_asks_nothing",
    ) {
        return;
    }
    let asked = asked();
    let id = Arc::new(AtomicI32::new(0));
    let (own, other) = (Arc::clone(&id), asked.dylib.clone());
    let second = std::thread::spawn(move || {
        // SAFETY: takes nothing.
        own.store(unsafe { libc::gettid() }, Ordering::Release);
        other.lookup("number5").ok()
    });
    wait_until_asleep(&id);
    // The generator would not return if it were asked for `number5` in the child.
    assert!(in_child(|| asked.dylib.lookup("number2").ok() == Some(2)));
    asked.end();
    assert_eq!(second.join().expect("no panic"), Some(5));
}

/// Begins a lookup whose answer comes by a channel, on a thread that can lock `lock`.
pub(super) fn begin(asked: &Asked, lock: &Arc<Mutex<()>>) -> mpsc::Receiver<Option<u64>> {
    let (sender, receiver) = mpsc::channel();
    let symbol = asked.jit.intern("number2");
    let (lock, dylib) = (Arc::clone(lock), asked.dylib.clone());
    let done = move |found: Result<LookupResult, Error>| {
        let _locked = lock.lock().expect("no panic");
        // The session is whole.
        assert_eq!(dylib.lookup("number3").ok(), Some(3));
        let address = found.ok().and_then(|found| found.address(symbol));
        sender.send(address).expect("heard");
    };
    asked.jit.lookup_async(asked.lookup("number2"), done);
    receiver
}

#[test]
fn a_completion_in_line_is_called_in_both_processes() {
    if !in_own_process(
        module_path!(),
        "a_completion_in_line_is_called_in_both_processes",
    ) {
        return;
    }
    let asked = asked();
    let lock = Arc::default();
    let receiver = begin(&asked, &lock);
    // The completion does not run on the thread that forks, which holds the lock.
    let locked = lock.lock().expect("no panic");
    assert!(in_child(|| {
        drop(locked);
        receiver.recv() == Ok(Some(2))
    }));
    asked.end();
    assert_eq!(receiver.recv(), Ok(Some(2)));
}

#[test]
fn a_completion_of_a_lost_unit_gets_an_error() {
    if !in_own_process(module_path!(), "a_completion_of_a_lost_unit_gets_an_error") {
        return;
    }
    watch_children();
    let jit = Jit::new().expect("a session");
    let held = Held::new();
    let symbol = jit.intern("late");
    let unit = Late(symbol, held.clone());
    jit.main().define(unit).expect("a new name");
    let other = jit.clone();
    let first = std::thread::spawn(move || other.lookup("late").is_ok());
    held.entered.wait();
    let (sender, receiver) = mpsc::channel();
    let lookup = Lookup::new([(&jit.main(), Visibility::All)]).symbol(symbol);
    jit.lookup_async(lookup, move |found| {
        sender.send(found.is_ok()).expect("heard");
    });
    assert!(in_child(|| receiver.recv() == Ok(false)));
    held.release();
    assert!(first.join().expect("no panic"));
    assert_eq!(receiver.recv(), Ok(true));
}

/// Looks another name up when it is woken.
struct Curious(Dylib, AtomicBool);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        let found = self.0.lookup("number4").ok();
        self.1.store(found == Some(4), Ordering::Release);
    }
}

#[test]
fn a_waker_is_woken_in_both_processes() {
    if !in_own_process(module_path!(), "a_waker_is_woken_in_both_processes") {
        return;
    }
    let asked = asked();
    let woken = Arc::new(Curious(asked.dylib.clone(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = Box::pin(asked.jit.lookup_future(asked.lookup("number2")));
    assert!(future.as_mut().poll(&mut context).is_pending());
    let symbol = asked.jit.intern("number2");
    let mut answered = || {
        while !woken.1.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        match future.as_mut().poll(&mut context) {
            Poll::Ready(Ok(found)) => found.address(symbol) == Some(2),
            _ => false,
        }
    };
    assert!(in_child(&mut answered));
    asked.held.release();
    assert!(answered());
    asked.end();
}

/// Threads look up names which a generator makes, while the process forks.
#[test]
fn forks_beside_lookups_that_a_generator_answers() {
    if !in_own_process(
        module_path!(),
        "forks_beside_lookups_that_a_generator_answers",
    ) {
        return;
    }
    watch_children();
    let jit = Jit::new().expect("a session");
    let generator = |ask: &GeneratorRequest| {
        for (symbol, _) in ask.missing() {
            let name = ask.jit().name_of(*symbol).to_owned();
            let text = format!("define i64 @{name}() {{ ret i64 1 }}");
            ask.dylib().add_ir(&name, &text)?;
        }
        Ok::<(), Error>(())
    };
    jit.main().add_generator(generator).expect("a live dylib");
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(Barrier::new(3));
    let threads = [0, 1].map(|thread| {
        let (jit, stop, begun) = (jit.clone(), Arc::clone(&stop), Arc::clone(&begun));
        std::thread::spawn(move || {
            begun.wait();
            for number in 0.. {
                jit.lookup(&format!("gen_{thread}_{number}"))
                    .expect("it is made");
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        })
    });
    begun.wait();
    for number in 0..40 {
        assert!(in_child(|| jit.lookup(&format!("child_{number}")).is_ok()));
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
}
