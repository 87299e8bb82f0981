//! A name whose first body is being produced: it is redefined, replaced, removed meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use uruk::inkwell::module::Module;
use uruk::{Dylib, Jit, Level, Replacement, Trap};

type F = extern "C" fn() -> i64;
type Written = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Writes `name() = value`.
fn write(module: &Module<'_>, name: &str, value: u64) -> Written {
    let context = module.get_context();
    let word = context.i64_type();
    let function = module.add_function(name, word.fn_type(&[], false), None);
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, ""));
    builder.build_return(Some(&word.const_int(value, false)))?;
    Ok(())
}

fn ir(value: u64) -> String {
    format!("define i64 @f() {{ ret i64 {value} }}")
}

fn call(dylib: &Dylib, name: &str) -> i64 {
    // SAFETY: all functions here are of that type.
    let function = unsafe { dylib.function::<F>(name) };
    function.expect("it is there").call()
}

/// A first call of `f` whose body, `f() = 1`, is being produced.
struct Held {
    caller: JoinHandle<Result<i64, Trap>>,
    go: Sender<()>,
}

impl Held {
    /// `more` is defined by the same module.
    fn new(dylib: &Dylib, more: &'static [&'static str]) -> Held {
        let (begun, has_begun) = channel();
        let (go, may_go) = channel::<()>();
        let may_go: Mutex<Receiver<()>> = Mutex::new(may_go);
        let generate = move |module: &Module<'_>| {
            // Nothing waits for a second production.
            let _ = begun.send(());
            may_go.lock().unwrap().recv()?;
            more.iter().try_for_each(|name| write(module, name, 1))?;
            write(module, "f", 1)
        };
        dylib.define_lazy::<F>("f", generate).expect("defined");
        // SAFETY: of that type.
        let f = unsafe { dylib.function::<F>("f") }.expect("it is there");
        let caller = std::thread::spawn(move || f.call_guarded());
        has_begun.recv().expect("it begins");
        Held { caller, go }
    }

    /// Has the body finished; what the first call gives.
    fn end(self) -> Result<i64, String> {
        self.go.send(()).expect("it waits");
        let result = self.caller.join().expect("it returns");
        result.map_err(|trap| trap.kind.to_string())
    }
}

#[test]
fn the_latest_definition_wins_over_a_body_that_comes_late() {
    for how in 0..4 {
        let jit = Jit::new().expect("a session");
        let dylib = jit.create_dylib("d").expect("a dylib");
        let held = Held::new(&dylib, &[]);
        match how {
            0 => {
                let two = |module: &Module<'_>| write(module, "f", 2);
                dylib.define_lazy::<F>("f", two).expect("redefined");
            }
            1 => {
                dylib
                    .replace(Replacement::ir("r", &ir(2)))
                    .expect("replaced");
            }
            2 => {
                // SAFETY: the caller is inside of what the session keeps.
                unsafe { dylib.clear() }.expect("cleared");
                dylib.add_ir("n", &ir(2)).expect("added");
            }
            _ => {
                // SAFETY: the caller is inside of what the session keeps.
                unsafe { dylib.undefine(&[jit.intern("f")]) }.expect("undefined");
                let two = |module: &Module<'_>| write(module, "f", 2);
                dylib.define_lazy::<F>("f", two).expect("defined");
            }
        }
        assert_eq!(held.end(), Ok(2), "{how}");
        assert_eq!(call(&dylib, "f"), 2, "{how}");
    }
}

#[test]
fn a_rollback_brings_a_placeholder_back_whose_body_came_late() {
    let jit = Jit::new().expect("a session");
    let held = Held::new(&jit.main(), &[]);
    let replaced = jit.main().replace(Replacement::ir("r", &ir(2)));
    let replaced = replaced.expect("replaced");
    // For the production that the rollback makes necessary.
    held.go.send(()).expect("it waits");
    assert_eq!(held.end(), Ok(2));
    replaced.rollback().expect("it is the latest");
    assert_eq!(call(&jit.main(), "f"), 1);
}

#[test]
fn a_function_that_is_removed_while_it_is_produced_is_an_error_of_its_callers() {
    for more in [&[][..], &["g"]] {
        let jit = Jit::new().expect("a session");
        jit.add_ir("g", "define i64 @g() { ret i64 7 }")
            .expect("added");
        let dylib = jit.main();
        let held = Held::new(&dylib, more);
        // SAFETY: the caller is inside of what the session keeps.
        unsafe { dylib.undefine(&[jit.intern("f")]) }.expect("undefined");
        let told = String::from("f has no body: it was removed");
        assert_eq!(held.end(), Err(told));
        assert_eq!(call(&dylib, "g"), 7);
    }
}

#[test]
fn a_function_of_another_type_is_an_error_of_calls_that_waited() {
    let jit = Jit::new().expect("a session");
    let dylib = jit.create_dylib("d").expect("a dylib");
    let held = Held::new(&dylib, &[]);
    // SAFETY: the caller is inside of what the session keeps.
    unsafe { dylib.clear() }.expect("cleared");
    let other = "define double @f(double %x) { ret double %x }";
    dylib.add_ir("n", other).expect("added");
    let told = held.end().expect_err("another type");
    assert_eq!(
        told,
        "f has no body: it was defined anew as double (double), and this call is of i64 ()"
    );
}

#[test]
fn a_call_by_its_own_closure_is_an_error() {
    let jit = Jit::new().expect("a session");
    let inner = jit.clone();
    let generate = move |module: &Module<'_>| {
        // SAFETY: of that type.
        let f = unsafe { inner.function::<F>("f") }?;
        let trap = f.call_guarded().expect_err("it is not there yet");
        assert!(trap.kind.to_string().contains("by what produces it"));
        write(module, "f", 4)
    };
    jit.main().define_lazy::<F>("f", generate).expect("defined");
    assert_eq!(call(&jit.main(), "f"), 4);
}

#[test]
fn a_quiescent_replacement_waits_for_a_first_body_and_wins() {
    let jit = Jit::new().expect("a session");
    let held = Held::new(&jit.main(), &[]);
    let wait = Duration::from_secs(600);
    let replaced = {
        let jit = jit.clone();
        let second = Replacement::ir("r", &ir(2)).level(Level::Quiescent { wait });
        std::thread::spawn(move || jit.main().replace(second).map(drop))
    };
    // The first call lies on a stack with the placeholder: it goes on in some body of `f`.
    std::thread::sleep(Duration::from_millis(30));
    let first = held.end().expect("a body");
    replaced.join().expect("no panic").expect("replaced");
    assert!((1..=2).contains(&first), "{first}");
    assert_eq!(call(&jit.main(), "f"), 2);
}

#[test]
fn constructors_of_a_replacement_may_be_the_first_to_call() {
    for level in [
        Level::Immediate,
        Level::Quiescent {
            wait: Duration::from_secs(600),
        },
    ] {
        let jit = Jit::new().expect("a session");
        let five = |module: &Module<'_>| write(module, "f", 5);
        jit.main().define_lazy::<F>("f", five).expect("defined");
        jit.add_ir("m", "@w = global i64 0 define i64 @g() { ret i64 1 }")
            .expect("added");
        let ir = "@w = external global i64 declare i64 @f()
          @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
            [{ i32, ptr, ptr } { i32 65535, ptr @begin, ptr null }]
          define internal void @begin() {
            %v = call i64 @f() store i64 %v, ptr @w ret void }
          define i64 @g() { %v = load i64, ptr @w ret i64 %v }";
        // SAFETY: the constructor above.
        let replacement = unsafe { Replacement::ir("r", ir).level(level).run_constructors() };
        let replaced = jit.main().replace(replacement).expect("replaced");
        assert_eq!(replaced.functions, ["g"]);
        assert_eq!(call(&jit.main(), "g"), 5);
    }
}

#[test]
fn threads_that_define_call_and_remove_one_name_lose_no_definition() {
    const ROUNDS: u64 = 150;
    let jit = Jit::new().expect("a session");
    let dylib = jit.main();
    let last = Arc::new(AtomicU64::new(0));
    for round in 0..ROUNDS {
        // Two threads define the name at once, and two call it.
        std::thread::scope(|scope| {
            for which in 0..2 {
                let dylib = &dylib;
                scope.spawn(move || {
                    let value = 2 * round + which;
                    let body = move |module: &Module<'_>| write(module, "f", value);
                    dylib.define_lazy::<F>("f", body).expect("defined");
                    let found = call(dylib, "f") as u64;
                    assert!(found / 2 == round, "{found} in round {round}");
                });
            }
            if round > 0 {
                let (dylib, last) = (&dylib, &last);
                scope.spawn(move || {
                    let found = call(dylib, "f") as u64;
                    assert!(found / 2 == round || found == last.load(Ordering::Relaxed));
                });
            }
        });
        let found = call(&dylib, "f") as u64;
        assert_eq!(found / 2, round);
        last.store(found, Ordering::Relaxed);
    }
}

/// Its set is in no history while it is rolled back, which says nothing of its placeholder.
#[test]
fn a_lazy_function_is_not_lost_by_a_rollback_beside_its_redefinition() {
    let jit = Jit::new().expect("a session");
    let main = jit.main();
    for round in 0..300 {
        let name = format!("g{round}");
        let define = |value| {
            let own = name.clone();
            main.define_lazy::<F>(&name, move |module| write(module, &own, value))
        };
        define(1).expect("defined");
        let new = format!("define i64 @{name}() {{ ret i64 2 }}");
        let _ = main
            .replace(Replacement::ir("new", &new))
            .expect("replaced");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| define(3).expect("defined again"));
            while !other.is_finished() {
                let _ = jit.rollback();
            }
        });
        while jit.rollback().is_ok() {}
        // SAFETY: of that type.
        let function = unsafe { main.function::<F>(&name) }.expect("it is there");
        let value = function.call_guarded();
        let value = value.unwrap_or_else(|trap| panic!("round {round}: {trap}"));
        // The last redefinition may have come after the last rollback.
        assert!(value == 1 || value == 3, "round {round}: {value}");
    }
}
