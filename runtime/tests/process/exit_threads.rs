//! Functions that code registers to be called at the end of threads; the code is removed before
//! that.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use uruk::{FunctionId, Jit, ReclaimKind, Replacement, Tier};

use crate::ends;

use ends::{BOTH, Cases, Ended, Form, ONE, SOON, Way, added, compile, end, say, session};

const OBJECTS: &str = r#"
static int alive = 0;
struct Object {
  const char *text = "object";
  Object() { alive++; }
  ~Object() { alive--; helper(); }
  __attribute__((noinline)) void helper();
};
static thread_local Object object;
__attribute__((noinline)) void Object::helper() { say(text); }
extern "C" int touch() { return object.text != nullptr; }
extern "C" int count() { return alive; }
static void last() { say("handler"); }
extern "C" int go() { return atexit(last); }
"#;

/// Objects of this thread and of another.
fn thread_locals(form: Form, way: Way) {
    let jit = session();
    let goes = added(&jit, "goes", way);
    goes.add(form, OBJECTS);
    goes.call("go");
    let touch = goes.dylib.lookup("touch").expect("defined");
    // SAFETY: `touch` above.
    let touch: extern "C-unwind" fn() -> i32 = unsafe { std::mem::transmute(touch) };
    touch();
    let (to_there, there) = mpsc::channel();
    let (to_here, here) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        touch();
        to_here.send(()).expect("waited for");
        there.recv().expect("told");
    });
    here.recv().expect("touched");
    say("removing");
    goes.remove();
    say("removed");
    if matches!(way, Way::Tracker) {
        goes.dylib
            .add_ir("m", "define i32 @touch() { ret i32 77 }")
            .expect("a free name");
        say(&goes.call("touch").to_string());
    }
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    to_there.send(()).expect("waits");
    thread.join().expect("ends");
    say("joined");
    // The code that was kept is gone now.
    touch();
    end(0)
}

const THREAD_LOCALS: &str = "removing|object|handler|removed|object|joined|called what was removed";

/// A key's destructor, while threads have values.
fn keys(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Remove);
    goes.add(
        form,
        r#"static unsigned key;
        static void cold(void *text) { say((const char *)text); }
        static void destroy(void *text) { cold(text); }
        extern "C" int make() { return pthread_key_create(&key, destroy); }
        extern "C" int set() { return pthread_setspecific(key, "value"); }
        extern "C" int drop() { return pthread_key_delete(key); }"#,
    );
    goes.call("make");
    let [set, drop] = ["set", "drop"].map(|name| {
        let address = goes.dylib.lookup(name).expect("defined");
        // SAFETY: functions above.
        unsafe { std::mem::transmute::<u64, extern "C-unwind" fn() -> i32>(address) }
    });
    let (to_there, there) = mpsc::channel::<()>();
    let (to_here, here) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        set();
        to_here.send(()).expect("waited for");
        there.recv().expect("told");
    });
    here.recv().expect("set");
    goes.remove();
    say("removed");
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    to_there.send(()).expect("waits");
    thread.join().expect("ends");
    say("joined");
    drop();
    set();
    end(0)
}

/// The session ends while another thread has an object.
fn session_ends(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, OBJECTS);
    goes.call("go");
    let touch = goes.dylib.lookup("touch").expect("defined");
    // SAFETY: `touch` above.
    let touch: extern "C-unwind" fn() -> i32 = unsafe { std::mem::transmute(touch) };
    let (to_there, there) = mpsc::channel();
    let (to_here, here) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        touch();
        to_here.send(()).expect("waited for");
        there.recv().expect("told");
    });
    here.recv().expect("touched");
    drop(goes);
    drop(jit);
    say("dropped");
    to_there.send(()).expect("waits");
    thread.join().expect("ends");
    end(0)
}

/// Again and again on one thread: nothing is left behind.
fn again(form: Form, _: Way) {
    let jit = session();
    let module = compile(form, OBJECTS);
    let held = || {
        assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
        jit.stats().memory.held
    };
    let mut before = 0;
    for round in 0..90 {
        let goes = added(&jit, &format!("goes {round}"), Way::Remove);
        match form {
            Form::Bitcode => goes.tracker.add_bitcode("m", module.clone()),
            Form::Object => goes.tracker.add_object("m", module.clone()),
        }
        .expect("added");
        assert_eq!(goes.call("touch"), 1);
        goes.call("go");
        goes.remove();
        if round == 29 {
            before = held();
        }
    }
    // An old word of a stack may pin a version, and so a page, until something overwrites it.
    let start = Instant::now();
    while held() > before + 16384 {
        assert!(start.elapsed() < SOON, "{} bytes, {before} before", held());
        std::thread::sleep(Duration::from_millis(10));
        std::hint::black_box([0_u64; 4096]);
    }
    end(0)
}

/// Forks come at any point of a removal: children find no lock that stays locked.
fn forking(form: Form, _: Way) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let jit = session();
    let module = compile(form, OBJECTS);
    let forks = std::thread::spawn(|| {
        let mut failed = 0;
        while !STOP.load(Ordering::Relaxed) {
            // SAFETY: the child makes a session, which takes the locks there are, and ends.
            match unsafe { libc::fork() } {
                0 => {
                    let jit = session();
                    let valid = jit.add_ir("m", "define i32 @f() { ret i32 7 }").is_ok();
                    // SAFETY: ends the child, without handlers.
                    unsafe { libc::_exit(i32::from(!valid)) }
                }
                child => {
                    let mut status = 0;
                    // SAFETY: a child of this process.
                    unsafe { libc::waitpid(child, &mut status, 0) };
                    failed += i32::from(status != 0);
                }
            }
        }
        failed
    });
    for round in 0..40 {
        let goes = added(&jit, &format!("goes {round}"), Way::Remove);
        match form {
            Form::Bitcode => goes.tracker.add_bitcode("m", module.clone()),
            Form::Object => goes.tracker.add_object("m", module.clone()),
        }
        .expect("added");
        assert_eq!(goes.call("touch"), 1);
        goes.call("go");
        goes.remove();
    }
    STOP.store(true, Ordering::Relaxed);
    say(&format!("{} failed", forks.join().expect("ends")));
    end(0)
}

/// Counts of registered functions, and of those that ran: handlers of exit, destructors of threads.
static COUNTS: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

/// Has what is removed end with -1.
extern "C" fn on_failure(_: FunctionId) -> u64 {
    extern "C" fn removed() -> i32 {
        -1
    }
    removed as *const () as u64
}

/// Threads register, and end, while another one removes: what was registered runs once, in the
/// end at that of the process.
fn registering(form: Form, way: Way) {
    extern "C" fn ran(which: usize) {
        COUNTS[which][1].fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn compare() {
        for (name, [registered, ran]) in ["handlers", "destructors"].iter().zip(&COUNTS) {
            let counts = [registered, ran].map(|count| count.load(Ordering::Relaxed));
            match counts[0] == counts[1] {
                true => say(name),
                false => say(&format!("{name}: {counts:?}")),
            }
        }
    }
    ends::natively(compare);
    let jit = Jit::builder().jobs(1).on_failure(on_failure).build();
    let jit = jit.expect("a session");
    // SAFETY: a function of that type.
    unsafe { jit.main().define_address("host_ran", ran as *const ()) }.expect("new");
    let module = compile(
        form,
        r#"extern "C" void host_ran(unsigned long);
        extern "C" int __cxa_thread_atexit(void (*)(void *), void *, void *);
        static void last() { host_ran(0); }
        static void gone(void *) { host_ran(1); }
        extern "C" int go() {
          return (atexit(last) == 0) + 2 * (__cxa_thread_atexit(gone, 0, &__dso_handle) == 0);
        }"#,
    );
    for round in 0..40 {
        let goes = added(&jit, &format!("goes {round}"), way);
        match form {
            Form::Bitcode => goes.tracker.add_bitcode("m", module.clone()),
            Form::Object => goes.tracker.add_object("m", module.clone()),
        }
        .expect("added");
        let go = goes.dylib.lookup("go").expect("defined");
        // SAFETY: `go` above.
        let go: extern "C-unwind" fn() -> i32 = unsafe { std::mem::transmute(go) };
        let (begin, begun) = mpsc::channel();
        let threads = [1, 20, 400, 400].map(|calls| {
            let begin = begin.clone();
            std::thread::spawn(move || {
                for call in 0..calls {
                    let done = go();
                    if done < 0 {
                        break;
                    }
                    for (which, [registered, _]) in COUNTS.iter().enumerate() {
                        let one = (done >> which & 1) as usize;
                        registered.fetch_add(one, Ordering::Relaxed);
                    }
                    if call == 0 {
                        let _ = begin.send(());
                    }
                }
            })
        });
        begun.recv().expect("one of them");
        goes.remove();
        for thread in threads {
            thread.join().expect("ends");
        }
    }
    end(0)
}

const CASES: Cases = Cases(module_path!());

#[test]
fn case() {
    ends::run(&[
        ("thread_locals", thread_locals),
        ("keys", keys),
        ("session_ends", session_ends),
        ("again", again),
        ("forking", forking),
        ("registering", registering),
    ]);
}

#[test]
fn objects_of_threads_are_destroyed_and_code_stays_for_them() {
    CASES.check(
        "thread_locals",
        BOTH,
        &[Way::Remove, Way::Clear],
        THREAD_LOCALS,
        Ended::Status(0),
    );
    let wanted = THREAD_LOCALS.replace("removed|object", "removed|77|object");
    CASES.check("thread_locals", BOTH, ONE, &wanted, Ended::Status(0));
}

#[test]
fn code_stays_for_the_destructors_of_keys() {
    let wanted = "removed|value|joined|called what was removed";
    CASES.check("keys", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn code_of_a_session_that_ended_stays_for_objects_of_threads() {
    let wanted = "handler|dropped|object";
    CASES.check("session_ends", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn memory_comes_back_from_modules_that_registered() {
    let wanted = ["object|handler"; 90].join("|");
    CASES.check("again", BOTH, ONE, &wanted, Ended::Status(0));
}

#[test]
fn what_threads_register_while_it_is_removed_runs_once() {
    let wanted = "handlers|destructors";
    let ways = &[Way::Tracker, Way::Remove];
    CASES.check("registering", BOTH, ways, wanted, Ended::Status(0));
}

#[test]
fn forks_and_removals_do_not_wait_for_each_other() {
    let wanted = ["object|handler"; 40].join("|") + "|0 failed";
    CASES.check("forking", BOTH, ONE, &wanted, Ended::Status(0));
}

/// Uses a session when it is dropped.
struct LastUse(Jit);

impl Drop for LastUse {
    fn drop(&mut self) {
        let LastUse(jit) = self;
        let text = "define i64 @later(i64 %x) { %y = add i64 %x, 2 ret i64 %y }";
        jit.add_ir("later", text).expect("valid IR");
        for (name, result) in [("first", 8), ("later", 9)] {
            jit.compile_at(name, Tier::Guided).expect("compiles");
            // SAFETY: a function of that type.
            let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name) };
            assert_eq!(function.expect("defined").call(7), result);
        }
        let body = "define i64 @first(i64 %x) { %y = add i64 %x, 3 ret i64 %y }";
        let replacement = Replacement::ir("new", body);
        jit.main().replace(replacement).expect("replaces");
        LAST_USES.fetch_add(1, Ordering::Relaxed);
    }
}

static LAST_USES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LAST_USE: RefCell<Option<LastUse>> = const { RefCell::new(None) };
}

/// A destructor that runs after those of the thread's other locals uses a session in all ways, as a
/// handler of `atexit` does on the main thread.
#[test]
fn the_last_destructor_of_a_thread_may_use_a_session() {
    let thread = std::thread::spawn(|| {
        // Its destructor is registered before those of the session's own locals, and runs after them.
        LAST_USE.with_borrow_mut(|last| {
            assert!(last.is_none());
        });
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir(
            "first",
            "define i64 @first(i64 %x) { %y = add i64 %x, 1 ret i64 %y }",
        )
        .expect("valid IR");
        jit.compile_at("first", Tier::Optimized).expect("compiles");
        LAST_USE.with_borrow_mut(|last| *last = Some(LastUse(jit)));
    });
    thread.join().expect("no panic");
    assert_eq!(LAST_USES.load(Ordering::Relaxed), 1);
}
