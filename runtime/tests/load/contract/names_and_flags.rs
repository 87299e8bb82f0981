//! Names, flags and states of symbols.

use uruk::{Flags, Jit, Required, SessionError, SymbolState};

use crate::unit::*;

#[test]
fn names_are_interned_and_equal_when_their_text_is() {
    let jit = Jit::new().unwrap();
    let (a, b) = (jit.intern("a"), jit.intern("b"));
    assert_eq!(a, jit.intern("a"));
    assert_ne!(a, b);
    assert_eq!((jit.name_of(a), jit.name_of(b)), ("a", "b"));
}

#[test]
fn strong_is_what_is_neither_weak_nor_common() {
    assert!(Flags::NONE.is_strong() && (Flags::EXPORTED | Flags::CALLABLE).is_strong());
    assert!(!Flags::WEAK.is_strong() && !(Flags::COMMON | Flags::EXPORTED).is_strong());
}

#[test]
fn a_lookup_tells_the_flags_that_were_promised() {
    let jit = Jit::new().unwrap();
    let each = [
        ("hidden", Flags::NONE),
        ("weak", Flags::EXPORTED | Flags::WEAK),
        ("common", Flags::EXPORTED | Flags::COMMON),
        ("code", Flags::EXPORTED | Flags::CALLABLE),
        ("number", Flags::EXPORTED | Flags::ABSOLUTE),
    ];
    let symbols = each.map(|(name, flags)| (jit.intern(name), flags));
    let addresses = symbols.map(|(symbol, flags)| (symbol, place(symbol), flags));
    // SAFETY: no thread uses the addresses.
    unsafe { jit.main().define_addresses(addresses).unwrap() };
    let found = jit.lookup_flags(ask(&jit).symbols(symbols.map(|(s, _)| s)));
    assert_eq!(found.unwrap(), symbols);
    let found = jit.lookup_all(ask(&jit).symbols(symbols.map(|(s, _)| s)));
    for (found, (symbol, flags)) in found.unwrap().iter().zip(symbols) {
        assert_eq!((found.symbol, found.flags), (symbol, flags));
        assert_eq!(found.address, place(symbol));
    }
}

#[test]
fn an_absolute_symbol_may_have_any_value() {
    let jit = Jit::new().unwrap();
    let flags = Flags::EXPORTED | Flags::ABSOLUTE;
    for (name, value) in [("most", u64::MAX), ("least", 0)] {
        let symbol = jit.intern(name);
        // SAFETY: they are numbers.
        unsafe {
            jit.main()
                .define_addresses([(symbol, value, flags)])
                .unwrap()
        };
        for _ in 0..2 {
            let found = jit.lookup_all(ask(&jit).symbol(symbol)).unwrap();
            assert_eq!(found.address(symbol), Some(value));
        }
    }
}

#[test]
fn a_symbol_goes_through_all_its_states() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    let a = jit.intern("a");
    let state = || main.state_of(a);
    assert_eq!(state(), None);
    let (b, _) = at_work(&jit, &["b"]);
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    main.define(unit).unwrap();
    assert_eq!(state(), Some(SymbolState::NeverSearched));
    let future = start(&jit, &["a"], Required::Ready);
    assert_eq!(state(), Some(SymbolState::Materializing));
    let responsibility = kept.take();
    resolve(&responsibility).unwrap();
    assert_eq!(state(), Some(SymbolState::Resolved));
    let group = uruk::DependenceGroup {
        symbols: vec![a],
        dependences: vec![(main.id(), jit.intern("b"))],
    };
    responsibility.emit(&[group]).unwrap();
    assert_eq!(state(), Some(SymbolState::Emitted));
    assert!(!future.is_done());
    b.emit(&[]).unwrap();
    assert_eq!(state(), Some(SymbolState::Ready));
    assert!(future.is_done());
}

#[test]
fn a_side_effects_only_symbol_has_no_address_and_is_gone_once_ready() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let effect = jit.intern("effect");
    let flags = Flags::SIDE_EFFECTS_ONLY;
    let unit = TestUnit::plain(&jit, &["effect"]).flags(flags).log(&log);
    jit.main().define(unit).unwrap();
    // Not to be had as a required symbol.
    let error = failure(&jit, &["effect"]);
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    assert_eq!(log.all(), Vec::<String>::new());
    for at in [Required::Ready, Required::Resolved] {
        let found = jit.lookup_all(ask(&jit).weak(effect).at(at)).unwrap();
        assert!(found.is_empty());
        assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    }
    assert_eq!(jit.main().state_of(effect), None);
}

#[test]
fn a_side_effects_only_symbol_is_waited_for_until_it_is_ready() {
    let jit = Jit::new().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["effect"]);
    jit.main()
        .define(unit.flags(Flags::SIDE_EFFECTS_ONLY))
        .unwrap();
    let lookup = ask(&jit).weak(jit.intern("effect")).at(Required::Resolved);
    let future = jit.lookup_future(lookup);
    assert!(!future.is_done());
    kept.take().emit(&[]).unwrap();
    assert!(future.wait().unwrap().is_empty());
}

#[test]
fn a_side_effects_only_symbol_that_failed_stays_failed() {
    let jit = Jit::new().unwrap();
    let unit = TestUnit::failing(&jit, &["effect"]).flags(Flags::SIDE_EFFECTS_ONLY);
    jit.main().define(unit).unwrap();
    for _ in 0..2 {
        let found = jit.lookup_all(ask(&jit).weak(jit.intern("effect")));
        assert_eq!(names(&session(found.map(drop))), ["effect"]);
    }
}
