//! Trackers: the definitions that are removed together, and the calls that remove them.

use std::sync::{Arc, Mutex};

use uruk::{
    Alias, DependenceGroup, Flags, Jit, Removal, Required, SessionError, SymbolState, Tracker,
};

use crate::unit::*;

const NOTHING: [&str; 0] = [];

fn gone(jit: &Jit, names: &[&str]) {
    for name in names {
        assert_eq!(jit.main().state_of(jit.intern(name)), None, "{name}");
        assert!(jit.lookup(name).is_err(), "{name}");
    }
}

fn tracker(jit: &Jit) -> Tracker {
    jit.main().create_tracker().unwrap()
}

fn remove(tracker: &Tracker) -> Result<(), SessionError> {
    // SAFETY: no thread uses the definitions under it.
    match unsafe { tracker.remove() } {
        Ok(()) => Ok(()),
        error => Err(session(error)),
    }
}

fn is_defunct(error: &SessionError) -> bool {
    matches!(error, SessionError::TrackerDefunct { dylib } if &**dylib == "main")
}

#[test]
fn removal_before_materialization_drops_the_unit_untold() {
    let jit = Jit::new().unwrap();
    let (under, log) = (tracker(&jit), Log::default());
    let unit = TestUnit::plain(&jit, &["a", "f()"]).log(&log);
    under.define(unit).unwrap();
    jit.main().define(TestUnit::plain(&jit, &["c"])).unwrap();
    remove(&under).unwrap();
    assert_eq!(log.all(), ["drop"]);
    gone(&jit, &["a", "f"]);
    assert!(jit.lookup("c").is_ok());
    // The names are free.
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert!(jit.lookup("a").is_ok());
}

#[test]
fn a_tracker_that_was_removed_is_defunct() {
    let jit = Jit::new().unwrap();
    let (under, other) = (tracker(&jit), tracker(&jit));
    assert!(!under.is_defunct() && under.dylib() == jit.main());
    remove(&under).unwrap();
    assert!(under.is_defunct());
    assert!(is_defunct(&remove(&under).unwrap_err()));
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a"]).log(&log);
    assert!(is_defunct(&session(under.define(unit))));
    let functions = TestUnit::plain(&jit, &["f()"]).log(&log);
    assert!(is_defunct(&session(under.define(functions))));
    assert_eq!(log.all(), ["drop", "drop"]);
    assert!(is_defunct(&session(under.transfer_to(&other))));
    assert!(is_defunct(&session(under.attach(|| ()))));
    let module = under.add_ir("m", "define void @g() { ret void }");
    assert!(is_defunct(&session(module)));
    gone(&jit, &["a", "f", "g"]);
}

#[test]
fn removal_while_materializing_fails_who_waits_and_tells_who_is_at_work() {
    let (jit, reports) = reporting();
    let (under, log) = (tracker(&jit), Log::default());
    let [a, b] = ["a", "b"].map(|name| jit.intern(name));
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    under.define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let mut work = kept.take();
    let note = |what: &'static str| {
        let log = log.clone();
        move || log.push(what)
    };
    work.attach(note("first")).unwrap();
    under.attach(note("second")).unwrap();
    work.resolve(&[(a, 1)]).unwrap();
    remove(&under).unwrap();
    let error = session(future.wait().map(drop));
    assert!(matches!(error, SessionError::Removed(_)), "{error}");
    assert_eq!(log.all(), ["second", "first"]);
    assert!(is_defunct(&work.resolve(&[(b, 1)]).unwrap_err()));
    let claimed = work.claim(&[(jit.intern("c"), Flags::EXPORTED)]);
    assert!(is_defunct(&claimed.unwrap_err()));
    assert!(is_defunct(&work.delegate(&[a]).map(drop).unwrap_err()));
    assert!(is_defunct(&work.tracker().map(drop).unwrap_err()));
    // A resource that it attaches now is released at once.
    assert!(is_defunct(&work.attach(note("late")).unwrap_err()));
    assert_eq!(log.all(), ["second", "first", "late"]);
    // The names are free for others meanwhile.
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert!(is_defunct(&work.emit(&[]).unwrap_err()));
    assert_eq!(jit.lookup("a").unwrap(), place(a));
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn removal_during_a_first_call_sends_it_to_the_failure_handler() {
    let (jit, _) = reporting();
    let under = tracker(&jit);
    let (unit, kept) = TestUnit::kept(&jit, &["f()"]);
    under.define(unit).unwrap();
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || call(&jit, "f")
    });
    let work = kept.take();
    remove(&under).unwrap();
    assert_eq!(caller.join().unwrap(), -1);
    let f = jit.intern("f");
    assert!(is_defunct(
        &work.resolve(&[(f, address(seven))]).unwrap_err()
    ));
    drop(work);
    jit.main()
        .define(TestUnit::at(&jit, &[("f()", address(eight))]))
        .unwrap();
    assert_eq!(call(&jit, "f"), 8);
}

#[test]
fn removal_fails_what_depends_on_it_and_is_not_ready() {
    let (jit, _) = reporting();
    let under = tracker(&jit);
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    under.define(unit).unwrap();
    let fa = start(&jit, &["a"], Required::Ready);
    let (b, fb) = at_work(&jit, &["b"]);
    let on_a = DependenceGroup {
        symbols: vec![jit.intern("b")],
        dependences: vec![(jit.main().id(), jit.intern("a"))],
    };
    b.emit(&[on_a]).unwrap();
    remove(&under).unwrap();
    drop(kept.take());
    assert!(fa.wait().is_err() && fb.wait().is_err());
    gone(&jit, &["a"]);
    let state = jit.main().state_of(jit.intern("b"));
    assert_eq!(state, Some(SymbolState::Failed));
}

#[test]
fn removal_after_materialization_takes_the_names_and_releases_what_was_kept() {
    let (jit, _) = reporting();
    let (under, log) = (tracker(&jit), Log::default());
    let unit = TestUnit::at(&jit, &[("a", 0x10), ("f()", address(seven))]);
    under.define(unit).unwrap();
    jit.lookup("a").unwrap();
    // SAFETY: as `call`.
    let f = unsafe { jit.function::<extern "C" fn() -> i64>("f") }.unwrap();
    assert_eq!(f.call(), 7);
    let released = log.clone();
    under.attach(move || released.push("memory")).unwrap();
    remove(&under).unwrap();
    gone(&jit, &["a", "f"]);
    assert_eq!(f.call(), -1);
    assert_eq!(log.all(), ["memory"]);
}

#[test]
fn a_transfer_moves_everything_before_while_and_after_materialization() {
    for step in 0..4 {
        let jit = Jit::new().unwrap();
        let (from, to, log) = (tracker(&jit), tracker(&jit), Log::default());
        let transfer = |at: usize| {
            if at == step {
                from.transfer_to(&to).unwrap();
            }
        };
        let (unit, kept) = TestUnit::kept(&jit, &["a", "b", "f()"]);
        from.define(unit).unwrap();
        let released = log.clone();
        from.attach(move || released.push("memory")).unwrap();
        transfer(0);
        let future = start(&jit, &["a"], Required::Ready);
        let work = kept.take();
        transfer(1);
        resolve(&work).unwrap();
        assert_eq!(work.tracker().unwrap() == to, step <= 1);
        transfer(2);
        work.emit(&[]).unwrap();
        transfer(3);
        future.wait().unwrap();
        assert!(from.is_defunct());
        assert!(is_defunct(&session(from.transfer_to(&to))));
        assert_eq!(log.all(), NOTHING);
        remove(&to).unwrap();
        gone(&jit, &["a", "b", "f"]);
        assert_eq!(log.all(), ["memory"]);
    }
}

#[test]
fn dropping_the_last_handle_leaves_everything_to_the_default_tracker() {
    let jit = Jit::new().unwrap();
    let under = tracker(&jit);
    let second = under.clone();
    let unit = TestUnit::at(&jit, &[("a", 0x10), ("f()", address(seven))]);
    under.define(unit).unwrap();
    drop(under);
    assert!(!second.is_defunct());
    drop(second);
    assert_eq!((jit.lookup("a").unwrap(), call(&jit, "f")), (0x10, 7));
    let default = jit.main().default_tracker().unwrap();
    assert!(default == jit.main().default_tracker().unwrap());
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    jit.lookup("b").unwrap();
    remove(&default).unwrap();
    gone(&jit, &["a", "b", "f"]);
    // There is another one from then on.
    assert!(default.is_defunct());
    assert!(default != jit.main().default_tracker().unwrap());
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert!(jit.lookup("a").is_ok());
}

#[test]
fn trackers_of_different_dylibs_do_not_mix() {
    let jit = Jit::new().unwrap();
    let other = jit.create_dylib("other").unwrap();
    let error = session(tracker(&jit).transfer_to(&other.create_tracker().unwrap()));
    assert!(
        matches!(error, SessionError::ForeignTracker { .. }),
        "{error}"
    );
}

#[test]
fn clearing_a_dylib_removes_what_is_under_all_its_trackers() {
    let (jit, _) = reporting();
    let (one, log) = (tracker(&jit), Log::default());
    one.define(TestUnit::plain(&jit, &["a"]).log(&log)).unwrap();
    jit.main()
        .define(TestUnit::at(&jit, &[("f()", address(seven))]))
        .unwrap();
    let (_work, future) = at_work(&jit, &["b"]);
    assert_eq!(call(&jit, "f"), 7);
    // SAFETY: no thread uses any of it.
    unsafe { jit.main().clear().unwrap() };
    assert_eq!(log.all(), ["drop"]);
    let error = session(future.wait().map(drop));
    assert!(matches!(error, SessionError::Removed(_)), "{error}");
    gone(&jit, &["a", "b", "f"]);
    assert!(one.is_defunct());
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert!(jit.lookup("a").is_ok());
}

#[test]
fn a_dylib_can_be_removed_with_work_in_flight() {
    let (jit, _) = reporting();
    let module = jit.create_dylib("module").unwrap();
    let a = jit.intern("a");
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    module.define(unit).unwrap();
    let order = || [(&module, uruk::Visibility::All)];
    let future = jit.lookup_future(uruk::Lookup::new(order()).symbol(a));
    let work = kept.take();
    // SAFETY: no thread uses it.
    unsafe { module.remove(Removal::Refused).unwrap() };
    let error = session(future.wait().map(drop));
    assert!(matches!(error, SessionError::Removed(_)), "{error}");
    assert!(work.emit(&[]).is_err());
    assert!(module.is_defunct() && jit.dylib("module").is_none());
}

#[test]
fn who_is_told_of_a_removal_can_define_nothing_there_any_more() {
    let (jit, _) = reporting();
    let module = jit.create_dylib("module").unwrap();
    let tried = Arc::new(Mutex::new(None));
    let told = module.create_tracker().unwrap();
    told.attach({
        let (tried, weak) = (Arc::clone(&tried), jit.downgrade());
        let dylib = std::sync::Mutex::new(Some(module.clone()));
        move || {
            let jit = weak.upgrade().unwrap();
            let dylib = dylib.lock().unwrap().take().unwrap();
            let result = dylib.define(TestUnit::plain(&jit, &["late"]));
            *tried.lock().unwrap() = Some(session(result));
        }
    })
    .unwrap();
    // SAFETY: no thread uses it.
    unsafe { module.remove(Removal::Refused).unwrap() };
    let error = tried.lock().unwrap().take().unwrap();
    assert_eq!(error.to_string(), "dylib module is defunct");
}

#[test]
fn a_dylib_that_is_gone_takes_nothing_and_its_name_is_free() {
    let jit = Jit::new().unwrap();
    let module = jit.create_dylib("module").unwrap();
    // SAFETY: it is empty.
    unsafe { module.remove(Removal::Refused).unwrap() };
    let defunct = |error: SessionError| {
        assert!(
            matches!(error, SessionError::DylibDefunct { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("module"), "{error}");
    };
    defunct(session(module.define(TestUnit::plain(&jit, &["a"]))));
    defunct(session(module.define(TestUnit::plain(&jit, &["f()"]))));
    defunct(session(module.create_tracker().map(drop)));
    defunct(session(module.add_ir("m", "@x = global i32 1")));
    defunct(session(jit.main().add_to_link_order(&module)));
    assert_eq!(module.state_of(jit.intern("a")), None);
    let again = jit.create_dylib("module").unwrap();
    assert!(again != module && again.name() == module.name());
}

#[test]
fn a_unit_can_be_removed_and_added_again_and_again() {
    let (jit, _) = reporting();
    for round in 0..50_u64 {
        let under = tracker(&jit);
        let unit = TestUnit::at(&jit, &[("a", round), ("f()", address(seven))]);
        under.define(unit).unwrap();
        match round % 3 {
            // Unused, with one of the two used, with both.
            0 => {}
            1 => assert_eq!(jit.lookup("a").unwrap(), round),
            _ => assert_eq!((call(&jit, "f"), jit.lookup("a").unwrap()), (7, round)),
        }
        remove(&under).unwrap();
        gone(&jit, &["a", "f"]);
    }
}

#[test]
fn aliases_go_with_the_dylibs_default_tracker() {
    let jit = Jit::new().unwrap();
    let under = tracker(&jit);
    under.define(TestUnit::plain(&jit, &["a"])).unwrap();
    let alias = Alias {
        name: jit.intern("b"),
        target: jit.intern("a"),
        flags: Flags::EXPORTED,
    };
    jit.main().alias([alias]).unwrap();
    jit.lookup("b").unwrap();
    remove(&jit.main().default_tracker().unwrap()).unwrap();
    gone(&jit, &["b"]);
    assert!(jit.lookup("a").is_ok());
}
