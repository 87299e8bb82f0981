//! Modules that share weak definitions, and are removed in any order. The chosen definition stays
//! as long as a module is bound to it, and goes with the last.

use std::sync::Mutex;
use std::time::Duration;

use uruk::{Dylib, Error, FunctionId, Jit, ReclaimKind, Removal, Replacement, Tier, Tracker};
use uruk_testing::Child;

use crate::clang;

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The source that two modules share; names that end in `N` are a module's own.
const SHARED: &str = r#"
#define PASTE(a, b) a##b
#define NAME2(a, b) PASTE(a, b)
#define OWN(name) NAME2(name, N)
extern "C" void host_note(const char *);
struct Noted {
  const char *name;
  int value;
  Noted(const char *name, int value) : name(name), value(value) { host_note(name); }
  ~Noted() { host_note("gone"); value = -1; }
};
inline Noted made("made", 1);
inline Noted &local() { static Noted noted("local", 10); return noted; }
inline thread_local int here = 5;
struct Base {
  virtual ~Base() {}
  virtual const char *name() { return "base of the module"; }
};
inline const char *cold(int x) {
  switch (x) {
  case 0: return "nought";
  case 1: return "one";
  case 2: return "two";
  case 3: return "three";
  default: return "many";
  }
}
extern "C" {
int OWN(bump_)() { return ++made.value; }
int OWN(local_)() { return ++local().value; }
int OWN(here_)() { return ++here; }
const char *OWN(name_)() { Base base; Base *volatile p = &base; return p->name(); }
const char *OWN(cold_)(long x) { return cold((int)x); }
const void *OWN(at_)() { return &made; }
}
"#;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Bitcode,
    Object,
}

use Form::{Bitcode, Object};

const FORMS: [[Form; 2]; 4] = [
    [Bitcode, Bitcode],
    [Bitcode, Object],
    [Object, Bitcode],
    [Object, Object],
];

fn add(tracker: &Tracker, form: Form, number: u32) -> Result<(), Error> {
    let flag = format!("-DN={number}");
    let mut flags = vec!["-O0", "-fPIC", &flag];
    if form == Bitcode {
        flags.push("-emit-llvm");
    }
    let bytes = clang::compile("weak-removal", "shared.cpp", SHARED, &flags);
    let name = format!("shared{number}.cpp");
    match form {
        Bitcode => tracker.add_bitcode(&name, bytes),
        Object => tracker.add_object(&name, bytes),
    }
}

thread_local! {
    static NOTES: Mutex<Vec<String>> = const { Mutex::new(Vec::new()) };
}

extern "C" fn host_note(text: *const std::ffi::c_char) {
    // SAFETY: a string of the module's.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    let text = text.to_string_lossy().into_owned();
    NOTES.with(|notes| notes.lock().expect("whole").push(text));
}

fn notes() -> String {
    NOTES.with(|notes| std::mem::take(&mut *notes.lock().expect("whole")).join(" "))
}

extern "C" fn called_what_is_gone() -> u64 {
    77
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    called_what_is_gone as *const () as u64
}

fn session() -> Jit {
    let jit = Jit::builder().jobs(1).on_failure(on_failure).build();
    let jit = jit.expect("a session");
    provide(&jit.main());
    jit
}

fn provide(dylib: &Dylib) {
    // SAFETY: a function of this file, of the type the modules declare.
    unsafe { dylib.define_address("host_note", host_note as *const ()) }.expect("new");
}

fn initialize(jit: &Jit) {
    // SAFETY: the tests' own modules.
    unsafe { jit.initialize() }.expect("initialized");
}

fn remove(tracker: &Tracker) {
    // SAFETY: only code that is bound to its data uses that data.
    unsafe { tracker.remove() }.expect("once");
}

fn call(dylib: &Dylib, name: &str) -> u64 {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests without parameters, which returns a word or less.
    let function = unsafe { std::mem::transmute::<u64, extern "C" fn() -> u64>(address) };
    function()
}

fn int(dylib: &Dylib, name: &str) -> i32 {
    call(dylib, name) as i32
}

fn text(dylib: &Dylib, name: &str, argument: i64) -> String {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests that returns a string; its parameter may be ignored.
    unsafe {
        let function = std::mem::transmute::<u64, extern "C" fn(i64) -> *const i8>(address);
        std::ffi::CStr::from_ptr(function(argument))
            .to_string_lossy()
            .into_owned()
    }
}

/// The first of two is removed before the functions of the second were ever called.
fn first_goes(forms: [Form; 2], initialized: bool) {
    let at = format!("{forms:?} {initialized}");
    let jit = session();
    let main = jit.main();
    let [one, two] = [1, 2].map(|_| main.create_tracker().expect("a tracker"));
    add(&one, forms[0], 1).expect("added");
    add(&two, forms[1], 2).expect("added");
    if initialized {
        initialize(&jit);
        assert_eq!(notes(), "made", "{at}");
        assert_eq!(int(&main, "bump_1"), 2, "{at}");
    }
    remove(&one);
    assert_eq!(notes(), "", "its data lives, {at}");
    assert!(main.lookup("bump_1").is_err(), "{at}");
    if !initialized {
        initialize(&jit);
        assert_eq!(notes(), "made", "{at}");
        assert_eq!(int(&main, "bump_2"), 2, "{at}");
    }
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON), "{at}");
    assert_eq!(int(&main, "bump_2"), 3, "{at}");
    assert_eq!(int(&main, "local_2"), 11, "{at}");
    assert_eq!(notes(), "local", "{at}");
    assert_eq!(int(&main, "here_2"), 6, "{at}");
    assert_eq!(int(&main, "here_2"), 7, "{at}");
    assert_eq!(text(&main, "name_2", 0), "base of the module", "{at}");
    assert_eq!(text(&main, "cold_2", 3), "three", "{at}");
    // A module that comes now shares it, too.
    let three = main.create_tracker().expect("a tracker");
    add(&three, forms[0], 1).expect("added");
    initialize(&jit);
    assert_eq!(notes(), "", "{at}");
    assert_eq!(call(&main, "at_1"), call(&main, "at_2"), "{at}");
    assert_eq!(int(&main, "bump_1"), 4, "{at}");
    remove(&two);
    assert_eq!(notes(), "", "{at}");
    assert_eq!(int(&main, "local_1"), 12, "{at}");
    assert_eq!(text(&main, "cold_1", 2), "two", "{at}");
    remove(&three);
    assert_eq!(notes(), "gone gone", "{at}");
    assert!(main.lookup("made").is_err(), "{at}");
    // All of it is new.
    let four = main.create_tracker().expect("a tracker");
    add(&four, forms[1], 2).expect("added");
    initialize(&jit);
    assert_eq!(notes(), "made", "{at}");
    assert_eq!(int(&main, "bump_2"), 2, "{at}");
    remove(&four);
    assert_eq!(notes(), "gone", "{at}");
}

#[test]
fn what_was_chosen_stays_for_who_is_bound_to_it() {
    for forms in FORMS {
        first_goes(forms, true);
        first_goes(forms, false);
    }
}

#[test]
fn who_lost_goes_alone() {
    for forms in FORMS {
        let jit = session();
        let main = jit.main();
        let [one, two] = [1, 2].map(|_| main.create_tracker().expect("a tracker"));
        add(&one, forms[0], 1).expect("added");
        add(&two, forms[1], 2).expect("added");
        initialize(&jit);
        assert_eq!(int(&main, "bump_2"), 2);
        remove(&two);
        assert_eq!(notes(), "made", "{forms:?}");
        assert_eq!(int(&main, "bump_1"), 3, "{forms:?}");
        assert_eq!(text(&main, "cold_1", 1), "one", "{forms:?}");
        remove(&one);
        assert_eq!(notes(), "gone", "{forms:?}");
    }
}

#[test]
fn a_strong_definition_stays_for_who_yielded_to_it() {
    let jit = session();
    let main = jit.main();
    let [one, two] = [1, 2].map(|_| main.create_tracker().expect("a tracker"));
    one.add_ir(
        "strong",
        "@x = global i32 40
         define i32 @f() { %v = load i32, ptr @x %w = add i32 %v, 1 store i32 %w, ptr @x ret i32 %w }
         define i32 @other() { ret i32 3 }",
    )
    .expect("valid");
    two.add_ir(
        "weak",
        "@x = weak global i32 1
         define weak i32 @f() { ret i32 5 }
         define i32 @g() { %r = call i32 @f() ret i32 %r }
         define ptr @at() { ret ptr @x }",
    )
    .expect("valid");
    remove(&one);
    assert!(main.lookup("other").is_err());
    one_more(&main);
    assert_eq!(int(&main, "g"), 41);
    jit.compile_at("g", Tier::Optimized).expect("compiles");
    assert_eq!(int(&main, "g"), 42);
    assert_eq!(call(&main, "at"), main.lookup("x").expect("there"));
    // A live definition cannot be defined anew.
    assert!(main.add_ir("again", "@x = global i32 0").is_err());
    remove(&two);
    assert!(main.lookup("x").is_err());
    main.add_ir("again", "@x = global i32 0").expect("free");
}

/// A name that was the first one's alone is free at once.
fn one_more(main: &Dylib) {
    main.add_ir("one more", "define i32 @other() { ret i32 4 }")
        .expect("free");
    assert_eq!(int(main, "other"), 4);
}

#[test]
fn what_replaced_it_stays_too() {
    let jit = session();
    let main = jit.main();
    let [one, two] = [1, 2].map(|_| main.create_tracker().expect("a tracker"));
    let f = |value: i32| format!("define weak i32 @f() {{ ret i32 {value} }}");
    one.add_ir("one", &f(1)).expect("valid");
    main.replace(Replacement::ir("new", &f(2)))
        .expect("replaced");
    let caller = "define i32 @g() { %r = call i32 @f() ret i32 %r }";
    two.add_ir("two", &format!("{} {caller}", f(3)))
        .expect("valid");
    main.replace(Replacement::ir("newer", &f(4)))
        .expect("replaced");
    remove(&one);
    assert_eq!(int(&main, "g"), 4);
    remove(&two);
    assert!(main.lookup("f").is_err());
    main.add_ir("again", &f(5)).expect("free");
    assert_eq!(int(&main, "f"), 5);
}

#[test]
fn a_chain_goes_from_its_end() {
    let jit = session();
    let main = jit.main();
    let module = |number: u32| {
        let before = number - 1;
        format!(
            "@v{before} = linkonce_odr global i32 {before}
             @v{number} = linkonce_odr global i32 {number}
             define i32 @f{number}() {{
               %a = load i32, ptr @v{before}
               %b = load i32, ptr @v{number}
               %c = mul i32 %a, 10
               %d = add i32 %c, %b
               ret i32 %d }}"
        )
    };
    let trackers: Vec<Tracker> = (1..=4)
        .map(|number| {
            let tracker = main.create_tracker().expect("a tracker");
            tracker.add_ir("link", &module(number)).expect("valid");
            tracker
        })
        .collect();
    for tracker in &trackers[..3] {
        remove(tracker);
    }
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    assert_eq!(int(&main, "f4"), 34);
    for number in 0..=4 {
        assert!(main.lookup(&format!("v{number}")).is_ok(), "{number}");
    }
    remove(&trackers[3]);
    for number in 0..=4 {
        assert!(main.lookup(&format!("v{number}")).is_err(), "{number}");
    }
}

#[test]
fn the_end_of_a_session_ends_what_remained() {
    for forms in FORMS {
        let jit = session();
        let main = jit.main();
        let [one, two] = [1, 2].map(|_| main.create_tracker().expect("a tracker"));
        add(&one, forms[0], 1).expect("added");
        add(&two, forms[1], 2).expect("added");
        initialize(&jit);
        remove(&one);
        assert_eq!(notes(), "made", "{forms:?}");
        drop((one, two, main));
        drop(jit);
        assert_eq!(notes(), "gone", "{forms:?}");
    }
}

#[test]
fn dylibs_go_and_what_others_are_bound_to_stays() {
    for forms in FORMS {
        let jit = session();
        let below = jit.create_dylib("below").expect("new");
        provide(&below);
        let above = jit.create_dylib("above").expect("new");
        provide(&above);
        above.add_to_link_order(&below).expect("alive");
        let one = below.create_tracker().expect("a tracker");
        let two = above.create_tracker().expect("a tracker");
        add(&one, forms[0], 1).expect("added");
        add(&two, forms[1], 2).expect("added");
        initialize(&jit);
        remove(&one);
        assert_eq!(int(&above, "bump_2"), 2, "{forms:?}");
        assert_eq!(text(&above, "cold_2", 3), "three", "{forms:?}");
        // SAFETY: no thread uses it any more.
        unsafe { above.remove(Removal::Refused) }.expect("nobody searches it");
        assert_eq!(notes(), "made gone", "{forms:?}");
        // SAFETY: as above.
        unsafe { below.remove(Removal::Refused) }.expect("nobody searches it");
    }
}

/// Set in the child: how many pairs of modules come and go.
const CYCLES: &str = "URUK_CYCLES";

/// Bytes that the process may grow by after the first quarter of the cycles. LLVM's heap alone
/// grows by 1 to 4 MB, once by 7 on a busy machine, and hardly by more in four times the cycles. A
/// module that stays costs 7 KB: of 3,000 cycles, 20 MB.
const ALLOWED: u64 = 14 << 20;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there is /proc");
    let pages = statm.split(' ').nth(1).and_then(|text| text.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}

fn cycle(jit: &Jit, number: u64) {
    let main = jit.main();
    let module = |own: &str| {
        format!(
            "@count = linkonce_odr global i64 {number}
             @table = linkonce_odr constant [512 x i64] zeroinitializer
             define linkonce_odr i64 @bump() {{
               %c = load i64, ptr @count
               %n = add i64 %c, 1
               store i64 %n, ptr @count
               ret i64 %n }}
             define i64 @{own}() {{ %n = call i64 @bump() ret i64 %n }}"
        )
    };
    let [one, two] = ["one", "two"].map(|own| {
        let tracker = main.create_tracker().expect("a tracker");
        tracker.add_ir("module", &module(own)).expect("valid IR");
        tracker
    });
    assert_eq!(call(&main, "one"), number + 1);
    let (first, last, left) = match number % 2 {
        0 => (one, two, "two"),
        _ => (two, one, "one"),
    };
    remove(&first);
    assert_eq!(call(&main, left), number + 2);
    if number.is_multiple_of(64) {
        main.compile_at(left, Tier::Optimized).expect("compiled");
        assert_eq!(call(&main, left), number + 3);
    }
    remove(&last);
    assert!(main.lookup("count").is_err());
}

#[test]
fn pairs_of_modules_that_come_and_go_leave_no_memory() {
    let cycles = std::env::var(CYCLES).ok();
    let Some(cycles) = cycles.and_then(|text| text.parse::<u64>().ok()) else {
        let name = "pairs_of_modules_that_come_and_go_leave_no_memory";
        Child::of(module_path!(), name).env(CYCLES, "4000").passes();
        return;
    };
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let mut early = 0;
    for number in 0..cycles {
        if number == cycles / 4 {
            early = resident();
        }
        cycle(&jit, number);
    }
    let late = resident();
    println!(
        "{early} bytes after {} cycles, {late} after {cycles}",
        cycles / 4
    );
    assert!(late < early + ALLOWED, "{early} grew to {late}");
}
