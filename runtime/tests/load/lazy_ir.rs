//! Functions whose IR is produced when they are first called.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use uruk::{Func, Jit, Replacement, Tier, Tiers};

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// Writes `name(x) = x * factor` into a module.
fn write_scale(
    module: &uruk::inkwell::module::Module<'_>,
    name: &str,
    factor: u64,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let word = module.get_context().i64_type();
    let function = module.add_function(name, word.fn_type(&[word.into()], false), None);
    let builder = module.get_context().create_builder();
    builder.position_at_end(module.get_context().append_basic_block(function, ""));
    let x = function
        .get_nth_param(0)
        .ok_or("no parameter")?
        .into_int_value();
    let y = builder.build_int_mul(x, word.const_int(factor, false), "")?;
    builder.build_return(Some(&y))?;
    Ok(())
}

#[test]
fn ir_is_produced_once_by_the_first_call_of_many() {
    type Scale = extern "C" fn(i64) -> i64;
    for tier in ALL_TIERS {
        let jit = Jit::builder()
            .tiers(Tiers::Fixed(tier))
            .build()
            .expect("a session");
        let made = Arc::new(AtomicI64::new(0));
        let define = |factor| {
            let made = Arc::clone(&made);
            jit.main().define_lazy::<Scale>("scale", move |module| {
                made.fetch_add(1, Ordering::Relaxed);
                write_scale(module, "scale", factor)
            })
        };
        define(2).expect("defined");
        jit.add_ir(
            "m",
            "declare i64 @scale(i64) define i64 @user(i64 %x) {
              %y = call i64 @scale(i64 %x) ret i64 %y }",
        )
        .expect("it loads");
        // SAFETY: the functions above.
        let user: Func<Scale> = unsafe { jit.function("user") }.expect("it is there");
        assert_eq!(made.load(Ordering::Relaxed), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|x| assert_eq!(user.call(x), 2 * x)));
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        // Redefined while it is called, and before a call as well as after one.
        define(3).expect("redefined");
        define(10).expect("redefined");
        assert_eq!((user.call(4), made.load(Ordering::Relaxed)), (40, 2));
    }
}

#[test]
fn what_cannot_be_produced_is_an_error_of_the_call_until_it_is_redefined() {
    type Scale = extern "C" fn(i64) -> i64;
    let jit = Jit::new().expect("a session");
    jit.main()
        .define_lazy::<Scale>("f", |_| Err("not today".into()))
        .expect("defined");
    // SAFETY: the function above, or what replaces it.
    let f: Func<Scale> = unsafe { jit.function("f") }.expect("it is there");
    for _ in 0..2 {
        let trap = f.call_guarded(1).expect_err("there is no body");
        assert_eq!(trap.kind.to_string(), "f has no body: not today");
    }
    jit.main()
        .define_lazy::<Scale>("f", |module| write_scale(module, "g", 1))
        .expect("redefined");
    let trap = f.call_guarded(1).expect_err("there is no body");
    assert_eq!(
        trap.kind.to_string(),
        "f has no body: the module does not define it"
    );
    jit.main()
        .define_lazy::<extern "C" fn(f64) -> i64>("h", |module| write_scale(module, "h", 1))
        .expect("defined");
    // SAFETY: the function above.
    let h: Func<extern "C" fn(f64) -> i64> = unsafe { jit.function("h") }.expect("it is there");
    let trap = h.call_guarded(1.0).expect_err("another type");
    assert_eq!(
        trap.kind.to_string(),
        "h has no body: the module has it as i64 (i64), and it was defined as i64 (double)"
    );
    jit.main()
        .define_lazy::<Scale>("f", |module| write_scale(module, "f", 7))
        .expect("redefined");
    assert_eq!(f.call_guarded(6).expect("there is a body"), 42);
}

/// Says by how many there are of it whether a closure was dropped.
fn counted(jit: &Jit, name: &str, there: &Arc<()>, factor: u64) {
    let (there, own) = (Arc::clone(there), name.to_owned());
    jit.main()
        .define_lazy::<extern "C" fn(i64) -> i64>(name, move |module| {
            let _there = &there;
            write_scale(module, &own, factor)
        })
        .expect("defined");
}

#[test]
fn what_a_closure_captured_goes_with_its_use_its_successor_or_its_function() {
    type Scale = extern "C" fn(i64) -> i64;
    let jit = Jit::new().expect("a session");
    let there = Arc::new(());
    // Where nothing is kept, a closure goes with the next definition.
    let forgets = Jit::builder()
        .replacements_kept(0)
        .build()
        .expect("a session");
    counted(&forgets, "f", &there, 2);
    counted(&forgets, "f", &there, 3);
    assert_eq!(Arc::strong_count(&there), 2);
    drop(forgets);
    let there = Arc::new(());
    counted(&jit, "f", &there, 2);
    assert_eq!(Arc::strong_count(&there), 2);
    // SAFETY: the function above.
    let f: Func<Scale> = unsafe { jit.function("f") }.expect("it is there");
    assert_eq!(f.call(4), 8);
    assert_eq!(Arc::strong_count(&there), 1);
    // Not called before it is defined again: a rollback can bring it back.
    counted(&jit, "f", &there, 3);
    counted(&jit, "f", &there, 5);
    assert_eq!(Arc::strong_count(&there), 3);
    assert_eq!(f.call(4), 20);
    assert_eq!(Arc::strong_count(&there), 2);
    jit.rollback().expect("it was defined again");
    assert_eq!(f.call(4), 12);
    assert_eq!(Arc::strong_count(&there), 1);
    // Of a dylib that goes.
    let other = jit.create_dylib("other").expect("a dylib");
    let held = Arc::clone(&there);
    other
        .define_lazy::<Scale>("g", move |module| {
            let _held = &held;
            write_scale(module, "g", 1)
        })
        .expect("defined");
    assert_eq!(Arc::strong_count(&there), 2);
    // SAFETY: no thread has an address of it.
    unsafe { other.clear() }.expect("it goes");
    assert_eq!(Arc::strong_count(&there), 1);
}

#[test]
fn a_first_body_is_no_entry_of_the_history() {
    type Scale = extern "C" fn(i64) -> i64;
    let jit = Jit::new().expect("a session");
    jit.main()
        .define_lazy::<Scale>("f", |module| write_scale(module, "f", 2))
        .expect("defined");
    jit.add_ir("g", "define i64 @g() { ret i64 1 }")
        .expect("it loads");
    // SAFETY: the functions above.
    let (f, g) = unsafe {
        let f: Func<Scale> = jit.function("f").expect("it is there");
        (
            f,
            jit.function::<extern "C" fn() -> i64>("g")
                .expect("it is there"),
        )
    };
    let second = Replacement::ir("g2", "define i64 @g() { ret i64 2 }");
    let replaced = jit.main().replace(second).expect("replaced");
    assert_eq!((f.call(4), g.call()), (8, 2));
    replaced.rollback().expect("it is the latest");
    assert_eq!((f.call(4), g.call()), (8, 1));
    jit.rollback().expect_err("a first body replaces nothing");
    assert_eq!(f.call(4), 8);
    // A replacement before the first call goes back to before the first call.
    jit.main()
        .define_lazy::<Scale>("h", |module| write_scale(module, "h", 3))
        .expect("defined");
    // SAFETY: the function above.
    let h: Func<Scale> = unsafe { jit.function("h") }.expect("it is there");
    let other = Replacement::ir("h2", "define i64 @h(i64 %x) { ret i64 5 }");
    let replaced = jit.main().replace(other).expect("replaced");
    assert_eq!(h.call(4), 5);
    replaced.rollback().expect("it is the latest");
    assert_eq!(h.call(4), 12);
}
