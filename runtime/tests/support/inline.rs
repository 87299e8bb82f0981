//! The parts that modules of C and C++ share if they have the same inline definitions.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::atomic::{AtomicI32, Ordering};

use uruk::{Dylib, Error, Jit};

use crate::clang;

/// The source of a C++ module, with `N` as its number. Names that end in it are the module's own;
/// all others are in each module.
pub const SHARED: &str = r#"
#include <typeinfo>
#define PASTE(a, b) a##b
#define NAME2(a, b) PASTE(a, b)
#define OWN(name) NAME2(name, N)
extern "C" int host_next(void);

inline int made = host_next();
struct Shape {
  virtual ~Shape() {}
  virtual int sides() const { return 0; }
};
struct Square : Shape {
  int sides() const override { return 4; }
};
struct Thrown { int value; };
template <class T> struct Holder { static T value; static T begun; };
template <class T> T Holder<T>::value = 3;
template <class T> T Holder<T>::begun = host_next();
inline int &counter() { static int count = host_next(); return count; }
inline const int table[] = {2, 3, 5, 7};
inline int twice(int x) { return x + x; }

extern "C" {
const void *OWN(made_)() { return &made; }
int OWN(made_value_)() { return made; }
const void *OWN(counter_)() { return &counter(); }
int OWN(count_)() { return ++counter(); }
const void *OWN(value_)() { return &Holder<int>::value; }
const void *OWN(begun_)() { return &Holder<int>::begun; }
const void *OWN(table_)() { return table; }
int OWN(entry_)(int i) { return table[i & 3]; }
const void *OWN(twice_)() { return (const void *)(int (*)(int))twice; }
const void *OWN(type_)() { return &typeid(Square); }
Shape *OWN(make_)() { return new Square; }
const void *OWN(table_of_)() {
  Square square;
  return *(const void **)&square;
}
int OWN(sides_)(Shape *shape) {
  Square *square = dynamic_cast<Square *>(shape);
  return square ? square->sides() : -1;
}
void OWN(throw_)(int value) { throw Thrown{value}; }
void OWN(drop_)(Shape *shape) { delete shape; }
void throw_1(int);
int OWN(catch_)(int value) {
  try {
    throw_1(value);
  } catch (const Thrown &thrown) {
    return thrown.value;
  } catch (...) {
    return -2;
  }
  return -3;
}
}
"#;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Bitcode,
    Object,
}

pub use Form::{Bitcode, Object};

pub fn add_source(dylib: &Dylib, form: Form, name: &str, source: &str, flags: &[&str]) {
    add_to(form, name, source, flags, |name, bytes, form| match form {
        Bitcode => dylib.add_bitcode(name, bytes),
        Object => dylib.add_object(name, bytes),
    })
    .expect("added");
}

pub fn add_to(
    form: Form,
    name: &str,
    source: &str,
    flags: &[&str],
    add: impl FnOnce(&str, Vec<u8>, Form) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut all = vec!["-O0", "-fPIC"];
    if form == Bitcode {
        all.push("-emit-llvm");
    }
    all.extend(flags);
    add(name, clang::compile("weak", name, source, &all), form)
}

pub fn number_of(number: u32) -> String {
    format!("-DN={number}")
}

pub fn call(dylib: &Dylib, name: &str) -> u64 {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests without parameters, which returns a word or less.
    let function = unsafe { std::mem::transmute::<u64, extern "C" fn() -> u64>(address) };
    function()
}

pub fn call_with(dylib: &Dylib, name: &str, argument: u64) -> u64 {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests with one parameter, as above.
    let function = unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> u64>(address) };
    function(argument)
}

/// The low half: what functions that return an `int` say.
pub fn int(dylib: &Dylib, name: &str) -> i32 {
    call(dylib, name) as i32
}

pub fn int_with(dylib: &Dylib, name: &str, argument: u64) -> i32 {
    call_with(dylib, name, argument) as i32
}

pub static NEXT: AtomicI32 = AtomicI32::new(100);

pub extern "C" fn host_next() -> i32 {
    NEXT.fetch_add(1, Ordering::SeqCst)
}

pub fn jit() -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    provide(&jit.main());
    jit
}

pub fn provide(dylib: &Dylib) {
    // SAFETY: a function of this file, of the type the modules declare.
    unsafe { dylib.define_address("host_next", host_next as *const ()) }.expect("new");
}

pub fn initialize(jit: &Jit) {
    // SAFETY: the tests' own modules.
    unsafe { jit.initialize() }.expect("initialized");
}

pub const ADDRESSES: [&str; 8] = [
    "made", "counter", "value", "begun", "table", "twice", "type", "table_of",
];

/// All that the modules of numbers `one` and `two`, in these dylibs, share.
pub fn check_shared(one: (&Dylib, u32), two: (&Dylib, u32), at: &str) {
    let name = |what: &str, number: u32| format!("{what}_{number}");
    for what in ADDRESSES {
        let here = call(one.0, &name(what, one.1));
        assert_eq!(here, call(two.0, &name(what, two.1)), "{what} {at}");
        assert_ne!(here, 0, "{what} {at}");
    }
    let value = |of: (&Dylib, u32)| int(of.0, &name("made_value", of.1));
    assert_eq!(value(one), value(two), "{at}");
    assert!(value(one) >= 100, "not initialized {at}");
    let before = int(one.0, &name("count", one.1));
    assert_eq!(int(two.0, &name("count", two.1)), before + 1, "{at}");
    for (maker, taker) in [(one, two), (two, one)] {
        let shape = call(maker.0, &name("make", maker.1));
        assert_eq!(int_with(taker.0, &name("sides", taker.1), shape), 4, "{at}");
        call_with(taker.0, &name("drop", taker.1), shape);
    }
    for (dylib, number) in [one, two] {
        assert_eq!(int_with(dylib, &name("entry", number), 3), 7, "{at}");
        assert_eq!(int_with(dylib, &name("catch", number), 9), 9, "{at}");
    }
}

pub fn c(dylib: &Dylib, form: Form, source: &str) -> Result<(), Error> {
    add_to(
        form,
        "module.c",
        source,
        &["-fcommon"],
        |name, bytes, form| match form {
            Bitcode => dylib.add_bitcode(name, bytes),
            Object => dylib.add_object(name, bytes),
        },
    )
}

pub const FORMS: [[Form; 2]; 4] = [
    [Bitcode, Bitcode],
    [Bitcode, Object],
    [Object, Bitcode],
    [Object, Object],
];
