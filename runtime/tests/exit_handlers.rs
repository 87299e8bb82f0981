//! What code registers to be called at the end of the process or of a thread, and is removed
//! before that. Each case is a process of its own: its end is looked at.
//!
//! Cases write to standard error, which the harness does not use.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use uruk::{Dylib, FunctionId, Jit, ReclaimKind, Removal, Replacement, Tracker};

#[path = "support/clang.rs"]
mod clang;

/// Says which case a process is to run.
const CASE: &str = "URUK_EXIT_CASE";

/// Longer than any case takes, also where everything waits for a processor.
const TOO_LONG: Duration = Duration::from_secs(100);

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Of every module: writing, and what is registered.
const COMMON: &str = r#"
extern "C" {
long write(int, const void *, unsigned long);
unsigned long strlen(const char *);
int atexit(void (*)(void));
int at_quick_exit(void (*)(void));
int on_exit(void (*)(int, void *), void *);
int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
int pthread_key_create(unsigned *, void (*)(void *));
int pthread_key_delete(unsigned);
int pthread_setspecific(unsigned, const void *);
int __cxa_atexit(void (*)(void *), void *, void *);
void __cxa_finalize(void *);
void exit(int);
void quick_exit(int);
int fork(void);
int waitpid(int, int *, int);
void host_say(const char *);
void host_tick(void);
void host_remove(void);
extern void *__dso_handle __attribute__((visibility("hidden")));
}
static void say(const char *text) {
  write(2, text, strlen(text));
  write(2, "\n", 1);
}
"#;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Bitcode,
    Object,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Tracker,
    Clear,
    Remove,
}

/// What was added, and how it goes.
struct Added {
    dylib: Dylib,
    tracker: Tracker,
    way: Way,
}

impl Added {
    fn add(&self, form: Form, source: &str) {
        add(&self.tracker, form, source);
    }

    fn call(&self, name: &str) -> i32 {
        // SAFETY: functions of the cases.
        let function = unsafe { self.dylib.function::<extern "C" fn() -> i32>(name) };
        match function {
            Ok(function) => function.call(),
            Err(_) => {
                let address = self.dylib.lookup(name).expect("defined");
                // SAFETY: as above; functions of objects have no type to compare.
                let function: extern "C-unwind" fn() -> i32 =
                    unsafe { std::mem::transmute(address) };
                function()
            }
        }
    }

    fn remove(&self) {
        // SAFETY: nobody uses what goes.
        unsafe {
            match self.way {
                Way::Tracker => self.tracker.remove(),
                Way::Clear => self.dylib.clear(),
                Way::Remove => self.dylib.remove(Removal::Forced),
            }
        }
        .expect("removed");
    }
}

/// A module in the form that is asked for.
fn compile(form: Form, source: &str) -> Vec<u8> {
    let text = format!("{COMMON}{source}");
    let flags: &[&str] = match form {
        Form::Bitcode => &["-emit-llvm", "-O1", "-Xclang", "-disable-llvm-passes"],
        Form::Object => &["-O1", "-fPIC"],
    };
    // Cases are processes, and run at the same time.
    let case = std::env::var(CASE).unwrap_or_default().replace(':', "-");
    clang::compile(&format!("exit_handlers/{case}"), "m.cpp", &text, flags)
}

fn add(tracker: &Tracker, form: Form, source: &str) {
    let bytes = compile(form, source);
    match form {
        Form::Bitcode => tracker.add_bitcode("m", bytes),
        Form::Object => tracker.add_object("m", bytes),
    }
    .expect("added");
}

fn say(text: &str) {
    eprintln!("{text}");
}

extern "C" fn host_tick() {
    say("host tick");
}

extern "C" fn host_say(text: *const std::ffi::c_char) {
    // SAFETY: a string of the case's.
    say(&unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy());
}

/// What `host_remove` removes.
static TO_REMOVE: Mutex<Vec<Tracker>> = Mutex::new(Vec::new());

extern "C" fn host_remove() {
    let tracker = TO_REMOVE.lock().expect("whole").pop();
    // SAFETY: nobody uses what goes.
    let removed = tracker.map(|tracker| unsafe { tracker.remove() });
    say(if matches!(removed, Some(Ok(()))) {
        "removed"
    } else {
        "not removed"
    });
}

extern "C" fn called_a_removed_function() -> i32 {
    say("called what was removed");
    -1
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    called_a_removed_function as *const () as u64
}

fn session() -> Jit {
    let jit = Jit::builder().jobs(1).on_failure(on_failure).build();
    let jit = jit.expect("a session");
    // SAFETY: functions of these types.
    unsafe {
        jit.define("host_tick", host_tick as *const ())
            .expect("new");
        jit.define("host_say", host_say as *const ()).expect("new");
        jit.define("host_remove", host_remove as *const ())
            .expect("new");
    }
    jit
}

/// A dylib with a tracker.
fn added(jit: &Jit, name: &str, way: Way) -> Added {
    let dylib = jit.create_dylib(name).expect("a dylib");
    dylib.add_to_link_order(&jit.main()).expect("alive");
    let tracker = dylib.create_tracker().expect("alive");
    Added {
        dylib,
        tracker,
        way,
    }
}

fn end(status: i32) -> ! {
    // SAFETY: runs what the case registered.
    unsafe { libc::exit(status) }
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// Registered natively.
fn natively(handler: extern "C" fn()) {
    // SAFETY: a function of this process.
    assert_eq!(unsafe { atexit(handler) }, 0);
}

extern "C" fn native_first() {
    say("native first");
}

extern "C" fn native_second() {
    say("native second");
}

const REGISTERS: &str = r#"
static void cold(const char *text) { say(text); }
static void first() { cold("first"); }
static void second() { cold("second"); }
static void with(void *text) { say((const char *)text); }
extern "C" int go() {
  atexit(first);
  __cxa_atexit(with, (void *)"with argument", &__dso_handle);
  atexit(host_tick);
  __cxa_atexit((void (*)(void *))host_say, (void *)"native with our data", &__dso_handle);
  return atexit(second);
}"#;

const STAYS: &str = r#"
static void stays() { say("stays"); }
extern "C" int go() { return atexit(stays); }"#;

fn at_exit(form: Form, way: Way) {
    let jit = session();
    natively(native_first);
    let stays = added(&jit, "stays", Way::Tracker);
    stays.add(form, STAYS);
    stays.call("go");
    let goes = added(&jit, "goes", way);
    goes.add(form, REGISTERS);
    goes.call("go");
    natively(native_second);
    say("removing");
    goes.remove();
    say("removed");
    assert!(goes.dylib.lookup("go").is_err());
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    end(3)
}

const AT_EXIT: &str = "removing|second|native with our data|host tick|with argument|first|removed|\
                       native second|stays|native first";

/// Two inputs under one tracker: in the order of registration, whoever it was.
fn together(form: Form) {
    let jit = session();
    let both = added(&jit, "both", Way::Tracker);
    let other = |name: &str| {
        format!(
            r#"static void one() {{ say("{name} one"); }}
            static void two() {{ say("{name} two"); }}
            extern "C" int {name}1() {{ return atexit(one); }}
            extern "C" int {name}2() {{ return atexit(two); }}"#
        )
    };
    both.add(form, &other("a"));
    let more = both.dylib.create_tracker().expect("alive");
    add(&more, form, &other("b"));
    more.transfer_to(&both.tracker).expect("alive");
    for name in ["a1", "b1", "a2", "b2"] {
        both.call(name);
    }
    both.remove();
    end(0)
}

/// A handler that registers another, one that removes another tracker, one that removes its own.
fn busy(form: Form) {
    let jit = session();
    let other = added(&jit, "other", Way::Tracker);
    other.add(form, STAYS);
    other.call("go");
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void late() { say("late"); }
        static void registers() { say("registers"); atexit(late); }
        static void after() { say("after"); }
        static void removes() { host_remove(); after(); }
        extern "C" int go() {
          atexit(registers); atexit(removes); atexit(removes); atexit(after);
          return 0;
        }"#,
    );
    goes.call("go");
    // The second of the two removes the tracker it is under itself.
    TO_REMOVE
        .lock()
        .expect("whole")
        .extend([goes.tracker.clone(), other.tracker.clone()]);
    // SAFETY: nobody uses what goes.
    let twice = unsafe { goes.tracker.remove() };
    say(if twice.is_err() { "twice" } else { "once" });
    end(0)
}

const BUSY: &str = "after|stays|removed|after|registers|late|removed|after|twice";

/// A handler ends the process: what is left runs.
fn ends(form: Form) {
    let jit = session();
    natively(native_first);
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void left() { say("left"); }
        static void ends() { say("ends"); exit(7); }
        extern "C" int go() { atexit(left); return atexit(ends); }"#,
    );
    goes.call("go");
    goes.remove();
    say("not ended");
    end(0)
}

/// A handler throws: natively the end, too.
fn throws(form: Form) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void throws() { say("throws"); throw 1; }
        extern "C" int go() { return atexit(throws); }"#,
    );
    goes.call("go");
    goes.remove();
    say("not ended");
    end(0)
}

/// Forgotten, as `dlclose` does.
fn forgotten(form: Form) {
    let jit = session();
    let module = |name: &str| {
        format!(
            r#"static void quick() {{ say("{name} quick"); }}
            static void fork1() {{ say("{name} prepare"); }}
            extern "C" int go() {{
              at_quick_exit(quick);
              return pthread_atfork(fork1, nullptr, nullptr);
            }}
            extern "C" int make() {{
              int child = fork();
              if (child == 0) quick_exit(0);
              waitpid(child, nullptr, 0);
              return 0;
            }}"#
        )
    };
    let [goes, stays] = ["goes", "stays"].map(|name| {
        let new = added(&jit, name, Way::Remove);
        new.add(form, &module(name));
        new.call("go");
        new
    });
    stays.call("make");
    goes.remove();
    say("removed");
    stays.call("make");
    // SAFETY: ends the case.
    unsafe { libc::_exit(0) }
}

const FORGOTTEN: &str =
    "stays prepare|goes prepare|stays quick|goes quick|removed|stays prepare|stays quick";

/// A child of fork has handlers of its own.
fn forked(form: Form) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Clear);
    goes.add(form, STAYS);
    goes.call("go");
    // SAFETY: the child removes and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        goes.remove();
        say("child");
        end(0)
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    say(&format!("child's status {status}"));
    goes.remove();
    say("parent");
    end(0)
}

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
    // What was kept is gone now.
    touch();
    end(0)
}

const THREAD_LOCALS: &str = "removing|object|handler|removed|object|joined|called what was removed";

/// A key's destructor, while threads have values.
fn keys(form: Form) {
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

/// `on_exit` has no owner: the code stays.
fn stays_for_on_exit(form: Form) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void cold(int status, void *text) {
          say((const char *)text);
          exit(status + 1);
        }
        static void last(int status, void *text) { cold(status, text); }
        extern "C" int go() { return on_exit(last, (void *)"on_exit"); }"#,
    );
    goes.call("go");
    goes.remove();
    say("removed");
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    end(4)
}

/// A handler of one image whose code is in another stays callable.
fn of_another(form: Form) {
    let jit = session();
    let code = added(&jit, "code", Way::Tracker);
    code.add(
        form,
        r#"static void cold() { say("shared"); }
        extern "C" void shared() { cold(); }"#,
    );
    let user = added(&jit, "user", Way::Remove);
    user.dylib.add_to_link_order(&code.dylib).expect("alive");
    user.add(
        form,
        r#"extern "C" void shared(); extern "C" int go() { return atexit(shared); }"#,
    );
    user.call("go");
    code.remove();
    say("code removed");
    user.remove();
    say("user removed");
    end(0)
}

/// What the handle's own function runs is not run again.
fn finalized(form: Form) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void one() { say("one"); }
        extern "C" int go() { return atexit(one); }
        extern "C" int finish() { __cxa_finalize(&__dso_handle); return 0; }"#,
    );
    goes.call("go");
    goes.call("finish");
    say("finished");
    goes.call("go");
    goes.remove();
    end(0)
}

/// The body that registers came as a replacement.
fn replaced(form: Form) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, STAYS);
    let bytes = compile(
        form,
        r#"static void cold() { say("new"); }
        static void stays() { cold(); }
        extern "C" int go() { return atexit(stays); }"#,
    );
    let replacement = match form {
        Form::Bitcode => Replacement::bitcode("new", bytes),
        Form::Object => Replacement::object("new", bytes),
    };
    let replacement = replacement.allow_parts(true);
    goes.dylib.replace(replacement).expect("replaced");
    goes.call("go");
    goes.remove();
    say("removed");
    end(0)
}

fn run(case: &str) {
    let (name, form) = case.split_once(':').expect("a name and a form");
    let (form, way) = form.split_once(':').expect("a form and a way");
    let form = match form {
        "Bitcode" => Form::Bitcode,
        _ => Form::Object,
    };
    let way = match way {
        "Tracker" => Way::Tracker,
        "Clear" => Way::Clear,
        _ => Way::Remove,
    };
    match name {
        "at_exit" => at_exit(form, way),
        "together" => together(form),
        "busy" => busy(form),
        "ends" => ends(form),
        "throws" => throws(form),
        "forgotten" => forgotten(form),
        "forked" => forked(form),
        "thread_locals" => thread_locals(form, way),
        "keys" => keys(form),
        "stays_for_on_exit" => stays_for_on_exit(form),
        "of_another" => of_another(form),
        "finalized" => finalized(form),
        "replaced" => replaced(form),
        other => panic!("no case {other}"),
    }
}

/// Runs a case if this process is to be one.
#[test]
fn case() {
    if let Ok(case) = std::env::var(CASE) {
        run(&case);
    }
}

/// How a process ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Status(i32),
    Signal(i32),
}

#[track_caller]
fn check(name: &str, forms: &[Form], ways: &[Way], wanted: &str, ended: Ended) {
    for form in forms {
        for way in ways {
            let case = format!("{name}:{form:?}:{way:?}");
            let mut child = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "case", "--nocapture", "--test-threads=1"])
                .env(CASE, &case)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a process");
            let mut stderr = child.stderr.take().expect("piped");
            let (sender, text) = mpsc::channel();
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
                let _ = sender.send(text);
            });
            let Ok(text) = text.recv_timeout(TOO_LONG) else {
                child.kill().expect("there");
                panic!("{case} hangs");
            };
            let status = child.wait().expect("a child");
            let found = match status.signal() {
                Some(signal) => Ended::Signal(signal),
                None => Ended::Status(status.code().unwrap_or(-1)),
            };
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((&*lines.join("|"), &found), (wanted, &ended), "{case}");
        }
    }
}

const BOTH: &[Form] = &[Form::Bitcode, Form::Object];
const ALL: &[Way] = &[Way::Tracker, Way::Clear, Way::Remove];
const ONE: &[Way] = &[Way::Tracker];

#[test]
fn handlers_run_when_their_module_is_removed_and_the_others_at_exit() {
    check("at_exit", BOTH, ALL, AT_EXIT, Ended::Status(3));
}

#[test]
fn handlers_of_several_inputs_run_in_reverse_order() {
    let wanted = "b two|a two|b one|a one";
    check("together", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn handlers_register_and_remove() {
    check("busy", BOTH, ONE, BUSY, Ended::Status(0));
}

#[test]
fn a_handler_ends_the_process() {
    let wanted = "ends|left|native first";
    check("ends", BOTH, ONE, wanted, Ended::Status(7));
}

#[test]
fn a_handler_that_throws_is_the_end() {
    let wanted = "throws|terminate called after throwing an instance of 'int'";
    check("throws", BOTH, ONE, wanted, Ended::Signal(libc::SIGABRT));
}

#[test]
fn handlers_of_forks_and_quick_ends_are_forgotten() {
    check("forgotten", BOTH, ONE, FORGOTTEN, Ended::Status(0));
}

#[test]
fn a_child_has_handlers_of_its_own() {
    let wanted = "stays|child|child's status 0|stays|parent";
    check("forked", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn objects_of_threads_are_destroyed_and_code_stays_for_them() {
    check(
        "thread_locals",
        BOTH,
        &[Way::Remove, Way::Clear],
        THREAD_LOCALS,
        Ended::Status(0),
    );
    let wanted = THREAD_LOCALS.replace("removed|object", "removed|77|object");
    check("thread_locals", BOTH, ONE, &wanted, Ended::Status(0));
}

#[test]
fn code_stays_for_the_destructors_of_keys() {
    let wanted = "removed|value|joined|called what was removed";
    check("keys", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn code_stays_for_on_exit() {
    check(
        "stays_for_on_exit",
        BOTH,
        ONE,
        "removed|on_exit",
        Ended::Status(5),
    );
}

#[test]
fn code_stays_for_handlers_of_others() {
    let wanted = "code removed|shared|user removed";
    check("of_another", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn finalizing_a_handle_runs_its_handlers_once() {
    check("finalized", BOTH, ONE, "one|finished|one", Ended::Status(0));
}

#[test]
fn a_replaced_body_registers_for_the_module_it_replaced() {
    check("replaced", BOTH, ONE, "new|removed", Ended::Status(0));
}
