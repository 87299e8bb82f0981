//! Functions that code registers to be called at the end of the process; the code is removed before
//! that.

use std::sync::Mutex;
use std::thread::JoinHandle;

use uruk::{ReclaimKind, Replacement};

use crate::ends;

use ends::{
    ALL, BOTH, Cases, Ended, Form, ONE, SOON, TO_REMOVE, Way, add, added, compile, end,
    native_first, native_second, natively, say, session,
};

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

/// Two inputs under one tracker: the order of registration counts, not the input.
fn together(form: Form, _: Way) {
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
fn busy(form: Form, _: Way) {
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
    // SAFETY: no thread uses the code that goes.
    let twice = unsafe { goes.tracker.remove() };
    say(if twice.is_err() { "twice" } else { "once" });
    end(0)
}

const BUSY: &str = "after|stays|removed|after|registers|late|removed|after|twice";

/// A handler ends the process: what is left runs.
fn ends(form: Form, _: Way) {
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
fn throws(form: Form, _: Way) {
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
fn forgotten(form: Form, _: Way) {
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
fn forked(form: Form, _: Way) {
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

/// A handler of one image whose code is in another stays callable.
fn of_another(form: Form, _: Way) {
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

/// Handlers that the handle's own function ran are not run again.
fn finalized(form: Form, _: Way) {
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

/// The body that registers came as a replacement, after one that failed.
fn replaced(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, STAYS);
    let replace = |source: &str| {
        let bytes = compile(form, source);
        let replacement = match form {
            Form::Bitcode => Replacement::bitcode("new", bytes),
            Form::Object => Replacement::object("new", bytes),
        };
        goes.dylib.replace(replacement.allow_parts(true))
    };
    let failed = replace(
        r#"extern "C" void missing();
        static void newer() { missing(); }
        extern "C" int go() { return atexit(newer); }"#,
    );
    assert!(failed.is_err());
    assert_eq!(goes.call("go"), 0);
    replace(
        r#"static void cold() { say("new"); }
        static void newer() { cold(); }
        extern "C" int go() { return atexit(newer); }"#,
    )
    .expect("replaced");
    assert_eq!(goes.call("go"), 0);
    goes.remove();
    say("removed");
    end(0)
}

/// `on_exit` has no owner: the code stays.
fn stays_for_on_exit(form: Form, _: Way) {
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

/// On the thread that removes, with its mask.
fn in_place(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, "extern \"C\" int go() { return atexit(host_where); }");
    goes.call("go");
    let thread = std::thread::Builder::new().name(String::from("remover"));
    let removes = thread.spawn(move || {
        let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the mask of this thread.
        unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, mask.as_ptr(), std::ptr::null_mut());
        }
        goes.remove();
    });
    removes.expect("a thread").join().expect("ends");
    end(0)
}

/// The session ends before the process does.
fn session_ends(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, STAYS);
    goes.call("go");
    drop(goes);
    say("dropping");
    drop(jit);
    say("dropped");
    end(0)
}

/// Code registers by the C library's own function; the runtime does not see the call.
fn unseen(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"static void last(void *) { say("unseen"); }
        extern "C" int go() {
          void *found = dlsym(nullptr, "__cxa_atexit");
          return ((int (*)(void (*)(void *), void *, void *))found)(last, 0, &__dso_handle);
        }"#,
    );
    goes.call("go");
    goes.remove();
    say("removed");
    end(0)
}

/// Threads that remove.
static REMOVERS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// The end of a process waits for no handler that another thread runs: this does, and is last.
extern "C" fn wait_for_removers() {
    for thread in REMOVERS.lock().expect("whole").drain(..) {
        thread.join().expect("ends");
    }
}

/// Two threads remove what the end of the process is running.
fn racing(form: Form, _: Way) {
    let jit = session();
    let source = r#"static void cold(void *text) { host_say((const char *)text); }
        static void last(void *text) { cold(text); }
        extern "C" int go() {
          __cxa_atexit(last, (void *)"one", &__dso_handle);
          __cxa_atexit(last, (void *)"two", &__dso_handle);
          return __cxa_atexit(last, (void *)"three", &__dso_handle);
        }"#;
    natively(wait_for_removers);
    let both = ["a", "b"].map(|name| {
        let goes = added(&jit, name, Way::Tracker);
        goes.add(form, source);
        goes.call("go");
        goes
    });
    let removers = both.map(|goes| std::thread::spawn(move || goes.remove()));
    REMOVERS.lock().expect("whole").extend(removers);
    end(0)
}

const CASES: Cases = Cases(module_path!());

#[test]
fn case() {
    ends::run(&[
        ("at_exit", at_exit),
        ("together", together),
        ("busy", busy),
        ("ends", ends),
        ("throws", throws),
        ("forgotten", forgotten),
        ("forked", forked),
        ("of_another", of_another),
        ("finalized", finalized),
        ("replaced", replaced),
        ("in_place", in_place),
        ("session_ends", session_ends),
        ("unseen", unseen),
        ("racing", racing),
        ("stays_for_on_exit", stays_for_on_exit),
    ]);
}

#[test]
fn handlers_run_when_their_module_is_removed_and_the_others_at_exit() {
    CASES.check("at_exit", BOTH, ALL, AT_EXIT, Ended::Status(3));
}

#[test]
fn handlers_of_several_inputs_run_in_reverse_order() {
    let wanted = "b two|a two|b one|a one";
    CASES.check("together", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn handlers_register_and_remove() {
    CASES.check("busy", BOTH, ONE, BUSY, Ended::Status(0));
}

#[test]
fn a_handler_ends_the_process() {
    let wanted = "ends|left|native first";
    CASES.check("ends", BOTH, ONE, wanted, Ended::Status(7));
}

#[test]
fn a_handler_that_throws_is_the_end() {
    let wanted = "throws|terminate called after throwing an instance of 'int'";
    CASES.check("throws", BOTH, ONE, wanted, Ended::Signal(libc::SIGABRT));
}

#[test]
fn handlers_of_forks_and_quick_ends_are_forgotten() {
    CASES.check("forgotten", BOTH, ONE, FORGOTTEN, Ended::Status(0));
}

#[test]
fn a_child_has_handlers_of_its_own() {
    let wanted = "stays|child|child's status 0|stays|parent";
    CASES.check("forked", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn code_stays_for_on_exit() {
    CASES.check(
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
    CASES.check("of_another", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn finalizing_a_handle_runs_its_handlers_once() {
    CASES.check("finalized", BOTH, ONE, "one|finished|one", Ended::Status(0));
}

#[test]
fn a_replaced_body_registers_for_the_module_it_replaced() {
    CASES.check("replaced", BOTH, ONE, "new|stays|removed", Ended::Status(0));
}

#[test]
fn handlers_run_on_the_thread_that_removes_with_its_mask() {
    CASES.check("in_place", BOTH, ONE, "remover [0, 1]", Ended::Status(0));
}

#[test]
fn the_end_of_a_session_is_that_of_its_modules() {
    let wanted = "dropping|stays|dropped";
    CASES.check("session_ends", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn what_the_c_library_was_told_without_us_runs_too() {
    CASES.check("unseen", BOTH, ONE, "unseen|removed", Ended::Status(0));
}

#[test]
fn a_removal_and_the_end_of_the_process_run_each_handler_once() {
    for _ in 0..20 {
        let (mut text, ended) = CASES.outcome("racing:Bitcode:Tracker");
        text.sort_unstable();
        let wanted = ["one", "one", "three", "three", "two", "two"];
        assert_eq!(
            (&*text, ended),
            (&wanted.map(String::from)[..], Ended::Status(0))
        );
    }
}
