//! Cases about the end of processes and threads: each is a process of its own, whose end and
//! output are looked at. Cases write to standard error, which the harness does not use.

use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::time::Duration;

use uruk::{Dylib, FunctionId, Jit, Removal, Tracker};

use uruk_testing::Child;

use crate::clang;

/// Says which case a process is to run.
const CASE: &str = "URUK_EXIT_CASE";

/// Longer than any case takes, also where everything waits for a processor.
const TOO_LONG: Duration = Duration::from_secs(100);

/// Long enough for a cycle on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

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
void host_where(void);
void *dlsym(void *, const char *);
extern void *__dso_handle __attribute__((visibility("hidden")));
}
static void say(const char *text) {
  write(2, text, strlen(text));
  write(2, "\n", 1);
}
"#;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Bitcode,
    Object,
}

#[derive(Clone, Copy, Debug)]
pub enum Way {
    Tracker,
    Clear,
    Remove,
}

/// The dylib and tracker of added modules, and the way they go.
pub struct Added {
    pub dylib: Dylib,
    pub tracker: Tracker,
    pub way: Way,
}

impl Added {
    pub fn add(&self, form: Form, source: &str) {
        add(&self.tracker, form, source);
    }

    pub fn call(&self, name: &str) -> i32 {
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

    pub fn remove(&self) {
        // SAFETY: no thread uses the modules that go.
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
pub fn compile(form: Form, source: &str) -> Vec<u8> {
    let text = format!("{COMMON}{source}");
    let flags: &[&str] = match form {
        Form::Bitcode => &["-emit-llvm", "-O1", "-Xclang", "-disable-llvm-passes"],
        Form::Object => &["-O1", "-fPIC"],
    };
    // Cases are processes, and run at the same time.
    let case = std::env::var(CASE).unwrap_or_default().replace(':', "-");
    clang::compile(&format!("exit_handlers/{case}"), "m.cpp", &text, flags)
}

pub fn add(tracker: &Tracker, form: Form, source: &str) {
    let bytes = compile(form, source);
    match form {
        Form::Bitcode => tracker.add_bitcode("m", bytes),
        Form::Object => tracker.add_object("m", bytes),
    }
    .expect("added");
}

pub fn say(text: &str) {
    eprintln!("{text}");
}

extern "C" fn host_tick() {
    say("host tick");
}

extern "C" fn host_say(text: *const std::ffi::c_char) {
    // SAFETY: a string of the case's.
    say(&unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy());
}

/// Says where a handler runs.
extern "C" fn host_where() {
    let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set with the thread's mask.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        [libc::SIGUSR1, libc::SIGUSR2].map(|signal| libc::sigismember(mask.as_ptr(), signal))
    };
    let name = std::thread::current().name().map(str::to_owned);
    say(&format!("{} {blocked:?}", name.unwrap_or_default()));
}

/// The trackers that `host_remove` removes.
pub static TO_REMOVE: Mutex<Vec<Tracker>> = Mutex::new(Vec::new());

extern "C" fn host_remove() {
    let tracker = TO_REMOVE.lock().expect("whole").pop();
    // SAFETY: no thread uses the modules that go.
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

pub fn session() -> Jit {
    let jit = Jit::builder().jobs(1).on_failure(on_failure).build();
    let jit = jit.expect("a session");
    // SAFETY: functions of these types.
    unsafe {
        jit.main()
            .define_address("host_tick", host_tick as *const ())
            .expect("new");
        jit.main()
            .define_address("host_say", host_say as *const ())
            .expect("new");
        jit.main()
            .define_address("host_remove", host_remove as *const ())
            .expect("new");
        jit.main()
            .define_address("host_where", host_where as *const ())
            .expect("new");
    }
    jit
}

/// A dylib with a tracker.
pub fn added(jit: &Jit, name: &str, way: Way) -> Added {
    let dylib = jit.create_dylib(name).expect("a dylib");
    dylib.add_to_link_order(&jit.main()).expect("alive");
    let tracker = dylib.create_tracker().expect("alive");
    Added {
        dylib,
        tracker,
        way,
    }
}

pub fn end(status: i32) -> ! {
    // SAFETY: runs what the case registered.
    unsafe { libc::exit(status) }
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// Registered natively.
pub fn natively(handler: extern "C" fn()) {
    // SAFETY: a function of this process.
    assert_eq!(unsafe { atexit(handler) }, 0);
}

pub extern "C" fn native_first() {
    say("native first");
}

pub extern "C" fn native_second() {
    say("native second");
}

/// A case, by name.
pub type Case = (&'static str, fn(Form, Way));

/// Runs a case if this process is to be one.
pub fn run(cases: &[Case]) {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let words: Vec<&str> = case.split(':').collect();
    let form = match words[1] {
        "Bitcode" => Form::Bitcode,
        _ => Form::Object,
    };
    let way = match words[2] {
        "Tracker" => Way::Tracker,
        "Clear" => Way::Clear,
        _ => Way::Remove,
    };
    let named = cases.iter().find(|(name, _)| *name == words[0]);
    named.expect("a case of that name").1(form, way);
}

/// How a process ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    Status(i32),
    Signal(i32),
}

/// The cases of a module, by its `module_path!()`. Its test `case` runs them.
pub struct Cases(pub &'static str);

impl Cases {
    /// The lines that a case writes, and how it ends.
    #[track_caller]
    pub fn outcome(&self, case: &str) -> (Vec<String>, Ended) {
        let child = Child::of(self.0, "case").env(CASE, case);
        let output = child.in_first_thread().limit(TOO_LONG).output();
        let ended = match output.status.signal() {
            Some(signal) => Ended::Signal(signal),
            None => Ended::Status(output.status.code().unwrap_or(-1)),
        };
        let text = String::from_utf8_lossy(&output.stderr);
        (text.lines().map(str::to_owned).collect(), ended)
    }

    /// Checks what a case writes, its lines separated by bars, in all forms and ways.
    #[track_caller]
    pub fn check(&self, name: &str, forms: &[Form], ways: &[Way], wanted: &str, ended: Ended) {
        for form in forms {
            for way in ways {
                let case = format!("{name}:{form:?}:{way:?}");
                let (lines, found) = self.outcome(&case);
                assert_eq!((&*lines.join("|"), &found), (wanted, &ended), "{case}");
            }
        }
    }
}

pub const BOTH: &[Form] = &[Form::Bitcode, Form::Object];
pub const ALL: &[Way] = &[Way::Tracker, Way::Clear, Way::Remove];
pub const ONE: &[Way] = &[Way::Tracker];
