//! Units of embedders through the library: stubs, first calls, linked objects, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::unit::{Log, TestUnit};
use uruk::{Alias, Flags, Jit, Lookup, SessionError, Visibility};

extern "C" fn seven() -> i64 {
    7
}

extern "C" fn eight() -> i64 {
    8
}

fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: functions of the tests, which take nothing and return a number.
    let function = unsafe { jit.function::<extern "C" fn() -> i64>(name) };
    function.expect("a function").call()
}

fn address(of: extern "C" fn() -> i64) -> u64 {
    of as *const () as u64
}

#[test]
fn a_callable_symbol_is_materialized_by_its_first_call() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::at(&jit, &[("seven()", address(seven))]).log(&log);
    jit.main().define(unit).unwrap();
    let stub = jit.lookup("seven").unwrap();
    assert_ne!(stub, address(seven));
    assert_eq!(log.all(), Vec::<String>::new());
    assert_eq!(call(&jit, "seven"), 7);
    assert_eq!(log.all(), ["materialize", "drop"]);
    assert_eq!(call(&jit, "seven"), 7);
    assert_eq!(jit.lookup("seven").unwrap(), stub);
}

#[test]
fn ir_calls_units_and_units_call_ir() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::at(&jit, &[("seven()", address(seven))]).log(&log);
    jit.main().define(unit).unwrap();
    jit.add_ir(
        "m",
        "declare i64 @seven()
         define i64 @both() { %a = call i64 @seven() %b = add i64 %a, %a ret i64 %b }",
    )
    .unwrap();
    assert_eq!(log.all(), Vec::<String>::new());
    assert_eq!(call(&jit, "both"), 14);
    // A unit that calls a function of the session while it is materialized by a first call.
    let unit = TestUnit::new(&jit, &["answer()"], |responsibility| {
        let jit = responsibility.jit().clone();
        jit.add_ir("late", "define i64 @late() { ret i64 8 }")
            .unwrap();
        assert_eq!(call(&jit, "late"), 8);
        let symbol = jit.intern("answer");
        responsibility.resolve(&[(symbol, address(eight))]).unwrap();
        responsibility.emit(&[]).unwrap();
    });
    jit.main().define(unit).unwrap();
    jit.add_ir(
        "n",
        "declare i64 @answer()
         define i64 @more() { %a = call i64 @answer() ret i64 %a }",
    )
    .unwrap();
    assert_eq!(call(&jit, "more"), 8);
}

#[test]
fn one_worker_is_enough_for_units_that_call_functions_without_code() {
    let jit = Jit::builder().jobs(1).build().unwrap();
    for depth in 0..8_u32 {
        let unit = TestUnit::new(&jit, &[&format!("u{depth}()")], move |responsibility| {
            let jit = responsibility.jit().clone();
            if depth > 0 {
                assert_eq!(call(&jit, &format!("u{}", depth - 1)), 7);
            }
            let symbol = jit.intern(&format!("u{depth}"));
            responsibility.resolve(&[(symbol, address(seven))]).unwrap();
            responsibility.emit(&[]).unwrap();
        });
        jit.main().define(unit).unwrap();
    }
    assert_eq!(call(&jit, "u7"), 7);
}

#[test]
fn a_unit_may_finish_later_and_elsewhere() {
    let jit = Jit::new().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let unit = TestUnit::new(&jit, &["late()", "data"], move |responsibility| {
        sender.send(responsibility).unwrap();
    });
    jit.main().define(unit).unwrap();
    let lookup = Lookup::new([(jit.main(), Visibility::All)]).symbol(jit.intern("data"));
    let future = jit.lookup_future(lookup);
    assert!(!future.is_done());
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || call(&jit, "late")
    });
    let responsibility = receiver.recv().unwrap();
    let symbols = [
        (jit.intern("late"), address(seven)),
        (jit.intern("data"), 0x1234),
    ];
    responsibility.resolve(&symbols).unwrap();
    responsibility.emit(&[]).unwrap();
    assert_eq!(caller.join().unwrap(), 7);
    assert_eq!(
        future.wait().unwrap().address(jit.intern("data")),
        Some(0x1234)
    );
}

/// An object that defines `twice` and its data, as a compiler makes it.
fn object() -> Vec<u8> {
    use object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
    use object::{
        Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags,
        RelocationKind, SymbolFlags, SymbolKind, SymbolScope,
    };
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = file.section_id(StandardSection::Text);
    // `sub rsp, 8; call seven; mov rcx, [rip + factor]; imul rax, [rcx]; add rsp, 8; ret`
    let code = [
        0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x0d, 0, 0, 0, 0, 0x48, 0x0f, 0xaf,
        0x01, 0x48, 0x83, 0xc4, 0x08, 0xc3,
    ];
    let at = file.append_section_data(text, &code, 16);
    let mut symbol = |name: &str, section, value, kind| {
        file.add_symbol(Symbol {
            name: name.into(),
            value,
            size: if section == SymbolSection::Undefined {
                0
            } else {
                code.len() as u64
            },
            kind,
            scope: SymbolScope::Dynamic,
            weak: false,
            section,
            flags: SymbolFlags::None,
        })
    };
    symbol("times", SymbolSection::Section(text), at, SymbolKind::Text);
    let seven = symbol("seven", SymbolSection::Undefined, 0, SymbolKind::Text);
    let factor = symbol("factor", SymbolSection::Undefined, 0, SymbolKind::Data);
    for (offset, symbol, kind) in [
        (5, seven, RelocationKind::PltRelative),
        (12, factor, RelocationKind::GotRelative),
    ] {
        let flags = RelocationFlags::Generic {
            kind,
            encoding: RelocationEncoding::Generic,
            size: 32,
        };
        let relocation = Relocation {
            offset,
            symbol,
            addend: -4,
            flags,
        };
        file.add_relocation(text, relocation).unwrap();
    }
    file.write().unwrap()
}

#[test]
fn a_unit_links_an_object_and_its_dependences_are_found() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::new(&jit, &["times()"], |responsibility| {
        responsibility.link("times.o", object()).unwrap();
    });
    jit.main().define(unit).unwrap();
    jit.main()
        .define(TestUnit::at(&jit, &[("seven()", address(seven))]))
        .unwrap();
    static FACTOR: AtomicU64 = AtomicU64::new(6);
    let factor = TestUnit::at(&jit, &[("factor", FACTOR.as_ptr() as u64)]).log(&log);
    jit.main().define(factor).unwrap();
    assert_eq!(log.all(), Vec::<String>::new());
    assert_eq!(call(&jit, "times"), 42);
    assert_eq!(log.all(), ["materialize", "drop"]);
}

#[test]
fn a_linked_body_is_not_called_before_its_dependences_are_ready() {
    let jit = Jit::new().unwrap();
    let unit = TestUnit::new(&jit, &["times()"], |responsibility| {
        responsibility.link("times.o", object()).unwrap();
    });
    jit.main().define(unit).unwrap();
    jit.main()
        .define(TestUnit::at(&jit, &[("seven()", address(seven))]))
        .unwrap();
    let factor = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    let at = factor.as_ptr() as u64;
    let data = TestUnit::new(&jit, &["factor"], move |responsibility| {
        let symbol = responsibility.jit().intern("factor");
        responsibility.resolve(&[(symbol, at)]).unwrap();
        sender.send(responsibility).unwrap();
    });
    jit.main().define(data).unwrap();
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || call(&jit, "times")
    });
    let responsibility = receiver.recv().unwrap();
    // It has its address, and is not written yet: who ran now would read a zero.
    factor.store(5, Ordering::Relaxed);
    responsibility.emit(&[]).unwrap();
    assert_eq!(caller.join().unwrap(), 35);
}

#[test]
fn a_unit_that_fails_is_told_with_its_names() {
    let jit = Jit::new().unwrap();
    let unit = TestUnit::new(&jit, &["broken()"], |responsibility| {
        responsibility.fail(SessionError::unit("broken", "no such luck"));
    });
    jit.main().define(unit).unwrap();
    let error = jit.main().compile("broken").unwrap_err().to_string();
    assert!(
        error.contains("broken") && !error.contains("uruk.unit"),
        "{error}"
    );
    // The next asks again, and learns the same.
    assert!(jit.main().compile("broken").is_err());
}

#[test]
fn weak_stubs_give_way_and_take_their_bodies_along() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    let (first, second, third) = (Log::default(), Log::default(), Log::default());
    let weak = |at, log: &Log| {
        TestUnit::at(&jit, &[("f()", at)])
            .flags(Flags::WEAK)
            .log(log)
    };
    main.define(weak(address(seven), &first)).unwrap();
    main.define(weak(address(eight), &second)).unwrap();
    assert_eq!(second.all(), ["discard f", "drop"]);
    assert_eq!(first.all(), Vec::<String>::new());
    // A strong one that comes before anybody asked takes the place of the first.
    main.define(TestUnit::at(&jit, &[("f()", address(eight))]).log(&third))
        .unwrap();
    assert_eq!(first.all(), ["discard f", "drop"]);
    assert_eq!(call(&jit, "f"), 8);
    // Now it is known.
    let error = main
        .define(TestUnit::at(&jit, &[("f()", address(seven))]))
        .unwrap_err();
    assert!(
        matches!(error, uruk::Error::Session(SessionError::Duplicate(_))),
        "{error}"
    );
    assert_eq!(call(&jit, "f"), 8);
}

#[test]
fn a_removed_unit_comes_back_under_the_same_stub() {
    let jit = Jit::new().unwrap();
    let tracker = jit.main().create_tracker().unwrap();
    tracker
        .define(TestUnit::at(&jit, &[("f()", address(seven))]))
        .unwrap();
    jit.add_ir(
        "m",
        "declare i64 @f()
         define i64 @g() { %a = call i64 @f() ret i64 %a }",
    )
    .unwrap();
    assert_eq!(call(&jit, "g"), 7);
    let alias = Alias {
        name: jit.intern("h"),
        target: jit.intern("f"),
        flags: Flags::EXPORTED | Flags::CALLABLE,
    };
    jit.main().alias([alias]).unwrap();
    assert_eq!(call(&jit, "h"), 7);
    // SAFETY: no thread calls it.
    unsafe { tracker.remove().unwrap() };
    jit.main()
        .define(TestUnit::at(&jit, &[("f()", address(eight))]))
        .unwrap();
    assert_eq!(call(&jit, "g"), 8);
}

extern "C" fn lost() -> i64 {
    -1
}

/// Callers that were compiled and linked before go to the failure handler once a linked function is
/// undefined.
#[test]
fn an_undefined_function_that_was_linked_is_not_called_again() {
    let builder = Jit::builder().on_failed_call(Arc::new(|_| lost as *const ()));
    let jit = builder.build().unwrap();
    let main = jit.main();
    static FACTOR: AtomicU64 = AtomicU64::new(6);
    main.define(TestUnit::at(&jit, &[("factor", FACTOR.as_ptr() as u64)]))
        .unwrap();
    main.define(TestUnit::at(&jit, &[("seven()", address(seven))]))
        .unwrap();
    let times = || {
        TestUnit::new(&jit, &["times()"], |responsibility| {
            responsibility.link("times.o", object()).unwrap();
        })
    };
    main.define(times()).unwrap();
    jit.add_ir(
        "m",
        "declare i64 @times()
         define i64 @caller() { %a = call i64 @times() ret i64 %a }",
    )
    .unwrap();
    let symbol = [jit.intern("times")];
    let undefine = || {
        // SAFETY: no thread is inside, and there is no data.
        unsafe { main.undefine(&symbol) }.unwrap();
    };
    for called in [true, false] {
        // Else it has its address, and was not called.
        let stub = jit.lookup("times").unwrap();
        if called {
            assert_eq!(call(&jit, "caller"), 42);
        }
        undefine();
        // The C library has one, too.
        assert_ne!(jit.lookup("times").ok(), Some(stub));
        assert_eq!(call(&jit, "caller"), -1);
        main.define(TestUnit::at(&jit, &[("times()", address(eight))]))
            .unwrap();
        assert_eq!(call(&jit, "caller"), 8);
        assert_eq!(call(&jit, "times"), 8);
        undefine();
        main.define(times()).unwrap();
        assert_eq!(call(&jit, "caller"), 42);
        undefine();
        main.define(times()).unwrap();
    }
}
