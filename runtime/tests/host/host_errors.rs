//! Functions of the host with types that are known when they are defined, and errors at borders that
//! no other test has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::{
    Error, GeneratorRequest, HostError, HostFunction, Jit, SessionError, Tier, TrapKind, Val,
    raise_error,
};

/// A module whose function `f` calls `g`, of this type.
fn calling(ty: &str) -> String {
    let (result, parameter) = ty.split_once(" (").expect("a type");
    let parameter = parameter.trim_end_matches(')');
    format!(
        "declare {result} @g({parameter})
         define {result} @f({parameter} %x) {{
           %y = call {result} @g({parameter} %x)
           ret {result} %y
         }}"
    )
}

#[test]
fn each_kind_of_value_goes_there_and_back_at_each_tier() {
    let word = 7_u64;
    let values = [
        ("i1 (i1)", Val::Bool(true)),
        ("i8 (i8)", Val::I8(-7)),
        ("i16 (i16)", Val::I16(-300)),
        ("i32 (i32)", Val::I32(i32::MIN)),
        ("i64 (i64)", Val::I64(i64::MIN)),
        ("float (float)", Val::F32(-0.5)),
        ("double (double)", Val::F64(1e300)),
        ("ptr (ptr)", Val::Ptr((&raw const word).cast_mut().cast())),
    ];
    for (ty, value) in values {
        let jit = Jit::new().expect("a session");
        let same = HostFunction::of_values(ty, |given| Ok(given[0].clone())).expect("a type");
        jit.main().define_fns([("g", same)]).expect("new");
        jit.add_ir("m", &calling(ty)).expect("valid");
        // SAFETY: the function above.
        let f = unsafe { jit.main().dynamic_function("f") }.expect("a function");
        for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
            jit.compile_at("f", tier).expect("it compiles");
            let given = std::slice::from_ref(&value);
            assert_eq!(f.call(given).expect("it returns"), value, "{ty}");
            assert_eq!(
                f.call_guarded(given, None).expect("it returns"),
                value,
                "{ty}"
            );
        }
    }
}

#[test]
fn an_error_and_a_wrong_result_end_the_guarded_call() {
    let jit = Jit::new().expect("a session");
    let body = |given: &[Val]| match given {
        [Val::I32(0)] => Err(Arc::new(std::fmt::Error) as HostError),
        [Val::I32(1)] => Ok(Val::I64(1)),
        [given] => Ok(given.clone()),
        _ => Ok(Val::Void),
    };
    let function = HostFunction::of_values("i32 (i32)", body).expect("a type");
    jit.main().define_fns([("g", function)]).expect("new");
    jit.add_ir("m", &calling("i32 (i32)")).expect("valid");
    // SAFETY: the function above.
    let f = unsafe { jit.main().dynamic_function("f") }.expect("a function");
    let trap = |given| match f.call_guarded(&[Val::I32(given)], None) {
        Err(Error::Trap(trap)) => trap,
        other => panic!("{other:?}"),
    };
    assert!(trap(0).host_error::<std::fmt::Error>().is_some());
    let wrong = trap(1).to_string();
    assert!(
        wrong.contains("returns i32, and its result is I64(1)"),
        "{wrong}"
    );
    assert_eq!(
        f.call_guarded(&[Val::I32(2)], None).expect("fine"),
        Val::I32(2)
    );
    for ty in ["<2 x i64> ()", "{ i64, i64 } ()", "void (i128)", "nonsense"] {
        let refused = HostFunction::of_values(ty, |_| Ok(Val::Void)).expect_err("not passed");
        assert!(
            matches!(refused, Error::Arguments { .. }),
            "{ty}: {refused}"
        );
    }
}

/// A function of C's, as far as JIT'd code sees.
extern "C-unwind" fn fails() {
    // SAFETY: frames above the guarded call are of JIT'd code, and this one.
    unsafe { raise_error(|| Arc::new(std::fmt::Error)) };
    RETURNED.fetch_add(1, Ordering::Relaxed);
}

static RETURNED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn an_error_is_raised_where_there_is_a_guarded_call() {
    let jit = Jit::new().expect("a session");
    let address = fails as *const ();
    // SAFETY: a function without values.
    unsafe { jit.main().define_address("fails", address) }.expect("new");
    jit.add_ir(
        "m",
        "declare void @fails() define void @f() { call void @fails() ret void }",
    )
    .expect("valid");
    // SAFETY: the function above.
    let f = unsafe { jit.main().dynamic_function("f") }.expect("a function");
    let ended = f.call_guarded(&[], None).expect_err("it failed");
    assert!(matches!(&ended, Error::Trap(trap) if matches!(trap.kind, TrapKind::Host(_))));
    assert_eq!(RETURNED.load(Ordering::Relaxed), 0);
    // Outside of one, and where Rust covers it, it comes back.
    f.call(&[]).expect("it returns");
    assert_eq!(RETURNED.load(Ordering::Relaxed), 1);
    jit.define_fn("covered", || uruk::covered(|| fails()))
        .expect("new");
    jit.add_ir(
        "n",
        "declare void @covered() define void @h() { call void @covered() ret void }",
    )
    .expect("valid");
    // SAFETY: the function above.
    let h = unsafe { jit.main().dynamic_function("h") }.expect("a function");
    h.call_guarded(&[], None).expect("it returns");
    assert_eq!(RETURNED.load(Ordering::Relaxed), 2);
}

#[test]
fn code_is_not_added_to_the_dylib_of_the_process() {
    let jit = Jit::new().expect("a session");
    let process = jit.process();
    for ir in [
        "define weak void @f() { ret void }",
        "@g = weak global i32 1",
        "@h = global i32 1",
    ] {
        let refused = process.add_ir("m", ir).expect_err("refused");
        assert!(matches!(refused, Error::ProcessDylib), "{refused}");
    }
}

#[test]
fn a_generators_error_is_that_of_the_module_that_asks() {
    let jit = Jit::new().expect("a session");
    jit.main()
        .add_generator(|ask: &GeneratorRequest| match ask.missing().is_empty() {
            true => Ok(()),
            false => Err(SessionError::unit("store", "it is closed").into()),
        })
        .expect("alive");
    let ir = "declare void @stored() define void @f() { call void @stored() ret void }";
    let failed = jit
        .add_ir("m", ir)
        .expect_err("its symbol cannot be asked for");
    let Error::Session(SessionError::Unit { context, source }) = &failed else {
        panic!("{failed}");
    };
    assert_eq!(
        (&**context, source.to_string()),
        ("store", String::from("it is closed"))
    );
    // One that finds nothing is no reason for another error.
    let jit = Jit::new().expect("a session");
    jit.main()
        .add_generator(|_: &GeneratorRequest| Ok(()))
        .expect("alive");
    let missing = jit.add_ir("m", ir).expect_err("missing");
    assert!(matches!(missing, Error::MissingSymbols { .. }), "{missing}");
}

#[test]
fn calls_have_as_many_values_as_the_function_takes() {
    for count in [1, 6, 7, 38, 39, 60] {
        let parameters: Vec<String> = (0..count).map(|n| format!("i64 %a{n}")).collect();
        // Each value has a weight, so that none is in another's place.
        let steps: String = (0..count)
            .map(|n| {
                let before = if n == 0 {
                    String::from("0")
                } else {
                    format!("%s{}", n - 1)
                };
                format!(
                    "%m{n} = mul i64 %a{n}, {}\n%s{n} = add i64 {before}, %m{n}\n",
                    n + 1
                )
            })
            .collect();
        let ir = format!(
            "define i64 @f({}) {{\n{steps}ret i64 %s{}\n}}",
            parameters.join(", "),
            count - 1
        );
        let jit = Jit::new().expect("a session");
        jit.add_ir("m", &ir).expect("valid");
        // SAFETY: the function above.
        let f = unsafe { jit.main().dynamic_function("f") }.expect("a function");
        let values: Vec<Val> = (0..count).map(|n| Val::I64(n * n)).collect();
        let expected = Val::I64((0..count).map(|n| n * n * (n + 1)).sum());
        assert_eq!(f.call(&values).expect("it returns"), expected);
        assert_eq!(
            f.call_with(values, None, None).expect("it returns"),
            expected
        );
    }
}

/// Its panic is the cause that a guarded call fails with.
#[test]
fn a_handler_of_failed_calls_that_panics_ends_the_guarded_call() {
    let handler = std::sync::Arc::new(|_: &uruk::FailedCall<'_>| -> *const () { panic!("lost") });
    let jit = Jit::builder().on_failed_call(handler).build();
    let jit = jit.expect("a session");
    jit.main().allow_missing(true);
    let text = "declare i64 @no() define i64 @f() uwtable { %a = call i64 @no() ret i64 %a }";
    jit.add_ir("m", text).expect("it loads");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn() -> i64>("f") }.expect("typed");
    for _ in 0..3 {
        let trap = f.call_guarded().expect_err("it has no callee");
        let TrapKind::NotCompiled {
            cause: Some(cause), ..
        } = &trap.kind
        else {
            panic!("{trap}")
        };
        assert!(cause.to_string().contains("lost"), "{cause}");
    }
}
