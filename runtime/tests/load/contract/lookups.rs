//! Lookups: what they find, when they are answered, and what they leave alone.

use std::pin::pin;
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use uruk::{
    Flags, GeneratorRequest, Jit, Lookup, LookupKind, Required, SessionError, SymbolState,
    Visibility,
};

use crate::unit::*;

const NOTHING: [&str; 0] = [];

#[test]
fn an_empty_lookup_is_answered_at_once() {
    let jit = Jit::new().unwrap();
    assert!(jit.lookup_all(ask(&jit)).unwrap().is_empty());
    assert!(jit.lookup_all(Lookup::default()).unwrap().is_empty());
    assert!(start(&jit, &[], Required::Ready).is_done());
    assert!(jit.lookup_flags(ask(&jit)).unwrap().is_empty());
}

#[test]
fn a_lookup_is_answered_only_at_the_state_it_requires() {
    let jit = Jit::new().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    jit.main().define(unit).unwrap();
    let resolved = start(&jit, &["a"], Required::Resolved);
    let ready = start(&jit, &["a"], Required::Ready);
    assert!(!resolved.is_done() && !ready.is_done());
    let responsibility = kept.take();
    resolve(&responsibility).unwrap();
    assert!(resolved.is_done() && !ready.is_done());
    assert!(ready.result().is_none());
    let a = jit.intern("a");
    let found = resolved.wait().unwrap();
    assert_eq!(found.address(a), Some(place(a)));
    assert_eq!(found.dependences(), [(jit.main().id(), a)]);
    responsibility.emit(&[]).unwrap();
    let found = ready.result().unwrap().unwrap();
    assert!(found.get(a).unwrap().ready && found.dependences().is_empty());
}

#[test]
fn hidden_symbols_fall_through_to_the_next_dylib() {
    let jit = Jit::new().unwrap();
    let (main, other) = (jit.main(), jit.create_dylib("other").unwrap());
    let (hidden, shown) = (jit.intern("hidden"), jit.intern("shown"));
    let unit = TestUnit::at(&jit, &[("hidden", 1)]).without(Flags::EXPORTED);
    main.define(unit).unwrap();
    main.define(TestUnit::at(&jit, &[("shown", 2)])).unwrap();
    other.define(TestUnit::at(&jit, &[("hidden", 3)])).unwrap();
    // Before it is ready, and after that.
    for _ in 0..2 {
        let seen = Visibility::Exported;
        let lookup = Lookup::new([(&main, seen), (&other, seen)]).symbols([hidden, shown]);
        let found = jit.lookup_all(lookup).unwrap();
        assert_eq!(found.address(hidden), Some(3));
        assert_eq!(found.get(hidden).unwrap().dylib, other.id());
        assert_eq!(found.address(shown), Some(2));
        // Their own dylib sees them.
        assert_eq!(jit.lookup("hidden").unwrap(), 1);
    }
    let lookup = Lookup::new([(&main, Visibility::Exported)]).symbol(hidden);
    let error = session(jit.lookup_all(lookup).map(drop));
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
}

#[test]
fn the_first_match_in_the_order_wins() {
    let jit = Jit::new().unwrap();
    let dylibs = ["p", "q"].map(|name| jit.create_dylib(name).unwrap());
    let a = jit.intern("a");
    let log = [Log::default(), Log::default()];
    for (n, dylib) in dylibs.iter().enumerate() {
        let unit = TestUnit::at(&jit, &[("a", n as u64 + 1)]).log(&log[n]);
        dylib.define(unit).unwrap();
    }
    let [p, q] = &dylibs;
    let found = |order: [&uruk::Dylib; 2]| {
        let order = order.map(|dylib| (dylib, Visibility::Exported));
        let found = jit.lookup_all(Lookup::new(order).symbol(a)).unwrap();
        found.address(a)
    };
    assert_eq!(found([p, q]), Some(1));
    assert_eq!(log[1].all(), NOTHING);
    assert_eq!(found([q, p]), Some(2));
}

#[test]
fn a_lookup_fails_with_all_names_that_are_missing() {
    let jit = Jit::new().unwrap();
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    let error = failure(&jit, &["a", "b", "c"]);
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    assert_eq!(names(&error), ["b", "c"]);
    assert_eq!(error.to_string(), "symbols not found: main: {b, c}");
}

#[test]
fn a_lookup_that_fails_leaves_units_where_they_were() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a"]).log(&log);
    jit.main().define(unit).unwrap();
    assert_eq!(names(&failure(&jit, &["a", "b"])), ["b"]);
    assert_eq!(log.all(), NOTHING);
    let state = jit.main().state_of(jit.intern("a"));
    assert_eq!(state, Some(SymbolState::NeverSearched));
    assert!(jit.lookup("a").is_ok());
}

#[test]
fn a_missing_symbol_that_is_referenced_weakly_is_left_out() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a", "b"]).log(&log);
    jit.main().define(unit).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.intern(name));
    let lookup = ask(&jit).symbol(a).weak(b).weak(c);
    let found = jit.lookup_all(lookup).unwrap();
    // In the order of the question.
    let found: Vec<_> = found.iter().map(|found| found.symbol).collect();
    assert_eq!(found, [a, b]);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn a_flags_lookup_materializes_nothing() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a", "f()"]).log(&log);
    jit.main().define(unit).unwrap();
    let [a, f, c] = ["a", "f", "c"].map(|name| jit.intern(name));
    let lookup = ask(&jit).symbols([a, f]).weak(c).kind(LookupKind::Dlsym);
    let flags = jit.lookup_flags(lookup.clone()).unwrap();
    let code = Flags::EXPORTED | Flags::CALLABLE;
    assert_eq!(flags, [(a, Flags::EXPORTED), (f, code)]);
    let (sender, receiver) = mpsc::channel();
    jit.lookup_flags_async(lookup, move |found| sender.send(found.unwrap()).unwrap());
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), flags);
    assert_eq!(log.all(), NOTHING);
    let error = session(jit.lookup_flags(ask(&jit).symbols([a, c])).map(drop));
    assert_eq!(names(&error), ["c"]);
}

#[test]
fn a_flags_lookup_asks_generators() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let told = log.clone();
    let generator = move |ask: &GeneratorRequest| {
        let (symbol, _) = ask.missing()[0];
        let name = ask.jit().name_of(symbol).to_owned();
        let unit = TestUnit::plain(ask.jit(), &[&name]).log(&told);
        ask.dylib().define(unit)
    };
    jit.main().add_generator(generator).unwrap();
    let a = jit.intern("a");
    let flags = jit.lookup_flags(ask(&jit).symbol(a)).unwrap();
    assert_eq!(flags, [(a, Flags::EXPORTED)]);
    assert_eq!(log.all(), NOTHING);
}

#[test]
fn a_callback_is_told_in_this_thread_or_by_who_makes_it_so() {
    let jit = Jit::new().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    jit.main().define(unit).unwrap();
    let a = jit.intern("a");
    let (sender, receiver) = mpsc::channel();
    let ask_for = || {
        let sender = sender.clone();
        jit.lookup_async(ask(&jit).symbol(a), move |found| {
            let address = found.unwrap().address(a);
            sender.send((std::thread::current().id(), address)).unwrap();
        });
    };
    ask_for();
    assert!(receiver.try_recv().is_err());
    let maker = std::thread::spawn(move || finish(kept.take()));
    let maker_id = maker.thread().id();
    let told = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, (maker_id, Some(place(a))));
    maker.join().unwrap();
    ask_for();
    let here = std::thread::current().id();
    assert_eq!(receiver.try_recv().unwrap(), (here, Some(place(a))));
}

#[test]
fn a_future_can_be_awaited() {
    struct Sent(mpsc::Sender<()>);
    impl Wake for Sent {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let jit = Jit::new().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    jit.main().define(unit).unwrap();
    let (sender, receiver) = mpsc::channel();
    let waker = Waker::from(Arc::new(Sent(sender)));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(start(&jit, &["a"], Required::Ready));
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert!(receiver.try_recv().is_err());
    finish(kept.take());
    receiver.recv_timeout(PATIENCE).unwrap();
    let Poll::Ready(found) = future.as_mut().poll(&mut context) else {
        panic!("woken for nothing");
    };
    assert_eq!(found.unwrap().len(), 1);
}

#[test]
fn a_wait_may_have_a_limit_after_which_the_lookup_goes_on() {
    let jit = Jit::new().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    jit.main().define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    assert!(future.wait_for(std::time::Duration::ZERO).is_none());
    let maker = std::thread::spawn(move || finish(kept.take()));
    assert_eq!(future.wait_for(PATIENCE).unwrap().unwrap().len(), 1);
    maker.join().unwrap();
}

#[test]
fn who_looks_up_the_same_at_once_shares_one_materialization() {
    // Without a worker to spare, and with some.
    for jobs in [1, 4] {
        let jit = Jit::builder().jobs(jobs).build().unwrap();
        let log = Log::default();
        let unit = TestUnit::at(&jit, &[("a", 0x10), ("f()", address(seven))]);
        jit.main().define(unit.log(&log)).unwrap();
        let start = Arc::new(Barrier::new(8));
        let threads = (0..8).map(|n| {
            let (jit, start) = (jit.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                match n % 2 {
                    0 => assert_eq!(jit.lookup("a").unwrap(), 0x10),
                    _ => assert_eq!(call(&jit, "f"), 7),
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    }
}

#[test]
fn a_unit_may_look_up_while_it_is_materialized() {
    let jit = Jit::builder().jobs(1).build().unwrap();
    let main = jit.main();
    main.define(TestUnit::plain(&jit, &["d0"])).unwrap();
    for depth in 1..16_u32 {
        let unit = TestUnit::new(&jit, &[&format!("d{depth}")], move |responsibility| {
            let below = format!("d{}", depth - 1);
            responsibility.jit().lookup(&below).unwrap();
            finish(responsibility);
        });
        main.define(unit).unwrap();
    }
    let jit = within("a chain of lookups", move || {
        jit.lookup("d15").unwrap();
        jit
    });
    let state = jit.main().state_of(jit.intern("d0"));
    assert_eq!(state, Some(SymbolState::Ready));
}

#[test]
fn a_lookup_may_wait_for_definitions_and_is_listed_meanwhile() {
    let jit = Jit::new().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.intern(name));
    let lookup = ask(&jit).symbols([a, b, c]).wait_for_missing();
    let future = jit.lookup_future(lookup);
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    let missing = jit.still_missing();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].order, [(jit.main().id(), Visibility::All)]);
    assert_eq!(missing[0].symbols, [a, c]);
    assert!(!future.is_done());
    jit.main()
        .define(TestUnit::plain(&jit, &["a", "c"]))
        .unwrap();
    assert_eq!(future.wait().unwrap().len(), 3);
    assert!(jit.still_missing().is_empty());
}
