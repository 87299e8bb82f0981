//! Units and modules in one session: what they see of each other, and what runs at the beginning.

use uruk::{Alias, DependenceGroup, Flags, Jit, Lookup, Required, Visibility};

use crate::unit::*;

#[test]
fn init_symbols_are_listed_in_order_and_looking_them_up_runs_what_they_stand_for() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    let log = Log::default();
    let inits = ["first", "second"].map(|name| jit.intern(name));
    for init in inits {
        let told = log.clone();
        let name = jit.name_of(init).to_owned();
        let data = format!("data of {name}");
        let unit = TestUnit::new(&jit, &[&data], move |responsibility| {
            assert_eq!(responsibility.init_symbol(), Some(init));
            told.push(name);
            finish(responsibility);
        });
        main.define(unit.init(init)).unwrap();
    }
    assert_eq!(main.init_symbols(), inits);
    assert_eq!(log.all(), [""; 0]);
    let lookup = Lookup::new([(&main, Visibility::All)]);
    let lookup = inits.into_iter().fold(lookup, Lookup::weak);
    assert!(jit.lookup_all(lookup).unwrap().is_empty());
    assert_eq!(log.all(), ["first", "second"]);
}

#[test]
fn modules_read_the_data_that_units_make_when_it_is_needed() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let value: &'static i64 = Box::leak(Box::new(42));
    let at = std::ptr::from_ref(value) as u64;
    jit.main()
        .define(TestUnit::at(&jit, &[("value", at)]).log(&log))
        .unwrap();
    let alias = Alias {
        name: jit.intern("known_as"),
        target: jit.intern("value"),
        flags: Flags::EXPORTED,
    };
    jit.main().alias([alias]).unwrap();
    jit.add_ir(
        "m",
        "@known_as = external global i64
         define i64 @f() { %v = load i64, ptr @known_as ret i64 %v }",
    )
    .unwrap();
    assert_eq!(call(&jit, "f"), 42);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn a_module_that_uses_a_units_data_waits_until_that_is_ready() {
    let jit = Jit::new().unwrap();
    let slot: &'static std::sync::atomic::AtomicI64 = Box::leak(Box::default());
    let (unit, kept) = TestUnit::kept(&jit, &["value"]);
    jit.main().define(unit).unwrap();
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || {
            jit.add_ir(
                "m",
                "@value = external global i64
                 define i64 @f() { %v = load i64, ptr @value ret i64 %v }",
            )
            .unwrap();
            call(&jit, "f")
        }
    });
    let work = kept.take();
    work.resolve(&[(jit.intern("value"), slot.as_ptr() as u64)])
        .unwrap();
    slot.store(5, std::sync::atomic::Ordering::Relaxed);
    work.emit(&[]).unwrap();
    assert_eq!(caller.join().unwrap(), 5);
}

#[test]
fn a_units_symbol_may_depend_on_a_modules_data_and_function() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", "@x = global i64 3  define i64 @three() { ret i64 3 }")
        .unwrap();
    let (work, future) = at_work(&jit, &["a"]);
    let used = start(&jit, &["x", "three"], Required::Resolved);
    let group = DependenceGroup {
        symbols: vec![jit.intern("a")],
        dependences: used.wait().unwrap().dependences(),
    };
    work.emit(&[group]).unwrap();
    assert!(future.is_done());
}

#[test]
fn a_stub_that_is_called_twice_has_its_unit_materialized_once() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::at(&jit, &[("f()", address(seven))]).log(&log);
    jit.main().define(unit).unwrap();
    // From IR, so both calls go through the slot.
    jit.add_ir(
        "m",
        "declare i64 @f()
         define i64 @both() { %a = call i64 @f() %b = call i64 @f() %c = add i64 %a, %b ret i64 %c }",
    )
    .unwrap();
    assert_eq!(log.all(), [""; 0]);
    assert_eq!(call(&jit, "both"), 14);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn the_address_of_a_units_function_is_one_everywhere() {
    let jit = Jit::new().unwrap();
    jit.main()
        .define(TestUnit::at(&jit, &[("f()", address(seven))]))
        .unwrap();
    jit.add_ir(
        "m",
        "declare i64 @f()
         @at = global ptr @f
         define i64 @same() {
           %p = load ptr, ptr @at
           %e = icmp eq ptr %p, @f
           %v = zext i1 %e to i64
           ret i64 %v
         }",
    )
    .unwrap();
    assert_eq!(call(&jit, "same"), 1);
    let at = jit.lookup("at").unwrap() as *const u64;
    // SAFETY: a global of the module's.
    assert_eq!(unsafe { *at }, jit.lookup("f").unwrap());
}
