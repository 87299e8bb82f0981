//! Symbol tables as a whole: several dylibs removed in one step, names of other things under a
//! tracker, and what a table looks like.

use uruk::{Alias, Error, Flags, Jit, Removal, SessionError, SymbolState, Tracker, Visibility};

use crate::unit::*;

fn remove(tracker: &Tracker) {
    // SAFETY: no thread uses the definitions under it.
    unsafe { tracker.remove() }.unwrap();
}

fn alias(jit: &Jit, name: &str, target: &str) -> Alias {
    Alias {
        name: jit.intern(name),
        target: jit.intern(target),
        flags: Flags::EXPORTED | Flags::CALLABLE,
    }
}

/// Removes several dylibs whose contents no thread uses.
fn remove_all(jit: &Jit, dylibs: &[uruk::Dylib], removal: Removal) -> Result<(), Error> {
    // SAFETY: as said.
    unsafe { jit.remove_dylibs(dylibs, removal) }
}

#[test]
fn dylibs_that_search_each_other_go_in_one_step() {
    let jit = Jit::new().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.create_dylib(name).unwrap());
    a.add_to_link_order(&b).unwrap();
    b.add_to_link_order(&a).unwrap();
    c.add_to_link_order(&b).unwrap();
    a.add_ir(
        "a",
        "declare i32 @g() define i32 @f() { %v = call i32 @g() ret i32 %v }",
    )
    .unwrap_err();
    b.add_ir("b", "define i32 @g() { ret i32 7 }").unwrap();
    a.add_ir(
        "a",
        "declare i32 @g() define i32 @f() { %v = call i32 @g() ret i32 %v }",
    )
    .unwrap();
    // SAFETY: the function above.
    let f = unsafe { a.function::<extern "C" fn() -> i32>("f") }.unwrap();
    assert_eq!(f.call(), 7);
    let both = [a.clone(), b.clone(), a.clone()];
    // One that stays searches one of them.
    let refused = remove_all(&jit, &both, Removal::Refused).unwrap_err();
    assert!(matches!(&refused, Error::DylibInUse { dylib, by } if dylib == "b" && by == &["c"]));
    assert!(!a.is_defunct() && !b.is_defunct());
    assert_eq!((f.call(), jit.lookup("f").is_err()), (7, true));
    remove_all(&jit, &both, Removal::Forced).unwrap();
    assert!(a.is_defunct() && b.is_defunct() && !c.is_defunct());
    assert!(c.link_order().iter().all(|(dylib, _)| *dylib != b));
    let again = session(remove_all(&jit, &[c.clone(), a], Removal::Refused));
    assert!(matches!(again, SessionError::DylibDefunct { .. }));
    assert!(!c.is_defunct(), "all or none");
    assert!(
        session(b.add_ir("late", "@x = global i32 1"))
            .to_string()
            .contains('b')
    );
    // The names are free.
    let a = jit.create_dylib("a").unwrap();
    remove_all(&jit, &[c, a], Removal::Refused).unwrap();
    remove_all(&jit, &[], Removal::Refused).unwrap();
}

#[test]
fn main_and_other_sessions_dylibs_do_not_go() {
    let [jit, other] = [(); 2].map(|()| Jit::new().unwrap());
    let own = jit.create_dylib("own").unwrap();
    let main = remove_all(&jit, &[own.clone(), jit.main()], Removal::Forced);
    assert!(matches!(main, Err(Error::MainDylib)));
    let foreign = other.create_dylib("foreign").unwrap();
    let foreign = session(remove_all(&jit, &[own.clone(), foreign], Removal::Forced));
    assert!(matches!(foreign, SessionError::ForeignDylib { .. }));
    assert!(!own.is_defunct());
}

#[test]
fn aliases_go_with_their_tracker() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", "define i32 @target() { ret i32 3 }")
        .unwrap();
    let lib = jit.create_dylib("lib").unwrap();
    let under = jit.main().create_tracker().unwrap();
    under.alias([alias(&jit, "other", "target")]).unwrap();
    let exported = lib.create_tracker().unwrap();
    let seen = Visibility::Exported;
    let names = [
        alias(&jit, "far", "target"),
        alias(&jit, "chained", "other"),
    ];
    exported.reexport(&jit.main(), seen, names).unwrap();
    let target = jit.lookup("target").unwrap();
    assert_eq!(jit.lookup("other").unwrap(), target);
    assert_eq!(lib.lookup("far").unwrap(), target);
    // One of them was not asked for.
    remove(&exported);
    assert!(lib.lookup("far").is_err() && lib.lookup("chained").is_err());
    assert_eq!(jit.lookup("other").unwrap(), target);
    under.alias([alias(&jit, "third", "target")]).unwrap();
    remove(&under);
    assert!(jit.lookup("other").is_err() && jit.lookup("third").is_err());
    assert_eq!(jit.lookup("target").unwrap(), target);
    let defunct = session(under.alias([alias(&jit, "late", "target")]));
    assert!(matches!(defunct, SessionError::TrackerDefunct { .. }));
    // A strong name twice is refused, whole.
    let under = jit.main().create_tracker().unwrap();
    let twice = [
        alias(&jit, "fresh", "target"),
        alias(&jit, "target", "target"),
    ];
    assert!(matches!(
        session(under.alias(twice)),
        SessionError::Duplicate(_)
    ));
    assert!(jit.lookup("fresh").is_err());
}

#[test]
fn addresses_go_with_their_tracker() {
    static WORD: i64 = 4;
    let jit = Jit::new().unwrap();
    let under = jit.main().create_tracker().unwrap();
    let define = |name: &str| {
        let address = &raw const WORD as u64;
        let symbol = (jit.intern(name), address, Flags::EXPORTED);
        // SAFETY: it is a number, for ever.
        unsafe { under.define_addresses([symbol]) }
    };
    define("word").unwrap();
    assert_eq!(jit.lookup("word").unwrap(), &raw const WORD as u64);
    assert!(matches!(
        session(define("word")),
        SessionError::Duplicate(_)
    ));
    let other = jit.main().create_tracker().unwrap();
    under.transfer_to(&other).unwrap();
    assert!(matches!(
        session(define("late")),
        SessionError::TrackerDefunct { .. }
    ));
    assert!(jit.lookup("word").is_ok());
    remove(&other);
    assert!(jit.lookup("word").is_err());
}

#[test]
fn a_dump_has_all_that_is_there() {
    let jit = Jit::new().unwrap();
    let lib = jit.create_dylib("lib").unwrap();
    lib.add_to_link_order(&jit.main()).unwrap();
    let under = lib.create_tracker().unwrap();
    under
        .add_ir(
            "m",
            "@data = weak global i32 1 define void @run() { ret void }",
        )
        .unwrap();
    lib.define(TestUnit::plain(&jit, &["asleep"])).unwrap();
    lib.define(TestUnit::new(&jit, &["broken"], |responsibility| {
        responsibility.fail(SessionError::unit("broken", "as it should"));
    }))
    .unwrap();
    lib.lookup("broken").unwrap_err();
    lib.add_generator(|_: &uruk::GeneratorRequest| Ok(()))
        .unwrap();
    let address = lib.lookup("run").unwrap();
    let dump = jit.dump();
    let one = dump
        .dylibs
        .iter()
        .find(|dylib| dylib.id == lib.id())
        .unwrap();
    let symbol = |name: &str| one.symbols.iter().find(|s| &*s.name == name).unwrap();
    assert_eq!(one.link_order[0], ("main".into(), Visibility::Exported));
    assert_eq!(one.generators, 1);
    assert_eq!(symbol("asleep").state, SymbolState::NeverSearched);
    assert_eq!(symbol("asleep").address, None);
    let run = symbol("run");
    assert_eq!((run.state, run.tracker), (SymbolState::Ready, under.key()));
    assert_eq!(run.address, Some(address));
    assert!(run.flags.contains(Flags::CALLABLE) && !symbol("data").flags.is_strong());
    assert_eq!(symbol("broken").state, SymbolState::Failed);
    assert!(
        symbol("broken")
            .error
            .as_deref()
            .unwrap()
            .contains("as it should")
    );
    let names: Vec<_> = one.symbols.iter().map(|s| &*s.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    let text = dump.to_string();
    for line in [
        "dylib main (#2)\n",
        "dylib lib (#3)\n  searches main\n  searches host, hidden symbols too\n  generators: 1\n",
        "\n  asleep: NeverSearched {exported}, tracker ",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    assert!(!text.contains("uruk.body."));
}
