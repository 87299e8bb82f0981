//! Units and generators that do not keep their promises, and handles of what is gone: an error
//! each time, with all names in it, and nothing is poisoned.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{
    Alias, DependenceGroup, Dylib, Error, Flags, Generator, GeneratorRequest, Interface, Jit,
    Lookup, Removal, Required, Responsibility, SessionError, Symbol, Unit, Visibility,
};

use crate::unit::*;

/// That the session goes on as if nothing had been.
fn goes_on(jit: &Jit) {
    let tracker = jit.main().create_tracker().unwrap();
    let unit = TestUnit::at(jit, &[("well", 0x10), ("well_done()", address(seven))]);
    tracker.define(unit).unwrap();
    assert_eq!(
        (jit.lookup("well").unwrap(), call(jit, "well_done")),
        (0x10, 7)
    );
    // SAFETY: no thread uses them.
    unsafe { tracker.remove().unwrap() };
}

/// The cause of a failed lookup of `a`, whose unit does `work` for `a` and `b`.
fn cause(jit: &Jit, work: impl FnOnce(Responsibility) + Send + 'static) -> SessionError {
    let unit = TestUnit::new(jit, &["a", "b"], work);
    jit.main().define(unit).unwrap();
    let error = failure(jit, &["a"]);
    assert_eq!(names(&error), ["a", "b"], "{error}");
    let SessionError::Failed { cause, .. } = error else {
        panic!("{error:?}");
    };
    goes_on(jit);
    SessionError::clone(&cause.expect("a cause"))
}

#[test]
fn a_unit_that_emits_too_little_has_failed_for_what_it_lacks() {
    let (jit, _) = reporting();
    let a = jit.intern("a");
    let error = cause(&jit, move |work| {
        work.resolve(&[(a, 1)]).unwrap();
        assert!(work.emit(&[]).is_err());
    });
    assert!(matches!(error, SessionError::Unresolved(_)), "{error}");
    assert_eq!(names(&error), ["b"]);
}

#[test]
fn a_unit_that_emits_too_much_has_failed_for_what_is_not_its_own() {
    let (jit, _) = reporting();
    jit.main()
        .define(TestUnit::plain(&jit, &["c", "d"]))
        .unwrap();
    let [c, d] = ["c", "d"].map(|name| jit.intern(name));
    let error = cause(&jit, move |work| {
        let foreign = work.resolve(&[(c, 1), (d, 1)]).unwrap_err();
        assert_eq!(names(&foreign), ["c", "d"]);
        resolve(&work).unwrap();
        let group = DependenceGroup {
            symbols: vec![c, d],
            dependences: Vec::new(),
        };
        assert!(work.emit(&[group]).is_err());
    });
    assert!(matches!(error, SessionError::NotResponsible(_)), "{error}");
    assert_eq!(names(&error), ["c", "d"]);
    assert_eq!(jit.lookup("c").unwrap(), place(c));
}

#[test]
fn a_symbol_is_given_one_address() {
    let (jit, _) = reporting();
    let a = jit.intern("a");
    let b = jit.intern("b");
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    jit.main().define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let mut work = kept.take();
    let several = work.resolve(&[(a, 1), (a, 2), (a, 3)]).unwrap_err();
    assert!(
        matches!(several, SessionError::SeveralAddresses(_)),
        "{several}"
    );
    assert_eq!(names(&several), ["a"]);
    work.resolve(&[(a, 2), (a, 2), (b, 1)]).unwrap();
    let again = work.resolve(&[(a, 1)]).unwrap_err();
    assert!(
        matches!(again, SessionError::SeveralAddresses(_)),
        "{again}"
    );
    let part = work.delegate(&[a]).unwrap();
    // A symbol that was passed on can be neither resolved nor delegated again.
    assert!(work.resolve(&[(a, 3)]).is_err());
    assert!(work.delegate(&[a]).is_err());
    part.emit(&[]).unwrap();
    assert_eq!(future.wait().unwrap().address(a), Some(2));
    assert!(work.resolve(&[(a, 4)]).is_err());
    assert!(work.claim(&[(a, Flags::EXPORTED)]).is_err());
    work.emit(&[]).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), 2);
    goes_on(&jit);
}

#[test]
fn a_unit_that_panics_has_abandoned_its_symbols() {
    let (jit, reports) = reporting();
    let error = cause(&jit, |work| {
        resolve(&work).unwrap();
        panic!("a bad unit");
    });
    assert!(matches!(error, SessionError::Abandoned(_)), "{error}");
    let last = reports.lock().unwrap().pop().unwrap();
    assert!(matches!(last, SessionError::Panicked { .. }), "{last}");
}

#[test]
fn a_unit_that_panics_when_it_is_told_a_discard_is_reported() {
    struct Bad(Symbol);
    impl Unit for Bad {
        fn name(&self) -> &str {
            "bad"
        }
        fn interface(&self) -> Interface {
            let weak = Flags::EXPORTED | Flags::WEAK;
            [(self.0, weak)].into_iter().collect()
        }
        fn materialize(self: Box<Self>, work: Responsibility) {
            finish(work);
        }
        fn discard(&mut self, _: &Dylib, _: Symbol) {
            panic!("a bad discard");
        }
    }
    let (jit, reports) = reporting();
    jit.main().define(Bad(jit.intern("a"))).unwrap();
    jit.main().define(TestUnit::at(&jit, &[("a", 2)])).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), 2);
    let last = reports.lock().unwrap().pop().unwrap().to_string();
    assert!(last.contains("a bad discard"), "{last}");
    goes_on(&jit);
}

#[test]
fn a_unit_whose_object_is_none_or_lacks_what_was_promised_has_failed() {
    let (jit, _) = reporting();
    let unit = TestUnit::new(&jit, &["a", "f()"], |work| {
        assert!(work.link("none", *b"\x7fELF and nothing").is_err());
    });
    jit.main().define(unit).unwrap();
    assert_eq!(names(&failure(&jit, &["a"])), ["a", "f"]);
    assert_eq!(call(&jit, "f"), -1);
    let empty = object::write::Object::new(
        object::BinaryFormat::Elf,
        object::Architecture::X86_64,
        object::Endianness::Little,
    );
    let bytes = empty.write().unwrap();
    let unit = TestUnit::new(&jit, &["b", "g()"], move |work| {
        let Err(Error::MissingSymbols { missing }) = work.link("empty", bytes) else {
            panic!("it was linked, or failed otherwise");
        };
        let mut missing: Vec<_> = missing.into_iter().map(|m| m.symbol).collect();
        missing.sort();
        assert_eq!(missing, ["b", "g"]);
    });
    jit.main().define(unit).unwrap();
    assert_eq!(call(&jit, "g"), -1);
    assert_eq!(names(&failure(&jit, &["b"])), ["b"]);
    goes_on(&jit);
}

#[test]
fn a_unit_that_needs_itself_does_not_hang() {
    let (jit, _) = reporting();
    let a = jit.intern("a");
    let unit = TestUnit::new(&jit, &["a"], move |work| {
        let lookup = ask(work.jit()).symbol(a);
        let own = work.jit().lookup_future(lookup);
        assert!(own.wait_for(Duration::ZERO).is_none());
        finish(work);
        assert_eq!(own.wait().unwrap().address(a), Some(place(a)));
    });
    jit.main().define(unit).unwrap();
    within("a unit that needs itself", move || jit.lookup("a").unwrap());
}

#[test]
fn circles_of_aliases_generators_and_link_orders_end_in_errors() {
    let error = within("a lookup in circles", || {
        let (jit, _) = reporting();
        let [p, q, r] = ["p", "q", "r"].map(|name| jit.create_dylib(name).unwrap());
        for (from, to) in [(&p, &q), (&q, &r), (&r, &p)] {
            from.add_to_link_order(to).unwrap();
            from.reexport_all(to, Visibility::All, |_| true).unwrap();
        }
        let [x, y] = ["x", "y"].map(|name| jit.intern(name));
        for (name, target) in [(x, y), (y, x)] {
            let flags = Flags::EXPORTED;
            jit.main()
                .alias([Alias {
                    name,
                    target,
                    flags,
                }])
                .unwrap();
        }
        let cycle = failure(&jit, &["x"]);
        assert!(matches!(&cycle, SessionError::Failed { .. }), "{cycle}");
        goes_on(&jit);
        let order = [(&p, Visibility::All)];
        session(jit.lookup_all(Lookup::new(order).symbol(x)).map(drop))
    });
    assert!(matches!(error, SessionError::GeneratorCycle(_)), "{error}");
    assert_eq!(names(&error), ["x"]);
}

#[test]
fn a_generator_that_never_answers_makes_nobody_wait_longer_than_he_wants() {
    #[derive(Clone, Default)]
    struct Silent(Arc<Mutex<Vec<GeneratorRequest>>>);
    impl Generator for Silent {
        fn generate(&self, ask: GeneratorRequest) {
            self.0.lock().unwrap().push(ask);
        }
    }
    let (jit, _) = reporting();
    let silent = Silent::default();
    let id = jit.main().add_generator(silent.clone()).unwrap();
    jit.main()
        .define(TestUnit::plain(&jit, &["there"]))
        .unwrap();
    let inside = start(&jit, &["a"], Required::Ready);
    let waiting = start(&jit, &["b"], Required::Ready);
    for future in [&inside, &waiting] {
        assert!(future.wait_for(Duration::from_millis(1)).is_none());
    }
    // A defined symbol is found meanwhile, without the generator.
    assert!(jit.lookup("there").is_ok());
    // And it can be given up.
    assert!(jit.main().remove_generator(id));
    let error = session(waiting.wait_for(PATIENCE).unwrap().map(drop));
    assert!(
        matches!(error, SessionError::GeneratorRemoved { .. }),
        "{error}"
    );
    silent.0.lock().unwrap().clear();
    assert!(inside.wait_for(PATIENCE).unwrap().is_err());
    goes_on(&jit);
}

#[test]
fn every_use_of_a_dylib_that_is_gone_is_an_error_with_its_name() {
    let (jit, _) = reporting();
    let gone = jit.create_dylib("gone").unwrap();
    let tracker = gone.create_tracker().unwrap();
    let a = jit.intern("a");
    // SAFETY: it is empty.
    unsafe { gone.remove(Removal::Refused).unwrap() };
    let main = jit.main();
    let (all, flags) = (Visibility::All, Flags::EXPORTED);
    let alias = Alias {
        name: a,
        target: a,
        flags,
    };
    // SAFETY: nothing is there.
    let (removed, cleared, undefined) = unsafe {
        let removed = gone.remove(Removal::Refused);
        (removed, gone.clear(), gone.undefine(&[a]))
    };
    let host = failed as *const ();
    // SAFETY: no thread uses the addresses.
    let addresses = unsafe {
        let many = gone.define_addresses([(a, 1, flags)]);
        [many, gone.define_address("a", host)]
    };
    let results: Vec<Result<(), Error>> = [
        gone.define(TestUnit::plain(&jit, &["a"])),
        gone.define(TestUnit::plain(&jit, &["a()"])),
        tracker.define(TestUnit::plain(&jit, &["a"])),
        tracker.add_ir("m", "@a = global i32 1"),
        gone.add_ir("m", "@a = global i32 1"),
        gone.alias([alias]),
        gone.reexport(&main, all, [alias]),
        gone.reexport_all(&main, all, |_| true).map(drop),
        gone.add_generator(|_: &GeneratorRequest| Ok(())).map(drop),
        gone.create_tracker().map(drop),
        gone.default_tracker().map(drop),
        gone.set_link_order(&[]),
        gone.add_to_link_order(&main),
        main.add_to_link_order(&gone),
        main.set_link_order(&[(gone.clone(), all)]),
        main.replace_in_link_order(&main, &gone, all),
        removed,
        cleared,
        undefined,
    ]
    .into_iter()
    .chain(addresses)
    .collect();
    for (n, result) in results.into_iter().enumerate() {
        let error = session(result);
        assert!(error.to_string().contains("gone"), "{n}: {error}");
    }
    assert!(gone.lookup("a").is_err());
    let found = jit.lookup_all(Lookup::new([(&gone, all)]).symbol(a));
    assert_eq!(names(&session(found.map(drop))), ["a"]);
    assert!(tracker.is_defunct() && gone.is_defunct());
    assert!(gone.link_order().is_empty() && gone.init_symbols().is_empty());
    assert_eq!(gone.state_of(a), None);
    goes_on(&jit);
}

#[test]
fn handles_of_another_session_are_errors_and_change_nothing() {
    let ((here, _), (there, _)) = (reporting(), reporting());
    let (own, foreign) = (
        here.create_dylib("own").unwrap(),
        there.create_dylib("foreign").unwrap(),
    );
    let before = own.link_order();
    foreign.define(TestUnit::plain(&there, &["a"])).unwrap();
    let a = here.intern("a");
    let (all, flags) = (Visibility::All, Flags::EXPORTED);
    let alias = Alias {
        name: a,
        target: a,
        flags,
    };
    let mine = own.create_tracker().unwrap();
    let lookup = || Lookup::new([(&foreign, all)]).symbol(a);
    for ready in [false, true] {
        let results = [
            own.add_to_link_order(&foreign),
            own.set_link_order(&[(foreign.clone(), all)]),
            own.replace_in_link_order(&own, &foreign, all),
            own.replace_in_link_order(&foreign, &own, all),
            own.remove_from_link_order(&foreign),
            own.reexport(&foreign, all, [alias]),
            own.reexport_all(&foreign, all, |_| true).map(drop),
            mine.transfer_to(&foreign.create_tracker().unwrap()),
            here.lookup_all(lookup()).map(drop),
            here.lookup_future(lookup()).wait().map(drop),
            here.lookup_flags(lookup()).map(drop),
        ];
        for (n, result) in results.into_iter().enumerate() {
            let error = session(result);
            let foreign =
                matches!(&error, SessionError::ForeignDylib { dylib } if &**dylib == "foreign");
            assert!(foreign, "{n}, {ready}: {error}");
        }
        foreign.lookup("a").unwrap();
    }
    assert_eq!(own.link_order(), before);
    assert!(!mine.is_defunct() && own.state_of(a).is_none());
    goes_on(&here);
    goes_on(&there);
}

#[test]
fn a_symbol_of_another_session_is_some_name_or_none_and_never_a_panic() {
    let (here, there) = (Jit::new().unwrap(), Jit::new().unwrap());
    let many: Vec<Symbol> = (0..1_000).map(|n| there.intern(&format!("s{n}"))).collect();
    let last = *many.last().unwrap();
    let _ = here.name_of(last);
    let error = session(here.lookup_all(ask(&here).symbol(last)).map(drop));
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    assert_eq!(here.main().state_of(last), None);
    // SAFETY: it is refused.
    assert!(unsafe { here.main().undefine(&[last]) }.is_err());
}

#[test]
fn what_is_left_of_a_session_that_is_gone_answers_with_an_error() {
    let jit = Jit::new().unwrap();
    let done = start(&jit, &["nothing"], Required::Ready);
    let weak = jit.downgrade();
    let error = failure(&jit, &["nothing"]);
    drop(jit);
    assert!(weak.upgrade().is_none());
    assert!(done.wait().is_err() && done.result().unwrap().is_err());
    assert_eq!(names(&error), ["nothing"]);
}
