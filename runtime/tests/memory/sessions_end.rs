//! Sessions that end give back all they had: addresses, memory, mappings, threads, descriptors. One
//! test, in a process of its own.

use std::time::{Duration, Instant};

use uruk::{Func, Jit, Replacement, Tier};
use uruk_testing::in_own_process;

/// The kernel's counts of this process.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Addresses and memory, in MiB.
    addresses: usize,
    resident: usize,
    mappings: usize,
    threads: usize,
    descriptors: usize,
}

impl Held {
    fn now() -> Held {
        let status = std::fs::read_to_string("/proc/self/status").expect("proc");
        let field = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)).expect(name);
            let number = line.trim_start_matches(':').split_whitespace().next();
            number.and_then(|it| it.parse::<usize>().ok()).expect(name)
        };
        let entries = |path: &str| std::fs::read_dir(path).expect("proc").count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
        Held {
            addresses: field("VmSize") / 1024,
            resident: field("VmRSS") / 1024,
            mappings: maps.lines().count(),
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
        }
    }

    /// Whether as many sessions more have left nothing that grows with them: an arena of the C
    /// library takes 64 MiB of addresses, a session 2,900.
    fn is_as(&self, before: &Held) -> bool {
        self.addresses <= before.addresses + 1500
            && self.resident <= before.resident + 8
            && self.mappings <= before.mappings + 40
            && self.threads <= before.threads + 1
            && self.descriptors <= before.descriptors + 1
    }
}

fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: all functions here are of that type.
    let function: Func<extern "C" fn(i64) -> i64> = unsafe { jit.function(name) }.expect(name);
    function.call(1)
}

const VARIABLE: &str = "@g = global i64 5
    define i64 @f(i64 %x) { %a = load i64, ptr @g ret i64 %a }";
const CONSTANT: &str = "@c = private constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]
    define i64 @f(i64 %x) { %p = getelementptr [4 x i64], ptr @c, i64 0, i64 %x
      %a = load i64, ptr %p ret i64 %a }";
const DOUBLE: &str = "define i64 @f(i64 %x) { %y = sitofp i64 %x to double
      %z = call double @g(double %y, double 0x3FB999999999999A) %a = fptosi double %z to i64
      ret i64 %a }
    define internal double @g(double %x, double %y) noinline { %z = fmul double %x, 0x40F3333333333333
      ret double %z }";

/// Makes a session, uses it and ends it, in one of several ways.
fn session(way: usize) {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    match way {
        0 => {
            jit.add_ir("m", "define i64 @f(i64 %x) { ret i64 %x }")
                .expect("added");
            call(&jit, "f");
        }
        1 => {
            jit.add_ir("m", VARIABLE).expect("added");
            call(&jit, "f");
        }
        2 => {
            jit.add_ir("m", CONSTANT).expect("added");
            call(&jit, "f");
        }
        3 => {
            jit.add_ir("m", DOUBLE).expect("added");
            jit.compile_at("f", Tier::Optimized).expect("compiled");
            call(&jit, "f");
        }
        4 => {
            jit.add_ir("m", VARIABLE).expect("added");
            call(&jit, "f");
            let next = Replacement::ir("n", &VARIABLE.replace("ret i64 %a", "ret i64 %x"));
            jit.main().replace(next).expect("replaced");
            call(&jit, "f");
        }
        5 => {
            let other = jit.create_dylib("other").expect("a dylib");
            other.add_ir("m", VARIABLE).expect("added");
            jit.main().add_to_link_order(&other).expect("linked");
            let user = "declare i64 @f(i64) define i64 @u(i64 %x) {
                %a = call i64 @f(i64 %x) ret i64 %a }";
            jit.add_ir("u", user).expect("added");
            call(&jit, "u");
        }
        6 => {
            jit.main()
                .define_lazy::<extern "C" fn(i64) -> i64>("f", |_| Err("nothing".into()))
                .expect("defined");
            jit.define_fn("h", |x: i64| x + 1).expect("defined");
            let ir = "declare i64 @h(i64) define i64 @u(i64 %x) {
                %a = call i64 @h(i64 %x) ret i64 %a }";
            jit.add_ir("u", ir).expect("added");
            call(&jit, "u");
        }
        _ => {
            jit.add_ir("m", "this is no IR").expect_err("no IR");
        }
    }
}

#[test]
fn sessions_give_back_all_they_had() {
    if !in_own_process(module_path!(), "sessions_give_back_all_they_had") {
        return;
    }
    let count = 60;
    for way in 0..8 {
        (0..count).for_each(|_| session(way));
        std::thread::sleep(Duration::from_millis(20));
        let before = Held::now();
        for _ in 0..count / 4 {
            std::thread::scope(|scope| {
                (0..4).for_each(|_| drop(scope.spawn(|| session(way))));
            });
        }
        // Threads of a session may end after it.
        let start = Instant::now();
        while !Held::now().is_as(&before) && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let after = Held::now();
        assert!(after.is_as(&before), "{way}: {before:?}, {after:?}");
    }
}
