//! Functions of the host: direct ones and closures, of all kinds of values, against declarations.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use uruk::{Error, Func, FunctionType, HostFunction, Jit, Replacement, Tier, Tiers, Val};

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Point {
        x: f64,
        y: f64,
    }
}

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Pair {
        a: i64,
        b: i32,
    }
}

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Large {
        values: [i64; 3],
        point: Point,
    }
}

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Small {
        r: f32,
        g: f32,
        b: f32,
    }
}

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// Runs `check` with code of each tier.
fn at_each_tier(functions: &[&str], jit: &Jit, check: impl Fn()) {
    for tier in ALL_TIERS {
        for function in functions {
            jit.compile_at(function, tier).expect("it compiles");
        }
        check();
    }
}

#[test]
fn a_function_without_state_is_called_directly_and_one_with_state_gets_it() {
    fn triple(x: i64) -> i64 {
        3 * x
    }
    let calls = Arc::new(AtomicI64::new(0));
    let counter = Arc::clone(&calls);
    let offset = 100;
    let jit = Jit::new().expect("a session");
    jit.main()
        .define_fns([
            ("triple", HostFunction::new(triple)),
            (
                "count",
                HostFunction::new(move |x: i64| counter.fetch_add(x, Ordering::Relaxed)),
            ),
            ("shift", HostFunction::new(move |x: i64| x + offset)),
        ])
        .expect("they are defined");
    jit.add_ir(
        "m",
        "declare i64 @triple(i64) declare i64 @count(i64) declare i64 @shift(i64)
        define i64 @f(i64 %x) {
          %a = call i64 @triple(i64 %x)
          %b = call i64 @count(i64 1)
          %c = call i64 @shift(i64 %a)
          ret i64 %c
        }",
    )
    .expect("it loads");
    // SAFETY: the function above.
    let f: Func<extern "C" fn(i64) -> i64> = unsafe { jit.function("f") }.expect("it is there");
    at_each_tier(&["f"], &jit, || assert_eq!(f.call(5), 115));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    // The address of the host's own code, not a stub of ours.
    let stubs = jit.lookup("shift").expect("defined");
    let direct = jit.lookup("triple").expect("defined");
    assert!(jit.tier("shift").is_ok(), "a function of IR");
    assert!(
        matches!(jit.tier("triple"), Err(Error::NotAFunction { .. })),
        "an address: {direct:#x}, stubs are at {stubs:#x}"
    );
}

#[test]
fn structs_pass_by_value_both_ways_with_state_and_without() {
    let jit = Jit::new().expect("a session");
    let scale = 2.0;
    jit.define_fn("flip", |p: Point| Point { x: p.y, y: p.x })
        .expect("defined");
    jit.define_fn("scale", move |p: Point, by: f64| Point {
        x: p.x * by * scale,
        y: p.y * by * scale,
    })
    .expect("defined");
    let seven = 7;
    jit.define_fn(
        "large",
        move |a: i64, l: Large, p: Pair, q: Pair, r: Pair, s: Small, c: i8, d: bool| {
            let sum: i64 = l.values.iter().sum();
            Large {
                values: [
                    sum + a,
                    p.a + i64::from(p.b) + q.a + i64::from(q.b),
                    r.a + i64::from(r.b) + i64::from(c) + i64::from(d) + seven,
                ],
                point: Point {
                    x: l.point.x + f64::from(s.r) + f64::from(s.g),
                    y: l.point.y + f64::from(s.b),
                },
            }
        },
    )
    .expect("defined");
    // As clang declares and calls them; the third pair finds no two registers left.
    jit.add_ir(
        "m",
        "declare { double, double } @flip(double, double)
        declare { double, double } @scale(double, double, double)
        declare void @large(ptr sret([40 x i8]) align 8, i64, ptr byval([40 x i8]) align 8,
          i64, i32, i64, i32, ptr byval([16 x i8]) align 8, <2 x float>, float, i8 signext,
          i1 zeroext)
        define { double, double } @both(double %x, double %y) {
          %p = call { double, double } @flip(double %x, double %y)
          %a = extractvalue { double, double } %p, 0
          %b = extractvalue { double, double } %p, 1
          %q = call { double, double } @scale(double %a, double %b, double 10.0)
          ret { double, double } %q
        }
        define void @all(ptr sret([40 x i8]) align 8 %out, i64 %a,
          ptr byval([40 x i8]) align 8 %l, i64 %pa, i32 %pb, i64 %qa, i32 %qb,
          ptr byval([16 x i8]) align 8 %r, <2 x float> %rg, float %b, i8 signext %c,
          i1 zeroext %d) {
          call void @large(ptr sret([40 x i8]) align 8 %out, i64 %a,
            ptr byval([40 x i8]) align 8 %l, i64 %pa, i32 %pb, i64 %qa, i32 %qb,
            ptr byval([16 x i8]) align 8 %r, <2 x float> %rg, float %b, i8 signext %c,
            i1 zeroext %d)
          ret void
        }",
    )
    .expect("it loads");
    // SAFETY: the functions above.
    let (both, all) = unsafe {
        (
            jit.function::<extern "C" fn(Point) -> Point>("both")
                .expect("both"),
            jit.function::<extern "C" fn(i64, Large, Pair, Pair, Pair, Small, i8, bool) -> Large>(
                "all",
            )
            .expect("all"),
        )
    };
    let large = Large {
        values: [1, 2, 3],
        point: Point { x: 0.5, y: 0.25 },
    };
    let pair = |a, b| Pair { a, b };
    let small = Small {
        r: 1.0,
        g: 2.0,
        b: 4.0,
    };
    at_each_tier(&["both", "all", "scale", "large"], &jit, || {
        let point = both.call(Point { x: 1.0, y: 2.0 });
        assert_eq!(point, Point { x: 40.0, y: 20.0 });
        let (p, q, r) = (pair(10, 20), pair(30, 40), pair(50, -1));
        let result = all.call(100, large, p, q, r, small, -3, true);
        let expected = Large {
            values: [106, 100, 54],
            point: Point { x: 3.5, y: 4.25 },
        };
        assert_eq!(result, expected);
    });
    // The same by values that are compared when they are given.
    // SAFETY: the function above.
    let both = unsafe { jit.main().dynamic_function("both") }.expect("both");
    let parts = both
        .call(&[Val::F64(1.0), Val::F64(2.0)])
        .expect("it takes them");
    assert_eq!(parts, Val::Parts(vec![Val::F64(40.0), Val::F64(20.0)]));
}

#[test]
fn other_types_are_refused_with_both_whoever_comes_first() {
    let jit = Jit::new().expect("a session");
    jit.define_fn("f", |x: i64| x).expect("defined");
    let refused = jit
        .add_ir(
            "late",
            "declare double @f(i64) define double @g() {
              %x = call double @f(i64 1) ret double %x }",
        )
        .expect_err("another type");
    assert_eq!(
        refused.to_string(),
        "late: `f` is declared as double (i64), and the host's is i64 (i64)"
    );
    jit.main().allow_missing(true);
    jit.add_ir(
        "early",
        "declare double @h(i64) define double @user() {
          %x = call double @h(i64 1) ret double %x }",
    )
    .expect("it waits");
    let refused = jit.define_fn("h", |x: i64| x).expect_err("another type");
    assert_eq!(
        refused.to_string(),
        "early: `h` is declared as double (i64), and the host's is i64 (i64)"
    );
    jit.define_fn("h", |x: i64| x as f64)
        .expect("the right type");
    // SAFETY: the function above.
    let user: Func<extern "C" fn() -> f64> = unsafe { jit.function("user") }.expect("it is there");
    assert_eq!(user.call(), 1.0);
    // A struct in registers is no pointer to one.
    jit.define_fn("flip", |p: Point| p).expect("defined");
    let refused = jit.add_ir(
        "s",
        "declare void @flip(ptr, ptr) define void @u(ptr %p) {
          call void @flip(ptr %p, ptr %p) ret void }",
    );
    assert!(
        matches!(refused, Err(Error::HostSignature { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_batch_is_defined_as_a_whole_or_not_at_all() {
    let jit = Jit::new().expect("a session");
    let more = 1;
    let refused = jit.main().define_fns([
        ("a", HostFunction::new(|x: i64| x)),
        ("b", HostFunction::new(move |x: i64| x + more)),
        ("a", HostFunction::new(|x: i32| x)),
    ]);
    assert!(
        matches!(refused, Err(Error::DuplicateSymbol { .. })),
        "{refused:?}"
    );
    assert!(jit.lookup("a").is_err() && jit.lookup("b").is_err());
}

#[test]
fn an_address_with_a_type_is_compared_as_well() {
    extern "C" fn seven() -> i32 {
        7
    }
    let ty = FunctionType::parse("i32 ()").expect("well written");
    let jit = Jit::new().expect("a session");
    // SAFETY: the function above is of that type.
    let seven = unsafe { HostFunction::from_address(ty, seven as *const ()) };
    jit.main().define_fns([("seven", seven)]).expect("defined");
    let refused = jit.add_ir(
        "m",
        "declare i64 @seven() define i64 @f() {
        %x = call i64 @seven() ret i64 %x }",
    );
    assert!(
        matches!(refused, Err(Error::HostSignature { .. })),
        "{refused:?}"
    );
    jit.add_ir(
        "m",
        "declare i32 @seven() define i32 @f() {
        %x = call i32 @seven() ret i32 %x }",
    )
    .expect("the right type");
}

#[test]
fn a_closures_forwarding_code_is_tiered_and_replaced_as_any_other() {
    let jit = Jit::builder()
        .tiers(Tiers::Fixed(Tier::Baseline))
        .build()
        .expect("a session");
    let offset = 1;
    jit.define_fn("f", move |x: i64| x + offset)
        .expect("defined");
    jit.add_ir(
        "m",
        "declare i64 @f(i64) define i64 @g(i64 %x) {
        %y = call i64 @f(i64 %x) ret i64 %y }",
    )
    .expect("it loads");
    // SAFETY: the function above.
    let g: Func<extern "C" fn(i64) -> i64> = unsafe { jit.function("g") }.expect("it is there");
    assert_eq!(g.call(1), 2);
    let new = "define i64 @f(i64 %x) { %y = mul i64 %x, 50 ret i64 %y }";
    jit.main()
        .replace(Replacement::ir("new", new))
        .expect("replaced");
    assert_eq!(g.call(1), 50);
}

#[test]
fn a_panic_of_the_host_unwinds_jitted_code() {
    let jit = Jit::new().expect("a session");
    jit.define_fn("fail", |x: i64| -> i64 { panic!("no {x}") })
        .expect("defined");
    jit.add_ir(
        "m",
        "declare i64 @fail(i64) define i64 @f(i64 %x) {
        %y = call i64 @fail(i64 %x) ret i64 %y }",
    )
    .expect("it loads");
    // SAFETY: the function above.
    let f: Func<extern "C-unwind" fn(i64) -> i64> =
        unsafe { jit.function("f") }.expect("it is there");
    for tier in ALL_TIERS {
        jit.compile_at("f", tier).expect("it compiles");
        let caught = std::panic::catch_unwind(|| f.call(3)).expect_err("a panic");
        assert_eq!(
            caught.downcast_ref::<String>().map(String::as_str),
            Some("no 3")
        );
        // The guard does not stand in its way, and is gone afterwards.
        let caught = std::panic::catch_unwind(|| f.call_guarded(4)).expect_err("a panic");
        assert_eq!(
            caught.downcast_ref::<String>().map(String::as_str),
            Some("no 4")
        );
    }
}

#[test]
fn sixteen_arguments_and_every_convention() {
    let jit = Jit::new().expect("a session");
    let parameters: Vec<String> = (0..16).map(|i| format!("i64 %a{i}")).collect();
    let mut body = String::from("  %s0 = add i64 %a0, 0\n");
    for i in 1..16 {
        body += &format!(
            "  %m{i} = mul i64 %a{i}, {}\n  %s{i} = add i64 %s{}, %m{i}\n",
            i + 1,
            i - 1
        );
    }
    let ir = format!(
        "define i64 @f({}) {{\n{body}  ret i64 %s15\n}}",
        parameters.join(", ")
    );
    jit.add_ir(
        "m",
        &format!(
            "{ir}
        define i32 @inc(ptr %p) {{
          %v = load i32, ptr %p %w = add i32 %v, 1 store i32 %w, ptr %p ret i32 %w }}
        define i64 @null(ptr %p) {{ %z = icmp eq ptr %p, null %n = zext i1 %z to i64 ret i64 %n }}
        define i64 @apply(ptr %f, i64 %x) {{ %y = call i64 %f(i64 %x) ret i64 %y }}"
        ),
    )
    .expect("it loads");
    type Sixteen = extern "C-unwind" fn(
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
    ) -> i64;
    type Inc<'a> = unsafe extern "C" fn(&'a mut i32) -> i32;
    type Null<'a> = unsafe extern "C-unwind" fn(Option<&'a i32>) -> i64;
    extern "C" fn minus(x: i64) -> i64 {
        -x
    }
    // SAFETY: the functions above, with what they take.
    unsafe {
        let f = jit.function::<Sixteen>("f").expect("f");
        let expected = (1..=16).map(|i| i * i).sum::<i64>();
        assert_eq!(
            f.call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
            expected
        );
        let mut value = 41;
        let inc = jit.function::<Inc>("inc").expect("inc");
        assert_eq!(
            (inc.call(&mut value), inc.call_guarded(&mut value).ok()),
            (42, Some(43))
        );
        let null = jit.function::<Null>("null").expect("null");
        assert_eq!((null.call(None), null.call(Some(&1))), (1, 0));
        type Apply = extern "C" fn(extern "C" fn(i64) -> i64, i64) -> i64;
        let apply = jit.function::<Apply>("apply").expect("apply");
        assert_eq!(apply.call(minus, 5), -5);
        assert!(jit.function::<extern "C" fn(f64) -> i32>("inc").is_err());
    }
}

#[test]
fn dynamic_calls_put_values_where_they_belong() {
    let jit = Jit::new().expect("a session");
    jit.add_ir(
        "m",
        "define double @f(i8 zeroext %a, float %b, i64 %c, ptr %d, i32 %e, i64 %g, i64 %h,
          double %i, i16 signext %j) {
          %a1 = zext i8 %a to i64
          %d1 = ptrtoint ptr %d to i64
          %e1 = sext i32 %e to i64
          %j1 = sext i16 %j to i64
          %s1 = add i64 %a1, %c
          %s2 = add i64 %s1, %d1
          %s3 = add i64 %s2, %e1
          %s4 = add i64 %s3, %g
          %s5 = add i64 %s4, %h
          %s6 = add i64 %s5, %j1
          %f1 = sitofp i64 %s6 to double
          %b1 = fpext float %b to double
          %f2 = fadd double %f1, %b1
          %f3 = fadd double %f2, %i
          ret double %f3
        }
        define void @big(ptr sret([24 x i8]) align 8 %out, ptr byval([24 x i8]) align 8 %in) {
          call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 24, i1 false)
          store i8 99, ptr %out
          ret void
        }
        declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
        define i1 @not(i1 zeroext %b) { %n = xor i1 %b, true ret i1 %n }
        define <4 x i32> @vector(<4 x i32> %v) { ret <4 x i32> %v }",
    )
    .expect("it loads");
    // SAFETY: the functions above, which take what they are declared with.
    let function = |name: &str| unsafe { jit.main().dynamic_function(name) };
    let f = function("f").expect("f");
    let values = [
        Val::I8(-56),
        Val::F32(0.5),
        Val::I64(1000),
        Val::Ptr(std::ptr::without_provenance_mut(8)),
        Val::I32(-1),
        Val::I64(10),
        Val::I64(20),
        Val::F64(0.25),
        Val::I16(-3),
    ];
    assert_eq!(
        f.call(&values).expect("they fit"),
        Val::F64(200.0 + 1000.0 + 8.0 - 1.0 + 30.0 - 3.0 + 0.75)
    );
    let few = f.call(&values[..3]).expect_err("too few");
    assert!(
        few.to_string()
            .ends_with("9 values are needed, 3 were given"),
        "{few}"
    );
    let mut bytes: Vec<u8> = (0..24).collect();
    let big = function("big").expect("big");
    let out = big.call(&[Val::Bytes(bytes.clone())]).expect("it fits");
    bytes[0] = 99;
    assert_eq!(out, Val::Bytes(bytes));
    assert!(big.call(&[Val::Bytes(vec![0; 23])]).is_err());
    assert_eq!(
        function("not").expect("not").call(&[Val::Bool(true)]).ok(),
        Some(Val::Bool(false))
    );
    assert!(matches!(function("vector"), Err(Error::Arguments { .. })));
}
