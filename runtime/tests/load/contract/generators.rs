//! Generators: a dylib asks them for symbols that it does not have.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use uruk::{
    Dylib, Error, Flags, Generator, GeneratorRequest, Jit, Lookup, LookupKind, Need, Required,
    SessionError, Visibility,
};

use crate::unit::*;

/// Keeps what it is asked.
#[derive(Clone, Default)]
struct Keeping(Arc<Mutex<Vec<GeneratorRequest>>>);

impl Generator for Keeping {
    fn generate(&self, ask: GeneratorRequest) {
        self.0.lock().unwrap().push(ask);
    }
}

impl Keeping {
    fn one(&self) -> GeneratorRequest {
        let mut asks = self.0.lock().unwrap();
        assert_eq!(asks.len(), 1, "one lookup at a time");
        asks.pop().unwrap()
    }
}

/// Defines what is missing where [`place`] says.
fn define_missing(ask: &GeneratorRequest) -> Result<(), Error> {
    let missing = ask.missing().iter();
    let missing = missing.map(|(symbol, _)| (*symbol, place(*symbol), Flags::EXPORTED));
    // SAFETY: no thread uses the addresses.
    unsafe { ask.dylib().define_addresses(missing) }
}

#[test]
fn a_generator_is_asked_for_what_is_still_missing() {
    let jit = Jit::new().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.intern(name));
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    let log = Log::default();
    let told = log.clone();
    let asked = move |ask: &GeneratorRequest| {
        for (symbol, need) in ask.missing() {
            let name = ask.jit().name_of(*symbol);
            told.push(format!("{name} {need:?} {:?}", ask.kind()));
        }
        // `b` only, and once.
        match ask.missing().iter().any(|(symbol, _)| *symbol == b) {
            true => ask.dylib().define(TestUnit::plain(ask.jit(), &["b"])),
            false => Ok(()),
        }
    };
    jit.main().add_generator(asked).unwrap();
    let found = jit.lookup_all(ask(&jit).symbols([a, b])).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(log.all(), ["b Required Static"]);
    // A symbol that the generator made is there from then on. A symbol that it does not make is
    // missing.
    jit.lookup_all(ask(&jit).symbols([a, b])).unwrap();
    let lookup = ask(&jit).symbol(b).weak(c).kind(LookupKind::Dlsym);
    assert_eq!(jit.lookup_all(lookup).unwrap().len(), 1);
    assert_eq!(log.all(), ["b Required Static", "c Weak Dlsym"]);
    assert_eq!(names(&failure(&jit, &["a", "c"])), ["c"]);
}

#[test]
fn later_generators_are_asked_for_what_earlier_ones_left() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    for name in ["a", "b"] {
        let told = log.clone();
        let asked = move |ask: &GeneratorRequest| {
            let missing = ask.missing().iter();
            let missing: Vec<_> = missing.map(|(s, _)| ask.jit().name_of(*s)).collect();
            told.push(missing.join(" "));
            ask.dylib().define(TestUnit::plain(ask.jit(), &[name]))
        };
        jit.main().add_generator(asked).unwrap();
    }
    start(&jit, &["a", "b"], Required::Ready).wait().unwrap();
    assert_eq!(log.all(), ["a b", "b"]);
}

#[test]
fn a_generator_may_answer_later_with_definitions_or_an_error() {
    for fails in [false, true] {
        let jit = Jit::new().unwrap();
        let keeping = Keeping::default();
        jit.main().add_generator(keeping.clone()).unwrap();
        let future = start(&jit, &["a"], Required::Ready);
        assert!(!future.is_done());
        let ask = keeping.one();
        assert_eq!(ask.missing(), [(jit.intern("a"), Need::Required)]);
        if fails {
            ask.finish(Err(oops()));
            let error = session(future.wait().map(drop));
            assert!(matches!(error, SessionError::Unit { .. }), "{error}");
        } else {
            define_missing(&ask).unwrap();
            ask.finish(Ok::<(), SessionError>(()));
            assert_eq!(future.wait().unwrap().len(), 1);
        }
    }
}

#[test]
fn a_generators_failure_reaches_lookups_of_addresses_and_of_flags() {
    let jit = Jit::new().unwrap();
    let generator = |_: &GeneratorRequest| Err(oops().into());
    jit.main().add_generator(generator).unwrap();
    let a = jit.intern("a");
    let failed = |error: SessionError| {
        assert!(matches!(error, SessionError::Unit { .. }), "{error}");
    };
    failed(failure(&jit, &["a"]));
    failed(session(jit.lookup_all(ask(&jit).weak(a)).map(drop)));
    failed(session(jit.lookup_flags(ask(&jit).symbol(a)).map(drop)));
    failed(session(jit.lookup_flags(ask(&jit).weak(a)).map(drop)));
    failed(session(jit.lookup("a").map(drop)));
}

#[test]
fn four_lookups_pass_a_suspended_generator_in_order() {
    let jit = Jit::new().unwrap();
    let keeping = Keeping::default();
    jit.main().add_generator(keeping.clone()).unwrap();
    let symbols = ["a", "b", "c", "d"];
    let futures = symbols.map(|name| start(&jit, &[name], Required::Ready));
    for (name, future) in symbols.iter().zip(&futures) {
        let ask = keeping.one();
        assert_eq!(ask.missing(), [(jit.intern(name), Need::Required)]);
        assert!(!future.is_done());
        define_missing(&ask).unwrap();
        ask.finish(Ok::<(), SessionError>(()));
        future.wait().unwrap();
    }
    assert!(keeping.0.lock().unwrap().is_empty());
}

#[test]
fn who_stands_in_line_and_finds_its_symbol_passes() {
    let jit = Jit::new().unwrap();
    let keeping = Keeping::default();
    jit.main().add_generator(keeping.clone()).unwrap();
    let [first, second, third] = ["a", "b", "c"].map(|name| start(&jit, &[name], Required::Ready));
    let ask = keeping.one();
    jit.main()
        .define(TestUnit::plain(&jit, &["a", "b"]))
        .unwrap();
    ask.finish(Ok::<(), SessionError>(()));
    assert!(first.is_done() && second.is_done() && !third.is_done());
    let ask = keeping.one();
    define_missing(&ask).unwrap();
    ask.finish(Ok::<(), SessionError>(()));
    third.wait().unwrap();
}

#[test]
fn a_generator_that_is_removed_meanwhile_is_an_error_of_who_is_in_it() {
    let jit = Jit::new().unwrap();
    let keeping = Keeping::default();
    let id = jit.main().add_generator(keeping.clone()).unwrap();
    let inside = start(&jit, &["a"], Required::Ready);
    let waiting = start(&jit, &["b"], Required::Ready);
    assert!(jit.main().remove_generator(id));
    assert!(!jit.main().remove_generator(id));
    let removed = |error| matches!(error, SessionError::GeneratorRemoved { .. });
    assert!(removed(session(waiting.wait().map(drop))));
    keeping.one().finish(Ok::<(), SessionError>(()));
    assert!(removed(session(inside.wait().map(drop))));
    let error = failure(&jit, &["a"]);
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
}

#[test]
fn a_question_that_is_dropped_is_an_error_of_the_lookup() {
    let (jit, reports) = reporting();
    let keeping = Keeping::default();
    jit.main().add_generator(keeping.clone()).unwrap();
    let abandoned = |error| matches!(error, SessionError::GeneratorAbandoned { .. });
    let future = start(&jit, &["a"], Required::Ready);
    drop(keeping.one());
    assert!(abandoned(session(future.wait().map(drop))));
    // So does one that panics, which is reported.
    let other = jit.create_dylib("other").unwrap();
    other
        .add_generator(|_: &GeneratorRequest| panic!("a bad generator"))
        .unwrap();
    assert!(abandoned(session(other.lookup("a").map(drop))));
    let last = reports.lock().unwrap().pop().unwrap().to_string();
    assert!(last.contains("a bad generator"), "{last}");
    // The next one is asked.
    let future = start(&jit, &["b"], Required::Ready);
    define_missing(&keeping.one()).unwrap();
    assert!(future.is_done());
}

#[test]
fn a_generator_of_an_earlier_dylib_comes_before_what_a_later_one_has() {
    let jit = Jit::new().unwrap();
    let other = jit.create_bare_dylib("other").unwrap();
    other.define(TestUnit::at(&jit, &[("a", 1)])).unwrap();
    let a = jit.intern("a");
    let order = [(jit.main(), Visibility::All), (other, Visibility::All)];
    let found = || {
        let found = jit.lookup_all(Lookup::new(order.clone()).symbol(a));
        found.unwrap().address(a).unwrap()
    };
    assert_eq!(found(), 1);
    jit.main()
        .add_generator(|ask: &GeneratorRequest| define_missing(ask))
        .unwrap();
    assert_eq!(found(), place(a));
}

/// Looks up what a symbol needs, and then defines it.
struct Needs(fn(&str) -> Option<&'static str>);

impl Generator for Needs {
    fn generate(&self, ask: GeneratorRequest) {
        let needed = ask.missing().iter();
        let needed = needed.filter_map(|(symbol, _)| (self.0)(ask.jit().name_of(*symbol)));
        let needed: Vec<_> = needed.collect();
        let mut found = needed.iter().map(|name| ask.dylib().lookup(name));
        let answer = found.try_for_each(|found| found.map(drop));
        let answer = answer.and_then(|()| define_missing(&ask));
        ask.finish(answer);
    }
}

#[test]
fn a_generator_may_look_up_other_symbols_of_its_own() {
    within("a generator that looks up", || {
        let jit = Jit::new().unwrap();
        let needs = Needs(|name| match name {
            "a" => Some("b"),
            "b" => Some("c"),
            _ => None,
        });
        jit.main().add_generator(needs).unwrap();
        assert!(jit.lookup("a").is_ok() && jit.lookup("c").is_ok());
    });
}

#[test]
fn a_generator_that_needs_its_own_answer_is_an_error_that_names_the_circle() {
    let error = within("a generator that needs itself", || {
        let jit = Jit::new().unwrap();
        let needs = Needs(|name| match name {
            "a" => Some("b"),
            _ => Some("a"),
        });
        jit.main().add_generator(needs).unwrap();
        failure(&jit, &["a"])
    });
    assert!(matches!(error, SessionError::GeneratorCycle(_)), "{error}");
    assert_eq!(names(&error), ["a"]);
}

#[test]
fn who_answers_on_another_thread_can_say_for_whom_it_looks_up() {
    struct Later;
    impl Generator for Later {
        fn generate(&self, ask: GeneratorRequest) {
            std::thread::spawn(move || {
                let found = ask.scope(|| ask.dylib().lookup("a"));
                ask.finish(found.map(drop));
            });
        }
    }
    let error = within("an answer from another thread", || {
        let jit = Jit::new().unwrap();
        jit.main().add_generator(Later).unwrap();
        failure(&jit, &["a"])
    });
    assert!(matches!(error, SessionError::GeneratorCycle(_)), "{error}");
}

#[test]
fn functions_that_a_generator_defines_are_materialized_when_called() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let told = log.clone();
    let generator = move |ask: &GeneratorRequest| {
        let named = |name| {
            ask.missing()
                .iter()
                .any(|(s, _)| *s == ask.jit().intern(name))
        };
        if !named("seven") {
            return Ok(());
        }
        let unit = TestUnit::at(ask.jit(), &[("seven()", address(seven))]);
        ask.dylib().define(unit.log(&told))
    };
    jit.main().add_generator(generator).unwrap();
    jit.add_ir(
        "m",
        "declare i64 @seven()
         define i64 @f() { %v = call i64 @seven() ret i64 %v }",
    )
    .unwrap();
    assert_eq!(call(&jit, "f"), 7);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn the_process_and_its_libraries_are_found_where_a_filter_allows() {
    let jit = Jit::new().unwrap();
    let bare = |name| jit.create_bare_dylib(name).unwrap();
    let (process, library) = (bare("of the process"), bare("of a library"));
    let found = |dylib: &Dylib, name: &str| dylib.lookup(name).is_ok();
    process
        .add_process_symbols(|name| name != "strchr")
        .unwrap();
    assert!(found(&process, "strlen") && !found(&process, "strchr"));
    let id = library
        .add_library(Path::new("libm.so.6"), |name| name != "sin")
        .unwrap();
    assert!(found(&library, "cos") && !found(&library, "sin"));
    // SAFETY: it is libm's.
    let cos = unsafe { library.function::<extern "C" fn(f64) -> f64>("cos") };
    assert!(matches!(cos, Err(Error::NotAFunction { .. })));
    assert!(library.remove_generator(id));
    assert!(found(&library, "cos") && !found(&library, "tan"));
    let error = library.add_library(Path::new("no such library"), |_| true);
    assert!(matches!(error, Err(Error::Library { .. })));
}

#[test]
fn globals_of_the_host_are_asked_for_lazily_and_a_modules_weak_copy_yields_to_them() {
    static COUNTER: AtomicI64 = AtomicI64::new(40);
    static INTERNAL: AtomicI64 = AtomicI64::new(2);
    let jit = Jit::new().unwrap();
    let host = jit.create_bare_dylib("the globals").unwrap();
    let asked = Log::default();
    let log = asked.clone();
    let table = move |ask: &GeneratorRequest| {
        let found = ask.missing().iter().filter_map(|(symbol, _)| {
            let name = ask.jit().name_of(*symbol);
            log.push(name);
            let global = match name {
                "counter" => &COUNTER,
                "host::internal" => &INTERNAL,
                _ => return None,
            };
            let address = std::ptr::from_ref(global) as u64;
            Some((*symbol, address, Flags::EXPORTED))
        });
        let found: Vec<_> = found.collect();
        // SAFETY: statics, which modules take for numbers of that size.
        unsafe { ask.dylib().define_addresses(found) }
    };
    host.add_generator(table).unwrap();
    jit.main().add_to_link_order(&host).unwrap();
    assert!(asked.all().is_empty());
    let ir = r#"
        @counter = weak global i64 7
        @own = weak global i64 100
        @"host::internal" = external global i64
        define i64 @sum() {
            %c = load i64, ptr @counter
            %d = add i64 %c, 1
            store i64 %d, ptr @counter
            %i = load i64, ptr @"host::internal"
            %o = load i64, ptr @own
            %s = add i64 %c, %i
            %t = add i64 %s, %o
            ret i64 %t
        }"#;
    jit.add_ir("m", ir).unwrap();
    assert_eq!(call(&jit, "sum"), 40 + 2 + 100);
    assert_eq!(COUNTER.load(Ordering::Relaxed), 41);
    assert!(!asked.all().contains(&"never".to_owned()));
    let never = jit.lookup("never");
    assert!(never.is_err() && asked.all().contains(&"never".to_owned()));
}

#[test]
fn generators_that_look_into_each_other_on_several_threads_end_as_on_one() {
    for count in [2, 3, 5] {
        let jit = Jit::new().unwrap();
        let all = Arc::new(Barrier::new(count));
        let name = |at: usize| format!("d{}", at % count);
        for at in 0..count {
            let dylib = jit.create_dylib(&name(at)).unwrap();
            let (weak, all, other) = (jit.downgrade(), Arc::clone(&all), name(at + 1));
            let generator = move |ask: &GeneratorRequest| {
                // All are inside at once, each time that one looks into the next.
                let (symbol, _) = ask.missing()[0];
                if ask.jit().name_of(symbol) == "first" {
                    all.wait();
                }
                let jit = weak.upgrade().unwrap();
                let found = jit.dylib(&other).unwrap().lookup("second");
                assert!(found.is_err());
                Ok(())
            };
            dylib.add_generator(generator).unwrap();
        }
        let threads: Vec<_> = (0..count)
            .map(|at| {
                let dylib = jit.dylib(&name(at)).unwrap();
                std::thread::spawn(move || dylib.lookup("first").unwrap_err().to_string())
            })
            .collect();
        for thread in threads {
            let told = thread.join().unwrap();
            assert!(
                told.contains("undefined") && told.contains("first"),
                "{told}"
            );
        }
    }
}
