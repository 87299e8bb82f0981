//! Destructors of what is removed (`llvm.global_dtors`, `.fini_array`): in the order of the C
//! library, each once, and only if their constructors have run.

use std::sync::Mutex;

use uruk::{Dylib, Error, Jit, Removal, Replacement};

use crate::ends;

use ends::{
    ALL, BOTH, Cases, Ended, Form, ONE, TO_REMOVE, Way, added, compile, end, native_first,
    natively, say, session,
};

const MODULE: &str = r#"
static void one() { say("one"); }
static void two() { say("two"); }
__attribute__((constructor)) static void makes() { say("makes"); atexit(one); }
__attribute__((destructor)) static void unmakes() { say("unmakes"); }
__attribute__((destructor(200))) static void unmakes_later() { say("unmakes later"); }
extern "C" int go() { return atexit(two); }"#;

/// Runs the constructors of the session's modules.
fn initialize(jit: &Jit) {
    // SAFETY: constructors of the cases.
    unsafe { jit.initialize() }.expect("initialized");
}

fn removed(form: Form, way: Way) {
    let jit = session();
    natively(native_first);
    let goes = added(&jit, "goes", way);
    goes.add(form, MODULE);
    initialize(&jit);
    goes.call("go");
    say("removing");
    goes.remove();
    say("removed");
    // SAFETY: nothing is left.
    unsafe { jit.deinitialize() };
    drop(jit);
    end(3)
}

const REMOVED: &str = "makes|removing|unmakes|unmakes later|two|one|removed|native first";

/// Constructors that did not run have nothing to be undone.
fn never_made(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, MODULE);
    goes.call("go");
    goes.remove();
    say("removed");
    initialize(&jit);
    drop(jit);
    end(0)
}

fn by_hand(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, MODULE);
    initialize(&jit);
    // SAFETY: destructors of the case.
    unsafe { jit.deinitialize() };
    say("deinitialized");
    goes.remove();
    drop((goes, jit));
    end(0)
}

fn session_ends(form: Form, _: Way) {
    let jit = session();
    for name in ["a", "b"] {
        let goes = added(&jit, name, Way::Tracker);
        let source = format!(
            r#"static void last() {{ say("{name} last"); }}
            __attribute__((constructor)) static void makes() {{ atexit(last); }}
            __attribute__((destructor)) static void unmakes() {{ say("{name} unmakes"); }}"#
        );
        goes.add(form, &source);
    }
    initialize(&jit);
    say("dropping");
    drop(jit);
    say("dropped");
    end(0)
}

/// A destructor that registers a handler, has the others run, and removes another tracker.
fn busy(form: Form, _: Way) {
    let jit = session();
    static JIT: Mutex<Option<Jit>> = Mutex::new(None);
    extern "C" fn deinitializes() {
        let jit = JIT.lock().expect("whole").clone().expect("a session");
        // SAFETY: destructors of the case.
        unsafe { jit.deinitialize() };
        say("deinitialized");
    }
    let address = deinitializes as *const ();
    // SAFETY: a function of that type.
    unsafe { jit.main().define_address("host_deinitialize", address) }.expect("new");
    *JIT.lock().expect("whole") = Some(jit.clone());
    let other = added(&jit, "other", Way::Tracker);
    other.add(
        form,
        r#"__attribute__((destructor)) static void unmakes() { say("other unmakes"); }"#,
    );
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"extern "C" void host_deinitialize();
        static void late() { say("late"); }
        __attribute__((destructor(203))) static void first() {
          say("first");
          host_remove();
          atexit(late);
        }
        __attribute__((destructor(202))) static void second() {
          say("second");
          host_deinitialize();
        }
        __attribute__((destructor(201))) static void third() { say("third"); }"#,
    );
    initialize(&jit);
    TO_REMOVE.lock().expect("whole").push(other.tracker.clone());
    goes.remove();
    say("removed");
    // SAFETY: ends the case.
    unsafe { libc::_exit(0) }
}

const BUSY: &str = "first|other unmakes|removed|second|third|deinitialized|late|removed";

/// Objects of the thread are destroyed before, as natively a library stays that has some.
fn thread_objects(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"struct Object { ~Object() { say("object"); } };
        static thread_local Object object;
        static void last() { say("last"); }
        __attribute__((destructor)) static void unmakes() { say("unmakes"); }
        extern "C" int go() { (void)&object; return atexit(last); }"#,
    );
    initialize(&jit);
    goes.call("go");
    goes.remove();
    say("removed");
    end(0)
}

/// Those of a replacement go with what it replaced functions of.
fn replaced(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"extern "C" int go() { return 1; }
        __attribute__((destructor)) static void unmakes() { say("unmakes"); }"#,
    );
    initialize(&jit);
    let bytes = compile(
        form,
        r#"extern "C" int go() { return 2; }
        __attribute__((constructor)) static void makes_new() { say("makes new"); }
        __attribute__((destructor)) static void unmakes_new() { say("unmakes new"); }"#,
    );
    let new = match form {
        Form::Bitcode => Replacement::bitcode("new", bytes),
        Form::Object => Replacement::object("new", bytes).allow_parts(true),
    };
    // SAFETY: the constructor above.
    goes.dylib
        .replace(unsafe { new.run_constructors() })
        .expect("replaced");
    assert_eq!(goes.call("go"), 2);
    goes.remove();
    say("removed");
    drop((goes, jit));
    end(0)
}

/// A throw is the end.
fn throws(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"__attribute__((destructor)) static void throws() { say("throws"); throw 1; }"#,
    );
    initialize(&jit);
    goes.remove();
    say("not ended");
    end(0)
}

/// So it is at the session's end.
fn ends_throwing(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"__attribute__((destructor)) static void throws() { say("throws"); throw 1; }"#,
    );
    initialize(&jit);
    drop((goes, jit));
    say("not ended");
    end(0)
}

/// And in a constructor.
fn throws_early(form: Form, _: Way) {
    let jit = session();
    added(&jit, "goes", Way::Tracker).add(
        form,
        r#"__attribute__((constructor)) static void throws() { say("throws"); throw 1; }"#,
    );
    initialize(&jit);
    say("not ended");
    end(0)
}

/// Two dylibs: `host_search` makes the first one search the second.
static SEARCH: Mutex<Option<(Dylib, Dylib)>> = Mutex::new(None);

/// A handler makes another dylib search the dylib that goes. So the removal is refused, and the
/// dylib works on.
fn not_removed(form: Form, _: Way) {
    extern "C" fn search() {
        let both = SEARCH.lock().expect("whole").clone();
        let (user, used) = both.expect("set");
        user.add_to_link_order(&used).expect("alive");
    }
    let jit = session();
    // SAFETY: a function of that type.
    unsafe {
        jit.main()
            .define_address("host_search", search as *const ())
    }
    .expect("new");
    let user = jit.create_dylib("user").expect("a dylib");
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(
        form,
        r#"extern "C" void host_search();
        static void again() { say("again"); }
        extern "C" int searches() { return atexit(host_search); }
        extern "C" int go() { return atexit(again); }"#,
    );
    goes.call("searches");
    *SEARCH.lock().expect("whole") = Some((user, goes.dylib.clone()));
    // SAFETY: no thread uses the dylib that goes.
    let refused = unsafe { goes.dylib.remove(Removal::Refused) };
    assert!(matches!(refused, Err(Error::DylibInUse { .. })));
    assert_eq!(goes.call("go"), 0);
    goes.remove();
    say("removed");
    end(0)
}

/// The body that takes the place of two, of images whose handles are different.
fn merged(form: Form, _: Way) {
    let jit = session();
    let goes = added(&jit, "goes", Way::Tracker);
    let part = |name: &str| {
        format!(
            r#"static void {name}_last() {{ say("{name}"); }}
            extern "C" int {name}() {{ return atexit({name}_last); }}"#
        )
    };
    goes.add(form, &part("a"));
    goes.add(form, &part("b"));
    assert_eq!((goes.call("a"), goes.call("b")), (0, 0));
    let bytes = compile(form, &(part("a") + &part("b")));
    let new = match form {
        Form::Bitcode => Replacement::bitcode("new", bytes),
        Form::Object => Replacement::object("new", bytes).allow_parts(true),
    };
    goes.dylib.replace(new).expect("replaced");
    assert_eq!((goes.call("a"), goes.call("b")), (0, 0));
    goes.remove();
    say("removed");
    end(0)
}

/// A function that goes, and the body that its resolver chose, which is another's and stays.
fn chosen(form: Form, _: Way) {
    let jit = session();
    let stays = added(&jit, "stays", Way::Tracker);
    stays.add(
        form,
        r#"static void last() { say("last"); }
        extern "C" int body() { return atexit(last); }"#,
    );
    let goes = added(&jit, "goes", Way::Tracker);
    goes.dylib.add_to_link_order(&stays.dylib).expect("alive");
    goes.add(
        form,
        r#"extern "C" int body();
        extern "C" int chosen() __attribute__((ifunc("choose")));
        extern "C" void *choose() { return (void *)body; }"#,
    );
    initialize(&jit);
    assert_eq!(goes.call("chosen"), 0);
    let address = goes.dylib.lookup("chosen").expect("defined");
    goes.remove();
    // SAFETY: the stub of `chosen`.
    let chosen: extern "C-unwind" fn() -> i32 = unsafe { std::mem::transmute(address) };
    assert_eq!(chosen(), -1);
    assert_eq!(stays.call("body"), 0);
    end(0)
}

/// A thread that registers without pause does not keep others from removing.
fn storm(form: Form, _: Way) {
    static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let jit = session();
    let source = |last: &str| {
        format!(
            r#"static int count;
            static void last() {{ ++count; {last} }}
            extern "C" int go() {{ return atexit(last); }}
            extern "C" int ran() {{ return count; }}"#
        )
    };
    let stays = added(&jit, "stays", Way::Tracker);
    stays.add(form, &source(""));
    let registers = std::thread::spawn(move || {
        let mut count = 0;
        // Relaxed: only to end.
        while !STOP.load(std::sync::atomic::Ordering::Relaxed) && count < 100_000 {
            stays.call("go");
            count += 1;
        }
        stays
    });
    let goes = added(&jit, "goes", Way::Tracker);
    goes.add(form, &source("if (count == 20) say(\"all\");"));
    for _ in 0..20 {
        goes.call("go");
    }
    goes.remove();
    STOP.store(true, std::sync::atomic::Ordering::Relaxed);
    let stays = registers.join().expect("ends");
    say("removed");
    assert_eq!(stays.call("ran"), 0);
    end(0)
}

const CASES: Cases = Cases(module_path!());

#[test]
fn case() {
    ends::run(&[
        ("removed", removed),
        ("never_made", never_made),
        ("by_hand", by_hand),
        ("session_ends", session_ends),
        ("busy", busy),
        ("thread_objects", thread_objects),
        ("replaced", replaced),
        ("throws", throws),
        ("ends_throwing", ends_throwing),
        ("throws_early", throws_early),
        ("not_removed", not_removed),
        ("merged", merged),
        ("chosen", chosen),
        ("storm", storm),
    ]);
}

#[test]
fn destructors_run_before_handlers_when_their_module_is_removed() {
    CASES.check("removed", BOTH, ALL, REMOVED, Ended::Status(3));
}

#[test]
fn what_was_not_constructed_is_not_destroyed() {
    CASES.check("never_made", BOTH, ONE, "two|removed", Ended::Status(0));
}

#[test]
fn what_was_destroyed_is_not_destroyed_again() {
    let wanted = "makes|unmakes|unmakes later|deinitialized|one";
    CASES.check("by_hand", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn the_end_of_a_session_runs_destructors_latest_first() {
    let wanted = "dropping|b unmakes|a unmakes|b last|a last|dropped";
    CASES.check("session_ends", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn destructors_register_remove_and_deinitialize() {
    CASES.check("busy", BOTH, ONE, BUSY, Ended::Status(0));
}

#[test]
fn objects_of_the_thread_go_before() {
    let wanted = "object|unmakes|last|removed";
    CASES.check("thread_objects", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn destructors_of_a_replacement_go_with_what_it_replaced() {
    let wanted = "makes new|unmakes new|unmakes|removed";
    CASES.check("replaced", BOTH, ONE, wanted, Ended::Status(0));
}

#[test]
fn a_destructor_that_throws_is_the_end() {
    let wanted = "throws|terminate called after throwing an instance of 'int'";
    CASES.check("throws", BOTH, ONE, wanted, Ended::Signal(libc::SIGABRT));
    CASES.check(
        "ends_throwing",
        BOTH,
        ONE,
        wanted,
        Ended::Signal(libc::SIGABRT),
    );
    CASES.check(
        "throws_early",
        BOTH,
        ONE,
        wanted,
        Ended::Signal(libc::SIGABRT),
    );
}

#[test]
fn what_is_not_removed_after_all_registers_as_before() {
    CASES.check("not_removed", BOTH, ONE, "again|removed", Ended::Status(0));
}

#[test]
fn a_replacement_of_functions_of_two_images_registers() {
    CASES.check("merged", BOTH, ONE, "b|a|b|a|removed", Ended::Status(0));
}

#[test]
fn a_removal_ends_while_others_register() {
    CASES.check("storm", BOTH, ONE, "all|removed", Ended::Status(0));
}

#[test]
fn what_a_resolver_chose_stays_when_the_function_goes() {
    let wanted = "called what was removed|last|last";
    let forms = &[Form::Bitcode];
    CASES.check("chosen", forms, ONE, wanted, Ended::Status(0));
}
