//! Variables whose type changes, with a function that carries their contents over.

use uruk::{Error, Jit, ReplaceError, Replacement, Tracker};

const OLD: &str = "
@pair = global { i32, i32 } { i32 3, i32 4 }
define i32 @sum() {
  %a = load i32, ptr @pair
  %p = getelementptr { i32, i32 }, ptr @pair, i32 0, i32 1
  %b = load i32, ptr %p
  %s = add i32 %a, %b
  ret i32 %s
}
define i32 @first() { %a = load i32, ptr @pair ret i32 %a }";

/// The first is 64 bits wide now.
const NEW: &str = "
@pair = global { i64, i32 } { i64 0, i32 100 }
define i32 @sum() {
  %a = load i64, ptr @pair
  %n = trunc i64 %a to i32
  %p = getelementptr { i64, i32 }, ptr @pair, i32 0, i32 1
  %b = load i32, ptr %p
  %s = add i32 %n, %b
  ret i32 %s
}
define i32 @first() { %a = load i32, ptr @pair ret i32 %a }";

fn jit() -> Jit {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid");
    jit
}

fn call(jit: &Jit, name: &str) -> i32 {
    // SAFETY: functions of the modules above.
    let function = unsafe { jit.function::<extern "C" fn() -> i32>(name) };
    function.expect("typed").call()
}

fn widen(old: *const u8, old_size: usize, new: *mut u8, new_size: usize) {
    assert_eq!((old_size, new_size), (8, 16));
    // SAFETY: the bytes of both variables.
    unsafe {
        let (first, second) = (old.cast::<i32>().read(), old.cast::<i32>().add(1).read());
        new.cast::<i64>().write(i64::from(first) * 10);
        new.cast::<i32>().add(2).write(second);
    }
}

fn refused(jit: &Jit, replacement: Replacement) -> ReplaceError {
    match jit.main().replace(replacement) {
        Err(Error::Replace(cause)) => (*cause).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn contents_are_carried_over_and_names_lead_to_the_new_storage() {
    let jit = jit();
    assert_eq!((call(&jit, "sum"), call(&jit, "first")), (7, 3));
    let old = jit.lookup("pair").expect("defined");
    jit.main()
        .replace(Replacement::ir("new", NEW).migrate("pair", widen))
        .expect("migrated");
    assert_eq!((call(&jit, "sum"), call(&jit, "first")), (34, 30));
    assert_ne!(jit.lookup("pair").expect("defined"), old);
    jit.add_ir(
        "n",
        "@pair = external global { i64, i32 }
        define i32 @later() { %a = load i32, ptr @pair ret i32 %a }",
    )
    .expect("valid");
    assert_eq!(call(&jit, "later"), 30);
    // From now on it has the new type.
    let again = Replacement::ir("again", &NEW.replace("add i32", "sub i32"));
    jit.main().replace(again).expect("as it is");
    assert_eq!(call(&jit, "sum"), 26);
    assert!(matches!(
        refused(&jit, Replacement::ir("old", OLD)),
        ReplaceError::Global { .. }
    ));
    jit.rollback().expect("the latest");
    assert_eq!(call(&jit, "sum"), 34);
    jit.rollback().expect("the first");
    assert_eq!((call(&jit, "sum"), call(&jit, "first")), (7, 3));
    assert_eq!(jit.lookup("pair").expect("defined"), old);
    // `later` came meanwhile, and knows the new storage only.
    let cause = refused(&jit, Replacement::ir("new", NEW).migrate("pair", widen));
    assert!(matches!(&cause, ReplaceError::Users { users, .. } if users == &["later"]));
}

#[test]
fn all_users_must_be_replaced_and_the_variable_must_exist() {
    let jit = jit();
    let part = &NEW[..NEW.find("define i32 @first").expect("there")];
    let cause = refused(&jit, Replacement::ir("part", part).migrate("pair", widen));
    let ReplaceError::Users { global, users, .. } = &cause else {
        panic!("{cause}")
    };
    assert_eq!(
        (global.as_str(), users.as_slice()),
        ("pair", &[String::from("first")][..])
    );
    let cause = refused(
        &jit,
        Replacement::ir("new", NEW)
            .migrate("pair", widen)
            .migrate("other", widen),
    );
    assert!(matches!(cause, ReplaceError::Fixed { .. }), "{cause}");
    assert_eq!((call(&jit, "sum"), call(&jit, "first")), (7, 3));
}

const VARIABLE: &str = "@v = global i32 3";
const USER: &str = "@v = external global i32
define i32 @get() { %v = load i32, ptr @v ret i32 %v }";
const WIDE: &str = "@v = global i64 0
define i32 @get() { %v = load i64, ptr @v %n = trunc i64 %v to i32 ret i32 %n }";

fn ten_times(old: *const u8, old_size: usize, new: *mut u8, new_size: usize) {
    assert_eq!((old_size, new_size), (4, 8));
    // SAFETY: the bytes of both variables.
    unsafe {
        new.cast::<i64>()
            .write(i64::from(old.cast::<i32>().read()) * 10)
    }
}

fn under_tracker(jit: &Jit, text: &str) -> Tracker {
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("m", text).expect("valid");
    tracker
}

fn remove(tracker: &Tracker) {
    // SAFETY: nothing calls its functions any more.
    unsafe { tracker.remove() }.expect("once");
}

#[test]
fn a_variable_that_is_removed_and_added_again_is_another() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let both = USER.replace("external global i32", "global i32 3");
    for round in 0..40 {
        let tracker = under_tracker(&jit, &both);
        assert_eq!(call(&jit, "get"), 3, "round {round}");
        let wide = Replacement::ir("wide", WIDE).migrate("v", ten_times);
        jit.main().replace(wide).expect("migrated");
        assert_eq!(call(&jit, "get"), 30, "round {round}");
        remove(&tracker);
        assert!(jit.lookup("v").is_err());
        if round % 2 == 0 {
            jit.reclaim(uruk::ReclaimKind::Sweep, std::time::Duration::from_secs(60));
        }
    }
}

#[test]
fn new_storage_goes_with_the_variable_and_with_the_functions_that_were_replaced() {
    let set_up = || {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        let trackers = [VARIABLE, USER].map(|text| under_tracker(&jit, text));
        assert_eq!(call(&jit, "get"), 3);
        let wide = Replacement::ir("wide", WIDE).migrate("v", ten_times);
        jit.main().replace(wide).expect("migrated");
        (jit, trackers)
    };
    let (jit, [variable, user]) = set_up();
    let storage = jit.lookup("v").expect("defined");
    remove(&user);
    assert_eq!(jit.lookup("v").expect("defined"), storage);
    jit.add_ir(
        "again",
        &WIDE.replace("global i64 0", "external global i64"),
    )
    .expect("valid");
    assert_eq!(call(&jit, "get"), 30);
    remove(&variable);
    assert!(jit.lookup("v").is_err());
    let (jit, [variable, user]) = set_up();
    remove(&variable);
    assert_eq!(call(&jit, "get"), 30);
    // Another variable of that name has its own storage and type.
    under_tracker(&jit, VARIABLE);
    assert_eq!(call(&jit, "get"), 30);
    remove(&user);
    under_tracker(&jit, USER);
    assert_eq!(call(&jit, "get"), 3);
    let same = USER.replace("external global i32", "global i32 3");
    let same = Replacement::ir("same", &same);
    jit.main().replace(same).expect("it has the type");
    assert_eq!(call(&jit, "get"), 3);
}

#[test]
fn the_type_of_the_storage_before_holds_after_a_rollback() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    under_tracker(&jit, VARIABLE);
    under_tracker(&jit, USER);
    let wide = Replacement::ir("wide", WIDE).migrate("v", ten_times);
    jit.main().replace(wide).expect("migrated");
    let short = Replacement::ir(
        "short",
        "@v = global i16 5 define i32 @get() { %v = load i16, ptr @v %n = zext i16 %v to i32 ret i32 %n }",
    );
    jit.main()
        .replace(short.migrate("v", |_, _, _, _| {}))
        .expect("migrated again");
    assert_eq!(call(&jit, "get"), 5);
    jit.rollback().expect("the latest");
    assert_eq!(call(&jit, "get"), 30);
    jit.main()
        .replace(Replacement::ir("wide", WIDE))
        .expect("it has the type of the first migration");
    assert_eq!(call(&jit, "get"), 30);
}
