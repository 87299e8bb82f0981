//! Functions that call themselves return the same at all tiers: at tier 3 one body has several levels.

use uruk::{Jit, Tier, Tiers};

/// Functions of two numbers, `f`, each with the other functions it needs.
const FUNCTIONS: [(&str, &str); 7] = [
    (
        "fib",
        "define i64 @f(i64 %n, i64 %m) {
           %small = icmp ult i64 %n, 2
           br i1 %small, label %done, label %more
         more:
           %a = sub i64 %n, 1
           %fa = call i64 @f(i64 %a, i64 %m)
           %b = sub i64 %n, 2
           %fb = call i64 @f(i64 %b, i64 %m)
           %both = add i64 %fa, %fb
           %sum = add i64 %both, %m
           br label %done
         done:
           %result = phi i64 [ %n, %0 ], [ %sum, %more ]
           ret i64 %result
         }",
    ),
    (
        "ackermann",
        "define i64 @f(i64 %n, i64 %m) {
           %small = and i64 %m, 1
           %r = call i64 @g(i64 %small, i64 %n)
           ret i64 %r
         }
         define i64 @g(i64 %m, i64 %n) {
           %none = icmp eq i64 %m, 0
           br i1 %none, label %add, label %next
         add:
           %n1 = add i64 %n, 1
           ret i64 %n1
         next:
           %m1 = sub i64 %m, 1
           %zero = icmp eq i64 %n, 0
           br i1 %zero, label %one, label %two
         one:
           %x = call i64 @g(i64 %m1, i64 1)
           ret i64 %x
         two:
           %less = sub i64 %n, 1
           %inner = call i64 @g(i64 %m, i64 %less)
           %y = call i64 @g(i64 %m1, i64 %inner)
           ret i64 %y
         }",
    ),
    (
        "a loop of calls that change what is in memory",
        "@list = global [8 x i64] [i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8]
         define i64 @f(i64 %n, i64 %m) {
           %k = and i64 %n, 7
           %r = call i64 @g(i64 %k, i64 %m)
           %o = load i64, ptr @list
           %s = add i64 %r, %o
           ret i64 %s
         }
         define i64 @g(i64 %k, i64 %m) {
           %none = icmp eq i64 %k, 0
           br i1 %none, label %leaf, label %loop
         leaf:
           %v = load i64, ptr @list
           %w = xor i64 %v, %m
           ret i64 %w
         loop:
           %i = phi i64 [ 0, %0 ], [ %j, %loop ]
           %s = phi i64 [ 0, %0 ], [ %t, %loop ]
           %p = getelementptr [8 x i64], ptr @list, i64 0, i64 %i
           %x = load i64, ptr %p
           %y = load i64, ptr @list
           store i64 %y, ptr %p
           store i64 %x, ptr @list
           %k1 = sub i64 %k, 1
           %r = call i64 @g(i64 %k1, i64 %m)
           %t0 = mul i64 %s, 3
           %t = add i64 %t0, %r
           %j = add i64 %i, 1
           %more = icmp ult i64 %j, 3
           br i1 %more, label %loop, label %done
         done:
           ret i64 %t
         }",
    ),
    (
        "a variable whose address each level passes on",
        "define i64 @f(i64 %n, i64 %m) {
           %room = alloca i64
           store i64 %m, ptr %room
           %r = call i64 @g(i64 %n, ptr %room)
           %s = load i64, ptr %room
           %t = add i64 %r, %s
           ret i64 %t
         }
         define i64 @g(i64 %n, ptr %up) {
           %own = alloca i64
           %none = icmp eq i64 %n, 0
           br i1 %none, label %leaf, label %more
         leaf:
           store i64 7, ptr %up
           ret i64 1
         more:
           %seen = load i64, ptr %up
           %x = add i64 %seen, %n
           store i64 %x, ptr %own
           %n1 = sub i64 %n, 1
           %a = call i64 @g(i64 %n1, ptr %own)
           %y = load i64, ptr %own
           store i64 %y, ptr %up
           %z = add i64 %a, %y
           %w = add i64 %z, %x
           ret i64 %w
         }",
    ),
    (
        "a structure by value, which the callee changes",
        "%pair = type { i64, i64 }
         define i64 @f(i64 %n, i64 %m) {
           %room = alloca %pair
           store i64 %n, ptr %room
           %second = getelementptr %pair, ptr %room, i32 0, i32 1
           store i64 %m, ptr %second
           %r = call i64 @g(ptr byval(%pair) align 8 %room)
           %left = load i64, ptr %room
           %s = add i64 %r, %left
           ret i64 %s
         }
         define i64 @g(ptr byval(%pair) align 8 %p) {
           %n = load i64, ptr %p
           %none = icmp eq i64 %n, 0
           %second = getelementptr %pair, ptr %p, i32 0, i32 1
           %m = load i64, ptr %second
           br i1 %none, label %leaf, label %more
         leaf:
           ret i64 %m
         more:
           %n1 = sub i64 %n, 1
           store i64 %n1, ptr %p
           %m1 = mul i64 %m, 3
           store i64 %m1, ptr %second
           %a = call i64 @g(ptr byval(%pair) align 8 %p)
           %again = load i64, ptr %p
           %same = add i64 %a, %again
           ret i64 %same
         }",
    ),
    (
        "a switch, flags and 80 bits",
        "define i64 @f(i64 %n, i64 %m) {
           %x = uitofp i64 %m to x86_fp80
           %y = call x86_fp80 @g(i64 %n, x86_fp80 %x)
           %z = fptoui x86_fp80 %y to i64
           ret i64 %z
         }
         define x86_fp80 @g(i64 %n, x86_fp80 %x) {
           %kind = and i64 %n, 3
           %n1 = lshr i64 %n, 1
           %none = icmp eq i64 %n, 0
           br i1 %none, label %leaf, label %more
         leaf:
           ret x86_fp80 %x
         more:
           switch i64 %kind, label %others [ i64 1, label %one i64 2, label %two ]
         one:
           %a = call x86_fp80 @g(i64 %n1, x86_fp80 %x)
           %b = fadd nnan x86_fp80 %a, 0xK3FFF8000000000000000
           br label %done
         two:
           %c = fmul x86_fp80 %x, 0xK40008000000000000000
           %d = call x86_fp80 @g(i64 %n1, x86_fp80 %c)
           br label %done
         others:
           %e = call x86_fp80 @g(i64 %n1, x86_fp80 %x)
           %g = call x86_fp80 @g(i64 0, x86_fp80 %e)
           %h = fadd x86_fp80 %g, %x
           br label %done
         done:
           %r = phi nnan x86_fp80 [ %b, %one ], [ %d, %two ], [ %h, %others ]
           ret x86_fp80 %r
         }",
    ),
    (
        "a call in the place of its caller",
        "define i64 @f(i64 %n, i64 %m) {
           %none = icmp eq i64 %n, 0
           br i1 %none, label %leaf, label %more
         leaf:
           ret i64 %m
         more:
           %n1 = sub i64 %n, 1
           %odd = and i64 %n, 1
           %is = icmp eq i64 %odd, 0
           br i1 %is, label %even, label %last
         even:
           %a = call i64 @f(i64 %n1, i64 %m)
           %b = mul i64 %a, 3
           ret i64 %b
         last:
           %m1 = add i64 %m, %n
           %c = musttail call i64 @f(i64 %n1, i64 %m1)
           ret i64 %c
         }",
    ),
];

/// Results for some arguments.
fn results(ir: &str, tier: Tier) -> Vec<i64> {
    let jit = Jit::builder().tiers(Tiers::Fixed(tier)).build();
    let jit = jit.expect("a session");
    jit.add_ir("m", ir).expect("valid IR");
    // SAFETY: it has this type.
    let f = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("f") };
    let f = f.expect("typed");
    let all = (0..18).flat_map(|n| [0, 1, 5, 1000].map(|m| (n, m)));
    all.map(|(n, m)| f.call(n, m)).collect()
}

#[test]
fn recursion_has_the_same_results_at_all_tiers() {
    for (name, ir) in FUNCTIONS {
        let expected = results(ir, Tier::Baseline);
        for tier in [Tier::Optimized, Tier::Guided] {
            assert_eq!(results(ir, tier), expected, "{name} at {tier}");
        }
    }
}

#[test]
fn fib_is_right() {
    let found = results(FUNCTIONS[0].1, Tier::Guided);
    let fib: Vec<i64> = found.into_iter().step_by(4).collect();
    assert_eq!(fib[..10], [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
}
