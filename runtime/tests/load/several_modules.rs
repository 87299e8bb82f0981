//! Bitcode as link-time optimization writes it: files of several modules, type tests, and addresses
//! without control-flow integrity.

use uruk::{Error, Jit, Replacement, Tier};

use crate::clang;

const TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

fn jit() -> Jit {
    Jit::builder().jobs(2).build().expect("a session")
}

fn call(jit: &Jit, name: &str, argument: i32) -> i32 {
    // SAFETY: functions of the tests' modules, which only compute.
    let function = unsafe { jit.function::<extern "C" fn(i32) -> i32>(name) };
    function.expect("typed").call(argument)
}

/// Virtual calls whose tables `-fsplit-lto-unit` moves into a second module.
const VIRTUAL: &str = "
    struct Shape { virtual int sides() const; };
    struct Square : Shape { int sides() const override; };
    int Shape::sides() const { return 1; }
    int Square::sides() const { return 4; }
    static int sum(const Shape *const *all, int count) {
        int sum = 0;
        for (int i = 0; i < count; i++) sum += all[i]->sides();
        return sum;
    }
    static int calls;
    extern \"C\" __attribute__((visibility(\"default\"))) int count(int factor) {
        static const Shape shape;
        static const Square square;
        const Shape *const all[] = {&shape, &square, &square};
        return sum(all, 3) * factor + calls++;
    }";

/// Flags of LTO; all but the last make two modules.
const FLAGS: [&[&str]; 4] = [
    &["-flto=thin", "-fsplit-lto-unit"],
    &["-flto=full", "-funified-lto", "-fsplit-lto-unit"],
    &["-flto=thin", "-fsplit-lto-unit", "-fstrict-vtable-pointers"],
    &["-flto=full"],
];

fn lto(flags: &[&str], optimization: &str) -> Vec<u8> {
    let common = [
        optimization,
        "-fno-rtti",
        "-fvisibility=hidden",
        "-fwhole-program-vtables",
    ];
    let flags = [&common, flags].concat();
    clang::compile("several_modules", "virtual.cpp", VIRTUAL, &flags)
}

#[test]
fn files_of_several_modules_run_at_every_tier() {
    for flags in FLAGS {
        for optimization in ["-O0", "-O2"] {
            let bitcode = lto(flags, optimization);
            let jit = jit();
            jit.main().add_bitcode("virtual", bitcode).expect("read");
            for (calls, tier) in (0..).zip(TIERS) {
                jit.compile_at("count", tier).expect("compiles");
                assert_eq!(call(&jit, "count", 10), 90 + calls, "{flags:?} {tier:?}");
            }
        }
    }
}

#[test]
fn a_replacement_by_several_modules_is_refused_by_name() {
    let jit = jit();
    let bitcode = lto(FLAGS[0], "-O2");
    jit.main()
        .add_bitcode("virtual", bitcode.clone())
        .expect("read");
    let cause = jit.main().replace(Replacement::bitcode("new", bitcode));
    let cause = cause.expect_err("two modules").to_string();
    assert!(cause.contains("new: 2 modules in one file"), "{cause}");
    assert_eq!(call(&jit, "count", 1), 9);
}

#[test]
fn a_file_that_ends_in_its_second_module_is_damaged() {
    let bitcode = lto(FLAGS[0], "-O2");
    for length in (0..bitcode.len()).step_by(100) {
        let jit = jit();
        match jit.main().add_bitcode("cut", bitcode[..length].to_vec()) {
            Ok(()) => {}
            Err(Error::Codegen(_) | Error::MissingSymbols { .. }) => {}
            Err(other) => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn type_tests_pass_at_every_tier() {
    let text = "
        @table = constant [2 x ptr] [ptr @three, ptr @four], !type !0
        @near = constant [2 x i32] [i32 0, i32 trunc (i64 sub (i64 ptrtoint (
          ptr dso_local_equivalent @five to i64), i64 ptrtoint (ptr @near to i64)) to i32)], !type !0
        define i32 @three(i32 %x) { %r = add i32 %x, 3 ret i32 %r }
        define i32 @four(i32 %x) { %r = add i32 %x, 4 ret i32 %r }
        define i32 @five(i32 %x) { %r = add i32 %x, 5 ret i32 %r }
        declare i1 @llvm.type.test(ptr, metadata)
        declare i1 @llvm.public.type.test(ptr, metadata)
        declare { ptr, i1 } @llvm.type.checked.load(ptr, i32, metadata)
        declare { ptr, i1 } @llvm.type.checked.load.relative(ptr, i32, metadata)
        declare void @llvm.assume(i1)
        define i32 @checked(i32 %x) {
          %found = call { ptr, i1 } @llvm.type.checked.load(ptr @table, i32 8, metadata !\"A\")
          %f = extractvalue { ptr, i1 } %found, 0
          %ok = extractvalue { ptr, i1 } %found, 1
          br i1 %ok, label %right, label %wrong
        right:
          %r = call i32 %f(i32 %x)
          ret i32 %r
        wrong:
          ret i32 -1
        }
        define i32 @relative(i32 %x) {
          %found = call { ptr, i1 } @llvm.type.checked.load.relative(ptr @near, i32 4, metadata !\"A\")
          %f = extractvalue { ptr, i1 } %found, 0
          %ok = extractvalue { ptr, i1 } %found, 1
          %r = call i32 %f(i32 %x)
          %s = select i1 %ok, i32 %r, i32 -1
          ret i32 %s
        }
        define i32 @tested(i32 %x) {
          %a = call i1 @llvm.type.test(ptr @table, metadata !\"A\")
          %b = call i1 @llvm.public.type.test(ptr @table, metadata !\"A\")
          call void @llvm.assume(i1 %a)
          %both = and i1 %a, %b
          %r = zext i1 %both to i32
          ret i32 %r
        }
        !0 = !{i64 0, !\"A\"}";
    for tier in TIERS {
        let jit = jit();
        jit.add_ir("m", text).expect("valid");
        for name in ["checked", "relative", "tested"] {
            jit.compile_at(name, tier).expect("compiles");
        }
        let answers = ["checked", "relative", "tested"].map(|name| call(&jit, name, 10));
        assert_eq!(answers, [14, 15, 1], "{tier:?}");
    }
}

#[test]
fn addresses_without_integrity_are_the_functions_own() {
    let text = "
        @plain = constant ptr no_cfi @f
        @distance = constant i32 trunc (i64 sub (i64 ptrtoint (
          ptr dso_local_equivalent @f to i64), i64 ptrtoint (ptr @distance to i64)) to i32)
        define i32 @f(i32 %x) noinline { %r = add i32 %x, 1 ret i32 %r }
        define i32 @calls(i32 %x) {
          %p = load ptr, ptr @plain
          %a = call i32 %p(i32 %x)
          %d = load i32, ptr @distance
          %far = sext i32 %d to i64
          %q = getelementptr i8, ptr @distance, i64 %far
          %b = call i32 %q(i32 %a)
          %c = call i32 no_cfi @f(i32 %b)
          %e = call i32 dso_local_equivalent @f(i32 %c)
          ret i32 %e
        }
        define i32 @same(i32 %x) {
          %p = load volatile ptr, ptr @plain
          %a = icmp eq ptr %p, @f
          %b = icmp eq ptr no_cfi @f, @f
          %c = and i1 %a, %b
          %r = zext i1 %c to i32
          ret i32 %r
        }";
    for tier in TIERS {
        let jit = jit();
        jit.add_ir("m", text).expect("valid");
        for name in ["calls", "same"] {
            jit.compile_at(name, tier).expect("compiles");
        }
        assert_eq!(call(&jit, "calls", 10), 14, "{tier:?}");
        assert_eq!(call(&jit, "same", 0), 1, "{tier:?}");
    }
}
