//! A compile ends where it is cancelled, at any stage, and leaves no trace.

mod support;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use support::{id, plan, reader};
use uruk_codegen::{
    Cancellation, CodegenError, Compile, Compiled, FactStore, Knowledge, Offer, Reader, Tier,
};

/// `f` with this many branches, and a loop; it calls `leaf` and `middle`, which calls `leaf`.
fn text(branches: u32) -> String {
    let mut ir = String::from(
        "@limit = internal constant i32 40
         declare void @outside(i32)
         define internal i32 @leaf(i32 %x) { %l = load i32, ptr @limit %y = add i32 %x, %l ret i32 %y }
         define internal i32 @middle(i32 %x) { %y = call i32 @leaf(i32 %x) %z = add i32 %y, 2 ret i32 %z }
         define internal void @far(i32 %x) noinline { call void @outside(i32 7) ret void }
         define i32 @f(i32 %v0) {
         entry: call void @far(i32 9) br label %s0\n",
    );
    for i in 0..branches {
        let callee = ["leaf", "middle"][i as usize % 2];
        let before = match i {
            0 => String::from("%v0, %entry"),
            _ => format!("%l{i}, %left{0} ], [ %x{0}, %s{0}", i - 1),
        };
        write!(
            ir,
            "s{i}: %p{i} = phi i32 [ {before} ]
             %m{i} = mul i32 %p{i}, {0}
             %h{i} = lshr i32 %m{i}, 7
             %x{i} = xor i32 %m{i}, %h{i}
             %b{i} = and i32 %x{i}, 8
             %c{i} = icmp eq i32 %b{i}, 0
             br i1 %c{i}, label %left{i}, label %s{next}
             left{i}: %l{next} = call i32 @{callee}(i32 %x{i})
             br label %s{next}\n",
            2 * i + 3,
            next = i + 1,
        )
        .expect("room");
    }
    let (n, last) = (branches, branches - 1);
    let end = format!("s{n}: %p{n} = phi i32 [ %l{n}, %left{last} ], [ %x{last}, %s{last} ]\n");
    ir + &end + &format!("ret i32 %p{n} }}")
}

fn compile(reader: &mut Reader, how: &Compile) -> Result<Compiled, CodegenError> {
    let (plan, f) = (plan(reader), id(reader, "f"));
    reader.compile(&plan, f, how)
}

/// Looks of a compile that is not cancelled.
fn looks(ir: &str, how: &Compile) -> u64 {
    let token = Cancellation::new();
    let made = compile(&mut reader(ir), &how.clone().cancelled_by(&token));
    made.expect("compiles");
    token.looks()
}

/// Cancels a compile at every `step`th look in one reader, and then compares with a fresh one.
fn check(ir: &str, how: &dyn Fn() -> Compile, step: usize) {
    let expected = compile(&mut reader(ir), &how()).expect("compiles");
    let total = looks(ir, &how());
    let mut used = reader(ir);
    let shared = how();
    for look in (1..=total).step_by(step) {
        let token = Cancellation::at_look(look);
        // Facts about other functions are kept from compile to compile, as in use.
        let result = compile(&mut used, &shared.clone().cancelled_by(&token));
        let cancelled = result.as_ref().is_err_and(CodegenError::is_cancelled);
        // Completed steps need not be repeated.
        assert!(
            cancelled || look > token.looks(),
            "{look} of {total}: {result:?}"
        );
    }
    let made = compile(&mut used, &shared).expect("compiles");
    assert!(made.object == expected.object, "another object");
    assert_eq!(made.depends, expected.depends);
}

#[test]
fn a_compile_can_end_at_any_stage() {
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        // A fact is looked for only once.
        let how = || match tier {
            Tier::Guided => {
                Compile::at(tier).knowing(Knowledge::Inferred(Arc::new(FactStore::new())))
            }
            _ => Compile::at(tier),
        };
        check(&text(6), &how, 1);
    }
}

#[test]
fn a_large_compile_can_end_before_any_pass() {
    let ir = text(100);
    for tier in [Tier::Optimized, Tier::Guided] {
        let how = || Compile::at(tier);
        let (small, large) = (looks(&text(6), &how()), looks(&ir, &how()));
        // Small units look between their stages only.
        assert!(small < 20 && large > 200, "{small}, {large}");
        check(&ir, &how, 7);
    }
}

/// Processor time of a thread of this process.
fn spent(thread: &str) -> Duration {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let stat = std::fs::read_to_string(path).expect("proc");
    let nanos = stat.split(' ').next().expect("a number");
    Duration::from_nanos(nanos.parse().expect("a number"))
}

#[test]
fn what_is_cancelled_in_the_middle_takes_a_share_of_the_time() {
    let ir = text(400);
    let me = std::fs::read_link("/proc/thread-self").expect("proc");
    let me = me.file_name().and_then(|name| name.to_str());
    let me = me.expect("a number");
    let how = Compile::at(Tier::Optimized);
    let start = spent(me);
    compile(&mut reader(&ir), &how).expect("compiles");
    let whole = spent(me) - start;

    let attempt = || {
        let token = Cancellation::new();
        let start = spent(me);
        let made = std::thread::scope(|scope| {
            scope.spawn(|| {
                while spent(me) < start + whole / 5 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                token.cancel();
            });
            compile(&mut reader(&ir), &how.clone().cancelled_by(&token))
        });
        let cancelled = made.is_err_and(|cause| cause.is_cancelled());
        (cancelled, spent(me) - start)
    };
    // The cancelling thread may be late without a processor, or too late.
    let mut tried: Vec<(bool, Duration)> = Vec::new();
    let soon = (0..20).any(|_| {
        tried.push(attempt());
        tried
            .last()
            .is_some_and(|&(cancelled, part)| cancelled && part < whole / 2)
    });
    assert!(soon, "{tried:?} of {whole:?}");
}

#[test]
fn parcels_and_wishes_are_cancelled_too() {
    let ir = text(6);
    let mut used = reader(&ir);
    let (plan, f, middle) = (plan(&used), id(&used, "f"), id(&used, "middle"));
    let how = Compile::at(Tier::Optimized);
    for look in 1..=3 {
        let how = how.clone().cancelled_by(&Cancellation::at_look(look));
        let cause = used.parcel(&plan, middle, &how).expect_err("cancelled");
        assert!(cause.is_cancelled(), "{cause}");
        let how = how.cancelled_by(&Cancellation::at_look(look));
        let cause = used.wanted(&plan, f, &how).expect_err("cancelled");
        assert!(cause.is_cancelled(), "{cause}");
    }
    let parcel = used.parcel(&plan, middle, &how).expect("readable");
    let parcel = Arc::new(parcel.expect("it can travel"));

    // Offers: a reader that is cancelled while it unpacks them uses them the next time.
    let other = "declare i32 @middle(i32)
        define i32 @f(i32 %x) { %y = call i32 @middle(i32 %x) ret i32 %y }";
    let offered = |reader: &Reader| {
        let symbols = vec![id(reader, "middle")];
        let offer = Offer {
            parcel: Arc::clone(&parcel),
            symbols,
        };
        how.clone().offering(vec![offer], Default::default())
    };
    let total = looks(other, &offered(&reader(other)));
    let mut used = reader(other);
    let how = offered(&used);
    for look in 1..=total {
        let token = Cancellation::at_look(look);
        let _ = compile(&mut used, &how.clone().cancelled_by(&token));
    }
    assert_eq!(compile(&mut used, &how).expect("compiles").taken, [0]);
}
