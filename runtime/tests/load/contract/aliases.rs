//! Other names for symbols, within a dylib and across dylibs.

use uruk::{Alias, Flags, Jit, Required, SessionError, SymbolState, Visibility};

use crate::unit::*;

const NOTHING: [&str; 0] = [];

fn alias(jit: &Jit, name: &str, target: &str) -> Alias {
    Alias {
        name: jit.intern(name),
        target: jit.intern(target),
        flags: Flags::EXPORTED,
    }
}

#[test]
fn an_alias_has_the_address_of_its_target() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    jit.main().alias([alias(&jit, "a", "b")]).unwrap();
    let unit = TestUnit::plain(&jit, &["b"]).log(&log);
    jit.main().define(unit).unwrap();
    assert_eq!(log.all(), NOTHING);
    assert_eq!(jit.lookup("a").unwrap(), place(jit.intern("b")));
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn aliases_may_be_chained_in_one_unit_and_over_several() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    main.define(TestUnit::plain(&jit, &["d"])).unwrap();
    main.alias([alias(&jit, "a", "b"), alias(&jit, "b", "c")])
        .unwrap();
    main.alias([alias(&jit, "c", "d")]).unwrap();
    let found = start(&jit, &["a", "b", "c"], Required::Ready)
        .wait()
        .unwrap();
    for found in &found {
        assert_eq!(found.address, place(jit.intern("d")));
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn an_alias_is_ready_when_its_target_is() {
    let jit = Jit::new().unwrap();
    jit.main().alias([alias(&jit, "a", "b")]).unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["b"]);
    jit.main().define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let responsibility = kept.take();
    resolve(&responsibility).unwrap();
    let state = jit.main().state_of(jit.intern("a"));
    assert_eq!(state, Some(SymbolState::Emitted));
    assert!(!future.is_done());
    responsibility.emit(&[]).unwrap();
    assert!(future.is_done());
}

#[test]
fn an_alias_fails_with_its_target() {
    let (jit, _) = reporting();
    jit.main().alias([alias(&jit, "a", "b")]).unwrap();
    jit.main().define(TestUnit::failing(&jit, &["b"])).unwrap();
    let error = failure(&jit, &["a"]);
    assert!(names(&error).contains(&"a".to_owned()), "{error}");
}

#[test]
fn a_strong_definition_takes_the_place_of_a_weak_alias() {
    let jit = Jit::new().unwrap();
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    let weak = Alias {
        flags: Flags::EXPORTED | Flags::WEAK,
        ..alias(&jit, "a", "b")
    };
    jit.main().alias([weak]).unwrap();
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), place(jit.intern("a")));
    // And a strong alias is a duplicate.
    let error = session(jit.main().alias([alias(&jit, "a", "b")]));
    assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
}

#[test]
fn an_alias_whose_target_comes_later_is_found_then() {
    let (jit, _) = reporting();
    jit.main().alias([alias(&jit, "a", "b")]).unwrap();
    for _ in 0..2 {
        let error = failure(&jit, &["a"]);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "symbols not found: main: {b}");
    }
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), place(jit.intern("b")));
}

#[test]
fn reexports_rename_and_only_what_is_asked_for_is_materialized() {
    let jit = Jit::new().unwrap();
    let library = jit.create_dylib("LibM").unwrap();
    let (log_n, log_k) = (Log::default(), Log::default());
    library
        .define(TestUnit::plain(&jit, &["n"]).log(&log_n))
        .unwrap();
    library
        .define(TestUnit::plain(&jit, &["k"]).log(&log_k))
        .unwrap();
    let renamed = [alias(&jit, "M_n", "n"), alias(&jit, "M_k", "k")];
    jit.main()
        .reexport(&library, Visibility::Exported, renamed)
        .unwrap();
    assert_eq!(jit.lookup("M_n").unwrap(), place(jit.intern("n")));
    assert_eq!(log_n.until_dropped(), ["materialize", "drop"]);
    assert_eq!(log_k.all(), NOTHING);
    let state = jit.main().state_of(jit.intern("M_k"));
    assert_eq!(state, Some(SymbolState::NeverSearched));
}

#[test]
fn a_reexport_that_nobody_used_can_be_removed() {
    let jit = Jit::new().unwrap();
    let library = jit.create_dylib("library").unwrap();
    library.define(TestUnit::plain(&jit, &["a"])).unwrap();
    let same = alias(&jit, "a", "a");
    let seen = Visibility::Exported;
    jit.main().reexport(&library, seen, [same]).unwrap();
    // SAFETY: no thread uses it.
    unsafe { jit.main().undefine(&[same.name]).unwrap() };
    assert!(jit.lookup("a").is_err());
    jit.main().reexport(&library, seen, [same]).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), place(same.name));
}

#[test]
fn a_reexport_sees_hidden_symbols_only_if_all_are_to_be_seen() {
    let (jit, _) = reporting();
    let library = jit.create_dylib("library").unwrap();
    let unit = TestUnit::plain(&jit, &["a"]).without(Flags::EXPORTED);
    library.define(unit).unwrap();
    let main = jit.main();
    let renamed = [alias(&jit, "b", "a")];
    main.reexport(&library, Visibility::Exported, renamed)
        .unwrap();
    assert!(jit.lookup("b").is_err());
    let renamed = [alias(&jit, "c", "a")];
    main.reexport(&library, Visibility::All, renamed).unwrap();
    assert_eq!(jit.lookup("c").unwrap(), place(jit.intern("a")));
}

#[test]
fn everything_of_a_dylib_can_be_reexported_with_a_filter() {
    let jit = Jit::new().unwrap();
    let library = jit.create_dylib("library").unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a"]).log(&log);
    library.define(unit).unwrap();
    library.define(TestUnit::plain(&jit, &["b"])).unwrap();
    let generator = jit
        .main()
        .reexport_all(&library, Visibility::Exported, |name| name != "b")
        .unwrap();
    // The flags are known before anything is materialized.
    let a = jit.intern("a");
    let flags = jit.lookup_flags(ask(&jit).symbol(a)).unwrap();
    assert_eq!(flags, [(a, Flags::EXPORTED)]);
    assert_eq!(log.all(), NOTHING);
    assert_eq!(jit.lookup("a").unwrap(), place(a));
    assert_eq!(names(&failure(&jit, &["b"])), ["b"]);
    // A later definition is there, too, as long as the generator is.
    library.define(TestUnit::plain(&jit, &["c", "d"])).unwrap();
    assert!(jit.lookup("c").is_ok());
    assert!(jit.main().remove_generator(generator));
    assert!(jit.lookup("d").is_err() && jit.lookup("c").is_ok());
}

#[test]
fn a_lookup_in_a_circle_of_aliases_is_an_error_that_names_it() {
    let (jit, _) = reporting();
    let main = jit.main();
    main.alias([alias(&jit, "self", "self")]).unwrap();
    main.alias([alias(&jit, "a", "b"), alias(&jit, "b", "a")])
        .unwrap();
    let other = jit.create_dylib("other").unwrap();
    let seen = Visibility::All;
    main.reexport(&other, seen, [alias(&jit, "x", "y")])
        .unwrap();
    other
        .reexport(&main, seen, [alias(&jit, "y", "x")])
        .unwrap();
    for (name, circle) in [("self", "self"), ("a", "b"), ("x", "y")] {
        let error = failure(&jit, &[name]);
        let SessionError::Failed { cause, .. } = &error else {
            panic!("{error:?}");
        };
        let cause = cause.as_ref().unwrap();
        assert!(cause.to_string().contains(circle), "{cause}");
        assert!(matches!(**cause, SessionError::AliasCycle(_)), "{cause}");
    }
}

#[test]
fn an_alias_of_a_function_means_its_stub_and_has_nothing_materialized() {
    let (jit, _) = reporting();
    let library = jit.create_dylib("library").unwrap();
    let log = Log::default();
    let tracker = library.create_tracker().unwrap();
    let unit = TestUnit::at(&jit, &[("seven()", address(seven))]).log(&log);
    tracker.define(unit).unwrap();
    let renamed = Alias {
        flags: Flags::EXPORTED | Flags::CALLABLE,
        ..alias(&jit, "f", "seven")
    };
    let seen = Visibility::Exported;
    jit.main().reexport(&library, seen, [renamed]).unwrap();
    let stub = library.lookup("seven").unwrap();
    assert_eq!(jit.lookup("f").unwrap(), stub);
    assert_eq!(log.all(), NOTHING);
    assert_eq!(call(&jit, "f"), 7);
    // Called again, it is not materialized again.
    assert_eq!(call(&jit, "f"), 7);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    // SAFETY: no thread calls it before it is there again.
    unsafe { tracker.remove().unwrap() };
    library
        .define(TestUnit::at(&jit, &[("seven()", address(eight))]))
        .unwrap();
    assert_eq!(call(&jit, "f"), 8);
}
