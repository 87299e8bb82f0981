//! The library as an embedder uses it.

use std::sync::atomic::{AtomicI32, Ordering};

use uruk::{Error, Jit, Tier};

fn jit(ir: &str) -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", ir).expect("valid IR");
    jit
}

#[test]
fn functions_are_compiled_by_their_first_call_and_only_then() {
    let jit = jit("define i32 @a() { ret i32 1 } define i32 @b() { ret i32 2 }");
    // SAFETY: the function above.
    let a = unsafe { jit.function::<extern "C" fn() -> i32>("a") }.expect("typed");
    assert_eq!(jit.stats().compiled, 0);
    assert_eq!(a.call(), 1);
    assert_eq!(a.call(), 1);
    assert_eq!((jit.stats().functions, jit.stats().compiled), (2, 1));
}

#[test]
fn a_wrong_type_is_refused_with_both_types() {
    let jit = jit("define i32 @f(ptr %p, double %d) { ret i32 0 }");
    // SAFETY: refused before any call.
    let wrong = unsafe { jit.function::<extern "C" fn(i64, f64) -> i32>("f") };
    let Err(error) = wrong else {
        panic!("accepted")
    };
    assert_eq!(
        error.to_string(),
        "function `f` is i32 (ptr, double), not i32 (i64, double)"
    );
    // SAFETY: the function above, which looks at nothing.
    let right = unsafe { jit.function::<extern "C" fn(*const u8, f64) -> i32>("f") };
    assert_eq!(right.expect("typed").call(std::ptr::null(), 1.0), 0);
}

#[test]
fn missing_symbols_are_all_named_with_their_users() {
    let jit = Jit::new().expect("a session");
    let error = jit
        .add_ir(
            "m",
            "declare void @gone()
             declare void @unused()
             @d = external global i32
             define i32 @f() { call void @gone() %x = load i32, ptr @d ret i32 %x }",
        )
        .expect_err("nothing defines them");
    let Error::MissingSymbols { missing } = &error else {
        panic!("{error}")
    };
    let names: Vec<&str> = missing.iter().map(|m| m.symbol.as_str()).collect();
    assert_eq!(names, ["gone", "d"]);
    assert!(missing.iter().all(|m| m.needed_by == ["m: f"]), "{error}");
}

#[test]
fn duplicate_definitions_are_refused_and_the_first_stays() {
    let jit = jit("define i32 @f() { ret i32 1 }");
    let error = jit
        .add_ir("n", "define i32 @f() { ret i32 2 }")
        .expect_err("defined twice");
    assert!(error.to_string().contains('f'), "{error}");
    // SAFETY: the first function above.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), 1);
}

#[test]
fn a_later_weak_definition_gives_way() {
    let jit = jit("define i32 @f() { ret i32 1 }");
    jit.add_ir(
        "n",
        "define weak i32 @f() { ret i32 2 } define i32 @g() { %x = call i32 @f() ret i32 %x }",
    )
    .expect("weak");
    // SAFETY: the function above.
    let g = unsafe { jit.function::<extern "C" fn() -> i32>("g") }.expect("typed");
    assert_eq!(g.call(), 1);
}

static CALLED: AtomicI32 = AtomicI32::new(0);

extern "C" fn callback(value: i32) {
    CALLED.store(value, Ordering::Relaxed);
}

#[test]
fn host_functions_and_library_functions_can_be_called() {
    let jit = Jit::new().expect("a session");
    // SAFETY: a function of the type the IR below declares, alive for ever.
    unsafe { jit.main().define_address("callback", callback as *const ()) }.expect("a new name");
    jit.add_ir(
        "m",
        "declare void @callback(i32)
         declare i32 @abs(i32)
         define void @f(i32 %x) { %y = call i32 @abs(i32 %x) call void @callback(i32 %y) ret void }",
    )
    .expect("valid");
    // SAFETY: the function above.
    unsafe { jit.function::<extern "C" fn(i32)>("f") }
        .expect("typed")
        .call(-5);
    assert_eq!(CALLED.load(Ordering::Relaxed), 5);
}

#[test]
fn data_is_one_instance_shared_by_all_functions() {
    let jit = jit(
        "@count = internal global i32 10
         define i32 @up() { %x = load i32, ptr @count %y = add i32 %x, 1 store i32 %y, ptr @count ret i32 %y }
         define i32 @get() { %x = load i32, ptr @count ret i32 %x }",
    );
    // SAFETY: the functions above.
    let (up, get) = unsafe {
        (
            jit.function::<extern "C" fn() -> i32>("up").expect("typed"),
            jit.function::<extern "C" fn() -> i32>("get")
                .expect("typed"),
        )
    };
    assert_eq!((up.call(), up.call(), get.call()), (11, 12, 12));
}

#[test]
fn constructors_run_when_asked_and_destructors_in_reverse() {
    let jit = jit(
        "@order = global i32 0
         @llvm.global_ctors = appending global [2 x { i32, ptr, ptr }] [
           { i32, ptr, ptr } { i32 65535, ptr @late, ptr null },
           { i32, ptr, ptr } { i32 101, ptr @early, ptr null }]
         @llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [
           { i32, ptr, ptr } { i32 65535, ptr @clear, ptr null }]
         define internal void @early() { store i32 1, ptr @order ret void }
         define internal void @late() { %x = load i32, ptr @order %y = mul i32 %x, 10 store i32 %y, ptr @order ret void }
         define internal void @clear() { store i32 -1, ptr @order ret void }
         define i32 @get() { %x = load i32, ptr @order ret i32 %x }",
    );
    // SAFETY: the function above.
    let get = unsafe { jit.function::<extern "C" fn() -> i32>("get") }.expect("typed");
    assert_eq!(get.call(), 0);
    // SAFETY: the constructors above only store to their own variable.
    unsafe { jit.initialize() }.expect("initialized");
    assert_eq!(get.call(), 10);
    // SAFETY: as above.
    unsafe { jit.deinitialize() };
    assert_eq!(get.call(), -1);
}

#[test]
fn addresses_are_equal_everywhere_and_callable_from_c() {
    let jit = jit(
        "@table = constant [1 x ptr] [ptr @less]
         declare void @qsort(ptr, i64, i64, ptr)
         define internal i32 @less(ptr %a, ptr %b) {
           %x = load i32, ptr %a
           %y = load i32, ptr %b
           %d = sub i32 %x, %y
           ret i32 %d
         }
         define void @sort(ptr %p, i64 %n) { call void @qsort(ptr %p, i64 %n, i64 4, ptr @less) ret void }
         define i1 @same() { %f = load ptr, ptr @table %c = icmp eq ptr %f, @less ret i1 %c }",
    );
    let mut values = [3, 1, 2];
    // SAFETY: the functions above; the array has as many elements as is said.
    unsafe {
        jit.function::<extern "C" fn(*mut i32, u64)>("sort")
            .expect("typed")
            .call(values.as_mut_ptr(), 3);
        assert!(
            jit.function::<extern "C" fn() -> bool>("same")
                .expect("typed")
                .call()
        );
    }
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn a_session_stays_usable_after_bad_input() {
    let jit = jit("define i32 @f() { ret i32 7 }");
    let syntax = jit.add_ir("bad", "define i32 @g( {").expect_err("no IR");
    assert!(syntax.to_string().contains("bad:1:"), "{syntax}");
    assert!(jit.main().add_bitcode("empty", &b""[..]).is_err());
    assert!(
        jit.main()
            .add_bitcode("noise", &b"BC\xC0\xDE and nothing more"[..])
            .is_err()
    );
    assert!(jit.main().add_object("short", &b"\x7fELF"[..]).is_err());
    let machine = jit
        .add_ir("arm", "target triple = \"aarch64-linux-gnu\"")
        .expect_err("foreign");
    assert!(machine.to_string().contains("aarch64"), "{machine}");
    let asm = jit
        .add_ir("asm", "module asm \"no such instruction\"")
        .expect_err("bad assembly");
    assert!(asm.to_string().contains("asm"), "{asm}");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), 7);
}

#[test]
fn a_failed_compile_is_an_error_and_can_be_tried_again() {
    let jit = jit(
        "define void @f() { call void asm sideeffect \"no such instruction\", \"\"() ret void }",
    );
    for _ in 0..2 {
        let error = jit.main().compile("f").expect_err("bad assembly");
        assert!(
            error.to_string().contains("`f` does not compile"),
            "{error}"
        );
    }
}

extern "C" fn answer() -> i32 {
    -1
}

extern "C" fn on_failure(_: uruk::FunctionId) -> u64 {
    answer as *const () as u64
}

#[test]
fn the_failure_handler_says_where_a_failed_call_continues() {
    let jit = Jit::builder()
        .on_failure(on_failure)
        .build()
        .expect("a session");
    jit.add_ir(
        "m",
        "define i32 @f() { call void asm \"no such instruction\", \"\"() ret i32 0 }",
    )
    .expect("readable");
    // SAFETY: the function above, or `answer` in its place.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), -1);
    assert_eq!(jit.stats().failed, 1);
}

#[test]
fn the_memory_limit_is_an_error_that_says_how_much() {
    let jit = Jit::builder()
        .memory_limit(1 << 16)
        .build()
        .expect("a session");
    let error = jit
        .add_ir("m", "@big = global [1000000 x i8] zeroinitializer")
        .expect_err("too big");
    assert!(matches!(error, Error::Heap(_)), "{error}");
    assert!(error.to_string().contains("65536"), "{error}");
    jit.add_ir("n", "define i32 @f() { ret i32 7 }")
        .expect("small enough");
}

#[test]
fn sessions_come_and_go() {
    for round in 0..20 {
        let jit = jit("define i32 @f() { ret i32 7 }");
        // SAFETY: the function above.
        let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
        drop(jit);
        // A function keeps its session alive.
        assert_eq!(f.call(), 7, "round {round}");
    }
}

#[test]
fn many_threads_race_to_the_same_first_call() {
    let jit = jit("define i32 @f(i32 %x) { %y = add i32 %x, 1 ret i32 %y }");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn(i32) -> i32>("f") }.expect("typed");
    std::thread::scope(|scope| {
        for i in 0..64 {
            let f = f.clone();
            scope.spawn(move || assert_eq!(f.call(i), i + 1));
        }
    });
    assert_eq!(jit.stats().compiled, 1);
}

#[test]
fn inkwell_modules_go_in_by_reference() {
    let context = uruk::inkwell::context::Context::create();
    let module = context.create_module("inkwell");
    let builder = context.create_builder();
    let i64_type = context.i64_type();
    let function = module.add_function("square", i64_type.fn_type(&[i64_type.into()], false), None);
    builder.position_at_end(context.append_basic_block(function, "entry"));
    let x = function
        .get_nth_param(0)
        .expect("one parameter")
        .into_int_value();
    let product = builder.build_int_mul(x, x, "product").expect("built");
    builder.build_return(Some(&product)).expect("built");
    let jit = Jit::new().expect("a session");
    jit.main().add_module(&module).expect("valid");
    drop((builder, module));
    // SAFETY: the function above.
    let square = unsafe { jit.function::<extern "C" fn(i64) -> i64>("square") }.expect("typed");
    assert_eq!(square.call(12), 144);
}

/// A `bool` of C is eight bits, of which IR says one.
#[test]
fn a_flag_is_0_or_1_at_every_tier() {
    let jit = Jit::builder().build().expect("a session");
    jit.pause_tiers();
    jit.add_ir(
        "flags",
        "define i1 @odd(i64 %x) { %c = trunc i64 %x to i1 ret i1 %c }
         define i1 @third(i64 %x) { %s = lshr i64 %x, 2 %c = trunc i64 %s to i1 ret i1 %c }
         define i1 @passed(i64 %x) { %c = tail call i1 @odd(i64 %x) ret i1 %c }
         define i1 @must(i64 %x) { %c = musttail call i1 @third(i64 %x) ret i1 %c }",
    )
    .expect("sound");
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        for name in ["odd", "third", "passed", "must"] {
            jit.compile_at(name, tier).expect("compiled");
            // SAFETY: the functions above; of what they return, the lowest eight bits are read.
            let function = unsafe {
                let address = jit.lookup(name).expect("there");
                std::mem::transmute::<usize, extern "C" fn(i64) -> u8>(address as usize)
            };
            let shift = if ["odd", "passed"].contains(&name) {
                0
            } else {
                2
            };
            for x in [0, 1, 10, 11, 254, 255, -1, -2, i64::MIN] {
                assert_eq!(
                    i64::from(function(x)),
                    x >> shift & 1,
                    "{name} {x} {tier:?}"
                );
            }
        }
    }
}
